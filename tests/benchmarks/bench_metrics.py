"""How fast the error metrics are, as ratios to plain numpy and to Polygraphy on the same arrays in the same run.

Run it: python tests/benchmarks/bench_metrics.py [--sizes 256 65536] [--rounds 9]

Every figure is the best of several interleaved rounds, because a ratio of two bests hardly depends on what
else the machine does. BLAS is held to one thread. Targets: at 16M elements at least 0.13 of the speed of
np.dot, which does nothing but read both arrays; at 1M elements and more at least 10 times faster than one float64
expression per metric; at 64k elements and more at least 15 times faster than Polygraphy's CompareFunc.simple; the full
tier (one tensor in full detail) no slower than two passing numpy.testing.assert_allclose. Polygraphy is compared where
it is installed. Below 64k elements most of the time is the cost of calling numpy.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from qdebug.model import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.profile import profile_tensor

SIZES = (256, 1024, 65_536, 2**20, 2**24)
POLYGRAPHY_MOST = 2**20
"""Elements beyond which one call of Polygraphy's takes too long to repeat."""
QUANT = QuantParams(dtype="int8", scale=np.float32(0.02), zero_point=3)


def full_report(a: np.ndarray, b: np.ndarray, **quants: QuantParams) -> object:
    """Compute every metric in one blocked pass."""
    accumulator = ErrorAccumulator(**quants)
    accumulator.update(a, b, sample=0)
    return accumulator.stats()


def naive_report(reference: np.ndarray, backend: np.ndarray) -> tuple[object, ...]:
    """Compute the same metrics by one float64 expression each."""
    a, b = reference.astype(np.float64), backend.astype(np.float64)
    nonzero = a != 0
    return (
        np.abs(b - a).max(),
        np.abs(b - a).mean(),
        np.sqrt(((b - a) ** 2).mean()),
        (np.abs(b - a)[nonzero] / np.abs(a[nonzero])).max(),
        np.count_nonzero(a == 0),
        np.linalg.norm(b - a) / np.linalg.norm(a),
        10 * np.log10((a**2).sum() / ((b - a) ** 2).sum()),
        (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()),
        np.count_nonzero(a != b),
        np.count_nonzero(~(np.isfinite(a) & np.isfinite(b))),
        np.abs(b - a).argmax(),
        (a.min(), a.max(), b.min(), b.max()),
    )


def polygraphy_job(a: np.ndarray, b: np.ndarray) -> Callable[[], object] | None:
    """Return a call of Polygraphy's elementwise comparison; None where it is not installed."""
    if find_spec("polygraphy") is None:
        return None
    from polygraphy import comparator
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    simple = getattr(comparator, "SimpleCompareFunc", None) or comparator.CompareFunc.simple  # the newer name first
    sides = [
        comparator.IterationResult(outputs={"x": side}, runner_name=name) for name, side in (("ref", a), ("backend", b))
    ]
    return partial(simple(atol=1, rtol=1, check_error_stat="elemwise"), *sides)


def best_times(jobs: dict[str, Callable[[], object]], rounds: int, repeats: int) -> dict[str, float]:
    """Time each job `repeats` times in a row, in interleaved rounds; give the best seconds per call."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            begin = time.perf_counter()
            for _ in range(repeats):
                job()
            best[name] = min(best[name], (time.perf_counter() - begin) / repeats)
    return best


def measure(size: int, rounds: int) -> list[str]:
    """Time one size and give the cells of its row."""
    generator = np.random.default_rng(0)
    a = generator.standard_normal(size).astype(np.float32)
    b = a + generator.standard_normal(size).astype(np.float32) * np.float32(1e-3)
    codes = [np.clip(np.rint(side / 0.02) + 3, -128, 127).astype(np.int8) for side in (a, b)]
    jobs: dict[str, Callable[[], object]] = {
        "full": lambda: full_report(a, b),
        "dot": lambda: np.dot(a, b),
        "naive": lambda: naive_report(a, b),
        "allclose": lambda: np.testing.assert_allclose(b, a, rtol=1, atol=1),
        "int8": lambda: full_report(codes[0], codes[1], reference_quant=QUANT, backend_quant=QUANT),
        "detail": lambda: profile_tensor(a, b),
    }
    polygraphy = polygraphy_job(a, b) if size <= POLYGRAPHY_MOST else None
    if polygraphy is not None:
        jobs["polygraphy"] = polygraphy
    times = best_times(jobs, rounds, max(1, min(100, 2**17 // size)))
    full = times["full"]
    return [
        f"{size:,}",
        f"{full * 1e6:,.0f}",
        f"{8 * size / full / 1e9:.2f}",
        f"{times['dot'] / full:.3f}",
        f"{times['naive'] / full:.1f}",
        f"{times['allclose'] / full:.2f}",
        f"{times['polygraphy'] / full:.0f}" if "polygraphy" in times else "-",
        f"{times['int8'] / full:.2f}",
        f"{times['detail'] / times['allclose']:.2f}",
    ]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="elements per tensor")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds; the best counts")
    options = parser.parse_args()
    table = Table(title="Error metrics of a float32 pair, one thread (allclose: a passing assert_allclose)")
    for head in (
        "elements",
        "us",
        "GB/s",
        "of np.dot's speed",
        "x naive float64",
        "allclose / full",
        "x Polygraphy",
        "int8 pair / float32",
        "full tier / allclose",
    ):
        table.add_column(head, justify="right")
    with threadpool_limits(1):
        for size in options.sizes:
            table.add_row(*measure(size, options.rounds))
    Console(width=160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
