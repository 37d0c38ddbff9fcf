"""Compare with other tools on the digits net: the table in the README, each cell from a run of that tool.

    pip install polygraphy netron
    python tests/benchmarks/peers.py

Polygraphy and ONNX Runtime's qdq_loss_debug get the same runs as qdebug, through their Python interfaces. Netron shows
models and computes nothing; its cells say whether it reads what is asked for. A tool that is not installed gets no
cells.

paired     tensors of the int8 net that find a tensor of the float net
kernel     nodes reported as wrong if one kernel leaves the last 8 of 24 channels; one is right
weight     nodes reported first if one weight has a channel 316 times larger: is `dwconv` the first
arithmetic nodes of the int8 net whose arithmetic is named bit for bit
nan        whether a NaN in one run only is reported as such
mended     the SQNR of the output with the model that the tool wrote against the weight's range
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import qdebug
from qdebug.running.record import record_run

ROOT = Path(__file__).parents[2]
ROWS = ("paired", "kernel", "weight", "arithmetic", "nan", "mended")
NONE = "-"


def arrays(recording: qdebug.Recording) -> dict[str, np.ndarray]:
    """Return what a run computed of its inputs, of the first sample, codes as real numbers."""
    computed = set(recording.graph.inputs)
    for node in recording.graph.nodes:
        if computed.intersection(node.inputs):
            computed.update(filter(None, node.outputs))
    names = [name for node in recording.graph.nodes for name in node.outputs if name in computed]
    return {name: real(recording, name) for name in names if recording.has(name)}


def real(recording: qdebug.Recording, name: str) -> np.ndarray:
    """Return a tensor of the first sample in real numbers."""
    quant, value = recording.graph.tensors[name].quant, recording.load(name)
    if quant is None:
        return np.asarray(value)
    return np.asarray((value.astype(np.float32) - quant.zero_point) * quant.scale, np.float32)


class Runs:
    """The runs that all tools get: recordings, and models."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, ROOT / "samples" / "00_tutorial.py", folder], check=True)
        self.folder = folder
        self.reference = self.record("net.onnx")
        self.int8 = self.record("net.int8.onnx")
        self.large, self.large_int8 = self.record("large.onnx"), self.record("large.int8.onnx")
        self.board = qdebug.open_recording(folder / "board.h5")
        with qdebug.Recorder(None, backend="broken") as rec:
            for name in self.reference.graph.inputs:
                rec.put(name, self.reference.load(name))
            for node in self.reference.graph.nodes:
                for name in node.outputs:
                    value = np.array(self.reference.load(name))
                    if node.name in ("logits", "fc1", "relu5"):
                        value.flat[0] = np.nan
                    rec.put(name, value, node=node.name, op=node.op, inputs=node.inputs, attrs=dict(node.attrs))
            rec.outputs("logits")
        self.nan = rec.recording

    def record(self, name: str) -> qdebug.Recording:
        """Record a model on the digits as it is written."""
        out = self.folder / f"{name}.h5"
        with np.load(self.folder / "x.npz") as inputs:
            record_run(
                self.folder / name,
                backend="onnxruntime",
                options={"opt": "none"},
                inputs=dict(inputs),
                out=out,
                samples=32,
            )
        return qdebug.open_recording(out)


def with_qdebug(runs: Runs) -> dict[str, str]:
    """Return the cells of qdebug."""
    int8, large = qdebug.diff(runs.reference, runs.int8), qdebug.diff(runs.large, runs.large_int8)
    board, nan = qdebug.diff(runs.reference, runs.board), qdebug.diff(runs.reference, runs.nan)
    wrong = [node.node for node in board.nodes if node.status == "diverged"]
    explained = qdebug.explain(runs.int8).summary
    words = [
        "repair",
        "large.onnx",
        "large.int8.onnx",
        "--inputs",
        "x.npz",
        "--samples",
        "32",
        "--kinds",
        "per-channel",
    ]
    command = [sys.executable, "-m", "qdebug", *words, "--write-model", "mended.onnx"]
    subprocess.run(command, cwd=runs.folder, check=True, capture_output=True)
    mended = qdebug.diff(runs.large, runs.record("mended.onnx"))
    computed = [node for node in int8.nodes if node.op != "Input"]
    return {
        "paired": f"{len(computed)} of {len(arrays(runs.int8))}",
        "kernel": f"{len(wrong)}: {', '.join(wrong)}",
        "weight": large.diagnosis[0].model_node or large.diagnosis[0].node,
        "arithmetic": f"{explained['explained']} of {explained['explained'] + explained['unexplained']}",
        "nan": "yes" if nan.status == "nonfinite" else "no",
        "mended": f"{output_db(large):.1f} -> {output_db(mended):.1f} dB",
    }


def output_db(result: Any) -> float:
    """Return the SQNR of the output."""
    return float(next(node.metrics.sqnr_db for node in reversed(result.nodes)))


def with_polygraphy(runs: Runs) -> dict[str, str]:
    """Return the cells of Polygraphy: tensors of one name compared, with 10 % of the largest value allowed."""
    from polygraphy.comparator import Comparator, IterationResult, RunResults, SimpleCompareFunc

    def compared(backend: qdebug.Recording) -> dict[str, bool]:
        first, second = arrays(runs.reference), arrays(backend)
        results = RunResults()
        for name, values in (("float", first), ("backend", second)):
            results.append((name, [IterationResult(values, runner_name=name)]))
        tolerances = {name: 0.1 * float(np.nanmax(np.abs(value))) for name, value in first.items()}
        function = SimpleCompareFunc(atol=tolerances, rtol=0.0, check_error_stat="max")
        with contextlib.redirect_stdout(io.StringIO()):
            accuracy = Comparator.compare_accuracy(results, compare_func=function, fail_fast=False)
        (iterations,) = accuracy[0].values()
        return {name: bool(match) for name, match in iterations[0].items()}

    int8, board, nan = compared(runs.int8), compared(runs.board), compared(runs.nan)
    wrong = [name for name, match in board.items() if not match]
    return {
        "paired": f"{len(int8)} of {len(arrays(runs.int8))}",
        "kernel": str(len(wrong)),
        "weight": NONE,
        "arithmetic": NONE,
        "nan": "as a mismatch" if not all(nan.values()) else "no",
        "mended": NONE,
    }


def with_qdq_loss_debug(runs: Runs) -> dict[str, str]:
    """Return the cells of ONNX Runtime's qdq_loss_debug, which runs both models itself."""
    from onnxruntime.quantization import CalibrationDataReader, qdq_loss_debug

    class Digits(CalibrationDataReader):
        def __init__(self) -> None:
            with np.load(runs.folder / "x.npz") as inputs:
                self.images = iter(inputs["x"])

        def get_next(self) -> dict[str, np.ndarray] | None:
            image = next(self.images, None)
            return None if image is None else {"x": image}

    def matched(reference: str, backend: str) -> dict[str, Any]:
        activations = []
        for model in (backend, reference):
            target = runs.folder / f"debug.{model}"
            qdq_loss_debug.modify_model_output_intermediate_tensors(str(runs.folder / model), str(target))
            activations.append(qdq_loss_debug.collect_activations(str(target), Digits()))
        return qdq_loss_debug.create_activation_matching(*activations)

    int8 = matched("net.onnx", "net.int8.onnx")
    errors = qdq_loss_debug.compute_activation_error(matched("large.onnx", "large.int8.onnx"))
    worst = min(errors, key=lambda name: errors[name]["xmodel_err"])
    return {
        "paired": f"{len(int8)} of {len(arrays(runs.int8))}",
        "kernel": NONE,
        "weight": worst,
        "arithmetic": NONE,
        "nan": NONE,
        "mended": NONE,
    }


def with_netron(runs: Runs) -> dict[str, str]:
    """Return the cells of Netron, which shows one model."""
    return dict.fromkeys(ROWS, NONE)


TOOLS: dict[str, tuple[str, Callable[[Runs], dict[str, str]]]] = {
    "qdebug": ("qdebug", with_qdebug),
    "Polygraphy": ("polygraphy", with_polygraphy),
    "qdq_loss_debug": ("onnxruntime", with_qdq_loss_debug),
    "Netron": ("netron", with_netron),
}


def table() -> dict[str, dict[str, str]]:
    """Return the cells of each installed tool."""
    with TemporaryDirectory() as scratch:
        runs = Runs(Path(scratch, "night"))
        return {tool: cells(runs) for tool, (package, cells) in TOOLS.items() if importlib.util.find_spec(package)}


def main() -> None:
    """Print the table."""
    cells = table()
    print(f"| | {' | '.join(cells)} |\n|---|{'---|' * len(cells)}")
    for row in ROWS:
        print(f"| {row} | {' | '.join(tool[row] for tool in cells.values())} |")


if __name__ == "__main__":
    main()
