"""Import: tensors that an accelerator dumped as raw files, made into a recording, and compared.

The "accelerator" runs the int8 net of the digits and writes one raw file for each layer and sample: codes with channels
last, as many chips keep them, without a type or a shape. A JSON file says what is in them. The graph, the weights and
the scales come from the model file. The accelerator has a bug: it packs the filters of a layer in pairs, and swaps the
last pair.

Run it from a clone with the extra `onnx` installed: python samples/08_import.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

DIGITS = Path(__file__).resolve().parent / "digits"
MODEL = DIGITS / "digits.qoperator.per_channel.onnx"
BROKEN = "pwconv_quant"
NOT_DUMPED = ("QLinearAveragePool", "Flatten")
"""Operators that the accelerator fuses into the next layer, so that their results never exist."""
SAMPLES = 8


def make_accelerator() -> tuple[onnx.ModelProto, list[str]]:
    """Return the model as the accelerator runs it, with all results as outputs, and their names."""
    model = onnx.load(MODEL)
    names = [node.output[0] for node in model.graph.node if node.op_type not in NOT_DUMPED]
    weight_name = next(node for node in model.graph.node if node.name == BROKEN).input[3]
    weight = next(array for array in model.graph.initializer if array.name == weight_name)
    filters = numpy_helper.to_array(weight).copy()
    filters[[-1, -2]] = filters[[-2, -1]]  # the bug
    weight.CopyFrom(numpy_helper.from_array(filters, weight_name))
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model, names


def write_dump(images: np.ndarray, folder: Path) -> None:
    """Run the accelerator on each image, and write raw files with their description."""
    model, names = make_accelerator()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    tensors = []
    for sample, image in enumerate(images):
        values = {"x": image, **dict(zip(names, session.run(names, {"x": image}), strict=True))}
        for name, value in values.items():
            last = np.moveaxis(value, 1, -1) if value.ndim == 4 else value
            file = f"{sample}_{name}.raw"
            np.ascontiguousarray(last).tofile(folder / file)
            entry = {"file": file, "tensor": name, "sample": sample, "dtype": str(last.dtype), "shape": last.shape}
            tensors.append(entry | ({"layout": "NHWC"} if value.ndim == 4 else {}))
    description = {"format": "qdebug.dump", "version": 1, "backend": "accelerator", "outputs": ["logits"]}
    (folder / "dump.json").write_text(json.dumps(description | {"tensors": tensors}))


def qdebug(folder: Path, *words: str) -> None:
    """Run a command and print the first lines of its answer."""
    print("\n$ qdebug", *(word.rpartition("/")[2] for word in words))
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "qdebug", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    print("\n".join((done.stdout or done.stderr).splitlines()[:10]))
    print("exit code", done.returncode)


def main() -> None:
    """Dump, import, compare."""
    with TemporaryDirectory() as name, np.load(DIGITS / "digits_test.npz") as digits:
        folder, images = Path(name), digits["x"][:SAMPLES, None]
        write_dump(images, folder)
        np.savez(folder / "x.npz", x=images)
        qdebug(folder, "import", "dump.json", "--graph", str(MODEL), "-o", "npu.h5")
        float_model = str(DIGITS / "digits.onnx")
        qdebug(folder, "diff", float_model, "npu.h5", "--inputs", "x.npz", "--samples", str(SAMPLES))


if __name__ == "__main__":
    main()
