"""Manual replica assignments: checked as Kafka checks them, and then not used.

The object store replicates, so no broker is given anything here. A tool that sends an assignment still has to
hear that it makes no sense: it may be meant for another cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dray.topics.errors import InvalidReplicaAssignment


def count_assigned(
    assignments: Sequence[tuple[int, Sequence[int]]], known_brokers: Collection[int] | None
) -> int:
    """How many partitions a new topic has by its assignments, each a partition and its brokers."""
    partitions: set[int] = set()
    for partition, _ in assignments:
        if partition in partitions:
            raise InvalidReplicaAssignment(
                f"Found multiple manual partition assignments for partition {partition}"
            )
        partitions.add(partition)
    check_assignments((brokers for _, brokers in assignments), known_brokers)
    if partitions != set(range(len(partitions))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return len(partitions)


def check_assignments(assignments: Iterable[Sequence[int]], known_brokers: Collection[int] | None) -> None:
    """The brokers of each partition: some, none twice, all of them known, and everywhere as many. With
    `known_brokers` None, any id will do."""
    replicas: int | None = None
    for brokers in assignments:
        if not brokers:
            raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
        seen: set[int] = set()
        for broker in brokers:
            if broker in seen:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes the broker {broker} more than once."
                )
            seen.add(broker)
            if known_brokers is not None and broker not in known_brokers:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes broker {broker}, but no such broker is "
                    "registered."
                )
        if replicas is not None and len(brokers) != replicas:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but "
                f"this is not consistent with previous partitions, which have {replicas} replica(s)."
            )
        replicas = len(brokers)
