"""Compile random networks and compare what comes out with onnxruntime; run by hand.

python tests/fuzz/fuzz_networks.py [--seeds FROM:TO] [--kind transformer|convolutions]
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.fuzz.networks import KINDS, check


def main() -> int:
    """Try each seed; print a line for each failure, and how many there were."""
    parser = argparse.ArgumentParser(description="fuzz toolkit compile with random networks")
    parser.add_argument("--seeds", default="0:200", metavar="FROM:TO")
    parser.add_argument("--kind", choices=KINDS)
    asked = parser.parse_args()
    seeds, failed, skipped = range(*map(int, asked.seeds.split(":"))), 0, 0
    for seed in seeds:
        try:
            skipped += check(seed, Path.cwd(), asked.kind) is not None
        except AssertionError as error:
            failed += 1
            print(" ".join(str(error).split())[:400], flush=True)  # noqa: T201
    print(f"{len(seeds)} networks: {failed} failed, {skipped} skipped")  # noqa: T201
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
