"""Accuracy of recorded runs against labels, and whether a quantized run loses more than an allowed margin.

All runs have the same samples, so a loss is judged on paired differences: only samples that exactly one of two runs
gets right matter.
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
from qdebug.running.output_metric import Metric, Outputs, confidence_interval, evaluate_metric, find_metric

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

_TOP_K = (1, 5)
"""The k of top-k: the label must be among the k highest scores."""
_COMPARED_SAMPLES = 8
"""Number of samples whose inputs are compared. If two runs have different inputs, the first samples show it."""

Interval = tuple[float, float]


class Decision(StrEnum):
    """Whether the interval of a loss is within its margin, beyond it, or straddles it."""

    WITHIN = "within"
    WORSE = "worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyOptions:
    """Options of `accuracy`.

    Args:
        metric: "MODULE:FUNCTION" or "FILE.py:FUNCTION", see `find_metric`. None for top-1 and top-5.
        within: The largest allowed loss, in the metric's unit, or None for the default.
        scores: Name of the output with the scores, or None if there is only one.
        allow_partial: Whether a recording may be incomplete.
        allow_unfaithful: Whether recording may have changed the outputs.
    """

    metric: str | None = None
    within: float | None = None
    scores: str | None = None
    allow_partial: bool = False
    allow_unfaithful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measure(JsonObject):
    """The value of one measure for one run.

    Args:
        name: "top-1", "top-5", or the metric as specified by the user.
        value: A share, or the metric's value.
        interval: 95 % confidence interval of the value, or None for a metric of fewer than two samples.
        right: Whether each row is right, bool, or None for a metric.
        ties: The smallest and the largest value over all ways of breaking ties, or None if they are equal.
    """

    json_keys = "name value interval ties"

    name: str
    value: float
    interval: Interval | None
    right: np.ndarray | None = None
    ties: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunAccuracy(JsonObject):
    """The accuracy of one run.

    Args:
        file: The recording, as given by the user.
        info: Facts of the run.
        quantized: Whether any tensor of the run has integer codes.
        output: The output with the scores, or "" for a metric.
        rows: Number of rows of scores, or of samples for a metric.
        classes: Number of scores in a row, or 0 for a metric.
        broken: Number of rows with a NaN.
        measures: The measures of the run, such as top-1.
        top_score: Mean of the highest score of each row without a NaN, or None if there are no such rows.
    """

    json_keys = (
        "file backend=info.backend model=info.model quantized output|null rows classes|null broken measures top_score"
    )

    file: str
    info: RunInfo
    quantized: bool
    output: str
    rows: int
    classes: int
    broken: int
    measures: tuple[Measure, ...]
    top_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(JsonObject):
    """How much worse a run is than its reference by one measure.

    Args:
        name: The measure.
        value: The reference's value minus the backend's.
        interval: The 95 % confidence interval of the loss, or None for a metric of fewer than two samples.
        margin: The largest allowed loss.
        lost: Number of rows that only the reference gets right, or None for a metric.
        won: Number of rows that only the backend gets right, or None for a metric.
        needed: Number of samples that would decide, or None if it is decided already or more samples cannot decide it.
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
        """How the interval relates to the margin."""
        if self.interval is None or not all(map(math.isfinite, self.interval)):
            return Decision.WORSE if math.isnan(self.value) or self.value == math.inf else Decision.UNDECIDED
        low, high = self.interval
        return Decision.WITHIN if high <= self.margin else Decision.WORSE if low > self.margin else Decision.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAccuracy(JsonObject):
    """A run compared with its reference.

    Args:
        reference: The reference.
        backend: The other run.
        same_backend: Whether both ran on the same backend.
        losses: The loss by each measure.
        agreement: Share of the rows in which both have the same top class, or None for a metric.
        worst_rank: The worst rank of the reference's winner in the backend, from 1, or None if no row has a winner.
        worst_row: The first row with that rank.
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
    """Result of `accuracy`.

    Args:
        runs: The runs, in the given order.
        pairs: Each run with its references.
        labels: Hash of the labels, or "" without labels. Only results with equal labels can be compared.
        notes: Remarks, one sentence each.
        shortcomings: What is missing and must not be, one clause each.
    """

    json_format = "accuracy"
    json_keys = "verdict labels|null runs pairs notes shortcomings"

    runs: tuple[RunAccuracy, ...]
    pairs: tuple[PairAccuracy, ...]
    labels: str = ""
    notes: tuple[str, ...] = ()
    shortcomings: tuple[str, ...] = field(default=())

    def losses(self, decision: Decision) -> list[tuple[PairAccuracy, Loss]]:
        """Return the losses with a given decision, each with its pair."""
        return [(pair, loss) for pair in self.pairs for loss in pair.losses if loss.decision is decision]

    @property
    def exit_code(self) -> int:
        """Exit code: 3 if a recording is not reliable, 1 if a loss is beyond its margin, 0 in all other cases."""
        return 3 if self.shortcomings else 1 if self.losses(Decision.WORSE) else 0

    @property
    def verdict(self) -> Annotated[str, SchemaPart(enum=[*Decision, "alone"])]:
        """The worst decision, or "alone" if there is nothing to compare with."""
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
    """Measure runs against labels and against each other.

    Args:
        recordings: The runs, by displayed name.
        labels: The class of each row of scores, or labels in the form expected by the user's metric, or None.
        options: The options.
        digest: Hash of the labels.
        progress: Called with the number of runs read so far and the total.

    Raises:
        UsageError: The labels do not match the scores, runs have different samples, or an output has to be named.
        RecordingError: Outputs were not recorded.
    """
    scored_runs = []
    for done_count, (name, recording) in enumerate(recordings.items(), 1):
        scored_runs.append(_ScoredRun(name, recording, options, labels))
        if progress is not None:
            progress(done_count, len(recordings))
    first_run = scored_runs[0]
    for other_run in scored_runs[1:]:
        if other_run.rows != first_run.rows:
            raise UsageError(
                f"{other_run.name!r} has {other_run.rows} {first_run.unit}, but {first_run.name!r} has "
                f"{first_run.rows}.",
                hint="Record the same samples for all: qdebug record --inputs FILE.npz --samples N.",
            )
    pairs = tuple(
        _pair_accuracy(scored_runs[reference], scored_runs[backend])
        for reference, backend in _pair_indices(scored_runs)
    )
    for run in scored_runs:
        if run.metric is not None and not run.accuracy.measures:
            run.accuracy = run.measure_metric(run.metric, run)
    return AccuracyReport(
        runs=tuple(run.accuracy for run in scored_runs),
        pairs=pairs,
        labels=digest,
        notes=tuple(_report_notes(scored_runs, pairs)),
        shortcomings=tuple(_shortcomings(scored_runs, options)),
    )


class _ScoredRun:
    """A run with its scores and its accuracy.

    Args:
        name: The recording, as given by the user.
        recording: The run.
        options: The options.
        labels: The labels.
    """

    def __init__(self, name: str, recording: Recording, options: AccuracyOptions, labels: np.ndarray | None) -> None:
        self.name, self.recording, self.options, self.labels = name, recording, options, labels
        self.metric = None if options.metric is None else find_metric(options.metric)
        self.outputs: list[Outputs] = []
        self.scores = np.zeros((0, 0), np.float32)
        self.places = recording.places()
        self.accuracy = self._measure_top_k() if self.metric is None else self._collect_outputs()

    @property
    def unit(self) -> str:
        """The noun for the rows of this run, in messages."""
        return "rows of scores" if self.metric is None else "samples"

    @property
    def rows(self) -> int:
        """Number of rows of scores, or of samples."""
        return self.accuracy.rows

    def _make_run_accuracy(self, rows: int, measures: tuple[Measure, ...], **facts: Any) -> RunAccuracy:
        is_quantized = _is_quantized(self.recording.graph)
        score_facts: dict[str, Any] = {"output": "", "classes": 0, "broken": 0, **facts}
        return RunAccuracy(
            file=self.name,
            info=self.recording.info,
            quantized=is_quantized,
            rows=rows,
            measures=measures,
            **score_facts,
        )

    def _load_real(self, tensor: str, place: tuple[int, int]) -> np.ndarray:
        return dequantize(self.recording.load(tensor, *place), quant_of(self.recording, tensor, *place))

    def _measure_top_k(self) -> RunAccuracy:
        output = _scores_output(self.name, self.recording, self.options.scores)
        rows = [_to_rows(self._load_real(output, place), output, self.name) for place in self.places]
        if not rows:
            raise RecordingError(f"{self.name!r} has no samples.", hint="Record the network's outputs.")
        if len({scores.shape[-1] for scores in rows}) > 1:
            raise UsageError(f"The number of classes of output {output!r} of {self.name!r} changes between samples.")
        self.scores = np.concatenate(rows)
        labels = _check_labels(self.labels, self.scores, self.name)
        has_nan = np.isnan(self.scores).any(axis=-1)
        label_scores = self.scores[np.arange(len(labels)), labels][:, np.newaxis]
        with np.errstate(invalid="ignore"):
            higher_counts = np.count_nonzero(self.scores > label_scores, axis=-1)
            is_tied = self.scores == label_scores
        # Like argmax: among equal scores, the class with the lower number comes first.
        tied_before_counts = np.count_nonzero(
            is_tied & (np.arange(self.scores.shape[1]) < labels[:, np.newaxis]), axis=-1
        )
        tie_counts, measures = np.count_nonzero(is_tied, axis=-1) - 1, []
        for k in _TOP_K:
            if k >= self.scores.shape[1]:
                continue  # top-k of all classes is always right
            is_right = (higher_counts + tied_before_counts < k) & ~has_nan
            tie_bounds = [float(np.mean((rank < k) & ~has_nan)) for rank in (higher_counts + tie_counts, higher_counts)]
            measures.append(
                Measure(
                    name=f"top-{k}",
                    value=float(is_right.mean()),
                    interval=proportion(int(is_right.sum()), is_right.size),
                    right=is_right,
                    ties=None if tie_bounds[0] == tie_bounds[1] else (tie_bounds[0], tie_bounds[1]),
                )
            )
        row_count, classes = self.scores.shape
        top_score = None if has_nan.all() else float(self.scores[~has_nan].max(axis=-1).mean(dtype=np.float64))
        facts = {"output": output, "classes": classes, "broken": int(has_nan.sum()), "top_score": top_score}
        return self._make_run_accuracy(row_count, tuple(measures), **facts)

    def _collect_outputs(self) -> RunAccuracy:
        names = self.recording.graph.outputs
        self.outputs = [{name: self._load_real(name, place) for name in names} for place in self.places]
        if not self.outputs or not names:
            raise RecordingError(f"{self.name!r} has no outputs.", hint="Record the network's outputs.")
        if self.labels is not None and len(np.atleast_1d(self.labels)) != len(self.places):
            raise UsageError(
                f"There are {len(np.atleast_1d(self.labels))} labels, but the number of {self.unit} "
                f"in {self.name!r} is "
                f"{len(self.places)}.",
                hint="Give one label for each sample along the first axis.",
            )
        return self._make_run_accuracy(len(self.outputs), ())

    def outputs_named_like(self, reference: _ScoredRun) -> list[Outputs]:
        """Return the outputs under the reference's names, paired by name, or else in order."""
        own_names, reference_names = self.recording.graph.outputs, reference.recording.graph.outputs
        if set(reference_names) <= set(own_names):
            return self.outputs
        if len(own_names) != len(reference_names):
            raise UsageError(
                f"{self.name!r} has the outputs {', '.join(own_names)}, "
                f"but {reference.name!r} has {', '.join(reference_names)}.",
                hint="Record runs of the same network.",
            )
        return [dict(zip(reference_names, tensors.values(), strict=True)) for tensors in self.outputs]

    def measure_metric(self, metric: Metric, reference: _ScoredRun) -> RunAccuracy:
        """Return the run's accuracy, with its value of a metric relative to a reference."""
        own_outputs, reference_outputs = self.outputs_named_like(reference), reference.outputs
        labels = None if self.labels is None else list(self.labels)
        value = evaluate_metric(metric, own_outputs, reference_outputs, labels)
        measure = Measure(
            name=metric.name, value=value, interval=confidence_interval(metric, own_outputs, reference_outputs, labels)
        )
        return self._make_run_accuracy(len(own_outputs), (measure,))


def _is_quantized(graph: Graph) -> bool:
    """Return whether any tensor of a graph has integer codes. An input image of bytes does not count."""
    for info in graph.tensors.values():
        if info.quant is not None and is_integer(info.quant.dtype):
            return True
        holds_integers = info.role is not Role.INPUT and info.dtype is not None and is_integer(info.dtype)
        if holds_integers and logical_dtype(str(info.dtype)).itemsize == 1:
            return True
    return any(operators.of(node.op).takes_codes for node in graph.nodes)


def _scores_output(name: str, recording: Recording, asked_name: str | None) -> str:
    """Return the output with the scores.

    Raises:
        UsageError: There is no output of this name, or there are several and none was named.
    """
    outputs = recording.graph.outputs
    tensors = recording.graph.tensors
    outputs_by_name = {tensors[output].stands_for or output: output for output in outputs} | {
        output: output for output in outputs
    }
    if asked_name is None and len(outputs) == 1:
        return outputs[0]
    outputs_text = ", ".join(outputs) or "none"
    if asked_name is None:
        raise UsageError(
            f"{name!r} has several outputs: {outputs_text}.", hint="Name the output with the scores: --scores NAME."
        )
    if asked_name not in outputs_by_name:
        raise UsageError(
            f"{name!r} has no output {asked_name!r}; it has: {outputs_text}.", hint="Give one of these: --scores NAME."
        )
    return outputs_by_name[asked_name]


def _to_rows(array: np.ndarray, output: str, name: str) -> np.ndarray:
    """Return scores as an array (rows, classes), without trailing extents of 1.

    Raises:
        UsageError: A row has only one score, or the values are not numbers.
    """
    shape = array.shape
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    if not shape or shape[-1] < 2 or array.dtype.kind not in "iuf":
        raise UsageError(
            f"Output {output!r} of {name!r} has shape {array.shape}, so it does not contain class scores.",
            hint="Use your own function: --metric FILE.py:FUNCTION.",
        )
    return np.asarray(array, np.float32).reshape(-1, shape[-1])


def _check_labels(labels: np.ndarray | None, scores: np.ndarray, name: str) -> np.ndarray:
    """Return labels as class numbers, one for each row.

    Raises:
        UsageError: There are too many or too few labels, or a label is not a class number.
    """
    if labels is None:
        raise UsageError("Top-k accuracy needs labels.", hint="Give them: --labels FILE, or --metric FILE.py:FUNCTION.")
    label_array, (rows, classes) = np.asarray(labels), scores.shape
    if label_array.size != rows:
        hint = "Shorten them: labels[:N]." if label_array.size > rows else "Give one label for each row of scores."
        if label_array.ndim > 1 and label_array.shape[-1] == classes and label_array.size == rows * classes:
            hint = "The labels look one-hot; save labels.argmax(axis=-1)."
        raise UsageError(f"There are {label_array.size} labels, but {name!r} has {rows} rows of scores.", hint=hint)
    if label_array.dtype.kind not in "iufb":
        raise UsageError(
            f"Labels of type {label_array.dtype} are not class numbers.", hint="Give integers, counted from 0."
        )
    flat_labels = label_array.ravel()
    is_integer_label = np.isfinite(flat_labels) & (
        flat_labels == np.trunc(np.where(np.isfinite(flat_labels), flat_labels, 0.5))
    )
    wrong_rows = np.flatnonzero(~is_integer_label | (flat_labels < 0) | (flat_labels >= classes))
    if wrong_rows.size:
        raise UsageError(
            f"Label {flat_labels[wrong_rows[0]]} of row {wrong_rows[0]} is not one of the {classes} classes of {name!r}"
            f"{f', and {wrong_rows.size - 1} more are not' if wrong_rows.size > 1 else ''}.",
            hint=f"Number the classes from 0 to {classes - 1} in the order of the scores.",
        )
    return flat_labels.astype(np.int64)


def _pair_indices(runs: Sequence[_ScoredRun]) -> Iterator[tuple[int, int]]:
    """Yield pairs of indices of a reference and a backend.

    The first float run is the reference of all other runs. A quantized run is also compared with the first float run
    of the same backend.
    """
    floats = [index for index, run in enumerate(runs) if not run.accuracy.quantized]
    first_reference = floats[0] if floats else 0
    for position, run in enumerate(runs):
        same_backend_float = next(
            (index for index in floats if runs[index].accuracy.info.backend == run.accuracy.info.backend), None
        )
        if position not in floats and same_backend_float is not None:
            yield same_backend_float, position
        if position != first_reference and (position in floats or same_backend_float != first_reference):
            yield first_reference, position


def _pair_accuracy(reference: _ScoredRun, backend: _ScoredRun) -> PairAccuracy:
    has_same_backend = reference.accuracy.info.backend == backend.accuracy.info.backend
    if reference.metric is not None:
        loss = _metric_loss(reference.metric, reference, backend)
        return PairAccuracy(
            reference=reference.accuracy, backend=backend.accuracy, same_backend=has_same_backend, losses=(loss,)
        )
    if reference.scores.shape != backend.scores.shape:
        raise UsageError(
            f"{reference.name!r} has {reference.accuracy.classes} classes, but {backend.name!r} has "
            f"{backend.accuracy.classes}.",
            hint="Record runs of the same network.",
        )
    losses = []
    for reference_measure, backend_measure in zip(reference.accuracy.measures, backend.accuracy.measures, strict=True):
        if reference_measure.right is not None and backend_measure.right is not None:
            losses.append(
                row_loss(
                    reference_measure.name, reference_measure.right, backend_measure.right, reference.options.within
                )
            )
    ranks = list(map(winner_rank, reference.scores, backend.scores))
    rank_numbers = [-1 if rank is None else rank.rank for rank in ranks]
    worst_row = int(np.argmax(rank_numbers))
    with np.errstate(invalid="ignore"):
        agrees = (reference.scores.argmax(axis=-1) == backend.scores.argmax(axis=-1)) & ~np.isnan(backend.scores).any(
            -1
        )
    return PairAccuracy(
        reference=reference.accuracy,
        backend=backend.accuracy,
        same_backend=has_same_backend,
        losses=tuple(losses),
        agreement=float(agrees.mean()),
        worst_rank=None if rank_numbers[worst_row] < 0 else rank_numbers[worst_row] + 1,
        worst_row=None if rank_numbers[worst_row] < 0 else worst_row,
    )


def row_loss(name: str, reference: np.ndarray, backend: np.ndarray, within: float | None) -> Loss:
    """Return the loss between two runs, given which rows each gets right.

    Args:
        name: The measure.
        reference: Whether each row is right in the reference, bool.
        backend: Whether each row is right in the backend, bool.
        within: The largest allowed loss, or None for the default.
    """
    margin = ACCURACY_MAX_LOSS if within is None else within
    lost_rows, won_rows = int(np.count_nonzero(reference & ~backend)), int(np.count_nonzero(backend & ~reference))
    low, high = paired_loss(lost_rows, won_rows, reference.size)
    samples_to_decide = samples_needed(lost_rows, won_rows, reference.size, margin) if low <= margin < high else None
    value = (lost_rows - won_rows) / reference.size
    return Loss(
        name=name,
        value=value,
        interval=(low, high),
        margin=margin,
        lost=lost_rows,
        won=won_rows,
        needed=samples_to_decide,
    )


def _metric_loss(metric: Metric, reference: _ScoredRun, backend: _ScoredRun) -> Loss:
    """Return the loss in a metric, with a confidence interval from resampling."""
    reference_outputs, backend_outputs = reference.outputs, backend.outputs_named_like(reference)
    labels = None if reference.labels is None else list(reference.labels)

    def compute_loss(outputs: Outputs, reference_values: Outputs, sample_labels: np.ndarray | None) -> float:
        value_of_reference = metric.compute(reference_values, reference_values, sample_labels)
        value_of_outputs = metric.compute(outputs, reference_values, sample_labels)
        # Equal infinities have no difference; inf - inf would be NaN.
        return 0.0 if value_of_reference == value_of_outputs else value_of_reference - value_of_outputs

    difference = Metric(
        name=metric.name,
        unit=metric.unit,
        compute=compute_loss,
        is_minimum=metric.is_minimum,
        default_goal=metric.default_goal,
    )
    reference_accuracy = reference.measure_metric(metric, reference)
    if math.isinf(reference_accuracy.measures[0].value):
        raise UsageError(
            f"{metric.name} of the reference itself is infinite, so no loss can be computed.",
            hint="Give a metric that is finite for a perfect run.",
        )
    for run in (reference, backend):  # with several references, the run is measured only once
        if not run.accuracy.measures:
            run.accuracy = reference_accuracy if run is reference else run.measure_metric(metric, reference)
    value = evaluate_metric(difference, backend_outputs, reference_outputs, labels)
    given_margin, reference_value = reference.options.within, abs(reference_accuracy.measures[0].value)
    margin = (
        given_margin
        if given_margin is not None
        else ACCURACY_MAX_LOSS * reference_value
        if math.isfinite(reference_value)
        else 0.0
    )
    interval = confidence_interval(difference, backend_outputs, reference_outputs, labels)
    samples_to_decide = None
    if interval is not None and interval[0] <= margin < interval[1] and value != margin:
        # The width of the interval shrinks with the square root of the number of samples.
        half_width = (interval[1] - interval[0]) / 2
        samples_to_decide = math.ceil(len(backend_outputs) * (half_width / abs(margin - value)) ** 2)
    return Loss(name=metric.name, value=value, interval=interval, margin=margin, needed=samples_to_decide)


def _report_notes(runs: Sequence[_ScoredRun], pairs: Sequence[PairAccuracy]) -> Iterator[str]:
    for run in runs:
        if run.accuracy.broken:
            yield f"{run.name}: {run.accuracy.broken} of {run.rows} rows have a NaN and count as wrong"
        for measure in run.accuracy.measures:
            if measure.ties is not None:
                low, high = (f"{100 * value:.2f}" for value in measure.ties)
                yield f"{run.name}: because of equal scores, {measure.name} is between {low} % and {high} %"
    if not any(run.accuracy.quantized for run in runs) and len(runs) > 1:
        yield "no recording has integer codes; the first recording is the reference"
    if all(run.accuracy.quantized for run in runs) and len(runs) > 1:
        yield "no recording is float; the first recording is the reference"
    runs_by_accuracy = {run.accuracy: run for run in runs}
    for pair in pairs:
        reference, backend = runs_by_accuracy[pair.reference], runs_by_accuracy[pair.backend]
        if not _have_same_inputs(reference.recording, backend.recording):
            names = f"{reference.name} and {backend.name}"
            yield f"the inputs of {names} differ; check that both have the same samples in the same order"


def _shortcomings(runs: Sequence[_ScoredRun], options: AccuracyOptions) -> Iterator[str]:
    for run in runs:
        info = run.recording.info
        if not info.complete and not options.allow_partial:
            yield f"{run.name} is incomplete"
        if info.fidelity is Fidelity.DIFFERS and not options.allow_unfaithful:
            yield f"recording changed the result of {run.name}"


def _have_same_inputs(reference: Recording, backend: Recording) -> bool:
    """Return whether two runs seem to have the same inputs. Layouts may differ, and one run may be quantized."""
    inputs = list(zip(reference.graph.inputs, backend.graph.inputs, strict=False))
    for place in reference.places()[:_COMPARED_SAMPLES]:
        for names in inputs:
            if not all(run.has(name, *place) for run, name in zip((reference, backend), names, strict=True)):
                continue
            values, step, low, high = [], 0.0, -math.inf, math.inf
            for run, name in zip((reference, backend), names, strict=True):
                array, quant = run.load(name, *place), quant_of(run, name, *place)
                values.append(np.sort(dequantize(array, quant), axis=None))
                if quant is not None and quant.qmin is not None and quant.qmax is not None and not quant.per_channel:
                    code_ends = [
                        float(quant.scale[0]) * (end - int(quant.zero_point[0])) for end in (quant.qmin, quant.qmax)
                    ]
                    step, low, high = (
                        max(step, float(quant.scale[0])),
                        max(low, min(code_ends)),
                        min(high, max(code_ends)),
                    )
            if values[0].size != values[1].size or values[0].dtype.kind not in "iuf":
                continue
            reference_values, backend_values = (np.clip(array.astype(np.float64), low, high) for array in values)
            if not np.allclose(reference_values, backend_values, rtol=1e-6, atol=step, equal_nan=True):
                return False
    return True
