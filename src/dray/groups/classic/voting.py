"""Which of the protocols that all members know a generation uses."""

from __future__ import annotations

from dray.groups.classic.state import ClassicGroup


def chosen_protocol(group: ClassicGroup) -> str:
    """Each member votes for its first choice among those that all know; most votes win.

    Kafka counts votes in a Java hash map and takes the first that has most, in that map's order. Names alone
    decide that order, so a tie can be broken here as it is there.
    """
    everyone = len(group.members)
    votes: dict[str, int] = {}
    for member in group.members.values():
        for protocol in member.protocols:
            if group.support[protocol.name] == everyone:
                votes[protocol.name] = votes.get(protocol.name, 0) + 1
                break
    assert sum(votes.values()) == everyone, "a member joined that has no protocol in common with the others"
    most = max(votes.values())
    tied = [name for name, count in votes.items() if count == most]
    if len(tied) == 1:
        return tied[0]
    buckets = 16
    while len(votes) > buckets * 3 // 4:
        buckets *= 2
    return min(tied, key=lambda name: _java_bucket(name, buckets))


def _java_bucket(name: str, buckets: int) -> int:
    code = 0
    units = name.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return (code ^ code >> 16) & buckets - 1
