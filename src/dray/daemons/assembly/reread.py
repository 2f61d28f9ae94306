"""SIGHUP: a process reads again what may change while it runs, and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from dray.base.runtime import Runtime, run_once
from dray.base.telemetry.levels import reset_levels
from dray.daemons.assembly.watched_files import look_now
from dray.daemons.config import ConfigError, Settings

_log = structlog.get_logger(__name__)


class Rereading:
    """Certificates, keys and tokens are looked at at once; log levels are as the config says by then. A
    config that cannot be used leaves them."""

    def __init__(self, runtime: Runtime, again: Callable[[], Settings]) -> None:
        self._runtime = runtime
        self._again = again
        self._asked = False
        self._reading: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """However often: one round at a time, and one more for all that came meanwhile."""
        self._asked = True
        if self._reading is None or self._reading.done():
            self._reading = run_once(self._runtime, "read again what SIGHUP asks for", self._read)

    async def _read(self) -> None:
        while self._asked:
            self._asked = False
            await look_now()
            await self._read_level()

    async def _read_level(self) -> None:
        try:
            level = (await self._runtime.in_thread(self._again)).logging.level
        except ConfigError as error:
            _log.error("the config cannot be read again: log levels stay as they are", error=str(error))
            return
        reset_levels(level)
        _log.info("read again: files of certificates, keys and tokens, and the log level", log_level=level)
