"""Make the files of the tutorial (`qdebug help tutorial`): a net that reads handwritten digits, and its bad nights.

    python samples/00_tutorial.py night            all files of the tutorial, in a new folder
    python samples/00_tutorial.py night --fixed    the board once more, with the corrected kernel

The net is trained on scans of handwriting (`samples/digits`). What goes wrong goes wrong in products, too: a kernel
that computes 16 channels at a time leaves the last 8 of 24, and one channel that no digit ever excites has weights
316 times larger than before, so that a single scale for the whole tensor rounds all others away. Folding a batch
normalization does that: it divides the weights of a dead channel by the root of 1e-5.

Needs the extra `onnx`. In place of a real board, qdebug's interpreter runs the int8 net with the broken kernel.
"""

import argparse
import contextlib
import io
import logging
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from qdebug.backends import load_backend
from qdebug.running.feeds import ArrayFeeds
from qdebug.running.record import record_feeds

DIGITS = Path(__file__).resolve().parent / "digits"
SAMPLES = 32
LARGE = 316.0
BLOCK = 16


class Calibration(CalibrationDataReader):
    """Digits for the quantizer, one at a time."""

    def __init__(self):
        with np.load(DIGITS / "digits_test.npz") as archive:
            self.images = iter(archive["calib"][:, None])

    def get_next(self):
        image = next(self.images, None)
        return None if image is None else {"x": image}


def write_net(path):
    """Write the float net. No digit excites channel 3 of its depthwise layer; the weights of this channel are large."""
    model = onnx.load(DIGITS / "digits.onnx")
    depthwise = next(node for node in model.graph.node if node.name == "dwconv")
    weight = next(array for array in model.graph.initializer if array.name == depthwise.input[1])
    values = numpy_helper.to_array(weight).copy()
    values[3] *= LARGE
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(model, path)


def quantize(source, path, *, per_channel):
    """Write the int8 form of a net: uint8 activations and int8 weights, calibrated on digits."""
    prepared = path.with_suffix(".prepared.onnx")
    with contextlib.redirect_stdout(io.StringIO()):
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(path),
            Calibration(),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    prepared.unlink()


def leave_tail(arrays):
    """Compute 16 channels at a time, and never write what is left: 8 of 24 keep code 0."""
    codes = arrays[0].copy()
    codes[:, codes.shape[1] // BLOCK * BLOCK :] = 0
    return (codes, *arrays[1:])


def record_board(model, inputs, path, *, broken):
    """Record the int8 net on the board, as its driver would through `qdebug.Recorder`."""
    interpreter = load_backend("interpreter")
    faults = {"pwconv": leave_tail} if broken else {}
    run = interpreter.open(model, options={}, faults=faults)
    record_feeds(run, ArrayFeeds(inputs, run.inputs, samples=SAMPLES), path)


def main():
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fixed", action="store_true", help="record the board with the corrected kernel")
    options = parser.parse_args()
    folder = options.folder
    logging.disable(logging.WARNING)
    if options.fixed:
        with np.load(folder / "x.npz") as archive:
            record_board(folder / "net.int8.onnx", dict(archive), folder / "fixed.h5", broken=False)
        return
    folder.mkdir()
    with np.load(DIGITS / "digits_test.npz") as archive:
        inputs = {"x": archive["x"][:SAMPLES, None]}
    np.savez(folder / "x.npz", **inputs)
    onnx.save(onnx.load(DIGITS / "digits.onnx"), folder / "net.onnx")
    write_net(folder / "large.onnx")
    quantize(folder / "net.onnx", folder / "net.int8.onnx", per_channel=True)
    quantize(folder / "large.onnx", folder / "large.int8.onnx", per_channel=False)
    record_board(folder / "net.int8.onnx", inputs, folder / "board.h5", broken=True)


if __name__ == "__main__":
    main()
