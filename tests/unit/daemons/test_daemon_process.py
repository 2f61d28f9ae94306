"""The lock names its holder and dies with it; memory tuning is taken by glibc; a dead process is known."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dray.broker.cluster import AdvertisedListener, Broker
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.process import FileLock, StopSignals, tune_memory


def lock(path: Path) -> FileLock:
    return FileLock(path, lambda holder: f"taken by {holder}")


def test_a_second_lock_names_the_first_holder(tmp_path: Path) -> None:
    with lock(tmp_path / "data" / "lock"):
        with pytest.raises(Failure) as caught, lock(tmp_path / "data" / "lock"):
            pass
        assert str(caught.value) == f"taken by pid {os.getpid()}"
        assert caught.value.code == 1


def test_a_lock_that_was_let_go_can_be_taken(tmp_path: Path) -> None:
    for _ in range(2):
        with lock(tmp_path / "lock"):
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert (tmp_path / "lock").read_text() == ""


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom dray.daemons.assembly.process import FileLock\n"
        f"with FileLock(Path({str(tmp_path / 'lock')!r}), str):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(Failure, match=f"pid {holder.pid}"), lock(tmp_path / "lock"):
        pass
    holder.kill()
    holder.communicate()
    with lock(tmp_path / "lock"):
        pass


def test_a_directory_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure) as caught, lock(tmp_path / "file" / "lock"):
        pass
    assert "cannot use the data directory" in str(caught.value)
    assert "choose another --data-dir" in str(caught.value)


def test_a_failure_is_always_one_line() -> None:
    assert str(Failure("several\nlines  of\ttext")) == "several lines of text"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_glibc_takes_our_thresholds() -> None:
    assert tune_memory()


def test_the_file_limit_is_raised_to_what_is_allowed() -> None:
    code = (
        "import resource\nfrom dray.daemons.assembly.process import raise_file_limit\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "raise_file_limit()\nassert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


STOPPABLE = """
import asyncio, sys
from dray.daemons.assembly.process import StopSignals

async def run():
    hang_up = None if "terminal" in sys.argv else lambda: print("hung up", flush=True)
    signals = StopSignals(asyncio.get_running_loop(), hang_up)
    print("ready", flush=True)
    print((await signals.wait()).name, flush=True)
    await asyncio.Event().wait()  # a stop that never comes to its end

asyncio.run(run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_ends_the_process(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", STOPPABLE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == f"{number.name}\n"
    assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_the_end_of_terminal_or_supervisor_asks_and_never_ends_the_process(number: signal.Signals) -> None:
    """The kernel tells of a dead parent once for each of its threads."""
    command = [sys.executable, "-c", STOPPABLE, "terminal"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.readline() == f"{number.name}\n"
    process.send_signal(number)
    process.send_signal(signal.SIGTERM)  # signals are told in the order of their numbers: this one is last
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


DEAF = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"


@pytest.mark.parametrize("before", ["", DEAF])
def test_a_process_without_a_terminal_goes_on_after_hanging_up(before: str) -> None:
    """One that was started with `nohup` too."""
    process = subprocess.Popen([sys.executable, "-c", before + STOPPABLE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "hung up\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "SIGTERM\n"
    process.kill()
    process.communicate()


def test_only_one_on_a_terminal_without_nohup_goes_with_it() -> None:
    program = (
        "from dray.daemons.assembly.process import goes_with_its_terminal\nprint(goes_with_its_terminal())"
    )
    told = []
    for before in ("", DEAF):
        ours, theirs = os.openpty()
        ran = subprocess.run(
            [sys.executable, "-c", before + program], stdin=theirs, capture_output=True, text=True, check=True
        )
        told.append(ran.stdout)
        os.close(ours)
        os.close(theirs)
    ran = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert [*told, ran.stdout] == ["True\n", "False\n", "False\n"]


def test_a_process_that_cannot_go_on_stops_and_says_why() -> None:
    async def run() -> None:
        signals = StopSignals(asyncio.get_running_loop(), lambda: None)
        signals.cannot_go_on("the file is damaged")
        signals.cannot_go_on("and again")
        assert await signals.wait() is signal.SIGTERM
        assert signals.reason == "the file is damaged"

    asyncio.run(run())


def test_a_dead_namesake_is_known_only_on_the_same_machine() -> None:
    from dray.daemons.assembly.process import local_machine

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = local_machine()

    def broker(machine: str, process: int) -> Broker:
        return Broker(1, (AdvertisedListener("L", "h", 1),), machine=machine, process=process)

    assert here.knows_dead(broker(here.name, ended.pid))
    assert here.knows_dead(broker(here.name, os.getpid()))  # our own id: whoever had it is gone
    assert not here.knows_dead(broker(here.name, os.getppid()))
    assert not here.knows_dead(broker("elsewhere", ended.pid))
    assert not here.knows_dead(broker("", ended.pid))


FLOODED = """
import gc
from dray.daemons.assembly.process import settle_garbage_collector

settle_garbage_collector()
looked_at = [0]


def begins(phase, told):
    if phase == "start" and told["generation"] == 1:
        looked_at.append(len(gc.get_objects(0)) + len(gc.get_objects(1)))


gc.callbacks.append(begins)
kept = [[number] for number in range(1_200_000)]
print(max(looked_at))
"""


def test_a_crowd_of_requests_makes_no_long_pass_of_the_garbage_collector() -> None:
    """Forty requests of 20,000 elements are a million objects, which one pass looked at: 0.15 s of a turn."""
    done = subprocess.run([sys.executable, "-c", FLOODED], capture_output=True, text=True, check=True)
    assert 50_000 < int(done.stdout) <= 150_000
