"""Children start together, start again when they die, stop together, and never outlive their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dray.base.runtime import SystemRuntime
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.notify import VARIABLE, parse_message, tell_manager
from dray.daemons.supervisor.processes import Child, RestartPolicy, Supervisor, describe_ending

# A child as a script: it notes its lives in a file, one line each, and does what its last argument says.
SCRIPT = """
import os, signal, sys
from dray.daemons.assembly.notify import tell_manager
notes, deed = sys.argv[1:]
with open(notes, "a") as file:
    file.write(f"{os.getpid()}\\n")
lives = len(open(notes).readlines())
if deed == "fail":
    sys.exit(3)
if deed == "fail-later" and lives > 1:
    sys.exit(4)
if deed == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if deed == "tidy":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if deed == "sour":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
if deed == "reading":
    signal.signal(signal.SIGHUP, lambda *_: open(notes + ".read", "a").write("again "))
if deed == "late":
    while not os.path.exists(notes + ".go"):
        signal.sigtimedwait([signal.SIGWINCH], 0.01)
    signal.signal(signal.SIGHUP, lambda *_: open(notes + ".read", "a").write("again "))
if deed == "chatty":
    if lives == 1:
        tell_manager(READY="1")
        tell_manager(READY="1")
        open(notes + ".said", "w").close()
elif deed != "slow":
    tell_manager(READY="1", X_DRAY_KAFKA=f"life {lives}")
while True:
    signal.pause()
"""
LAUNCHER = (sys.executable, "-c", SCRIPT)
QUICK = RestartPolicy(first_pause=0.01, longest_pause=0.04, healthy_seconds=60.0)


def child(directory: Path, name: str, deed: str, stop_seconds: float = 10.0) -> Child:
    return Child(name, (str(directory / name), deed), stop_seconds=stop_seconds)


def lives(directory: Path, name: str) -> list[int]:
    path = directory / name
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def supervise(*children: Child, policy: RestartPolicy = QUICK) -> Supervisor:
    return Supervisor(children, SystemRuntime(threads=1), policy, LAUNCHER)


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.01)


async def test_all_are_ready_then_all_are_stopped(tmp_path: Path) -> None:
    supervisor = supervise(child(tmp_path, "first", "tidy"), child(tmp_path, "second", "wait"))
    told = await supervisor.start()
    assert [fields["X_DRAY_KAFKA"] for fields in told] == ["life 1", "life 1"]
    processes = supervisor.processes()
    assert set(processes) == {"first", "second"}
    await supervisor.stop()
    assert not any(runs(process) for process in processes.values())
    assert supervisor.processes() == {}


async def test_a_child_that_cannot_start_ends_everything(tmp_path: Path) -> None:
    supervisor = supervise(child(tmp_path, "good", "tidy"), child(tmp_path, "bad", "fail"))
    with pytest.raises(Failure) as caught:
        await supervisor.start()
    assert str(caught.value) == "bad did not start: it ended with code 3"
    assert caught.value.code == 3
    assert not any(runs(process) for process in lives(tmp_path, "good"))
    assert len(lives(tmp_path, "bad")) == 1


async def test_one_that_dies_is_started_again_and_said_so(tmp_path: Path) -> None:
    supervisor = supervise(child(tmp_path, "first", "tidy"), child(tmp_path, "second", "tidy"))
    await supervisor.start()
    [second] = lives(tmp_path, "second")
    with capture_logs() as lines:
        os.kill(supervisor.processes()["first"], signal.SIGKILL)
        await until(lambda: any(line["event"] == "first is back" for line in lines))
    assert lines[0]["event"] == "first was killed by SIGKILL; it is started again"
    assert len(lives(tmp_path, "first")) == 2
    assert lives(tmp_path, "second") == [second]
    await supervisor.stop()


async def test_what_a_life_said_is_not_believed_of_the_next(tmp_path: Path) -> None:
    """It says twice that it is ready, and dies before the second time is heard."""
    supervisor = supervise(child(tmp_path, "chatty", "chatty"))
    await supervisor.start()
    await until((tmp_path / "chatty.said").exists)
    with capture_logs() as lines:
        os.kill(supervisor.processes()["chatty"], signal.SIGKILL)
        await until(lambda: len(lives(tmp_path, "chatty")) == 2)
        await supervisor.stop()
    assert [line["event"] for line in lines] == ["chatty was killed by SIGKILL; it is started again"]


async def test_one_that_keeps_dying_is_given_growing_pauses(tmp_path: Path) -> None:
    supervisor = supervise(child(tmp_path, "poor", "fail-later"))
    with capture_logs() as lines:
        await supervisor.start()
        os.kill(supervisor.processes()["poor"], signal.SIGKILL)
        await until(lambda: len(lines) >= 5)
        await supervisor.stop()
    pauses = [line["pause_seconds"] for line in lines if "pause_seconds" in line]
    assert pauses[:5] == [0.0, 0.01, 0.02, 0.04, 0.04]


async def test_a_long_life_is_no_failure(tmp_path: Path) -> None:
    policy = RestartPolicy(first_pause=5.0, longest_pause=5.0, healthy_seconds=0.0)
    supervisor = supervise(child(tmp_path, "old", "tidy"), policy=policy)
    await supervisor.start()
    with capture_logs() as lines:
        for life in range(1, 4):
            os.kill(supervisor.processes()["old"], signal.SIGKILL)
            await until(lambda: sum(line["event"] == "old is back" for line in lines) == life)  # noqa: B023
    assert [line["pause_seconds"] for line in lines if "pause_seconds" in line] == [0.0, 0.0, 0.0]
    await supervisor.stop()


async def test_one_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    supervisor = supervise(child(tmp_path, "stubborn", "stubborn", stop_seconds=0.2))
    await supervisor.start()
    with pytest.raises(Failure, match=r"stubborn did not stop in 0\.2 s and was killed"):
        await supervisor.stop()
    assert not runs(lives(tmp_path, "stubborn")[0])


async def test_hanging_up_is_passed_on_to_each_that_listens_by_then(tmp_path: Path) -> None:
    """One that is starting would end by the signal: it gets it once it is ready."""
    supervisor = supervise(child(tmp_path, "quick", "reading"), child(tmp_path, "slow", "late"))
    starting = asyncio.ensure_future(supervisor.start())
    await until(lambda: lives(tmp_path, "slow") and (supervisor.processes().get("quick") is not None))
    supervisor.hang_up()
    (tmp_path / "slow.go").touch()
    await starting
    for name in ("quick", "slow"):
        await until(lambda name=name: (tmp_path / f"{name}.read").exists())
        assert len(lives(tmp_path, name)) == 1
    await supervisor.stop()


async def test_one_that_stops_badly_is_told_of(tmp_path: Path) -> None:
    supervisor = supervise(child(tmp_path, "sour", "sour"))
    await supervisor.start()
    with pytest.raises(Failure, match="sour ended with code 7 while it was stopping"):
        await supervisor.stop()


async def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    supervisor = supervise(child(tmp_path, "slow", "slow"))
    starting = asyncio.ensure_future(supervisor.start())
    await until(lambda: lives(tmp_path, "slow"))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not runs(lives(tmp_path, "slow")[0])


async def test_a_program_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    supervisor = Supervisor([Child("ghost", ())], SystemRuntime(threads=1), QUICK, [str(tmp_path / "none")])
    with pytest.raises(Failure, match=r"ghost did not start: it could not be run \(No such file"):
        await supervisor.start()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells children of a death")
@pytest.mark.parametrize("hanging_up", ["SIG_DFL", "SIG_IGN"])  # the latter is what `nohup` does
def test_a_child_does_not_outlive_a_killed_parent(hanging_up: str) -> None:
    """The child is one of ours that waits; its parent gets no chance to tell it anything."""
    waiting = (
        "import signal, sys\nsys.modules['dray.cli.main'] = type(sys)('main')\n"
        "sys.modules['dray.cli.main'].main = lambda arguments: (print('up', flush=True), signal.pause())\n"
        "import runpy, os\nsys.argv = ['supervised', str(os.getppid()), 'broker']\n"
        "runpy.run_module('dray.cli.child', run_name='__main__')\n"
    )
    parent = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            f"import subprocess, sys, signal\nsignal.signal(signal.SIGHUP, signal.{hanging_up})\n"
            f"child = subprocess.Popen([sys.executable, '-c', {waiting!r}], process_group=0)\n"
            "print(child.pid, flush=True)\nsignal.pause()\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert {parent.stdout.readline().strip() for _ in range(2)} >= {"up"}
    parent.kill()
    # The child holds the other end of this pipe: it ends when the child does.
    assert parent.stdout.read() == ""
    parent.wait()


def test_one_whose_parent_is_gone_already_does_not_begin() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "dray.cli.child", "1", "version"], capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (128 + signal.SIGUSR1, b"")


def test_telling_nobody_is_no_trouble(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not tell_manager(READY="1")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nobody"))
    assert not tell_manager(READY="1")


def test_what_is_told_is_understood() -> None:
    assert parse_message(b"READY=1\nSTATUS=a=b\nnoise\n\xff=\xff") == {
        "READY": "1",
        "STATUS": "a=b",
        "�": "�",
    }


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "ended with code 0"), (-9, "was killed by SIGKILL"), (-99, "was killed by signal 99")],
)
def test_an_ending_in_words(code: int, words: str) -> None:
    assert describe_ending(code) == words
