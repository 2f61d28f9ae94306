"""`drayd version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed
from typing import Annotated

import typer

from dray.cli.output import print_json


def version(json: Annotated[bool, typer.Option("--json", help="As a JSON object.")] = False) -> None:
    """Print the version of Dray, and of the Python under it."""
    if json:
        print_json({"dray": installed("dray"), "python": platform.python_version()})
    else:
        print(f"drayd {installed('dray')} (Python {platform.python_version()})")
