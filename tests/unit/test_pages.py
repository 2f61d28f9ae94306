"""Every path, symbol, setting, metric, command and link of a page leads to something that exists."""

from __future__ import annotations

import posixpath
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from dray.cli.main import app

ROOT = Path(__file__).parents[2]

FILE = re.compile(r"[\w./{},*-]+\.(?:py|pyx|pxi|c|h|md|sh|ya?ml|json|toml|html|js|service)")
FOLDER = re.compile(r"\w[\w.-]*(?:/[\w.-]+)*/")
SYMBOL = re.compile(r"_?[A-Za-z][\w.]*(?:\(\))?")
METRIC = re.compile(r"dray_[a-z_]*[a-z]")
SETTING = re.compile(r"([a-z]+)(?:\.[a-z0-9_]+)+")
OPTION = re.compile(r"--[a-z][a-z-]*")
VARIABLE = re.compile(r"(DRAY_\w+)=.*")
TEST = re.compile(r"([\w./]+\.py)::(\w+)(?:\[.*\])?")
MEMBER = re.compile(r"([A-Z]\w*)\.(\w+)(?:\(\))?")
MODULE = re.compile(r"(?:PYTHONPATH=\S+ )?(?:python|\.venv/bin/python) -m ([\w.]+).*")
TARGET = re.compile(r"make ([a-z-]+)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

OF_OTHERS = {
    # files of the reader, and of Kafka
    "axe.min.js",
    "dray.yaml",
    "drayd.py",
    "kafka-acls.sh",
    # properties of Spark
    "spark.cores.max",
    "spark.executor.cores",
    "spark.speculation",
    # folders in a bucket and in a data directory
    "clocks/v1/",
    "dray-access-checks/",
    "compaction/v1/",
    "wal/v1/",
    "metadata.sqlite.doorbells/",
    # names of other programs
    "catalog.commit_table",
    "cert_file",
    "close_notify",
    "rd_kafka_toppar_producer_serve",
    "sched_setattr",
    "skipAssignment",
    "wal_fsync_duration",
    # what drayd prints
    "drayd is already running on DIR (pid N)",
    # a column of the text that Dray was made from
    "record_crc",
}

# Options of other programs, and of our benches.
OPTIONS_OF_OTHERS = {
    "--auto-compaction-mode",
    "--auto-compaction-retention",
    "--conf",
    "--max-request-bytes",
    "--max-txn-ops",
    "--megabytes",
    "--py-files",
    "--quota-backend-bytes",
    "--runs",
    "--tail-cache",
}

# A key of Kafka's or of the chart's that begins like a setting of ours.
LIKE_SETTINGS = {"broker.autoscaling", "client.id", "client.secret.file", "security.protocol"}


@cache
def files() -> frozenset[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(name for name in listed.splitlines() if (ROOT / name).is_file())


@cache
def pages() -> tuple[str, ...]:
    return tuple(sorted(name for name in files() if name.endswith(".md")))


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def spans(text: str) -> Iterator[str]:
    yield from re.findall(r"`([^`\n]+)`", CODE_BLOCK.sub(" ", text))


def commands(text: str) -> Iterator[str]:
    """Each command line of `drayd`, of the sentences and of the blocks of code."""
    yield from (span for span in spans(text) if span.startswith("drayd "))
    for block in CODE_BLOCK.findall(text):
        joined = re.sub(r"\\\n\s*", " ", block)
        yield from (line for line in joined.splitlines() if line.startswith("drayd "))


@cache
def words_of_the_sources() -> frozenset[str]:
    """Every identifier of the code, the tests, the tools and the chart; also the names of modules."""
    found = {Path(name).stem for name in files()}
    this = Path(__file__).relative_to(ROOT).as_posix()  # the wrong names of its own tests
    for name in files() - {this}:
        if not name.endswith((".md", ".json", ".lock", ".png", ".parquet", ".bin")):
            text = (ROOT / name).read_text(encoding="utf-8", errors="ignore")
            found.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))
    return frozenset(found)


@cache
def metrics() -> frozenset[str]:
    """Those of the table that `test_cli_pages.py` holds to the code."""
    return frozenset(re.findall(r"^\| `(dray_\w+)`", text_of("docs/operations/metrics.md"), re.MULTILINE))


@cache
def settings() -> frozenset[str]:
    return frozenset(re.findall(r"`([a-z]+\.[a-z0-9_.]+)`", text_of("docs/configuration.md")))


@cache
def options() -> frozenset[str]:
    return frozenset(_options_of(get_command(app))) | {"--help"}


def _options_of(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, TyperGroup):
        for name in command.list_commands(Context(command)):
            yield from _options_of(command.get_command(Context(command), name))


@cache
def members() -> dict[str, frozenset[str]]:
    """The names in the body of each class of the code and the tests, and what it gives its instances."""
    found: dict[str, set[str]] = {}
    for name in files():
        if name.endswith((".py", ".pyx")):
            for kind, body in re.findall(
                r"^class (\w+)(.*?)(?=^\S|\Z)", text_of(name), re.MULTILINE | re.DOTALL
            ):
                found.setdefault(kind, set()).update(re.findall(r"\w+", body))
    return {kind: frozenset(names) for kind, names in found.items()}


def file_exists(name: str) -> bool:
    """A path, its end, or a pattern of either; braces hold alternatives."""
    braces = re.search(r"\{([^}]*)\}", name)
    if braces:
        return all(file_exists(name.replace(braces[0], one.strip())) for one in braces[1].split(","))
    pattern = re.compile("(?:.*/)?" + re.escape(name.removeprefix("./")).replace(r"\*", "[^/]*"))
    return any(pattern.fullmatch(path) for path in files())


def folder_exists(name: str) -> bool:
    return any(f"/{name}" in f"/{path}" for path in files())


def wrong_with(span: str) -> str | None:
    """The reason for which a page may not name this, or None."""
    if span in OF_OTHERS or "..." in span:
        return None
    if FILE.fullmatch(span):
        return None if file_exists(span) else "no such file"
    if FOLDER.fullmatch(span):
        return None if folder_exists(span) else "no such folder"
    if METRIC.fullmatch(span):
        plain = re.sub(r"_(?:total|bucket|sum|count)$", "", span)
        return None if {span, plain} & (metrics() | words_of_the_sources()) else "no such metric"
    if wrong_setting(span):
        return "no such setting"
    return _wrong_with_many(span) or _wrong_symbol(span)


def _wrong_with_many(span: str) -> str | None:
    """What has a name of several parts, or words behind it."""
    if option := OPTION.match(span):
        return None if option[0] in options() | OPTIONS_OF_OTHERS else "no such option"
    if variable := VARIABLE.fullmatch(span):
        return None if is_variable(variable[1]) else "no such variable"
    if test := TEST.fullmatch(span):
        places = [name for name in files() if f"/{name}".endswith(f"/{test[1]}")]
        there = any(re.search(rf"def {test[2]}\b", text_of(place)) for place in places)
        return None if there else "no such test"
    if member := MEMBER.fullmatch(span):
        known = members().get(member[1])
        return None if known is None or member[2] in known else f"{member[1]} has no {member[2]}"
    if module := MODULE.fullmatch(span):
        path = module[1].replace(".", "/")
        return None if file_exists(f"{path}.py") or folder_exists(f"{path}/") else "no such module"
    if target := TARGET.fullmatch(span):
        makes = re.search(rf"^{target[1]}:", text_of("Makefile"), re.MULTILINE)
        return None if makes else "no such target"
    return None


def _wrong_symbol(span: str) -> str | None:
    if SYMBOL.fullmatch(span) and ("_" in span or re.search("[a-z][A-Z]", span)):
        missing = [part for part in span.strip("()").split(".") if not is_named(part)]
        return f"{missing[0]} is nowhere in the sources" if missing else None
    return None


def is_named(word: str) -> bool:
    """A word of the sources, or its end: pages list `test_groups_lease`, `_takeover`."""
    words = words_of_the_sources()
    return word in words or (word.startswith("_") and any(known.endswith(word) for known in words))


def is_variable(name: str) -> bool:
    """Of a setting (two underscores stand for a dot), or one that the sources name."""
    setting = name.removeprefix("DRAY_").lower().replace("__", ".")
    return name in words_of_the_sources() or setting in settings() or not wrong_setting(setting)


def wrong_setting(span: str) -> bool:
    found = SETTING.fullmatch(span)
    if not found or span in settings() or span in LIKE_SETTINGS:
        return False
    if any(name.startswith(f"{span}.") for name in settings()):
        return False  # a group of settings
    if any(span.startswith(f"{name}.") and name.endswith(("options", "secrets")) for name in settings()):
        return False  # an entry of a map
    sections = {name.partition(".")[0] for name in settings()}
    return found[1] in sections - {"dray"}


def wrong_command(line: str) -> str | None:
    """The reason for which `drayd` would not know this command or one of its options, or None."""
    try:
        words = shlex.split(re.split(r" [|>&#] | >> |;", line)[0])
    except ValueError:
        return None  # a quotation that goes on in the next line
    if "..." in words:
        return None
    command: Any = get_command(app)
    rest = words[1:]
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if not re.fullmatch("[a-z-]+", name):
            return None  # a placeholder
        found = command.get_command(Context(command), name)
        if found is None:
            return f"no command {name}"
        command = found
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known | {"--help", "--"}:
            return f"no option {option}"
    return None


@pytest.mark.parametrize("page", pages())
def test_what_a_page_names_exists(page: str) -> None:
    if page == "CHANGELOG.md":
        return  # a changelog names what is gone
    wrong = {span: reason for span in set(spans(text_of(page))) if (reason := wrong_with(span))}
    assert not wrong


@pytest.mark.parametrize("page", pages())
def test_the_commands_of_a_page_can_be_typed(page: str) -> None:
    if page == "CHANGELOG.md":
        return
    wrong = {
        line: reason
        for line in set(commands(text_of(page)))
        if line not in OF_OTHERS and (reason := wrong_command(line))
    }
    assert not wrong


@pytest.mark.parametrize(
    "span",
    [
        "src/dray/log/no_such.py",
        "api/produce/accepting.py",
        "no_such_room/",
        "dray_no_such_metric_total",
        "compaction.no_such",
        "NoSuchThing",
        "Reader.no_such_method()",
        "Log.no_such",
        "Log.Node",
        "--no-such-option",
        "DRAY_LOG__NO_SUCH=1",
        "test_pages.py::test_no_such",
        "python -m tools.no_such",
        "make no-such",
    ],
)
def test_the_rule_notices_a_wrong_name(span: str) -> None:
    assert wrong_with(span)


@pytest.mark.parametrize("line", ["drayd admin no-such orders", "drayd query --no-such", "drayd nothing"])
def test_the_rule_notices_a_wrong_command(line: str) -> None:
    assert wrong_command(line)


LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


def anchors(page: str) -> list[str]:
    """Those of the headings, as GitHub makes them."""
    found: list[str] = []
    for heading in HEADING.findall(CODE_BLOCK.sub("", text_of(page))):
        plain = LINK.sub(lambda link: link[0].split("](")[0].lstrip("!["), heading)
        found.append(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain.lower())))
    return found


def dead_links(page: str, text: str) -> set[str]:
    """The links to pages, files and headings of ours that lead nowhere."""
    dead = set()
    for target in LINK.findall(CODE_BLOCK.sub("", text)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        there = place in files() or any(name.startswith(f"{place}/") for name in files())
        if not there or (anchor and anchor not in anchors(place)):
            dead.add(target)
    return dead


@pytest.mark.parametrize("page", pages())
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    assert not dead_links(page, text_of(page))


@pytest.mark.parametrize("target", ["no-such.md", "architecture.md#no-such", "#no-such", "../no/such/"])
def test_the_rule_notices_a_dead_link(target: str) -> None:
    assert dead_links("docs/tables.md", f"See [it]({target}).") == {target}


LONGEST_PAGE = 2500  # words
ANY_LENGTH = {
    "CHANGELOG.md",
    "docs/configuration.md",
}  # lists; the second is written by `drayd config reference`


@pytest.mark.parametrize("page", pages())
def test_a_page_is_short_enough_to_be_read(page: str) -> None:
    if page.startswith("bench/") or page in ANY_LENGTH:
        return
    assert words_in(text_of(page)) < LONGEST_PAGE


MOST_WORDS = 60_000
"""Of README and `docs`, written by hand: without generated tables and `docs/configuration.md`. It is no count
of what is there, so that pages may be written side by side; whoever comes to it shortens another page."""
GENERATED = re.compile(r"<!-- (rooms|api-table|statements|metrics of)\b.*?<!-- (?:/\1|end of \1)", re.DOTALL)


def test_the_pages_are_no_wall() -> None:
    by_hand = [
        GENERATED.sub("", text_of(page))
        for page in pages()
        if page == "README.md" or (page.startswith("docs/") and page not in ANY_LENGTH)
    ]
    assert sum(map(words_in, by_hand)) <= MOST_WORDS


def words_in(text: str) -> int:
    """Words with a letter or a digit; bars and rules of tables are none."""
    return sum(any(map(str.isalnum, word)) for word in text.split())
