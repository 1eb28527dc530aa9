"""Trained models from their folders: the one place where replay, live phase and commands load them.

A model is named by its folder, or by its name in the workspace (``tuning/models/<name>``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.errors import ModelError, did_you_mean
from toolkit.records import content_id
from toolkit.registry import Registry
from toolkit.training.trained.store import MANIFEST, read_manifest
from toolkit.workspace import Workspace

KINDS = Registry(
    "model kind",
    {
        "throughput": "toolkit.training.tasks.throughput:THROUGHPUT",
        "mutation": "toolkit.training.tasks.mutation:MUTATION",
        "validity": "toolkit.training.tasks.validity:VALIDITY",
    },
)
"""How each kind of model is trained, judged and loaded (``tasks.trainer.Kind``)."""


@dataclass(frozen=True)
class TrainedModels:
    """At most one model of each kind; ``fingerprint`` names their manifests, '' without any."""

    throughput: Any = None
    mutation: Any = None
    validity: Any = None
    fingerprint: str = ""


def load_trained(folders: Sequence[Path | str]) -> TrainedModels:
    """Load models, one of each kind at most; each manifest says of which kind it is.

    Raises
    ------
    ModelError
        Where a folder holds no model, one of an unknown kind, or a second one of a kind.
    """
    found: dict[str, Any] = {}
    contents: list[bytes] = []
    for folder in map(Path, folders):
        kind = read_manifest(folder)["kind"]
        if kind not in KINDS.names():
            raise ModelError(f"a model of the unknown kind {kind!r}", where=folder / MANIFEST)
        if kind in found:
            raise ModelError(f"two {kind} models", where=folder, cure="give one of each kind")
        found[kind] = KINDS.get(kind).model.load(folder)
        contents.append((folder / MANIFEST).read_bytes())
    fingerprint = content_id(*sorted(contents)) if contents else ""
    return TrainedModels(**found, fingerprint=fingerprint)


def workspace_models(workspace: Workspace | None = None) -> dict[str, Path]:
    """Folders of the workspace's models by name, the one trained last first."""
    root = (workspace or Workspace()).model("throughput").parent
    made = {path.parent: path.stat().st_mtime_ns for path in root.glob(f"*/{MANIFEST}")}
    return {folder.name: folder for folder in sorted(made, key=lambda f: (-made[f], f.name))}


def default_folders(workspace: Workspace | None = None) -> list[Path]:
    """The workspace's throughput and mutation models under their default names, if any.

    A validity model is asked for by name: whether it helps a search depends on the logs.
    """
    known = workspace_models(workspace)
    return [known[kind] for kind in ("mutation", "throughput") if kind in known]


def find_model(name: str | Path | None, kind: str, workspace: Workspace | None = None) -> Path:
    """Folder of a model: a path, a name in the workspace, or (``None``) its latest of that kind.

    Raises
    ------
    ModelError
        When there is none.
    """
    known = workspace_models(workspace)
    if name is None:
        for folder in known.values():
            if read_manifest(folder)["kind"] == kind:
                return folder
        raise ModelError(
            f"the workspace has no {kind} model",
            where=(workspace or Workspace()).model(kind).parent,
            cure=f"run: toolkit train {kind}, or name a model's folder",
        )
    if (Path(name) / MANIFEST).is_file():
        return Path(name)
    if str(name) in known:
        return known[str(name)]
    raise ModelError(
        "there is no model",
        where=name,
        cure=did_you_mean(str(name), known) if known else f"run: toolkit train {kind}",
    )
