"""From the sources to the one effective config, or to one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dray.config.kinds import Address, TextMap, size_text
from dray.config.listeners import TOKEN_MECHANISM
from dray.config.model import Settings
from dray.config.problems import MASK, ConfigError, bad_value, looks_secret
from dray.config.schema import fields, fields_by_path
from dray.config.sources import FlagValue, KeyPath, Layer, environment_layer, file_layer, flag_layer

__all__ = ["FlagValue", "LoadedConfig", "load"]


@dataclass(frozen=True)
class LoadedConfig:
    settings: Settings
    origins: Mapping[str, str]
    """Where each setting's value came from, by key; what is not here is a default."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[FlagValue] = (),
) -> LoadedConfig:
    """Later sources win, setting by setting. Raises `ConfigError` with one line."""
    merged = Layer()
    layers = [file_layer(file)] if file is not None else []
    layers += [environment_layer(environment or {}), flag_layer(flags)]
    for layer in layers:
        for path, value in layer.values.items():
            merged.put(path, value, layer.origins[path])
    try:
        settings = Settings.model_validate(_tree(merged))
    except ValidationError as error:
        raise _first_problem(error, merged) from error
    _check_together(settings, merged)
    return LoadedConfig(settings, {".".join(path): origin for path, origin in merged.origins.items()})


def _tree(layer: Layer) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in layer.values.items():
        section = tree
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = value
    return tree


def _first_problem(error: ValidationError, layer: Layer) -> ConfigError:
    path: KeyPath = tuple(str(part) for part in error.errors()[0]["loc"])
    known = fields_by_path()[path]
    if not isinstance(known.kind, TextMap):
        return bad_value(known.key, layer.values[path], known.kind.allowed(), layer.origins[path])
    # A map is judged as a whole: find the entry to blame by asking for each alone.
    for entry, value in layer.values.items():
        if entry[:-1] == path and (allowed := _refusal_of(known.kind, entry[-1], value)) is not None:
            shown = MASK if known.kind.secret else value
            return bad_value(".".join(entry), shown, allowed, layer.origins[entry])
    raise AssertionError(f"{known.key} was refused, but each of its entries is allowed") from error


def _refusal_of(kind: TextMap, name: str, value: Any) -> str | None:
    """What an entry must be, where it is not."""
    try:
        kind.parse({name: value})
    except ValueError as error:
        return str(error) or kind.allowed()
    return None


def _check_together(settings: Settings, layer: Layer) -> None:
    """What one setting alone cannot show."""

    def refuse(key: str, allowed: str) -> ConfigError:
        path = tuple(key.split("."))
        known = next(item for item in fields() if item.path == path[: len(item.path)])
        value = layer.values.get(path)
        if value is None:
            value = known.kind.render(known.default)
        return bad_value(key, value, allowed, layer.origins.get(path, "the default"))

    if settings.log.object_bytes > settings.limits.buffer_bytes:
        raise refuse(
            "log.object_bytes",
            f"at most limits.buffer_bytes, which is {size_text(settings.limits.buffer_bytes)}",
        )
    largest = settings.limits.buffer_bytes - settings.limits.buffer_bytes // 16
    if settings.limits.frame_bytes > largest:
        raise refuse(
            "limits.frame_bytes",
            f"at most 15/16 of limits.buffer_bytes, which is {size_text(settings.limits.buffer_bytes)}",
        )
    if settings.limits.frame_bytes > settings.answer_bytes:
        raise refuse(
            "limits.frame_bytes",
            f"at most limits.answer_bytes, which is {size_text(settings.answer_bytes)}",
        )
    if settings.topics.partitions > settings.topics.max_partitions:
        raise refuse(
            "topics.partitions",
            f"at most topics.max_partitions, which is {settings.topics.max_partitions}",
        )
    if settings.broker.listen.host in ("0.0.0.0", "::") and settings.broker.advertised is None:
        raise refuse(
            "broker.listen",
            "an address that clients can connect to, or broker.advertised must name one",
        )
    if settings.broker.http == settings.broker.listen and settings.broker.listen.port != 0:
        raise refuse("broker.http", "another address than broker.listen")
    if (settings.http.certificate_file is None) != (settings.http.key_file is None):
        missing = "key_file" if settings.http.key_file is None else "certificate_file"
        raise refuse(f"http.{missing}", "given with the other of certificate_file and key_file")
    if settings.http.client_ca_file is not None and settings.http.certificate_file is None:
        raise refuse("http.client_ca_file", "given with certificate_file: certificates are for HTTPS")
    console_at = settings.console.listener
    if console_at is not None and not settings.broker.listeners.get(console_at, Address("", 0)).port:
        raise refuse("console.listener", "the name of one of broker.listeners, with a port of its own")
    taken = {settings.broker.listen: "broker.listen"}
    if settings.broker.http is not None:
        taken[settings.broker.http] = "broker.http"
    for name, listener in settings.broker.listeners.items():
        address = Address(listener.host, listener.port)  # two protocols cannot share one either
        key = f"broker.listeners.{name}"
        if name == "PLAINTEXT":
            raise refuse(key, "given as broker.listen, whose name that is")
        if address.port and address in taken:
            raise refuse(key, f"another address than {taken[address]}")
        if address.host in ("0.0.0.0", "::") and name not in settings.broker.advertised_listeners:
            raise refuse(
                key,
                "an address that clients can connect to, or broker.advertised_listeners must name one",
            )
        taken[address] = key
        oauth = settings.oauth
        if TOKEN_MECHANISM in listener.mechanisms and (oauth.key_set_file or oauth.key_set_url) is None:
            raise refuse("oauth.key_set_file", f"given, or key_set_url: the listener {name} takes tokens")
    if settings.security.authorization == "acls" and not settings.security.super_users:
        raise refuse(
            "security.super_users",
            "given with authorization: acls, as in [User:admin]: else nobody could create the first ACL",
        )
    if settings.oauth.key_set_file is not None and settings.oauth.key_set_url is not None:
        raise refuse("oauth.key_set_url", "absent where oauth.key_set_file is given")
    for name in settings.broker.advertised_listeners:
        if name not in settings.broker.listeners:
            raise refuse(f"broker.advertised_listeners.{name}", "one of broker.listeners")
    for name in settings.objects.options:
        if looks_secret(name):
            path = ("objects", "options", name)
            raise bad_value(
                ".".join(path),
                MASK,
                f"given as objects.secrets.{name}, which is never printed",
                layer.origins[path],
            )
