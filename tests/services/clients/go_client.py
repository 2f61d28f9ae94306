"""franz-go (new versions of every API) and sarama: programs of ours, `tests/go`, built once."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.services.clients.contract import Message
from tests.services.clients.line_client import LineClient
from tests.services.clients.line_reader import LineReader
from tests.services.clients.reader import Reading
from tests.services.go_build import ProgramMissing, run
from tests.services.tools import cache_directory, exclusively, missing

SOURCES = Path(__file__).parents[2] / "go"


def require_franz() -> Path:
    return _require("franz")


def require_sarama() -> Path:
    return _require("sarama")


def _require(name: str) -> Path:
    """The program, or the end of the test."""
    found = find_program(name)
    if isinstance(found, ProgramMissing):
        missing(str(found))
    return found


@cache
def find_program(name: str) -> Path | ProgramMissing:
    """Built once for each state of its sources; looked for once in a run."""
    files = sorted(path for path in SOURCES.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    home = cache_directory() / f"go-clients-{digest}"
    program = home / name
    with exclusively(home):
        if program.exists():
            return program
        if shutil.which("go") is None:
            return ProgramMissing(f"needs go to build {name}, which this machine lacks")
        try:
            run(["go", "build", "-buildvcs=false", "-o", f"{program}.building", f"./{name}"], SOURCES, name)
        except ProgramMissing as reason:
            return reason
        os.rename(f"{program}.building", program)
    return program


class FranzGo(LineClient):
    produces, fetches = "produce", "fetch"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, [str(require_franz())])


class Sarama(LineClient):
    """It writes and reads nothing here: what it is asked for is what tools that are built on it ask for."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, [str(require_sarama())])


class FranzGoReader(LineReader):
    def __init__(self, reading: Reading) -> None:
        words = ["read", reading.bootstrap, reading.group, reading.isolation, str(reading.fetch_bytes)]
        super().__init__(reading, [str(require_franz()), *words, *reading.topics])

    def tells(self, message: Message) -> Message:
        """Its times are nanoseconds in 64 bits, which begin anew in the year 2262."""
        nanoseconds = (message.timestamp * 1_000_000 + (1 << 63)) % (1 << 64) - (1 << 63)
        return replace(message, timestamp=nanoseconds // 1_000_000)
