"""How fast recordings are written and read, as ratios to a raw os.write of the same bytes in the same run.

Run it: python tests/benchmarks/bench_store.py [--folder /dev/shm] [--rounds 5] [--scale 1.0]

Every figure is the best of several interleaved rounds on fresh files, without fsync: put the folder on a RAM disk, or
the disk is what is measured. "raw" is one open and one os.write per tensor; a recording also hashes the values, keeps
a journal, and verifies itself when it is closed, which is part of its time. The sets "net, 55 KB" and "net, 2 KB" have
the sizes of real nets, 230 tensors with that median. "mixed" has large tensors, 2.2 MB on average: what costs by
the byte. Each row is printed as soon as it is measured. Targets: mixed at most 1.25 times raw and
0.65 times np.savez, large at most 1.15 times raw, tiny at most 20 us each and a tenth of create_dataset with eight
attributes, at most 1.2 KB a tensor beyond its values, a tensor of 800 bytes that comes with each sample at most 12
times two bare pwrite and a hash, opening 100,000 tensors at most 100 ms, a manifest of 3,000 recordings of one net at
most 3 s.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np
import xxhash
from streamed import StreamedTable

from qdebug.model import Graph, Node, RunInfo
from qdebug.recording.reading.opening import JoinedRecording, Part
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.write import RecordingWriter

Writer = Callable[[Path, Sequence[np.ndarray]], None]
INFO = RunInfo(backend="bench")


def mixed(scale: float) -> list[np.ndarray]:
    """Make the activations of a ResNet-like network: int8 and float32, 10 KB to 12 MB."""
    generator = np.random.default_rng(0)
    sizes = np.exp(generator.uniform(np.log(10_000), np.log(12_000_000), int(180 * scale))).astype(int)
    noise = generator.standard_normal(4 << 20, dtype=np.float32)
    codes = generator.integers(-128, 128, 16 << 20, dtype=np.int8)
    return [
        (np.roll(noise[: size // 4], 1) + np.float32(number) if number % 2 else codes[:size] ^ np.int8(number % 100))
        for number, size in enumerate(sizes)
    ]


def net(scale: float, median: int) -> list[np.ndarray]:
    """Make the activations of a net of 230 tensors whose sizes have a median: half float32, half int8."""
    generator = np.random.default_rng(4)
    sizes = np.exp(generator.standard_normal(max(2, int(230 * scale))) * 1.2)
    sizes = np.maximum(sizes * median / np.median(sizes), 4).astype(int)
    return [
        generator.standard_normal(size // 4, np.float32) if number % 2 else generator.integers(-128, 128, size, np.int8)
        for number, size in enumerate(sizes.tolist())
    ]


def large(scale: float) -> list[np.ndarray]:
    """Make tensors of 25 MB."""
    block = np.random.default_rng(1).standard_normal(6_250_000, dtype=np.float32)
    return [block + np.float32(number) for number in range(max(1, int(20 * scale)))]


def tiny(scale: float) -> list[np.ndarray]:
    """Make tensors of less than 1 KB."""
    generator = np.random.default_rng(2)
    return [
        generator.standard_normal(size, dtype=np.float32)
        for size in generator.integers(1, 256, int(20_000 * scale)).tolist()
    ]


def raw(path: Path, tensors: Sequence[np.ndarray]) -> None:
    """Write the bytes and nothing else."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for tensor in tensors:
        os.write(descriptor, memoryview(tensor).cast("B"))
    os.close(descriptor)


def writer(path: Path, tensors: Sequence[np.ndarray]) -> None:
    """Write a recording with the writer alone."""
    target = RecordingWriter(path, force=True)
    for number, tensor in enumerate(tensors):
        target.append(f"tensor_{number}", tensor)
    target.close(Graph(), INFO)


def recorder(path: Path, tensors: Sequence[np.ndarray]) -> None:
    """Write a recording as a harness does, with a node for each tensor."""
    with Recorder(path, backend="bench", force=True) as target:
        for number, tensor in enumerate(tensors):
            target.put(f"tensor_{number}", tensor, node=f"node_{number}", op="Conv", inputs=(f"tensor_{number - 1}",))


def in_background(path: Path, tensors: Sequence[np.ndarray]) -> None:
    """Write the same in a thread."""
    with Recorder(path, backend="bench", force=True, background=True) as target:
        for number, tensor in enumerate(tensors):
            target.put(f"tensor_{number}", tensor, node=f"node_{number}", op="Conv", inputs=(f"tensor_{number - 1}",))


def h5py_datasets(path: Path, tensors: Sequence[np.ndarray]) -> None:
    """Write one dataset per tensor with h5py's defaults."""
    with h5py.File(path, "w") as file:
        for number, tensor in enumerate(tensors):
            file.create_dataset(f"tensor_{number}", data=tensor)


def h5py_attributes(path: Path, tensors: Sequence[np.ndarray]) -> None:
    """Write one dataset per tensor with eight attributes, as is often done."""
    with h5py.File(path, "w") as file:
        for number, tensor in enumerate(tensors):
            dataset = file.create_dataset(f"tensor_{number}", data=tensor)
            for name in ("scale", "zero_point", "axis", "qmin", "qmax", "sample", "step"):
                dataset.attrs[name] = number
            dataset.attrs["node"] = f"node_{number}"


def savez(path: Path, tensors: Sequence[np.ndarray]) -> None:
    """Write a npz file."""
    with path.open("wb") as file:
        np.savez(file, **{f"tensor_{number}": tensor for number, tensor in enumerate(tensors)})


WRITERS: dict[str, Writer] = {
    "raw": raw,
    "writer": writer,
    "Recorder": recorder,
    "Recorder, background": in_background,
    "h5py create_dataset": h5py_datasets,
    "create_dataset, 8 attributes": h5py_attributes,
    "np.savez": savez,
}


SETS: dict[str, Callable[[float], list[np.ndarray]]] = {
    "mixed": mixed,
    "net, 55 KB": lambda scale: net(scale, 55_000),
    "net, 2 KB": lambda scale: net(scale, 2_000),
    "large": large,
    "tiny": tiny,
}


def best_times(tensors: Sequence[np.ndarray], folder: Path, rounds: int) -> tuple[dict[str, float], dict[str, int]]:
    """Time each writer in interleaved rounds; give the best seconds and the size of the file of each."""
    best, sizes = dict.fromkeys(WRITERS, float("inf")), {}
    for _ in range(rounds):
        for name, write in WRITERS.items():
            path = folder / "bench.bin"
            begin = time.perf_counter()
            write(path, tensors)
            best[name] = min(best[name], time.perf_counter() - begin)
            sizes[name] = path.stat().st_size
            path.unlink()
    return best, sizes


def writing(folder: Path, rounds: int, scale: float) -> None:
    """Time all writers on all sets."""
    table = StreamedTable(
        "Writing, against raw os.write of the same bytes",
        ("set", "writer", "ms", "x raw", "us per tensor", "GB/s", "bytes per tensor beyond its values"),
        (34, 28, 9, 8, 9, 6, 9),
        left=2,
    )
    for title, make in SETS.items():
        tensors = make(scale)
        total = sum(tensor.nbytes for tensor in tensors)
        best, sizes = best_times(tensors, folder, rounds)
        for name, seconds in best.items():
            table.row(
                f"{title}: {len(tensors):,} tensors, {total / 1e6:,.1f} MB" if name == "raw" else "",
                name,
                f"{seconds * 1e3:,.1f}",
                f"{seconds / best['raw']:.2f}",
                f"{seconds / len(tensors) * 1e6:,.1f}",
                f"{total / seconds / 1e9:.2f}",
                f"{(sizes[name] - total) / len(tensors):,.0f}",
            )
        table.rule()


def again(folder: Path, rounds: int, samples: int, *, tensors: int = 14) -> None:
    """Time (of the processor) what a small tensor costs that is put for each sample, by part, and its floor."""
    rng = np.random.default_rng(3)
    values = [[rng.standard_normal(200, np.float32) for _ in range(tensors)] for _ in range(samples)]
    names = [f"tensor_{number}" for number in range(tensors)]
    nodes = [
        Node(name=f"n{number}", op="Relu", inputs=(names[number - 1] if number else "x",), outputs=(name,))
        for number, name in enumerate(names)
    ]
    graph, path = Graph(nodes, inputs=("x",)), folder / "bench.h5"

    def put(target: Path | None) -> tuple[float, float]:
        recorder = Recorder(target, backend="bench", graph=graph, force=True)
        times = [time.thread_time()]
        for sample in values:
            for name, array in zip(names, sample, strict=True):
                recorder.put(name, array)
            recorder.next_sample()
        times.append(time.thread_time())
        recorder.close()
        times.append(time.thread_time())
        return times[1] - times[0], times[2] - times[1]

    def each(work: Callable[[np.ndarray], object]) -> tuple[float, float]:
        begin = time.thread_time()
        for sample in values:
            for array in sample:
                work(array)
        return time.thread_time() - begin, 0.0

    def floor() -> tuple[float, float]:
        descriptor = os.open(folder / "bench.bin", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        frame, places = bytes(300), iter(range(0, 2048 * samples * tensors, 2048))

        def write(array: np.ndarray) -> None:
            xxhash.xxh3_128_digest(array)
            os.pwrite(descriptor, array, place := next(places))
            os.pwrite(descriptor, frame, place + 1024)

        done = each(write)
        os.close(descriptor)
        return done

    ways = {"copies": lambda: each(np.array), "floor: two pwrite, a hash": floor}
    ways |= {"Recorder in memory": lambda: put(None), "Recorder": lambda: put(path)}
    table = StreamedTable(
        f"{tensors} tensors of 800 bytes for each of {samples:,} samples, CPU us a tensor",
        ("way", "put", "close", "x floor"),
        (24, 8, 8, 8),
    )
    least = min(floor() for _ in range(rounds))
    for way, work in ways.items():
        times = least if work is floor else min(work() for _ in range(rounds))
        us = [1e6 * seconds / samples / tensors for seconds in times]
        table.row(way, *(f"{each:.2f}" for each in us), f"{sum(times) / sum(least):.2f}")
    path.unlink()


def reading(folder: Path, rounds: int, count: int) -> None:
    """Time what a program does first with a recording of many tensors."""
    path = folder / "bench.h5"
    target = RecordingWriter(path, force=True)
    for number in range(count):
        target.append(f"block{number // 100}/layer_{number}/output", np.full(4, number, dtype=np.float32))
    name = [f"block{number // 100}/layer_{number}/output" for number in range(count)]
    nodes = [
        Node(name=f"n{number}", op="Relu", inputs=(name[number - 1],) if number else (), outputs=(name[number],))
        for number in range(count)
    ]
    target.close(Graph(nodes), INFO)
    steps = ("open", "names", "first load", "graph", "load all")
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        times = [time.perf_counter()]
        recording = FileRecording(path)
        times.append(time.perf_counter())
        names = recording.names
        times.append(time.perf_counter())
        recording.load(names[-1])
        times.append(time.perf_counter())
        _ = recording.graph
        times.append(time.perf_counter())
        for each in names[:1000]:
            recording.load(each)
        times.append(time.perf_counter())
        recording.close()
        for step, begin, end in zip(steps, times[:-1], times[1:], strict=True):
            best[step] = min(best[step], end - begin)
    path.unlink()
    table = StreamedTable(f"Reading a recording of {count:,} tensors", ("step", "ms"), (12, 9))
    for step, seconds in best.items():
        table.row("1,000 loads" if step == "load all" else step, f"{seconds * 1e3:,.1f}")


def joined(folder: Path, rounds: int, count: int) -> None:
    """Time (of the processor) how long a manifest of many recordings takes to open, against as many HDF5 files."""
    heads = ("recordings", "CPU ms", "x h5py.File")
    table = StreamedTable(f"Opening a manifest of {count:,} recordings", heads, (26, 9, 9))
    for title, mark in (("further samples of one net", ""), ("a net each", "{}")):
        paths = [folder / f"part{number}.h5" for number in range(count)]
        for number, path in enumerate(paths):
            x, y, node = (f"{name}{mark.format(number)}" for name in ("x", "y", "n"))
            with Recorder(path, backend="bench", force=True) as target:
                target.put(x, np.full((2, 3), number, np.float32))
                target.put(y, np.full((2, 3), number % 100, np.int8), node=node, op="Relu", inputs=(x,), scale=0.1)
        best = dict.fromkeys(("plain", "manifest"), float("inf"))
        parts = [Part(path=path, first_sample=number) for number, path in enumerate(paths)]
        for _ in range(rounds):
            times = [time.process_time()]
            for path in paths:
                h5py.File(path, "r").close()
            times.append(time.process_time())
            JoinedRecording(parts, folder / "all.json").close()
            times.append(time.process_time())
            for step, begin, end in zip(best, times[:-1], times[1:], strict=True):
                best[step] = min(best[step], end - begin)
        table.row(title, f"{best['manifest'] * 1e3:,.0f}", f"{best['manifest'] / best['plain']:.1f}")
        for path in paths:
            path.unlink()


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared_memory = Path("/dev/shm")  # noqa: S108  a RAM disk, where there is one
    parser.add_argument("--folder", type=Path, default=shared_memory if shared_memory.is_dir() else None)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds; the best counts")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the tensors of each set")
    parser.add_argument("--count", type=int, default=100_000, help="tensors of the recording that is read")
    parser.add_argument("--parts", type=int, default=3_000, help="recordings of the manifest that is opened")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        writing(Path(folder), options.rounds, options.scale)
        again(Path(folder), options.rounds, max(1, int(400 * options.scale)))
        reading(Path(folder), options.rounds, options.count)
        joined(Path(folder), options.rounds, options.parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
