"""Keys, made and taken apart: what one function makes, its counterpart reads, and no other."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.metadata import keys
from dray.tables.compaction.planning.stream_memory import ABOVE_ALL, Hints

ID = UUID(int=5)
WORDS = [
    "hwm",
    "start",
    "producers",
    "offset-index",
    "job",
    "streams",
    "a/b",
    "%2F",
    "..",
    "x" * 249,
    "группа",
    "",
]

# By what makes a key: what each of those that take one apart answers for it.
READ: dict[str, dict[str, object]] = {
    keys.CLUSTER: {},
    keys.STREAM_COUNTER: {},
    keys.PRODUCER_COUNTER: {},
    keys.broker(3): {"broker_of": 3},
    keys.deleted_topic(ID): {"deleted_topic_of": ID},
    f"{keys.DELETED_TOPICS}{{{ID}}}": {},
    f"{keys.DELETED_TOPICS}what": {},
    keys.high_watermark(7): {"stream_of": 7, "stream_of_high_watermark": 7},
    keys.start(7): {"stream_of": 7},
    keys.producers(7): {"stream_of": 7},
    keys.index_entry(7, 11, 13): {"stream_of": 7, "end_of_index_entry": 11},
    keys.job(7): {"stream_of_job": 7},
    keys.staging(ID): {},
    keys.wal_object(ID): {},
    keys.reference(ID, 7): {},
    **{keys.topic(word): {"topic_of": word} for word in WORDS},
    **{keys.group(word): {"group_of": word} for word in WORDS},
    **{keys.group_lease(word): {"group_of_lease": word} for word in WORDS},
    **{keys.group_configs(word): {"group_of_configs": word} for word in WORDS},
    **{keys.group_offset(word, word, 9): {"place_of_offset": (word, word, 9)} for word in WORDS},
    **{keys.user(word, "SCRAM-SHA-256"): {"credential_of": (word, "SCRAM-SHA-256")} for word in WORDS},
    **{keys.acl(*[word] * 7): {"parts_of_acl": [word] * 7} for word in WORDS},
    **{
        keys.client_quota({"user": word, "client-id": ""}): {
            "parts_of_client_quota": {"client-id": "", "user": word}
        }
        for word in WORDS
    },
    # What a newer build might put beside them.
    f"{keys.USERS}alice": {},
    f"{keys.USERS}alice/SCRAM/more": {},
    f"{keys.ACLS}topic/literal/orders": {},
    f"{keys.CLIENT_QUOTAS}alice": {},
    f"{keys.JOBS}{keys.number(7)}/keyed": {},
    f"{keys.JOBS}{keys.number(7)}/job/part": {},
    f"{keys.STREAMS}{keys.number(7)}/transactions/hwm": {"stream_of": 7},
    f"{keys.STREAMS}seven/hwm": {},
    f"{keys.STREAMS}7/hwm": {},
    f"{keys.STREAMS}{keys.number(7)}": {},
    f"{keys.topic('a')}/part": {},
    f"{keys.BROKERS}here": {},
    f"{keys.group_offsets('g')}a/nine": {},
    f"{keys.group_offsets('g')}a": {},
}
READERS: dict[str, Callable[[str], object]] = {
    name: getattr(keys, name)
    for name in (
        *("broker_of", "topic_of", "stream_of", "stream_of_high_watermark", "end_of_index_entry"),
        *(
            "deleted_topic_of",
            "stream_of_job",
            "group_of",
            "group_of_lease",
            "group_of_configs",
            "place_of_offset",
            "credential_of",
            "parts_of_acl",
            "parts_of_client_quota",
        ),
    )
}


@pytest.mark.parametrize("key", READ)
def test_a_key_is_read_by_its_own_kind_only(key: str) -> None:
    assert {name: found for name, read in READERS.items() if (found := read(key)) is not None} == READ[key]


@given(st.text(max_size=40), st.text(max_size=40), st.integers(0, 2**31 - 1))
def test_any_name_comes_back(group: str, topic: str, partition: int) -> None:
    if not (_is_text(group) and _is_text(topic)):
        return
    assert keys.place_of_offset(keys.group_offset(group, topic, partition)) == (group, topic, partition)
    assert keys.group_of(keys.group(group)) == group
    assert keys.stream_of_high_watermark(keys.topic(topic)) is None


def _is_text(name: str) -> bool:
    """Half a surrogate pair is none, and comes over no wire."""
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


@pytest.mark.parametrize("key", READ)
def test_a_compactor_hears_of_streams_and_minds_no_other_key(key: str) -> None:
    hints = Hints.__new__(Hints)
    hints._changed = {}
    hints._hear(key)
    stream = READ[key].get("stream_of")
    assert hints._changed == (
        {} if stream is None else {stream: READ[key].get("end_of_index_entry", ABOVE_ALL)}
    )
