"""Every API in every version, as clients with all kinds of rights; what is stated, and what is asked."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.services.authorization_cases import (
    CASES,
    Case,
    Place,
    altered,
    altered_more,
    by_name,
    codes,
    produced,
)
from tests.unit.broker.api.fakes import FakeConnection, Harness, beat, frame, join, running, stable
from tests.unit.broker.topics.fakes import eventually, settle

from dray.broker.api import HANDLERS, RefuseConnection
from dray.broker.api.dispatcher import Dispatcher
from dray.broker.api.shared import Handler
from dray.broker.api.shared import checks as c
from dray.broker.api.shared.other_owner import LinkedTopics
from dray.broker.security.acls.authorization import Access, Authorization, host_of
from dray.broker.security.audit import AuditedAct, AuditLog
from dray.kafka.acls import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import ZERO_UUID, ErrorCode, Request
from dray.kafka.protocol.messages import alter_configs, incremental_alter_configs
from dray.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestedEntryData,
)
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.kafka.protocol.messages.leave_group import LeaveGroupRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dray.metadata import keys
from dray.metadata.contract import Put

TOPIC = "orders"
GROUP = "readers"
NOWHERE = Place(TOPIC, ZERO_UUID, GROUP, "payments")
ALICE = "User:alice"
BY_KEY = {handler.api_key: handler for handler in HANDLERS}


class MirroredTopics:
    """All topics are another cluster's."""

    async def is_diskless(self, _topic: str) -> bool:
        return False


def place_in(broker: Harness) -> Place:
    topic = broker.topics.cached(TOPIC)
    assert topic is not None
    return NOWHERE._replace(topic_id=topic.topic_id)


CASES_BY_NAME = {case.name: case for case in CASES}


def creates_made() -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic("made", 1, 1)])


def deletes() -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(TOPIC)])


def binding(check: c.Check, **fields: Any) -> AclBinding:
    made = AclBinding(
        check.resource,
        PatternType.LITERAL,
        NOWHERE.name_of(check.resource),
        ALICE,
        "*",
        check.operation,
        Permission.ALLOW,
    )
    return made._replace(**fields)


def prefixed(check: c.Check) -> AclBinding:
    return binding(check, pattern_type=PatternType.PREFIXED, name=NOWHERE.name_of(check.resource)[:3])


def denied(check: c.Check) -> AclBinding:
    return prefixed(check)._replace(permission=Permission.DENY, principal="User:*")


GRANTS = {
    "allowed": lambda check: [binding(check)],
    "prefixed": lambda check: [prefixed(check)],
    "any name": lambda check: [binding(check, name="*")],
    "any operation": lambda check: [binding(check, operation=AclOperation.ALL)],
    "any user": lambda check: [binding(check, principal="User:*")],
    "this host": lambda check: [binding(check, host="127.0.0.1")],
}
REFUSED = {
    "none": lambda _: [],
    "DENY over ALLOW": lambda check: [binding(check), denied(check)],
    "DENY of all over ALLOW": lambda check: [
        binding(check),
        binding(check, permission=Permission.DENY, operation=AclOperation.ALL),
    ],
    "another user": lambda check: [binding(check, principal="User:bob")],
    "another host": lambda check: [binding(check, host="10.0.0.1")],
    "another name": lambda check: [binding(check, name=NOWHERE.name_of(check.resource) + "-2")],
    "another operation": lambda check: [binding(check, operation=AclOperation.TWO_PHASE_COMMIT)],
}


def grant(broker: Harness, bindings: Iterable[AclBinding]) -> None:
    assert broker.acls is not None
    index = broker.acls.index
    for old in list(index._bindings):
        index.remove(old)
    for new in bindings:
        index.add(new)


async def ask(broker: Harness, case: Case, version: int, principal: str | None = ALICE) -> Any:
    await broker.topics.ensure(TOPIC)
    if case.prepare is not None:
        await case.prepare(broker.ask, place_in(broker))
    return await broker.ask(case.make(place_in(broker)), version, FakeConnection(principal=principal))


def versions(case: Case, handler: Handler) -> range:
    first, last = case.versions
    return range(max(first, handler.first), min(last, handler.last) + 1)


async def handler_of(broker: Harness, case: Case) -> Handler:
    await broker.topics.ensure(TOPIC)
    return BY_KEY[case.make(place_in(broker)).API_KEY]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_who_may(case: Case) -> None:
    async with running(authorizes=True) as broker:
        handler = await handler_of(broker, case)
        for version in versions(case, handler):
            grant(broker, [])
            assert case.granted(await ask(broker, case, version, None)), "a super user"
            for first in (case.needs[0], *case.instead):
                for name, rule in GRANTS.items():
                    if first is not case.needs[0] and name != "allowed":
                        continue
                    grant(broker, [one for check in (first, *case.needs[1:]) for one in rule(check)])
                    answer = await ask(broker, case, version)
                    assert case.granted(answer), (name, first, version, answer)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_who_may_not(case: Case) -> None:
    async with running(authorizes=True) as broker:
        handler = await handler_of(broker, case)
        for version in versions(case, handler):
            for missing in case.needs:
                others = [binding(check) for check in case.needs if check is not missing]
                for name, rule in REFUSED.items():
                    grant(broker, [*rule(missing), *others])
                    answer = await ask(broker, case, version)
                    assert not case.granted(answer), (name, missing, version, answer)
                    if case.code is None:
                        assert missing.refusal in set(codes(answer)), (name, missing, version, answer)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_what_may_not_be_seen_is_not_told_from_what_is_not_there(case: Case) -> None:
    """By name, that is: ids are not secret."""
    async with running(authorizes=True) as broker:
        handler = await handler_of(broker, case)
        for version in versions(case, handler):
            if "id" in case.name.split() or case.prepare is not None:
                continue
            request = case.make(place_in(broker))
            if b"".join(bytes(one) for one in request.encode(version)).find(TOPIC.encode()) < 0:
                continue
            grant(broker, [])
            await broker.topics.ensure(TOPIC)
            there = await broker.ask(request, version, FakeConnection(principal=ALICE))
            await broker.topics.delete(TOPIC)
            gone = await broker.ask(request, version, FakeConnection(principal=ALICE))
            await broker.topics.ensure(TOPIC)
            assert there == gone, (version, there, gone)


async def test_every_api_states_what_it_asks_and_asks_what_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[AclOperation, AclResourceType]] = set()
    may, may_on_some = Access.may, Access.may_on_some

    def noting(self: Access, operation: AclOperation, kind: AclResourceType, *rest: Any, **more: Any) -> bool:
        asked.add((operation, kind))
        return may(self, operation, kind, *rest, **more)

    def noting_some(self: Access, operation: AclOperation, kind: AclResourceType) -> bool:
        asked.add((operation, kind))
        return may_on_some(self, operation, kind)

    monkeypatch.setattr(Access, "may", noting)
    monkeypatch.setattr(Access, "may_on_some", noting_some)
    seen: dict[int, set[Any]] = defaultdict(set)
    async with running(authorizes=True) as broker:
        for case in CASES:
            handler = await handler_of(broker, case)
            version = versions(case, handler)[-1]
            for rules in (case.needs, []):
                grant(broker, [binding(check) for check in rules])
                await broker.topics.ensure(TOPIC)
                if case.prepare is not None:
                    await case.prepare(broker.ask, place_in(broker))
                request = case.make(place_in(broker))
                asked.clear()
                await broker.ask(request, version, FakeConnection(principal=ALICE))
                seen[handler.api_key] |= asked
        grant(broker, [binding(c.DESCRIBE_TOPIC)])
        await broker.topics.delete(TOPIC)
        more: list[tuple[Request[Any], int]] = [
            (by_name(NOWHERE, create=True), 9),
            (CreateTopicsRequest(topics=[CreatableTopic(TOPIC + "2", 1, 1)]), 7),
            (InitProducerIdRequest(transactional_id="t"), 5),
            (CreateTopicsRequest(topics=[CreatableTopic(TOPIC, 1, 1)]), 7),
        ]
        configs = [incremental_alter_configs.AlterableConfig("diskless.enable", 0, "true")]
        old = [alter_configs.AlterableConfig("diskless.enable", "true")]
        more += [
            (altered_more(2, TOPIC, configs), 1),
            (altered(2, TOPIC, old), 2),
        ]
        broker.services = replace(broker.services, linked=cast(LinkedTopics, MirroredTopics()))
        broker.dispatcher = Dispatcher(broker.services)
        for request, version in more:
            if version in (1, 2):
                grant(broker, [binding(c.ALTER_TOPIC_CONFIGS)])
                await broker.topics.ensure(TOPIC)
            asked.clear()
            if version == 7:
                grant(broker, [binding(c.CREATE_TOPIC, name="*")])
            await broker.ask(request, version, FakeConnection(principal=ALICE))
            seen[request.API_KEY] |= asked
            await broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(TOPIC)]), 6)
    for handler in HANDLERS:
        stated = {tuple(check) for check in handler.checks}
        assert seen[handler.api_key] == stated, handler.name


def test_only_what_all_may_do_states_no_check() -> None:
    """A new API that states none is put here by hand, with the reason."""
    free = {handler.name for handler in HANDLERS if not handler.checks}
    assert free == {
        "ApiVersions",  # before a client is known
        "SaslHandshake",  # how it becomes known
        "SaslAuthenticate",
        "ListTransactions",  # there are none to leave out
    }


# --- one by one


async def test_without_authorization_nothing_is_asked() -> None:
    async with running() as broker:
        for case in CASES:
            await broker.topics.ensure(TOPIC)
            if case.code is None and case.prepare is None and "acls" not in case.name:
                handler = await handler_of(broker, case)
                answer = await broker.ask(
                    case.make(place_in(broker)), versions(case, handler)[-1], FakeConnection(principal=ALICE)
                )
                assert case.granted(answer), case.name


async def test_a_produce_without_answer_that_is_refused_closes_the_connection() -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        with pytest.raises(RefuseConnection, match="TOPIC_AUTHORIZATION_FAILED"):
            await broker.dispatcher.dispatch(
                frame(produced(place_in(broker), acks=0), 9), FakeConnection(principal=ALICE)
            )
        assert not broker.log.appended


@pytest.mark.parametrize("partitions", [[0], [99], [0, 99]])
async def test_a_fetch_of_an_absent_partition_of_a_hidden_topic_is_like_any(partitions: list[int]) -> None:
    async with running(authorizes=True) as broker:
        topic = await broker.topics.ensure(TOPIC)
        parts = [FetchPartition(partition) for partition in partitions]
        asked = FetchRequest(topics=[FetchTopic(topic.topic_id, TOPIC, parts)])
        for version in (12, 18):
            answer = await broker.ask(asked, version, FakeConnection(principal=ALICE))
            assert [part.error_code for part in answer.responses[0].partitions] == [29] * len(parts)
        assert not broker.log.fetches


async def test_a_transactional_id_is_authorized_before_it_is_judged() -> None:
    """Transactions do not exist, and are refused with the same code: an empty id shows the difference."""
    async with running(authorizes=True) as broker:
        asked = InitProducerIdRequest(transactional_id="")
        for rules, code in (
            ([], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            ([binding(c.WRITE_TRANSACTIONAL_ID, name="*")], ErrorCode.INVALID_REQUEST),
        ):
            grant(broker, rules)
            assert (await broker.ask(asked, 5, FakeConnection(principal=ALICE))).error_code == code


async def test_metadata_hides_ids_by_name_and_names_by_id() -> None:
    async with running(authorizes=True) as broker:
        topic = await broker.topics.ensure(TOPIC)
        alice = FakeConnection(principal=ALICE)
        [named] = (await broker.ask(by_name(NOWHERE), 12, alice)).topics
        assert (named.name, named.topic_id, named.partitions) == (TOPIC, ZERO_UUID, [])
        by_id = MetadataRequest(
            topics=[MetadataRequestTopic(topic.topic_id, None)], include_topic_authorized_operations=True
        )
        [found] = (await broker.ask(by_id, 12, alice)).topics
        assert (found.name, found.topic_id, found.error_code) == (None, topic.topic_id, 29)
        assert found.topic_authorized_operations == -(2**31)


async def test_a_topic_is_created_by_metadata_only_for_those_who_may() -> None:
    async with running(authorizes=True) as broker:
        alice = FakeConnection(principal=ALICE)
        for rules, code in (
            ([c.DESCRIBE_TOPIC], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ([c.CREATE_TOPIC], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ([c.DESCRIBE_TOPIC, c.CREATE_TOPIC], ErrorCode.NONE),
        ):
            grant(broker, [binding(check) for check in rules])
            [topic] = (await broker.ask(by_name(NOWHERE, create=True), 9, alice)).topics
            assert topic.error_code == code, rules
            assert (await broker.topics.get(TOPIC) is not None) == (code == ErrorCode.NONE)


async def test_a_name_that_no_topic_can_have_says_nothing_of_rights_to_create() -> None:
    async with running(authorizes=True) as broker:
        grant(broker, [binding(c.DESCRIBE_TOPIC, name="*")])
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="a/b")])
        [topic] = (await broker.ask(asked, 9, FakeConnection(principal=ALICE))).topics
        assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_configs_of_a_created_topic_are_for_those_who_may_describe_them() -> None:
    async with running(authorizes=True) as broker:
        alice = FakeConnection(principal=ALICE)
        grant(broker, [binding(c.CREATE_TOPIC, name="*")])
        [topic] = (await broker.ask(CreateTopicsRequest(topics=[CreatableTopic("a", 2, 1)]), 7, alice)).topics
        assert (topic.error_code, topic.topic_config_error_code) == (0, 29)
        assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, [])
        grant(broker, [binding(check, name="*") for check in (c.CREATE_TOPIC, c.DESCRIBE_TOPIC_CONFIGS)])
        [topic] = (await broker.ask(CreateTopicsRequest(topics=[CreatableTopic("b", 2, 1)]), 7, alice)).topics
        assert (topic.topic_config_error_code, topic.num_partitions) == (0, 2)
        assert topic.configs


async def test_a_topic_that_may_be_seen_and_not_deleted_is_told_from_one_that_is_not_there() -> None:
    async with running(authorizes=True) as broker:
        alice = FakeConnection(principal=ALICE)
        grant(broker, [binding(c.DESCRIBE_TOPIC)])
        asked = DeleteTopicsRequest(topics=[DeleteTopicState(TOPIC)])
        [result] = (await broker.ask(asked, 6, alice)).responses
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = await broker.topics.ensure(TOPIC)
        [result] = (await broker.ask(asked, 6, alice)).responses
        assert (result.error_code, result.topic_id) == (29, ZERO_UUID)
        by_id = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic.topic_id)])
        [result] = (await broker.ask(by_id, 6, alice)).responses
        assert (result.error_code, result.name) == (29, TOPIC)
        grant(broker, [])
        [result] = (await broker.ask(by_id, 6, alice)).responses
        assert (result.error_code, result.name) == (29, None)


async def test_operations_are_those_of_the_client() -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        grant(broker, [binding(c.READ_TOPIC)])
        asked = by_name(NOWHERE)
        asked.include_topic_authorized_operations = True
        [topic] = (await broker.ask(asked, 9, FakeConnection(principal=ALICE))).topics
        assert topic.topic_authorized_operations == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE


async def test_a_change_of_acls_is_seen_by_connections_that_are_there() -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        alice = FakeConnection(principal=ALICE)
        for rules, code in (([], 29), ([binding(c.WRITE_TOPIC)], 0), ([], 29)):
            grant(broker, rules)
            answer = await broker.ask(produced(place_in(broker)), 9, alice)
            assert answer.responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize("version", [12, 18])
async def test_a_fetch_that_waited_for_longer_than_the_right_lasted_brings_nothing(version: int) -> None:
    async with running(authorizes=True) as broker:
        topic = await broker.topics.ensure(TOPIC)
        await broker.ask(produced(place_in(broker)), 9)
        grant(broker, [binding(c.READ_TOPIC)])
        broker.log.held = asyncio.Event()
        parts = [FetchPartition(0, partition_max_bytes=99), FetchPartition(99)]
        asked = FetchRequest(
            max_wait_ms=9, min_bytes=1, max_bytes=99, topics=[FetchTopic(topic.topic_id, TOPIC, parts)]
        )
        waiting = asyncio.create_task(broker.ask(asked, version, FakeConnection(principal=ALICE)))
        await eventually(lambda: broker.log.fetches)
        grant(broker, [])
        broker.log.held.set()
        [answered] = (await waiting).responses
        assert [(part.error_code, part.high_watermark) for part in answered.partitions] == [(29, -1)] * 2
        assert not any(part.records for part in answered.partitions)


async def test_who_waits_in_a_group_for_longer_than_its_right_lasted_learns_nothing_of_it() -> None:
    """The leader would learn what all members said of themselves, the others what they are to read."""
    async with running(authorizes=True) as broker:
        alice = FakeConnection(principal=ALICE)
        first = await stable(broker, GROUP)
        for rights, code, members in (([binding(c.READ_GROUP)], 0, 1), ([], 30, 0)):
            grant(broker, [binding(c.READ_GROUP)])
            joining = asyncio.create_task(broker.ask(join(group_id=GROUP), 3, alice))
            await settle()
            assert not joining.done(), "it waits for the other member"
            grant(broker, rights)
            leader = await broker.ask(join(first.member_id, group_id=GROUP), 9)
            joined = await joining
            assert (joined.error_code, bool(joined.member_id)) == (code, members == 1)
            assert joined.members == []
            grant(broker, [binding(c.READ_GROUP)])
            [alices] = [one.member_id for one in leader.members if one.member_id != first.member_id][-1:]
            asked = SyncGroupRequest(GROUP, leader.generation_id, alices)
            syncing = asyncio.create_task(broker.ask(asked, 3, alice))
            await settle()
            assert not syncing.done(), "it waits for the leader"
            grant(broker, rights)
            shares = [SyncGroupRequestAssignment(alices, b"secret")]
            asked = SyncGroupRequest(GROUP, leader.generation_id, first.member_id, assignments=shares)
            assert (await broker.ask(asked, 3)).error_code == 0
            synced = await syncing
            assert (synced.error_code, synced.assignment) == (code, b"secret" if members else b"")
            await broker.ask(LeaveGroupRequest(GROUP, member_id=alices), 0)


async def test_a_connection_is_judged_by_the_principal_that_it_has_now() -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        connection = FakeConnection(principal=ALICE)
        grant(broker, [binding(c.WRITE_TOPIC)])
        first = await broker.ask(produced(place_in(broker)), 9, connection)
        connection.principal = "User:mallory"
        second = await broker.ask(produced(place_in(broker)), 9, connection)
        assert [one.responses[0].partition_responses[0].error_code for one in (first, second)] == [0, 29]


async def test_a_pattern_stands_for_what_the_member_may_describe() -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        await broker.topics.ensure("secret")
        grant(broker, [binding(c.READ_GROUP), binding(c.READ_TOPIC)])
        alice = FakeConnection(principal=ALICE)
        joins = beat(group_id=GROUP, subscribed_topic_names=None, subscribed_topic_regex=".*")
        answer = await broker.ask(joins, 1, alice)
        async with asyncio.timeout(60):
            while answer.assignment is None or not answer.assignment.topic_partitions:
                await asyncio.sleep(0.01)
                answer = await broker.ask(beat("m", answer.member_epoch, group_id=GROUP), 1, alice)
        topic = broker.topics.cached(TOPIC)
        assert topic is not None
        assert [one.topic_id for one in answer.assignment.topic_partitions] == [topic.topic_id]
        assert not [act for act in broker.audited if act.name == "secret"], "nobody asked for it"


async def test_a_topic_that_cannot_be_read_is_hidden_too() -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        record = await broker.store.get(keys.CLUSTER_DOMAIN, keys.topic(TOPIC))
        assert record is not None
        await broker.store.write(keys.CLUSTER_DOMAIN, [Put(record.key, b"\x02" + record.value[1:])])
        await broker.topics.read_all()
        everything = MetadataRequest(topics=None)
        assert (await broker.ask(everything, 9, FakeConnection(principal=ALICE))).topics == []
        assert [topic.name for topic in (await broker.ask(everything, 9)).topics] == [TOPIC]


async def test_a_produce_to_an_absent_partition_of_a_hidden_topic_is_like_any() -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        for version in (9, 13):
            asked = produced(place_in(broker))
            asked.topic_data[0].partition_data[0].index = 99
            answer = await broker.ask(asked, version, FakeConnection(principal=ALICE))
            assert answer.responses[0].partition_responses[0].error_code == 29


@pytest.mark.parametrize("allows", [True, False])
async def test_resources_without_any_acl(allows: bool) -> None:
    async with running(authorizes=True, allow_if_no_acl=allows) as broker:
        await broker.topics.ensure(TOPIC)
        answer = await broker.ask(produced(place_in(broker)), 9, FakeConnection(principal=ALICE))
        assert answer.responses[0].partition_responses[0].error_code == (0 if allows else 29)
        grant(broker, [binding(c.READ_GROUP, name=GROUP), binding(c.WRITE_TOPIC, principal="User:bob")])
        answer = await broker.ask(produced(place_in(broker)), 9, FakeConnection(principal=ALICE))
        assert answer.responses[0].partition_responses[0].error_code == 29


async def test_denials_are_audited_and_so_are_changes() -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        await broker.ask(produced(place_in(broker)), 9, FakeConnection(principal=ALICE))
        await broker.ask(MetadataRequest(topics=None), 9, FakeConnection(principal=ALICE))
        [act] = broker.audited
        assert act == (False, ALICE, "127.0.0.1", "WRITE", "TOPIC", TOPIC, "")
        await broker.ask(CreateTopicsRequest(topics=[CreatableTopic("made", 1, 1)]), 7)
        assert (True, "User:ANONYMOUS", "127.0.0.1", "CREATE", "TOPIC", "made", "") in broker.audited
        await broker.ask(deletes(), 6)
        assert (True, "User:ANONYMOUS", "127.0.0.1", "DELETE", "TOPIC", TOPIC, "") in broker.audited


async def test_changes_are_audited_without_acls_where_clients_are_known() -> None:
    async with running() as broker:
        noted: list[AuditedAct] = []
        audit = AuditLog(broker.runtime.monotonic, lambda act, *_: noted.append(act))
        authorization = Authorization(None, broker.runtime, audit=audit)
        broker.dispatcher = Dispatcher(replace(broker.services, authorization=authorization))
        alice = FakeConnection(principal=ALICE)
        await broker.ask(CreateTopicsRequest(topics=[CreatableTopic(TOPIC, 1, 1)]), 7, alice)
        answer = await broker.ask(produced(place_in(broker)), 9, alice)
        assert answer.responses[0].partition_responses[0].error_code == 0
        await broker.ask(MetadataRequest(topics=None), 9, alice)
        await broker.ask(CASES_BY_NAME["alter users"].make(NOWHERE), 0, alice)
        await broker.ask(deletes(), 6)
        changes = [(True, ALICE, "127.0.0.1", "CREATE", "TOPIC", TOPIC, "")]
        about = "delete the password of user nobody"
        changes += [(True, ALICE, "127.0.0.1", "ALTER", "CLUSTER", "kafka-cluster", about)]
        changes += [(True, "User:ANONYMOUS", "127.0.0.1", "DELETE", "TOPIC", TOPIC, "")]
        assert noted == changes
        refused = await broker.ask(CASES_BY_NAME["create acls"].make(NOWHERE), 3, alice)
        assert refused.results[0].error_code == ErrorCode.SECURITY_DISABLED


def quota_changes(*, validate_only: bool) -> AlterClientQuotasRequest:
    entity = [EntityData("user", "app"), EntityData("client-id", None)]
    changes = [OpData("producer_byte_rate", 1024.0), OpData("request_percentage", 0.0, remove=True)]
    return AlterClientQuotasRequest([RequestedEntryData(entity, changes)], validate_only)


@pytest.mark.parametrize(
    ("make", "version", "check", "resource", "name", "about"),
    [
        (creates_made, 7, c.CREATE_IN_CLUSTER, "CLUSTER", "kafka-cluster", "topic made"),
        (creates_made, 7, c.CREATE_TOPIC, "TOPIC", "made", ""),
        (deletes, 6, c.DELETE_IN_CLUSTER, "CLUSTER", "kafka-cluster", f"topic {TOPIC}"),
        (deletes, 6, c.DELETE_TOPIC, "TOPIC", TOPIC, ""),
        (
            lambda: CASES_BY_NAME["create acls"].make(NOWHERE),
            3,
            c.ALTER_CLUSTER,
            "CLUSTER",
            "kafka-cluster",
            "add ALLOW User:other from * READ TOPIC LITERAL 'other'",
        ),
        (
            lambda: CASES_BY_NAME["delete acls"].make(NOWHERE),
            3,
            c.ALTER_CLUSTER,
            "CLUSTER",
            "kafka-cluster",
            "delete ALLOW User:absent from any READ TOPIC LITERAL ''",
        ),
        (
            lambda: CASES_BY_NAME["alter users"].make(NOWHERE),
            0,
            c.ALTER_CLUSTER,
            "CLUSTER",
            "kafka-cluster",
            "delete the password of user nobody",
        ),
        (
            lambda: CASES_BY_NAME["alter configs of a broker"].make(NOWHERE),
            2,
            c.ALTER_CLUSTER_CONFIGS,
            "CLUSTER",
            "kafka-cluster",
            "configs of 0",
        ),
        (
            lambda: quota_changes(validate_only=False),
            1,
            c.ALTER_CLUSTER_CONFIGS,
            "CLUSTER",
            "kafka-cluster",
            "quotas of client-id (default), user app: producer_byte_rate = 1024, request_percentage removed",
        ),
        (
            lambda: quota_changes(validate_only=True),
            1,
            c.ALTER_CLUSTER_CONFIGS,
            "CLUSTER",
            "kafka-cluster",
            "only checked: quotas of client-id (default), user app: producer_byte_rate = 1024, "
            "request_percentage removed",
        ),
    ],
)
async def test_the_audit_log_names_what_is_changed(
    make: Any, version: int, check: c.Check, resource: str, name: str, about: str
) -> None:
    async with running(authorizes=True) as broker:
        await broker.topics.ensure(TOPIC)
        alice = FakeConnection(principal=ALICE)
        expected = (True, ALICE, "127.0.0.1", check.operation.name, resource, name, about)
        await broker.ask(make(), version, alice)
        [refused] = broker.audited
        assert not refused.allowed
        assert refused.name in (name, TOPIC, "made")
        if check is c.ALTER_CLUSTER:
            assert refused.about == about
        broker.audited.clear()
        grant(broker, [binding(check) if resource == "CLUSTER" else binding(check, name=name)])
        await broker.ask(make(), version, alice)
        assert [act for act in broker.audited if act.allowed] == [expected]
        assert check.operation.name not in {act.operation for act in broker.audited if not act.allowed}


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("127.0.0.1:4000", "127.0.0.1"),
        ("[::1]:4000", "0:0:0:0:0:0:0:1"),
        ("[2001:db8::00ff]:1", "2001:db8:0:0:0:0:0:ff"),
        ("[::ffff:10.1.2.3]:4000", "10.1.2.3"),
        ("[fe80::1%eth0]:4000", "fe80:0:0:0:0:0:0:1%eth0"),
        ("somewhere:4000", "somewhere"),
    ],
)
def test_hosts_are_written_as_java_writes_them(peer: str, host: str) -> None:
    assert host_of(peer) == host
