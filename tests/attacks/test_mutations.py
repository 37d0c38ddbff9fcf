"""Mutated recordings by the hundred: bytes, header, truncation, copied blocks; of every kind of file there is.

Whatever a file does to the process that reads it, the guarded check of it says so and the program goes on.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qdebug.errors import RecordingError
from qdebug.recording.reading.verify import verify
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.pack import pack

CHILD = Path(__file__).with_name("open_files.py")
MOST_MB = 512


@pytest.fixture(scope="module")
def seeds(innocent, tmp_path_factory):
    """Contents of one file of each kind."""
    folder = tmp_path_factory.mktemp("seeds")
    array = np.cumsum(np.random.default_rng(0).integers(-1, 2, (40, 60)), axis=1).astype(np.float32)
    with Recorder(folder / "partly.h5", backend="b", keep=["s*=stats", "e*=elements:100"]) as rec:
        for name in ("s", "e", "full"):
            rec.put(name, array, node=f"n_{name}", op="Relu", inputs=("x",))
    found = {"plain": innocent, "partly": folder / "partly.h5"}
    for codec in ("gzip", "zstd"):
        if codec == "zstd":
            pytest.importorskip("zstandard", reason="the extra zstd is not installed")
        pack(folder / "partly.h5", folder / f"{codec}.h5", codec=codec)
        found[codec] = folder / f"{codec}.h5"
    return {name: path.read_bytes() for name, path in found.items()}


def mutated(content, rng):
    """Spoil a file in one of four ways."""
    data = bytearray(content)
    way = rng.randrange(4)
    if way == 0:
        for _ in range(rng.randint(1, 12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif way == 1:
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(min(len(data), 2048))] ^= 1 << rng.randrange(8)
    elif way == 2:
        del data[rng.randrange(len(data)) :]
    else:
        size = rng.choice([8, 64, 512, 4096])
        source, target = rng.randrange(len(data)), rng.randrange(len(data))
        data[target : target + size] = data[source : source + size]
    return bytes(data)


def outcomes(paths):
    """Use all files in children; one that dies of a file is followed by another for the rest."""
    found, peak = [], 0
    while len(found) < len(paths):
        left = paths[len(found) :]
        done = subprocess.run(
            [sys.executable, CHILD],
            input="\n".join(map(str, left)),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode == 0:
            peak = max(peak, lines.pop()["peak_mb"])
        found += [line["outcome"] for line in lines]
        if done.returncode != 0:
            found.append("killed")
    return found, peak


@pytest.mark.parametrize(("count", "seed"), [(160, 1), pytest.param(5000, 2, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused_in_little_memory(seeds, tmp_path, count, seed):
    rng = random.Random(seed)  # noqa: S311  seeded on purpose
    contents = list(seeds.values())
    paths = []
    for number in range(count):
        paths.append(tmp_path / f"{number}.h5")
        paths[-1].write_bytes(mutated(contents[number % len(contents)], rng))
    found, peak = outcomes(paths)
    print({what: found.count(what) for what in sorted(set(found))}, f"{peak:.0f} MB at most")
    assert not [path.name for path, what in zip(paths, found, strict=True) if what == "broken"]
    assert peak < MOST_MB
    for path, what in zip(paths, found, strict=True):
        if what == "killed":
            with pytest.raises(RecordingError):
                verify(path)
    assert found.count("refused") > count // 4
    assert found.count("killed") <= count // 100
