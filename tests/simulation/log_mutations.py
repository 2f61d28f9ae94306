"""Every rule of the commit protocol that this code has, taken out of it: the simulation must notice.

A mutation is a patch of one small method. Beside each stands the seed that finds it, so that the suite need
not search; `make soak` does, from a fresh base.
"""

from __future__ import annotations

from collections.abc import Callable

import commit_mutations as commit
import keeping_mutations as keeping
import pytest

Patch = Callable[[pytest.MonkeyPatch], None]

MUTATIONS: dict[str, tuple[Patch, int]] = {
    # the commit
    "no compare-and-set": (commit.no_compare_and_set, 0),
    "previous head not filed": (commit.previous_head_not_filed, 0),
    "acknowledge before the commit": (commit.acknowledge_before_the_commit, 0),
    "answer duplicates before the commit": (commit.answer_duplicates_before_the_commit, 0),
    "commit without waiting for the previous object": (
        commit.commit_without_waiting_for_the_previous,
        0,
    ),
    "append to closed streams": (commit.append_to_closed_streams, 0),
    # after an unclear reply
    "aim again after an unclear reply": (commit.aim_again_after_an_unclear_reply, 0),
    "index before high watermark": (commit.look_at_the_index_before_the_high_watermark, 0),
    "high watermark only": (commit.look_at_the_high_watermark_only, 0),
    "look without a barrier": (commit.look_without_a_barrier, 0),
    "settle what is undecided": (commit.settle_what_is_undecided, 0),
    # producers
    "refuse by a state that may lag": (commit.refuse_by_a_state_that_may_lag, 0),
    "forget that a first batch failed": (commit.forget_that_a_first_batch_failed, 0),
    "fold before the high watermark": (commit.fold_before_the_high_watermark, 0),
    "fold over gaps": (commit.fold_over_gaps, 0),
    # staging and references
    "references in the commit": (commit.references_in_the_commit, 0),
    "stage only if absent": (commit.stage_only_if_absent, 0),
    "upload though staging is unclear": (commit.upload_though_staging_is_unclear, 0),
    "commit though the upload failed": (commit.commit_though_the_upload_failed, 0),
    "keep the references of what failed": (commit.keep_the_references_of_what_failed, 0),
    "staging mark deleted without its version": (commit.delete_the_staging_mark_without_its_version, 0),
    "staging mark deleted in the commit": (commit.delete_the_staging_mark_in_the_commit, 0),
    # the recheck
    "no recheck": (commit.no_recheck, 0),
    "recheck without the version": (commit.recheck_without_the_version, 0),
    "recheck before the high watermark is read": (commit.recheck_before_the_high_watermark_is_read, 0),
    # the collector
    "no fence": (keeping.no_fence, 0),
    "fence without a barrier": (keeping.fence_without_a_barrier, 0),
    "fence unseen": (keeping.fence_unseen, 0),
    "judge without taking the mark": (keeping.judge_without_taking_the_mark, 0),
    "dead entries count": (keeping.count_dead_entries, 0),
    "forget the object before it is gone": (keeping.forget_the_object_before_it_is_gone, 0),
    "no audit": (keeping.no_audit, 0),
    "audit references before the list": (keeping.audit_references_before_the_list, 0),
    # retention
    "no sweep": (keeping.no_sweep, 0),
    "view of two snapshots": (keeping.judge_entries_by_an_older_high_watermark, 0),
    "retain without the snapshot": (keeping.retain_without_the_snapshot, 0),
    "snapshot without compare-and-set": (keeping.snapshot_without_compare_and_set, 0),
    "start without compare-and-set": (keeping.start_without_compare_and_set, 0),
    "delete before the start is seen": (keeping.delete_before_the_start_is_seen, 0),
    "done before the deletes are confirmed": (keeping.done_before_the_deletes_are_confirmed, 0),
    "references apart from the index": (keeping.references_apart_from_the_index, 0),
    # streams
    "streams created over what is there": (keeping.create_streams_over_what_is_there, 0),
    "close unseen": (keeping.close_unseen, 0),
    "sweep the high watermark too": (keeping.sweep_the_high_watermark_too, 0),
    # readers
    "bounds without a barrier": (keeping.bounds_without_a_barrier, 0),
    "nothing without asking": (keeping.nothing_without_asking, 0),
    "out of range by what is known": (keeping.out_of_range_by_what_is_known, 0),
    "a missing object is taken for a corrupt one": (keeping.take_a_missing_object_for_a_corrupt_one, 0),
}
