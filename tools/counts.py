"""How large the house is: `python -m tools.counts` prints it, by folder and in all.

`tools/budgets.json` says how many lines each folder may have, and how much the house, and a test holds the
code to it. A budget leaves room for small changes: `python -m tools.counts --write` changes a number only
where there is more than it allows, or so much less that it says nothing any more. Then it is set anew, at
least half a step above what is there. The reason for more room stands in the commit. What is a rule (a median
function, how many names are doubled) is changed by hand alone.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ROOT / "src", ROOT / "simulation"
BUDGETS: Final = ROOT / "tools" / "budgets.json"
SMALL: Final = 45
"""Lines of a module that is small: what it holds could stand in the one that uses it."""
WHOLE: Final = "the house"
WALKS: Final = "walks"

Numbers = dict[str, float]

STEPS: Final = {"lines": 500.0, "modules": 10.0, "small": 5.0, "one importer": 10.0, "imports %": 0.2}
"""The steps of the budgets that `--write` sets: numbers of several changes side by side fit into one."""

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, *_FUNCTIONS)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")
_RELATIVE: Final = re.compile(r"(?:What|Who|Where|Whose)\b")


@dataclass
class Module:
    name: str
    folder: str
    path: Path
    lines: list[str]
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def is_small(self) -> bool:
        return not self.is_package and len(self.lines) <= SMALL

    def code_lines(self) -> int:
        """Without blank lines, comments and docstrings."""
        texts = [
            node
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and _is_text(node.value)
        ]
        told = _lines_of(texts)
        written = (line.strip() for number, line in enumerate(self.lines, 1) if number not in told)
        return sum(bool(line) and not line.startswith("#") for line in written)

    def import_lines(self) -> int:
        return len(_lines_of(node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom)))

    def function_lengths(self) -> list[int]:
        return [_last(node) - node.lineno + 1 for node in self.nodes if isinstance(node, _FUNCTIONS)]

    def classes(self) -> list[str]:
        return [node.name for node in self.nodes if isinstance(node, ast.ClassDef)]

    def sentences(self) -> Iterator[str]:
        """Of its docstrings."""
        for node in self.nodes:
            if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
                yield from _SENTENCE_END.split(" ".join(text.split()))

    def imported(self) -> Iterator[tuple[str, str]]:
        """What it imports: of which module, and by what name."""
        package = self.name.split(".")[: None if self.is_package else -1]
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                yield from ((module, alias.name) for alias in node.names)


def _is_text(constant: ast.Constant) -> bool:
    return isinstance(constant.value, str)


def _last(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _lines_of(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, _last(node) + 1)}


def is_generated(path: Path) -> bool:
    return "messages" in path.parts or path.stem.endswith(("_pb2", "_pb2_grpc"))


def modules(sources: Iterable[Path] = SOURCES) -> list[Module]:
    """Those written by hand. A folder is one of `dray`, or another package beside it."""
    found = []
    placed = [(path, path.relative_to(source)) for source in sources for path in sorted(source.rglob("*.py"))]
    for path, place in placed:
        if not is_generated(path):
            parts = [*place.parent.parts, *([] if path.name == "__init__.py" else [path.stem])]
            is_inside = place.parts[0] == "dray" and len(place.parts) > 2
            folder = place.parts[1] if is_inside else place.parts[0]
            text = path.read_text(encoding="utf-8")
            found.append(Module(".".join(parts), folder, path, text.splitlines(), ast.parse(text)))
    return found


@dataclass
class Counts:
    folders: dict[str, Numbers] = field(default_factory=dict)
    house: Numbers = field(default_factory=dict)

    def rows(self) -> dict[str, Numbers]:
        return {**self.folders, WHOLE: self.house}


def count(found: list[Module]) -> Counts:
    lone = _with_one_importer(found)
    counts = Counts()
    for folder in sorted({module.folder for module in found}):
        counts.folders[folder] = _sizes([module for module in found if module.folder == folder], lone)
    lengths = sorted(length for module in found for length in module.function_lengths())
    sentences = [sentence for module in found for sentence in module.sentences()]
    names = Counter(name for module in found for name in module.classes())
    counts.house = {
        **_sizes(found, lone),
        "imports %": _share(_sum(Module.import_lines, found), _sum(Module.code_lines, found)),
        "doubled names": sum(times > 1 for times in names.values()),
        "what/who %": _share(sum(map(bool, map(_RELATIVE.match, sentences))), len(sentences)),
        "median function": _at(lengths, 0.5),
        "p90 function": _at(lengths, 0.9),
    }
    return counts


def _sizes(found: list[Module], lone: set[str]) -> Numbers:
    beside = Counter(module.path.parent for module in found if not module.is_package)
    return {
        "lines": sum(len(module.lines) for module in found),
        "modules": sum(not module.is_package for module in found),
        "beside": max(beside.values(), default=0),
        "small": sum(module.is_small for module in found),
        "one importer": sum(module.name in lone for module in found),
    }


def _with_one_importer(found: list[Module]) -> set[str]:
    known = {module.name for module in found}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in found:
        for name, member in module.imported():
            importers[inner if (inner := f"{name}.{member}") in known else name].add(module.name)
    return {module.name for module in found if not module.is_package and len(importers[module.name]) == 1}


def _sum(measure: Callable[[Module], int], found: list[Module]) -> int:
    return sum(measure(module) for module in found)


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def _at(lengths: list[int], share: float) -> float:
    return lengths[int(len(lengths) * share)] if lengths else 0


# --- what it may have


def read_budgets() -> dict[str, Numbers]:
    """Those of the folders, and of the house."""
    return {row: numbers for row, numbers in _all_budgets().items() if row != WALKS}


def read_walks() -> Numbers:
    """The most own functions of each walk that `tools/walks.py` takes."""
    return _all_budgets()[WALKS]


def _all_budgets() -> dict[str, Numbers]:
    budgets: dict[str, Numbers] = json.loads(BUDGETS.read_text(encoding="utf-8"))
    return budgets


def renewed(counts: Counts, budgets: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """The budgets, and those anew that are too small or too large for what is there."""
    folders = {row: budgets.get(row, {"lines": -1}) for row in counts.folders}
    rows = counts.rows()
    return {
        row: {what: _renewed(what, rows[row][what], most) for what, most in allowed.items()}
        for row, allowed in {**folders, WHOLE: budgets[WHOLE]}.items()
    }


def _renewed(what: str, there: float, most: float) -> float:
    step = STEPS.get(what)
    if step is None or there <= most <= there + 2 * step:
        return most
    above = round(math.ceil(there / step + 0.5) * step, 1)
    return int(above) if step >= 1 else above


def excesses(counts: Counts, budgets: Mapping[str, Numbers]) -> list[str]:
    """Each number above its budget, and each folder that has none, or is not there any more."""
    rows = counts.rows()
    found = [f"{row}: no budget" for row in rows if row not in budgets]
    found += [f"{row}: a budget, and no such folder" for row in budgets if row not in rows]
    for row, allowed in budgets.items():
        for what, most in allowed.items():
            if (there := rows.get(row, {}).get(what, 0)) > most:
                found.append(f"{row}: {what} {there:g}, and {most:g} in the budget")
    return found


def as_lines(budgets: Mapping[str, Numbers]) -> str:
    """JSON with a folder on each line."""
    return (
        "{\n"
        + ",\n".join(f" {json.dumps(row)}: {json.dumps(each)}" for row, each in budgets.items())
        + "\n}\n"
    )


def as_table(counts: Counts) -> str:
    columns = list(next(iter(counts.folders.values())))
    rows = [["folder", *columns]]
    rows += [[row, *(f"{numbers[each]:g}" for each in columns)] for row, numbers in counts.rows().items()]
    table = "\n".join(f"{row[0]:<14}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows)
    more = [f"{what}: {value:g}" for what, value in counts.house.items() if what not in columns]
    return "\n".join([table, "", *more])


def main(arguments: list[str]) -> None:
    counts = count(modules())
    if arguments == ["--write"]:
        BUDGETS.write_text(
            as_lines({**renewed(counts, read_budgets()), WALKS: read_walks()}), encoding="utf-8"
        )
    print(as_table(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
