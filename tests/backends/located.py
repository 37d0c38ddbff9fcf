"""Hold the diagnosis of quantized nets against the real runtime: are the nodes that it names the ones that matter?

python tests/backends/located.py FOLDER [--nets NAME ...] [--samples N] [--triples N]

Each float net is quantized by onnxruntime's default recipe and compared. Then it is quantized again and really run:

  now         SQNR in dB of the first output as it is
  named       the same with the first three nodes of the diagnosis left in float
  best        the best of triples drawn from the ten costliest nodes, by a fixed seed
  promised    what the diagnosis says that weights per channel in the whole net gain, in dB
  per channel what they gain in the real runtime

FOLDER keeps the nets, see `repaired.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph

from qdebug.compare.result.result import RunComparison
from qdebug.repair.edit_bench import EditBench
from qdebug.repair.remedies import with_remedies
from qdebug.running.record import record_run
from qdebug.session import DiffSession, open_recording

HEADS = ("net", "now", "named", "best", "promised", "per channel", "named nodes")


def repaired() -> ModuleType:
    """Import what fetches nets and their inputs."""
    spec = importlib.util.spec_from_file_location("repaired", Path(__file__).with_name("repaired.py"))
    module = sys.modules["repaired"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Quantizer:
    """Quantizes a net in several ways, by one calibration's inputs, and runs it.

    Args:
        path: The float net.
        inputs: Arrays with samples along the first axis.
        folder: For what is made.
    """

    def __init__(self, path: Path, inputs, folder: Path) -> None:
        from onnxruntime.quantization.shape_inference import quant_pre_process

        self.inputs, self.folder = inputs, folder
        self.count = len(next(iter(inputs.values())))
        self.prepared = folder / "prepared.onnx"
        quant_pre_process(str(path), str(self.prepared), skip_symbolic_shape=True)
        self.floats = self.run(self.prepared)

    def feeds(self):
        return [{name: np.asarray(array[at]) for name, array in self.inputs.items()} for at in range(self.count)]

    def quantized(self, name: str, *, excluded: Collection[str] = (), per_channel: bool = False) -> Path:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        feeds = iter(self.feeds())

        class Reader(CalibrationDataReader):
            def get_next(self):
                return next(feeds, None)

        out = self.folder / f"{name}.onnx"
        quantize_static(
            str(self.prepared), str(out), Reader(), quant_format=QuantFormat.QDQ, per_channel=per_channel,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, nodes_to_exclude=list(excluded),
        )  # fmt: skip
        return out

    def run(self, model: Path) -> list[np.ndarray]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.outputs = [each.name for each in session.get_outputs()]
        return [session.run(None, feed) for feed in self.feeds()]

    def sqnr(self, model: Path, output: str) -> float:
        made, at = self.run(model), self.outputs.index(output)
        signal = sum(float(np.sum(theirs[at].astype(np.float64) ** 2)) for theirs in self.floats)
        noise = sum(
            float(np.sum((ours[at].astype(np.float64) - theirs[at]) ** 2))
            for ours, theirs in zip(made, self.floats, strict=True)
        )
        return 10 * math.log10(signal / noise) if noise else math.inf


def node_names(session: DiffSession, result: RunComparison) -> dict[str, str]:
    """Return what the quantizer calls the node that computes a tensor, by tensor."""
    bench = EditBench(session)
    units = {node.tensor: bench.unit_of(node.tensor) for node in result.nodes}
    return {tensor: (unit.node.origin or (unit.node.name,))[0] for tensor, unit in units.items() if unit is not None}


def row(name: str, path: Path, inputs, triples: int) -> tuple[str, ...]:
    """Return a row of the table."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        quantizer = Quantizer(path, inputs, folder)
        int8 = quantizer.quantized("int8")
        for source, out in ((quantizer.prepared, "float.h5"), (int8, "int8.h5")):
            record_run(source, backend="onnxruntime", options={"opt": "none"}, inputs=inputs,
                       samples=quantizer.count, out=folder / out)  # fmt: skip
        session = DiffSession(open_recording(folder / "float.h5"), open_recording(folder / "int8.h5"))
        result = with_remedies(session, session.result())
        names = node_names(session, result)
        exact = [each for each in result.verdict.contributors if each.how == "exact"]
        costly = list(dict.fromkeys(names[each.tensor] for each in exact if names.get(each.tensor)))[:10]
        if not costly:
            return name, "within its limits", "", "", "", "", ""
        output = exact[0].output
        now = quantizer.sqnr(int8, output)
        first = [names[fault.tensor] for fault in result.diagnosis if names.get(fault.tensor)]
        first = list(dict.fromkeys(first))[:3]
        named = quantizer.sqnr(quantizer.quantized("named", excluded=first), output)
        drawn = list(combinations(costly, 3))
        rng = np.random.default_rng(0)
        chosen = [drawn[at] for at in rng.permutation(len(drawn))[:triples]]
        best = max(
            (quantizer.sqnr(quantizer.quantized("triple", excluded=each), output) for each in chosen), default=named
        )
        remedies = [remedy for fault in result.diagnosis for remedy in fault.remedies if remedy.edit == "per-channel *"]
        promised = "" if not remedies else f"{remedies[0].gain_db[output]:+.1f}"
        real = None
        with suppress(InvalidGraph):  # a model of an older operator set, which has no scales per channel
            if remedies:
                real = quantizer.sqnr(quantizer.quantized("channels", per_channel=True), output) - now
        said = ", ".join(first)
        return name, f"{now:.1f}", f"{named:.1f}", f"{best:.1f}", promised, "" if real is None else f"{real:+.1f}", said


def main(words: Sequence[str] | None = None) -> None:
    """Print the table as Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where nets are kept")
    parser.add_argument("--nets", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--triples", type=int, default=30)
    options = parser.parse_args(words)
    print("| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS), sep="\n", flush=True)
    for name, make in repaired().nets(options.folder.resolve(), options.samples).items():
        if not options.nets or name in options.nets:
            path, inputs = make()
            print("| " + " | ".join(row(name, path, inputs, options.triples)) + " |", flush=True)


if __name__ == "__main__":
    main()
