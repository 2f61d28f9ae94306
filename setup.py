"""Builds the compiled core of `dray.records` with nothing but gcc. All else is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

ROOM = "src/dray/records"

setup(
    ext_modules=[
        Extension(
            "dray.records._core",
            sources=[f"{ROOM}/_core.pyx", f"{ROOM}/crc32c.c", f"{ROOM}/batch.c", f"{ROOM}/columns.c", f"{ROOM}/unfold.c"],
            depends=sorted(glob(f"{ROOM}/*.h") + glob(f"{ROOM}/*.px[di]")),
            extra_compile_args=["-O3", "-std=gnu11"],
        )
    ]
)
