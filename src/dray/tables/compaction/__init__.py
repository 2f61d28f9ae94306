"""Compaction: WAL ranges become Parquet files, which the log and the topic's Iceberg table share.

A cycle, in the order in which the modules have their turn (`docs/design/0050-compaction.md` has the reasons):

    cycle             the compactor: plan, write, commit, swap, retain, collect; then again
    round             what is under way in one pass over the streams
    job_board         every stream's job, read before any index
    stream_planner    what is next for a stream: its unfinished job, or a new one
    stream_memory     which streams to look at: what is remembered of them, and what watches say
    plan              what to compact in one stream: a pure function
    saga              the steps of a compaction, performed; `dray.log.jobs.machine` decides them
    executor          a unit becomes a file, from `sources`; `spark` spreads units, `careful_writer` finds the
                      one that takes its worker down
    table_commits     one commit of its table for all jobs of a topic
    upkeep            rounds of collection, beside the cycles: `table_keeper` holds tables against the log,
                      `file_collector` deletes what nothing needs
    shares            which topics are whose, where there are several compactors

`model`, `paths`, `settings` and `summary` are what they hand each other. `trimming` is about what was
deleted, `packages` about what is not installed. `bucket_survey` serves the start of a broker and commands.
"""
