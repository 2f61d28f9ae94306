"""`drayd admin groups` against a running broker, Dray or Apache Kafka alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.services.dray import DrayProcess
from tests.services.shell import Shell
from tests.services.target import ON_KAFKA

from dray.cli.main import main

RECORDS = 10
FIRST_TIMESTAMP = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture
def drayd(capsys: pytest.CaptureFixture[str], bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(capsys, bootstrap)


@pytest.fixture
def topic(bootstrap: str, make_topic: Callable[..., str]) -> str:
    """Two partitions with ten records each, a minute apart."""
    name = make_topic(2, **{"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**62)})
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(2):
        for number in range(RECORDS):
            timestamp = FIRST_TIMESTAMP + number * MINUTE
            producer.produce(name, str(number).encode(), partition=partition, timestamp=timestamp)
    assert producer.flush(60) == 0
    return name


@contextmanager
def consuming(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A member of a group that has read everything and committed it."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": "reader",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        assert len(consumer.consume(2 * RECORDS, timeout=30)) == 2 * RECORDS
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_life_of_a_group(drayd: Shell, bootstrap: str, topic: str, protocol: str) -> None:
    group = f"of-{topic}"
    with consuming(bootstrap, group, topic, protocol):
        [listed] = [found for found in drayd.json("groups", "list") if found["group"] == group]
        assert (listed["type"], listed["state"], listed["protocol_type"]) == (protocol, "Stable", "consumer")
        assert group in drayd("groups", "list", "--state", "stable", "--type", protocol)
        assert group not in drayd("groups", "list", "--state", "Empty,Dead")

        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(topic, b"unread", partition=1)
        assert producer.flush(60) == 0
        [seen] = drayd.json("groups", "describe", group)
        [member] = seen["members"]
        assert (member["client_id"], member["host"], member["instance_id"]) == ("reader", "/127.0.0.1", None)
        assert member["assignment"] == {topic: [0, 1]}
        assert (seen["type"], seen["state"], seen["lag"]) == (protocol, "Stable", 1)
        assert seen["assignor"] == ("range" if protocol == "classic" else "uniform")
        assert (seen["epoch"] is None) == (protocol == "classic")
        assert f"{seen['coordinator']['host']}:{seen['coordinator']['port']}" in bootstrap.split(",")
        assert [
            (item["partition"], item["current_offset"], item["log_end_offset"], item["lag"])
            for item in seen["partitions"]
        ] == [(0, 10, 10, 0), (1, 10, 11, 1)]
        assert {item["consumer_id"] for item in seen["partitions"]} == {member["consumer_id"]}

        shown = drayd("groups", "describe", group)
        assert shown.startswith(f"group {group}: {protocol}, Stable, 1 member, assignor ")
        row = next(line for line in shown.splitlines() if line.startswith(topic) and " 11 " in line)
        assert row.split() == [topic, "1", "10", "11", "1", member["consumer_id"], "/127.0.0.1", "reader"]
        assert f"{topic}(0,1)" in drayd("groups", "describe", group, "--members")
        assert "consumer-id" not in drayd("groups", "describe", group, "--state")

        reset = ["groups", "reset-offsets", group, "--topic", topic, "--to-earliest"]
        for arguments in (reset, [*reset, "--execute"]):
            assert drayd.fails(*arguments) == (
                f"drayd: cannot reset the offsets of group {group}: it has live members (Stable, 1 member); "
                "stop its consumers first\n"
            )
        assert drayd.fails("groups", "delete", group, "--execute") == (
            f"drayd: cannot delete group {group}: NON_EMPTY_GROUP: stop its consumers first\n"
        )

    [seen] = drayd.json("groups", "describe", group)
    assert (seen["state"], seen["members"], seen["lag"]) == ("Empty", [], 1)
    shown = drayd("groups", "delete", group)
    assert f"group {group}: " in shown
    assert shown.endswith("nothing was deleted: add --execute to do this\n")
    assert drayd("groups", "delete", group, "--execute") == f"group {group} deleted\n"
    assert group not in drayd("groups", "list")
    assert drayd.fails("groups", "describe", group) == (
        f"drayd: cannot describe group {group}: GROUP_ID_NOT_FOUND: there is no such group\n"
    )
    assert drayd("groups", "delete", group, "--if-exists") == f"there is no group {group}\n"
    assert "GROUP_ID_NOT_FOUND" in drayd.fails("groups", "delete", group, "--execute")


def offsets_of(drayd: Shell, group: str) -> list[int | None]:
    [seen] = drayd.json("groups", "describe", group)
    return [item["current_offset"] for item in seen["partitions"]]


def test_a_reset_is_a_dry_run_until_it_is_told_to_execute(drayd: Shell, bootstrap: str, topic: str) -> None:
    group = f"of-{topic}"

    def reset(*arguments: str) -> list[int]:
        done = drayd.json("groups", "reset-offsets", group, *arguments)
        assert done["executed"] == ("--execute" in arguments)
        return [item["new_offset"] for item in done["partitions"]]

    # A group that does not exist can be given a start.
    shown = drayd("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "4")
    assert shown.endswith("nothing was changed: add --execute to do this\n")
    assert drayd.fails("groups", "describe", group)
    shown = drayd("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "4", "--execute")
    assert shown.endswith(f"group {group} reset\n")
    assert offsets_of(drayd, group) == [4, 4]

    assert reset("--all-topics", "--to-latest") == [10, 10]
    assert offsets_of(drayd, group) == [4, 4]
    assert reset("--topic", f"{topic}:1", "--to-latest", "--execute") == [10]
    assert offsets_of(drayd, group) == [4, 10]
    assert reset("--all-topics", "--shift-by", "-3", "--execute") == [1, 7]
    assert reset("--all-topics", "--shift-by", "-3") == [0, 4]
    assert reset("--all-topics", "--to-current") == [1, 7]
    assert reset("--all-topics", "--to-offset", "99") == [10, 10]
    moment = "2023-11-14T22:15:20.001"  # a moment after the third record's time
    assert reset("--all-topics", "--to-datetime", moment) == [3, 3]
    assert reset("--all-topics", "--to-time", f"{moment}+01:00") == [0, 0]
    assert reset("--all-topics", "--to-datetime", "2100-01-01") == [10, 10]
    assert reset("--all-topics", "--by-duration", "P100D") == [10, 10]
    assert reset("--all-topics", "--by-duration", "PT500000H") == [0, 0]
    assert reset("--all-topics", "--to-earliest", "--execute") == [0, 0]

    # And that is where consumers go on.
    with consuming(bootstrap, group, topic, "classic"):
        pass
    assert offsets_of(drayd, group) == [10, 10]


def test_a_reset_that_cannot_be(drayd: Shell, topic: str) -> None:
    group = f"of-{topic}"

    def fails(*arguments: str) -> str:
        return drayd.fails("groups", "reset-offsets", group, *arguments)

    assert "UNKNOWN_TOPIC_OR_PARTITION" in fails("--topic", f"not-{topic}", "--to-earliest")
    assert "there is no such partition" in fails("--topic", f"{topic}:7", "--to-earliest")
    assert f"{topic}-0 has none committed" in fails("--topic", topic, "--shift-by", "1")
    nothing = drayd("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute")
    assert nothing == f"group {group} has no committed offsets: nothing to reset\n"
    assert drayd.fails("groups", "describe", group)


def test_all_groups_are_described(drayd: Shell, topic: str) -> None:
    for group in (f"a-{topic}", f"b-{topic}"):
        drayd("groups", "reset-offsets", group, "--topic", f"{topic}:0", "--to-offset", "7", "--execute")
    seen = {found["group"]: found for found in drayd.json("groups", "describe", "--all-groups")}
    assert seen[f"a-{topic}"]["lag"] == seen[f"b-{topic}"]["lag"] == 3
    assert (seen[f"a-{topic}"]["state"], seen[f"a-{topic}"]["type"]) == ("Empty", "classic")
    shown = drayd("groups", "describe", f"a-{topic}", f"b-{topic}", "--state")
    assert [line.split()[0] for line in shown.splitlines()] == ["group", f"a-{topic}", f"b-{topic}"]


@pytest.mark.skipif(ON_KAFKA, reason="two brokers on one data directory are Dray's own")
def test_groups_of_two_brokers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each broker tells of its own groups, and both can be asked for all of them; then one dies."""
    one, two = (
        DrayProcess(
            tmp_path / number,
            name=f"drayd-{number}",
            data_directory=tmp_path / "data",
            settings={"DRAY_BROKER__SESSION_TTL": "2s"},
            arguments=["--broker-id", number],
        )
        for number in ("1", "2")
    )
    names = [f"group {number}/ü" for number in range(12)]
    with one, two:
        shells = [Shell(capsys, one.bootstrap), Shell(capsys, two.bootstrap)]
        shells[0]("topics", "create", "orders", "--partitions", "1")
        for number, name in enumerate(names):
            reset = ["groups", "reset-offsets", name, "--topic", "orders", "--to-earliest", "--execute"]
            shells[number % 2](*reset)
        for shell in shells:
            assert [group["group"] for group in shell.json("groups", "list")] == sorted(names)
        seen = [shell.json("groups", "describe", *names) for shell in shells]
        assert seen[0] == seen[1]
        assert {group["coordinator"]["id"] for group in seen[0]} == {1, 2}
        two.kill()
        assert [group["group"] for group in shells[0].json("groups", "list")] == sorted(names)
        after = shells[0].json("groups", "describe", *names)
        assert {group["coordinator"]["id"] for group in after} == {1}
        assert [group["partitions"] for group in after] == [group["partitions"] for group in seen[0]]


def test_no_broker_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["admin", "groups", "list", "--bootstrap", "127.0.0.1:1"])
    assert ended.value.code == 1
    assert "is a broker running there?" in capsys.readouterr().err
