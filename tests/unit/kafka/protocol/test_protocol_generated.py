"""What is committed is what the generator writes, and what is light stays light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map
from tools import generate_messages

from dray.kafka.protocol import SCHEMAS, ApiKey, ErrorCode, request_class, response_class

ROOT = Path(__file__).resolve().parents[4]
MESSAGES = ROOT / "src" / "dray" / "kafka" / "protocol" / "messages"


def test_the_committed_messages_are_what_the_generator_writes() -> None:
    generated = generate_messages.generate()
    committed = {path.name: path.read_text() for path in MESSAGES.glob("*.py") if path.name != "__init__.py"}
    assert set(generated) == set(committed)
    stale = [name for name, text in generated.items() if committed[name] != text]
    assert not stale, "run python -m tools.generate_messages"


def test_error_codes_are_kios() -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        code.name.upper(): code.value for code in KioErrorCode
    }
    assert {code for code in ErrorCode if code.retriable} == {code for code in KioErrorCode if code.retriable}


def test_api_keys_are_kios() -> None:
    assert {key.value: key.name.lower() for key in ApiKey} == dict(api_key_map)


def test_every_api_in_the_table_has_its_two_messages() -> None:
    for key, schema in SCHEMAS.items():
        for message in (request_class(key), response_class(key)):
            assert key == message.API_KEY
            assert (schema.first_version, schema.last_version) == message.VERSIONS
            assert schema.flexible_from == message.FLEXIBLE_FROM
    with pytest.raises(KeyError):
        request_class(9999)


def test_the_package_loads_no_messages_until_they_are_asked_for() -> None:
    program = (
        "import sys, dray.kafka.protocol; "
        "print(*[name for name in sys.modules if 'protocol.messages.' in name])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["dray.kafka.protocol.messages.schemas"]
