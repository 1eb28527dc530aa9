"""Logs of named parameters: columns, and models that are trained on them as on any other log."""

from __future__ import annotations

import csv
import json
import math
from itertools import product
from pathlib import Path

import running

from toolkit.datasets import ingest, open_dataset
from toolkit.features.extractors.parameters import ParametersExtractor
from toolkit.workspace import bundled

SIZES = (256, 512, 1024)
SPACE = [*product((8, 16, 32, 64, 128), (1, 2, 4, 8), ("a", "b"))]


def time_ms(size: int, block: int, warps: int, order: str) -> float:
    """The best block has a 32nd of the size; the other two cost the same at every size."""
    off = abs(math.log2(32 * block / size))
    return size * 1e-3 * (1 + off + 0.5 * abs(math.log2(warps / 4)) + (order == "b"))


def kernel_tuner(folder: Path, size: int) -> None:
    entries = {
        f"{block},{warps},{order}": {
            "block_size_x": block, "warps": warps, "order": order,
            "time": time_ms(size, block, warps, order),
        }
        for block, warps, order in SPACE
    }  # fmt: skip
    values = {"block_size_x": [8, 16, 32, 64, 128], "warps": [1, 2, 4, 8], "order": ["a", "b"]}
    document = {
        "device_name": "GPU 1", "kernel_name": "sum", "problem_size": [size, 8],
        "tune_params_keys": [*values], "tune_params": values, "objective": "time",
        "cache": entries,
    }  # fmt: skip
    (folder / f"sum-{size}.json").write_text(json.dumps(document))


def triton(folder: Path, size: int) -> None:
    timings = [
        [{"kwargs": {"BLOCK": block, "order": order}, "num_warps": warps},
         [time_ms(size, block, warps, order)] * 3]
        for block, warps, order in SPACE
    ]  # fmt: skip
    document = {"key": [size, 8, "torch.float16"], "configs_timings": timings}
    (folder / f"sum-{size}").mkdir()
    (folder / f"sum-{size}" / "sum.autotune.json").write_text(json.dumps(document))


def helion(folder: Path, size: int) -> None:
    head = ["run_id", "timestamp_s", "config_id", "generation", "status", "perf_ms"]
    head += ["compile_time_s", "config"]
    rows = [
        ["r1", "1.5", f"c{place}", "0", "ok", f"{time_ms(size, block, warps, order):.6f}", "0.8",
         f"Config(block_sizes=[{block}], indexing='{order}', num_warps={warps})"]
        for place, (block, warps, order) in enumerate(SPACE)
    ]  # fmt: skip
    with (folder / f"sum-{size}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    about = {
        "run_id": "r1", "kernel_name": "sum", "kernel_source": "def sum(): ...",
        "input_shapes": f"[({size}, 8)]", "dtypes": "['torch.float16']", "configs": {},
        "hardware_info": {"device_kind": "cuda", "device_name": "NVIDIA H100"},
        "settings": {"backend": "triton"},
    }  # fmt: skip
    (folder / f"sum-{size}.meta.jsonl").write_text(json.dumps(about) + "\n")


def test_models_of_other_sizes_rank_configurations_of_every_format(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for write in (kernel_tuner, triton, helion):
        for size in SIZES:
            write(tmp_path / "logs", size)
    code, _, told = running.here("ingest", "logs", "--dataset", "data", cwd=tmp_path)
    assert code == 0, told
    # The default recipe, with one fit of each model: enough to rank these.
    recipe = (bundled("training") / "throughput.toml").read_text()
    (tmp_path / "one.toml").write_text(recipe.replace('seeds = "auto"', "seeds = 1"))
    train = "train", "throughput", "--dataset", "data", "--out", "model", "--json"
    code, said, told = running.here(*train, "--recipe", "one.toml", cwd=tmp_path)
    assert code == 0, told
    metrics = json.loads(said)
    # Order and warps are as at other sizes; the best block has to be guessed from them.
    assert metrics["n_test_tasks"] == 3 * len(SIZES)
    assert metrics["pairwise"] > 0.7
    simulate = "simulate", "--dataset", "data", "--model", "model", "--scenario", "quick"
    code, said, told = running.here(*simulate, "--out", "replay", "--json", cwd=tmp_path)
    assert code == 0, told
    found = json.loads(said)["strategies"]
    assert found["transfer"]["auc"] > found["random"]["auc"]


def test_columns_are_values_words_products_and_the_numbers_of_the_call(tmp_path: Path) -> None:
    timings = [[{"kwargs": {"BLOCK_M": 16, "BLOCK_N": n, "order": w}, "num_warps": 4}, [1, 1, 1]]
               for n, w in ((32, "a"), (64, "b"))]  # fmt: skip
    key = [512, [2, True], "[(64, 128)]", "torch.float16"]
    path = tmp_path / "sum.autotune.json"
    path.write_text(json.dumps({"key": key, "configs_timings": timings}))
    ingest(path, tmp_path / "data")
    ((group, _),) = open_dataset(tmp_path / "data").groups()
    block = ParametersExtractor().extract(group)
    columns = dict(zip(block.columns, block.values.T.tolist(), strict=True))
    assert columns["parameter_BLOCK_N"] == [32, 64]
    assert columns["parameter_num_warps"] == [4, 4]
    assert columns["block_product"] == [512, 1024]
    assert columns["tile_product"] == [1, 1]
    words = {name: values for name, values in columns.items() if "order" in name}
    assert sorted(words.values()) == [[0, 1], [1, 0]]
    numbers = [columns[f"argument_{place}"][0] for place in range(4)]
    assert numbers == [512, 2, 64, 128]
    assert "argument_4" not in columns
