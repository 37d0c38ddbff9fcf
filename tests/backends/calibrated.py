"""Print two tables on chosen scales: beside ONNX Runtime's calibrators, and what they make of a net that int8 ruins.

python tests/backends/calibrated.py FOLDER [--tables sides overrides] [--inputs N] [--calibrators NAME ...]

FOLDER keeps nets and what is made of them. It needs onnx and onnxruntime; all real nets are fetched the first time.

sides      digits and the text direction net, calibrated on N inputs by ONNX Runtime's MinMax, Percentile and Entropy
           and by `choose_scales` with its rule. "same": tensors whose scale and zero point are equal bit for bit. "a
           bin": of the others, those whose ends differ by no more than a bin of both histograms. "same histogram":
           tensors for which our entropy:ort finds the same threshold in the histogram that ONNX Runtime counted.
overrides  the text recognition net, quantized by `quantize_static` to uint8 activations and int8 weights: by its
           default recipe, and with the scales of each calibrator as TensorQuantOverrides. The relative L2 error of the
           outputs on other inputs than those of the calibration: with one scale for a weight and with one for each
           channel, as the graph is written (Q/DQ around float kernels) and fused, as it runs on this processor.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import qdebug
from qdebug.numerics.entropy import ort_threshold
from qdebug.numerics.scheme import QuantScheme
from qdebug.running.record import record_run
from qdebug.scales.choose import ScaleRow, choose_scales
from qdebug.scales.weights import Granularity

CALIBRATORS = ("minmax", "moving-average", "percentile:99.99", "percentile:99.9", "mse", "entropy", "entropy:ort")
SCHEME = QuantScheme(rule="onnxruntime", signed=False)


def models() -> ModuleType:
    """Import the nets."""
    spec = importlib.util.spec_from_file_location("models", Path(__file__).with_name("models.py"))
    module = sys.modules["models"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let ONNX Runtime's quantizer say nothing."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def reader(inputs: np.ndarray) -> Any:
    """Return what hands the inputs to ONNX Runtime's calibrators."""
    from onnxruntime.quantization import CalibrationDataReader

    class Inputs(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([{"x": each[np.newaxis]} for each in inputs])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.feeds, None)

    return Inputs()


def recorded(model: Path, inputs: np.ndarray, out: Path) -> Any:
    """Record a float net as ONNX Runtime's calibrators run it: node by node."""
    feeds = {"x": inputs[:, np.newaxis]}
    record_run(model, backend="onnxruntime", options={"opt": "none"}, inputs=feeds, samples=len(inputs), taps="all",
               out=out, force=True)  # fmt: skip
    return qdebug.open_recording(out)


def chosen(reference: Any, calibrator: str) -> Mapping[str, ScaleRow]:
    """Return the rows of activations that a calibrator has a scale for, by tensor."""
    weights = Granularity(kind="tensor")  # the quickest: they are left out
    found = choose_scales(reference, calibrators=[calibrator], scheme=SCHEME, recorded_codes=False, weights=weights)
    return {row.tensor: row for row in found.rows if not row.weight and row.choices[0].quant is not None}


# -- beside ONNX Runtime's calibrators ---------------------------------------------------------------------------------

THEIRS = {
    "minmax": ("MinMax", {}),
    "percentile:99.999": ("Percentile", {"percentile": 99.999, "symmetric": False}),
    "entropy:ort": ("Entropy", {}),
}
"""Our calibrator, theirs, and its options beside the defaults."""

WHY = {
    "minmax": "-",
    "percentile:99.999": "there other bins, without the last one; of values of one sign half is cut at the other end",
    "entropy:ort": "there 128 bins in 128 groups: one window, the whole range",
}
"""Why parameters differ."""


def calibrated(model: Path, inputs: np.ndarray, method: str, options: Mapping[str, Any]) -> Any:
    """Return one of ONNX Runtime's calibrators after it has seen the inputs, and the ranges that it chose."""
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    with tempfile.TemporaryDirectory() as folder, quiet():
        target = str(Path(folder) / "augmented.onnx")
        calibrator = create_calibrator(str(model), augmented_model_path=target, extra_options=dict(options),
                                       calibrate_method=CalibrationMethod[method])  # fmt: skip
        calibrator.collect_data(reader(inputs))
        return calibrator, calibrator.compute_data()


def parameters(low: float, high: float) -> tuple[np.float32, int]:
    """Return the scale and zero point that ONNX Runtime makes of a range."""
    from onnx import TensorProto
    from onnxruntime.quantization.quant_utils import compute_scale_zp, get_qmin_qmax_for_qType

    ends = get_qmin_qmax_for_qType(TensorProto.UINT8)
    zero_point, scale = compute_scale_zp(np.float32(low), np.float32(high), *ends)
    return np.float32(scale), int(zero_point)


def sides(folder: Path, count: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each net and calibrator."""
    nets = models()
    cases = {"digits": (nets.DIGITS / "digits.onnx", nets.digits(count))}
    cases["cls"] = nets.net("cls", folder), nets.crops(count, cache=folder)
    for net, (model, inputs) in cases.items():
        reference = recorded(model, inputs, folder / f"{net}.calibrated.h5")
        for ours, (method, options) in THEIRS.items():
            calibrator, ranges = calibrated(model, inputs, method, options)
            rows, counts = chosen(reference, ours), {"same": 0, "bin": 0, "other": 0}
            shared = [name for name in list(ranges.keys()) if name in rows]
            for name in shared:
                low, high = (float(np.asarray(end).reshape(())) for end in ranges[name].range_value)
                choice = rows[name].choices[0]
                mine = np.float32(choice.quant.scale[0]), int(choice.quant.zero_point[0])
                apart = max(abs(min(low, 0) - min(choice.low, 0)), abs(max(high, 0) - max(choice.high, 0)))
                near = apart <= both_bins(calibrator, name, rows[name])
                counts["same" if mine == parameters(low, high) else "bin" if near else "other"] += 1
            yield (net, method, ours, str(len(shared)), str(counts["same"]), str(counts["bin"]), str(counts["other"]),
                   same_histogram(calibrator, ranges) if method == "Entropy" else "-",
                   WHY[ours] if counts["same"] < len(shared) else "-")  # fmt: skip


def both_bins(calibrator: Any, name: str, row: ScaleRow) -> float:
    """Return the width of a bin of ONNX Runtime's histogram and of ours together; 0 where it counts none."""
    collector = getattr(calibrator, "collector", None)
    if collector is None:
        return 0.0
    edges = collector.histogram_dict[name][1]
    return float(edges[1] - edges[0]) + (max(row.high, 0.0) - min(row.low, 0.0)) / 1000  # of 2000, half are in use


def same_histogram(calibrator: Any, ranges: Any) -> str:
    """Say for how many of ONNX Runtime's own histograms our loop finds the threshold that it found."""
    same = 0
    stored = calibrator.collector.histogram_dict
    for name, (counts, edges, low, high, _) in stored.items():
        if not counts.any():
            continue
        found = ort_threshold(counts, 128)
        ends = max(edges[found.start], low), min(edges[found.stop], high)
        there = [float(np.asarray(end).reshape(())) for end in ranges[name].range_value]
        same += all(np.isclose(mine, theirs, rtol=1e-6, atol=0) for mine, theirs in zip(ends, there, strict=True))
    return f"{same} of {len(stored)}"


# -- TensorQuantOverrides ----------------------------------------------------------------------------------------------


def quantize(prepared: Path, target: Path, calibration: np.ndarray, rows: Mapping[str, ScaleRow] | None, *,
             per_channel: bool) -> None:  # fmt: skip
    """Quantize a net by `quantize_static`, with the scales of some rows in place of its own."""
    from onnxruntime.quantization import QuantType, quantize_static

    overrides = {}
    for name, row in (rows or {}).items():
        quant = row.choices[0].quant
        scale, zero_point = np.array(quant.scale[0], np.float32), np.array(quant.zero_point[0], np.uint8)
        overrides[name] = [{"scale": scale, "zero_point": zero_point}]
    with quiet():
        quantize_static(str(prepared), str(target), reader(calibration), per_channel=per_channel,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                        extra_options={"TensorQuantOverrides": overrides},
                        calibration_cache_path=prepared.with_suffix(".ranges.json"))  # fmt: skip


def outputs(model: Path, inputs: np.ndarray, *, fused: bool) -> np.ndarray:
    """Run a net on inputs, one at a time."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return np.stack([session.run(None, {"x": each[np.newaxis]})[0] for each in inputs])


def overrides(folder: Path, count: int, calibrators: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for the default recipe and for each calibrator."""
    import onnx
    from onnx import version_converter
    from onnxruntime.quantization.shape_inference import quant_pre_process

    nets = models()
    calibration, other = nets.crops(count, cache=folder, seed=1), nets.crops(8, cache=folder, seed=2)
    with tempfile.TemporaryDirectory(dir=folder) as scratch, contextlib.chdir(scratch):
        prepared = Path(scratch) / "prepared.onnx"
        with quiet():
            model = version_converter.convert_version(onnx.load(nets.net("rec", folder)), 13)  # knows scales by channel
            onnx.save(model, prepared)
            quant_pre_process(str(prepared), str(prepared), skip_symbolic_shape=True)
        expected = outputs(prepared, other, fused=False).astype(np.float64)
        reference = recorded(prepared, calibration, Path(scratch) / "rec.h5")
        for name in ("default recipe", *calibrators):
            rows = None if name == "default recipe" else chosen(reference, name)
            errors = []
            for per_channel in (False, True):
                quantize(prepared, Path(scratch) / "made.onnx", calibration, rows, per_channel=per_channel)
                for fused in (False, True):
                    found = outputs(Path(scratch) / "made.onnx", other, fused=fused)
                    errors.append(np.linalg.norm(found - expected) / np.linalg.norm(expected))
            yield (name, "-" if rows is None else str(len(rows)), *(f"{error:.3f}" for error in errors))


HEADS = {
    "sides": ("net", "ONNX Runtime", "here", "tensors", "same", "a bin", "other", "same histogram", "why"),
    "overrides": (
        *("scales of", "tensors", "weight by tensor, as written", "fused"),
        *("weight by channel, as written", "fused"),
    ),
}


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables as Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where nets are kept")
    parser.add_argument("--tables", nargs="+", choices=tuple(HEADS), default=tuple(HEADS))
    parser.add_argument("--inputs", type=int, default=16, help="inputs of the calibration")
    parser.add_argument("--calibrators", nargs="+", default=CALIBRATORS, metavar="NAME", help="of the table overrides")
    arguments = parser.parse_args(words)
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for table in arguments.tables:
        print(f"| {' | '.join(HEADS[table])} |\n|{'---|' * len(HEADS[table])}", flush=True)
        made = sides(folder, arguments.inputs)
        if table == "overrides":
            made = overrides(folder, arguments.inputs, arguments.calibrators)
        for row in made:
            print(f"| {' | '.join(row)} |", flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
