"""The remote providers: what their options are called, and how an `obstore` client is made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from dray.base.runtime import Runtime
from dray.objects.contract import check_prefix
from dray.objects.remote.credentials import RenewedClient
from dray.objects.remote.store import RemoteSettings, RemoteStore

_PROVIDERS: dict[str, tuple[Any, str]] = {
    # The client, and what it calls an endpoint of one's own.
    "s3": (S3Store, "endpoint"),
    "gs": (GCSStore, "base_url"),
    "az": (AzureStore, "endpoint"),
}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


Maker = Callable[..., Any]
"""Makes a client of credentials, or of something that gives them as obstore has it."""


def open_remote(
    url: str, options: Mapping[str, str], secrets: Mapping[str, str], runtime: Runtime
) -> RemoteStore:
    make, settings = client_maker(url, options)
    renewed: Any = RenewedClient(make, secrets, runtime)
    return RemoteStore(renewed, runtime, settings)


def client_maker(url: str, options: Mapping[str, str]) -> tuple[Maker, RemoteSettings]:
    parsed = urlsplit(url)
    if parsed.scheme not in _PROVIDERS:
        raise ValueError(f"object store {parsed.scheme}:...: it must be file:, memory:, s3:, gs: or az:")
    provider, endpoint_name = _PROVIDERS[parsed.scheme]
    if not parsed.netloc:
        raise ValueError(f"object store {url}: it names no bucket")
    if parsed.username or parsed.query:
        raise ValueError(
            f"object store {parsed.scheme}://...: credentials and options do not go into the URL"
        )
    prefix = check_prefix(parsed.path.removeprefix("/"))

    left = dict(options)
    defaults = RemoteSettings()
    settings = RemoteSettings(
        multipart_threshold=_number(left, "multipart_threshold", defaults.multipart_threshold),
        part_size=_number(left, "part_size", defaults.part_size),
    )
    client: dict[str, Any] = {
        "timeout": _duration(left, "timeout", 30.0),
        "connect_timeout": _duration(left, "connect_timeout", 5.0),
    }
    retry: dict[str, Any] = {
        "max_retries": _number(left, "retries", 5),
        "retry_timeout": _duration(left, "retry_timeout", 60.0),
        "backoff": {
            "init_backoff": _duration(left, "backoff", 0.1),
            "max_backoff": _duration(left, "max_backoff", 5.0),
        },
    }
    if "ca_file" in left:
        client["root_certificate"] = _certificates(left.pop("ca_file"))
    config: dict[str, Any] = {}
    endpoint = left.pop("endpoint", None)
    if endpoint is not None:
        config[endpoint_name] = endpoint
        client["allow_http"] = endpoint.startswith("http://")
    if parsed.scheme == "s3" and "path_style" in left:
        config["virtual_hosted_style_request"] = not _truth(left, "path_style")
    if parsed.scheme == "s3" and "unsigned_payload" in left:
        config["unsigned_payload"] = _truth(left, "unsigned_payload")
        if config["unsigned_payload"] and client.get("allow_http"):
            raise ValueError(
                "object store option unsigned_payload: it needs an https endpoint, "
                "since without TLS only the signature guards the bytes on their way"
            )
    config.update(left)

    def make(secrets: Mapping[str, str], giver: Callable[[], Any] | None = None) -> Any:
        more = {} if giver is None else {"credential_provider": giver}
        try:
            return provider(
                parsed.netloc,
                prefix=prefix or None,
                config={**config, **secrets},
                client_options=client,
                retry_config=retry,
                **more,
            )
        except (BaseError, ValueError, TypeError) as error:
            raise ValueError(f"object store {url}: {_told_without(secrets, error)}") from None

    return make, settings


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.pop(name, None)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"object store option {name}: {text!r} is not a whole number")
    return int(text)


def _duration(options: dict[str, str], name: str, default: float) -> timedelta:
    text = options.pop(name, None)
    if text is None:
        return timedelta(seconds=default)
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise ValueError(f"object store option {name}: {text!r} is not a time such as 500ms, 30s or 2m")
    return timedelta(seconds=float(matched[1]) * _SECONDS[matched[2]])


def _certificates(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a PEM file"
        raise ValueError(f"object store option ca_file: cannot read {path}: {reason}") from None


def _truth(options: dict[str, str], name: str) -> bool:
    text = options.pop(name)
    if text not in ("true", "false"):
        raise ValueError(f"object store option {name}: {text!r} is neither true nor false")
    return text == "true"


def _told_without(secrets: Mapping[str, str], error: Exception) -> str:
    """The first line, as the others repeat what was passed in; should a secret be in it, without that."""
    line = str(error).splitlines()[0]
    for name, value in secrets.items():
        if value:
            line = line.replace(value, f"<{name}>")
    return line
