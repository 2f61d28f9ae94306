"""The memory that a process may use: a container's limit counts, whichever way it is written down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dray.base.config.machine import usable_memory
from dray.daemons.config import Settings, load

PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, PHYSICAL),  # no control groups at all
        ({"proc/self/cgroup": "0::/\n"}, PHYSICAL),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, PHYSICAL),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{512 * MIB}\n"}, 512 * MIB),
        (  # the group above is the narrower one
            {
                "proc/self/cgroup": "0::/system.slice/dray.service\n",
                "sys/fs/cgroup/system.slice/memory.max": f"{300 * MIB}\n",
                "sys/fs/cgroup/system.slice/dray.service/memory.max": f"{400 * MIB}\n",
            },
            300 * MIB,
        ),
        (  # the path is the host's, and not there
            {"proc/self/cgroup": "0::/kubepods/pod1\n", "sys/fs/cgroup/memory.max": f"{256 * MIB}"},
            256 * MIB,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/a\n4:memory:/docker/b\n",
                "sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes": f"{200 * MIB}\n",
                "sys/fs/cgroup/cpu/a/memory.limit_in_bytes": "1\n",
            },
            200 * MIB,
        ),
        (  # how the older groups say that there is no limit
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            PHYSICAL,
        ),
        ({"memory.max": "1", "proc/self/cgroup": "0::/\n"}, PHYSICAL),  # nothing above the mount counts
    ],
)
def test_the_narrowest_limit_holds(tmp_path: Path, files: dict[str, str], wanted: int) -> None:
    assert usable_memory(write(tmp_path, files)) == wanted


def test_the_tail_cache_is_a_share_of_the_memory_unless_said_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = load(None, {"DRAY_LOG__TAIL_CACHE_BYTES": "5MiB"}).settings
    for memory, wanted in ((128 * MIB, 32 * MIB), (2048 * MIB, 256 * MIB), (1 << 40, 8192 * MIB)):
        monkeypatch.setattr("dray.log.settings.usable_memory", lambda memory=memory: memory)
        assert Settings().log.tail_bytes == wanted
        assert told.log.tail_bytes == 5 * MIB


@pytest.mark.parametrize(("memory", "wanted"), [(2048 * MIB, 256 * MIB), (1 << 40, 512 * MIB)])
def test_up_takes_half_a_gibibyte_of_it_at_most_unless_said_otherwise(
    monkeypatch: pytest.MonkeyPatch, memory: int, wanted: int
) -> None:
    monkeypatch.setattr("dray.log.settings.usable_memory", lambda: memory)
    assert Settings().for_one_of(1).log.tail_bytes == wanted
    assert Settings().for_one_of(4).log.tail_bytes == wanted // 4
    told = load(None, {"DRAY_LOG__TAIL_CACHE_BYTES": "3GiB"}).settings
    assert told.for_one_of(4).log.tail_bytes == 3072 * MIB
