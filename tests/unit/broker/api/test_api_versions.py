"""ApiVersions and the rules of versions: what is advertised is what is served, and the rest is refused."""

from __future__ import annotations

import struct
from pkgutil import iter_modules

import pytest
from tests.services import room_settings
from tests.unit.broker.api.fakes import Harness, frame, running

from dray.broker import api
from dray.broker.api import HANDLERS, Dispatcher, Feature, Handler, RefuseConnection, handles
from dray.broker.api.registry import MODULES
from dray.broker.api.shared import NO_CHECKS
from dray.kafka.protocol import (
    SCHEMAS,
    ApiKey,
    ErrorCode,
    RequestHeader,
    encode_request_header,
    request_class,
)
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest

NAMED = {"client_software_name": "test", "client_software_version": "1.0"}


@pytest.mark.parametrize("version", range(5))
async def test_every_version_lists_what_is_served(broker: Harness, version: int) -> None:
    response = await broker.ask(ApiVersionsRequest(**NAMED), version)
    assert response.error_code == ErrorCode.NONE
    listed = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    served = {handler.api_key: (handler.first, handler.last) for handler in HANDLERS}
    assert listed.pop(ApiKey.PRODUCE) == (0, 13)  # KAFKA-18659: librdkafka wants to see version 0
    assert served.pop(ApiKey.PRODUCE) == (3, 13)
    assert listed == served
    assert all(least <= most for least, most in listed.values())
    assert not response.supported_features
    assert response.finalized_features_epoch == -1


@pytest.mark.parametrize("key", [24, 25, 26, 27, 28, 71, 72, 76])
async def test_what_must_not_be_advertised_is_not(broker: Harness, key: int) -> None:
    response = await broker.ask(ApiVersionsRequest(**NAMED), 4)
    assert key not in {one.api_key for one in response.api_keys}
    name = "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    with pytest.raises(RefuseConnection, match=rf"not served \(API {key} {name} v0,"):
        await broker.dispatcher.dispatch(memoryview(struct.pack(">hhih", key, 0, 1, -1)), broker.connection)


async def test_an_api_that_kafka_does_not_have_either_is_named_by_its_number(broker: Harness) -> None:
    with pytest.raises(RefuseConnection, match=r"not served \(API 999 v0,"):
        await broker.dispatcher.dispatch(memoryview(struct.pack(">hhih", 999, 0, 1, -1)), broker.connection)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
async def test_an_unknown_version_is_answered_as_v0_with_our_own_range(broker: Harness, version: int) -> None:
    """The body is whatever that version looks like: it is not read."""
    request = struct.pack(">hhi", ApiKey.API_VERSIONS, version, 77) + b"\x00\x04test" + b"\xff\xfe\xfd"
    answer = await broker.dispatcher.dispatch(memoryview(request), broker.connection)
    assert answer is not None
    raw = memoryview(b"".join(answer))
    assert struct.unpack_from(">i", raw)[0] == 77
    response, end = ApiVersionsResponse.decode(raw, 4, 0)
    assert end == len(raw)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä", "x\n", "x/y"])
@pytest.mark.parametrize("field", ["client_software_name", "client_software_version"])
async def test_a_malformed_software_name_is_refused_from_v3(broker: Harness, name: str, field: str) -> None:
    request = ApiVersionsRequest(**{**NAMED, field: name})
    response = await broker.ask(request, 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert (await broker.ask(request, 2)).error_code == ErrorCode.NONE


async def test_features_are_shown_and_below_v4_only_those_that_old_clients_bear() -> None:
    features = (Feature("group.version", 0, 1, 1), Feature("dray.version", 1, 3, 2))
    async with running(room_settings.api(features=features)) as broker:
        three = await broker.ask(ApiVersionsRequest(**NAMED), 3)
        assert [one.name for one in three.supported_features] == ["dray.version"]
        four = await broker.ask(ApiVersionsRequest(**NAMED), 4)
        assert [(one.name, one.min_version, one.max_version) for one in four.supported_features] == [
            ("group.version", 0, 1),
            ("dray.version", 1, 3),
        ]
        assert [(one.name, one.max_version_level) for one in four.finalized_features] == [
            ("group.version", 1),
            ("dray.version", 2),
        ]
        assert four.finalized_features_epoch == 0


# --- what the dispatcher refuses


@pytest.mark.parametrize("version", [0, 1, 2, 14, -1])
async def test_a_produce_version_that_is_not_served_closes_the_connection(
    broker: Harness, version: int
) -> None:
    request = struct.pack(">hhih", ApiKey.PRODUCE, version, 9, -1) + bytes(32)
    with pytest.raises(RefuseConnection, match=rf"Produce v{version}, correlation 9, no client id"):
        await broker.dispatcher.dispatch(memoryview(request), broker.connection)


async def test_a_version_whose_response_can_say_so_is_answered(broker: Harness) -> None:
    """The schema knows InitProducerId v6; it is for transactions, and not served."""
    served = [handler for handler in HANDLERS if handler.api_key == ApiKey.INIT_PRODUCER_ID]
    if served:
        assert served[0].last == 5
    response = await broker.ask(InitProducerIdRequest(), 6)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_an_unserved_version_without_room_for_an_error_closes(broker: Harness) -> None:
    @handles(request_class(ApiKey.METADATA), 5, 8, checks=NO_CHECKS)
    async def handle(context, request):
        raise AssertionError

    dispatcher = Dispatcher(broker.services, [handle])
    with pytest.raises(RefuseConnection, match="Metadata v4"):
        await dispatcher.dispatch(frame(MetadataRequest(), 4), broker.connection)


@pytest.mark.parametrize("size", range(8))
async def test_a_frame_without_a_header_closes(broker: Harness, size: int) -> None:
    with pytest.raises(RefuseConnection):
        await broker.dispatcher.dispatch(memoryview(bytes(size)), broker.connection)


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.request.__name__)
async def test_a_request_cut_short_closes_with_a_line_that_names_it(broker: Harness, handler: object) -> None:
    kind = handler.request  # type: ignore[attr-defined]
    for version in range(handler.first, handler.last + 1):  # type: ignore[attr-defined]
        whole = bytes(frame(kind(), version))
        header = RequestHeader(kind.API_KEY, version, 77, "test")
        if len(whole) == len(encode_request_header(header)):
            continue  # an empty body cannot be cut
        with pytest.raises(RefuseConnection) as refused:
            await broker.dispatcher.dispatch(memoryview(whole[:-1]), broker.connection)
        assert SCHEMAS[kind.API_KEY].name in refused.value.reason
        assert "client 'test'" in refused.value.reason
        assert "\n" not in refused.value.reason
    assert not broker.observed, "no handler saw it"


async def test_huge_counts_in_small_frames_close_without_allocating(broker: Harness) -> None:
    start = bytes(frame(MetadataRequest(topics=[]), 4))
    for count in (b"\x7f\xff\xff\xff", b"\x40\x00\x00\x00", b"\x80\x00\x00\x00"):
        with pytest.raises(RefuseConnection):
            await broker.dispatcher.dispatch(memoryview(start[:-5] + count + b"\x00"), broker.connection)


async def test_the_observer_hears_of_each_request(broker: Harness) -> None:
    await broker.ask(ApiVersionsRequest(**NAMED), 3)
    assert broker.observed == [(ApiKey.API_VERSIONS, "ok")]

    @handles(ApiVersionsRequest, 0, 4, checks=NO_CHECKS)
    async def failing(context, request):
        raise ZeroDivisionError

    dispatcher = Dispatcher(broker.services, [failing], broker._observe)
    with pytest.raises(ZeroDivisionError):
        await dispatcher.dispatch(frame(ApiVersionsRequest(**NAMED), 3), broker.connection)
    assert broker.observed[-1] == (ApiKey.API_VERSIONS, "failed")


def test_a_handler_cannot_serve_what_has_no_messages() -> None:
    with pytest.raises(ValueError, match="has versions"):
        handles(ApiVersionsRequest, 0, 5, checks=NO_CHECKS)


async def test_two_handlers_for_one_api_are_a_mistake(broker: Harness) -> None:
    with pytest.raises(ValueError, match="two handlers"):
        Dispatcher(broker.services, [HANDLERS[0], HANDLERS[0]])


def test_every_api_module_is_served_and_the_listing_of_the_room_is_the_protocol() -> None:
    there = {found.name for found in iter_modules(api.__path__)}
    assert there - {"dispatcher", "registry", "shared"} == set(MODULES)
    assert all(isinstance(handler, Handler) for handler in HANDLERS)
    assert len(HANDLERS) == len(MODULES) == len(set(MODULES))
