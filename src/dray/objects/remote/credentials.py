"""Credentials that change while a process runs.

`SecretFiles` are credentials in files, as Kubernetes mounts a Secret: a mapping that reads them each time.
`RenewedClient` is a client that is made anew when they have changed, and when the store says that the ones it
has are no good any more: then also what an instance role gave, and the client keeps, is asked for again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, ItemsView, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from dray.base.runtime import Runtime

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0
RENEW_SECONDS: Final = 5.0
"""At least so long from one new client to the next, where the store refuses each of them."""

_LARGEST: Final = 64 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,100}")
_VARIABLE: Final = "DRAY_OBJECTS__SECRETS__"
_NO_GOOD: Final = re.compile(
    r"<Code>(ExpiredToken|ExpiredTokenException|InvalidToken|TokenRefreshRequired|InvalidAccessKeyId|"
    r"SignatureDoesNotMatch|InvalidClientTokenId|AuthenticationFailed|InvalidAuthenticationInfo)</Code>"
)


class SecretsUnreadable(ValueError):
    """One line: which file, and why. It never shows what is in it."""


class SecretFiles(Mapping[str, str]):
    """The files of a directory by name, over credentials that do not change. Files may also have the names
    of the variables that set a credential, as in a Secret that is used for both. It travels as what it holds
    at that moment: a worker elsewhere has no such directory."""

    def __init__(self, directory: Path, given: Mapping[str, str]) -> None:
        self._directory = directory
        self._given = dict(given)

    def read(self) -> dict[str, str]:
        """Raises `SecretsUnreadable`."""
        try:
            return self._given | dict(_read_all(self._directory))
        except OSError as error:
            reason = error.strerror or error
            where = error.filename or self._directory
            raise SecretsUnreadable(f"objects.secrets_directory: cannot read {where}: {reason}") from None
        except UnicodeDecodeError:
            raise SecretsUnreadable(
                f"objects.secrets_directory: a file in {self._directory} is no text"
            ) from None

    def items(self) -> ItemsView[str, str]:
        """All of one reading."""
        return self.read().items()

    def __getitem__(self, name: str) -> str:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.read(),)


def _read_all(directory: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(directory.iterdir()):
        if _NAME.fullmatch(file.name) and file.is_file():
            name = file.name.removeprefix(_VARIABLE).lower()
            if name.startswith("dray_"):
                continue  # of another setting
            with file.open(encoding="utf-8") as opened:
                yield name, opened.read(_LARGEST).strip()


class RenewedClient:
    """An `obstore` client, with those of its calls that are used here. `make` makes one of credentials;
    `secrets` are what they are now."""

    def __init__(
        self, make: Callable[[Mapping[str, str]], Any], secrets: Mapping[str, str], runtime: Runtime
    ) -> None:
        self._make = make
        self._secrets = secrets
        self._runtime = runtime
        self._used = dict(secrets.items())
        self._client = make(self._used)
        self._changes = isinstance(secrets, SecretFiles)
        self._look_at = runtime.monotonic() + LOOK_SECONDS
        self._renewed_at = float("-inf")
        self._renewing = asyncio.Lock()

    async def put_async(self, path: str, data: Any, **options: Any) -> Any:
        # Data that comes in pieces is gone after the first try.
        return await self._ask("put_async", path, data, again=isinstance(data, bytes), **options)

    async def get_async(self, path: str, **options: Any) -> Any:
        return await self._ask("get_async", path, **options)

    async def get_range_async(self, path: str, **options: Any) -> Any:
        return await self._ask("get_range_async", path, **options)

    async def head_async(self, path: str) -> Any:
        return await self._ask("head_async", path)

    async def delete_async(self, path: str) -> Any:
        return await self._ask("delete_async", path)

    async def list(self, prefix: str | None, **options: Any) -> AsyncIterator[Any]:
        await self._look()
        client = self._client
        try:
            async for found in client.list(prefix, **options):
                yield found
        except Exception as error:
            if _NO_GOOD.search(str(error)):
                await self._renew(client)  # for the next call: what was yielded cannot be taken back
            raise

    async def _ask(self, name: str, *arguments: Any, again: bool = True, **options: Any) -> Any:
        if self._changes:
            await self._look()
        client = self._client
        try:
            return await getattr(client, name)(*arguments, **options)
        except Exception as error:
            if not _NO_GOOD.search(str(error)) or not await self._renew(client) or not again:
                raise
        return await getattr(self._client, name)(*arguments, **options)

    async def _look(self) -> None:
        """Have the files changed? At most one request in `LOOK_SECONDS` pays for it."""
        now = self._runtime.monotonic()
        if not self._changes or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        async with self._renewing:
            secrets = await self._read()
            if secrets is not None and secrets != self._used:
                await self._use(secrets)

    async def _renew(self, refused: Any) -> bool:
        """Is there another client than the one whose credentials were refused? One and the same refusal may
        reach many requests at once."""
        async with self._renewing:
            if self._client is not refused:
                return True
            now = self._runtime.monotonic()
            if now - self._renewed_at < RENEW_SECONDS:
                return False
            self._renewed_at = now
            secrets = await self._read()
            if secrets is None:
                return False
            await self._use(secrets)
            return True

    async def _read(self) -> dict[str, str] | None:
        if not self._changes:
            return self._used
        try:
            return dict(await self._runtime.in_thread(self._secrets.items))
        except SecretsUnreadable as error:
            _log.warning("changed credentials are not used: those from before stay", error=str(error))
            return None

    async def _use(self, secrets: dict[str, str]) -> None:
        try:
            self._client = await self._runtime.in_thread(self._make, secrets)
        except ValueError as error:
            _log.warning("changed credentials are not used: those from before stay", error=str(error))
            return
        if secrets != self._used:
            _log.info("changed credentials are in use", names=sorted(secrets))
        self._used = secrets
