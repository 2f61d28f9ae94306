"""How answers of Kafka are kept: JSON, and a line for each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def record(path: Path, answers: Mapping[str, Any] | Sequence[Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(as_lines(answers), encoding="utf-8")


def as_lines(answers: Mapping[str, Any] | Sequence[Any]) -> str:
    if isinstance(answers, Mapping):
        lines = [f"{_on_one_line(name)}: {_on_one_line(answer)}" for name, answer in answers.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"
    return "[\n" + ",\n".join(_on_one_line(answer) for answer in answers) + "\n]\n"


def _on_one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
