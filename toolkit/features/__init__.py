"""Records → matrices: named columns, one feature space across formats."""

from __future__ import annotations

from toolkit.errors import DatasetError
from toolkit.features.base import Extractor
from toolkit.features.cache import cached_blocks, extract
from toolkit.features.extractors.stored import PREFIX, StoredExtractor
from toolkit.logs.formats import format_named
from toolkit.records import Task
from toolkit.registry import Registry

EXTRACTORS = Registry(
    "extractor",
    {
        "knobs": "toolkit.features.extractors.knobs:KnobsExtractor",
        "primitives": "toolkit.features.extractors.primitives:PrimitivesExtractor",
        "relations": "toolkit.features.extractors.relations:RelationsExtractor",
        "per-store": "toolkit.features.extractors.per_store:PerStoreExtractor",
        "per-statement": "toolkit.features.extractors.per_store:PerStatementExtractor",
        "parameters": "toolkit.features.extractors.parameters:ParametersExtractor",
        "ansor-per-store": "toolkit.features.extractors.ansor_store:AnsorStoreExtractor",
    },
)

__all__ = ["EXTRACTORS", "best_extractor_for", "cached_blocks", "extract", "extractor_named"]


def extractor_named(name: str) -> Extractor:
    """Return an extractor by its name; ``stored:<name>`` reads imported features.

    Raises
    ------
    UnknownNameError
        When no extractor has this name.
    """
    if name.startswith(PREFIX):
        return StoredExtractor(name.removeprefix(PREFIX))
    found: Extractor = EXTRACTORS.get(name)()
    return found


def best_extractor_for(task: Task) -> Extractor:
    """Return the extractor that serves a task's format best without TVM.

    Raises
    ------
    DatasetError
        When none reads the format.
    """
    best = format_named(task.format).extractor
    for name in EXTRACTORS.names() if best is None else [best]:
        extractor: Extractor = EXTRACTORS.get(name)()
        if best is not None or extractor.supports(task):
            return extractor
    raise DatasetError(f"no extractor reads candidates of the format {task.format!r}")
