"""Builds the compiled core of `dray.records` with nothing but gcc. All else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "dray.records._core",
            sources=["src/dray/records/_core.pyx"],
            extra_compile_args=["-O3"],
        )
    ]
)
