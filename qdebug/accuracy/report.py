"""Accuracy of recorded runs against labels, and whether a quantized run loses more of it than a margin allows.

The samples are the same for all runs, so a loss is judged on paired differences: only samples that one run has right
and the other wrong say anything of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import numpy as np

from qdebug.compare.result.scores import winner_rank
from qdebug.errors import RecordingError, UsageError
from qdebug.model import Fidelity, Graph, Recording, Role, RunInfo, operators
from qdebug.model.dtypes import is_integer, logical_dtype
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.model.recording import quant_of
from qdebug.model.thresholds.accuracy import ACCURACY_MAX_LOSS
from qdebug.numerics.affine import dequantize
from qdebug.numerics.paired import paired_loss, proportion, samples_needed
from qdebug.running.output_metric import Metric, Outputs, confidence, evaluate_metric, find_metric

__all__ = [
    "AccuracyOptions",
    "AccuracyReport",
    "Decision",
    "Loss",
    "Measure",
    "PairAccuracy",
    "RunAccuracy",
    "accuracy",
]

_FIRST = (1, 5)
"""Of how many entries with the highest scores the label must be one."""
_LOOKED_AT = 8
"""Samples whose inputs are compared: other inputs show in the first."""

Interval = tuple[float, float]


class Decision(StrEnum):
    """What the interval of a loss says of its margin."""

    WITHIN = "within"
    WORSE = "worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyOptions:
    """What is asked for.

    Args:
        metric: "MODULE:FUNCTION" or "FILE.py:FUNCTION", see `find_metric`; None for top-1 and top-5.
        within: The largest loss that is allowed, in the metric's unit; None for the default.
        scores: The output that has them; None where there is one.
        allow_partial: Whether a recording may be incomplete.
        allow_unfaithful: Whether recording may have changed the result.
    """

    metric: str | None = None
    within: float | None = None
    scores: str | None = None
    allow_partial: bool = False
    allow_unfaithful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measure(JsonObject):
    """How good one run is by one measure.

    Args:
        name: "top-1", "top-5", or the metric as it was asked for.
        value: A share, or the metric's value.
        interval: Where it lies with 95 % confidence; None of a metric of fewer than two samples.
        right: Which rows are right; None of a metric.
        ties: The least and the largest value, as ties are broken; None if that does not matter.
    """

    json_keys = "name value interval ties"

    name: str
    value: float
    interval: Interval | None
    right: np.ndarray | None = None
    ties: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunAccuracy(JsonObject):
    """How good one run is.

    Args:
        file: The recording as it was given.
        info: Facts of the run.
        quantized: Whether anything in it is an integer code.
        output: The output that has the scores; "" of a metric.
        rows: Rows of scores; samples of a metric.
        classes: Scores in a row; 0 of a metric.
        broken: Rows with a NaN.
        measures: Its accuracies.
    """

    json_keys = "file backend=info.backend model=info.model quantized output|null rows classes|null broken measures"

    file: str
    info: RunInfo
    quantized: bool
    output: str
    rows: int
    classes: int
    broken: int
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(JsonObject):
    """How much worse a run is than its reference by one measure.

    Args:
        name: The measure.
        value: The reference's value minus the backend's.
        interval: Where the loss lies with 95 % confidence; None of fewer than two samples of a metric.
        margin: The largest loss that is allowed.
        lost: Rows that the reference alone has right; None of a metric.
        won: Rows that the backend alone has right; None of a metric.
        needed: Samples that would decide; None if it is decided, or if no number of samples would.
    """

    json_keys = "name value interval margin lost won decision needed"

    name: str
    value: float
    interval: Interval | None
    margin: float
    lost: int | None = None
    won: int | None = None
    needed: int | None = None

    @property
    def decision(self) -> Decision:
        """What the interval says of the margin."""
        if self.interval is None or not all(map(math.isfinite, self.interval)):
            return Decision.WORSE if math.isnan(self.value) or self.value == math.inf else Decision.UNDECIDED
        low, high = self.interval
        return Decision.WITHIN if high <= self.margin else Decision.WORSE if low > self.margin else Decision.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAccuracy(JsonObject):
    """One run beside its reference.

    Args:
        reference: The reference.
        backend: The other run.
        same_backend: Whether one backend ran both.
        losses: The loss by each measure.
        agreement: Share of the rows in which both put the same class first; None of a metric.
        worst_rank: The worst place of the reference's winner in the backend, from 1; None if no row has a winner.
        worst_row: The first row in which it has that place.
    """

    json_keys = "reference=reference.file backend=backend.file same_backend losses agreement worst_rank worst_row"

    reference: RunAccuracy
    backend: RunAccuracy
    same_backend: bool
    losses: tuple[Loss, ...]
    agreement: float | None = None
    worst_rank: int | None = None
    worst_row: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyReport(JsonObject):
    """What was found.

    Args:
        runs: The runs, as they were given.
        pairs: Each run beside its references.
        labels: Hash of the labels, which tells apart results that cannot be compared; "" without labels.
        notes: What is to be known of it.
        shortcomings: What is missing and not allowed to be, a clause each.
    """

    json_format = "accuracy"
    json_keys = "verdict labels|null runs pairs notes shortcomings"

    runs: tuple[RunAccuracy, ...]
    pairs: tuple[PairAccuracy, ...]
    labels: str = ""
    notes: tuple[str, ...] = ()
    shortcomings: tuple[str, ...] = field(default=())

    def losses(self, decision: Decision) -> list[tuple[PairAccuracy, Loss]]:
        """Return the losses of one decision, each with its pair."""
        return [(pair, loss) for pair in self.pairs for loss in pair.losses if loss.decision is decision]

    @property
    def exit_code(self) -> int:
        """3 if a recording cannot be relied on, 1 if a loss is beyond its margin, 0 otherwise."""
        return 3 if self.shortcomings else 1 if self.losses(Decision.WORSE) else 0

    @property
    def verdict(self) -> Annotated[str, SchemaPart(enum=[*Decision, "alone"])]:
        """The worst decision; "alone" where there is nothing to compare."""
        for decision in (Decision.WORSE, Decision.UNDECIDED):
            if self.losses(decision):
                return str(decision)
        return str(Decision.WITHIN) if self.pairs else "alone"


def accuracy(
    recordings: Mapping[str, Recording],
    labels: np.ndarray | None,
    options: AccuracyOptions,
    *,
    digest: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> AccuracyReport:
    """Measure runs against labels and each other.

    Args:
        recordings: The runs by the name that is shown for each.
        labels: The class of each row of scores, or what a metric makes of them; None for a metric without labels.
        options: What is asked for.
        digest: A hash of the labels.
        progress: Called with the number of runs that were read, and of all.

    Raises:
        UsageError: The labels do not fit the scores, runs have other samples, or an output has to be named.
        RecordingError: Outputs were not recorded.
    """
    opened, seen = [], list(recordings.items())
    for done, (name, recording) in enumerate(seen, 1):
        opened.append(_Scored(name, recording, options, labels))
        if progress is not None:
            progress(done, len(seen))
    first = opened[0]
    for other in opened[1:]:
        if other.rows != first.rows:
            raise UsageError(
                f"{other.name!r} has {other.rows} {first.unit}, and {first.name!r} has {first.rows}.",
                hint="Record the same samples for all: qdebug record --inputs FILE.npz --samples N.",
            )
    pairs = tuple(_pair(opened[one], opened[other]) for one, other in _pairs(opened))
    for each in opened:
        if each.metric is not None and not each.found.measures:
            each.found = each.valued(each.metric, each)
    return AccuracyReport(
        runs=tuple(each.found for each in opened),
        pairs=pairs,
        labels=digest,
        notes=tuple(_notes(opened, pairs)),
        shortcomings=tuple(_shortcomings(opened, options)),
    )


class _Scored:
    """A run with its scores and what is right of them.

    Args:
        name: As it was given.
        recording: The run.
        options: What is asked for.
        labels: The labels.
    """

    def __init__(self, name: str, recording: Recording, options: AccuracyOptions, labels: np.ndarray | None) -> None:
        self.name, self.recording, self.options, self.labels = name, recording, options, labels
        self.metric = None if options.metric is None else find_metric(options.metric)
        self.outputs: list[Outputs] = []
        self.scores = np.zeros((0, 0), np.float32)
        self.places = recording.places()
        self.found = self._ranked() if self.metric is None else self._collected()

    @property
    def unit(self) -> str:
        """What its rows are called."""
        return "rows of scores" if self.metric is None else "samples"

    @property
    def rows(self) -> int:
        """Rows of scores, or samples."""
        return self.found.rows

    def _run(self, rows: int, measures: tuple[Measure, ...], **facts: Any) -> RunAccuracy:
        codes = _is_quantized(self.recording.graph)
        known: dict[str, Any] = {"output": "", "classes": 0, "broken": 0, **facts}
        return RunAccuracy(
            file=self.name, info=self.recording.info, quantized=codes, rows=rows, measures=measures, **known
        )

    def _real(self, tensor: str, place: tuple[int, int]) -> np.ndarray:
        return dequantize(self.recording.load(tensor, *place), quant_of(self.recording, tensor, *place))

    def _ranked(self) -> RunAccuracy:
        output = _output(self.name, self.recording, self.options.scores)
        rows = [_rows(self._real(output, place), output, self.name) for place in self.places]
        if not rows:
            raise RecordingError(f"{self.name!r} holds no samples.", hint="Record the network's outputs.")
        if len({each.shape[-1] for each in rows}) > 1:
            raise UsageError(f"Output {output!r} of {self.name!r} has another number of classes in some samples.")
        self.scores = np.concatenate(rows)
        labels = _checked(self.labels, self.scores, self.name)
        broken = np.isnan(self.scores).any(axis=-1)
        own = self.scores[np.arange(len(labels)), labels][:, np.newaxis]
        with np.errstate(invalid="ignore"):
            above = np.count_nonzero(self.scores > own, axis=-1)
            equal = self.scores == own
        before = np.count_nonzero(equal & (np.arange(self.scores.shape[1]) < labels[:, np.newaxis]), axis=-1)
        ties, measures = np.count_nonzero(equal, axis=-1) - 1, []
        for first in _FIRST:
            if first >= self.scores.shape[1]:
                continue  # the label is always among all there are
            right = (above + before < first) & ~broken
            ends = [float(np.mean((rank < first) & ~broken)) for rank in (above + ties, above)]
            measures.append(
                Measure(
                    name=f"top-{first}",
                    value=float(right.mean()),
                    interval=proportion(int(right.sum()), right.size),
                    right=right,
                    ties=None if ends[0] == ends[1] else (ends[0], ends[1]),
                )
            )
        rows_, classes = self.scores.shape
        return self._run(rows_, tuple(measures), output=output, classes=classes, broken=int(broken.sum()))

    def _collected(self) -> RunAccuracy:
        names = self.recording.graph.outputs
        self.outputs = [{name: self._real(name, place) for name in names} for place in self.places]
        if not self.outputs or not names:
            raise RecordingError(f"{self.name!r} holds no outputs.", hint="Record the network's outputs.")
        if self.labels is not None and len(np.atleast_1d(self.labels)) != len(self.places):
            raise UsageError(
                f"There are {len(np.atleast_1d(self.labels))} labels, and {self.name!r} has {self.unit}: "
                f"{len(self.places)}.",
                hint="Give one label for each sample along the first axis.",
            )
        return self._run(len(self.outputs), ())

    def named(self, reference: _Scored) -> list[Outputs]:
        """Return the outputs by the names of the reference's: those of one name, or all in order."""
        ours, theirs = self.recording.graph.outputs, reference.recording.graph.outputs
        if set(theirs) <= set(ours):
            return self.outputs
        if len(ours) != len(theirs):
            raise UsageError(
                f"{self.name!r} has the outputs {', '.join(ours)}, and {reference.name!r} has {', '.join(theirs)}.",
                hint="Record runs of one network.",
            )
        return [dict(zip(theirs, each.values(), strict=True)) for each in self.outputs]

    def valued(self, metric: Metric, reference: _Scored) -> RunAccuracy:
        """Return the run with its value of a metric, with the outputs of a reference at hand."""
        ours, theirs = self.named(reference), reference.outputs
        labels = None if self.labels is None else list(self.labels)
        value = evaluate_metric(metric, ours, theirs, labels)
        measure = Measure(name=metric.name, value=value, interval=confidence(metric, ours, theirs, labels))
        return self._run(len(ours), (measure,))


def _is_quantized(graph: Graph) -> bool:
    """Tell whether anything in a graph is an integer code; a picture of bytes that it is fed is none."""
    for info in graph.tensors.values():
        if info.quant is not None and is_integer(info.quant.dtype):
            return True
        whole = info.role is not Role.INPUT and info.dtype is not None and is_integer(info.dtype)
        if whole and logical_dtype(str(info.dtype)).itemsize == 1:
            return True
    return any(operators.of(node.op).takes_codes for node in graph.nodes)


def _output(name: str, recording: Recording, asked: str | None) -> str:
    """Return the output that has the scores.

    Raises:
        UsageError: There is none of this name, or several and none was named.
    """
    outputs = recording.graph.outputs
    known = {recording.graph.tensors[each].stands_for or each: each for each in outputs} | {
        each: each for each in outputs
    }
    if asked is None and len(outputs) == 1:
        return outputs[0]
    listed = ", ".join(outputs) or "none"
    if asked is None:
        raise UsageError(
            f"{name!r} has several outputs: {listed}.", hint="Say which one has the scores: --scores NAME."
        )
    if asked not in known:
        raise UsageError(
            f"{name!r} has no output {asked!r}; it has: {listed}.", hint="Give one of these: --scores NAME."
        )
    return known[asked]


def _rows(array: np.ndarray, output: str, name: str) -> np.ndarray:
    """Return scores as rows; extents of 1 after the classes are none.

    Raises:
        UsageError: There is one score in a row, or these are no numbers.
    """
    shape = array.shape
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    if not shape or shape[-1] < 2 or array.dtype.kind not in "iuf":
        raise UsageError(
            f"Output {output!r} of {name!r} has the shape {array.shape} and no scores of classes.",
            hint="Measure it by a function of your own: --metric FILE.py:FUNCTION.",
        )
    return np.asarray(array, np.float32).reshape(-1, shape[-1])


def _checked(labels: np.ndarray | None, scores: np.ndarray, name: str) -> np.ndarray:
    """Return labels as class numbers, one for each row.

    Raises:
        UsageError: There are too many or too few, or one is no class.
    """
    if labels is None:
        raise UsageError(
            "Top-k is counted against labels.", hint="Give them: --labels FILE, or --metric FILE.py:FUNCTION."
        )
    given, (rows, classes) = np.asarray(labels), scores.shape
    if given.size != rows:
        many = "Cut them: labels[:N]." if given.size > rows else "Give one for each row of scores."
        if given.ndim > 1 and given.shape[-1] == classes and given.size == rows * classes:
            many = "These look like one column for each class: save labels.argmax(axis=-1)."
        raise UsageError(f"There are {given.size} labels, and {name!r} has {rows} rows of scores.", hint=many)
    if given.dtype.kind not in "iufb":
        raise UsageError(f"Labels of the type {given.dtype} are no class numbers.", hint="Give whole numbers from 0.")
    flat = given.ravel()
    whole = np.isfinite(flat) & (flat == np.trunc(np.where(np.isfinite(flat), flat, 0.5)))
    wrong = np.flatnonzero(~whole | (flat < 0) | (flat >= classes))
    if wrong.size:
        raise UsageError(
            f"Label {flat[wrong[0]]} of row {wrong[0]} is none of the {classes} classes of {name!r}"
            f"{f', and {wrong.size - 1} more are not' if wrong.size > 1 else ''}.",
            hint=f"Number the classes from 0 to {classes - 1} in the order of the scores.",
        )
    return flat.astype(np.int64)


def _pairs(runs: Sequence[_Scored]) -> Iterator[tuple[int, int]]:
    """Yield reference and backend: float runs are references, those of the same backend first."""
    floats = [at for at, run in enumerate(runs) if not run.found.quantized]
    first = floats[0] if floats else 0
    for at, run in enumerate(runs):
        own = next((each for each in floats if runs[each].found.info.backend == run.found.info.backend), None)
        if at not in floats and own is not None:
            yield own, at
        if at != first and (at in floats or own != first):
            yield first, at


def _pair(reference: _Scored, backend: _Scored) -> PairAccuracy:
    same = reference.found.info.backend == backend.found.info.backend
    if reference.metric is not None:
        loss = _metric_loss(reference.metric, reference, backend)
        return PairAccuracy(reference=reference.found, backend=backend.found, same_backend=same, losses=(loss,))
    if reference.scores.shape != backend.scores.shape:
        raise UsageError(
            f"{reference.name!r} has {reference.found.classes} classes, and {backend.name!r} {backend.found.classes}.",
            hint="Record runs of one network.",
        )
    losses = []
    for theirs, ours in zip(reference.found.measures, backend.found.measures, strict=True):
        if theirs.right is not None and ours.right is not None:
            losses.append(row_loss(theirs.name, theirs.right, ours.right, reference.options.within))
    ranks = list(map(winner_rank, reference.scores, backend.scores))
    placed = [-1 if rank is None else rank.rank for rank in ranks]
    worst = int(np.argmax(placed))
    with np.errstate(invalid="ignore"):
        agree = (reference.scores.argmax(axis=-1) == backend.scores.argmax(axis=-1)) & ~np.isnan(backend.scores).any(-1)
    return PairAccuracy(
        reference=reference.found,
        backend=backend.found,
        same_backend=same,
        losses=tuple(losses),
        agreement=float(agree.mean()),
        worst_rank=None if placed[worst] < 0 else placed[worst] + 1,
        worst_row=None if placed[worst] < 0 else worst,
    )


def row_loss(name: str, reference: np.ndarray, backend: np.ndarray, within: float | None) -> Loss:
    """Return the loss between two runs of which it is known which rows are right.

    Args:
        name: The measure.
        reference: Whether each row is right in the reference.
        backend: The same of the backend.
        within: The largest loss that is allowed; None for the default.
    """
    margin = ACCURACY_MAX_LOSS if within is None else within
    lost, won = int(np.count_nonzero(reference & ~backend)), int(np.count_nonzero(backend & ~reference))
    low, high = paired_loss(lost, won, reference.size)
    needed = samples_needed(lost, won, reference.size, margin) if low <= margin < high else None
    value = (lost - won) / reference.size
    return Loss(name=name, value=value, interval=(low, high), margin=margin, lost=lost, won=won, needed=needed)


def _metric_loss(metric: Metric, reference: _Scored, backend: _Scored) -> Loss:
    """Return the loss by a metric, with an interval that resampling the samples gives."""
    theirs, ours = reference.outputs, backend.named(reference)
    labels = None if reference.labels is None else list(reference.labels)

    def lost(outputs: Outputs, wanted: Outputs, given: np.ndarray | None) -> float:
        best, own = metric.compute(wanted, wanted, given), metric.compute(outputs, wanted, given)
        return 0.0 if best == own else best - own  # infinite ones are equal, too

    difference = Metric(name=metric.name, unit=metric.unit, compute=lost, floor=metric.floor, within=metric.within)
    whole = reference.valued(metric, reference)
    if math.isinf(whole.measures[0].value):
        raise UsageError(
            f"{metric.name} of the reference itself is infinite: there is no loss against it.",
            hint="Give a metric that is finite for a perfect run.",
        )
    for run in (reference, backend):  # a run that is held against several keeps its first value
        if not run.found.measures:
            run.found = whole if run is reference else run.valued(metric, reference)
    value = evaluate_metric(difference, ours, theirs, labels)
    given, own = reference.options.within, abs(whole.measures[0].value)
    margin = given if given is not None else ACCURACY_MAX_LOSS * own if math.isfinite(own) else 0.0
    interval = confidence(difference, ours, theirs, labels)
    needed = None
    if interval is not None and interval[0] <= margin < interval[1] and value != margin:
        # the width of an interval falls with the root of the number of samples
        half = (interval[1] - interval[0]) / 2
        needed = math.ceil(len(ours) * (half / abs(margin - value)) ** 2)
    return Loss(name=metric.name, value=value, interval=interval, margin=margin, needed=needed)


def _notes(runs: Sequence[_Scored], pairs: Sequence[PairAccuracy]) -> Iterator[str]:
    for run in runs:
        if run.found.broken:
            yield f"{run.name}: {run.found.broken} of {run.rows} rows have a NaN and count as wrong"
        for measure in run.found.measures:
            if measure.ties is not None:
                low, high = (f"{100 * each:.2f}" for each in measure.ties)
                yield f"{run.name}: equal scores: {measure.name} lies between {low} % and {high} % as they are ordered"
    if not any(run.found.quantized for run in runs) and len(runs) > 1:
        yield "no recording has integer codes: the first one is the reference"
    if all(run.found.quantized for run in runs) and len(runs) > 1:
        yield "no recording is float: the first one is the reference"
    scored = {run.found: run for run in runs}
    for pair in pairs:
        one, other = scored[pair.reference], scored[pair.backend]
        if not _fed_alike(one.recording, other.recording):
            yield f"the inputs of {one.name} and {other.name} differ: are these the same samples in the same order?"


def _shortcomings(runs: Sequence[_Scored], options: AccuracyOptions) -> Iterator[str]:
    for run in runs:
        info = run.recording.info
        if not info.complete and not options.allow_partial:
            yield f"{run.name} is incomplete"
        if info.fidelity is Fidelity.DIFFERS and not options.allow_unfaithful:
            yield f"recording changed the result of {run.name}"


def _fed_alike(one: Recording, other: Recording) -> bool:
    """Tell whether two runs were fed the same, as far as that shows: layouts may differ, and one may have codes."""
    inputs = list(zip(one.graph.inputs, other.graph.inputs, strict=False))
    for place in one.places()[:_LOOKED_AT]:
        for names in inputs:
            if not all(run.has(name, *place) for run, name in zip((one, other), names, strict=True)):
                continue
            values, step, low, high = [], 0.0, -math.inf, math.inf
            for run, name in zip((one, other), names, strict=True):
                array, quant = run.load(name, *place), quant_of(run, name, *place)
                values.append(np.sort(dequantize(array, quant), axis=None))
                if quant is not None and quant.qmin is not None and quant.qmax is not None and not quant.per_channel:
                    ends = [
                        float(quant.scale[0]) * (end - int(quant.zero_point[0])) for end in (quant.qmin, quant.qmax)
                    ]
                    step, low, high = max(step, float(quant.scale[0])), max(low, min(ends)), min(high, max(ends))
            if values[0].size != values[1].size or values[0].dtype.kind not in "iuf":
                continue
            ours, theirs = (np.clip(each.astype(np.float64), low, high) for each in values)
            if not np.allclose(ours, theirs, rtol=1e-6, atol=step, equal_nan=True):
                return False
    return True
