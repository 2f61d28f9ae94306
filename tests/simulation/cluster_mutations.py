"""Rules of whole brokers, each taken out of the code: leases, versions, answers, hints, sessions, ownership.

Beside each stands the seed from which the search for it starts, which is mostly the one that finds it. Those
of the commit protocol have mutations of their own in `log_mutations`; a few of them are tried here too, since
a client must notice them through the whole broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from tests.simulation import commit_mutations as commit

from dray.broker.api.produce import handler as produce
from dray.broker.groups.classic import validation
from dray.broker.groups.consumer import reconciliation
from dray.broker.groups.coordinator import Groups
from dray.broker.groups.coordinator.active import ActiveGroup, GroupTimers
from dray.broker.groups.coordinator.lease import Lease
from dray.broker.groups.coordinator.ledger import Ledger
from dray.broker.groups.coordinator.storage import GroupStorage
from dray.broker.server.protocol import FrameProtocol
from dray.broker.topics.cache import TopicCache
from dray.broker.topics.deletion import TopicDeletion
from dray.kafka.protocol import ErrorCode
from dray.log.life.counters import IdCounter
from dray.log.read.poll import Poller
from dray.log.read.reader import StreamReader
from dray.metadata.contract import ANY, Ambiguous, Operation, Outcome
from dray.metadata.watching import Follower

Patch = Callable[[pytest.MonkeyPatch], None]


def _succeed(changes: Any) -> None:
    for change in changes:
        if not change.done.done():
            change.done.set_result(None)


# --- coordinators


def a_zombie_coordinator_answers(patch: pytest.MonkeyPatch) -> None:
    """A lease is believed in for ever, though its session ended."""
    patch.setattr(Lease, "confirmed", lambda _: True)
    patch.setattr(Groups, "_on_session_lost", lambda *_: None)


def groups_are_written_without_a_version(patch: pytest.MonkeyPatch) -> None:
    kept = GroupStorage._put

    async def put(self: GroupStorage, record: Any, value: bytes, _expect: Any) -> bool:
        return await kept(self, record, value, ANY)

    patch.setattr(GroupStorage, "_put", put)


def offsets_are_written_without_a_version(patch: pytest.MonkeyPatch) -> None:
    kept = GroupStorage.write_offsets

    async def write(self: GroupStorage, operations: Sequence[Operation]) -> list[Outcome]:
        return await kept(self, commit.plain_puts(operations))

    patch.setattr(GroupStorage, "write_offsets", write)


def offsets_are_acknowledged_before_they_are_written(patch: pytest.MonkeyPatch) -> None:
    kept = Ledger._write

    async def write(self: Ledger, changes: Any) -> None:
        _succeed(changes)
        await kept(self, changes)

    patch.setattr(Ledger, "_write", write)


def an_unclear_commit_of_offsets_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    async def read_outcome(_: Ledger, changes: Any, _why: str) -> None:
        _succeed(changes)

    patch.setattr(Ledger, "_read_outcome", read_outcome)


def offsets_are_not_loaded(patch: pytest.MonkeyPatch) -> None:
    """When a coordinator takes over."""

    async def load(self: Ledger) -> None:
        self._topics = {}

    patch.setattr(Ledger, "load", load)


def groups_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    """Answers leave, and nothing of them is there for the next coordinator."""

    async def store(_: ActiveGroup, _state: Any) -> None:
        return

    patch.setattr(ActiveGroup, "_store", store)


def silent_members_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupTimers, "_look", lambda _: None)


def partitions_are_given_before_they_are_given_up(patch: pytest.MonkeyPatch) -> None:
    kept = reconciliation._next_step

    def next_step(member: Any, epoch: int, _owned: Any, subscribed: Any, reported: Any) -> Any:
        return kept(member, epoch, {}, subscribed, reported)

    patch.setattr(reconciliation, "_next_step", next_step)


def outdated_generations_commit(patch: pytest.MonkeyPatch) -> None:
    kept = validation.generation_fault

    def fault(*given: Any) -> ErrorCode:
        found = kept(*given)
        return ErrorCode.NONE if found is ErrorCode.ILLEGAL_GENERATION else found

    patch.setattr(validation, "generation_fault", fault)


# --- the log, as clients see it


def a_block_of_ids_is_used_though_its_reply_was_lost(patch: pytest.MonkeyPatch) -> None:
    kept = IdCounter._reserve

    async def reserve(self: IdCounter, block: int) -> tuple[int, int]:
        store, last = self._store, [0]

        class Believing:
            async def get(self, domain: int, key: str) -> Any:
                record = await store.get(domain, key)
                last[0] = 0 if record is None else record.version
                return record

            async def write(self, domain: int, operations: Any) -> list[Outcome]:
                try:
                    return await store.write(domain, operations)
                except Ambiguous:
                    return [Outcome(True, 1)]

        self._store = Believing()  # type: ignore[assignment]
        try:
            return await kept(self, block)
        finally:
            self._store = store

    patch.setattr(IdCounter, "_reserve", reserve)


def silence_is_taken_for_proof(patch: pytest.MonkeyPatch) -> None:
    """A poll that heard no hint says that there is nothing, and does not ask."""

    async def ask(_: Poller, *_given: Any) -> dict[int, Any]:
        return {}

    patch.setattr(Poller, "_ask", ask)


def bounds_are_answered_from_memory(patch: pytest.MonkeyPatch) -> None:
    kept = StreamReader.refresh

    async def refresh(self: StreamReader, stream: int, *, barrier: bool = False) -> Any:
        del barrier
        known = self.known_bounds(stream)
        return await kept(self, stream) if known is None else known

    patch.setattr(StreamReader, "refresh", refresh)


def what_others_deleted_is_served_from_memory(patch: pytest.MonkeyPatch) -> None:
    """Raised starts are not followed, and what is known of a stream's bounds is good for ever."""
    kept: Any = Poller.__init__

    def init(self: Poller, *given: Any) -> None:
        kept(self, *given[:-1], bounds_seconds=1e9)

    patch.setattr(Poller, "__init__", init)
    patch.setattr(StreamReader, "doubt_start", lambda *_: None)


def produce_requests_overtake(patch: pytest.MonkeyPatch) -> None:
    """Those of one connection reach the log in any order."""
    kept = FrameProtocol._serve
    random = Random(1)

    async def serve(self: FrameProtocol, frame: Any, exchange: Any) -> None:
        await asyncio.sleep(random.random() * 0.01)
        await kept(self, frame, exchange)

    patch.setattr(FrameProtocol, "_serve", serve)


def answers_without_waiting_for_the_log(patch: pytest.MonkeyPatch) -> None:
    """A batch that is not stored is acknowledged all the same, at the offset where one would be next."""
    kept = produce._not_appended

    async def not_appended(context: Any, topic: Any, index: int, error: Any) -> Any:
        answer = await kept(context, topic, index, error)
        if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
            answer.error_code, answer.base_offset = 0, 0
        return answer

    patch.setattr(produce, "_not_appended", not_appended)


# --- topics


def deletions_are_answered_before_the_topic_is_gone(patch: pytest.MonkeyPatch) -> None:
    async def delete(self: TopicDeletion, topic: Any) -> None:
        del self, topic

    patch.setattr(TopicDeletion, "delete", delete)


def deleted_topics_are_never_swept(patch: pytest.MonkeyPatch) -> None:
    async def sweep(_: TopicDeletion) -> None:
        return

    patch.setattr(TopicDeletion, "sweep", sweep)


def lost_hints_are_not_made_up_for(patch: pytest.MonkeyPatch) -> None:
    """No reading again from time to time, and none when a topic is not known."""

    async def reread(_: Follower) -> None:
        await asyncio.get_running_loop().create_future()

    async def refresh(self: TopicCache, name: str, *, barrier: bool = False) -> Any:
        return self.by_name.get(name)

    async def refresh_id(self: TopicCache, topic_id: Any) -> Any:
        return self.by_id.get(topic_id)

    patch.setattr(Follower, "_reread", reread)
    patch.setattr(TopicCache, "refresh", refresh)
    patch.setattr(TopicCache, "refresh_id", refresh_id)


MUTATIONS: dict[str, tuple[Patch, int]] = {
    "a zombie coordinator answers": (a_zombie_coordinator_answers, 165),
    "groups are written without a version": (groups_are_written_without_a_version, 659),
    "offsets are written without a version": (offsets_are_written_without_a_version, 13),
    "offsets are acknowledged before they are written": (offsets_are_acknowledged_before_they_are_written, 0),
    "an unclear commit of offsets is taken for done": (an_unclear_commit_of_offsets_is_taken_for_done, 1),
    "offsets are not loaded": (offsets_are_not_loaded, 0),
    "groups are not stored": (groups_are_not_stored, 0),
    "silent members stay": (silent_members_stay, 0),
    "partitions are given before they are given up": (partitions_are_given_before_they_are_given_up, 0),
    "outdated generations commit": (outdated_generations_commit, 9),
    "a block of ids is used though its reply was lost": (
        a_block_of_ids_is_used_though_its_reply_was_lost,
        94,
    ),
    "silence is taken for proof": (silence_is_taken_for_proof, 0),
    "bounds are answered from memory": (bounds_are_answered_from_memory, 0),
    "what others deleted is served from memory": (what_others_deleted_is_served_from_memory, 130),
    "produce requests overtake": (produce_requests_overtake, 0),
    "answers without waiting for the log": (answers_without_waiting_for_the_log, 0),
    "deletions are answered before the topic is gone": (deletions_are_answered_before_the_topic_is_gone, 0),
    "deleted topics are never swept": (deleted_topics_are_never_swept, 0),
    "lost hints are not made up for": (lost_hints_are_not_made_up_for, 17),
    "no compare-and-set": (commit.no_compare_and_set, 0),
    "acknowledge before the commit": (commit.acknowledge_before_the_commit, 0),
    "answer duplicates before the commit": (commit.answer_duplicates_before_the_commit, 151),
    "append to closed streams": (commit.append_to_closed_streams, 0),
    "commit though the upload failed": (commit.commit_though_the_upload_failed, 0),
}
