"""`drayd migrate link` and `switch` of many topics: looked at and shown together, done one by one.

A topic that fails does not hold up the others: its line says why, and the command ends with 1. It may be run
again: what is done is not done twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from dray.cli.link_views import preview_as_plain
from dray.cli.migration_views import size_text
from dray.cli.options import to_be_done
from dray.cli.output import print_json, print_table, say
from dray.daemons.assembly.failures import Failure
from dray.daemons.config import Settings
from dray.daemons.migrator import links
from dray.migration.attach.found import MigrationRefused
from dray.migration.record import MigrationRecord, MigrationState

_FAULTS = (Failure, MigrationRefused)


def is_pattern(topic: str) -> bool:
    """No name of a topic has these letters."""
    return any(letter in topic for letter in "*?[")


@dataclass(frozen=True, slots=True)
class ManySwitches:
    pattern: str
    fence: str | None
    allows: tuple[str, ...]
    acls: bool
    quotas: bool


def link_many(settings: Settings, request: links.LinkRequest, *, execute: bool, json: bool) -> None:
    """`request` has the pattern in the place of the topic."""
    pattern = request.topic
    names = links.names_at(settings, request.upstream, pattern, say)
    known = links.linked(settings, pattern)
    wanted = [request_for(request, name) for name in names if name not in known]
    if not wanted:
        raise Failure(f"no topic of {request.upstream} that is not linked yet is named by {pattern!r}")
    seen: dict[str, links.LinkPreview] = {}
    failed: dict[str, str] = {}
    for each in wanted:
        _try(failed, each.topic, partial(_preview, settings, each, seen))
    if json and not execute:
        print_json([preview_as_plain(found) for found in seen.values()])
    elif not json:
        _print_previews(seen, len(known))
    if seen and to_be_done(execute):
        for each in [each for each in wanted if each.topic in seen]:
            _try(failed, each.topic, partial(_link, settings, each, quiet=json))
    _end(failed)


def request_for(request: links.LinkRequest, topic: str) -> links.LinkRequest:
    tier = None if request.tier is None else replace(request.tier, topic=topic)
    return replace(request, topic=topic, tier=tier)


def _preview(settings: Settings, request: links.LinkRequest, seen: dict[str, links.LinkPreview]) -> None:
    seen[request.topic] = links.preview(settings, request)


def _link(settings: Settings, request: links.LinkRequest, *, quiet: bool) -> None:
    done = links.link(settings, request, lambda _: True)
    if done is not None and quiet:
        print_json({"topic": request.topic, "state": done.state.value, "topic_id": str(done.topic_id)})
    elif done is not None:
        print(f"topic {request.topic} is linked: {done.partitions} partitions, id {done.topic_id}")


def _print_previews(seen: dict[str, links.LinkPreview], known: int) -> None:
    print_table(
        ["topic", "partitions", "size", "groups", "ACLs missing here"],
        [
            (
                name,
                len(found.plan.ends),
                "?" if found.plan.size is None else size_text(found.plan.size),
                len(found.plan.groups),
                len(found.acls.missing),
            )
            for name, found in seen.items()
        ],
        right=["size"],
    )
    for name, found in seen.items():
        for note in found.plan.notes:
            print(f"{name}: {note}")
    if known:
        print(f"{known} topics are linked already, and are left as they are")


def switch_many(settings: Settings, wanted: ManySwitches, *, execute: bool, wait: bool, json: bool) -> None:
    states = links.linked(settings, wanted.pattern)
    names = [name for name, state in states.items() if state is MigrationState.MIRRORING]
    if not names:
        raise Failure("no topic that is mirrored is meant: drayd migrate status")
    seen: dict[str, links.SwitchPreview] = {}
    failed: dict[str, str] = {}
    for name in names:
        _try(failed, name, partial(_look, settings, wanted, name, seen))
    if not json:
        _print_switches(seen)
    if failed:
        failed = {name: f"nothing was done: {why}" for name, why in failed.items()}
        _end(failed)
    if not to_be_done(execute):
        return
    asked: dict[str, MigrationRecord] = {}
    for name in names:
        _try(failed, name, partial(_ask, settings, wanted, name, asked))
    for name, record in asked.items():
        if wait:
            _try(failed, name, partial(_wait, settings, name, record, quiet=json))
        elif not json:
            print(f"topic {name}: {record.state.value}")
    if json:
        print_json([{"topic": name, "failed": failed.get(name)} for name in names])
    _end(failed)


def _look(settings: Settings, wanted: ManySwitches, name: str, seen: dict[str, links.SwitchPreview]) -> None:
    def note(found: links.SwitchPreview) -> bool:
        seen[name] = found
        return False

    _switch(settings, wanted, name, note)
    refusal = seen[name].users.refusal(name, wanted.allows) if name in seen else ""
    if refusal:
        raise Failure(refusal)


def _ask(settings: Settings, wanted: ManySwitches, name: str, asked: dict[str, MigrationRecord]) -> None:
    record = _switch(settings, wanted, name, lambda _: True)
    if record is not None:
        asked[name] = record


def _switch(
    settings: Settings, wanted: ManySwitches, name: str, approve: Callable[[links.SwitchPreview], bool]
) -> MigrationRecord | None:
    return links.switch(
        settings,
        name,
        wanted.fence,
        approve,
        say,
        allows=wanted.allows,
        carries_acls=wanted.acls,
        carries_quotas=wanted.quotas,
    )


def _wait(settings: Settings, name: str, asked: MigrationRecord, *, quiet: bool) -> None:
    links.wait_switched(settings, name, asked, lambda _: None)
    if not quiet:
        print(f"topic {name} is Dray's")


def _print_switches(seen: dict[str, links.SwitchPreview]) -> None:
    print_table(
        ["topic", "partitions", "records missing", "pause of producers", "ACLs missing here"],
        [
            (
                name,
                found.record.partitions,
                found.lag,
                f"{max(0.1, found.pause_seconds):.1f} s",
                len(found.acls.missing),
            )
            for name, found in seen.items()
        ],
        right=["pause of producers"],
    )
    fences = " and ".join(sorted({found.fence for found in seen.values()}))
    print(f"writers are fenced by {fences}, topic by topic; what does not come right goes back")
    print("there is no way back behind the switch of a topic")


def _try(failed: dict[str, str], name: str, work: Callable[[], object]) -> None:
    try:
        work()
    except _FAULTS as fault:
        failed[name] = str(fault)


def _end(failed: dict[str, str]) -> None:
    lines = [why if name in why else f"topic {name}: {why}" for name, why in failed.items()]
    if len(lines) == 1:
        raise Failure(lines[0])
    for line in lines:
        say(line)
    if lines:
        raise Failure(f"{len(lines)} topics failed: see above")
