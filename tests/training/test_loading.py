"""One home for loading models: kinds, names in the workspace, and what is refused."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import orjson
import pytest

from toolkit.datasets import Dataset
from toolkit.errors import ModelError
from toolkit.training import load_throughput, train_throughput
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.trained.loading import (
    default_folders,
    find_model,
    workspace_models,
)
from toolkit.training.trained.models import load_trained
from toolkit.training.trained.store import read_manifest, seal
from toolkit.workspace import Workspace


@pytest.fixture
def workspace(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    """Two throughput models of one workspace, ``mine`` trained last."""
    monkeypatch.chdir(tmp_path)
    few = quick.models[0].model_copy(update={"rounds": 3})
    for seed, name in enumerate(("throughput", "mine")):
        recipe = quick.model_copy(update={"models": (few,), "seed": seed})
        train_throughput(made_dataset, recipe, Workspace().model(name), threads=1)
    manifest = Workspace().model("throughput") / "manifest.json"
    os.utime(manifest, (1, 1))
    return Workspace()


def test_another_process_loads_the_same_model(workspace: Workspace) -> None:
    folder = workspace.model("throughput")
    loaded = load_trained([folder])
    assert loaded.mutation is None
    assert load_trained([folder]).throughput.manifest == loaded.throughput.manifest
    again = copy.copy(loaded)  # as a replay's other processes get them
    assert again.throughput.manifest == loaded.throughput.manifest
    assert again.fingerprint == loaded.fingerprint != ""
    assert load_trained([workspace.model("mine")]).fingerprint != loaded.fingerprint


def test_a_model_is_found_by_path_by_name_or_as_the_latest(workspace: Workspace) -> None:
    assert list(workspace_models()) == ["mine", "throughput"]
    assert find_model(None, "throughput") == workspace.model("mine")
    assert find_model("throughput", "throughput") == workspace.model("throughput")
    assert find_model(workspace.model("mine"), "throughput") == workspace.model("mine")
    # The default place alone guides the live phase: a model of another name is asked for.
    assert default_folders() == [workspace.model("throughput")]


def test_a_model_that_cannot_be_loaded_blocks_none_of_another_kind(workspace: Workspace) -> None:
    def write(name: str, content: bytes) -> None:
        workspace.model(name).mkdir(exist_ok=True)
        (workspace.model(name) / "manifest.json").write_bytes(content)

    write("mutation", orjson.dumps({"kind": "mutation", "model_version": 1}))
    write("cut", b"{")
    assert list(workspace_models())[-2:] == ["mine", "throughput"]
    assert find_model(None, "throughput") == workspace.model("mine")
    # Of the kind that is asked for it is said, and no older one is taken in its place.
    assert find_model(None, "mutation") == workspace.model("mutation")
    older = read_manifest(workspace.model("mine")) | {"model_version": 1}
    write("mine", orjson.dumps(older))
    with pytest.raises(ModelError, match=r"mine.*has model version 1"):
        load_throughput(find_model(None, "throughput"))
    assert find_model(None, "validity") == workspace.model("cut"), "it may be one"


def test_what_cannot_be_loaded_is_named(workspace: Workspace) -> None:
    with pytest.raises(ModelError, match="did you mean 'mine'"):
        find_model("mime", "throughput")
    with pytest.raises(ModelError, match=r"no mutation model.*toolkit train mutation"):
        find_model(None, "mutation")
    with pytest.raises(ModelError, match="is a second throughput model"):
        load_trained([workspace.model("mine"), workspace.model("throughput")])
    with pytest.raises(ModelError, match="there is no model"):
        load_trained([Path("nowhere")])
    manifest = workspace.model("mine") / "manifest.json"
    manifest.write_bytes(orjson.dumps(seal({**read_manifest(manifest.parent), "kind": "oracle"})))
    with pytest.raises(ModelError, match="unknown kind 'oracle'"):
        load_trained([workspace.model("mine")])
