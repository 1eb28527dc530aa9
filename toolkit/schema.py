"""The Parquet schemas of a dataset, with units, and their version.

Layout of a dataset folder::

    dataset.json            schema version, sources (path, sha256, counts, labels), and the list of
                            valid table files (below) with their checksums; a table file that is
                            not in this list is ignored
    records/part-<n>.parquet
    tasks-<n>.parquet  sketches-<n>.parquet
    rejected/part-<n>.parquet
    duplicates/part-<n>.parquet
    features/<extractor>-v<version>/<task and sketch>.parquet
"""

from __future__ import annotations

import polars as pl

SCHEMA_VERSION = 2

RECORDS: dict[str, pl.DataType] = {
    "record_id": pl.String(),  # hash of the canonical record
    "candidate_id": pl.String(),  # hash of task and schedule; repeats share it
    "task_id": pl.String(),  # hash of workload, arguments, target, hardware and machine
    "sketch_id": pl.String(),  # hash of the skeleton: the schedule without its decisions
    "source_id": pl.String(),  # the file it was read from (dataset.json)
    "line": pl.Int64(),  # 1-based line in the source
    "order": pl.Int64(),  # 0-based position among the source's records and duplicates
    "format": pl.String(),  # autotvm, ansor, metaschedule, t4, kernel-tuner, triton, helion
    "format_version": pl.String(),  # as written in the log
    "tvm_version": pl.String(),  # null where the log does not give it
    "schedule": pl.String(),  # canonical JSON of the schedule as the log writes it
    "decisions": pl.List(pl.Int64()),  # flat list; Sketch.knobs maps its parts to knobs
    "state": pl.String(),  # TrialState
    "error_number": pl.Int32(),  # the raw number, null where the format has none
    "run_times_s": pl.List(pl.Float64()),  # seconds, one per repeat; empty unless ok
    "latency_s": pl.Float64(),  # arithmetic mean of run_times_s; null unless ok
    "elapsed_s": pl.Float64(),  # build and run time, seconds; null where not recorded
    "timestamp": pl.Float64(),  # seconds since 1970; null where not recorded
}

TASKS: dict[str, pl.DataType] = {
    "task_id": pl.String(),  # hash of workload, arguments, target, hardware and machine
    "format": pl.String(),  # autotvm, ansor, metaschedule, t4, kernel-tuner, triton, helion
    "workload": pl.String(),  # name, as the log writes it
    "arguments": pl.String(),  # JSON
    "target": pl.String(),  # as written
    "target_kind": pl.String(),  # llvm, cuda, ...
    "hardware": pl.String(),  # JSON object
    "machine": pl.String(),  # null where unknown, and reported as unknown
    "extents": pl.List(pl.Int64()),  # loop extents, read from the schedules
    "blob": pl.String(),  # what else a rebuild needs (MetaSchedule: the workload)
}

SKETCHES: dict[str, pl.DataType] = {
    "sketch_id": pl.String(),  # hash of the skeleton: the schedule without its decisions
    "format": pl.String(),  # autotvm, ansor, metaschedule, t4, kernel-tuner, triton, helion
    "skeleton": pl.String(),  # JSON
    "knobs": pl.String(),  # JSON list of {name, kind, offset, width, choices, labels}
}

REJECTED: dict[str, pl.DataType] = {
    "source_id": pl.String(),  # the file it was read from (dataset.json)
    "path": pl.String(),  # path of the file
    "line": pl.Int64(),  # 1-based line in the source
    "byte_offset": pl.Int64(),  # where the line begins, in decompressed bytes
    "reason": pl.String(),  # why the line is not a record
    "content": pl.Binary(),  # the line's bytes, cut at 4 KiB
}

# Tables of 'toolkit query' that no file holds.

SOURCES: dict[str, pl.DataType] = {
    "source_id": pl.String(),  # hash of the file's content and path
    "path": pl.String(),  # path of the file; ARCHIVE::MEMBER for a member of an archive
    "sha256": pl.String(),  # SHA-256 of the content
    "format": pl.String(),  # autotvm, ansor, metaschedule, t4, kernel-tuner, triton, helion
    "lines": pl.Int64(),  # records, duplicates and rejected lines
    "records": pl.Int64(),
    "duplicates": pl.Int64(),  # exact repetitions of a line
    "rejected": pl.Int64(),
    "machine": pl.String(),  # null where unknown
    "labels": pl.String(),  # JSON object; see the table of labels
}

LABELS: dict[str, pl.DataType] = {
    "source_id": pl.String(),  # the file that has the label
    "label": pl.String(),  # name, as a group of --path-rule
    "value": pl.String(),
}

CANDIDATES: dict[str, pl.DataType] = {
    "task_id": pl.String(),
    "candidate_id": pl.String(),  # hash of task and schedule
    "sketch_id": pl.String(),
    "decisions": pl.List(pl.Int64()),  # flat list; Sketch.knobs maps its parts to knobs
    "schedule": pl.String(),  # canonical JSON of the schedule as the log writes it
    "state": pl.String(),  # ok if any occasion was ok, else the state of the first failure
    "latency_s": pl.Float64(),  # median over the ok occasions; null if there is none
    "occasions": pl.List(  # each measurement, in recorded order
        pl.Struct({"state": pl.String(), "latency_s": pl.Float64(), "elapsed_s": pl.Float64()})
    ),
    "n_ok": pl.Int64(),  # number of ok occasions
}
