"""A broker's registration, as it is stored and read by this build and by others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import ClockGuard, ProcessDescription
from dray.broker.cluster.clock_guard import StoredBeat, decode_beat, encode_beat
from dray.broker.cluster.membership import AdvertisedListener, Broker, decode_broker, encode_broker
from dray.inspection.storage.stored import StoredCluster
from dray.metadata.memory import MemoryStore
from dray.metadata.values import ValueCorrupt, seal_json, unseal_json

VALUES = Path(__file__).parents[3] / "fixtures" / "values"
BROKER = Broker(
    3,
    (AdvertisedListener("PLAINTEXT", "10.0.0.3", 9092),),
    zone="a",
    rack="r",
    started_ms=1_700_000_000_000,
    build="0.1.0",
    machine="m",
    process=7,
    incarnation=UUID(int=5),
    http="10.0.0.3:9644",
)


def test_a_registration_says_where_the_numbers_are() -> None:
    assert decode_broker(3, encode_broker(BROKER)) == BROKER
    assert (VALUES / "broker-http.v1.bin").read_bytes() == encode_broker(BROKER)


def test_builds_from_before_read_past_it() -> None:
    """The format's number is the same, and every field that they know is there."""
    version, fields = unseal_json("a broker", encode_broker(BROKER), 1)
    known = {"listeners", "zone", "rack", "started_ms", "build", "machine", "process", "incarnation"}
    assert (version, set(fields) - {"http"}) == (1, known)


def test_registrations_from_before_are_read() -> None:
    assert decode_broker(1, (VALUES / "broker.v1.bin").read_bytes()).http is None


@pytest.mark.parametrize("fields", [[], {}, {"listeners": [1]}])
def test_what_is_no_registration_is_named(fields: object) -> None:
    with pytest.raises(ValueCorrupt):
        decode_broker(1, seal_json(1, fields))  # type: ignore[arg-type]


BEAT = StoredBeat("m", 1_700_000_000_000, False, ProcessDescription("compactor", "0.1.0", "10.0.0.4:9643"))


def test_a_compactors_beat_says_what_it_is() -> None:
    assert decode_beat(encode_beat(BEAT)) == BEAT
    assert (VALUES / "clock-compactor.v1.bin").read_bytes() == encode_beat(BEAT)
    assert decode_beat((VALUES / "clock.v1.bin").read_bytes()).process is None


def test_builds_from_before_read_past_what_a_process_is() -> None:
    version, fields = unseal_json("a beat", encode_beat(BEAT), 1)
    assert (version, set(fields) - {"process"}) == (1, {"machine", "wall_ms", "stepped"})


@pytest.mark.parametrize("process", [[], 5, {}, {"role": "x"}])
def test_a_beat_with_nonsense_is_named(process: object) -> None:
    with pytest.raises(ValueCorrupt):
        decode_beat(seal_json(1, {"machine": "m", "wall_ms": 1, "stepped": False, "process": process}))


async def test_a_guard_beats_with_its_description() -> None:
    runtime = SystemRuntime()
    store = MemoryStore(runtime)
    guard = ClockGuard(store, runtime, machine="m", process=BEAT.process)
    guard.start()
    stored = StoredCluster(store, 1, {}, 1000)
    async with asyncio.timeout(60):
        while not (beats := await stored.processes()):  # noqa: ASYNC110
            await asyncio.sleep(0)
    [beat] = beats
    assert beat.process == BEAT.process
    await guard.stop()
    assert await stored.processes() == []
