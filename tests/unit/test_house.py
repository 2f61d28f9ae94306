"""Keeps the house: a room uses the rooms below it, and time, chance and threads come from the runtime.

What a room may use is said in `tools/rooms.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from tools.rooms import ROOMS, depth, in_order, with_table

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dray"
TOP = {"cli", "daemon", "simulation"}
"""They put the others together, and may use any room below them."""

# Where time, chance and threads are made: the real ones, and the simulated ones.
MAKERS = {"runtime", "simulation"}

FORBIDDEN_MODULES = {"time", "random", "secrets"}
FORBIDDEN_NAMES = {
    "asyncio.sleep",
    "asyncio.to_thread",
    "concurrent.futures.ProcessPoolExecutor",
    "concurrent.futures.ThreadPoolExecutor",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "os.urandom",
    "threading.Thread",
    "threading.Timer",
    "uuid.uuid1",
    "uuid.uuid4",
}
FORBIDDEN_METHODS = {"run_in_executor"}

KINDS = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Call, ast.ClassDef)


@cache
def modules() -> list[Path]:
    return sorted(
        path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name != "__init__.py"
    )


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST, path: Path) -> Iterator[str]:
    """Absolute names of what a module imports, relative imports resolved."""
    package = ("dray", *path.relative_to(SOURCE).parent.parts)
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """Of the kinds that the rules speak of: walked once for all of them."""
    return [node for node in ast.walk(tree) if isinstance(node, KINDS)]


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@cache
def rooms_used(path: Path) -> set[str]:
    used = set()
    for name in imported(parse(path), path):
        parts = name.split(".")
        if parts[0] == "dray" and len(parts) > 1 and parts[1] in ROOMS:
            used.add(parts[1])
    return used - {room_of(path)}


def test_every_room_is_known() -> None:
    new = {room_of(path) for path in modules()} - set(ROOMS)
    assert not new, f"{new}: say in tools/rooms.py what they hold and may use"


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_uses_only_the_rooms_below_it(room: str) -> None:
    used = {name_of(path): rooms_used(path) for path in modules() if room_of(path) == room}
    assert {name: rooms - ROOMS[room].uses for name, rooms in used.items() if rooms - ROOMS[room].uses} == {}


@pytest.mark.parametrize("room", sorted(set(ROOMS) - TOP))
def test_what_a_room_may_use_it_does_use(room: str) -> None:
    used = {name for path in modules() if room_of(path) == room for name in rooms_used(path)}
    assert used == ROOMS[room].uses


def made_outside_of_the_runtime(tree: ast.AST, path: Path) -> Iterator[str]:
    for name in imported(tree, path):
        module, _, member = name.rpartition(".")
        if name in FORBIDDEN_MODULES or name in FORBIDDEN_NAMES:
            yield f"it imports {name}"
        if module in FORBIDDEN_MODULES and member != "Random":  # as a type: instances come from the runtime
            yield f"it imports {name}"
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and (
            dotted(node) in FORBIDDEN_NAMES or node.attr in FORBIDDEN_METHODS
        ):
            yield f"line {node.lineno} uses {dotted(node)}"
        if isinstance(node, ast.Call) and dotted(node.func) == "Random":
            yield f"line {node.lineno} makes chance of its own"


@pytest.mark.parametrize("room", sorted(set(ROOMS) - MAKERS))
def test_time_chance_and_threads_come_from_the_runtime(room: str) -> None:
    found = {
        name_of(path): list(made_outside_of_the_runtime(parse(path), path))
        for path in modules()
        if room_of(path) == room
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_arrow_points_up() -> None:
    order = in_order()
    for room in ROOMS:
        assert all(order.index(used) > order.index(room) for used in ROOMS[room].uses)
        assert all(depth(used) < depth(room) for used in ROOMS[room].uses)


def test_the_map_is_the_house() -> None:
    """`python -m tools.rooms` writes it anew."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert with_table(page) == page


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "from uuid import uuid4",
        "import random",
        "from asyncio import sleep",
        "uuid.uuid4()",
        "loop.run_in_executor(None, work)",
        "Random(7)",
    ],
)
def test_the_rule_notices(source: str) -> None:
    """The check of the check: these are the lines it is there for."""
    assert list(made_outside_of_the_runtime(ast.parse(source), SOURCE / "topics" / "x.py"))


def test_relative_imports_are_seen() -> None:
    names = list(
        imported(ast.parse("from ..server import Server\nfrom . import codec"), SOURCE / "wal" / "x.py")
    )
    assert names == ["dray.server.Server", "dray.wal.codec"]


# --- no task dies unnoticed

# Where tasks are started that are awaited by whoever started them, or that answer a request and tell its
# failure themselves; with how many such places there are. All others go through `keep_running` (what must not
# end) or `run_once` (what nobody awaits).
STARTED: dict[str, int] = {
    "api/shared/context.py": 1,  # an administrator's request, which outlives the client's patience
    "daemon/compactor.py": 2,
    "cli/demo_run.py": 1,
    "daemon/console.py": 2,
    "daemon/console_child.py": 1,
    "daemon/fleet.py": 2,
    "daemon/broker.py": 2,
    "daemon/migrator.py": 2,
    "daemon/supervisor.py": 3,  # one per child: it contains its own rounds
    "client/connection.py": 1,
    "compaction/sources.py": 2,
    "compaction/spark/writer.py": 1,
    "groups/coordinator/lease.py": 1,
    "groups/coordinator/service.py": 1,
    "inspection/tail.py": 2,
    "log/barriers.py": 1,
    "log/parquet_reader.py": 2,
    "log/patience.py": 1,  # a fetch waits for it
    "metadata/oxia/store.py": 2,
    "migration/leader_reads.py": 1,
    "migration/live_migration.py": 3,
    "migration/topic_mirror.py": 3,
    "metadata/oxia/watch.py": 1,
    "server/health.py": 1,
    "server/http.py": 1,
    "log/shared_reads.py": 1,
    "server/protocol.py": 1,
    "topics/cache.py": 1,
    "topics/service.py": 1,
    "upstream/shared_looks.py": 1,
    "upstream/upstream_brokers.py": 1,
}
STARTING = {"spawn", "create_task", "ensure_future"}


def starts(tree: ast.AST) -> int:
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTING
        for node in nodes(tree)
    )


def test_tasks_in_the_background_are_kept() -> None:
    found = {name_of(path): starts(parse(path)) for path in modules() if room_of(path) not in MAKERS}
    assert {name: count for name, count in found.items() if count} == STARTED, (
        "a task that nobody awaits is started with keep_running or run_once; one that somebody awaits is "
        "counted in STARTED"
    )


def test_the_rule_notices_a_task_that_is_not_kept() -> None:
    assert starts(ast.parse("self._runtime.spawn(self._run(), 'loop')\nloop.create_task(work())")) == 2


def test_every_design_note_is_in_the_index() -> None:
    notes = ROOT / "docs" / "design"
    index = (notes / "README.md").read_text(encoding="utf-8")
    missing = [path.name for path in notes.glob("0*.md") if f"]({path.name})" not in index]
    assert not missing


# --- tests

TESTS = ROOT / "tests"


def is_module(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).with_suffix(".py").exists()


def wrong_imports(tree: ast.AST, path: Path) -> list[str]:
    """What a file of the tests imports by a path that pytest happens to set, or from another test module."""
    is_package = (path.parent / "__init__.py").exists()  # then pytest does not set its path
    siblings = set() if is_package else {sibling.stem for sibling in path.parent.glob("*.py")}
    wrong = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." * node.level + (node.module or "")]
            names += [f"{node.module}.{alias.name}" for alias in node.names if node.module]
        else:
            continue
        for name in names:
            last = name.rpartition(".")[2]
            inside = name.startswith("tests.") and (last == "conftest" or last.startswith("test_"))
            if name.startswith(".") or name in siblings or (inside and is_module(name)):
                wrong.append(name)
    return wrong


def test_tests_import_from_harnesses_by_their_full_names() -> None:
    """`from tests.unit.log.harness import World`; what two test modules share is in neither of them."""
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in TESTS.rglob("*.py")
        if (wrong := wrong_imports(parse(path), path))
    }
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "from harness import World",
        "import harness",
        "from .harness import World",
        "from tests.unit.log.test_log_commit import x",
        "from tests.unit.log import conftest",
        "from tests.unit.log.conftest import World",
    ],
)
def test_the_rule_notices_a_wrong_import(source: str) -> None:
    assert wrong_imports(ast.parse(source), TESTS / "unit" / "log" / "test_x.py")


def namesakes(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Test modules that have one name in folders that are no packages: pytest collects only one of them."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        if not (path.parent / "__init__.py").exists():
            found.setdefault(path.name, []).append(str(path.parent.relative_to(TESTS)))
    return {name: folders for name, folders in found.items() if len(folders) > 1}


def test_a_test_module_has_a_name_of_its_own() -> None:
    assert not namesakes(TESTS.rglob("test_*.py"))


def test_the_rule_notices_a_namesake() -> None:
    pair = [TESTS / "unit" / "log" / "test_x.py", TESTS / "integration" / "test_x.py"]
    assert namesakes(pair) == {"test_x.py": ["integration", "unit/log"]}
    assert not namesakes([pair[0], TESTS / "referee" / "test_x.py"])


# Servers, builds and downloads: what is tested with them is in tests/integration or tests/referee.
NOT_IN_UNIT = {
    f"tests.services.{name}"
    for name in (
        "compose",
        "etcd",
        "go_build",
        "helm",
        "iceberg_rest",
        "image",
        "kafka",
        "maven",
        "oxia",
        "oxia_build",
        "s3",
        "spark_cluster",
        "spark_sql",
        "trino",
    )
} | {"dray.compaction.spark.session.open_session", "tests.services.tools.require_tool"}


def heavy_imports(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & NOT_IN_UNIT


def test_unit_tests_start_no_java_and_install_nothing() -> None:
    found = {
        path.name: heavy for path in (TESTS / "unit").rglob("*.py") if (heavy := heavy_imports(parse(path)))
    }
    assert found == {"recorded_processes.py": {"dray.compaction.spark.session.open_session"}}, (
        "it replaces that"
    )


@pytest.mark.parametrize("source", ["from tests.services.kafka import X", "from tests.services import helm"])
def test_the_rule_notices_a_server(source: str) -> None:
    assert heavy_imports(ast.parse(source))


TWINS = {
    "Call": "metadata",
    "Calls": "metadata",
    "Fault": "metadata",
    "CancelTimer": "groups",
    "GroupState": "groups",
    "Heartbeat": "groups",
    "Member": "groups",
    "ScheduleTimer": "groups",
    "TimerFired": "groups",
    "TimerKind": "groups",
}
"""One thing in rooms that stand side by side: Oxia and etcd, classic and consumer groups."""


def classes_of(tree: ast.AST) -> set[str]:
    return {node.name for node in nodes(tree) if isinstance(node, ast.ClassDef) and node.name[0] != "_"}


def test_a_class_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if "messages" not in path.parts and not path.name.endswith("_pb2.py"):
            for name in classes_of(parse(path)):
                homes.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    several = {name: found for name, found in homes.items() if len(found) > 1}
    twins = {
        name
        for name, found in several.items()
        if all(home.split("/")[0] == TWINS.get(name) for home in found)
    }
    assert {name: found for name, found in several.items() if name not in twins} == {}
    assert twins == set(TWINS)
