"""`drayd admin user` straight in the store: the first user, before any broker was started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dray.cli.main import main

SECRET = "correct-horse"


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\n")
    return str(path)


def user(data: Path, *arguments: str) -> None:
    """Raises `SystemExit` where the command fails."""
    try:
        main(["admin", "user", *arguments, "--data-dir", str(data)])
    except SystemExit as ended:
        if ended.code != 0:
            raise


def listed(data: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, int]]:
    capsys.readouterr()
    user(data, "list", "--json")
    found: dict[str, dict[str, int]] = json.loads(capsys.readouterr().out)
    return found


def test_the_first_user(tmp_path: Path, password_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    user(data, "add", "admin", "--password-file", password_file)
    user(data, "add", "app", "--password-file", password_file, "--mechanism", "scram-sha-512")
    user(
        data,
        "add",
        "app",
        "--password-file",
        password_file,
        "--mechanism",
        "SCRAM-SHA-512",
        "--iterations",
        "8192",
    )
    shown = capsys.readouterr()
    assert listed(data, capsys) == {
        "admin": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096},
        "app": {"SCRAM-SHA-512": 8192},
    }
    user(data, "delete", "app")
    assert list(listed(data, capsys)) == ["admin"]
    assert SECRET not in shown.out + shown.err
    for path in data.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["add", "a\0b", "--password-file", "{file}"], "NAME cannot be used"),
        (["add", "", "--password-file", "{file}"], "NAME cannot be used"),
        (["add", "alice", "--password-file", "/nowhere/at/all"], "No such file"),
        (["add", "alice", "--password-file", "{file}", "--mechanism", "PLAIN"], "--mechanism = 'PLAIN'"),
        (["add", "alice", "--password-file", "{file}", "--iterations", "100"], "--iterations = 100"),
        (["delete", "alice"], "there is no user alice"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, password_file: str, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        user(tmp_path / "data", *(each.format(file=password_file) for each in arguments))
    assert ended.value.code != 0
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb\n", b"\xff\xfe", "\u2168".encode(), b"x" * 5000])
def test_a_password_that_not_every_client_sends_alike_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    path = tmp_path / "password"
    path.write_bytes(content)
    with pytest.raises(SystemExit):
        user(tmp_path / "data", "add", "alice", "--password-file", str(path))
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert len(content) < 4 or content.decode(errors="replace") not in err
