"""Ask Kafka's own assignors about many groups, and keep what they say: `tests/fixtures/assignors`.

By hand, from the root of the repository: `python -m tests.referee.assignors.record_results`.
Kafka numbers members in the order of a hash table; here it is given them in the order of their ids, and
topics whose hashes are in the order of their ids, so that both sides have the same choice at every step.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.services.maven import kafka_jars

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "fixtures" / "assignors" / "results.json"
GROUPS = 40
STEPS = 12

Target = dict[str, list[int]]
"""Partitions by the number of the topic in its life, as text, since that is what JSON has for keys."""


def main() -> None:
    with tempfile.TemporaryDirectory() as classes:
        jars = f"{kafka_jars()}/*"
        subprocess.run(["javac", "-cp", jars, "-d", classes, str(HERE / "AssignorReferee.java")], check=True)
        referee = subprocess.Popen(
            ["java", "-Xmx200m", "-cp", f"{jars}:{classes}", "AssignorReferee"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        chance = random.Random(848)
        lives = [life(referee, chance) for _ in range(GROUPS)]
        assert referee.stdin is not None
        referee.stdin.close()
        referee.wait()
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in lives)
    RESULTS.write_text(f"[\n{lines}\n]\n")


def life(referee: subprocess.Popen[str], chance: random.Random) -> dict[str, Any]:
    """One group through a few changes, each run starting from the target of the one before."""
    same = chance.random() < 0.3
    assignor = chance.choice(["uniform", "uniform", "uniform", "range"])
    size = chance.randint(2, 5)
    ids = [f"{0 if same else chance.getrandbits(64) - 2**63}/{number + 1}" for number in range(size)]
    counts = [chance.randint(1, 12) for _ in ids]
    members: dict[str, tuple[str | None, list[int]]] = {}
    targets: dict[str, Target] = {}
    steps: list[dict[str, Any]] = []
    while len(steps) < STEPS:
        change = chance.random()
        member = chance.choice(sorted(members)) if members else ""
        if change < 0.6 or not members:
            asked = range(size) if same else chance.sample(range(size), chance.randint(1, size))
            instance = chance.choice([None, None, f"i{len(steps)}"])
            members[f"m{chance.randint(0, 99):02}{len(steps):02}"] = (instance, sorted(asked))
        elif change < 0.75 and len(members) > 1:
            del members[member]
        elif change < 0.85:
            counts[chance.randrange(size)] += chance.randint(1, 5)
        elif not same:
            asked = chance.sample(range(size), chance.randint(0, size))
            members[member] = (members[member][0], sorted(asked))
        targets = ask(referee, f"{assignor};{int(same)}", ids, counts, members, targets)
        steps.append({"counts": list(counts), "members": dict(sorted(members.items())), "targets": targets})
    return {"assignor": assignor, "same": same, "ids": ids, "steps": steps}


def ask(
    referee: subprocess.Popen[str],
    how: str,
    ids: list[str],
    counts: list[int],
    members: dict[str, tuple[str | None, list[int]]],
    previous: dict[str, Target],
) -> dict[str, Target]:
    assert referee.stdin is not None
    assert referee.stdout is not None
    words = []
    for name, (instance, asked) in sorted(members.items()):
        held = previous.get(name, {})
        pairs = [f"{ids[int(topic)]}:{partition}" for topic in sorted(held) for partition in held[topic]]
        words.append(
            "|".join((name, instance or "", ",".join(ids[topic] for topic in asked), ",".join(pairs)))
        )
    topics = ",".join(f"{topic_id}:{count}" for topic_id, count in zip(ids, counts, strict=True))
    referee.stdin.write(f"{how};{topics};{' '.join(words)}\n")
    targets: dict[str, Target] = {}
    for word in referee.stdout.readline().split():
        name, _, answered = word.partition("=")
        target: Target = {}
        for pair in filter(None, answered.split(",")):
            topic_id, _, partition = pair.rpartition(":")
            target.setdefault(str(ids.index(topic_id)), []).append(int(partition))
        targets[name] = {topic: sorted(target[topic]) for topic in sorted(target)}
    return targets


if __name__ == "__main__":
    main()
