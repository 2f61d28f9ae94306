"""Every rule of the commit protocol that this code has, taken out of it: the tests must notice.

A mutation is a patch of one small method. Those that matter often are found by chance: beside each stands the
seed that finds it at once, so that the suite need not search; `make soak` does, from a fresh base. Those
that need a certain schedule have one in `log_schedules`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation import commit_mutations as commit
from tests.simulation import keeping_mutations as keeping
from tests.simulation import loop_mutations as loops

Patch = Callable[[pytest.MonkeyPatch], None]

MUTATIONS: dict[str, Patch] = {
    # the commit
    "no compare-and-set": commit.no_compare_and_set,
    "previous head not filed": commit.previous_head_not_filed,
    "acknowledge before the commit": commit.acknowledge_before_the_commit,
    "answer duplicates before the commit": commit.answer_duplicates_before_the_commit,
    "commit without waiting for the previous object": commit.commit_without_waiting_for_the_previous,
    "append to closed streams": commit.append_to_closed_streams,
    # after an unclear reply
    "aim again after an unclear reply": commit.aim_again_after_an_unclear_reply,
    "index before high watermark": commit.look_at_the_index_before_the_high_watermark,
    "high watermark only": commit.look_at_the_high_watermark_only,
    "look without a barrier": commit.look_without_a_barrier,
    "settle what is undecided": commit.settle_what_is_undecided,
    # producers
    "refuse by a state that may lag": commit.refuse_by_a_state_that_may_lag,
    "forget that a first batch failed": commit.forget_that_a_first_batch_failed,
    "a gap that a failure left is the producer's": commit.take_a_gap_that_this_broker_made_for_the_producers,
    "fold before the high watermark": commit.fold_before_the_high_watermark,
    "fold over gaps": commit.fold_over_gaps,
    # staging and references
    "references in the commit": commit.references_in_the_commit,
    "stage only if absent": commit.stage_only_if_absent,
    "upload though staging is unclear": commit.upload_though_staging_is_unclear,
    "marks staged ahead serve any object": commit.marks_staged_ahead_serve_any_object,
    "marks staged ahead serve twice": commit.marks_staged_ahead_serve_twice,
    "references of unused marks stay": commit.marks_that_were_not_used_stay,
    "commit though the upload failed": commit.commit_though_the_upload_failed,
    "keep the references of what failed": commit.keep_the_references_of_what_failed,
    "staging mark deleted without its version": commit.delete_the_staging_mark_without_its_version,
    "staging mark deleted in the commit": commit.delete_the_staging_mark_in_the_commit,
    # the recheck
    "no recheck": commit.no_recheck,
    "recheck without the version": commit.recheck_without_the_version,
    "recheck before the high watermark is read": commit.recheck_before_the_high_watermark_is_read,
    # the collector
    "no fence": keeping.no_fence,
    "fence without a barrier": keeping.fence_without_a_barrier,
    "fence unseen": keeping.fence_unseen,
    "judge without taking the mark": keeping.judge_without_taking_the_mark,
    "dead entries count": keeping.count_dead_entries,
    "forget the object before it is gone": keeping.forget_the_object_before_it_is_gone,
    "no audit": keeping.no_audit,
    "audit references before the list": keeping.audit_references_before_the_list,
    # retention
    "no sweep": keeping.no_sweep,
    "view of two snapshots": keeping.judge_entries_by_an_older_high_watermark,
    "retain without the snapshot": keeping.retain_without_the_snapshot,
    "snapshot without compare-and-set": keeping.snapshot_without_compare_and_set,
    "start without compare-and-set": keeping.start_without_compare_and_set,
    "delete before the start is seen": keeping.delete_before_the_start_is_seen,
    "done before the deletes are confirmed": keeping.done_before_the_deletes_are_confirmed,
    "references apart from the index": keeping.references_apart_from_the_index,
    # settling
    "settling is cut anywhere and dropped": loops.settling_is_cut_anywhere_and_dropped,
    # streams
    "streams created over what is there": keeping.create_streams_over_what_is_there,
    "close unseen": keeping.close_unseen,
    "sweep the high watermark too": keeping.sweep_the_high_watermark_too,
    # readers
    "absent by a stale read": keeping.absent_by_a_stale_read,
    "bounds without a barrier": keeping.bounds_without_a_barrier,
    "nothing without asking": keeping.nothing_without_asking,
    "nothing told is nothing done": keeping.nothing_told_is_nothing_done,
    "followed though the watch broke": keeping.followed_though_the_watch_broke,
    "moved and not looked into": keeping.moved_and_not_looked_into,
    "out of range by what is known": keeping.out_of_range_by_what_is_known,
    "a missing object is taken for a corrupt one": keeping.take_a_missing_object_for_a_corrupt_one,
    "one bad answer is believed": keeping.believe_one_bad_answer,
    "one answer that an object is gone is believed": keeping.believe_the_store_that_an_object_is_gone,
    "what is hidden for a moment is lost": keeping.take_for_lost_what_is_hidden_for_a_moment,
}

# The same, where stores lie.
FOUND_AMONG_LIES: dict[str, int] = {
    "one bad answer is believed": 0,
    "one answer that an object is gone is believed": 1,
    "what is hidden for a moment is lost": 5,
}

# Where the search for each of them starts: the seed that found it when it was last recorded.
FOUND_BY_CHANCE: dict[str, int] = {
    "no compare-and-set": 2,
    "previous head not filed": 0,
    "acknowledge before the commit": 0,
    "answer duplicates before the commit": 7,
    "commit without waiting for the previous object": 4,
    "append to closed streams": 7,
    "aim again after an unclear reply": 43,
    "settle what is undecided": 135,
    "refuse by a state that may lag": 3,
    "forget that a first batch failed": 12,
    "a gap that a failure left is the producer's": 0,
    "fold before the high watermark": 3,
    "references in the commit": 2,
    "upload though staging is unclear": 2,
    "marks staged ahead serve any object": 1,
    "marks staged ahead serve twice": 0,
    "references of unused marks stay": 0,
    "commit though the upload failed": 1,
    "keep the references of what failed": 2,
    "staging mark deleted in the commit": 0,
    "no recheck": 31,
    "dead entries count": 54,
    "forget the object before it is gone": 2,
    "no audit": 0,
    "audit references before the list": 4,
    "no sweep": 54,
    "view of two snapshots": 5,
    "retain without the snapshot": 4,
    "delete before the start is seen": 54,
    "done before the deletes are confirmed": 21,
    "references apart from the index": 23,
    "streams created over what is there": 6,
    "sweep the high watermark too": 7,
    "bounds without a barrier": 121,
    "nothing without asking": 3,
    "nothing told is nothing done": 5,
    "moved and not looked into": 3,
    "out of range by what is known": 0,
}

# Rules of the protocol that this simulation cannot break. Those of compaction, and those that only matter
# with it (the previous head is filed if absent, covered entries do not count, a job is put over the version
# read before the plan), are in `compaction_mutations`.
NOT_YET = {
    "index before snapshot": (
        "the fold looks whether its entries reach from the snapshot to the end, and starts again where they"
        " do not: `fold over gaps` takes that look away"
    ),
}
