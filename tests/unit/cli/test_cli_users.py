"""`drayd admin user` straight in the store: the first user, before any broker was started."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest

from dray.base.runtime import SystemRuntime
from dray.broker.security.users import Users
from dray.cli.main import main
from dray.daemons.assembly.stores import open_metadata
from dray.daemons.config import load
from dray.kafka.sasl.credentials import ScramMechanism

SECRET = "correct-horse"
COMPOSE = Path(__file__).parents[3] / "deploy" / "compose" / "compose.yaml"


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
    assert "nothing was deleted: add --execute" in capsys.readouterr().out
    assert list(listed(data, capsys)) == ["admin", "app"]
    user(data, "delete", "app", "--execute")
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
        (["delete", "alice", "--execute"], "there is no user alice"),
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


def test_plain_is_checked_against_the_cheaper_one(tmp_path: Path, password_file: str) -> None:
    """As what an unknown user is hashed for (`kafka/sasl/server.py`)."""
    user(tmp_path, "add", "admin", "--password-file", password_file)
    settings = load(environment={"DRAY_DATA_DIR": str(tmp_path)}).settings

    async def set_last() -> ScramMechanism | None:
        runtime = SystemRuntime()
        store = await open_metadata(settings, runtime)
        users = Users(store, runtime)
        try:
            await users.start()
            return users.set_last("admin")
        finally:
            await users.stop()
            await store.close()
            runtime.close()

    assert asyncio.run(set_last()) is ScramMechanism.SHA_256


@pytest.mark.parametrize("last", ScramMechanism)
def test_the_password_that_counts_is_deleted_last(
    tmp_path: Path, password_file: str, monkeypatch: pytest.MonkeyPatch, last: ScramMechanism
) -> None:
    """Before the other one, the other one would count for a moment."""
    user(tmp_path, "add", "app", "--password-file", password_file)
    user(tmp_path, "add", "app", "--password-file", password_file, "--mechanism", last.sasl_name)
    deleted: list[ScramMechanism] = []
    genuine = Users.delete

    async def noted(self: Users, name: str, mechanism: ScramMechanism) -> None:
        deleted.append(mechanism)
        await genuine(self, name, mechanism)

    monkeypatch.setattr(Users, "delete", noted)
    user(tmp_path, "delete", "app", "--execute")
    assert (len(deleted), deleted[-1]) == (2, last)


def test_the_command_in_the_compose_file_can_be_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [typed] = [line for line in COMPOSE.read_text().splitlines() if "user add" in line]
    command, _, file = typed.partition(" broker-a ")[2].partition(" < ")
    assert file == "admin.password"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{SECRET}\n".encode())))
    with pytest.raises(SystemExit) as ended:
        main(command.replace("/var/lib/dray", str(tmp_path)).split())
    assert ended.value.code == 0
    assert list(listed(tmp_path, capsys)) == ["admin"]


def test_who_sets_one_password_of_two_is_told(
    tmp_path: Path, password_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ["add", "app", "--password-file", password_file, "--mechanism", "SCRAM-SHA-512"]
    user(tmp_path, *one)
    assert "is the one it was" not in capsys.readouterr().out
    user(tmp_path, "add", "app", "--password-file", password_file)
    assert "is the one it was" not in capsys.readouterr().out
    user(tmp_path, *one)
    assert "the password for SCRAM-SHA-256 is the one it was" in capsys.readouterr().out


CLEAR = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nusername=a\npassword.file={}\n"


@pytest.mark.parametrize("properties", [None, CLEAR])
@pytest.mark.parametrize(
    "bootstrap", ["192.0.2.1:9092", "127.0.0.1:1,broker.invalid:9092", "[2001:db8::1]:9092"]
)
def test_a_hashed_password_does_not_travel_in_clear(
    tmp_path: Path,
    password_file: str,
    capsys: pytest.CaptureFixture[str],
    properties: str | None,
    bootstrap: str,
) -> None:
    arguments = ["admin", "user", "add", "bob", "--password-file", password_file, "--bootstrap", bootstrap]
    if properties is not None:
        (tmp_path / "c.properties").write_text(properties.format(password_file))
        arguments += ["--command-config", str(tmp_path / "c.properties")]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "is in clear" in line
    assert "--without-tls" in line


@pytest.mark.parametrize(
    ("bootstrap", "more", "properties"),
    [
        ("127.0.0.1:1", [], None),
        ("localhost:1", [], None),
        ("broker.invalid:1", ["--without-tls"], None),
        ("broker.invalid:1", [], "security.protocol=SSL\n"),
    ],
)
def test_a_hashed_password_may_travel(
    tmp_path: Path,
    password_file: str,
    capsys: pytest.CaptureFixture[str],
    bootstrap: str,
    more: list[str],
    properties: str | None,
) -> None:
    """Nobody listens there, but it is tried."""
    if properties is not None:
        (tmp_path / "c.properties").write_text(properties)
        more = ["--command-config", str(tmp_path / "c.properties")]
    with pytest.raises(SystemExit) as ended:
        main(["admin", "user", "add", "bob", "--password-file", password_file, "-b", bootstrap, *more])
    assert ended.value.code == 1
    assert "in clear" not in capsys.readouterr().err


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
