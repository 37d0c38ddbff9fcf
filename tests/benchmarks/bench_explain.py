"""How fast quantized arithmetic is replayed, as ratios to NumPy and as rates.

Run it: python tests/benchmarks/bench_explain.py [--rounds 7] [--recording FILE.h5]

Every figure is the best of several rounds, in processor time on one thread of BLAS. Targets: integer sums of a
convolution, from codes to sums, at no less than half the speed of NumPy's float32 matrix product of the same
multiplications; requantization of 300 million sums a second for one multiplication or one shift, 100 million with two
roundings; 50,000 variants a second on samples of up to 1,024 elements. With a recording of a quantized run: what
explaining its first sample takes on one core, 3 seconds for a net of 53 convolutions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import qdebug
from qdebug.arithmetic.candidates import candidates
from qdebug.compare.measure.recordings import OneSample
from qdebug.replay import Columns, Operand, Target, Unit, accumulate, finish, finish_many, parse_variant

SHAPES = (
    ("3 x 3, 64 to 64 channels, 56 x 56", (1, 64, 56, 56), (64, 64, 3, 3), 1),
    ("3 x 3, 256 to 256 channels, 14 x 14", (1, 256, 14, 14), (256, 256, 3, 3), 1),
    ("1 x 1, 256 to 128 channels, 28 x 28", (1, 256, 28, 28), (128, 256, 1, 1), 0),
    ("3 x 3, 3 to 32 channels, 224 x 224", (1, 3, 224, 224), (32, 3, 3, 3), 1),
)
REQUANTIZATIONS = (
    ("float32, ties to even", "m=f32", 300),
    ("float32, zero point inside", "steps=mul,zp,even,sat", 300),
    ("one shift, ties up", "m=q31:d:xw/y steps=mul,shr.up,zp,sat", 300),
    ("24-bit significand, ties up", "m=m24 steps=mul,shr.up,zp,sat", 300),
    ("power of two, ties up", "m=pow2 steps=shr.up,zp,sat", 300),
    ("one shift, ties away", "m=q31:d:xw/y steps=mul,shr.away,zp,sat", 100),
    ("two roundings, up and away", "m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat", 100),
    ("two roundings, up and up", "m=q31:d:xw/y steps=shl,mulhi.up,shr.up,zp,sat", 100),
    ("shift, product, shift", "m=glow steps=pre.floor,mul,wrap32,shr.up,wrap32,zp,sat", 100),
)
Row = tuple[str, str, str, str]


def best(job: Callable[[], object], rounds: int) -> float:
    """Return the processor seconds of the fastest of several calls: what else the machine does hardly counts."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def conv_unit(
    rng: np.random.Generator, x_shape: tuple[int, ...], w_shape: tuple[int, ...], pad: int, *, per_channel: bool = False
) -> Unit:
    """Make a quantized convolution of random codes."""
    scale = rng.random((w_shape[0], 1, 1, 1)).astype(np.float32) * 0.01 + 0.001 if per_channel else np.float32(0.005)
    x = Operand(
        codes=rng.integers(0, 256, x_shape).astype(np.uint8),
        scale=np.asarray(np.float32(0.02)),
        zero_point=np.asarray(np.uint8(121)),
    )
    w = Operand(
        codes=rng.integers(-127, 128, w_shape).astype(np.int8),
        scale=np.asarray(scale),
        zero_point=np.zeros((), np.int8),
    )
    out = Target(dtype=np.dtype(np.int8), scale=np.asarray(np.float32(0.08)), zero_point=np.asarray(np.int8(3)))
    bias = rng.integers(-999, 1000, w_shape[0]).astype(np.int32)
    return Unit(kind="conv", operands=(x, w), out=out, bias=bias, attrs={"pads": (pad,) * 4})


def sums(rng: np.random.Generator, rounds: int) -> Iterator[Row]:
    """Compare convolutions from codes to sums with the float32 product of the same matrices, made beforehand."""
    how = parse_variant("m=f32").sums
    for title, x_shape, w_shape, pad in SHAPES:
        unit = conv_unit(rng, x_shape, w_shape, pad)
        columns = accumulate(unit, how)
        depth, places = int(np.prod(w_shape[1:])), columns.size // w_shape[0]
        left = rng.random((w_shape[0], depth), np.float32)
        right = rng.random((depth, places), np.float32)
        out = np.empty((w_shape[0], places), np.float32)
        ours = best(lambda unit=unit: accumulate(unit, how), rounds)
        theirs = best(lambda left=left, right=right, out=out: np.matmul(left, right, out=out), rounds)
        rate = 2 * columns.size * depth / ours / 1e9
        yield f"sums, {title}", f"{rate:.0f} GFLOP/s", f"{theirs / ours:.2f} of float32", "0.50 of float32"


def requantizations(rng: np.random.Generator, rounds: int) -> Iterator[Row]:
    """Turn 8 million sums into codes, per tensor and per channel."""
    shape = (32, 64, 64, 64)
    values = rng.integers(-100_000, 100_000, shape).astype(np.float32)
    for per_channel in (False, True):
        unit = conv_unit(rng, (1, 1, 1, 1), (64, 1, 1, 1), 0, per_channel=per_channel)
        for title, text, target in REQUANTIZATIONS:
            variant = parse_variant(text)
            columns = Columns(sums=variant.sums, values=(values,), shape=shape, bound=1e5)
            seconds = best(lambda u=unit, c=columns, v=variant: finish(u, c, v), rounds)
            which = "per channel" if per_channel else "per tensor"
            yield f"{title}, {which}", f"{values.size / seconds / 1e6:.0f} M/s", "", f"{target} M/s"


def samples(rng: np.random.Generator, rounds: int) -> Iterator[Row]:
    """Try all variants of a convolution on samples of its elements."""
    unit = conv_unit(rng, (1, 16, 32, 32), (32, 16, 3, 3), 1, per_channel=True)
    every = candidates(unit)
    variants = [variant for variant in every if variant.sums == every[0].sums]
    columns = accumulate(unit, every[0].sums)
    for size in (256, 1024):
        chosen = columns.take(rng.integers(0, columns.size, size))
        seconds = best(lambda c=chosen: finish_many(unit, c, variants), 5 * rounds)
        yield f"{len(variants)} variants on {size} elements", f"{len(variants) / seconds:,.0f} /s", "", "50,000 /s"


def recording(path: Path, rounds: int) -> Iterator[Row]:
    """Explain all nodes of a recorded run on its first sample."""
    held = qdebug.open_recording(path)
    only = OneSample(held, 0) if held.samples > 1 else held
    times = []
    for _ in range(min(rounds, 3)):
        start = time.process_time()
        explanation = qdebug.explain(only)
        times.append(time.process_time() - start)
    tried = sum(node.tried for node in explanation.nodes)
    counts = explanation.summary
    title = f"{path.name}: {counts['explained']} nodes explained, {counts['unexplained']} not, {tried:,} tries"
    yield title, f"{min(times):.2f} s", "", "3 s"


def main() -> int:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of which the best counts")
    parser.add_argument("--recording", type=Path, help="a recording of a quantized run, to be explained")
    options = parser.parse_args()
    rounds = options.rounds
    table = Table("what", "rate", "ratio", "target")
    rng = np.random.default_rng(0)
    with threadpool_limits(1):
        for rows in (sums, requantizations, samples):
            for row in rows(rng, rounds):
                table.add_row(*row)
        for row in recording(options.recording, rounds) if options.recording else ():
            table.add_row(*row)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
