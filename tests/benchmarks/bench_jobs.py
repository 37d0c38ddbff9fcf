"""What `--jobs` gains: one process against several on the same recordings, each run in a fresh process.

Run it: python tests/benchmarks/bench_jobs.py [--nodes 32] [--side 128] [--jobs 2] [--rounds 3] [--folder DIRECTORY]

The net is a chain of int8 convolutions, which both commands replay. Both ways take turns, so that what else the machine
does meets both, and the fastest run of each counts. What they print must be the same to the byte; the benchmark ends
with 1 if it is not. The time is that of the whole command, with the start of its processes, each of which opens the
files and reads both graphs itself. The ratio of processor time says what sharing costs; it holds on a busy machine too,
where the ratio of time does not. Targets on as many free cores as processes: a ratio of time below 1, and of processor
time of at most 1.5.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import qdebug
from qdebug.model import QuantParams
from qdebug.numerics.affine import dequantize, quantize
from qdebug.replay.registry import run_node

FILES = ("ref.h5", "int8.h5")
CHANNELS = 32
STEP = 0.03


def write_pair(folder: Path, nodes: int, side: int) -> None:
    """Record a chain of convolutions in float32 and in int8, its codes rounded as ONNX Runtime does."""
    generator = np.random.default_rng(0)
    quant = QuantParams(dtype="int8", scale=STEP, zero_point=0)
    scale = np.float32(0.002)
    x = generator.standard_normal((1, CHANNELS, side, side)).astype(np.float32)
    codes = quantize(x, quant)
    attrs = {"pads": (1, 1, 1, 1), "kernel_shape": (3, 3)}
    with (
        qdebug.Recorder(folder / FILES[0], backend="float") as reference,
        qdebug.Recorder(folder / FILES[1], backend="int8") as backend,
    ):
        reference.put("x", x)
        backend.put("x", codes, scale=STEP, zero_point=0)
        for index in range(nodes):
            weight = generator.integers(-50, 51, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8)
            before, names = (f"y{index - 1}" if index else "x"), (f"w{index}", f"y{index}")
            said = {"node": f"n{index}", "op": "Conv", "inputs": (before, names[0]), "attrs": attrs}
            node = qdebug.model.Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",), attrs=attrs)
            real = weight * scale
            reference.constant(names[0], real)
            backend.constant(names[0], weight, scale=scale, zero_point=0)
            x = run_node(node, {"x": x, "w": real})["y"]
            codes = quantize(run_node(node, {"x": dequantize(codes, quant), "w": real})["y"], quant)
            reference.put(names[1], x, **said)
            backend.put(names[1], codes, scale=STEP, zero_point=0, **said)
        for recorder in (reference, backend):
            recorder.outputs(names[1])


def run(verb: str, pair: Path, jobs: int, folder: Path | None) -> tuple[float, float, bytes]:
    """Return the seconds and processor seconds of a command on a copy of the recordings, and what it prints."""
    files = FILES if verb == "diff" else FILES[1:]
    with tempfile.TemporaryDirectory(dir=folder) as where:  # results that were kept would answer for the same files
        for name in files:
            shutil.copy(pair / name, where)
        command = [sys.executable, "-m", "qdebug", verb, *files, "--json", "--jobs", str(jobs)]
        begin, used = time.perf_counter(), processor_seconds()
        done = subprocess.run(command, cwd=where, env=dict(os.environ), capture_output=True, check=False)
        seconds, used = time.perf_counter() - begin, processor_seconds() - used
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr.decode())
    return seconds, used, done.stdout


def processor_seconds() -> float:
    """Return the processor time of all commands that have ended, with that of their own processes."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=32, help="convolutions in the net")
    parser.add_argument("--side", type=int, default=128, help="height and width of its tensors")
    parser.add_argument("--jobs", type=int, default=2, help="processes that are compared with one")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; the fastest counts")
    parser.add_argument("--folder", type=Path, help="where the recordings are made; default: the temporary folder")
    options = parser.parse_args()
    table = Table(title=f"{options.nodes} convolutions of {CHANNELS} channels, {options.side} x {options.side}")
    for head in ("command", "1 process, s", f"{options.jobs} processes, s", "ratio", "ratio of CPU", "same bytes"):
        table.add_column(head, justify="left" if head == "command" else "right")
    alike = True
    with tempfile.TemporaryDirectory(dir=options.folder) as pair:
        write_pair(Path(pair), options.nodes, options.side)
        for verb in ("diff", "explain"):
            found: dict[int, list[tuple[float, float]]] = {1: [], options.jobs: []}
            said = set()
            for _ in range(options.rounds):
                for jobs, times in found.items():
                    seconds, used, printed = run(verb, Path(pair), jobs, options.folder)
                    times.append((seconds, used))
                    said.add(printed)
            (alone, used), (shared, more) = (tuple(map(min, zip(*times, strict=True))) for times in found.values())
            same = len(said) == 1
            alike &= same
            cells = (f"{each:.2f}" for each in (alone, shared, shared / alone, more / used))
            table.add_row(verb, *cells, "yes" if same else "NO")
    Console(width=120).print(table)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
