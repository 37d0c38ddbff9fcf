"""How often the interval of a sketch holds the true squared error, its time, and the size of many sketches.

    python tests/benchmarks/sketch_intervals.py              the interval on 1,000 random pairs, and times
    python tests/benchmarks/sketch_intervals.py --run FOLDER 1,728 tensors at 40 steps, recorded and compared in FOLDER

The pairs have errors of every kind that occurs: in all elements, in a few, in one channel, of low rank, with heavy
tails, and as small as the rounding of float32. The exit code is 1 if the interval fails in more than 5 of 1,000.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import qdebug
from qdebug.numerics.sketch import squared_error, take_sketch

PAIRS, ALLOWED = 1000, 5
TENSORS, STEPS = 36 * 12 * 4, 40


def errors_of(kind: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return an error of a kind, one-dimensional."""
    error = np.zeros(size)
    if kind == "dense":
        error = rng.normal(size=size)
    elif kind == "heavy":
        error = rng.standard_cauchy(size=size)
    elif kind == "few":
        places = rng.integers(0, size, rng.integers(1, 20))
        error[places] = rng.normal(size=places.size)
    elif kind == "equal":
        error[rng.integers(0, size, 4)] = 1.0
    elif kind == "channel":
        width = int(2 ** rng.integers(3, 9))
        error[: size // width * width].reshape(-1, width)[:, rng.integers(width)] = 0.5
    elif kind == "low rank":
        width = int(2 ** rng.integers(3, 13))
        rows = size // width
        error[: rows * width] = np.outer(rng.normal(size=rows), rng.normal(size=width)).ravel()
    elif kind == "constant":
        error[:] = 1.0
    return error


def check_interval(pairs: int) -> int:
    """Print how often the interval holds for each kind of error. Return the number of failures."""
    rng = np.random.default_rng(1)
    kinds = ["dense", "heavy", "few", "equal", "channel", "low rank", "constant", "rounding"]
    tried, failed, ratios = Counter[str](), Counter[str](), []
    for number in range(pairs):
        kind, size = kinds[number % len(kinds)], int(10 ** rng.uniform(2, 5.5))
        reference = rng.normal(size=size) * 10 ** rng.uniform(-3, 3)
        if kind == "rounding":
            backend = reference.astype(np.float32).astype(np.float64)
        else:
            backend = reference + errors_of(kind, size, rng) * 10 ** rng.uniform(-4, 1) * np.abs(reference).mean()
        true = float(np.sum((backend - reference) ** 2))
        sketches = [take_sketch(side, None) for side in (reference, backend)]
        assert sketches[0] is not None and sketches[1] is not None  # noqa: PT018
        error = squared_error(*sketches)
        assert error is not None
        tried[kind] += 1
        failed[kind] += not error.low <= true <= error.high
        if error.low > 0:
            ratios.append(error.estimate / true)
    for kind in kinds:
        print(f"{kind:10} interval holds in {tried[kind] - failed[kind]} of {tried[kind]}")
    print(f"estimate / true: mean {np.mean(ratios):.3f}, standard deviation {np.std(ratios):.3f} (theory <= 0.177)")
    return failed.total()


def time_sketch() -> None:
    """Print the time of one sketch of 64 MB."""
    array = np.random.default_rng(0).normal(size=1 << 24).astype(np.float32)
    take_sketch(array[:8192], None)
    start = time.perf_counter()
    take_sketch(array, None)
    print(f"sketch of 64 MB float32: {time.perf_counter() - start:.2f} s")


def record_many(folder: Path) -> None:
    """Record two runs of many sketches, compare them, and print size, time and memory."""
    for name, noise in (("ref", 0.0), ("new", 1e-4)):
        rng = np.random.default_rng(0)
        with qdebug.Recorder(folder / f"{name}.h5", backend="engine", keep="sketch", force=True) as rec:
            for step in range(STEPS):
                rec.at(0, step)
                for number in range(TENSORS):
                    values = rng.normal(size=128).astype(np.float32)
                    rec.put(f"layers.{number // 48}.t{number % 48}", values * np.float32(1 + noise))
        print(f"{name}: {(folder / f'{name}.h5').stat().st_size / 1e6:.1f} MB for {TENSORS * STEPS} sketches")
    start = time.perf_counter()
    files = [folder / "ref.h5", folder / "new.h5"]
    subprocess.run([sys.executable, "-m", "qdebug", "diff", *files, "-o", folder / "diff.txt", "--force"], check=False)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"diff: {time.perf_counter() - start:.1f} s, {peak:.0f} MB")


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="record and compare many sketches in FOLDER")
    options = parser.parse_args()
    if options.run is not None:
        record_many(options.run)
        return 0
    failures = check_interval(PAIRS)
    time_sketch()
    print(f"{failures} of {PAIRS} intervals do not hold; {ALLOWED} may")
    return failures > ALLOWED


if __name__ == "__main__":
    sys.exit(main())
