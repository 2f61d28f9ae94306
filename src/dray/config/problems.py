"""How a bad setting is reported: one line with the key, the value, what is allowed, and its origin."""

from __future__ import annotations

from difflib import get_close_matches

SHOWN_VALUE_LIMIT = 80
MASK = "********"

_SECRET_WORDS = ("secret", "password", "token", "credential", "access_key", "account_key", "sas_key")


class ConfigError(Exception):
    """A setting, or the place it came from, is not usable. Its text is one line for the operator."""


def shown(value: object) -> str:
    """A value as it can stand inside one line: quoted when it is text, and never long."""
    text = repr(value)
    return text if len(text) <= SHOWN_VALUE_LIMIT else f"{text[: SHOWN_VALUE_LIMIT - 3]}..."


def looks_secret(name: str) -> bool:
    """Whether a name speaks of credentials: its value is then not printed, wherever it was put."""
    return any(word in name.lower() for word in _SECRET_WORDS)


def bad_value(key: str, value: object, allowed: str, origin: str) -> ConfigError:
    return ConfigError(f"{key} = {shown(value)} (from {origin}): must be {allowed}")


def unknown_key(key: str, value: object, origin: str, known: list[str]) -> ConfigError:
    """`known` are the full keys of the section, of which the nearest is offered first."""
    near = get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
    visible = MASK if looks_secret(key) else value
    return ConfigError(f"{key} = {shown(visible)} (from {origin}): there is no such setting; {hint}")
