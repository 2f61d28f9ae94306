"""Config files and variables from anywhere: settings, or one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.daemons.config import ConfigError, load
from dray.daemons.config.schema import fields_by_path

KEYS = sorted(".".join(path) for path in fields_by_path())
SCALARS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["auto", "off", "10s", "1MiB", "-1", "127.0.0.1:0", "[", "{a: b}", "null", "0x10", "1e9"]
    ),
    st.integers().map(str),
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(["broker:", "  listen: ", "- ", "{", "}", "[", ":", "&a", "*a", "!!python/x ", "\n"])
    ).map("".join),
    st.lists(st.tuples(st.sampled_from(KEYS), SCALARS), max_size=4).map(
        lambda pairs: "\n".join(
            "\n".join("  " * depth + name + ":" for depth, name in enumerate(key.split("."))) + f" {value}"
            for key, value in pairs
        )
    ),
)


def load_or_refuse(content: bytes, environment: dict[str, str]) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "dray.yaml"
        file.write_bytes(content)
        told = ""
        try:
            load(file, environment)
        except ConfigError as refusal:
            told = str(refusal)
        assert "\n" not in told, "an error is one line"


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_any_text_as_a_config_file(text: str) -> None:
    load_or_refuse(text.encode("utf-8", "surrogatepass"), {})


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_as_a_config_file(content: bytes) -> None:
    load_or_refuse(content, {})


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), SCALARS, max_size=3))
def test_any_values_in_the_environment(values: dict[str, str]) -> None:
    variables = {f"DRAY_{key.replace('.', '__').upper()}": value for key, value in values.items()}
    load_or_refuse(b"", variables)
