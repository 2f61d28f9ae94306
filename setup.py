"""Builds the compiled core of `dray.kafka.records` with nothing but gcc, and writes down of which commit a
wheel is made. All else is in pyproject.toml.

With DRAY_STABLE_ABI=1, as `make dist` has it, the core is one for every Python from 3.11 on. A call of it
then takes a tenth of a microsecond more.
"""

import os
import subprocess
from glob import glob
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOM = "src/dray/kafka/records"
SOURCES = "_core.pyx", "crc32c.c", "batch.c", "columns.c", "keys.c", "unfold.c"
IS_STABLE = os.environ.get("DRAY_STABLE_ABI") == "1"
STABLE: dict[str, Any] = {
    "define_macros": [("Py_LIMITED_API", "0x030B00F0")],
    "py_limited_api": True,
}


class BuildWithCommit(build_py):
    """DRAY_COMMIT names it where there is no checkout, as in an image's build."""

    def run(self):
        super().run()
        if self.editable_mode:
            return  # a checkout says it by itself
        commit = os.environ.get("DRAY_COMMIT") or _commit_here()
        if commit:
            (Path(self.build_lib) / "dray" / "base" / "commit").write_text(commit + "\n")


def _commit_here():
    here = Path(__file__).parent
    if not (here / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


setup(
    cmdclass={"build_py": BuildWithCommit},
    ext_modules=[
        Extension(
            "dray.kafka.records._core",
            sources=[f"{ROOM}/{name}" for name in SOURCES],
            depends=sorted(glob(f"{ROOM}/*.h") + glob(f"{ROOM}/*.px[di]")),
            extra_compile_args=["-O3", "-std=gnu11"],
            **(STABLE if IS_STABLE else {}),
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_STABLE else {},
)
