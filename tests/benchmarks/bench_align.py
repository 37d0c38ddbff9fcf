"""How fast tensors are paired by their values alone: 216 backend tensors among 504 reference tensors.

Run it: python tests/benchmarks/bench_align.py [--rounds 5]

The reference is a net of 72 blocks with 7 tensors each, 15 MB in all, random numbers. The backend has three of each
block, channels last, under other names, with an error of 10 dB. `search` is the search by values alone, both recordings
in memory and not read before, also in the time of the processor; `align` is the whole alignment. Best of the rounds.
Target: search below 0.2 s, at least 98 % right, none wrong.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from qdebug.compare.align.align import align
from qdebug.compare.align.by_data import pair_by_data
from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.model import Graph, MemoryRecording, Node, TensorInfo

BLOCKS, TENSORS = 72, 7
SHAPES = ((1, 8, 32, 32), (1, 16, 16, 16), (1, 32, 16, 16), (1, 64, 8, 8))
KEPT = (1, 3, 6)
NOISE = 10 ** (-10 / 20)


def recording(arrays: dict[str, np.ndarray]) -> MemoryRecording:
    """Record arrays of which nothing is known but their names."""
    graph = Graph(
        [Node(name=name, op="", outputs=(name,)) for name in arrays], tensors=[TensorInfo(name=name) for name in arrays]
    )
    return MemoryRecording.single(graph, arrays)


def runs(seed: int = 0) -> tuple[MemoryRecording, MemoryRecording, dict[str, str]]:
    """Make both recordings, and the true partner of each backend tensor."""
    rng = np.random.default_rng(seed)
    reference: dict[str, np.ndarray] = {}
    backend: dict[str, np.ndarray] = {}
    truth: dict[str, str] = {}
    for block in range(BLOCKS):
        shape = SHAPES[block * len(SHAPES) // BLOCKS]
        for place in range(TENSORS):
            values = rng.standard_t(5, shape).astype(np.float32)
            name = f"ref{block}.{place}"
            reference[name] = np.maximum(values, 0) if place % 2 else values
            if place in KEPT:
                noise = rng.normal(size=shape) * NOISE * np.sqrt(np.mean(np.square(reference[name])))
                turned = (reference[name] + noise).astype(np.float32).transpose(0, 2, 3, 1)
                backend[f"t{block * TENSORS + place}"] = np.ascontiguousarray(turned)
                truth[f"t{block * TENSORS + place}"] = name
    return recording(reference), recording(backend), truth


def main() -> None:
    """Print times and how many pairs are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    reference, backend, truth = runs()
    times: dict[str, list[float]] = {"search": [], "cpu": [], "align": []}
    pairs: dict[str, str] = {}
    with threadpool_limits(1):
        for _ in range(rounds):
            sides = IndexedRecording.of(reference), IndexedRecording.of(backend)
            started = time.perf_counter()
            busy = time.process_time()
            pairs = {pair.backend: pair.reference for pair in pair_by_data(Context(ref=sides[0], be=sides[1]))}
            times["search"].append(time.perf_counter() - started)
            times["cpu"].append(time.process_time() - busy)
            started = time.perf_counter()
            align(reference, backend)
            times["align"].append(time.perf_counter() - started)
    right = sum(pairs.get(name) == partner for name, partner in truth.items())
    table = Table("reference", "backend", "right", "wrong", "search s", "processor s", "align s")
    shown = f"{right} ({100 * right / len(truth):.1f} %)"
    counts = str(len(reference.names)), str(len(backend.names)), shown, str(len(pairs) - right)
    table.add_row(*counts, *(f"{min(taken):.3f}" for taken in times.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
