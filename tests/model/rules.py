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
MUTATIONS = COMMIT | STAGING | COLLECTION | JOBS | PRODUCERS
