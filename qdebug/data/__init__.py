"""The digits net as recordings that the interpreter replays, and ten handwritten digits to run it on.

Made by samples/digits/build_data.py from the ONNX files beside it. The digits are from the test half of the UCI
optical recognition data that scikit-learn carries, one of each kind.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FLOAT_NET", "INPUTS", "INT8_NET", "LABELS"]

_FOLDER = Path(__file__).resolve().parent

FLOAT_NET = _FOLDER / "digits.float.h5"
"""Recording of the float net: graph, weights and one sample."""

INT8_NET = _FOLDER / "digits.int8.h5"
"""Recording of its int8 form (integer operators, weights quantized per channel): graph, weights and one sample."""

INPUTS = _FOLDER / "digits.inputs.npz"
"""Array x (10, 1, 1, 8, 8), float32 in [0, 1]: ten samples, each of them a batch of one."""

LABELS = _FOLDER / "digits.labels.npz"
"""Array y (10,), int64: the digits that were written."""
