"""The Parquet schemas of a dataset, with units, and their version.

Layout of a dataset folder::

    dataset.json            schema version, sources (path, sha256, counts, labels)
    records/<source_id>.parquet
    tasks.parquet  sketches.parquet
    rejected/<source_id>.parquet
    features/<extractor>-v<version>/<source_id>.parquet
"""

from __future__ import annotations

import polars as pl

SCHEMA_VERSION = 1

RECORDS: dict[str, pl.DataType] = {
    "record_id": pl.String(),  # hash of the canonical record
    "candidate_id": pl.String(),  # hash of task and schedule; repeats share it
    "task_id": pl.String(),
    "sketch_id": pl.String(),
    "source_id": pl.String(),
    "line": pl.Int64(),  # 1-based line in the source
    "order": pl.Int64(),  # 0-based position among the source's records
    "format": pl.String(),  # autotvm | ansor | metaschedule | t4 | kernel-tuner
    "format_version": pl.String(),
    "tvm_version": pl.String(),
    "schedule": pl.String(),  # canonical JSON of the schedule as the log writes it
    "decisions": pl.List(pl.Int64()),  # flat; Sketch.knobs says which part is whose
    "state": pl.String(),  # TrialState
    "error_number": pl.Int32(),  # the raw number, null where the format has none
    "run_times_s": pl.List(pl.Float64()),  # seconds, one a repeat; empty unless ok
    "latency_s": pl.Float64(),  # their arithmetic mean; null unless ok
    "elapsed_s": pl.Float64(),  # build and run, seconds; null where not recorded
    "timestamp": pl.Float64(),  # seconds since 1970; null where not recorded
}

TASKS: dict[str, pl.DataType] = {
    "task_id": pl.String(),
    "format": pl.String(),
    "workload": pl.String(),
    "arguments": pl.String(),  # JSON
    "target": pl.String(),
    "target_kind": pl.String(),
    "hardware": pl.String(),  # JSON object
    "machine": pl.String(),  # null: unknown, and reported so
    "extents": pl.List(pl.Int64()),
    "blob": pl.String(),
}

SKETCHES: dict[str, pl.DataType] = {
    "sketch_id": pl.String(),
    "format": pl.String(),
    "skeleton": pl.String(),  # JSON
    "knobs": pl.String(),  # JSON list of {name, kind, offset, width, choices, labels}
}

REJECTED: dict[str, pl.DataType] = {
    "source_id": pl.String(),
    "path": pl.String(),
    "line": pl.Int64(),
    "byte_offset": pl.Int64(),
    "reason": pl.String(),
    "content": pl.Binary(),  # the line's bytes, cut at 4 KiB
}
