"""How soon a tensor is seen by a process that follows a recording, and whether what it sees is right.

Run it: python tests/benchmarks/bench_follow.py [--folder /dev/shm] [--count 1500] [--rate 1000] [--poll-ms 20]

One process puts tensors of 400 KB at a rate, each with the moment it was put in it; another polls, and loads and checks
each one. The latency is from the moment before `put` to the moment at which the values are verified. Both have loaded
qdebug before the first tensor is put, as a screen that waits for a run has.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from qdebug.recording.reading.follow import FollowedRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import journal_of

ELEMENTS = 50_000


def record(path: Path, count: int, rate: float) -> None:
    """Put tensors, one each 1/rate seconds."""
    values = np.arange(ELEMENTS, dtype=np.float64)
    with Recorder(path, backend="bench") as recorder:
        begin = time.monotonic()
        for number in range(count):
            while time.monotonic() < begin + number / rate:
                time.sleep(0.0001)
            values[1:] = np.arange(number, number + ELEMENTS - 1)
            values[0] = time.monotonic()
            recorder.put(f"tensor_{number}", values, node=f"node_{number}", op="Relu")


def follow(path: Path, poll: float) -> tuple[list[float], int]:
    """Return the latency of each tensor in seconds, and how many were wrong."""
    while not journal_of(path).exists():
        time.sleep(0.001)
    latencies, wrong = [], 0
    with FollowedRecording(path) as recording:
        names, going = list(recording.names), True
        while going or names:
            for name in names:
                values = recording.load(name)
                latencies.append(time.monotonic() - float(values[0]))
                number = int(name.removeprefix("tensor_"))
                wrong += not np.array_equal(values[1:], np.arange(number, number + ELEMENTS - 1))
            time.sleep(poll)
            going = recording.state == "writing"
            names = list(recording.refresh())
    return latencies, wrong


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared_memory = Path("/dev/shm")  # noqa: S108  a RAM disk, where there is one
    parser.add_argument("--folder", type=Path, default=shared_memory if shared_memory.is_dir() else None)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--rate", type=float, default=1000.0, help="tensors a second")
    parser.add_argument("--poll-ms", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "run.h5"
        writer = multiprocessing.get_context("spawn").Process(target=record, args=(path, options.count, options.rate))
        writer.start()
        latencies, wrong = follow(path, options.poll_ms / 1000)
        writer.join()
    pace = f"{options.rate:g} Hz, polling each {options.poll_ms:g} ms"
    table = Table(title=f"Following {options.count} tensors of 400 KB at {pace}")
    for head in ("seen", "wrong", "median ms", "90 % ms", "99 % ms", "largest ms"):
        table.add_column(head, justify="right")
    shares = np.percentile(latencies, [50, 90, 99, 100]) * 1e3
    table.add_row(str(len(latencies)), str(wrong), *(f"{share:.1f}" for share in shares))
    Console(width=120).print(table)
    return 0 if len(latencies) == options.count and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
