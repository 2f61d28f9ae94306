"""What a compactor shows on a terminal: bars while it works, whole lines beside them, nothing when idle."""

from __future__ import annotations

import io
import sys
import time

import pytest
from structlog.testing import capture_logs

from dray.daemons.assembly.failures import Failure
from dray.daemons.compactor.progress import LINE_SECONDS, CompactorProgress, StandardError, report
from dray.tables.compaction.summary import Cause, CycleSummary, Phase, StalledStream


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Called by the test itself: before a test, pytest puts its own standard error in place."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_bars_while_there_is_work_and_lines_go_above_them(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    with CompactorProgress(time.monotonic, bars=True) as shown:
        shown.progress(Phase.PLAN, 1, 1)
        shown.progress(Phase.WRITE, 0, 2)
        assert sys.stderr is not terminal, "whoever writes now writes through the bars"
        StandardError().write("a warning\n")
        shown.progress(Phase.WRITE, 2, 2)
        with capture_logs() as lines:
            shown.finished(CycleSummary(files=2, finished=2, seconds=1.23))
        assert sys.stderr is terminal
    assert "writing files" in terminal.getvalue()
    assert "a warning\n" in terminal.getvalue()
    [line] = lines
    assert line["files"] == 2
    assert line["seconds"] == 1.2
    assert "troubles" not in line, "zeros say nothing"


def test_an_idle_cycle_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    with CompactorProgress(time.monotonic, bars=True) as shown, capture_logs() as lines:
        shown.progress(Phase.PLAN, 5, 5)
        shown.progress(Phase.WRITE, 0, 0)
        shown.progress(Phase.COMMIT, 0, 0)
        shown.finished(CycleSummary(streams=5))
    assert (terminal.getvalue(), lines) == ("", [])


def test_without_a_terminal_of_its_own_there_are_lines_and_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    with CompactorProgress(time.monotonic, bars=False) as shown, capture_logs() as lines:
        shown.progress(Phase.WRITE, 0, 2)
        shown.finished(CycleSummary(finished=1))
    assert terminal.getvalue() == ""
    assert len(lines) == 1


def test_a_long_once_says_now_and_then_how_far_it_is() -> None:
    now = 100.0
    with CompactorProgress(lambda: now, bars=False, eager=True) as shown, capture_logs() as lines:
        shown.compacted(0, 10_000_000_000)
        for _ in range(9):
            now += LINE_SECONDS / 3
            shown.compacted(round((now - 100.0) * 10_000_000), 10_000_000_000)
    assert [(line["done"], line["left"], line["time_left"]) for line in lines] == [
        ("300 MB", "9.7 GB", "about 16 minutes"),
        ("600 MB", "9.4 GB", "about 16 minutes"),
        ("900 MB", "9.1 GB", "about 15 minutes"),
    ]


def test_bars_say_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    now = 0.0
    with CompactorProgress(lambda: now, bars=True, eager=True) as shown:
        shown.progress(Phase.WRITE, 0, 2)
        shown.compacted(0, 2_000_000_000)
        now = 600.0
        shown.compacted(1_000_000_000, 2_000_000_000)
        shown.progress(Phase.WRITE, 1, 2)
    assert "1.0 GB left, about 10 minutes" in terminal.getvalue()


def test_a_cycle_that_is_interrupted_leaves_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    shown = CompactorProgress(time.monotonic, bars=True)
    shown.progress(Phase.WRITE, 0, 2)
    shown.interrupted()
    assert sys.stderr is terminal


def test_the_report_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    summary = CycleSummary(records=1200, files=1, input_bytes=5_000_000, output_bytes=900_000, seconds=2.0)
    report(summary)
    assert "compacted 1,200 records into 1 file: 5.0 MB became 900 kB in 2.0 s" in capsys.readouterr().out
    report(CycleSummary())
    assert capsys.readouterr().out.startswith("nothing to compact")
    with pytest.raises(Failure, match="2 of it did not go well"):
        report(
            CycleSummary(
                troubles=[
                    StalledStream("orders", 3, "a\nb", Cause.UNIT),
                    StalledStream("t", -1, "c", Cause.TABLE),
                ]
            )
        )
    assert capsys.readouterr().err == "drayd: orders-3: a b\ndrayd: t: c\n"
