"""Reading: where, how much, and what is refused."""

from __future__ import annotations

from uuid import UUID

from dray.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tests.referee.cases import case
from tests.referee.log.produce_cases import produce
from tests.referee.session import Session
from tests.services.batches import batch, plain

VERSION = 12


def fetch(
    topic: str | UUID,
    *offsets: tuple[int, int],
    max_bytes: int = 1_000_000,
    partition_max_bytes: int = 1_000_000,
    leader_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
    min_bytes: int = 0,
    isolation_level: int = 0,
    replica_id: int = -1,
) -> FetchRequest:
    partitions = [
        FetchPartition(
            partition=partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
        )
        for partition, offset in offsets
    ]
    wanted = FetchTopic(topic=topic) if isinstance(topic, str) else FetchTopic(topic_id=topic)
    wanted.partitions = partitions
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=100,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[wanted],
    )


async def filled(session: Session, suffix: str = "", partitions: int = 1) -> str:
    """Three batches in every partition: offsets 0-2, 3 and 4-5."""
    topic = await session.create(suffix, partitions)
    for partition in range(partitions):
        for values in ((b"a", b"b", b"c"), (b"d",), (b"e", b"f")):
            await session.send(produce(topic, (partition, batch(plain(*values)))), 9)
    return topic


@case
async def fetch_at_every_offset(session: Session) -> None:
    topic = await filled(session)
    for offset in (-1, 0, 1, 2, 3, 4, 5, 6, 7, 1000, 2**62):
        await session.ask(f"offset {offset}", fetch(topic, (0, offset)), VERSION)


@case
async def fetch_versions(session: Session) -> None:
    topic = await filled(session)
    topic_id = await session.until_known(topic)
    for version in (4, 5, 7, 9, 11, 12):
        await session.ask(f"v{version}", fetch(topic, (0, 0)), version)
    for version in (13, 15, 16, 17, 18):
        await session.ask(f"v{version}", fetch(topic_id, (0, 0)), version)
    await session.ask("read committed", fetch(topic, (0, 0), isolation_level=1), VERSION)


@case
async def fetch_from_nowhere(session: Session) -> None:
    topic = await filled(session)
    await session.ask("unknown topic", fetch("referee-no-such-topic", (0, 0)), VERSION)
    await session.ask("unknown id", fetch(UUID(int=1234567), (0, 0)), 13)
    await session.ask("zero id", fetch(UUID(int=0), (0, 0)), 13)
    await session.ask("partition beyond", fetch(topic, (1, 0)), VERSION)
    await session.ask("negative partition", fetch(topic, (-1, 0)), VERSION)
    await session.ask("nothing", FetchRequest(max_wait_ms=0, max_bytes=1000), VERSION)
    await session.ask("good and bad", fetch(topic, (0, 0), (7, 0)), VERSION)


@case
async def fetch_limits(session: Session) -> None:
    topic = await filled(session, partitions=2)
    await session.ask("one byte a partition", fetch(topic, (0, 0), (1, 0), partition_max_bytes=1), VERSION)
    await session.ask("one byte in all", fetch(topic, (0, 0), (1, 0), max_bytes=1), VERSION)
    await session.ask("no bytes a partition", fetch(topic, (0, 0), partition_max_bytes=0), VERSION)
    await session.ask("no bytes in all", fetch(topic, (0, 0), max_bytes=0), VERSION)
    # The first batch has 94 bytes, the second 74: neither fits whole into what is left of 120.
    await session.ask("a batch and a half", fetch(topic, (0, 0), partition_max_bytes=120), VERSION)
    await session.ask("exactly two", fetch(topic, (0, 0), partition_max_bytes=170), VERSION)
    await session.ask("more than there is", fetch(topic, (0, 0), min_bytes=100_000), VERSION)


@case
async def fetch_leader_epochs(session: Session) -> None:
    topic = await filled(session)
    for epoch in (-1, 0, 1, 5):
        await session.ask(f"epoch {epoch}", fetch(topic, (0, 0), leader_epoch=epoch), VERSION)


@case
async def fetch_sessions(session: Session) -> None:
    topic = await filled(session)
    await session.ask("no session", fetch(topic, (0, 0), session_epoch=-1), VERSION)
    await session.ask("unknown session", fetch(topic, (0, 0), session_id=12345, session_epoch=1), VERSION)
    await session.ask(
        "close of an unknown session", fetch(topic, (0, 0), session_id=12345, session_epoch=-1), VERSION
    )


async def go_on(session: Session, label: str, request: FetchRequest, version: int = VERSION) -> int:
    """A request of a session, whose number is random: what it was answered without that, and the number."""
    response = await session.send(request, version)
    assert isinstance(response, FetchResponse)
    session.notes[label] = {
        "error_code": response.error_code,
        "in a session": response.session_id > 0,
        "partitions": [
            [part.partition_index, part.error_code, part.high_watermark, bool(part.records)]
            for topic in response.responses
            for part in topic.partitions
        ],
    }
    return response.session_id


@case
async def fetch_in_a_session(session: Session) -> None:
    topic = await filled(session, partitions=3)

    def step(number: int, epoch: int, *offsets: tuple[int, int], forget: int | None = None) -> FetchRequest:
        request = fetch(topic, *offsets, session_id=number, session_epoch=epoch)
        request.topics = request.topics if offsets else []
        if forget is not None:
            request.forgotten_topics_data = [ForgottenTopic(topic=topic, partitions=[forget])]
        return request

    one = await go_on(session, "begun", step(0, 0, (0, 6), (1, 6), (2, 0)))
    await go_on(session, "records not taken come again", step(one, 1))
    await go_on(session, "taken", step(one, 2, (2, 6)))
    await go_on(session, "nothing new", step(one, 3))
    await session.send(produce(topic, (1, batch(plain(b"g")))), 9)
    await go_on(session, "one has grown", step(one, 4))
    await go_on(session, "an epoch again", step(one, 4))
    await go_on(session, "an epoch too far", step(one, 7))
    await go_on(session, "by ids", fetch(UUID(int=0), (0, 6), session_id=one, session_epoch=5), 13)
    await go_on(session, "one more, and one that is not there", step(one, 5, (1, 7), (7, 0), forget=0))
    await go_on(session, "an error again", step(one, 6))
    await go_on(session, "without the error", step(one, 7, forget=7))
    await go_on(session, "one left", step(one, 8, forget=1))
    await go_on(session, "none left", step(one, 9, forget=2))
    await go_on(session, "it is over", step(one, 10))
    two = await go_on(session, "another", step(0, 0, (0, 6)))
    three = await go_on(session, "begun anew over it", step(two, 0, (0, 0)))
    await go_on(session, "the other is over", step(two, 1))
    await go_on(session, "closed with a full request", step(three, -1, (0, 6)))
    await go_on(session, "closed", step(three, 1))


@case
async def fetch_twice_in_one_request(session: Session) -> None:
    topic = await filled(session)
    await session.ask("the same partition twice", fetch(topic, (0, 0), (0, 3)), VERSION)
