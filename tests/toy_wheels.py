"""Tiny wheels of a runtime whose versions compute differently, and a backend for it, built on the spot.

`build` writes a wheel for each. 1.0 and 1.1 are right, 1.1.1 never ends, 1.2 and 1.3 round halves away from zero,
1.4 truncates, 1.5 crashes, 1.6 requires a package that does not exist, 1.7 is right again, 1.8 varies from run to run,
1.9 refuses the model.
"""

import base64
import hashlib
import zipfile

VERSIONS = {
    "1.0": "np.rint(h)",
    "1.1": "np.rint(h)",
    "1.1.1": "time.sleep(600)",
    "1.2": "np.copysign(np.floor(np.abs(h) + np.float32(0.5)), h)",
    "1.3": "np.copysign(np.floor(np.abs(h) + np.float32(0.5)), h)",
    "1.4": "np.trunc(h)",
    "1.5": "os.abort()",
    "1.6": "np.rint(h)",
    "1.7": "np.rint(h)",
    "1.8": "np.rint(h) + np.float32(int.from_bytes(os.urandom(2), 'little'))",
    "1.9": "refuse()",
}

MODULE = """\
import os
import time

import numpy as np

from qdebug.backends.protocol import OptionSpec, RunFacts, check_options
from qdebug.errors import BackendError
from qdebug.model import Graph, Node, Role, TensorInfo


def refuse():
    raise BackendError("The model is too new.")


class Run:
    outputs = ("y",)

    def __init__(self, path, options, taps, weights):
        self.weights, self.kept = dict(np.load(path)), weights
        self.halved = options["level"] == "high"
        versions = {"toy-rounds": "VERSION"}
        self.facts = RunFacts(backend="toy", model=path.name, taps=taps, options=options, versions=versions)
        nodes = [Node(name="dense", op="MatMul", inputs=("x", "w"), outputs=("h",))]
        nodes += [Node(name="round", op="Round", inputs=("h",), outputs=("r",))]
        nodes += [Node(name="relu", op="Relu", inputs=("r",), outputs=("y",))]
        self.graph = Graph(
            nodes, tensors=[TensorInfo(name="w", role=Role.CONSTANT)], inputs=("x",), outputs=self.outputs
        )
        self.inputs = (TensorInfo(name="x", shape=(None, 8), dtype="float32", role=Role.INPUT),)

    def constants(self):
        yield from self.weights.items() if self.kept else ()

    def compute(self, feed):
        h = feed["x"] @ self.weights["w"] * np.float32(0.5 if self.halved else 1)
        r = ROUNDING
        return {"h": h, "r": r, "y": np.maximum(r, 0)}

    def plain(self, feed):
        return {"y": self.compute(feed)["y"]}

    def record(self, feeds, recorder, on_progress=None):
        for sample in range(feeds.samples):
            recorder.at(sample, 0)
            feed = feeds.feed(sample, 0)
            values = feed | self.compute(feed)
            for name in values if self.facts.taps != "outputs" else ("x", "y"):
                recorder.put(name, values[name])

    def restart(self):
        pass

    def close(self):
        pass


class Toy:
    name = "toy"
    options = (OptionSpec(name="level", default="low", choices=("low", "high")),)

    def open(self, model, *, options, taps="faithful", weights=True):
        return Run(model, check_options(self.name, self.options, options), taps, weights)


backend = Toy()
"""


def files_of(version):
    """Return the files of the package by path."""
    info = f"toy_rounds-{version}.dist-info"
    requires = "Requires-Dist: no-such-package-of-qdebug\n" if version == "1.6" else ""
    files = {
        "toy_rounds.py": MODULE.replace("VERSION", version).replace("ROUNDING", VERSIONS[version]),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: toy-rounds\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[qdebug.backends]\ntoy = toy_rounds:backend\n",
    }
    lines = [f"{info}/RECORD,,"]
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text.encode())}")
    return files | {f"{info}/RECORD": "\n".join(lines) + "\n"}


def build(folder):
    """Write all wheels but that of 1.1.1, which never ends, to a folder that pip finds with --find-links."""
    for version in VERSIONS.keys() - {"1.1.1"}:
        with zipfile.ZipFile(folder / f"toy_rounds-{version}-py3-none-any.whl", "w") as wheel:
            for path, text in files_of(version).items():
                wheel.writestr(path, text)


def unpack(folder, version):
    """Write the files of a version to a folder of sys.path."""
    for path, text in files_of(version).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
