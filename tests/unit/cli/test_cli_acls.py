"""`drayd admin acl`: straight in the store, and through a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.api.fakes import Harness, running

from dray.cli.main import main
from dray.kafka.acls import AclFilter
from dray.kafka.client.access import WireAcl, create_acls, delete_acls, list_acls
from dray.kafka.client.errors import RequestFailed


def acl(data: Path, *arguments: str) -> None:
    """Raises `SystemExit` where the command fails."""
    try:
        main(["admin", "acl", *arguments, "--data-dir", str(data)])
    except SystemExit as ended:
        if ended.code != 0:
            raise


def listed(data: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, ...]]:
    capsys.readouterr()
    acl(data, "list", "--json", *arguments)
    found = json.loads(capsys.readouterr().out)
    return [
        (one["permission"], one["principal"], one["operation"], one["resource"], one["pattern"], one["name"])
        for one in found
    ]


APP = ("allow", "User:app", "read", "topic", "literal", "orders")
ANY = ("deny", "User:*", "write", "topic", "prefixed", "ord")


def test_acls_are_added_listed_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    acl(data, "add", "--allow", "User:app", "-o", "read", "-o", "Describe-Configs", "--topic", "orders")
    acl(data, "add", "--deny", "User:*", "-o", "write", "--topic", "ord", "--prefixed", "--host", "10.0.0.1")
    acl(data, "add", "--allow", "User:root", "-o", "all", "--cluster")
    assert len(listed(data, capsys)) == 4
    assert listed(data, capsys, "--principal", "User:app", "--operation", "read") == [APP]
    assert listed(data, capsys, "--topic", "ord", "--prefixed") == [ANY]
    assert listed(data, capsys, "--topic", "ordinary", "--matching") == [ANY]
    assert listed(data, capsys, "--host", "10.0.0.1") == [ANY]
    acl(data, "delete", "--principal", "User:app")
    assert "nothing was deleted: add --execute" in capsys.readouterr().out
    assert len(listed(data, capsys)) == 4
    acl(data, "delete", "--principal", "User:app", "--execute")
    assert "deleted: 2" in capsys.readouterr().out
    assert [one[1] for one in listed(data, capsys)] == ["User:*", "User:root"]
    acl(data, "delete", "--all", "--execute")
    assert listed(data, capsys) == []


def test_who_everybody_is_stands_beside_what_they_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "User:* is everybody, User:ANONYMOUS too"
    acl(tmp_path, "add", "--allow", "User:app", "-o", "read", "--topic", "orders")
    acl(tmp_path, "add", "--deny", "User:*", "-o", "read", "--topic", "secret")
    acl(tmp_path, "list")
    assert said not in capsys.readouterr().out, "to deny it to all is no surprise"
    acl(tmp_path, "add", "--allow", "User:*", "-o", "read", "--topic", "open")
    assert said in capsys.readouterr().out
    acl(tmp_path, "list")
    assert said in capsys.readouterr().out


def test_one_is_told_from_another_that_differs_in_permission_or_pattern_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    allows, denies = APP, ("deny", *APP[1:])
    prefixed = (*APP[:4], "prefixed", "orders")
    for arguments in (["--allow", "User:app"], ["--deny", "User:app"], ["--allow", "User:app", "--prefixed"]):
        acl(tmp_path, "add", "-o", "read", "--topic", "orders", *arguments)
    of_app = ["--principal", "User:app", "--topic", "orders", "-o", "read"]
    assert sorted(listed(tmp_path, capsys, *of_app)) == sorted([allows, denies, prefixed])
    assert listed(tmp_path, capsys, *of_app, "--permission", "Deny") == [denies]
    assert sorted(listed(tmp_path, capsys, *of_app, "--literal")) == sorted([allows, denies])
    acl(tmp_path, "delete", *of_app, "--permission", "deny", "--execute")
    assert sorted(listed(tmp_path, capsys)) == sorted([allows, prefixed])
    acl(tmp_path, "delete", *of_app, "--literal", "--execute")
    assert listed(tmp_path, capsys) == [prefixed]


def test_a_dry_run_adds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    acl(tmp_path, "add", "--allow", "User:app", "-o", "read", "--group", "g", "--dry-run")
    shown = capsys.readouterr().out
    assert "User:app" in shown
    assert "nothing was added" in shown
    assert listed(tmp_path, capsys) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["add", "--allow", "User:a", "-o", "read"], "--topic, --group, --transactional-id or --cluster"),
        (["add", "-o", "read", "--topic", "t"], "--allow User:NAME or --deny User:NAME"),
        (["add", "--allow", "User:a", "--topic", "t"], "give --operation: one of read, write"),
        (["add", "--allow", "User:a", "-o", "fly", "--topic", "t"], "must be one of read, write"),
        (["add", "--allow", "User:a", "-o", "write", "--group", "g"], "must be one of read, delete"),
        (["add", "--allow", "alice", "-o", "read", "--topic", "t"], "Could not parse the principal"),
        (["add", "--allow", "User:a", "-o", "read", "--topic", ""], "should not be empty"),
        (["add", "--allow", "User:a", "-o", "read", "--topic", "t", "--cluster"], "give one of --topic"),
        (["delete", "--execute"], "give which"),
        (["delete", "--topic", "absent", "--execute"], "there are no such ACLs"),
        (["list", "--matching"], "--matching needs a name"),
        (["list", "--permission", "maybe"], "must be one of allow, deny"),
        (["list", "--topic", "t", "--literal", "--matching"], "give one of --literal, --prefixed"),
        (["delete", "--topic", "t", "--literal", "--prefixed"], "give one of --literal, --prefixed"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit):
        acl(tmp_path, *arguments)
    [line] = capsys.readouterr().err.strip().splitlines()
    assert problem in line


class ThroughHarness:
    """A client of a broker without sockets."""

    def __init__(self, broker: Harness) -> None:
        self._broker = broker

    async def request(self, request: Any, *_rest: Any) -> Any:
        return await self._broker.ask(request, 3)


async def test_through_a_broker() -> None:
    binding = WireAcl(2, 4, "ord", "User:app", "*", 3, 3)
    everything = WireAcl(*AclFilter())
    async with running(authorizes=True) as broker:
        caller: Any = ThroughHarness(broker)
        await create_acls(caller, [binding])
        assert await list_acls(caller, everything) == [binding]
        assert await delete_acls(caller, everything) == [binding]
        assert await list_acls(caller, everything) == []
    async with running() as broker:
        caller = ThroughHarness(broker)
        for work in (create_acls(caller, [binding]), list_acls(caller, everything)):
            with pytest.raises(RequestFailed, match="SECURITY_DISABLED"):
                await work
        with pytest.raises(RequestFailed, match="SECURITY_DISABLED"):
            await delete_acls(caller, everything)


# --- what a newcomer gets wrong in the example of docs/authorization.md


LISTENER = '{address: "127.0.0.1:0", protocol: SASL_PLAINTEXT, mechanisms: [SCRAM-SHA-512, PLAIN]}'
RIGHT = f"""\
broker: {{listeners: {{SECURE: {LISTENER}}}}}
security: {{authorization: acls, super_users: ["User:admin"]}}
"""


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (RIGHT.replace("acls", "acl"), "must be one of none, acls"),
        (
            RIGHT.replace('["User:admin"]', "[admin]"),
            "must be principals such as User:admin",
        ),
        (RIGHT.replace('["User:admin"]', "[]"), "nobody could create the first ACL"),
        (RIGHT.replace(', super_users: ["User:admin"]', ""), "nobody could create the first ACL"),
        (
            RIGHT.replace("super_users", "superusers"),
            "there is no such setting; did you mean security.super_users?",
        ),
        (RIGHT.replace("SCRAM-SHA-512", "SCRAM-SHA-1"), "broker.listeners.SECURE = "),
        (RIGHT.replace("SASL_PLAINTEXT", "SASL"), "broker.listeners.SECURE = "),
        (RIGHT.replace('address: "127.0.0.1:0", ', ""), "broker.listeners.SECURE = "),
        (RIGHT.replace("SECURE", "PLAINTEXT"), "given as broker.listen, whose name that is"),
        (RIGHT.replace("security:", "  security:"), "c.yaml"),
    ],
)
def test_a_mistake_in_the_example_is_one_line(
    wrong: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wrong != RIGHT
    config = tmp_path / "c.yaml"
    config.write_text(wrong)
    with pytest.raises(SystemExit) as ended:
        main(["up", "--data-dir", str(tmp_path / "data"), "--config", str(config)])
    assert ended.value.code not in (0, None)
    printed = capsys.readouterr()
    [said] = (printed.out + printed.err).splitlines()
    assert line in said


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["admin", "--password-file", "no-such-file"], "no-such-file"),
        (["admin", "--password-file", "empty"], "empty"),
        (["ad min\t", "--password-file", "good"], "NAME cannot be used"),
    ],
)
def test_a_mistake_in_the_first_user_is_one_line(
    arguments: list[str],
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("")
    (tmp_path / "good").write_text("secret of the newcomer")
    with pytest.raises(SystemExit) as ended:
        main(["admin", "user", "add", *arguments, "--data-dir", str(tmp_path / "data")])
    assert ended.value.code not in (0, None)
    printed = capsys.readouterr()
    [said] = (printed.out + printed.err).splitlines()
    assert line in said
    assert "secret of the newcomer" not in said
