"""Run faulty nets on ONNX Runtime, record and compare them, and say which answer would be right."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from qdebug.api import diff
from qdebug.compare.result.result import RunComparison
from qdebug.model import Graph, MemoryRecording, Recording
from qdebug.running.record import record_run
from qdebug.session import open_recording

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path.insert(0, str(HERE))

import surgery  # noqa: E402

DIGITS = TESTS.parent / "samples" / "digits"


@dataclass(frozen=True)
class Outcome:
    """What a diff said of a seeded fault, and what would have been right."""

    net: str
    kind: str
    seed: int
    fault: object
    expected: frozenset[str]
    result: RunComparison
    recording: Recording

    @property
    def origin_right(self) -> bool:
        return self.result.verdict.origin in self.expected

    @property
    def first_right(self) -> bool:
        return self.result.verdict.first_divergence in self.expected

    def row(self) -> str:
        verdict = self.result.verdict
        return (
            f"{self.net:22} {self.kind:20} {self.seed} {'ok   ' if self.origin_right else 'WRONG'} "
            f"{'ok   ' if self.first_right else 'WRONG'} expected {'|'.join(sorted(self.expected)) or '-'}, "
            f"origin {verdict.origin}, first {verdict.first_divergence} ({self.fault.what})"
        )


class Bench:
    """Faults of one net and its quantized forms, all compared with one healthy reference.

    Args:
        folder: Where recordings go.
        reference: The float model.
        forms: Models to operate on, by name; the reference's own model among them.
        feeds: Two inputs or more, stacked; the first is the test's, the last is what stale memory holds.
        count: How many of them are recorded.
        surgeons: The kinds of faults.
    """

    def __init__(
        self,
        folder: Path,
        reference: Path,
        forms: Mapping[str, Path],
        feeds: Mapping[str, np.ndarray],
        count: int = 1,
        surgeons: Mapping[str, surgery.Surgeon] = surgery.SURGEONS,
    ) -> None:
        self._folder = folder
        self._surgeons = surgeons
        self._all = feeds
        self._feeds = {name: array[:count] for name, array in feeds.items()}
        self._count = count
        self._forms = {name: surgery.Net(onnx.load(path)).model for name, path in forms.items()}
        self.reference = self._record(surgery.Net(onnx.load(reference)).model, "reference", "none")

    def _record(self, model: onnx.ModelProto, title: str, level: str) -> Recording:
        source = self._folder / f"{title}.onnx"
        onnx.save(model, source)
        target = self._folder / f"{title}.h5"
        record_run(
            source,
            backend="onnxruntime",
            options={"opt": level, "threads": "1"},
            inputs=self._feeds,
            samples=self._count,
            out=target,
            force=True,
        )
        return open_recording(target)

    def seed(
        self, form: str, kind: str, seed: int, *, felt: float = 1e-4, level: str = "extended", ruins: bool = False
    ) -> Outcome:
        """Seed a fault, record the faulty net as it really runs and compare it with the healthy reference.

        Args:
            form: Name of the model to operate on.
            kind: Name of the surgeon.
            seed: Chooses the node.
            felt: How much an output must change, as a share of its largest value.
            level: Optimization level of the faulty run.
            ruins: Whether an output has to lose more than a tenth of its signal instead.
        """
        faulty, fault = self._operate(self._forms[form], kind, seed, felt, ruins=ruins)
        recording = shown = self._record(faulty, "faulty", level)
        if fault.disguise is not None:
            recording = disguised(recording, fault.disguise)
        expected = self._holders(recording, surgery.Net(faulty), fault.nodes)
        if fault.disguise is not None:  # who made what the hidden nodes spoil seems to give what they give
            makers = (shown.graph.producer(name) for name in fault.disguise.rename)
            seeming = {node.name for node in makers if node is not None and node.name not in fault.disguise.drop}
            expected = frozenset(seeming) or expected
        return Outcome(form, kind, seed, fault, expected, self._compare(recording), recording)

    def _compare(self, recording: Recording) -> RunComparison:
        return diff(self.reference, recording)

    def _holders(self, recording: Recording, net: surgery.Net, nodes: frozenset[str]) -> frozenset[str]:
        return holders(recording.graph, net, nodes)

    def seed_two(self, form: str, kind: str, seed: int) -> tuple[tuple[frozenset[str], frozenset[str]], RunComparison]:
        """Seed two faults that the graph shows; the nodes with the one that comes first are given first."""
        once, first = self._operate(self._forms[form], kind, seed)
        twice, second = self._operate(once, kind, seed + 50)
        recording = self._record(twice, "faulty", "extended")
        net = surgery.Net(twice)
        order = {node.name: place for place, node in enumerate(recording.graph.nodes)}
        found = [holders(recording.graph, net, fault.nodes) for fault in (first, second)]
        found.sort(key=lambda names: min(order[name] for name in names))
        return (found[0], found[1]), diff(self.reference, recording)

    def _operate(
        self, model: onnx.ModelProto, kind: str, seed: int, felt: float = 1e-4, *, ruins: bool = False
    ) -> tuple[onnx.ModelProto, object]:
        healthy = self._run(model, 0)

        def changes(net: object) -> bool:
            try:
                found = self._run(net.model, 0)
            except Exception:  # noqa: BLE001  the runtime's own errors: the surgery made a net that cannot run
                return False
            return ruined(healthy, found) if ruins else differ(healthy, found, felt)

        def look(tensor: str, *, other: bool = False) -> dict[str, np.ndarray]:
            return self._run(model, -1 if other else 0, tensor)

        return surgery.operate(model, kind, seed, changes=changes, look=look, surgeons=self._surgeons)

    def healthy(self, form: str, level: str = "extended") -> RunComparison:
        """Compare a net without fault."""
        return diff(self.reference, self._record(self._forms[form], "healthy", level))

    def _run(self, model: onnx.ModelProto, sample: int, tensor: str | None = None) -> dict[str, np.ndarray]:
        if tensor is not None and tensor not in [value.name for value in model.graph.output]:
            wider = onnx.ModelProto()
            wider.CopyFrom(model)
            wider.graph.output.append(onnx.ValueInfoProto(name=tensor))
            model = wider
        session = _session(model.SerializeToString())
        names = [value.name for value in session.get_outputs()]
        feed = {value.name: np.asarray(self._all[value.name][sample]) for value in session.get_inputs()}
        return dict(zip(names, session.run(names, feed), strict=True))


@functools.lru_cache(maxsize=8)
def _session(model: bytes):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def differ(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], felt: float = 1e-4) -> bool:
    """Tell whether an output element differs by more than a share of the largest one, or a shape."""
    for name, array in one.items():
        theirs = other[name]
        if array.shape != theirs.shape:
            return True
        if array.dtype.kind != "f":
            if np.any(array != theirs):
                return True
            continue
        scale = float(np.abs(array).max(initial=0))
        if np.any(np.abs(array - theirs) > felt * scale) or np.isnan(theirs).any() != np.isnan(array).any():
            return True
    return False


def ruined(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Tell whether an output loses more than a tenth of its signal: it is left with less than 20 dB."""
    real = {name: array for name, array in one.items() if array.dtype.kind == "f"}
    return any(np.linalg.norm(other[name] - array) > 0.1 * np.linalg.norm(array) for name, array in real.items())


def disguised(recording: Recording, disguise: object) -> MemoryRecording:
    """Return a recording whose graph does not show the nodes that spoiled its values."""
    graph, rename = recording.graph, dict(disguise.rename)
    nodes = []
    for node in graph.nodes:
        if node.name in disguise.drop:
            continue
        attrs = dict(node.attrs)
        for name, changed in disguise.attrs.items():
            if name == node.name or name in node.origin:
                attrs |= changed
        renamed = {side: tuple(rename.get(t, t) for t in getattr(node, side)) for side in ("inputs", "outputs")}
        nodes.append(replace(node, attrs=attrs, **renamed))
    left = {t for node in nodes for t in (*node.inputs, *node.outputs)} | {*graph.inputs, *graph.outputs}
    infos = {info.name: info for info in graph.tensors.values() if info.name in left}
    for old, new in rename.items():
        if any(new in node.outputs for node in nodes if node.name not in disguise.drop) and old in graph.tensors:
            made = next(node for node in nodes if new in node.outputs)
            if old in next(node for node in graph.nodes if node.name == made.name).outputs:
                role = graph.tensors[new].role if new in graph.tensors else graph.tensors[old].role
                infos[new] = replace(graph.tensors[old], name=new, role=role)
    edited = Graph(
        nodes, tensors=infos.values(), inputs=graph.inputs, outputs=graph.outputs, name=graph.name, opset=graph.opset
    )
    arrays = {}
    for name in recording.names:
        if name in left:
            for sample in range(1 if graph.is_constant(name) else recording.samples):
                if recording.has(name, sample):
                    arrays[name, sample, 0] = recording.load(name, sample)
    return MemoryRecording(edited, arrays, recording.info)


def holders(graph: Graph, net: object, faulty: frozenset[str]) -> frozenset[str]:
    """Return the backend nodes that do what the faulty source nodes do.

    That is each node of that name or with that node folded in, unless it only makes a constant. Where the backend has
    none, those that the first tensors downstream of it enter.
    """
    wanted = set(faulty)
    runs = [node for node in graph.nodes if not all(graph.is_constant(name) for name in node.outputs if name)]
    for _ in range(6):
        held = {node.name for node in runs if node.name in wanted or wanted & set(node.origin)}
        if held:
            return frozenset(held)
        wanted = {r.name for name in wanted for tensor in net.node(name).output for r in net.consumers(tensor)}
    return frozenset()
