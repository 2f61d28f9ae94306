"""The generated messages are those of the `.proto` files, and errors are read as Oxia writes them."""

from __future__ import annotations

import grpc
import pytest
from grpc import aio
from tests.unit.metadata.oxia_fake import error_details
from tools import generate_oxia

from dray.metadata.oxia.errors import REFUSED_REASONS, understand


def test_the_messages_are_generated_from_the_protos() -> None:
    files = generate_oxia.generate()
    assert len(files) == 6
    for name, text in files.items():
        assert (generate_oxia.WIRE / name).read_text() == text, f"{name}: run python -m tools.generate_oxia"


def failure(code: grpc.StatusCode, details: bytes | None = None, text: str = "why") -> aio.AioRpcError:
    trailing = aio.Metadata(*([] if details is None else [("grpc-status-details-bin", details)]))
    return aio.AioRpcError(code, aio.Metadata(), trailing, text)


@pytest.mark.parametrize("reason", sorted(REFUSED_REASONS))
def test_what_was_refused_before_the_log_may_be_sent_again(reason: str) -> None:
    fault = understand(failure(grpc.StatusCode.ABORTED, error_details(reason, "127.0.0.1:1")))
    assert fault.refused
    assert not fault.hopeless
    assert fault.leader == "127.0.0.1:1"


@pytest.mark.parametrize(
    "reason", ["ABORTED", "RESOURCE_UNAVAILABLE", "INVALID_STATUS", "INVALID_TERM", "UNKNOWN"]
)
def test_other_reasons_leave_it_open(reason: str) -> None:
    assert not understand(failure(grpc.StatusCode.UNAVAILABLE, error_details(reason))).refused


@pytest.mark.parametrize("details", [None, b"", b"\xff\xff", error_details("NODE_IS_NOT_LEADER")[:-3]])
def test_an_error_without_a_reason_leaves_it_open(details: bytes | None) -> None:
    assert not understand(failure(grpc.StatusCode.ABORTED, details)).refused


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("node is not leader for shard 3", "NODE_IS_NOT_LEADER"),
        ("Received message in the wrong state. In FENCED, should be LEADER.", "NODE_IS_NOT_LEADER"),
        ("oxia: server not initialized yet", "NOT_INITIALIZED"),
        ("oxia: namespace not found", "NAMESPACE_NOT_FOUND"),
        ("oxia: session not found", "SESSION_NOT_FOUND"),
        ("oxia: notifications not enabled on namespace", "NOTIFICATIONS_NOT_ENABLED"),
    ],
)
def test_where_an_older_version_gives_no_reason_its_text_does(text: str, reason: str) -> None:
    assert understand(failure(grpc.StatusCode.UNKNOWN, text=text)).reason == reason
    for other in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED):
        assert understand(failure(other, text=text)).reason == ""
    later = f"oxia: failed to append to wal: rpc error: code = Code(106) desc = {text}"
    assert not understand(failure(grpc.StatusCode.UNKNOWN, text=later)).refused


def test_a_reason_of_somebody_else_is_none() -> None:
    foreign = error_details("NODE_IS_NOT_LEADER").replace(b"oxia.io", b"else.io")
    assert not understand(failure(grpc.StatusCode.ABORTED, foreign)).refused
