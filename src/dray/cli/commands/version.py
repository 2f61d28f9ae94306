"""`drayd version`."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from dray.base.build import build_name
from dray.cli.output import print_json


def version(json: Annotated[bool, typer.Option("--json", help="As a JSON object.")] = False) -> None:
    """Print the version of Dray, and of the Python under it."""
    if json:
        print_json({"dray": build_name(), "python": platform.python_version()})
    else:
        print(f"drayd {build_name()} (Python {platform.python_version()})")
