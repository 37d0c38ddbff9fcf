"""Print the accuracy of digits on several runtimes, what quantization loses there, and a history with a regression.

python tests/backends/accuracies.py [--backends NAME ...] [--history]

digits    397 test digits through each runtime that is installed: ONNX Runtime with four int8 forms, OpenVINO, LiteRT,
          and the interpreter in the arithmetics of glow-interpreter and glow-cpu. Each quantized run is held against
          the float run of its own runtime, and against ONNX Runtime's.
--history ten tracked runs of one form; from the seventh on the weights of six channels have the wrong sign.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from qdebug.cli.main import main as qdebug
from qdebug.errors import QdebugError
from qdebug.running.record import record_run

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
RUNS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "ort.float": ("digits.onnx", "onnxruntime", {}),
    "ort.qdq.channel": ("digits.qdq.per_channel.onnx", "onnxruntime", {}),
    "ort.qdq.tensor": ("digits.qdq.per_tensor.onnx", "onnxruntime", {}),
    "ort.qop.channel": ("digits.qoperator.per_channel.onnx", "onnxruntime", {}),
    "ort.qop.tensor": ("digits.qoperator.per_tensor.onnx", "onnxruntime", {}),
    "ov.float": ("digits.onnx", "openvino", {}),
    "ov.int8": ("digits.qdq.per_channel.onnx", "openvino", {}),
    "litert.float": ("digits_float.tflite", "litert", {}),
    "litert.int8": ("digits_int8.tflite", "litert", {}),
    "interpreter.float": ("digits.onnx", "interpreter", {}),
    "glow-interpreter": ("digits.qdq.per_tensor.onnx", "interpreter", {"arithmetic": "glow-interpreter"}),
    "glow-cpu": ("digits.qdq.per_tensor.onnx", "interpreter", {"arithmetic": "glow-cpu"}),
}


def fed(name: str, digits: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a model reads; the LiteRT forms have channels last, and int8 codes of 1/255."""
    if not name.startswith("litert"):
        return {"x": digits[:, np.newaxis]}
    last = np.moveaxis(digits, 1, -1)[:, np.newaxis]
    codes = (np.rint(last * np.float32(255)) - 128).astype(np.int8)
    return {"serving_default_keras_tensor:0": codes if name.endswith("int8") else last}


def recorded(folder: Path, backends: Sequence[str]) -> Iterator[Path]:
    """Record the runs, and yield the recordings of those whose runtime is installed."""
    with np.load(DIGITS / "digits_test.npz") as held:
        digits = held["x"]
        np.save(folder / "labels.npy", held["y"])
    for name, (model, backend, options) in RUNS.items():
        if backends and backend not in backends:
            continue
        out = folder / f"{name}.h5"
        try:
            record_run(
                DIGITS / model, backend=backend, options=options, inputs=fed(name, digits), samples=len(digits),
                out=out, taps="outputs",
            )  # fmt: skip
        except QdebugError as error:
            print(f"{name}: {error.message}")
            continue
        yield out


def seeded(folder: Path) -> int:
    """Track ten runs, each of its own commit, the last four with wrong weights; return the history's code."""
    import onnx
    from onnx import numpy_helper

    with np.load(DIGITS / "digits_test.npz") as held:
        digits, labels = held["x"], held["y"]
    np.save(folder / "labels.npy", labels)
    database, model = folder / "runs.db", onnx.load(DIGITS / "digits.qoperator.per_tensor.onnx")
    record_run(DIGITS / "digits.onnx", backend="onnxruntime", inputs={"x": digits[:, np.newaxis]}, samples=len(digits),
               out=folder / "float.h5")  # fmt: skip

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=q", "-c", "user.email=q@q", *words], cwd=folder, check=True)

    git("init", "-q")
    for number in range(10):
        git("commit", "-q", "--allow-empty", "-m", f"build {number + 1}")
        if number == 6:
            weight = next(each for each in model.graph.initializer if each.name == "w7.weight_quantized")
            array = numpy_helper.to_array(weight).copy()
            array[:6] = -array[:6]
            weight.CopyFrom(numpy_helper.from_array(array, weight.name))
        onnx.save(model, folder / "net.onnx")
        record_run(folder / "net.onnx", backend="onnxruntime", inputs={"x": digits[:, np.newaxis]}, samples=len(digits),
                   out=folder / "int8.h5", force=True)  # fmt: skip
        pair = [str(folder / "float.h5"), str(folder / "int8.h5")]
        said = ["--track", str(database), "-o", str(folder / "said.txt"), "--force"]
        codes = [
            qdebug(["accuracy", *pair, "--labels", str(folder / "labels.npy"), *said]),
            qdebug(["diff", *pair, "--no-explain", *said]),
        ]
        print(f"run {number + 1}: accuracy exits with {codes[0]}, diff with {codes[1]}")
    with sqlite3.connect(database) as opened:
        print(opened.execute("SELECT count(*) FROM results").fetchone()[0], "results")
    return qdebug(["accuracy", "--history", str(database)])


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=[], metavar="NAME", help="only these")
    parser.add_argument("--history", action="store_true", help="the history instead")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.history:
            with contextlib.chdir(scratch):
                print("exit code", seeded(Path(scratch)))
            return
        names = [path.name for path in recorded(Path(scratch), arguments.backends)]
        with contextlib.chdir(scratch):
            print("exit code", qdebug(["accuracy", *names, "--labels", "labels.npy", "-f", "markdown"]))


if __name__ == "__main__":
    main()
