"""From the sources to the one effective config, or to one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import fields as inner
from pathlib import Path
from typing import Any, TypeVar

from dray.base.config.kinds import MASK, Address, TextMap, size_text
from dray.base.config.setting import SECTION, SETTING
from dray.daemons.config.listeners import PLAINTEXT, TOKEN_MECHANISM
from dray.daemons.config.model import Settings
from dray.daemons.config.problems import ConfigError, bad_value, looks_secret
from dray.daemons.config.schema import fields, fields_by_path
from dray.daemons.config.sources import FlagValue, KeyPath, Layer, environment_layer, flag_layer

__all__ = ["FlagValue", "LoadedConfig", "load"]

T = TypeVar("T")


@dataclass(frozen=True)
class LoadedConfig:
    settings: Settings
    origins: Mapping[str, str]
    """The origin of each setting's value, by key; a value that is not here is a default."""
    warnings: tuple[str, ...] = ()
    """One line for each setting that is gone."""
    again: Callable[[], Settings] = Settings
    """What the same sources say by now. Raises `ConfigError`."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[FlagValue] = (),
) -> LoadedConfig:
    """Later sources win, setting by setting. Raises `ConfigError` with one line."""
    flags = tuple(flags)
    merged = Layer()
    layers = [_file_layer(file)] if file is not None else []
    layers += [environment_layer(environment or {}), flag_layer(flags)]
    for layer in layers:
        merged.warnings += layer.warnings
        for path, value in layer.values.items():
            merged.put(path, value, layer.origins[path])
    _leave_out_plain_listener(merged)
    settings = _made(Settings, _tree(merged), merged)
    _check_together(settings, merged)
    origins = {".".join(path): origin for path, origin in merged.origins.items()}
    return LoadedConfig(
        settings, origins, tuple(merged.warnings), lambda: load(file, environment, flags).settings
    )


def _file_layer(file: Path) -> Layer:
    from dray.daemons.config.yaml_file import file_layer

    return file_layer(file)


def _leave_out_plain_listener(merged: Layer) -> None:
    """An operator who gives listeners has said where clients connect: a listener that asks nobody would be a
    way around them."""
    given = [path for path in merged.values if path[:2] == ("broker", "listeners")]
    if given and ("broker", "listen") not in merged.values:
        merged.put(("broker", "listen"), "off", "broker.listeners")


def _tree(layer: Layer) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in layer.values.items():
        section = tree
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = value
    return tree


def _made(section: type[T], given: Mapping[str, Any], layer: Layer, path: KeyPath = ()) -> T:
    """A section with the values that its sources give. What they leave out is as by default."""
    values: dict[str, Any] = {}
    for each in inner(section):  # type: ignore[arg-type]
        if each.name not in given:
            continue
        inside = (*path, each.name)
        if SECTION in each.metadata:
            values[each.name] = _made(each.metadata[SECTION], given[each.name], layer, inside)
            continue
        try:
            values[each.name] = each.metadata[SETTING].kind.parse(given[each.name])
        except ValueError as error:
            raise _problem(inside, layer) from error
    return section(**values)


def _problem(path: KeyPath, layer: Layer) -> ConfigError:
    known = fields_by_path()[path]
    if not isinstance(known.kind, TextMap):
        return bad_value(known.key, layer.values[path], known.kind.allowed(), layer.origins[path])
    # A map is judged as a whole: find the entry to blame by asking for each alone.
    for entry, value in layer.values.items():
        if entry[:-1] == path and (allowed := _refusal_of(known.kind, entry[-1], value)) is not None:
            shown = MASK if known.kind.secret else value
            return bad_value(".".join(entry), shown, allowed, layer.origins[entry])
    raise AssertionError(f"{known.key} was refused, but each of its entries is allowed")


def _refusal_of(kind: TextMap, name: str, value: Any) -> str | None:
    """The allowed form of an entry, if it has another."""
    try:
        kind.parse({name: value})
    except ValueError as error:
        return str(error) or kind.allowed()
    return None


def _check_together(settings: Settings, layer: Layer) -> None:
    """Check what one setting alone cannot show."""

    def refuse(key: str, allowed: str) -> ConfigError:
        path = tuple(key.split("."))
        known = next(item for item in fields() if item.path == path[: len(item.path)])
        value = layer.values.get(path)
        if value is None or value is False:  # also that of `off`, as YAML reads it
            value = known.kind.render(None if path in layer.values else known.default)
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
    if settings.limits.frame_bytes > settings.limits.most_answer_bytes:
        raise refuse(
            "limits.frame_bytes",
            f"at most limits.answer_bytes, which is {size_text(settings.limits.most_answer_bytes)}",
        )
    listen = settings.broker.listen
    if listen is None:
        if not settings.broker.listeners:
            raise refuse("broker.listen", "an address where there are no broker.listeners")
        if settings.broker.advertised is not None:
            raise refuse(
                "broker.advertised",
                "absent where broker.listen is off, as it is with broker.listeners unless it is set",
            )
    elif listen.host in ("0.0.0.0", "::") and settings.broker.advertised is None:
        raise refuse(
            "broker.listen",
            "an address that clients can connect to, or broker.advertised must name one",
        )
    elif settings.broker.http == listen and listen.port != 0:
        raise refuse("broker.http", "another address than broker.listen")
    if (settings.http.certificate_file is None) != (settings.http.key_file is None):
        missing = "key_file" if settings.http.key_file is None else "certificate_file"
        raise refuse(f"http.{missing}", "given with the other of certificate_file and key_file")
    if settings.http.client_ca_file is not None and settings.http.certificate_file is None:
        raise refuse("http.client_ca_file", "given with certificate_file: certificates are for HTTPS")
    console_at = settings.console.listener
    if console_at is not None and not settings.broker.listeners.get(console_at, Address("", 0)).port:
        raise refuse("console.listener", "the name of one of broker.listeners, with a port of its own")
    taken = {} if listen is None else {listen: "broker.listen"}
    if settings.broker.http is not None:
        taken[settings.broker.http] = "broker.http"
    for name, listener in settings.broker.listeners.items():
        address = Address(listener.host, listener.port)  # two protocols cannot share one either
        key = f"broker.listeners.{name}"
        if name == PLAINTEXT:
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
