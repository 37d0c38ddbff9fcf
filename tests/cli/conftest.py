"""Recordings made on the fly, and two ways to run a command: in this process, or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.cli.main import main
from qdebug.recording.recorder import Recorder

SAMPLES = 3


def values(sample, salt):
    return np.random.default_rng([sample, salt]).standard_normal((1, 4, 6)).astype(np.float32)


def record(path, *, noise=0.0, quantized=False, drop=(), faithful=True, extra=(), backend="numpy"):
    """Record a net of three nodes on three samples; from the second node on it is as wrong as `noise` says."""
    with Recorder(path, backend=backend, model="net") as rec:
        for sample in range(SAMPLES):
            rec.at(sample)
            rec.put("x", values(sample, 0))
            previous = "x"
            for position, name in enumerate(("conv1", "conv2", "head")):
                exact = values(sample, position + 1)
                wrong = exact + (noise * values(sample, 9) if position >= 1 else 0)
                if name not in drop:
                    put(rec, name, wrong.astype(np.float32), previous, quantized=quantized)
                previous = f"{name}_out"
            for name in extra:
                put(rec, name, values(sample, 7), "x", quantized=False)
            rec.outputs(previous)
            if faithful is not None:
                plain = rec_value(wrong, quantized=quantized)
                rec.check({previous: plain if faithful else plain + plain.dtype.type(1)})
    return path


def rec_value(array, *, quantized):
    array = array.astype(np.float32)
    return np.clip(np.round(array / np.float32(0.04)) - 3, -128, 127).astype(np.int8) if quantized else array


def put(rec, name, array, previous, *, quantized):
    facts = {"node": name, "op": "Conv", "inputs": (previous,)}
    if quantized:
        facts |= {"scale": np.float32(0.04), "zero_point": -3}
    rec.put(f"{name}_out", rec_value(array, quantized=quantized), **facts)


@pytest.fixture(scope="session")
def recordings(tmp_path_factory):
    """Return recordings by name: what they are says the name."""
    folder = tmp_path_factory.mktemp("recordings")
    made = {
        "reference": {},
        "identical": {},
        "within": {"quantized": True},
        "diverged": {"quantized": True, "noise": 2.0},
        "unfaithful": {"faithful": False},
        "unknown": {"faithful": None},
        "lost": {"drop": ("conv2",)},
    }
    paths = {name: record(folder / f"{name}.h5", **options) for name, options in made.items()}
    (folder / "text.h5").write_text("this is no recording")
    (folder / "empty.h5").touch()
    np.savez(folder / "inputs.npz", x=np.zeros(3))
    np.save(folder / "array.npy", np.zeros(3))
    (folder / "result.json").write_text('{"a": 1}')
    for name in ("text.h5", "empty.h5", "inputs.npz", "array.npy", "result.json"):
        paths[name] = folder / name
    return SimpleNamespace(folder=folder, **{name.replace(".", "_"): path for name, path in paths.items()})


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command in this process, in an empty folder: its exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture
def spawn(tmp_path):
    """Run a command in a process of its own, in an empty folder."""

    def spawn(*words, **options):
        command = [sys.executable, "-m", "qdebug", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, **options)

    return spawn
