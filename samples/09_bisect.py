"""Which version changed? `qdebug bisect` over three versions of a tiny runtime, without a network.

The runtime rounds a dense layer's results. 1.0 and 1.1 round ties to even, 1.2 rounds them away from zero. The script
builds a wheel of each version, with the backend of the runtime in it, and bisects over them. For a real runtime:

    qdebug bisect net.onnx --inputs x.npz --backend onnxruntime --good 1.20.1 --bad 1.24.4

Needs pip: python samples/09_bisect.py
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

ROUNDINGS = {"1.0": "np.rint(h)", "1.1": "np.rint(h)", "1.2": "np.sign(h) * np.floor(np.abs(h) + 0.5)"}

RUNTIME = """
import numpy as np

from qdebug.backends.protocol import RunFacts
from qdebug.model import Graph, Node, Role, TensorInfo


class TinyRun:
    outputs = ("y",)

    def __init__(self, path, taps):
        self.weight = np.load(path)["w"]
        self.facts = RunFacts(backend="tiny", model=path.name, taps=taps)
        nodes = [Node(name="dense", op="MatMul", inputs=("x", "w"), outputs=("h",))]
        nodes += [Node(name="round", op="Round", inputs=("h",), outputs=("y",))]
        weight = TensorInfo(name="w", role=Role.CONSTANT)
        self.graph = Graph(nodes, tensors=[weight], inputs=("x",), outputs=self.outputs)
        self.inputs = (TensorInfo(name="x", shape=(None, 4), dtype="float32", role=Role.INPUT),)

    def constants(self):
        yield "w", self.weight

    def compute(self, feed):
        h = feed["x"] @ self.weight
        return {"h": h, "y": np.float32(ROUNDING)}

    def plain(self, feed):
        return {"y": self.compute(feed)["y"]}

    def record(self, feeds, recorder, on_progress=None):
        for sample in range(feeds.samples):
            recorder.at(sample, 0)
            feed = feeds.feed(sample)
            for name, array in (feed | self.compute(feed)).items():
                recorder.put(name, array)

    def restart(self):
        pass

    def close(self):
        pass


class Tiny:
    name = "tiny"
    options = ()

    def open(self, model, *, options, taps="faithful", weights=True):
        return TinyRun(model, taps)


backend = Tiny()
"""


def package_files(version):
    info = f"tiny_runtime-{version}.dist-info"
    return {
        "tiny_runtime.py": RUNTIME.replace("ROUNDING", ROUNDINGS[version]),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny-runtime\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[qdebug.backends]\ntiny = tiny_runtime:backend\n",
        f"{info}/RECORD": "",
    }


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for version in ROUNDINGS:
            with zipfile.ZipFile(folder / f"tiny_runtime-{version}-py3-none-any.whl", "w") as wheel:
                for path, text in package_files(version).items():
                    wheel.writestr(path, text)
        with zipfile.ZipFile(folder / "tiny_runtime-1.2-py3-none-any.whl") as wheel:
            wheel.extractall(folder / "installed")  # as `pip install` would
        np.savez(folder / "net.npz", w=np.eye(4, dtype=np.float32))
        np.savez(folder / "x.npz", x=np.array([[0.5, 1.5, 2.2, 2.5]], np.float32))
        search_path = os.pathsep.join([str(folder / "installed"), *filter(None, sys.path)])
        settings = {"PYTHONPATH": search_path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
        words = ["bisect", "net.npz", "--inputs", "x.npz", "--backend", "tiny", "--good", "1.0", "--bad", "1.2"]
        print("$ qdebug", *words)
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "qdebug", *words, "--environments", "environments"],
            cwd=folder,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stdout, done.stderr)
        if done.returncode != 1:  # 1: there is a difference
            sys.exit(f"unexpected exit code {done.returncode}")


if __name__ == "__main__":
    main()
