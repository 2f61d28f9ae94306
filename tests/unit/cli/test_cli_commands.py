"""The commands that need no broker, through the same `main` that the shell runs."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.cli.shell import Shell

from dray.base.build import build_name
from dray.cli.commands.admin import group as admin
from dray.cli.main import COMMANDS, app, load_command
from dray.metadata.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION


def test_version(drayd: Shell) -> None:
    assert drayd("version").out.startswith(f"drayd {build_name()} (")
    assert json.loads(drayd("version", "--json").out)["dray"] == build_name()


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["up"],
        ["broker"],
        ["admin"],
        ["admin", "topics"],
        ["admin", "topics", "create"],
        ["admin", "topics", "list"],
        ["admin", "topics", "describe"],
        ["admin", "topics", "delete"],
        ["admin", "topics", "alter"],
        ["admin", "groups"],
        ["admin", "groups", "list"],
        ["admin", "groups", "describe"],
        ["admin", "groups", "delete"],
        ["admin", "groups", "reset-offsets"],
        ["admin", "cluster"],
        ["admin", "gc"],
        ["config"],
        ["config", "show"],
        ["version"],
    ],
)
def test_every_command_explains_itself(drayd: Shell, command: list[str]) -> None:
    ran = drayd(*command, "--help")
    assert ran.code == 0
    assert f"Usage: {' '.join(['drayd', *command])}" in ran.out


def test_config_show_prints_the_effective_config(
    drayd: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dray.yaml"
    file.write_text("broker: {id: 4, rack: r1}\n")
    monkeypatch.setenv("DRAY_BROKER__RACK", "r2")
    ran = drayd("config", "show", "--config", str(file), "--listen", "127.0.0.1:7000", "--origin")
    assert ran.code == 0
    lines = {tuple(line.split()) for line in ran.out.splitlines()}
    assert ("id:", "4", "#", f"{file}:1") in lines
    assert ("rack:", "r2", "#", "DRAY_BROKER__RACK") in lines
    assert ("listen:", "127.0.0.1:7000", "#", "--listen") in lines


def test_the_config_file_can_come_from_the_environment(
    drayd: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dray.yaml"
    file.write_text("broker: {id: 4}\n")
    monkeypatch.setenv("DRAY_CONFIG", str(file))
    assert "  id: 4\n" in drayd("config", "show").out


@pytest.mark.parametrize("command", [["up"], ["broker"], ["config", "show"], ["admin", "gc"]])
def test_a_bad_config_is_one_line_and_exit_code_2(
    drayd: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    monkeypatch.setenv("DRAY_TOPICS__PARTITIONS", "none")
    ran = drayd(*command, "--data-dir", str(tmp_path / "data"))
    assert ran.code == 2
    assert ran.error == (
        "drayd: topics.partitions = 'none' (from DRAY_TOPICS__PARTITIONS): "
        "must be a whole number from 1 to 10000\n"
    )
    assert not (tmp_path / "data").exists()


def test_a_setting_that_is_gone_is_one_line_and_no_error(
    drayd: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dray.yaml"
    file.write_text("log:\n  job_ttl: 2h\n  object_bytes: 3MiB\n")
    ran = drayd("config", "show", "--config", str(file))
    assert ran.code == 0
    assert ran.error == (
        f"drayd: log.job_ttl (from {file}:2) is gone: since this release it is always 1h; remove it\n"
    )
    assert "  object_bytes: 3MiB\n" in ran.out
    assert "job_ttl" not in ran.out


def test_unknown_topic_defaults_are_refused_before_anything_starts(
    drayd: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DRAY_TOPICS__DEFAULTS", "{retention.mss: 5}")
    ran = drayd("up", "--data-dir", str(tmp_path / "data"))
    assert ran.code == 2
    assert "topics.defaults" in ran.error
    assert "retention.mss" in ran.error
    assert ran.error.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_reference_is_the_page(drayd: Shell) -> None:
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert drayd("config", "reference").out == page.read_text()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["topics", "list", "--bootstrap", "nowhere"],
            "drayd: --bootstrap = 'nowhere': must be HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092\n",
        ),
        (
            ["topics", "create", "t", "--config", "retention.ms"],
            "drayd: --config = 'retention.ms': must be NAME=VALUE, such as retention.ms=86400000\n",
        ),
        (
            ["topics", "alter", "t"],
            "drayd: nothing to alter: give --partitions, --set or --unset\n",
        ),
    ],
)
def test_wrong_arguments_of_admin_are_one_line(drayd: Shell, arguments: list[str], line: str) -> None:
    ran = drayd("admin", *arguments)
    assert (ran.code, ran.error) == (2, line)


def test_nobody_listening_is_one_line(drayd: Shell) -> None:
    import socket

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = unused.getsockname()[1]
        for command in (["admin", "topics", "list"], ["admin", "cluster"], ["admin", "groups", "list"]):
            ran = drayd(*command, "--bootstrap", f"127.0.0.1:{port}")
            assert ran.code == 1
            assert ran.error == (
                f"drayd: cannot reach 127.0.0.1:{port}: Connection refused; "
                "is a broker running there? (drayd up)\n"
            )


def test_gc_on_stores_without_a_cluster(drayd: Shell, tmp_path: Path) -> None:
    ran = drayd("admin", "gc", "--data-dir", str(tmp_path))
    assert (ran.code, ran.error) == (
        1,
        "drayd: there is no cluster on these stores yet: nothing to collect\n",
    )


def test_gc_on_a_metadata_file_that_is_none(drayd: Shell, tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"no database" * 1000)
    ran = drayd("admin", "gc", "--data-dir", str(tmp_path))
    assert ran.code == 1
    assert "cannot open the metadata file" in ran.error
    assert ran.error.count("\n") == 1


def test_up_on_a_metadata_file_that_is_damaged(drayd: Shell, tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (value)")
    connection.executemany("INSERT INTO t VALUES (?)", [(bytes(1000),)] * 100)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.commit()
    connection.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))
    ran = drayd("up", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "off")
    assert ran.code == 1
    assert "is damaged" in ran.error
    assert "drayd restore" in ran.error
    assert ran.error.count("\n") == 1


def test_help_needs_none_of_the_heavy_modules() -> None:
    """The measure is which modules are loaded: it does not depend on how busy the machine is."""
    code = (
        "import sys\nfrom dray.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'pydantic', 'yaml', 'uvloop', 'structlog', 'obstore', 'prometheus_client', 'asyncio',\n"
        "         'sqlite3', 'dray.kafka.protocol', 'dray.kafka.records', 'dray.daemons.broker.node'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stderr == "[]\n"


@pytest.mark.parametrize(
    ("path", "line"),
    [((name,), entry.line) for name, entry in COMMANDS.items()]
    + [(("admin", name), entry.line) for name, entry in admin.COMMANDS.items()],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_list_of_commands_says_what_each_says_of_itself(path: tuple[str, ...], line: str) -> None:
    """The list is written down so that no command is imported for it."""
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.get_command(None, name)
    first = command.help.split("\n\n")[0]
    assert " ".join(first.split()) == line


def test_admin_names_the_commands_that_ask_any_kafka() -> None:
    """They are those that can be told a broker; each was tried on Apache Kafka 4.2."""
    group: Any = load_command("admin")

    def options(command: Any) -> set[str]:
        inner = getattr(command, "commands", {}).values()
        return {each.name for each in command.params}.union(*map(options, inner))

    asking = [name for name in admin.COMMANDS if "bootstrap" in options(group.get_command(None, name))]
    named = f"{', '.join(asking[:-1])} and {asking[-1]} speak the Kafka protocol"
    assert named in " ".join(group.help.split())


def test_what_asks_a_broker_loads_none() -> None:
    """Five hundred modules, and a second of the processor, each time."""
    code = (
        "import sys\nfrom dray.cli.main import main\n"
        "for command in sys.argv[1:]:\n"
        "    try: main([*command.split(), '--help'] if command == 'admin' else command.split())\n"
        "    except SystemExit: pass\n"
        "rooms = 'broker tables migration log metadata objects'.split()\n"
        "print([room for room in rooms if f'dray.{room}' in sys.modules])\n"
    )
    nobody = "--bootstrap 127.0.0.1:1"
    commands = [f"{name} {nobody}" for name in ("topics describe orders", "cluster", "groups list")]
    ran = subprocess.run(
        [sys.executable, "-c", code, "admin", *(f"admin {command}" for command in commands)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stderr.count("cannot reach 127.0.0.1:1") == len(commands), ran.stderr
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("topics list", "Did you mean 'drayd admin topics'?"),
        ("topcs list", "Did you mean 'drayd admin topics'?"),
        ("link orders", "Did you mean 'drayd migrate link'?"),
        ("querry x", "Did you mean 'drayd query'?"),
        ("admin topcs list", "Did you mean 'drayd admin topics'?"),
        ("admin topics creat x", "Did you mean 'create'?"),
        ("admin topics create x --partition 3", "--partitions"),
        ("admin topics create --topic x", "No such option: --topic: the topic is given without it"),
        ("admin topics delete --topic x", "No such option: --topic: the topic is given without it"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(drayd: Shell, typed: str, said: str) -> None:
    ran = drayd(*typed.split())
    assert ran.code == 2
    assert said in ran.error


def test_all_that_cannot_be_taken_back_wants_the_same_word() -> None:
    options = [
        line.split(":")[0].removeprefix("command drayd ").split(" --")
        for line in Path("tests/frozen/surface.txt").read_text().splitlines()
        if line.startswith("command drayd ") and " --" in line.split(":")[0]
    ]
    wanting = {command for command, *rest in options if rest == ["execute"]}
    assert {command for command, *rest in options if rest in (["yes"], ["force"], ["confirm"])} == set()
    deleting = {command for command, *_ in options if command.endswith(" delete")}
    assert wanting == deleting | {
        *(
            f"migrate {word}"
            for word in ("abort", "adopt", "attach", "copy", "hand-over", "link", "stragglers", "switch")
        ),
        *(
            f"admin {word}"
            for word in ("adopt-bucket", "finish-compactions", "gc", "groups reset-offsets", "lost", "table")
        ),
        "admin level lower",
        "restore",
    }


def test_the_old_word_works_and_says_so(drayd: Shell, tmp_path: Path) -> None:
    ran = drayd("admin", "adopt-bucket", "--yes", "--data-dir", str(tmp_path))
    assert ran.error.startswith("drayd: --yes is --execute now\n")
    assert "No such option" not in ran.error
