"""How fast two recordings are compared, and in how much memory, on synthetic recordings in a temporary folder.

Run it: python tests/benchmarks/bench_diff.py [--sizes 1 6] [--tiny 20000] [--folder DIRECTORY] [--rounds 3]

The recordings hold float32 tensors with no operator that can be replayed, and kept results are not used: what is timed
is aligning, reading and comparing.
Targets: at least 0.5 GB/s of input on one core from the page cache; the peak resident memory of a process that compares
large recordings within 1.1 times that of one that compares small ones, and under 300 MB. It counts the pages of mapped
files, which the system keeps in memory anyway.

A second table is of many tensors of 1 KB each, once without an operator that can be replayed and once with: there the
time for each tensor counts, most of which is finding it in the file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import qdebug
from qdebug.session import DiffSession

TENSOR = (1, 64, 256, 256)
NODE_BYTES = 4 * int(np.prod(TENSOR))


def write_pair(folder: Path, gigabytes: float) -> tuple[Path, Path]:
    """Record a chain of nodes twice, the second time with a little noise; the size is that of both together."""
    count = max(1, round(gigabytes * 1e9 / 2 / NODE_BYTES))
    generator = np.random.default_rng(0)
    values = generator.standard_normal(TENSOR).astype(np.float32)
    noise = generator.standard_normal(TENSOR).astype(np.float32) * np.float32(1e-4)
    paths = folder / f"ref-{gigabytes:g}.h5", folder / f"backend-{gigabytes:g}.h5"
    for path, array in zip(paths, (values, values + noise), strict=True):
        with qdebug.Recorder(path, backend="synthetic") as recorder:
            before = ()
            for index in range(count):
                array.flat[0] = index  # equal tensors are stored once
                recorder.put(f"t{index}", array, node=f"n{index}", op="Synthetic", inputs=before)
                before = (f"t{index}",)
    return paths


def write_tiny(folder: Path, count: int, op: str) -> tuple[Path, Path]:
    """Record a chain of nodes with 256 float32 elements each twice, the second time with a little noise."""
    generator = np.random.default_rng(0)
    paths = folder / f"ref-{op}.h5", folder / f"backend-{op}.h5"
    recorders = [qdebug.Recorder(path, backend="synthetic") for path in paths]
    with recorders[0] as reference, recorders[1] as backend:
        before = ()
        for index in range(count):
            values = np.abs(generator.standard_normal(256)).astype(np.float32)
            noisy = values + generator.standard_normal(256).astype(np.float32) * np.float32(1e-4)
            for recorder, array in ((reference, values), (backend, noisy)):
                recorder.put(f"t{index}", array, node=f"n{index}", op=op, inputs=before)
            before = (f"t{index}",)
    return paths


def compare(paths: list[str]) -> int:
    """Compare in this process and print seconds and peak memory as JSON."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        begin, used = time.perf_counter(), time.process_time()
        session = DiffSession(*map(qdebug.open_recording, paths))
        aligned = time.perf_counter() - begin
        result = session.result()
        seconds, used = time.perf_counter() - begin, time.process_time() - used
    facts = {"seconds": seconds, "cpu": used, "tensors": result.coverage.compared, "peak": peak_memory()}
    facts |= {"align": aligned, "compare": session.timing.comparing, "replay": session.timing.replaying}
    print(json.dumps(facts))
    return 0


def peak_memory() -> float:
    """Return this process's peak resident memory in MB."""
    import resource

    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage counts what the parent had before this program was loaded, too
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measured(paths: tuple[Path, Path], rounds: int) -> dict[str, float]:
    """Compare in fresh processes; give the fastest."""
    command = [sys.executable, str(Path(__file__).resolve()), "--compare", *map(str, paths)]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(rounds)]
    return min(runs, key=lambda run: run["seconds"])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=(1.0, 6.0), help="GB of both recordings together")
    parser.add_argument("--tiny", type=int, default=20_000, help="tensors of 1 KB in the second table; 0 for none")
    parser.add_argument("--folder", type=Path, help="where the recordings are made; default: the temporary folder")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes for each size; the fastest counts")
    parser.add_argument("--compare", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        return compare(options.compare)
    table = Table(title="Two float32 recordings compared, one core")
    for head in ("GB", "tensors", "s", "CPU s", "GB/s", "GB/s of CPU", "peak MB"):
        table.add_column(head, justify="right")
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            paths = write_pair(Path(folder), size)
            total = sum(path.stat().st_size for path in paths) / 1e9
            run = measured(paths, options.rounds)
        table.add_row(
            f"{total:.2f}",
            f"{run['tensors']:.0f}",
            f"{run['seconds']:.2f}",
            f"{run['cpu']:.2f}",
            f"{total / run['seconds']:.2f}",
            f"{total / run['cpu']:.2f}",
            f"{run['peak']:.0f}",
        )
    Console(width=120).print(table)
    if options.tiny:
        Console(width=120).print(tiny_table(options.tiny, options.folder, options.rounds))
    return 0


def tiny_table(count: int, folder: Path | None, rounds: int) -> Table:
    """Time many small tensors, in microseconds for each."""
    table = Table(title=f"{count:,} tensors of 1 KB, us for each")
    for head in ("operator", "in all", "align", "read, compare", "replay", "peak MB"):
        table.add_column(head, justify="right")
    for op in ("Synthetic", "Relu"):
        with tempfile.TemporaryDirectory(dir=folder) as where:
            run = measured(write_tiny(Path(where), count, op), rounds)
        parts = (run[name] / count * 1e6 for name in ("seconds", "align", "compare", "replay"))
        table.add_row(op, *(f"{part:.0f}" for part in parts), f"{run['peak']:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
