"""Coverage-guided fuzzing of the readers with atheris; run by hand (CONTRIBUTING says how).

    python tests/fuzz/fuzz_readers.py ansor -max_total_time=600 [libFuzzer's options] [CORPUS]

An input that breaks an invariant is written as ``crash-*`` into the working directory; the same
program reads it again when it is named instead of a corpus.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

with atheris.instrument_imports(include=["toolkit.logs"]):
    import invariants

INGEST_EVERY = 500
"""A whole ingest waits for the disk: only so many inputs are read in this way as well."""


def main() -> None:
    """Fuzz the format that is named first until the time is over."""
    name = sys.argv.pop(1)
    begin = invariants.seeds(name)
    turns = 0

    def test(data: bytes) -> None:
        nonlocal turns
        turns += 1
        invariants.check(name, data)
        if turns % INGEST_EVERY == 0:
            invariants.check_ingest(data.replace(invariants.APART, b"\n"))

    def mutator(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.3:
            changed: bytes = atheris.Mutate(data, max_size)
            return changed
        return invariants.mutate(data if len(data) > 1 else rng.choice(begin), rng)[:max_size]

    atheris.Setup([sys.argv[0], "-max_len=8192", *sys.argv[1:]], test, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
