"""How fast scales are chosen, beside ONNX Runtime's calibrator, MXNet's loop and numpy on the same values.

Run it: python tests/benchmarks/bench_scales.py [--bins 8001] [--inputs 100] [--ort-bins 2048] [--without-net]

Times are of the processor, so that other work on the machine counts little; loops and whole calibrations are run once,
all else is the best of several rounds. BLAS is held to one thread. Targets: the entropy threshold at 8001 bins at least
150 times faster than ONNX Runtime's `get_entropy_threshold` and than the plain loop of MXNet, and the same; any scheme
and calibrator from a stored histogram in less than 50 ms; a histogram at least 3 times faster than `numpy.histogram`;
a key of the screen what-if in at most 16 ms; all tensors of the text direction net over 100 inputs at least 20 times
faster than ONNX Runtime's entropy calibrator, in less than 500 MB.

Half of the time of a histogram is `numpy.bincount`, which `numpy.histogram` calls too; nothing in numpy counts faster.
The passes before it (range, zeros, bins) take the other half: that makes 2.4 to 3.5 times, by the processor.

ONNX Runtime's calibrator has 128 bins by default, of which 128 groups are made: nothing is merged, and no threshold is
looked for. Its runs of the net alone then take more than a twentieth of all its time, so that no way to count and to
choose is 20 times faster as a whole. With --ort-bins 2048 it has the resolution of the histograms here, and takes
minutes. Runs, counting and choosing are told apart.
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
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from qdebug.compare.align.pairs import Match, Pair
from qdebug.errors import UsageError
from qdebug.numerics.calibration import CALIBRATORS, calibrate, parse_calibrator
from qdebug.numerics.entropy import entropy_range, mxnet_threshold, ort_threshold
from qdebug.numerics.range_histogram import RangeCounter
from qdebug.numerics.scheme import SCHEMES, QuantScheme
from qdebug.recording.recorder import Recorder
from qdebug.scales.make_profile import profile_model
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.reading.messages import ScaleWish, TrialRequest
from qdebug.tui.reading.plan_rows import describe_comparison
from qdebug.tui.reading.trials import Trials
from qdebug.tui.views.view import Scene
from qdebug.tui.views.what_if import WhatIfView

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
                        calibrate(parse_calibrator(name), histogram, scheme)

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


def key_rows(rounds: int) -> list[tuple[str, ...]]:
    """Time keys of the screen what-if, from the change to the lines that are drawn for it; all but 5 % are faster."""
    fake = load("unit/tui", "fake_session")

    class Session(fake.FakeSession):
        def guard(self, *, any_thread: bool = False) -> bool:
            return any_thread

    made = {}
    for name, facts in (("values", {}), ("codes", {"scale": 0.03})):
        values = np.random.default_rng(0).laplace(size=VALUES).astype(np.float32)
        with Recorder(None, backend="made up") as rec:
            rec.put(name, np.clip(np.rint(values / 0.03), -128, 127).astype(np.int8) if facts else values, **facts)
        made[name] = rec.recording
    pairs = [Pair(reference="values", backend="codes", match=Match.EXACT, reason="")]
    alignment = SimpleNamespace(pairs=pairs)
    source = SimpleNamespace(backend=made["codes"], reference=made["values"], alignment=alignment)
    told = []
    Trials(told.append).answer(source, TrialRequest(row=9, tensor="codes", wish=ScaleWish()), lambda: False)
    opened = describe_comparison(Session())
    navigator = Navigator(opened.table, samples=opened.samples)
    scene = Scene(navigator=navigator, opened=opened, result=None, ready=None, glyphs=UNICODE, trial=told[-1])
    page, times = WhatIfView(), []
    for key in range(rounds * 40):
        begin = time.process_time()
        page.step(scene, 8 if key % 7 else -40)
        page.trial(scene)
        page.draw(scene, 80, 19)
        times.append(time.process_time() - begin)
    slow = sorted(times)[int(len(times) * 0.95)]
    return [("a key of what-if, 80x24", f"{slow * 1e3:.2f} ms", "-", "-", "-", "16 ms",
             f"95 % of {len(times)}; {VALUES:,} values")]  # fmt: skip


def in_process(job: Callable[..., object], *arguments: object) -> tuple[dict[str, float], float]:
    """Run a job in a process of its own; return what it tells of its times, and the memory that it took in MB."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, job, arguments))
    process.start()
    found = ours.recv()
    process.join()
    return found


def _work(pipe: object, job: Callable[..., object], arguments: tuple[object, ...]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        found = job(*arguments)
    unit = 1024 if sys.platform != "darwin" else 1
    pipe.send((found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6))


def seconds(job: Callable[[], object]) -> tuple[float, object]:
    """Return the processor's seconds for a job, and what it gives."""
    begin = time.process_time()
    found = job()
    return time.process_time() - begin, found


def calibrate_here(model: str, inputs: np.ndarray) -> dict[str, float]:
    """Profile a net and choose a range for each tensor by entropy, as ONNX Runtime's calibrator does."""
    profiling, profile = seconds(
        lambda: profile_model(
            Path(model),
            backend="onnxruntime",
            options={"opt": "none"},
            inputs={"x": inputs},
            samples=len(inputs),
            taps="all",
        )
    )

    def choose() -> int:
        chosen = 0
        for tensor in profile.tensors.values():
            with contextlib.suppress(UsageError):
                calibrate(parse_calibrator("entropy"), tensor.histogram, QuantScheme(signed=False))
                chosen += 1
        return chosen

    choosing, tensors = seconds(choose)
    return {"collect": profiling, "choose": choosing, "tensors": tensors}


def calibrator_there(model: str, bins: int, folder: str) -> Any:
    """Return ONNX Runtime's entropy calibrator."""
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    return create_calibrator(
        model,
        augmented_model_path=os.path.join(folder, "augmented.onnx"),  # noqa: PTH118
        calibrate_method=CalibrationMethod.Entropy,
        extra_options={"num_bins": bins, "num_quantized_bins": 128},
    )


def run_there(model: str, inputs: np.ndarray) -> dict[str, float]:
    """Run the net with all the outputs that ONNX Runtime's calibrator asks for, and do nothing with them."""
    with tempfile.TemporaryDirectory() as folder:
        session = calibrator_there(model, 128, folder).infer_session
        taken, _ = seconds(lambda: [session.run(None, {"x": each}) and None for each in inputs])
    return {"runs": taken}


def calibrate_there(model: str, inputs: np.ndarray, bins: int) -> dict[str, float]:
    """Calibrate a net by ONNX Runtime's entropy calibrator."""
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([{"x": each} for each in inputs])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        calibrator = calibrator_there(model, bins, folder)
        collecting, _ = seconds(lambda: calibrator.collect_data(Reader()))
        choosing, found = seconds(calibrator.compute_data)
        return {"collect": collecting, "choose": choosing, "tensors": len(list(found.keys()))}


def net_rows(inputs: int, bins: int) -> list[tuple[str, ...]]:
    """Calibrate the text direction net on crops of real pages, each way in a process of its own."""
    nets = load("backends", "models")
    model, crops = str(nets.net("cls")), nets.crops(inputs)[:, None]
    ours, memory = in_process(calibrate_here, model, crops)
    theirs, their_memory = in_process(calibrate_there, model, crops, bins)
    runs = in_process(run_there, model, crops)[0]["runs"]
    beside = f"entropy calibrator, {bins} bins"

    def row(title: str, here: float, there: float, target: str, note: str) -> tuple[str, ...]:
        return (title, f"{here:.2f} s", beside, f"{there:.2f} s", f"{there / here:.1f}", target, note)

    return [
        row(f"calibrating cls, {inputs} inputs", ours["collect"] + ours["choose"], theirs["collect"] + theirs["choose"],
            "20", f"{ours['tensors']} tensors, ONNX Runtime's {theirs['tensors']}"),
        row("  its runs alone", runs, runs, "-", "the same on both sides"),
        row("  counting", ours["collect"] - runs, theirs["collect"] - runs, "-", "without the runs"),
        row("  choosing", ours["choose"], theirs["choose"], "-", "thresholds of stored histograms"),
        ("memory of that", f"{memory:.0f} MB", beside, f"{their_memory:.0f} MB", "-", "500 MB", "peak"),
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
        rows += [*histogram_rows(options.rounds), *key_rows(options.rounds)]
        rows += [] if options.without_net else net_rows(options.inputs, options.ort_bins)
    for row in rows:
        table.add_row(*row)
    Console(width=160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
