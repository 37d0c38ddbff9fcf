"""Choose scales: for each tensor the recorded one beside what calibrators choose, and what each loses on its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.compare.align.align import align_runs
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.measure.recordings import as_compared, with_understood_graph
from qdebug.compare.result.result import json_safe
from qdebug.errors import UsageError
from qdebug.model import QuantParams, Recording
from qdebug.model.dtypes import is_integer, logical_name
from qdebug.model.kept import kept_of
from qdebug.model.recording import places_of, quant_of
from qdebug.model.thresholds.scales import BRANCH_MIN_RANGE_RATIO
from qdebug.numerics.affine import dequantize
from qdebug.numerics.calibration import Calibrator, MinMax, calibrate, calibrator_named
from qdebug.numerics.quant_error import QuantError, QuantErrorCounter, estimated_error
from qdebug.numerics.range_histogram import BINS, RangeCounter, RangeHistogram
from qdebug.numerics.scheme import BITS, QuantScheme
from qdebug.recording.profile_recorder import why_not_profiled
from qdebug.recording.scale_profile import ScaleProfile
from qdebug.replay.run import one_thread
from qdebug.workflow.scales_flags import ScaleFlag, coded_quant, joined_branches, node_flags, quant_flags
from qdebug.workflow.scales_weights import (
    Granularity,
    WeightValues,
    channel_flags,
    chosen_for_weight,
    granularity_of,
    recorded_for,
    recorded_weights,
    scheme_for,
    weights_of,
)

__all__ = ["DEFAULT_CALIBRATORS", "WRONG", "ChosenScales", "ScaleChoice", "ScaleRow", "TensorValues", "choose_scales"]

DEFAULT_CALIBRATORS = ("minmax", "percentile:99.99", "mse", "entropy")
"""Names of the calibrators that are asked if nobody says otherwise."""

WRONG = frozenset(("degenerate", "zero_point", "mismatched", "bias_scale", "accumulator"))
"""Kinds of flags that are mistakes; the others are the price of a choice, or hang on the processor."""

Clamp = tuple[float | None, float | None]
OnTensor = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleChoice:
    """What a calibrator chooses for a tensor.

    Args:
        calibrator: Its name; "recorded" for the parameters in use.
        quant: Scale and zero point; None if it has no answer.
        low: Lower end of the range that was chosen; None for recorded parameters.
        high: Upper end of it.
        score: What it minimized; None for nothing.
        unit: What the score is.
        reason: How the range came about, or why there is none.
        error: What holding the values to the codes loses; None if that cannot be told.
    """

    calibrator: str
    quant: QuantParams | None = None
    low: float | None = None
    high: float | None = None
    score: float | None = None
    unit: str = ""
    reason: str = ""
    error: QuantError | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as plain values."""
        plain: dict[str, Any] = {
            "calibrator": self.calibrator,
            "scale": None if self.quant is None else self.quant.scale.ravel().tolist(),
            "zero_point": None if self.quant is None else self.quant.zero_point.ravel().tolist(),
            "qmin": None if self.quant is None else self.quant.qmin,
            "qmax": None if self.quant is None else self.quant.qmax,
            "low": self.low,
            "high": self.high,
            "score": self.score,
            "unit": self.unit,
            "reason": self.reason,
            "error": None if self.error is None else self.error.to_dict(),
        }
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRow:
    """One tensor.

    Args:
        tensor: The tensor whose values are quantized.
        backend_tensor: The backend's tensor of codes that stands for them; "" without.
        node: The node that makes it; "" for an input.
        op: That node's operator.
        count: Finite values.
        low: Smallest of them; NaN if there is none.
        high: Largest of them.
        dtype: Dtype of the codes that are chosen for.
        recorded: The parameters in use; None if there are none.
        choices: What each calibrator chooses, in order.
        best: The calibrator with the least error; None if no error is known.
        flags: What is odd about the recorded scale.
        granularity: How many elements share a scale: "tensor"; of weights also "channel" or "block:N".
        weight: Whether it is a weight, and no activation.
    """

    tensor: str
    backend_tensor: str = ""
    node: str = ""
    op: str = ""
    count: int
    low: float
    high: float
    dtype: str
    recorded: ScaleChoice | None
    choices: tuple[ScaleChoice, ...]
    best: str | None
    flags: tuple[ScaleFlag, ...] = ()
    granularity: str = "tensor"
    weight: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {
            "tensor": self.tensor,
            "backend_tensor": self.backend_tensor or None,
            "node": self.node or None,
            "op": self.op or None,
            "count": self.count,
            "low": self.low,
            "high": self.high,
            "dtype": self.dtype,
            "recorded": None if self.recorded is None else self.recorded.to_dict(),
            "choices": [choice.to_dict() for choice in self.choices],
            "best": self.best,
            "granularity": self.granularity,
            "weight": self.weight,
            "flags": [flag.to_dict() for flag in self.flags],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenScales:
    """The scales of a net.

    Args:
        rows: One for each tensor, in topological order.
        flags: All that is odd, that of the rows included.
        left_out: Tensors that no scale was chosen for, with the reason.
        notes: What is to be known of the whole.
        scheme: How scales were made of ranges; its codes are those of a tensor's recorded ones where it has such.
    """

    rows: tuple[ScaleRow, ...]
    flags: tuple[ScaleFlag, ...]
    left_out: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    scheme: QuantScheme

    @property
    def exit_code(self) -> int:
        """1 if a flag is one of `WRONG`, which no choice of range makes right; else 0."""
        return 1 if any(flag.kind in WRONG for flag in self.flags) else 0

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, ready for JSON."""
        plain: dict[str, Any] = json_safe(
            {
                "format": "qdebug.scales",
                "version": 1,
                "scheme": {
                    "kind": self.scheme.kind,
                    "bits": self.scheme.bits,
                    "narrow": self.scheme.narrow,
                    "rule": self.scheme.rule,
                },
                "tensors": [row.to_dict() for row in self.rows],
                "flags": [flag.to_dict() for flag in self.flags],
                "left_out": dict(self.left_out),
                "notes": list(self.notes),
            }
        )
        return plain


class TensorValues:
    """The values that a tensor's codes are to hold: read sample by sample, or known as a histogram alone.

    Args:
        name: The tensor, as it is called where the values are.
        recording: Where they are; None if there is only a histogram.
        histogram: The histogram, if it is known; else it is counted when it is first asked for.
        clamp: Bounds that are applied to the values first: those of an activation that the codes have folded in.
        bins: Bins of a histogram that is counted.
    """

    def __init__(
        self,
        name: str,
        recording: Recording | None = None,
        *,
        histogram: RangeHistogram | None = None,
        clamp: Clamp = (None, None),
        bins: int = BINS,
    ) -> None:
        self.name = name
        self.recording = recording
        self._given, self._clamp, self._bins = histogram, clamp, bins

    def why_none(self) -> str | None:
        """Say why there are no values; None if there are."""
        if self.recording is None:
            return None
        for place in places_of(self.recording, self.name):
            if self.recording.has(self.name, *place):
                info = self.recording.load(self.name, *place)
                return why_not_profiled(logical_name(info.dtype), quant_of(self.recording, self.name, *place))
            if kept_of(self.recording, self.name, *place) is not None:
                return "not all of its values were kept"
        return "it has no values"

    def parts(self) -> Iterator[tuple[np.ndarray, QuantParams | None]]:
        """Yield the stored elements of each sample and how they stand for real numbers."""
        if self.recording is None:
            return
        for place in places_of(self.recording, self.name):
            if not self.recording.has(self.name, *place):
                continue
            values, quant = self.recording.load(self.name, *place), quant_of(self.recording, self.name, *place)
            if self._clamp != (None, None):
                values, quant = np.clip(dequantize(values, quant), *self._clamp), None
            yield values, quant

    @cached_property
    def histogram(self) -> RangeHistogram:
        """The histogram of the values."""
        if self._given is not None:
            return self._given
        counter = RangeCounter(self._bins)
        for values, quant in self.parts():
            counter.add(values, quant)
        return counter.histogram()

    def errors(self, quants: Sequence[QuantParams | None]) -> list[QuantError | None]:
        """Return what holding the values to each of several codes loses: exactly, or estimated from the histogram.

        Args:
            quants: Scales and zero points; None, and those that hold nothing, give None.
        """
        if self.recording is None:
            return [None if quant is None else _estimated(self.histogram, quant) for quant in quants]
        counters = [None if quant is None else _counter(quant) for quant in quants]
        for values, own in self.parts():
            for counter in counters:
                if counter is not None:
                    counter.add(values, own)
        return [None if counter is None else counter.error() for counter in counters]


def _counter(quant: QuantParams) -> QuantErrorCounter | None:
    try:
        return QuantErrorCounter(quant)
    except UsageError:  # a scale that holds no values, which a flag says
        return None


def _estimated(histogram: RangeHistogram, quant: QuantParams) -> QuantError | None:
    try:
        return estimated_error(histogram, quant)
    except UsageError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    values: TensorValues
    backend_tensor: str = ""
    node: str = ""
    op: str = ""
    quant: QuantParams | None = None


def choose_scales(
    reference: Recording | ScaleProfile,
    backend: Recording | None = None,
    *,
    calibrators: Sequence[str | Calibrator] = DEFAULT_CALIBRATORS,
    scheme: QuantScheme | None = None,
    recorded_codes: bool = True,
    node: str | None = None,
    weights: Granularity | None = None,
    bins: int = BINS,
    progress: OnTensor | None = None,
) -> ChosenScales:
    """Choose a scale and zero point for each tensor by each of several calibrators, and compare them on its values.

    Args:
        reference: The values: a recording, best of the float net, or a profile. Of a profile errors are estimated.
        backend: A recording of the quantized net, whose scales are looked at; None to look at those of the reference.
        calibrators: Calibrators, or their names.
        scheme: How scales are made of ranges; None for asymmetric 8 bits.
        recorded_codes: Whether a tensor that has codes keeps their dtype and range, whatever those of the scheme are.
        node: Name of the only node or tensor to look at; None for all.
        weights: How many elements of a weight share a scale; None for as many as recorded, else one channel. Weights
            are looked at where the reference has them as floats: symmetric, without the lowest code.
        bins: Bins of histograms that are counted.
        progress: Called as it gets on.

    Raises:
        UsageError: There is no such calibrator or node, or nothing to choose for.
        AlignmentError: Reference and backend record different networks.
    """
    asked = [calibrator_named(each) if isinstance(each, str) else each for each in calibrators]
    reference = reference if isinstance(reference, ScaleProfile) else with_understood_graph(reference)
    backend = None if backend is None else as_compared(backend)
    scheme = scheme or QuantScheme()
    entries, notes = _entries(reference, backend, bins)
    weight_rows = [] if isinstance(reference, ScaleProfile) else [*_weights(reference, backend, asked, scheme, weights)]
    if node is not None:
        entries = [each for each in entries if node in (each.node, each.values.name, each.backend_tensor)]
        weight_rows = [each for each in weight_rows if node in (each.node, each.tensor, each.backend_tensor)]
        if not entries and not weight_rows:
            raise UsageError(
                f"There is no node or tensor {node!r} with values to choose a scale for.",
                hint="List them: qdebug scales choose REF.",
            )
    quantized = backend if backend is not None else reference if isinstance(reference, Recording) else None
    shared = {} if quantized is None or node is not None else _shared(quantized, entries)
    rows: list[ScaleRow] = []
    flags: list[ScaleFlag] = []
    left_out: dict[str, str] = {}
    for done, entry in enumerate(entries):
        if progress is not None:
            progress(done, len(entries), entry.values.name)
        why = entry.values.why_none()
        if why is not None:
            left_out[entry.values.name] = why
            continue
        rows.append(_row(entry, asked, _scheme_of(entry, scheme) if recorded_codes else scheme))
        flags += rows[-1].flags
    rows += weight_rows
    flags += [flag for row in weight_rows for flag in row.flags]
    if not rows:
        raise UsageError(
            "There is no tensor to choose a scale for: values were recorded of none.",
            hint="Record all values: qdebug record MODEL --backend NAME --inputs X.npz -o OUT.h5 --keep full.",
        )
    if quantized is not None and node is None:
        with one_thread():
            flags += [*_shared_flags(shared), *node_flags(quantized)]
    return ChosenScales(
        rows=tuple(rows),
        flags=tuple(flags),
        left_out=left_out,
        notes=tuple(notes),
        scheme=scheme,
    )


def _entries(
    reference: Recording | ScaleProfile, backend: Recording | None, bins: int
) -> tuple[list[_Entry], list[str]]:
    """List what scales are chosen for."""
    if isinstance(reference, ScaleProfile):
        return _of_profile(reference, backend), ["errors are estimated from histograms: a profile holds no values"]
    if backend is not None:
        return _of_pairs(reference, backend, bins)
    graph = reference.graph
    entries = []
    for name in reference.names:
        if graph.is_constant(name):
            continue
        maker = graph.producer(name)
        entries.append(
            _Entry(
                values=TensorValues(name, reference, bins=bins),
                node=maker.name if maker else "",
                op=maker.op if maker else "",
                quant=coded_quant(graph, name),
            )
        )
    notes = []
    if any(entry.quant is not None for entry in entries):
        notes.append(
            "codes are looked at as the values: the recorded scale has lost nothing of them; give REF and BACKEND"
        )
    return entries, notes


def _of_profile(profile: ScaleProfile, backend: Recording | None) -> list[_Entry]:
    """List the tensors of a profile; the backend's codes of a tensor are found by its name."""
    coded: dict[str, tuple[str, QuantParams]] = {}
    if backend is not None:
        for name, info in backend.graph.tensors.items():
            quant = coded_quant(backend.graph, name)
            if quant is not None and not backend.graph.is_constant(name):
                coded.setdefault(info.stands_for or name, (name, quant))
    return [
        _Entry(
            values=TensorValues(name, histogram=tensor.histogram),
            backend_tensor=coded.get(name, ("",))[0],
            node=tensor.node,
            op=tensor.op,
            quant=coded[name][1] if name in coded else None,
        )
        for name, tensor in profile.tensors.items()
    ]


def _of_pairs(reference: Recording, backend: Recording, bins: int) -> tuple[list[_Entry], list[str]]:
    """List the backend's tensors of codes with the reference's values that they stand for."""
    reference = as_compared(reference)
    with one_thread(), np.errstate(all="ignore"):
        alignment = align_runs(
            IndexedRecording.of(reference),
            IndexedRecording.of(backend),
            told=lambda stage: None,  # noqa: ARG005
        )
    entries = []
    for pair in alignment.pairs:
        quant = coded_quant(backend.graph, pair.backend)
        if quant is None or backend.graph.is_constant(pair.backend):
            continue
        maker, view = backend.graph.producer(pair.backend), pair.reference_view
        clamp = (None, None) if view is None else (view.clamp_low, view.clamp_high)
        entries.append(
            _Entry(
                values=TensorValues(pair.reference, reference, clamp=clamp, bins=bins),
                backend_tensor=pair.backend,
                node=maker.name if maker else "",
                op=maker.op if maker else "",
                quant=quant if quant.scale.size == 1 or pair.backend_view is None else None,
            )
        )
    if not entries:
        raise UsageError(
            "The backend has no tensor of integer codes with a scale that stands for one of the reference.",
            hint="Give a recording of the quantized net as BACKEND, or leave it out.",
        )
    return entries, []


def _scheme_of(entry: _Entry, scheme: QuantScheme) -> QuantScheme:
    """Return a scheme with the codes that a tensor has; the same one if it has none of 4, 8 or 16 bits."""
    quant = entry.quant
    if quant is None or quant.qmin is None or not is_integer(quant.dtype):
        return scheme
    bits = int(quant.dtype.removeprefix("u").removeprefix("int"))
    if bits not in BITS:
        return scheme
    signed = not quant.dtype.startswith("u")
    whole = replace(scheme, bits=bits, signed=signed, narrow=False)
    return replace(whole, narrow=quant.qmin > whole.qmin)


def _row(entry: _Entry, calibrators: Sequence[Calibrator], scheme: QuantScheme) -> ScaleRow:
    values = entry.values
    histogram = values.histogram
    choices = [_choice(each, histogram, scheme) for each in calibrators]
    quants = [entry.quant, *(choice.quant for choice in choices)]
    recorded_error, *errors = values.errors(quants)
    known = [replace(choice, error=error) for choice, error in zip(choices, errors, strict=True)]
    recorded = None
    if entry.quant is not None:
        recorded = ScaleChoice(calibrator="recorded", quant=entry.quant, error=recorded_error, reason="as recorded")
    told = [(choice.error.square_error, place) for place, choice in enumerate(known) if choice.error is not None]
    shown = entry.backend_tensor or values.name
    flags = () if entry.quant is None else quant_flags(shown, entry.node, entry.quant, histogram, recorded_error)
    return ScaleRow(
        tensor=values.name,
        backend_tensor=entry.backend_tensor,
        node=entry.node,
        op=entry.op,
        count=histogram.total,
        low=histogram.low,
        high=histogram.high,
        dtype=scheme.dtype,
        recorded=recorded,
        choices=tuple(known),
        best=known[min(told)[1]].calibrator if told else None,
        flags=tuple(flags),
    )


def _weights(
    reference: Recording,
    backend: Recording | None,
    calibrators: Sequence[Calibrator],
    scheme: QuantScheme,
    asked: Granularity | None,
) -> Iterator[ScaleRow]:
    """Yield a row for each float weight of the reference."""
    held = {} if backend is None else recorded_weights(backend)
    for weight in weights_of(reference):
        known = recorded_for(weight, held)
        name, quant = known or ("", None)
        own, granularity = scheme_for(quant, scheme), granularity_of(quant, asked)
        choices = [_weight_choice(weight, each, own, granularity) for each in calibrators]
        values = TensorValues(weight.name, reference)
        recorded_error, *errors = values.errors([quant, *(choice.quant for choice in choices)])
        rated = [replace(choice, error=error) for choice, error in zip(choices, errors, strict=True)]
        told = [(choice.error.square_error, place) for place, choice in enumerate(rated) if choice.error is not None]
        recorded = None
        one = granularity.kind == "tensor"
        flags = [*channel_flags(weight, name or weight.name, quant, own)] if one else []
        if quant is not None:
            recorded = ScaleChoice(calibrator="recorded", quant=quant, error=recorded_error, reason="as recorded")
            flags += quant_flags(name, weight.node.name, quant)
        size = f":{granularity.block_size}" if granularity.block_size else ""
        yield ScaleRow(
            tensor=weight.name,
            backend_tensor=name,
            node=weight.node.name,
            op=weight.node.op,
            count=int(np.isfinite(weight.values).sum()),
            low=float(weight.values.min()),
            high=float(weight.values.max()),
            dtype=own.dtype,
            recorded=recorded,
            choices=tuple(rated),
            best=rated[min(told)[1]].calibrator if told else None,
            flags=tuple(flags),
            granularity=f"{granularity.kind}{size}",
            weight=True,
        )


def _weight_choice(
    weight: WeightValues, calibrator: Calibrator, scheme: QuantScheme, granularity: Granularity
) -> ScaleChoice:
    try:
        quant = chosen_for_weight(weight, calibrator, scheme, granularity)
    except UsageError as error:
        return ScaleChoice(calibrator=calibrator.name, reason=error.message)
    return ScaleChoice(calibrator=calibrator.name, quant=quant, reason=f"one scale for each {granularity.kind}")


def _choice(calibrator: Calibrator, histogram: RangeHistogram, scheme: QuantScheme) -> ScaleChoice:
    try:
        quant, found = calibrate(calibrator, histogram, scheme)
    except UsageError as error:
        return ScaleChoice(calibrator=calibrator.name, reason=error.message)
    return ScaleChoice(
        calibrator=calibrator.name,
        quant=quant,
        low=found.low,
        high=found.high,
        score=found.score,
        unit=found.unit,
        reason=found.reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    node: str
    op: str
    tensor: str
    quant: QuantParams
    branches: tuple[tuple[str, TensorValues], ...]


def _shared(quantized: Recording, entries: Sequence[_Entry]) -> dict[str, _Shared]:
    """Find nodes whose branches share a scale, and the values of the branches."""
    values = {entry.backend_tensor or entry.values.name: entry.values for entry in entries}
    found = {}
    for node, tensor, branches in joined_branches(quantized.graph):
        quant = coded_quant(quantized.graph, tensor)
        known = tuple((name, values[name]) for name in branches if name in values)
        if quant is not None and quant.scale.size == 1 and len(known) > 1:
            found[node.name] = _Shared(node=node.name, op=node.op, tensor=tensor, quant=quant, branches=known)
    return found


def _shared_flags(shared: Mapping[str, _Shared]) -> Iterator[ScaleFlag]:
    """Yield the nodes whose branches have unlike ranges, with what scales of their own would do."""
    for each in shared.values():
        ranges = [
            (max(abs(values.histogram.low), abs(values.histogram.high)), name, values)
            for name, values in each.branches
            if values.why_none() is None and values.histogram.total
        ]
        ranges = [entry for entry in ranges if entry[0] > 0]
        if len(ranges) < 2:
            continue
        wide, narrow = max(ranges, key=lambda entry: entry[0]), min(ranges, key=lambda entry: entry[0])
        ratio = wide[0] / narrow[0]
        if ratio < BRANCH_MIN_RANGE_RATIO:
            continue
        quant = each.quant
        own = _scheme_of(_Entry(values=narrow[2], quant=quant), QuantScheme())
        alone = _choice(MinMax(), narrow[2].histogram, own).quant
        together, apart = narrow[2].errors([quant, alone])
        effect = ""
        if together is not None and apart is not None:
            effect = (
                f": {narrow[1]!r} keeps {together.sqnr_db:.1f} dB in the scale they share, and {apart.sqnr_db:.1f} dB "
                "in one of its own"
            )
        said = f"{each.op} joins ranges of {wide[0]:.4g} ({wide[1]!r}) and {narrow[0]:.4g} in one scale{effect}"
        yield ScaleFlag(
            kind="shared_range",
            tensor=each.tensor,
            node=each.node,
            sentence=said,
            amount=ratio,
            limit=BRANCH_MIN_RANGE_RATIO,
            unit="times",
        )
