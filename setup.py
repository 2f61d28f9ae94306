"""Builds the compiled core of `dray.records`, and a loop of `dray.server`, with nothing but gcc. All else is
in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

ROOM = "src/dray/records"
SOURCES = "_core.pyx", "crc32c.c", "batch.c", "columns.c", "keys.c", "unfold.c"

setup(
    ext_modules=[
        Extension(
            "dray.records._core",
            sources=[f"{ROOM}/{name}" for name in SOURCES],
            depends=sorted(glob(f"{ROOM}/*.h") + glob(f"{ROOM}/*.px[di]")),
            extra_compile_args=["-O3", "-std=gnu11"],
        ),
        Extension(
            "dray.server._tls_records",
            sources=["src/dray/server/_tls_records.c"],
            extra_compile_args=["-O2", "-std=gnu11"],
        ),
    ]
)
