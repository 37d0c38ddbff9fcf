"""A backend of your own, in a package of your own: `qdebug record net.npz --backend toy` runs it.

The adapter is the class ToyRun and the class Toy, forty lines. A package names its object in pyproject.toml:

    [project.entry-points."qdebug.backends"]
    toy = "toy_backend:backend"

This script makes such a package in a temporary folder, records a small net in two precisions, and compares.
Needs qdebug alone: python samples/10_own_backend.py
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from qdebug.backends.protocol import OptionSpec, RunFacts, check_options
from qdebug.model import Graph, Node, Role, TensorInfo


class ToyRun:
    outputs = ("y",)

    def __init__(self, path, options, taps, *, weights):
        self.weights, self.kept = dict(np.load(path)), weights
        self.dtype = np.dtype(options["dtype"])
        self.facts = RunFacts(backend="toy", model=path.name, taps=taps, options=options)
        constants = [TensorInfo(name=name, role=Role.CONSTANT) for name in self.weights]
        nodes = [Node(name="dense", op="MatMul", inputs=("x", "w"), outputs=("h",))]
        nodes += [Node(name="relu", op="Relu", inputs=("h",), outputs=("y",))]
        self.graph = Graph(nodes, tensors=constants, inputs=("x",), outputs=self.outputs)
        self.inputs = (TensorInfo(name="x", shape=(None, len(self.weights["w"])), dtype="float32", role=Role.INPUT),)

    def constants(self):
        yield from self.weights.items() if self.kept else ()

    def compute(self, feed):
        h = feed["x"].astype(self.dtype) @ self.weights["w"].astype(self.dtype)
        return {"h": h, "y": np.maximum(h, 0)}

    def plain(self, feed):
        return {"y": self.compute(feed)["y"]}

    def record(self, feeds, recorder, on_progress=None):
        for sample in range(feeds.samples):
            for step in range(feeds.steps):
                recorder.at(sample, step)
                feed = feeds.feed(sample, step)
                if on_progress is not None:
                    on_progress(sample * feeds.steps + step, feeds.samples * feeds.steps, f"sample {sample}")
                for name, array in (feed | self.compute(feed)).items():
                    recorder.put(name, array)

    def restart(self):
        pass  # the net keeps no state

    def close(self):
        pass


class Toy:
    name = "toy"
    options = (OptionSpec(name="dtype", default="float32", choices=("float32", "float16"), help="what it computes in"),)

    def open(self, model, *, options, taps="faithful", weights=True):
        return ToyRun(model, check_options(self.name, self.options, options), taps, weights=weights)


backend = Toy()


def qdebug(folder, *words):
    path = os.pathsep.join([str(folder), *sys.path])
    command = [sys.executable, "-m", "qdebug", *words]
    print("$ qdebug", *words)
    done = subprocess.run(  # noqa: S603
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    print(done.stdout.partition("\n\n")[0])


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        installed = folder / "toy_backend-1.0.dist-info"  # as `pip install` would make it
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-backend\nVersion: 1.0\n")
        (installed / "entry_points.txt").write_text("[qdebug.backends]\ntoy = toy_backend:backend\n")
        shutil.copy(__file__, folder / "toy_backend.py")
        rng = np.random.default_rng(0)
        np.savez(folder / "net.npz", w=rng.standard_normal((8, 4)).astype(np.float32))
        np.savez(folder / "x.npz", x=rng.standard_normal((1, 8)).astype(np.float32))
        qdebug(folder, "record", "net.npz", "--backend", "toy", "--inputs", "x.npz", "-o", "ref.h5")
        qdebug(folder, "record", "net.npz", "--backend", "toy:dtype=float16", "--inputs", "x.npz", "-o", "half.h5")
        qdebug(folder, "diff", "ref.h5", "half.h5")


if __name__ == "__main__":
    main()
