"""Forms of a net that ONNX Runtime's own tools make: healthy whatever they cost in accuracy."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

STATIC = {
    "qdq.tensor": ("QDQ", "QUInt8", "QInt8", False),
    "qdq.channel": ("QDQ", "QUInt8", "QInt8", True),
    "qdq.signed": ("QDQ", "QInt8", "QInt8", True),
    "qdq.sixteen": ("QDQ", "QUInt16", "QInt8", False),
    "qoperator.tensor": ("QOperator", "QUInt8", "QInt8", False),
    "qoperator.channel": ("QOperator", "QUInt8", "QInt8", True),
}
"""Format, types of activations and weights, and whether each channel has a scale, by form."""
FORMS = ("float", *STATIC, "dynamic", "fp16")


def made(name: str, source: onnx.ModelProto, form: str, feeds: Mapping[str, np.ndarray], cache: Path) -> Path:
    """Return the file of a form of a net, made once in the cache.

    Raises:
        Exception: What the tool raises that cannot make this form of this net.
    """
    code = hashlib.sha256(source.SerializeToString(deterministic=True))
    for title, array in sorted(feeds.items()):  # a form is calibrated on them
        code.update(f"{title} {array.dtype} {array.shape}".encode() + array.tobytes())
    target = cache.resolve() / f"{name}.{code.hexdigest()[:12]}.{form}.onnx"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger().setLevel(logging.ERROR)
        plain, part = Path("plain.onnx").resolve(), Path("made.onnx").resolve()
        onnx.save(source, plain)
        _make(plain, part, form, feeds)
        onnx.load(part)
        part.replace(target)
    return target


def _make(plain: Path, part: Path, form: str, feeds: Mapping[str, np.ndarray]) -> None:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    if form == "float":
        plain.rename(part)
    elif form == "fp16":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        onnx.save(convert_float_to_float16(onnx.load(plain), keep_io_types=True), part)
    else:
        prepared = plain.with_name("prepared.onnx")
        quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
        if form == "dynamic":
            quantize_dynamic(str(prepared), str(part), weight_type=QuantType.QInt8)
            return
        layout, activations, weights, per_channel = STATIC[form]
        quantize_static(
            str(prepared),
            str(part),
            _Rows(feeds),
            quant_format=QuantFormat[layout],
            activation_type=QuantType[activations],
            weight_type=QuantType[weights],
            per_channel=per_channel,
        )


class _Rows:
    """Samples for the quantizer, one after the other."""

    def __init__(self, feeds: Mapping[str, np.ndarray]) -> None:
        count = len(next(iter(feeds.values())))
        self._left = iter([{name: array[at] for name, array in feeds.items()} for at in range(count)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next sample; None after the last."""
        return next(self._left, None)
