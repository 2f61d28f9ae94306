"""The rules of the commit protocol, each named by what happens without it.

A run of the model may switch any of them off. A few hundred schedules break without most of them; some take
thousands (`python -m tests.model 10000 append-again`).
"""

from __future__ import annotations

COMMIT = {
    "prev-any": "the previous head is filed unconditionally instead of if absent",
    "append-again": "a lost reply, the version moved, nothing found: the same chunk is aimed again",
    "idx-then-hwm": "after a lost reply the index is read before the high watermark",
    "bare-hwm": "after a lost reply only the head is looked at, and not the index",
}
STAGING = {
    "staging-unsure": "the upload begins though the reply to the staging write was lost",
    "refs-in-commit": "references are put by the commit and not by the staging write",
    "stg-in-commit": "the commit deletes the staging mark, whatever its compare-and-sets gave",
    "drop-undecided": "a broker that gives up while a write may still land drops references and mark",
    "stg-absent": "the mark is put if absent: a late copy brings references back at an unchanged version",
    "stg-del-any": "the mark is deleted without its version, by brokers and collectors",
}
COLLECTION = {
    "no-fence": "the collector does not seal the streams of an orphan before it judges",
    "no-recheck": "a broker commits without looking at its staging mark",
    "recheck-present": "a broker looks whether the mark is there, and not at its version",
    "recheck-clock": "a broker looks at its own clock, which stood still with its host, and not at the mark",
    "check-then-hwm": "the mark is looked at before the high watermark is read, and not after",
    "gc-stale-live": "the collector counts covered and expired entries as live",
    "no-list": "the bucket is not listed: only keys lead to WAL objects",
    "key-first": "the object key goes before the object is known to be gone, and nothing is listed",
    "bump-fence": "the fence puts the high watermark again with its head instead of sealing",
}
JOBS = {
    "stale-plan": "a job is created over the version that was read after the scan",
    "no-cover": "the planner counts covered entries",
    "cover-below": "an entry counts by what it holds below the start, where no file covers it",
    "no-look-ahead": "a reader whose object is gone does not look further",
    "abandon-written": "a job whose file is written may be abandoned",
    "swap-any": "the swap is put without the version of the last input",
    "delete-unseen": "the job goes on to SWAPPED without having seen the swap",
    "done-unseen": "the job goes on to DONE without a reply to its deletes",
    "refs-apart": "index entries and references are deleted in two writes",
    "pq-order": "the file collector reads the index before the job",
    "pq-nojob": "the file collector asks the index only",
    "ret-delete-first": "retention deletes entries before the start is seen raised",
    "ret-start-any": "retention raises the start without compare-and-set",
    "no-sweep": "entries that late writes brought back are never swept",
}
PRODUCERS = {
    "no-snap": "compaction does not move the producer snapshot before the swap",
    "ret-no-snap": "retention does not move the producer snapshot",
    "snap-first": "a broker reads the snapshot before the index",
    "snap-any": "the snapshot is put without compare-and-set",
    "fold-first": "producer state is folded before the high watermark is read",
}
CARRYING = {
    "car-beside": "the bytes lie under a key of their own, put beside the commit, and are never collected",
    "car-after": "the bytes are put by a second write, once the commit is confirmed",
    "car-file-bare": "an append files the previous head without its bytes",
    "car-seal-bare": "a seal files the head without its bytes",
    "car-fallback": "a carried append given up after an unclear reply goes the way of objects",
    "car-again": "a carried append, its reply lost, the version moved, nothing found: carried once more",
    "car-id": "after a lost reply an entry counts as ours by its range, and not by its id",
    "car-no-fold": "producer state is not folded from carried entries",
    "car-no-snap": "carried entries are compacted without moving the producer snapshot",
}
PACKING = {
    "pack-no-stage": "a pack is uploaded without a mark; its references ride with the write of its jobs",
    "pack-unsure": "a pack is uploaded though the reply to its staging write was lost",
    "pack-aim-late": "the job's version is read after the pack was staged",
    "pack-again": "after a clear no the job is read and aimed at again",
    "pack-no-job": "a packer swaps without a job, expecting the last input's version only",
    "pack-stale": "the job is put over the version that was read after the view",
    "pack-drop": "a packer that gives up undecided drops references and mark",
    "pack-moved": "a lost reply, the job moved on: counted as failed",
    "pack-seal": "the collector fences an orphaned pack by sealing, as it does for appends",
    "pack-no-fence": "the collector moves no version of the job before it judges a pack",
    "pack-job-blind": "the collector asks the index only, and not the job",
    "pack-index-job": "the collector reads the index before the job",
    "pack-no-snap": "a merged entry is swapped in before the producer snapshot covers it",
    "pack-abandon": "a job in PACKED may be abandoned",
    "pack-abandon-ref": "a job in PACKED may be abandoned, and its reference dropped with it",
    "pack-swap-any": "a merged entry is put without the version of the last input",
    "pack-unseen": "a pack goes on to SWAPPED without having seen its entry",
    "pack-no-cover": "a packer counts covered entries",
    "pack-stg-any": "a packer deletes its mark without its version",
}
AHEAD = {
    "ahead-other": "an object takes a mark that was staged for other streams",
    "ahead-twice": "two objects take one mark, one after the other",
    "ahead-unsure": "an object takes a mark the reply to whose staging was lost",
    "ahead-no-recheck": "an object that took a mark commits without looking at it",
}
CLEANING = {
    "clean-tombstone": "any merge drops tombstones, whatever lies further down",
    "clean-young": "tombstones go below a clean point of any age",
    "clean-unseen": "the clean point is stored before the swap was seen",
    "clean-not-start": "a merge that does not begin at the start makes a clean point",
    "round-first": "a round is over after its first file",
    "round-emptied": "a superseded record that stands for a whole file is not spoken of",
}
SEVERAL = {
    "several-number": "a file that was written ahead is used though another job came between",
    "several-other": "a file is written ahead though the first job is another's",
    "several-spared": "the file collector deletes files of jobs to come",
    "several-spent": "numbers of files whose jobs do not come are not spent",
}
# The world of these has carried appends and packers; that of the others has neither.
WITH_CARRYING = CARRYING | PACKING
MUTATIONS = COMMIT | STAGING | COLLECTION | JOBS | PRODUCERS | WITH_CARRYING | AHEAD | CLEANING | SEVERAL
