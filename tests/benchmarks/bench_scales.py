"""How fast scales are chosen, beside ONNX Runtime's calibrator, MXNet's loop and numpy on the same values.

Run it: python tests/benchmarks/bench_scales.py [--bins 8001] [--inputs 100] [--ort-bins 2048] [--without-net]

Times are of the processor, so that other work on the machine counts little, but those of whole calibrations; loops are
run once, all else is the best of several rounds. BLAS is held to one thread. Targets: the entropy threshold at 8001
bins at least 150 times faster than ONNX Runtime's `get_entropy_threshold` and than the plain loop of MXNet, and the
same; any scheme and calibrator from a stored histogram in less than 50 ms; a histogram at least 3 times faster
than `numpy.histogram`; all tensors of the text direction net over 100 inputs, the runs included, at least 20 times
faster than ONNX Runtime's entropy calibrator, in less than 500 MB. That one has 128 bins by default, of which 128
groups are made: nothing is merged, and little to be computed. With --ort-bins 2048 it has the resolution of the
histograms here, and takes minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from qdebug.errors import UsageError
from qdebug.numerics.calibration import CALIBRATORS, calibrate, calibrator_named
from qdebug.numerics.entropy import entropy_range, mxnet_threshold, ort_threshold
from qdebug.numerics.range_histogram import RangeCounter
from qdebug.numerics.scheme import SCHEMES, QuantScheme
from qdebug.workflow.scales_profile import profile_model

GROUPS = 255
VALUES = 1_000_000


def load(folder: str, name: str) -> ModuleType:
    """Load a module of the tests by its file."""
    path = Path(__file__).resolve().parents[1] / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"qdebug_bench_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def best(job: Callable[[], object], rounds: int) -> float:
    """Return the least seconds of several rounds."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        job()
        times.append(time.process_time() - begin)
    return min(times)


def ort_loop(hist: np.ndarray, edges: np.ndarray, groups: int) -> Callable[[], object] | None:
    """Return a call of ONNX Runtime's function; None where it is not installed."""
    if importlib.util.find_spec("onnxruntime") is None or importlib.util.find_spec("onnx") is None:
        return None
    from onnxruntime.quantization.calibrate import HistogramCollector

    collector = HistogramCollector("entropy", False, hist.size, groups, 99.9, "same")
    edges = edges.astype(np.float32)
    return lambda: collector.get_entropy_threshold((hist, edges, edges[0], edges[-1], edges[-1]), groups)


def entropy_rows(bins: int, rounds: int) -> list[tuple[str, ...]]:
    """Time thresholds of one histogram; the loops find the same."""
    values = np.random.default_rng(0).laplace(size=VALUES).astype(np.float32)
    most = np.abs(values).max()
    hist, edges = np.histogram(values, bins, (-most, most))
    middle = bins // 2
    plain = load("unit/numerics", "test_entropy").mxnet_loop
    rows = []
    ours = best(lambda: mxnet_threshold(hist, GROUPS), rounds)
    begin = time.process_time()
    found = plain(hist, GROUPS)
    loop = time.process_time() - begin
    same = found == mxnet_threshold(hist, GROUPS).stop
    rows.append(("entropy:mxnet", f"{ours * 1e3:.1f} ms", "MXNet's loop", f"{loop:.2f} s", f"{loop / ours:.0f}", "150",
                 "same threshold" if same else "OTHER THRESHOLD"))  # fmt: skip
    theirs = ort_loop(hist, edges, GROUPS)
    if theirs is not None:
        ours = best(lambda: ort_threshold(hist, GROUPS), rounds)
        begin = time.process_time()
        _, high = theirs()
        loop = time.process_time() - begin
        same = high == edges.astype(np.float32)[ort_threshold(hist, GROUPS).stop]
        rows.append(("entropy:ort", f"{ours * 1e3:.1f} ms", "get_entropy_threshold", f"{loop:.2f} s",
                     f"{loop / ours:.0f}", "150", "same threshold" if same else "OTHER THRESHOLD"))  # fmt: skip
    ours = best(lambda: entropy_range(hist, middle, GROUPS), rounds)
    rows.append(("entropy", f"{ours * 1e3:.1f} ms", "-", "-", "-", "-", "its own definition"))
    return rows


def scheme_rows(rounds: int) -> list[tuple[str, ...]]:
    """Time every calibrator with every scheme on one stored histogram; the slowest counts."""
    counter = RangeCounter()
    counter.add(np.random.default_rng(0).standard_t(3, size=VALUES).astype(np.float32))
    histogram = counter.histogram()
    times = {}
    for name in CALIBRATORS:
        for kind in SCHEMES:
            for bits in (4, 8, 16):
                scheme = QuantScheme(kind=kind, bits=bits)

                def job(name: str = name, scheme: QuantScheme = scheme) -> None:
                    with contextlib.suppress(UsageError):
                        calibrate(calibrator_named(name), histogram, scheme)

                times[name, kind, bits] = best(job, max(rounds, 3))
    slowest = max(times, key=times.get)
    return [(f"slowest of {len(times)} choices", f"{times[slowest] * 1e3:.1f} ms", "-", "-", "-", "50 ms",
             " ".join(map(str, slowest)))]  # fmt: skip


def histogram_rows(rounds: int) -> list[tuple[str, ...]]:
    """Time histograms of a million values in interleaved rounds."""
    rows = []
    generator = np.random.default_rng(0)
    two_sided = generator.laplace(size=VALUES).astype(np.float32)
    relu = np.maximum(generator.normal(size=VALUES), 0).astype(np.float32)
    for title, values in (("two-sided", two_sided), ("ReLU", relu)):
        for bins in (2000, 8001):

            def count(values: np.ndarray = values, bins: int = bins) -> None:
                counter = RangeCounter(bins)
                counter.add(values)

            ours = theirs = float("inf")
            for _ in range(rounds * 4):
                ours = min(ours, best(count, 1))
                theirs = min(theirs, best(lambda values=values, bins=bins: np.histogram(values, bins), 1))
            rows.append((f"histogram, {title}, {bins} bins", f"{ours * 1e3:.2f} ms", "numpy.histogram",
                         f"{theirs * 1e3:.1f} ms", f"{theirs / ours:.1f}", "3", f"{VALUES:,} float32"))  # fmt: skip
    return rows


def in_process(job: Callable[..., object], *arguments: object) -> tuple[float, float, object]:
    """Run a job in a process of its own; give its seconds, the memory that it took in MB, and what it gives."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, job, arguments))
    process.start()
    found = ours.recv()
    process.join()
    return found


def _work(pipe: object, job: Callable[..., object], arguments: tuple[object, ...]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        begin = time.perf_counter()
        found = job(*arguments)
        seconds = time.perf_counter() - begin
    unit = 1024 if sys.platform != "darwin" else 1
    pipe.send((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, found))


def calibrate_here(model: str, inputs: np.ndarray) -> int:
    """Profile a net and choose a range for each tensor by entropy, as ONNX Runtime's calibrator does."""
    profile = profile_model(
        Path(model),
        backend="onnxruntime",
        options={"opt": "none"},
        inputs={"x": inputs},
        samples=len(inputs),
        taps="all",
    )
    chosen = 0
    for tensor in profile.tensors.values():
        with contextlib.suppress(UsageError):
            calibrate(calibrator_named("entropy"), tensor.histogram, QuantScheme(signed=False))
            chosen += 1
    return chosen


def calibrate_there(model: str, inputs: np.ndarray, bins: int) -> int:
    """Calibrate a net by ONNX Runtime's entropy calibrator."""
    from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod, create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([{"x": each} for each in inputs])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        calibrator = create_calibrator(
            model,
            augmented_model_path=os.path.join(folder, "augmented.onnx"),  # noqa: PTH118
            calibrate_method=CalibrationMethod.Entropy,
            extra_options={"num_bins": bins, "num_quantized_bins": 128},
        )
        calibrator.collect_data(Reader())
        return len(list(calibrator.compute_data().keys()))


def net_rows(inputs: int, bins: int) -> list[tuple[str, ...]]:
    """Calibrate the text direction net on crops of real pages, each way in a process of its own."""
    nets = load("backends", "models")
    model, crops = str(nets.net("cls")), nets.crops(inputs)[:, None]
    ours, memory, tensors = in_process(calibrate_here, model, crops)
    theirs, their_memory, their_tensors = in_process(calibrate_there, model, crops, bins)
    return [
        (f"calibrating cls, {inputs} inputs", f"{ours:.2f} s", f"entropy calibrator, {bins} bins", f"{theirs:.1f} s",
         f"{theirs / ours:.1f}", "20", f"{tensors} tensors, ONNX Runtime's {their_tensors}"),
        ("memory of that", f"{memory:.0f} MB", "entropy calibrator", f"{their_memory:.0f} MB", "-", "500 MB", "peak"),
    ]  # fmt: skip


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bins", type=int, default=8001, help="bins of the entropy threshold, an odd number")
    parser.add_argument("--inputs", type=int, default=100, help="inputs that the net is calibrated with")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the best counts")
    parser.add_argument("--ort-bins", type=int, default=128, help="bins of ONNX Runtime's calibrator")
    parser.add_argument("--without-net", action="store_true", help="leave the net out, which is fetched")
    options = parser.parse_args()
    table = Table(title="Choosing scales, one BLAS thread")
    for head in ("what", "here", "beside", "there", "times faster", "target", "note"):
        table.add_column(head, justify="left" if head in ("what", "beside", "note") else "right")
    with threadpool_limits(1):
        rows = [*entropy_rows(options.bins, options.rounds), *scheme_rows(options.rounds)]
        rows += histogram_rows(options.rounds)
        rows += [] if options.without_net else net_rows(options.inputs, options.ort_bins)
    for row in rows:
        table.add_row(*row)
    Console(width=160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
