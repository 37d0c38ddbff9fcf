"""Print all that is promised of recordings, how often it was tried, and kept: power cuts, kills, hostile files.

    python tests/attacks/table.py FOLDER                whole, which takes hours
    python tests/attacks/table.py FOLDER --share 0.1    a tenth of everything

FOLDER is on the disk to try. It is `durability.py` and `hostile.py` one after the other; each says more with `--help`.
The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MUTATIONS, STATES, KILLS, FAILURES = 200_000, 10_000, 1_000, 300


def main() -> int:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder on the disk to try")
    parser.add_argument("--share", type=float, default=1.0, metavar="X", help="so much of everything (default: 1)")
    options = parser.parse_args()

    def some(count: int) -> str:
        return str(max(1, round(count * options.share)))

    counts = ["--states", some(STATES), "--kills", some(KILLS), "--failures", some(FAILURES)]
    runs = (
        ["durability.py", str(options.folder), *counts],
        ["hostile.py", "--share", str(options.share), "--mutations", some(MUTATIONS)],
    )
    codes = [subprocess.run([sys.executable, HERE / name, *words], check=False).returncode for name, *words in runs]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
