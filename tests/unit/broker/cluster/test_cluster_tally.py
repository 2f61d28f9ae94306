"""The tally: what one look says, who may raise it, and when that proves something."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.scripted import Fate, ScriptedObjects

from dray.broker.cluster import TallyKeeper, may_be_written_while_held
from dray.broker.cluster.bucket_owner import put_owner
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.cluster.tally import (
    QUIET_INTERVALS,
    Fit,
    Mark,
    Tally,
    TallyStep,
    TallyWatch,
    decode_mark,
    decode_tally,
    encode_mark,
    encode_tally,
    fit,
    mark_path,
    number_of_mark,
)
from dray.broker.cluster.tally_keeper import put_mark
from dray.metadata import keys
from dray.metadata.contract import Delete, DeleteRange, Put
from dray.metadata.memory import MemoryState, MemoryStore
from dray.metadata.values import FormatTooNew, ValueCorrupt
from dray.objects.contract import Buffer
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

VALUES = Path(__file__).parents[3] / "fixtures" / "values"
CLUSTER = ClusterInfo("mine-mine-mine-mine-mi", 4, 1_700_000_000_000)
TALLY = Tally(7, "aa", "bb", True)
MARK = Mark(CLUSTER.cluster_id, 7, "aa", 30_000)
INTERVAL = 30.0
QUIET = QUIET_INTERVALS * INTERVAL


def mark(number: int, token: str, interval: float = INTERVAL) -> Mark:
    return Mark(CLUSTER.cluster_id, number, token, round(interval * 1000))


def test_both_halves_are_stored_like_this() -> None:
    assert (VALUES / "tally.v1.bin").read_bytes() == encode_tally(TALLY)
    assert decode_tally(encode_tally(TALLY)) == TALLY
    assert decode_tally(encode_tally(Tally(7, "aa"))) == Tally(7, "aa")
    assert (VALUES / "tally-mark.v1.bin").read_bytes() == encode_mark(MARK)
    assert decode_mark(mark_path(7), encode_mark(MARK)) == MARK
    with pytest.raises(ValueCorrupt):
        decode_mark(mark_path(8), encode_mark(MARK))
    with pytest.raises(ValueCorrupt):
        decode_tally(encode_tally(Tally(-1, "aa")))
    with pytest.raises(FormatTooNew):
        decode_tally(b"\x02" + encode_tally(TALLY)[1:])
    assert number_of_mark(mark_path(12)) == 12
    assert number_of_mark("dray-tally/12") is None


@pytest.mark.parametrize(
    ("tally", "here", "above", "expected"),
    [
        (Tally(0, ""), None, None, Fit.FITS),
        (Tally(0, ""), None, mark(1, "a"), Fit.OTHERS),
        (Tally(0, "", "a"), None, mark(1, "a"), Fit.BEHIND_ITSELF),
        (Tally(3, "c"), mark(3, "c"), None, Fit.FITS),
        (Tally(3, "c", "d"), mark(3, "c"), None, Fit.FITS),
        (Tally(3, "c", "d"), mark(3, "c"), mark(4, "d"), Fit.BEHIND_ITSELF),
        (Tally(3, "c", "d"), mark(3, "c"), mark(4, "x"), Fit.OTHERS),
        (Tally(3, "c"), mark(3, "c"), mark(4, "x"), Fit.OTHERS),
        (Tally(3, "c"), mark(3, "x"), None, Fit.OTHERS),
        (Tally(3, "c"), None, None, Fit.GONE),
        (Tally(3, "c"), None, mark(4, "c"), Fit.GONE),
    ],
)
def test_how_the_halves_are_to_each_other(
    tally: Tally, here: Mark | None, above: Mark | None, expected: Fit
) -> None:
    assert fit(tally, here, above) is expected


def test_a_new_cluster_is_proven_with_its_first_mark() -> None:
    watch = TallyWatch(INTERVAL, is_new=True)
    assert watch.saw(0, Tally(0, ""), None, None) is TallyStep.DRAW
    assert watch.saw(0, Tally(0, "", "a"), None, None) is TallyStep.PUT
    assert watch.saw(0, Tally(0, "", "a"), None, mark(1, "a")) is TallyStep.CONFIRM
    assert not watch.is_proven
    assert watch.saw(0, Tally(1, "a"), mark(1, "a"), None) is TallyStep.NOTHING
    assert watch.is_proven
    assert watch.saw(INTERVAL - 1, Tally(1, "a"), mark(1, "a"), None) is TallyStep.NOTHING
    assert watch.saw(INTERVAL, Tally(1, "a"), mark(1, "a"), None) is TallyStep.DRAW
    assert watch.saw(1, Tally(1, "a", asked=True), mark(1, "a"), None) is TallyStep.DRAW


def test_one_that_starts_waits_until_it_was_quiet() -> None:
    watch = TallyWatch(INTERVAL)
    seen = Tally(5, "e"), mark(5, "e"), None
    assert watch.saw(0, *seen) is TallyStep.NOTHING
    assert watch.saw(QUIET - 1, *seen) is TallyStep.NOTHING
    assert watch.saw(QUIET, *seen) is TallyStep.DRAW
    assert not watch.is_proven
    watch.saw(QUIET, Tally(6, "f"), mark(6, "f"), None)
    assert watch.is_proven


def test_the_patience_is_that_of_whoever_put_the_mark() -> None:
    watch = TallyWatch(1.0)
    seen = Tally(5, "e"), mark(5, "e"), None
    watch.saw(0, *seen)
    assert watch.saw(QUIET - 1, *seen) is TallyStep.NOTHING
    assert watch.saw(QUIET, *seen) is TallyStep.DRAW


def test_what_was_announced_before_the_start_proves_nothing() -> None:
    watch = TallyWatch(INTERVAL)
    watch.saw(0, Tally(5, "e", "f"), mark(5, "e"), None)
    assert watch.saw(1, Tally(5, "e", "f"), mark(5, "e"), mark(6, "f")) is TallyStep.CONFIRM
    watch.saw(2, Tally(6, "f"), mark(6, "f"), None)
    assert not watch.is_proven
    watch.saw(3, Tally(7, "g"), mark(7, "g"), None)
    assert watch.is_proven


def test_a_cluster_from_before_tallies_is_not_proven_by_the_first_one() -> None:
    watch = TallyWatch(INTERVAL)
    assert watch.saw(0, Tally(0, ""), None, None) is TallyStep.DRAW
    watch.saw(0, Tally(1, "a"), mark(1, "a"), None)
    assert not watch.is_proven


def test_what_is_not_seen_is_not_quiet() -> None:
    watch = TallyWatch(INTERVAL)
    seen = Tally(5, "e"), mark(5, "e"), None
    watch.saw(0, *seen)
    watch.missed()
    assert watch.saw(QUIET, *seen) is TallyStep.NOTHING
    assert watch.saw(2 * QUIET, *seen) is TallyStep.DRAW


def test_what_was_seen_before_a_look_that_failed_counts() -> None:
    watch = TallyWatch(INTERVAL)
    seen = Tally(5, "e"), mark(5, "e"), None
    watch.saw(0, *seen)
    watch.saw(QUIET - 1, *seen)
    watch.missed()
    assert watch.saw(2 * QUIET, *seen) is TallyStep.NOTHING
    assert watch.saw(2 * QUIET + 1, *seen) is TallyStep.DRAW


def test_a_look_that_failed_puts_off_no_raise_of_who_has_proof() -> None:
    watch = TallyWatch(INTERVAL, is_new=True)
    seen = Tally(1, "a"), mark(1, "a"), None
    watch.saw(0, *seen)
    watch.missed()
    assert watch.saw(INTERVAL, *seen) is TallyStep.DRAW


def test_who_was_overtaken_has_no_proof_any_more() -> None:
    watch = TallyWatch(INTERVAL, is_new=True)
    watch.saw(0, Tally(1, "a"), mark(1, "a"), None)
    assert watch.is_proven
    assert watch.saw(1, Tally(1, "a"), mark(1, "a"), mark(2, "x")) is TallyStep.NOTHING
    assert watch.held()
    assert not watch.is_proven
    # A person decides that it is the cluster: it fits again, and is proven by what comes then.
    watch.saw(2, Tally(3, "c"), mark(3, "c"), None)
    assert not watch.held()
    assert not watch.is_proven
    watch.saw(3, Tally(4, "d"), mark(4, "d"), None)
    assert watch.is_proven


def test_what_is_written_while_writes_are_held() -> None:
    alive = Put(keys.broker(1), b""), Delete(keys.clock("x"))
    assert may_be_written_while_held(alive)
    for other in (
        Put(keys.topic("t"), b""),
        Put(keys.TALLY, b""),
        Put(keys.high_watermark(1), b""),
        DeleteRange(keys.BROKERS, keys.prefix_end(keys.BROKERS)),
    ):
        assert not may_be_written_while_held([*alive, other])


class _Stores:
    def __init__(self) -> None:
        self.runtime = SimulatedRuntime(1)
        self.bucket = MemoryBucket()
        self.objects = ScriptedObjects(self.runtime, self.bucket)
        self.store = MemoryStore(self.runtime, MemoryState())

    def keeper(self, *, is_new: bool = False) -> TallyKeeper:
        return TallyKeeper(self.store, self.objects, self.runtime, CLUSTER.cluster_id, 1.0, is_new=is_new)


def test_old_marks_go_and_the_first_stays() -> None:
    async def raise_it_often() -> list[int | None]:
        stores = _Stores()
        await put_owner(stores.objects, CLUSTER)
        keeper = stores.keeper(is_new=True)
        while keeper.number < 40:
            await keeper.look()
            await stores.runtime.sleep(1.0)
        return [number_of_mark(info.path) async for info in stores.objects.list("dray-tally")]

    assert sorted(run(raise_it_often())) == [1, *range(24, 41)]  # type: ignore[type-var]


@pytest.mark.parametrize("number", [1, 2, 3, 9])
def test_a_copy_that_was_left_behind_never_fits_again(number: int) -> None:
    """Although its own mark cannot be deleted for a while."""

    async def raise_it_often() -> None:
        stores = _Stores()
        await put_owner(stores.objects, CLUSTER)
        keeper, copy = stores.keeper(is_new=True), _Stores()
        copy.objects = stores.objects
        for _ in range(3):
            stores.objects.trap(Fate.REFUSE, "delete", part=mark_path(number))
        while keeper.number < 40:
            await keeper.look()
            if keeper.number == number:
                record = await stores.store.get(keys.CLUSTER_DOMAIN, keys.TALLY)
                assert record is not None
                await copy.store.write(keys.CLUSTER_DOMAIN, [Put(keys.TALLY, record.value)])
            elif keeper.number > number:
                drill = copy.keeper()
                await drill.look()
                assert drill.held(), keeper.number
            await stores.runtime.sleep(1.0)

    run(raise_it_often())


def test_marks_that_go_while_a_copy_looks_do_not_make_it_fit() -> None:
    async def look() -> str | None:
        stores = _Stores()
        await put_owner(stores.objects, CLUSTER)
        for number in (5, 6):
            await put_mark(stores.objects, Mark(CLUSTER.cluster_id, number, f"{number}", 1000))
        await stores.store.write(keys.CLUSTER_DOMAIN, [Put(keys.TALLY, encode_tally(Tally(5, "5")))])
        get = stores.objects.get

        async def get_and_delete(path: str) -> Buffer:
            found = await get(path)
            for number in (5, 6):
                stores.bucket.delete(mark_path(number))
            return found

        stores.objects.get = get_and_delete  # type: ignore[method-assign]
        keeper = stores.keeper()
        await keeper.look()
        return keeper.held()

    assert run(look()) is not None


def test_of_two_marks_of_one_number_the_first_stays() -> None:
    async def put_both() -> str:
        stores = _Stores()
        for token in ("a", "b"):
            await put_mark(stores.objects, mark(5, token))
        return decode_mark(mark_path(5), bytes(await stores.objects.get(mark_path(5)))).token

    assert run(put_both()) == "a"


def test_a_lost_reply_of_the_mark_is_no_fork() -> None:
    async def look() -> str | None:
        stores = _Stores()
        stores.objects.script(Fate.LOSE_REPLY, part="dray-tally")
        await put_owner(MemoryObjects(stores.runtime, stores.bucket), CLUSTER)
        keeper = stores.keeper(is_new=True)
        await keeper.look()
        return await keeper()

    assert run(look()) is None


def test_nothing_is_deleted_while_the_bucket_cannot_be_read() -> None:
    async def ask() -> str | None:
        stores = _Stores()
        return await stores.keeper(is_new=True)()

    assert "is gone" in (run(ask()) or "")


def test_a_store_that_hides_the_mark_for_seconds_holds_up_no_write() -> None:
    """What hides it for longer does, and for no longer than that."""

    async def held_while_hidden(seconds: float) -> list[str | None]:
        stores = _Stores()
        await put_owner(stores.objects, CLUSTER)
        keeper = stores.keeper(is_new=True)
        await keeper.look()
        keeper.start()
        await stores.runtime.sleep(5.0)
        hidden = dict(stores.bucket.objects)
        stores.bucket.objects.clear()
        found: list[str | None] = []
        for _ in range(round(10 * seconds)):
            await stores.runtime.sleep(0.1)
            found.append(keeper.held())
        stores.bucket.objects.update(hidden)
        await stores.runtime.sleep(1.0)
        assert keeper.held() is None
        await keeper.stop()
        return found

    assert set(run(held_while_hidden(8.0))) == {None}
    assert "does not have the mark" in (run(held_while_hidden(15.0))[-1] or "")
