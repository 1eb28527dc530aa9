"""A trained model on disk: ``manifest.json`` and its members in their libraries' own formats."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import orjson

from toolkit import __version__
from toolkit.errors import ModelError
from toolkit.training.classifier import RuleClassifier
from toolkit.training.crossfit import Member
from toolkit.training.ensemble import Ensemble
from toolkit.training.failure import FailureEnsemble

_KINDS: dict[str, Any] = {
    "ensemble": Ensemble,
    "classifier": RuleClassifier,
    "failure": FailureEnsemble,
}

MANIFEST = "manifest.json"
MODEL_VERSION = 2


def versions() -> dict[str, str]:
    """Versions of the toolkit and of the libraries that a model depends on."""
    from importlib.metadata import version

    names = ("lightgbm", "xgboost", "scikit-learn", "numpy")
    return {"tvm-tuning-toolkit": __version__, **{name: version(name) for name in names}}


def save_model(folder: Path, manifest: dict[str, Any], members: dict[str, Member]) -> None:
    """Write a model beside its place and put it there in one step.

    What was there before is replaced; an interrupted write leaves it as it was.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    entries = {}
    for name, member in members.items():
        entries[name] = {
            "type": next(
                (name for name, kind in _KINDS.items() if isinstance(member.ensemble, kind)),
                "ensemble",
            ),
            "models": member.ensemble.save(fresh / "members" / name),
            "training_task_ids": sorted(member.training_task_ids),
            "training_workloads": sorted(member.workloads),
        }
    content = {"model_version": MODEL_VERSION, **manifest, "members": entries}
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    (fresh / MANIFEST).write_bytes(orjson.dumps(content, option=options))
    if folder.exists():
        if any(folder.iterdir()) and not (folder / MANIFEST).is_file():
            shutil.rmtree(fresh)
            raise ModelError(
                "the folder is not empty and holds no model", where=folder, cure="give another"
            )
        old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
        folder.rename(old)
        fresh.rename(folder)
        shutil.rmtree(old)
    else:
        fresh.rename(folder)


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """Read a model's manifest; raise ``ModelError`` where there is none of that kind."""
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(
            "there is no model", where=folder, cure=f"toolkit train {kind or 'throughput'}"
        ) from None
    except (OSError, orjson.JSONDecodeError) as error:
        raise ModelError(f"damaged: {error}", where=path, cure="train it again") from None
    if manifest.get("model_version") != MODEL_VERSION:
        raise ModelError(
            f"has model version {manifest.get('model_version')}, this toolkit reads "
            f"{MODEL_VERSION}",
            where=path,
            cure="train it again",
        )
    if kind is not None and manifest.get("kind") != kind:
        raise ModelError(
            f"is a {manifest.get('kind')} model, not a {kind} model",
            where=path,
            cure="give the folder of the other",
        )
    return manifest


def load_members(folder: Path, manifest: dict[str, Any]) -> dict[str, Member]:
    """Read a model's members; raise ``ModelError`` where one is absent or damaged."""
    try:
        return {
            name: Member(
                name=name,
                ensemble=_KINDS[entry["type"]].load(folder / "members" / name, entry["models"]),
                training_task_ids=frozenset(entry["training_task_ids"]),
                workloads=frozenset(entry["training_workloads"]),
            )
            for name, entry in manifest["members"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"damaged: {error!r}", where=folder / MANIFEST, cure="train it again"
        ) from None
