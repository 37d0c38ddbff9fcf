"""Record and be killed, many times over: print what became of each run, one JSON line a run.

Usage: killed_run.py FOLDER WORKLOAD SEED RUNS. A forked child records, and tells of each put that has returned by a
byte in a pipe; it is killed at a random moment. The recording is recovered and every array compared with what was put.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from qdebug.errors import NotARecordingError
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.recovery import recover

WORKLOADS = {"few": (100, 256, 2 << 20), "large": (400, 256, 2 << 20), "tiny": (5000, 16, 1000)}


def sizes(workload):
    """Return the number of elements of each array: up to 2 MB, or up to 1 KB."""
    count, low, high = WORKLOADS[workload]
    spread = np.random.default_rng(0).uniform(np.log(low), np.log(high), count)
    return (np.exp(spread) / 4).astype(int).tolist()


def values(number, size):
    """Return the array that is put as number so-and-so; no two are equal."""
    return np.arange(number, number + size, dtype=np.uint32)


def record(path, workload, acknowledge):
    """Put everything, and tell after each put."""
    with Recorder(path, backend="b") as rec:
        for number, size in enumerate(sizes(workload)):
            rec.put(f"t{number}", values(number, size), node=f"n{number}", op="Relu", inputs=(f"t{number - 1}",))
            os.write(acknowledge, b".")


def run(path, workload, delay):
    """Record in a child that is killed after a delay; give how many puts had returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        record(path, workload, writer)
        os._exit(0)
    os.close(writer)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    acknowledged = 0
    while chunk := os.read(reader, 1 << 16):
        acknowledged += len(chunk)
    os.close(reader)
    return acknowledged


def judge(path, workload, acknowledged):
    """Recover a recording and compare it; give what was wrong."""
    finished = path.exists()
    try:
        done = None if finished else recover(path)
    except NotARecordingError:
        return {"acknowledged": acknowledged, "back": 0, "wrong": acknowledged, "finished": finished}
    wrong = 0 if finished else len(done.lost)
    with FileRecording(path) as recording:
        back = set(recording.names)
        for number, size in enumerate(sizes(workload)):
            name = f"t{number}"
            if name in back:
                wrong += not np.array_equal(recording.load(name), values(number, size))
                wrong += recording.graph.producer(name).name != f"n{number}"
            else:
                wrong += number < acknowledged
        wrong += recording.info.complete is not (finished or done.complete)
        wrong += recording.info.complete and len(back) < len(sizes(workload))
    path.unlink()
    left = [entry.name for entry in path.parent.iterdir() if entry.name.startswith(path.name)]
    return {
        "acknowledged": acknowledged,
        "back": len(back),
        "wrong": wrong + len([name for name in left if not name.endswith(".lock")]),
        "finished": finished,
    }


def main():
    os.fsync = lambda _: None  # only a power cut would show, and it takes most of the time
    folder, workload, seed, runs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)  # noqa: S311  seeded on purpose
    whole = 0.0
    for attempt in range(2):  # the first also loads what is needed, which no child does: all would be done by then
        begin = time.perf_counter()
        record(folder / f"whole{attempt}.h5", workload, os.open(os.devnull, os.O_WRONLY))
        whole = time.perf_counter() - begin
    for number in range(runs):
        path = folder / f"{number}.h5"
        acknowledged = run(path, workload, rng.uniform(0, whole))
        print(json.dumps(judge(path, workload, acknowledged)), flush=True)


if __name__ == "__main__":
    main()
