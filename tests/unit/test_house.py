"""Keeps the house: its folders stand in order, a room uses what `tools/rooms.py` says, and time, chance and
threads come from the runtime.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePath

import pytest
from tools.rooms import ANY_BELOW, FOLDERS, ROOMS, below, folder_of, room_of, with_table

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dray"
# Where time, chance and threads are made.
MAKERS = {"base/runtime"}

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
    """Those in folders. Beside these stand only names that users import (`dray.spark_source`)."""
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


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


def room_of_file(path: Path) -> str:
    return room_of(path.relative_to(SOURCE))


@cache
def rooms_used(path: Path) -> set[str]:
    names = [name.split(".")[1:] for name in imported(parse(path), path) if name.startswith("dray.")]
    used = {room_of(PurePath(*parts)) for parts in names if parts[0] in FOLDERS}
    return used - {room_of_file(path)}


def test_the_house_has_a_dozen_folders_and_all_are_known() -> None:
    """And nothing in it imports the simulation, which is a package of its own."""
    assert {path.relative_to(SOURCE).parts[0] for path in modules()} == set(FOLDERS)
    assert len(FOLDERS) <= 12
    assert {folder_of(room) for room in ROOMS} == set(FOLDERS)
    assert {room_of_file(path) for path in modules() if path.name != "__init__.py"} == set(ROOMS)
    knows = {
        name_of(path)
        for path in modules()
        if any(name.startswith("dray_simulation") for name in imported(parse(path), path))
    }
    assert not knows


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_uses_itself_and_those_below_it(folder: str) -> None:
    inside = [path for path in modules() if folder_of(room_of_file(path)) == folder]
    used = {name_of(path): {folder_of(room) for room in rooms_used(path)} - {folder} for path in inside}
    assert {name: folders for name, folders in used.items() if not folders <= set(below(folder))} == {}


MOST_BESIDE_EACH_OTHER = 20
ONE_PER_API = {"broker/api", "kafka/protocol/messages"}


def test_a_listing_is_short() -> None:
    beside = Counter(str(path.parent.relative_to(SOURCE)) for path in modules() if path.name != "__init__.py")
    long = {folder for folder, count in beside.items() if count > MOST_BESIDE_EACH_OTHER}
    assert long == ONE_PER_API, "a drawer for what belongs together"


@pytest.mark.parametrize("room", sorted(set(ROOMS) - ANY_BELOW))
def test_a_room_uses_what_the_table_says(room: str) -> None:
    used = {name_of(path): rooms_used(path) for path in modules() if room_of_file(path) == room}
    assert {name: rooms - ROOMS[room].uses for name, rooms in used.items() if rooms - ROOMS[room].uses} == {}
    assert set().union(*used.values()) == ROOMS[room].uses, "the table allows more than is used"


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
        if room_of_file(path) == room
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


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
    assert list(made_outside_of_the_runtime(ast.parse(source), SOURCE / "broker" / "topics" / "x.py"))


def test_relative_imports_are_seen() -> None:
    names = list(
        imported(ast.parse("from ..server import Server\nfrom . import codec"), SOURCE / "log" / "x.py")
    )
    assert names == ["dray.server.Server", "dray.log.codec"]


# --- no task dies unnoticed

# Where tasks are started that are awaited by whoever started them, or that answer a request and tell its
# failure themselves; with how many such places there are. All others go through `keep_running` (what must not
# end) or `run_once` (what nobody awaits).
STARTED: dict[str, int] = {
    "broker/api/shared/context.py": 1,  # an administrator's request, which outlives the client's patience
    "daemons/compactor/process.py": 2,
    "cli/demo_run.py": 1,
    "daemons/console/process.py": 2,
    "daemons/supervisor/children.py": 1,
    "daemons/supervisor/fleet.py": 2,
    "daemons/broker/process.py": 2,
    "daemons/migrator/process.py": 2,
    "daemons/supervisor/processes.py": 3,  # one per child: it contains its own rounds
    "kafka/client/connection.py": 1,
    "tables/compaction/writing/sources.py": 2,
    "tables/compaction/writing/deliveries.py": 1,
    "tables/compaction/spark/writer.py": 2,
    "broker/groups/coordinator/lease.py": 1,
    "broker/groups/coordinator/service.py": 1,
    "inspection/records/search.py": 2,
    "log/stream_store.py": 1,
    "log/read/parquet_reader.py": 2,
    "log/read/waiting.py": 1,  # a fetch waits for it
    "metadata/oxia/store.py": 2,
    "migration/live/leader_reads.py": 1,
    "migration/live/migration.py": 3,
    "migration/live/topic_mirror.py": 3,
    "metadata/oxia/watch.py": 1,
    "broker/server/http/health.py": 1,
    "broker/server/http/server.py": 1,
    "log/read/shared_reads.py": 1,
    "broker/server/protocol.py": 1,
    "broker/topics/cache.py": 1,
    "broker/topics/service.py": 1,
    "migration/source/shared_looks.py": 1,
    "migration/source/source_brokers.py": 1,
}
STARTING = {"spawn", "create_task", "ensure_future"}


def starts(tree: ast.AST) -> int:
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTING
        for node in nodes(tree)
    )


def test_tasks_in_the_background_are_kept() -> None:
    found = {name_of(path): starts(parse(path)) for path in modules() if room_of_file(path) not in MAKERS}
    assert {name: count for name, count in found.items() if count} == STARTED, (
        "a task that nobody awaits is started with keep_running or run_once; one that somebody awaits is "
        "counted in STARTED"
    )


def test_the_rule_notices_a_task_that_is_not_kept() -> None:
    assert starts(ast.parse("self._runtime.spawn(self._run(), 'loop')\nloop.create_task(work())")) == 2


LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "warn"}


def made_up_events(tree: ast.AST) -> Iterator[str]:
    """Lines that clients cause have a rate for each event: one that quotes a name would be its own kind."""
    for node in nodes(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and re.search(r"\b_?log(ger)?\b|notes", ast.unparse(node.func.value))
            and node.args
            and not isinstance(node.args[0], ast.Constant | ast.Name | ast.IfExp)
        ):
            yield f"{node.lineno}: {ast.unparse(node.args[0])}"


NOT_FOR_REQUESTS = ANY_BELOW | {"log/life/deletions.py"}
"""Rooms and modules whose lines no client causes."""


def test_an_event_of_a_log_line_is_a_constant() -> None:
    reached = [path for path in modules() if NOT_FOR_REQUESTS.isdisjoint({room_of_file(path), name_of(path)})]
    assert not [f"{name_of(path)}:{each}" for path in reached for each in made_up_events(parse(path))]


@pytest.mark.parametrize("call", ['_log.info(f"no topic {name}")', 'log().warning("no " + name)'])
def test_the_rule_notices_a_made_up_event(call: str) -> None:
    assert list(made_up_events(ast.parse(call)))


# --- what a client names by the thousand is looked up some at a time

NOT_ASKED = ANY_BELOW | {"tables/compaction", "migration", "tables/spark_source"}
"""Rooms that no client's request and no page of the console reaches."""
GATHERING = {
    "base/runtime/turns.py": "gather_some itself",
    "inspection/records/search.py": "tasks that ran side by side before, and are cancelled",
}


def gathers(tree: ast.AST, path: Path) -> list[str]:
    """Where everything is begun at once, and would fill one turn of the event loop and all memory. What is
    written out one by one is few."""
    few = {
        node.func
        for node in nodes(tree)
        if isinstance(node, ast.Call)
        and dotted(node.func) == "asyncio.gather"
        and not any(isinstance(each, ast.Starred) for each in node.args)
    }
    found = [name for name in imported(tree, path) if name in ("asyncio.gather", "asyncio.TaskGroup")]
    return found + [
        f"line {node.lineno}: {dotted(node)}"
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and dotted(node) in ("asyncio.gather", "asyncio.TaskGroup")
        if node not in few
    ]


def test_what_a_client_names_is_gathered_some_at_a_time() -> None:
    asked = {name_of(path): path for path in modules() if room_of_file(path) not in NOT_ASKED}
    found = {name: gathers(parse(path), path) for name, path in asked.items()}
    assert {name: places for name, places in found.items() if places}.keys() == GATHERING.keys(), (
        "how many there are is the client's to choose: use gather_some, or context.large.gather"
    )


def test_few_may_be_gathered() -> None:
    assert not gathers(
        ast.parse("async def f(a, b): await asyncio.gather(a, b)"), SOURCE / "broker" / "api" / "x.py"
    )


@pytest.mark.parametrize(
    "source",
    [
        "async def f(all): await asyncio.gather(*all)",
        "async def f(all): await wait(asyncio.gather(all(), *all))",
        "gather = asyncio.gather",
        "from asyncio import gather",
        "async def f():\n    async with asyncio.TaskGroup() as tasks: ...",
    ],
)
def test_the_rule_notices_a_crowd(source: str) -> None:
    assert gathers(ast.parse(source), SOURCE / "broker" / "api" / "x.py")


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
} | {"dray.tables.compaction.spark.session.open_session", "tests.services.tools.require_tool"}


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
    assert found == {"recorded_processes.py": {"dray.tables.compaction.spark.session.open_session"}}, (
        "it replaces that"
    )


@pytest.mark.parametrize("source", ["from tests.services.kafka import X", "from tests.services import helm"])
def test_the_rule_notices_a_server(source: str) -> None:
    assert heavy_imports(ast.parse(source))


TWINS = {
    "Call": "metadata",
    "Calls": "metadata",
    "Fault": "metadata",
    "CancelTimer": "broker/groups",
    "GroupState": "broker/groups",
    "Heartbeat": "broker/groups",
    "Member": "broker/groups",
    "ScheduleTimer": "broker/groups",
    "TimerFired": "broker/groups",
    "TimerKind": "broker/groups",
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
        if all(room_of(PurePath(home)) == TWINS.get(name) for home in found)
    }
    assert {name: found for name, found in several.items() if name not in twins} == {}
    assert twins == set(TWINS)


LONGEST_CONSTRUCTOR = 60  # lines


def long_constructors(tree: ast.AST) -> list[int]:
    """What is put together from more than that is put together from named parts."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for node in found]
    return [length for length in lengths if length > LONGEST_CONSTRUCTOR]


def test_a_class_is_put_together_from_few_parts() -> None:
    found = {name_of(path): long_constructors(parse(path)) for path in modules()}
    assert {name: lengths for name, lengths in found.items() if lengths} == {}


def test_the_rule_notices_a_long_constructor() -> None:
    source = "class A:\n def __init__(self):\n" + "  self.a = 1\n" * 60
    assert long_constructors(ast.parse(source)) == [61]


VERBS = {
    "settle": {"log", "migration"},  # of a WAL mark; a mirror writes those, too
    "pack": {"log"},
    "mirror": {"migration"},
    "forward": {"migration"},
}
"""Verbs of `docs/vocabulary.md` that mean one thing, and the folders whose functions do it."""


def functions_of(tree: ast.AST) -> set[str]:
    kinds = ast.FunctionDef, ast.AsyncFunctionDef
    return {node.name.lstrip("_") for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_means_one_thing(verb: str) -> None:
    page = (ROOT / "docs" / "vocabulary.md").read_text(encoding="utf-8")
    assert f"\n| **{verb}** | " in page
    told = [path.relative_to(SOURCE) for path in modules() if verb in functions_of(parse(path))]
    assert [str(path) for path in told if path.parts[0] not in VERBS[verb]] == []


def test_the_rule_notices_another_meaning() -> None:
    assert functions_of(ast.parse("class A:\n async def _settle(self): ...")) == {"settle"}
