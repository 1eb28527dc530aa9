"""Made logs in which what fails can be foreseen: small tiles of output channels time out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
from made_autotvm import write_autotvm


def write_failing(path: Path, *, seed: int = 0, share: float = 0.9) -> int:
    """Write the made convolutions; of those with ``tile_oc <= 2`` a share fails.

    Returns the number of failures.
    """
    write_autotvm(path, noise=0.01, seed=seed)
    rng = np.random.default_rng(seed)
    lines, failures = [], 0
    for line in path.read_bytes().splitlines():
        record = orjson.loads(line)
        [tile] = [e[2][1] for e in record["config"]["entity"] if e[0] == "tile_oc"]
        if tile <= 2 and rng.random() < share:
            record["result"][:2] = [[1e9], 4]
            failures += 1
        lines.append(orjson.dumps(record))
    path.write_bytes(b"\n".join(lines) + b"\n")
    return failures
