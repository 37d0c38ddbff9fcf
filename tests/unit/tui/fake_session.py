"""A diff session without recordings: its numbers are made up, and it refuses to be called on the screen's thread."""

import threading
import time
from dataclasses import dataclass, fields

import numpy as np

from qdebug.compare.align.pairs import Alignment, Match, Side, Unmatched, UnmatchedKind
from qdebug.compare.budget import ErrorBudget, NodeShare, OutputBudget
from qdebug.compare.result.finding import Judged
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Coverage, NodeResult, RunComparison, SampleResult, Status, Verdict
from qdebug.errors import RecordingError, UsageError
from qdebug.model import Fidelity, Graph, Node, QuantParams, Recording, RunInfo, TensorInfo
from qdebug.numerics.stats import ErrorStats, Rails, WorstElement

OPS = ("QLinearConv", "QLinearAdd", "Relu", "MaxPool")
QUANT = QuantParams(dtype="int8", scale=0.05, zero_point=-3)
SHAPE = (1, 4, 6, 6)


@dataclass(frozen=True, kw_only=True)
class Planned:
    index: int
    node: str
    op: str
    tensor: str
    reference_tensor: str
    match: Match = Match.EXACT
    match_reason: str = "both graphs name it so"
    shape: tuple[int, ...] | None = SHAPE
    quant: QuantParams | None = QUANT


@dataclass(frozen=True)
class Values:
    reference: np.ndarray
    backend: np.ndarray
    reference_codes: np.ndarray | None = None
    backend_codes: np.ndarray | None = None
    reference_quant: QuantParams | None = None
    backend_quant: QuantParams | None = None


@dataclass(frozen=True, kw_only=True)
class Window(Values):
    axis: int
    start: tuple[int, ...]
    whole: tuple[int, ...]


class Pair:
    """Both sides of a tensor, out of arrays.

    Args:
        values: Real values, codes and quantization.
        looked: Called with the element that a window is read around.
        read: Called when elements are first read otherwise.
    """

    held = made = 0

    def __init__(self, values, looked=lambda _: None, read=lambda: None):
        if values.reference.shape != values.backend.shape:
            raise ValueError(f"shape {values.reference.shape} against {values.backend.shape}")
        arrays = values.reference, values.backend, values.reference_codes, values.backend_codes
        self._arrays = [None if array is None else np.asarray(array) for array in arrays]
        self._quants = values.reference_quant, values.backend_quant
        self.shape, self.size = values.backend.shape, values.backend.size
        self.reference_quant, self.backend_quant = self._quants
        per_channel = self._quants[1] is not None and self._quants[1].per_channel
        self.axis = self._quants[1].axis % len(self.shape) if per_channel else min(len(self.shape), 2) // 2
        self._looked, self._read = looked, [read]

    def again(self):
        return self

    def _cut(self, cut):
        return [None if array is None else cut(array) for array in self._arrays]

    def read(self, start, stop):
        while self._read:
            self._read.pop()()
        return Values(*self._cut(lambda array: array.reshape(-1)[start:stop]))

    def window(self, around, extents):
        self._looked(around)
        middle = around or (0,) * len(self.shape)
        most = [*(1,) * max(len(self.shape) - 2, 0), *extents][-len(self.shape) :] if self.shape else []
        sizes = [min(size, room) for size, room in zip(self.shape, most, strict=True)]
        if self.size <= extents[0] * extents[1]:
            middle, sizes = (0,) * len(self.shape), self.shape
        start = tuple(
            min(max(at - size // 2, 0), extent - size)
            for at, size, extent in zip(middle, sizes, self.shape, strict=True)
        )
        box = tuple(slice(first, first + size) for first, size in zip(start, sizes, strict=True))
        parts = self._cut(lambda array: array[box].copy())
        return Window(*parts, *self._quants, axis=self.axis, start=start, whole=self.shape)


@dataclass(frozen=True)
class Profile:
    worst: tuple
    ulp: object = None
    channels: object = None


class Recorded(Recording):
    def __init__(self, guard, info, graph, samples):
        self._guard, self._info, self._graph, self._samples = guard, info, graph, samples

    @property
    def info(self):
        self._guard()
        return self._info

    @property
    def graph(self):
        self._guard()
        return self._graph

    @property
    def names(self):
        self._guard()
        return ("x", "ref_only")

    @property
    def samples(self):
        self._guard()
        return self._samples

    @property
    def steps(self):
        self._guard()
        return 1

    def has(self, tensor, sample=0, step=0):
        self._guard()
        return tensor in {"x", "ref_only"}

    def load(self, tensor, sample=0, step=0):
        self._guard()
        return np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def stats(**changed):
    known = dict.fromkeys(field.name for field in fields(ErrorStats))
    known |= {"count": 144, "zero_refs": 4, "nonfinite": 0, "matched_nonfinite": 0, "mismatches": 90}
    known |= {"max_abs": 0.5, "mean_abs": 0.1, "rmse": 0.2, "max_rel": 3.0, "rel_l2": 0.03, "cosine": 0.9995}
    known |= {"max_lsb": 5.0, "worst_index": (0, 3, 1, 2), "worst_sample": 1, "sqnr_db": 30.0}
    known |= {"reference_min": -1.5, "reference_max": 2.25, "backend_min": -1.4, "backend_max": 2.0}
    return ErrorStats(**(known | changed))


def made_up_budget(plan, output, samples):
    """Return a budget in which every third node has a share."""
    nodes = tuple(
        NodeShare(
            node=planned.node,
            op=planned.op,
            tensor=planned.tensor,
            reference_tensor=planned.reference_tensor,
            share=0.4 / (number + 1),
            sqnr_db=12.0 + 3 * number,
            parts={"weights": 0.3 / (number + 1), "rounding": 0.1 / (number + 1)},
        )
        for number, planned in enumerate(plan[9::3])
    )
    shares = sum(node.share for node in nodes) + 0.05
    return OutputBudget(
        output=output,
        reference_tensor="ref_23",
        sqnr_db=8.0,
        samples=samples,
        steps=samples,
        nodes=nodes,
        least=0.01,
        below=7,
        pruned=2,
        below_share=0.05,
        shares=shares,
        left=0.0,
    )


class FakeSession:
    """What `DiffSession` offers, for a chain of `nodes` nodes with failures where asked.

    Args:
        nodes: How many compared tensors.
        failing: Indexes beyond the limit.
        nonfinite: Indexes with NaN on one side.
        incomparable: Indexes whose shapes differ.
        samples: How many samples.
        names: Names of the first nodes.
        pause_at: Index before which `resume` is waited for, or that it is moved to another index.
        break_at: Index at which the file turns out to be damaged.
        delay: Seconds that each comparison takes.
    """

    compared, outdated, workers = (), False, None

    def __init__(
        self,
        nodes=24,
        *,
        failing=(9, 10, 17),
        nonfinite=(),
        incomparable=(5,),
        samples=3,
        names=(),
        pause_at=None,
        break_at=None,
        delay=0.0,
    ):
        self.failing, self.nonfinite, self.incomparable = set(failing), set(nonfinite), set(incomparable)
        self.pause_at, self.break_at, self.delay = pause_at, break_at, delay
        self.resume = threading.Event()
        self.values_read = []
        self.windows_read = []
        self.accepted = {}
        self.limits = Limits()
        self._samples = samples
        self._names = [names[i] if i < len(names) else f"block{i // 4}/{OPS[i % 4].lower()}_{i}" for i in range(nodes)]
        self._plan = tuple(
            Planned(
                index=i,
                node=self._names[i],
                op=OPS[i % 4],
                tensor=f"{self._names[i]}_out",
                reference_tensor=f"ref_{i}",
                quant=None if i % 4 == 2 else QUANT,
            )
            for i in range(nodes)
        )
        left_out = (
            Unmatched(
                side=Side.BACKEND, tensor="loose_out", kind=UnmatchedKind.LOST, reason="no tensor of the reference fits"
            ),
            Unmatched(
                side=Side.REFERENCE, tensor="ref_only", kind=UnmatchedKind.BENIGN, reason="computed inside QLinearConv"
            ),
        )
        self._alignment = Alignment(pairs=(), unmatched=left_out)
        chain = [
            Node(name=p.node, op=p.op, inputs=((f"{self._names[i - 1]}_out",) if i else ("x",)), outputs=(p.tensor,))
            for i, p in enumerate(self._plan)
        ]
        loose = Node(name="loose", op="Shape", inputs=("x",), outputs=("loose_out",))
        tensors = [TensorInfo(name=p.tensor, shape=SHAPE, dtype="int8", quant=p.quant) for p in self._plan]
        backend = Graph([*chain, loose], tensors=tensors, inputs=("x",))
        last = Node(name="folded", op="BatchNormalization", inputs=("ref_0",), outputs=("ref_only",))
        reference = Graph([last], tensors=[TensorInfo(name=f"ref_{i}", dtype="float32") for i in range(nodes)])
        self.reference = Recorded(self.guard, RunInfo(backend="float"), reference, samples)
        info = RunInfo(backend="npu", fidelity=Fidelity.BIT_EQUAL)
        self.backend = Recorded(self.guard, info, backend, samples)

    def guard(self):
        """Refuse the screen's thread."""
        if threading.current_thread() is threading.main_thread():
            raise AssertionError("a recording was touched on the screen's thread")

    @property
    def alignment(self):
        self.guard()
        return self._alignment

    def entries(self):
        self.guard()
        return self._plan

    def results(self):
        self.guard()
        for planned in self._plan:
            end = time.monotonic() + 20
            while planned.index == self.pause_at and not self.resume.wait(0.01) and time.monotonic() < end:
                pass
            if planned.index == self.break_at:
                raise RecordingError("Payload 12 of 'npu.h5' is damaged.", hint="Record it again.")
            if self.delay:
                time.sleep(self.delay)
            yield self._result(planned)

    def result(self, *, contributors=True):
        nodes = tuple(self.results())
        first = next((n for n in nodes if n.status in {Status.DIVERGED, Status.NONFINITE}), None)
        if first is None:
            sentence = "All tensors are within the limit."
        else:
            sentence = f"The backend diverges first at {first.op} {first.node!r}: {first.reason}."
        return RunComparison(
            reference=self.reference.info,
            backend=self.backend.info,
            verdict=Verdict(
                status=first.status if first else Status.WITHIN,
                first_divergence=first.node if first else None,
                origin=None,
                sentence=sentence,
            ),
            coverage=Coverage(compared=len(nodes), unmatched=self._alignment.unmatched),
            nodes=nodes,
            limits=self.limits.to_dict(),
        )

    def pair(self, tensor, *, sample=0, step=0):
        """Open a pair; on whichever thread but the screen's."""
        self.guard()
        planned = next(p for p in self._plan if p.tensor == tensor)
        if planned.index in self.incomparable:
            raise UsageError("shapes differ")
        return Pair(
            self.values(planned),
            lambda at: self.windows_read.append((planned.index, sample, at)),
            lambda: self.values_read.append((planned.index, sample)),
        )

    def budget(self, *, places, only, progress, kept=None):
        """Make shares up, of which the samples can be told."""
        self.guard()
        progress(1, 1)
        return ErrorBudget(
            reference=self.reference.info,
            backend=self.backend.info,
            outputs=tuple(made_up_budget(self._plan, output, len(places)) for output in only),
        )

    def constants(self, tensor):
        """There are none."""
        self.guard()
        return [], []

    def folded_in(self, tensor):
        """Nothing is."""
        self.guard()
        return ""

    def values(self, planned):
        """Make values up."""
        reference = np.linspace(-1.5, 2.25, 144, dtype=np.float32).reshape(SHAPE)
        backend = np.clip(np.round(reference / 0.05) * 0.05, -1.4, 2.0).astype(np.float32)
        codes = None if planned.quant is None else np.rint(backend / 0.05 - 3).astype(np.int8)
        return Values(reference, backend, backend_codes=codes, backend_quant=planned.quant)

    def acknowledge(self, entries):
        self.guard()
        self.accepted = {entry.node: entry for entry in entries}

    def profile(self, tensor, *, sample=None, k=20, cancelled=None):
        self.guard()
        if cancelled is not None and cancelled():
            return None
        worst = tuple(
            WorstElement(
                index=(0, i % 4, i % 6, 1),
                sample=sample or 0,
                reference=2.25 - i / 16,
                backend=2.0 - i / 8,
                difference=-0.25 - i / 16,
                lsb=-5.0 - i,
                reference_code=None,
                backend_code=37 - i,
            )
            for i in range(min(k, 8))
        )
        return Profile(worst=worst)

    def sqnr(self, index):
        return 8.0 - 4 * index / len(self._plan) if index in self.failing else 48.0 - 12 * index / len(self._plan)

    def _result(self, planned):
        index = planned.index
        common = {
            "index": index,
            "node": planned.node,
            "op": planned.op,
            "tensor": planned.tensor,
            "reference_tensor": planned.reference_tensor,
            "match": planned.match,
            "match_reason": planned.match_reason,
            "quant": planned.quant,
        }
        if index in self.incomparable:
            reason = "shape (1, 4, 6, 6) against (1, 6, 6, 5)"
            return NodeResult(**common, status=Status.INCOMPARABLE, reason=reason)
        sqnr = self.sqnr(index)
        status, reason = Status.WITHIN, None
        if index in self.failing:
            status, reason = Status.DIVERGED, f"SQNR {sqnr:.3g} dB is below 20 dB"
        elif index in self.nonfinite:
            status, reason = Status.NONFINITE, "3 of 144 elements are NaN or infinite in one run only"
        elif index == 0:
            status, sqnr = Status.IDENTICAL, float("inf")
        samples = tuple(
            SampleResult(sample=s, max_abs=0.25 * (s + 1), sqnr_db=sqnr - s, status=status)
            for s in range(self._samples)
        )
        rails = Rails(at_qmin=index, at_qmax=2, clipped_low=0, clipped_high=1, floor=index // 2, total=144)
        same = index == 0
        metrics = stats(
            sqnr_db=sqnr,
            rel_l2=0.0 if same else 10 ** (-sqnr / 20),
            max_abs=0.0 if same else 0.5,
            cosine=1.0 if same else 1 - 10 ** (-sqnr / 10) / 2,
            mismatches=0 if same else 90 + index,
            worst_sample=self._samples - 1,
        )
        own = stats(sqnr_db=9.0, rel_l2=0.35, max_lsb=12.5) if status is Status.DIVERGED else stats(max_lsb=0.5)
        saturation = None if planned.quant is None else rails
        return NodeResult(
            **common,
            status=status,
            reason=reason,
            metrics=metrics,
            introduced=own,
            judged=Judged(amount=own.max_lsb, limit=1.5, unit="LSB"),
            propagated=stats(sqnr_db=41.0),
            gain=1.25,
            relative_gain=1.25,
            saturation=saturation,
            samples=samples,
            acknowledged=self.accepted.get(planned.node),
        )
