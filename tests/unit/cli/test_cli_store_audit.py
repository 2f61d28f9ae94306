"""Changes straight in the store have their lines of the audit log too: the command writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dray.cli.main import main

SECRET = "correct-horse"


def audited(capsys: pytest.CaptureFixture[str], data: Path, *arguments: str) -> list[tuple[str, str]]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["admin", *arguments, "--data-dir", str(data)])
    assert not ended.value.code
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    lines = [json.loads(line) for line in said.err.splitlines()]
    for line in lines:
        assert (line["event"], line["audit"], line["logger"]) == ("allowed", True, "dray.audit")
        assert line["through"] == "the metadata store"
        assert line["principal"].startswith("System:")
        assert line["host"]
        assert line["timestamp"].endswith("Z")
    return [(line["operation"], line["about"]) for line in lines]


def test_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    password = tmp_path / "password"
    password.write_text(SECRET)
    added = audited(capsys, tmp_path, "user", "add", "admin", "--password-file", str(password))
    assert added == [("ALTER", "set the password of user admin")]
    assert audited(capsys, tmp_path, "user", "list") == []
    deleted = audited(capsys, tmp_path, "user", "delete", "admin", "--execute")
    assert deleted == [("ALTER", "delete the password of user admin")]


def test_on_a_terminal_people_can_read_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that nobody else writes down is never without its line."""
    password = tmp_path / "password"
    password.write_text(SECRET)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with pytest.raises(SystemExit):
        main(
            [
                "admin",
                "user",
                "add",
                "me",
                "--password-file",
                str(password),
                "--data-dir",
                str(tmp_path / "data"),
            ]
        )
    said = capsys.readouterr().err
    assert "set the password of user me" in said
    assert "{" not in said


def test_acls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--allow", "User:app", "-o", "read", "-o", "write", "--topic", "orders")
    read, write = (f"ALLOW User:app from * {one} TOPIC LITERAL 'orders'" for one in ("READ", "WRITE"))
    assert audited(capsys, tmp_path, "acl", "add", *given, "--dry-run") == []
    assert audited(capsys, tmp_path, "acl", "add", *given) == [
        ("ALTER", f"add {read}"),
        ("ALTER", f"add {write}"),
    ]
    assert audited(capsys, tmp_path, "acl", "delete", "--topic", "orders") == [], "only shown"
    gone = audited(capsys, tmp_path, "acl", "delete", "--topic", "orders", "--execute")
    assert sorted(gone) == [("ALTER", f"delete {read}"), ("ALTER", f"delete {write}")]


def test_quotas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = audited(capsys, tmp_path, "quota", "set", "producer_byte_rate=1024", "--user", "app")
    assert made == [("ALTER_CONFIGS", "quotas of user app: producer_byte_rate = 1024")]
    gone = audited(capsys, tmp_path, "quota", "delete", "--user", "app", "--execute")
    assert gone == [("ALTER_CONFIGS", "quotas of user app: producer_byte_rate removed")]
