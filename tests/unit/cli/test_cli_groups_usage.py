"""`drayd admin groups` refuses what it cannot mean, in one line and before it asks anybody."""

from __future__ import annotations

import pytest

from dray.cli.main import main

RESET = ["reset-offsets", "g"]
TO_EARLIEST = "--to-earliest"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["list", "--state", "Stable,Sleeping"], "--state = 'Sleeping': must be one of Assigning, "),
        (["list", "--type", "modern"], "--type = 'modern': must be one of classic, consumer"),
        (["describe"], "give the ids of groups, or --all-groups"),
        (["describe", "g", "--all-groups"], "give the ids of groups, or --all-groups"),
        ([*RESET, TO_EARLIEST], "say what to reset: --topic TOPIC"),
        ([*RESET, TO_EARLIEST, "--topic", "t", "--all-topics"], "say what to reset: --topic TOPIC"),
        ([*RESET, "--all-topics"], "nothing says where to: give one of --to-earliest"),
        (
            [*RESET, "--all-topics", TO_EARLIEST, "--shift-by", "1"],
            "--to-earliest and --shift-by: give one of",
        ),
        ([*RESET, "--all-topics", TO_EARLIEST, "--execute", "--dry-run"], "give --execute or --dry-run"),
        ([*RESET, "--topic", "t:one", TO_EARLIEST], "--topic = 't:one': must be TOPIC"),
        ([*RESET, "--all-topics", "--to-datetime", "noon"], "--to-datetime = 'noon': must be a time"),
        ([*RESET, "--all-topics", "--by-duration", "long"], "--by-duration = 'long': must be such as"),
        ([*RESET, "--all-topics", "--to-offset", "-1"], "--to-offset = -1: must be 0 or more"),
    ],
)
def test_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["admin", "groups", *arguments, "--bootstrap", "127.0.0.1:1"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"drayd: {line}")
    assert error.count("\n") == 1
