"""Print how many pairs the alignment gets right where truth is known: nets with scrambled names, layouts and nodes.

python tests/backends/scrambled.py FOLDER [--seeds N] [--nets WORD ...] [--noise WORD ...] [--wrong]

FOLDER is made where it is missing; the nets are fetched into it, as packages. Each net runs on ONNX Runtime with
opt=none over four samples: the reference. Its backend is made of that recording, and the true partner of each tensor
is kept:

  names     every tensor and node is called by a random number
  layouts   the dimensions of every second tensor are stored in a random order, dimensions of one element dropped or
            the whole made flat now and then; no recording says so. Weights of a Conv are stored in an order that a
            framework has
  folded    a BatchNormalization that alone reads a Conv goes into the Conv's weights
  fused     a Relu or Clip that alone reads a Conv is computed inside it: nothing between them is recorded
  order     nodes stand in another order that the graph allows
  noise     fp32: 1e-6 of the rms. int8: 10 dB, held to the tensor's own range, and weights rounded to 8 bits

  graph     the backend's recording has its graph, with weights
  values    it has nothing but values under random names, in the order of its nodes

A pair is right if its reference tensor is the true partner, or a copy of that: one with the very same elements. A
tensor without partner is missing, unless the report lists it as another form of a compared one (column copies).
`turned` counts right pairs whose values are then brought into the reference's order, of all right ones. `sure` counts
wrong pairs whose confidence is at or above `PAIR_SURE_MIN_CONFIDENCE`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import models
from rich.console import Console
from rich.table import Table

from qdebug.compare.align.align import align
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.align.pairs import Pair, Side
from qdebug.errors import AlignmentError
from qdebug.model import Graph, MemoryRecording, Node, Recording, Role, RunInfo, TensorInfo
from qdebug.model.thresholds.alignment import PAIR_SURE_MIN_CONFIDENCE
from qdebug.numerics.accumulate import has_same_elements
from qdebug.running.record import record_run
from qdebug.session import open_recording

SAMPLES = 4
FP32_NOISE = 1e-6
INT8_NOISE = 10 ** (-10 / 20)
ORDERS = {4: ((0, 1, 2, 3), (0, 2, 3, 1), (2, 3, 1, 0))}
"""How frameworks keep the weight of a Conv: outputs and inputs first, inputs last, both last."""


@dataclass(kw_only=True)
class Truth:
    """A scrambled recording, and the reference tensors that each of its tensors is."""

    recording: MemoryRecording
    partners: dict[str, frozenset[str]]


def nets(cache: Path) -> Iterator[tuple[str, Path, dict[str, np.ndarray]]]:
    """Return name, model and inputs of each net."""
    count = SAMPLES
    yield "digits", models.DIGITS / "digits.onnx", {"x": models.digits(count)[:, None]}
    yield "cls", models.net("cls", cache), {"x": models.crops(count, cache=cache)[:, None]}
    bounds = {"fmin": np.full(count, 46.875, np.float32), "fmax": np.full(count, 2093.75, np.float32)}
    audio = models.sound(count, seconds=0.4)[:, None]
    yield "swift-f0", models.net("swift-f0", cache), {"audio": audio, **bounds}


def recorded(model: Path, inputs: dict[str, np.ndarray]) -> MemoryRecording:
    """Record a net on ONNX Runtime without optimization, in memory."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "ref.h5"
        record_run(model, backend="onnxruntime", options={"opt": "none"}, inputs=inputs, samples=SAMPLES, out=out)
        held = open_recording(out)
        arrays = {(name, *place): held.load(name, *place) for name in held.names for place in held.places(name)}
        return MemoryRecording(held.graph, arrays, RunInfo(backend="reference"))


class Scrambler:
    """Makes a backend's recording of a reference's, and keeps which tensor is which.

    Args:
        reference: The reference.
        noise: "fp32" or "int8".
        rng: What everything random is drawn from.
    """

    def __init__(self, reference: MemoryRecording, noise: str, rng: np.random.Generator) -> None:
        self.reference, self.int8, self.rng = reference, noise == "int8", rng
        run = IndexedRecording.of(reference)
        self.counted = {
            name
            for name in run.recorded
            if not (run.folds(name) or run.depends_on_shapes(name)) and reference.load(name).dtype == np.float32
        }
        self.folded_constants = {name for name in reference.names if run.folds(name)}
        self.weights: dict[str, np.ndarray] = {}
        self.nodes = list(reference.graph.nodes)

    def scrambled(self, *, with_graph: bool) -> Truth:
        """Make the recording."""
        self._fold()
        self._fuse()
        self._reorder()
        made = {name for node in self.nodes for name in node.outputs if name}
        used = made | {name for node in self.nodes for name in node.inputs if name} | set(self.reference.graph.inputs)
        numbers = self.rng.choice(10**6, len(used), replace=False)
        names = dict(zip(sorted(used), (f"t{number}" for number in numbers), strict=True))
        arrays: dict[tuple[str, int, int], np.ndarray] = {}
        order = [*self.reference.graph.inputs, *(name for node in self.nodes for name in node.outputs if name)]
        for name in order:
            if not with_graph and name not in self.counted:
                continue
            turn = self._turn(name) if name in self.counted and name not in self.reference.graph.inputs else None
            held = {place: self.reference.load(name, *place) for place in self.reference.places(name)}
            spoilt = name in self.counted and name not in self.reference.graph.inputs
            span = (min(map(np.min, held.values())), max(map(np.max, held.values()))) if spoilt else (0, 0)
            for place, plain in held.items():
                values = self._noisy(plain, span) if spoilt else plain
                arrays[names[name], *place] = values if turn is None else turn(values)
        if with_graph:
            for name in sorted(used - set(order)):
                if name in self.weights or self.reference.has(name):
                    arrays[names[name], 0, 0] = self._constant(name)
        graph = self._graph(names, arrays) if with_graph else Graph()
        if not with_graph:
            held = dict.fromkeys(name for name, _, _ in arrays)
            graph = Graph([Node(name=n, op="", outputs=(n,)) for n in held], tensors=[TensorInfo(name=n) for n in held])
        copies = self._copies()
        back = {renamed: name for name, renamed in names.items()}
        partners = {name: copies[back[name]] for name, _, _ in arrays if back[name] in self.counted}
        return Truth(recording=MemoryRecording(graph, arrays, RunInfo(backend="scrambled")), partners=partners)

    def _value(self, name: str) -> np.ndarray | None:
        if name in self.weights:
            return self.weights[name]
        return self.reference.load(name) if name in self.folded_constants and self.reference.has(name) else None

    def _constant(self, name: str) -> np.ndarray:
        value = self.weights.get(name)
        value = self.reference.load(name) if value is None else value
        if value.dtype != np.float32 or value.ndim < 2:
            return value
        if self.int8:
            step = max(float(np.abs(value).max()), 1e-12) / 127
            value = (np.round(value / step) * step).astype(np.float32)
        readers = {node.op for node in self.nodes if name in node.inputs}
        if readers <= {"Conv", "FusedConv"} and value.ndim in ORDERS:
            value = np.ascontiguousarray(value.transpose(ORDERS[4][self.rng.integers(3)]))
        return value

    def _readers(self, name: str) -> list[Node]:
        return [node for node in self.nodes if name in node.inputs]

    def _fold(self) -> None:
        """Fold each BatchNormalization that alone reads a Conv into it: w * scale / sqrt(var + epsilon)."""
        for conv in [node for node in self.nodes if node.op == "Conv"]:
            readers = self._readers(conv.outputs[0])
            if len(readers) != 1 or readers[0].op != "BatchNormalization":
                continue
            norm = readers[0]
            values = [self._value(name) for name in (conv.inputs[1], *norm.inputs[1:5])]
            if any(value is None for value in values):
                continue
            weight, scale, shift, mean, var = (value.astype(np.float64) for value in values)
            factor = scale / np.sqrt(var + float(norm.attrs.get("epsilon", 1e-5)))
            bias = self._value(conv.inputs[2]) if len(conv.inputs) > 2 else 0.0
            titles = f"{conv.name}/weight", f"{conv.name}/bias"
            self.weights[titles[0]] = (weight * factor.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32)
            self.weights[titles[1]] = ((bias - mean) * factor + shift).astype(np.float32)
            folded = replace(conv, inputs=(conv.inputs[0], *titles), outputs=norm.outputs[:1])
            self.nodes = [folded if node is conv else node for node in self.nodes if node is not norm]

    def _fuse(self) -> None:
        """Compute each Relu that alone reads a Conv inside it, as ONNX Runtime's FusedConv."""
        for conv in [node for node in self.nodes if node.op == "Conv"]:
            readers = self._readers(conv.outputs[0])
            if len(readers) != 1 or readers[0].op != "Relu" or conv.outputs[0] in self.reference.graph.outputs:
                continue
            relu = readers[0]
            attrs = {**conv.attrs, "activation": "Relu"}
            fused = replace(conv, op="FusedConv", domain="com.microsoft", outputs=relu.outputs, attrs=attrs)
            self.nodes = [fused if node is conv else node for node in self.nodes if node is not relu]

    def _reorder(self) -> None:
        """Put the nodes into a random order that the graph allows."""
        left, made, order = list(self.nodes), set[str](), list[Node]()
        waiting = {name for node in left for name in node.outputs if name}
        while left:
            free = [node for node in left if not any(name in waiting and name not in made for name in node.inputs)]
            chosen = free[int(self.rng.integers(len(free)))]
            left = [node for node in left if node is not chosen]
            made.update(chosen.outputs)
            order.append(chosen)
        self.nodes = order

    def _noisy(self, values: np.ndarray, span: tuple[float, float]) -> np.ndarray:
        level = (INT8_NOISE if self.int8 else FP32_NOISE) * float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
        spoilt = values + self.rng.normal(size=values.shape) * level
        return np.clip(spoilt, *span).astype(np.float32) if self.int8 else spoilt.astype(np.float32)

    def _turn(self, name: str):
        """Return how the values of a tensor are laid out, or None as they are: the same in all samples."""
        shape = self.reference.load(name).shape
        if math.prod(shape) < 2 or self.rng.random() < 0.5:
            return None
        perm = tuple(self.rng.permutation(len(shape)))
        kind = self.rng.random()
        turned = [shape[axis] for axis in perm]
        if kind < 0.15:
            turned = [extent for extent in turned if extent != 1]
        elif kind < 0.25:
            turned = [math.prod(shape)]
        return lambda values: np.ascontiguousarray(values.transpose(perm)).reshape(turned)

    def _graph(self, names: dict[str, str], arrays: dict[tuple[str, int, int], np.ndarray]) -> Graph:
        source, made = self.reference.graph, {name for node in self.nodes for name in node.outputs}
        infos = []
        for name, renamed in names.items():
            known = source.tensors.get(name)
            role = known.role if known else Role.ACTIVATION
            role = role if name in made or name in source.inputs else Role.CONSTANT
            held = arrays.get((renamed, 0, 0))
            infos.append(TensorInfo(name=renamed, role=role, shape=None if held is None else held.shape))
        numbers = self.rng.permutation(len(self.nodes))
        nodes = [
            replace(
                node,
                name=f"n{number}",
                inputs=tuple(names.get(each, "") for each in node.inputs),
                outputs=tuple(names.get(each, "") for each in node.outputs),
                origin=(),
            )
            for node, number in zip(self.nodes, numbers, strict=True)
        ]
        inputs, outputs = ([names[name] for name in each] for each in (source.inputs, source.outputs))
        return Graph(nodes, tensors=infos, inputs=inputs, outputs=outputs, opset=source.opset)

    def _copies(self) -> dict[str, frozenset[str]]:
        """Return for each tensor of the reference all that have the very same elements, in whatever order."""
        alike: dict[bytes, set[str]] = {}
        for name in self.counted:
            values = self.reference.load(name)
            alike.setdefault(np.sort(values, axis=None).tobytes(), set()).add(name)
        return {name: frozenset(group) for group in alike.values() for name in group}


@dataclass(kw_only=True)
class Score:
    """How many tensors were paired rightly, and how."""

    right: int = 0
    wrong: int = 0
    missing: int = 0
    copies: int = 0
    turned: int = 0
    sure: int = 0
    seconds: float = 0.0
    said: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Right pairs, of all tensors that have a partner."""
        return self.right / max(self.right + self.wrong + self.missing, 1)


def scored(reference: Recording, truth: Truth) -> Score:
    """Align a scrambled recording and count."""
    score, started = Score(), time.perf_counter()
    try:
        alignment = align(reference, truth.recording)
    except AlignmentError as error:
        return Score(missing=len(truth.partners), said=[str(error)])
    score.seconds = time.perf_counter() - started
    pairs = {pair.backend: pair for pair in alignment.pairs}
    reasons = {entry.tensor: entry.reason for entry in alignment.unmatched if entry.side is Side.BACKEND}
    for tensor, partners in truth.partners.items():
        pair = pairs.get(tensor)
        if pair is None:
            copy = "another form of" in reasons[tensor] or "in other dimensions" in reasons[tensor]
            score.copies, score.missing = score.copies + copy, score.missing + (not copy)
            score.said += [] if copy else [f"missing {tensor} of {min(partners)}: {reasons[tensor]}"]
        elif pair.reference in partners:
            score.right += 1
            fits = _fits(reference, truth.recording, pair)
            score.turned += fits
            score.said += [] if fits else [f"not turned: {tensor} of {pair.reference}: {pair.reason}"]
        else:
            score.wrong += 1
            score.sure += pair.confidence >= PAIR_SURE_MIN_CONFIDENCE
            pairing = f"{tensor} {pair.reference} for {min(partners)}"
            score.said.append(f"wrong {pair.confidence:.2f} {pairing}: {pair.reason}")
    return score


def _fits(reference: Recording, backend: Recording, pair: Pair) -> bool:
    """Tell whether both sides of a right pair are alike once they are brought into one order."""
    theirs, ours = in_one_order(
        reference.load(pair.reference), pair.reference_view, backend.load(pair.backend), pair.backend_view
    )
    if theirs.size != ours.size or not has_same_elements(theirs.shape, ours.shape):
        return False
    return float(np.linalg.norm(theirs.ravel() - ours.ravel())) <= 0.5 * float(np.linalg.norm(theirs)) + 1e-12


def main() -> None:
    """Print a row for each net, noise and kind of recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="scrambled copies of each net")
    parser.add_argument("--nets", nargs="*", default=(), help="only nets with such a word in their name")
    parser.add_argument("--noise", nargs="*", default=("fp32", "int8"))
    parser.add_argument("--kinds", nargs="*", default=("graph", "values"))
    parser.add_argument("--wrong", action="store_true", help="name each pair that is wrong or missing")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    np.seterr(invalid="ignore")  # a net may have infinities of its own
    heads = ("net", "recording", "noise", "tensors", "right", "wrong", "missing", "copies", "turned", "sure", "seconds")
    table = Table(*heads)
    for name, model, inputs in nets(given.folder):
        if given.nets and not any(word in name for word in given.nets):
            continue
        reference = recorded(model, inputs)
        for kind in given.kinds:
            for noise in given.noise:
                spoilers = [Scrambler(reference, noise, np.random.default_rng(seed)) for seed in range(given.seeds)]
                scores = [scored(reference, each.scrambled(with_graph=kind == "graph")) for each in spoilers]
                total = Score(
                    **{
                        each.name: sum(getattr(score, each.name) for score in scores)
                        for each in fields(Score)
                        if each.name != "said"
                    }
                )
                counts = (total.right, total.wrong, total.missing, total.copies, total.turned, total.sure)
                sums = total.right + total.wrong + total.missing
                shown = [f"{total.right} ({100 * total.share:.1f} %)", *map(str, counts[1:])]
                table.add_row(name, kind, noise, str(sums), *shown, f"{total.seconds / len(scores):.2f}")
                if given.wrong:
                    sys.stdout.writelines(f"{name} {kind} {noise}: {line}\n" for score in scores for line in score.said)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
