"""Log levels while a process runs: of all lines (`root`), of a room's loggers, or of one module's.

The standard library's loggers hold them, those of our own modules too: what is set for a name holds for all
names below it. The words are Kafka's, whose tools change them (KIP-412); TRACE is DEBUG here. None of it is
kept: a restart, or `reset_levels`, brings back what the config says.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_WORDS: Final = {number: word for word, number in LEVELS.items()}
_OURS: Final = "dray"
_changed: Final[dict[str, int]] = {}
"""The level of each logger that was changed, as it was before."""


def level_of(name: str) -> int:
    """One of the five that there are, whatever a library has set."""
    effective = logging.getLogger(name).getEffectiveLevel()
    return min(max(-(-effective // 10) * 10, logging.DEBUG), logging.CRITICAL)


def levels() -> dict[str, str]:
    """Of every logger that there is by now."""
    return {name: _WORDS[level_of(name)] for name in sorted(_names())}


def set_level(name: str, word: str | None) -> None:
    """Of a logger that there is; None: as it was before anybody changed it."""
    logger = logging.getLogger(name)
    if word is not None:
        _changed.setdefault(name, logger.level)
        logger.setLevel(LEVELS[word])
    elif name in _changed:
        logger.setLevel(_changed.pop(name))


def reset_levels(level: str) -> None:
    """As the config says: nothing that was changed holds any more."""
    for name in list(_changed):
        set_level(name, None)
    logging.getLogger().setLevel(level.upper())


def _names() -> set[str]:
    others = {name for name, found in logging.root.manager.loggerDict.items() if _is_logger(found)}
    return {ROOT, *others, *(name for name in list(sys.modules) if _is_ours(name))}


def _is_logger(found: object) -> bool:
    return isinstance(found, logging.Logger)


def _is_ours(name: str) -> bool:
    """Rooms, and modules that write lines."""
    module = sys.modules.get(name)
    ours = name.partition(".")[0] == _OURS
    return ours and (hasattr(module, "__path__") or hasattr(module, "_log"))
