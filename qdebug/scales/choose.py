"""Choose scales: compare each tensor's recorded scale with the choices of calibrators, by the loss on its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np

from qdebug.compare.measure.recordings import as_compared, with_understood_graph
from qdebug.errors import UsageError
from qdebug.model import Node, QuantParams, Recording
from qdebug.model.dtypes import is_integer
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.model.names import resolve_name
from qdebug.model.thresholds.scales import BRANCH_MIN_RANGE_RATIO
from qdebug.numerics.calibration import RANGE_ALONE, Calibrator, MinMax, calibrate, parse_calibrator
from qdebug.numerics.quant_error import QuantError
from qdebug.numerics.range_histogram import BINS, RangeHistogram
from qdebug.numerics.scheme import BITS, SCHEMES, QuantScheme
from qdebug.recording.scale_profile import ScaleProfile
from qdebug.replay.run import one_thread
from qdebug.scales.flags import ScaleFlag, coded_quant, joined_branches, node_flags, quant_flags
from qdebug.scales.quantizers import quantizer_settings
from qdebug.scales.values import TensorValues, align_tensors
from qdebug.scales.weights import (
    Granularity,
    WeightValues,
    channel_flags,
    choose_weight_scales,
    find_recorded_weight,
    granularity_of,
    recorded_weights,
    scheme_for,
    weights_of,
)

__all__ = [
    "DEFAULT_CALIBRATORS",
    "WRONG_KINDS",
    "ChosenScales",
    "ScaleChoice",
    "ScaleRow",
    "choose_range",
    "choose_scales",
    "with_codes_of",
]

DEFAULT_CALIBRATORS = ("minmax", "percentile:99.99", "mse", "entropy")
"""Default calibrators by name."""

WRONG_KINDS = frozenset(("degenerate", "zero_point", "mismatched", "bias_scale", "accumulator"))
"""Kinds of flags that are mistakes. The others are consequences of a choice, or depend on the processor."""

OnTensor = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleChoice(JsonObject):
    """The scale that a calibrator chooses for a tensor.

    Args:
        calibrator: Name of the calibrator, or "recorded" for the parameters in use.
        quant: Scale and zero point, or None if the calibrator gives none.
        low: Lower end of the chosen range, or None for recorded parameters.
        high: Upper end of the chosen range, or None for recorded parameters.
        score: The quantity that was minimized, or None.
        unit: Name of the score.
        reason: How the range was determined, or why there is none.
        error: Loss of quantizing the values, or None if unknown.
    """

    json_keys = (
        "calibrator scale=quant.scale zero_point=quant.zero_point qmin=quant.qmin qmax=quant.qmax low high "
        "score unit reason error"
    )

    calibrator: str
    quant: QuantParams | None = None
    low: float | None = None
    high: float | None = None
    score: float | None = None
    unit: str = ""
    reason: str = ""
    error: QuantError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRow(JsonObject):
    """The scales of one tensor.

    Args:
        tensor: The tensor whose values are quantized.
        backend_tensor: The backend's quantized tensor with these values, or "".
        node: The node that computes it, or "" for an input.
        op: The operator of the node.
        count: Number of finite values.
        low: Smallest finite value, or NaN.
        high: Largest finite value, or NaN.
        dtype: Dtype of the codes.
        recorded: The parameters in use, or None.
        choices: The choice of each calibrator, in order.
        best: The calibrator with the smallest error, or None if no error is known.
        flags: Problems of the recorded scale.
        granularity: The elements that share a scale: "tensor", or for weights also "channel" or "block:N".
        weight: Whether it is a weight rather than an activation.
        scheme: Name of the scheme from ranges to scales.
    """

    json_keys = (
        "tensor backend_tensor|null node|null op|null count low high dtype recorded choices best granularity "
        "weight flags scheme"
    )

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
    granularity: Annotated[str, SchemaPart(pattern="^(tensor|channel|block:[0-9]+)$")] = "tensor"
    weight: bool = False
    scheme: Annotated[str, SchemaPart(enum=[*SCHEMES])]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenScales(JsonObject):
    """The scales of a network.

    Args:
        rows: One for each tensor, in topological order.
        flags: All problems, including those in the rows.
        left_out: Tensors without a chosen scale, with the reason.
        notes: Remarks.
        scheme: The scheme from ranges to scales. The recorded codes of a tensor take precedence over its codes.
    """

    json_format = "scales"
    json_keys = "scheme tensors=rows flags left_out hand_over notes"

    rows: tuple[ScaleRow, ...]
    flags: tuple[ScaleFlag, ...]
    left_out: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    scheme: QuantScheme

    @property
    def exit_code(self) -> int:
        """Exit code: 1 if a flag is in `WRONG_KINDS`, which no choice of range can fix, or 0."""
        return 1 if any(flag.kind in WRONG_KINDS for flag in self.flags) else 0

    @property
    def hand_over(self) -> Mapping[str, Any]:
        """The choice with the smallest error of each tensor in the form of quantizer settings."""
        chosen: dict[bool, dict[str, QuantParams]] = {False: {}, True: {}}
        for row in self.rows:
            quants = {choice.calibrator: choice.quant for choice in row.choices if choice.quant is not None}
            quant = quants.get(row.best or "", next(iter(quants.values()), None))
            if quant is not None:
                chosen[row.weight][row.tensor] = quant
        return quantizer_settings(chosen[False], chosen[True])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A tensor for which scales are chosen: its values, its names, and its recorded quantization if any."""

    values: TensorValues
    backend_tensor: str = ""
    node: str = ""
    op: str = ""
    quant: QuantParams | None = None
    reference_node: Node | None = None

    def matches(self, pattern: str) -> bool:
        """Return whether the node that computes the tensor in either run has a name, or with "op:" an operator."""
        nodes = [(self.node, self.op)]
        nodes += [] if self.reference_node is None else [(self.reference_node.name, self.reference_node.op)]
        is_op, text = pattern.startswith("op:"), pattern.removeprefix("op:")
        return any(fnmatchcase(node[is_op], text) for node in nodes)


def choose_scales(
    reference: Recording | ScaleProfile,
    backend: Recording | None = None,
    *,
    calibrators: Sequence[str | Calibrator] = DEFAULT_CALIBRATORS,
    scheme: QuantScheme | None = None,
    node_schemes: Mapping[str, str] = MappingProxyType({}),
    recorded_codes: bool = True,
    node: str | None = None,
    weights: Granularity | None = None,
    bins: int = BINS,
    progress: OnTensor | None = None,
) -> ChosenScales:
    """Choose a scale and zero point for each tensor with each of several calibrators, and compare them on its values.

    Args:
        reference: The values: a recording, ideally of the float network, or a profile. Errors are estimated from a
            profile.
        backend: A recording of the quantized network with the recorded scales, or None if the reference has them.
        calibrators: Calibrators, or their names.
        scheme: The scheme from ranges to scales, or None for asymmetric 8 bits.
        node_schemes: Names of other schemes for the activations of some nodes, by a pattern of their names, or of
            their operators, as in "op:Sigmoid". The last match counts.
        recorded_codes: Whether a quantized tensor keeps its dtype and range instead of those of the scheme.
        node: Name of the only node or tensor to examine, or None for all.
        weights: The elements of a weight that share a scale. None for the recorded granularity, else a scale for each
            channel. Only float weights of the reference count. Their scales are symmetric, without the lowest code.
        bins: Maximum number of bins of a histogram.
        progress: Progress callback.

    Raises:
        UsageError: There is no such calibrator or node, or no tensor to choose a scale for.
        AlignmentError: Reference and backend record different networks.
    """
    calibrator_objects = [
        parse_calibrator(calibrator) if isinstance(calibrator, str) else calibrator for calibrator in calibrators
    ]
    reference = reference if isinstance(reference, ScaleProfile) else with_understood_graph(reference)
    backend = None if backend is None else as_compared(backend)
    scheme = scheme or QuantScheme()
    entries, notes = _collect_entries(reference, backend, bins)
    schemes = _schemes_of(entries, scheme, node_schemes)
    weight_rows: list[ScaleRow] = []
    if node is not None:
        owners = {name: entry.node or name for entry in entries for name in _names_of_entry(entry) if name}
        if not isinstance(reference, ScaleProfile):
            owners |= _weight_owners(reference, backend)
        node = resolve_name(
            node,
            owners,
            what="node or tensor with values to choose a scale for",
            hint="List them: qdebug scales choose REF.",
        )
    if not isinstance(reference, ScaleProfile):
        weight_rows = [*_weight_rows(reference, backend, calibrator_objects, scheme, granularity=weights, node=node)]
    if node is not None:
        entries = [entry for entry in entries if node in _names_of_entry(entry)]
    quantized_run = backend if backend is not None else reference if isinstance(reference, Recording) else None
    rows: list[ScaleRow] = []
    flags: list[ScaleFlag] = []
    left_out: dict[str, str] = {}
    for finished_count, entry in enumerate(entries):
        if progress is not None:
            progress(finished_count, len(entries), entry.values.name)
        reason = entry.values.missing_reason()
        if reason is not None:
            left_out[entry.values.name] = reason
            continue
        node_scheme = schemes[id(entry)]
        rows.append(
            _make_row(
                entry, calibrator_objects, with_codes_of(entry.quant, node_scheme) if recorded_codes else node_scheme
            )
        )
        flags += rows[-1].flags
    notes += _range_remarks([entry.values.histogram for entry in entries if entry.values.name not in left_out])
    rows += weight_rows
    flags += [flag for row in weight_rows for flag in row.flags]
    if not rows:
        raise UsageError(
            "No tensor has recorded values to choose a scale for.",
            hint="Record all values: qdebug record MODEL --backend NAME --inputs X.npz -o OUT.h5 --keep full.",
        )
    if quantized_run is not None and node is None:
        with one_thread():
            flags += [*_shared_flags(quantized_run, entries), *node_flags(quantized_run)]
    return ChosenScales(
        rows=tuple(rows),
        flags=tuple(flags),
        left_out=left_out,
        notes=tuple(notes),
        scheme=scheme,
    )


def _collect_entries(
    reference: Recording | ScaleProfile, backend: Recording | None, bins: int
) -> tuple[list[_Entry], list[str]]:
    """Return the tensors for which scales are chosen, and notes about them."""
    if isinstance(reference, ScaleProfile):
        return _entries_of_profile(reference, backend), [
            "errors are estimated from histograms, because a profile contains no values"
        ]
    if backend is not None:
        return _entries_of_pairs(reference, backend, bins)
    graph = reference.graph
    entries = []
    for name in reference.names:
        if graph.is_constant(name):
            continue
        producer = graph.producer(name)
        entries.append(
            _Entry(
                values=TensorValues(name, reference, bins=bins),
                node=producer.name if producer else "",
                op=producer.op if producer else "",
                quant=coded_quant(graph, name),
            )
        )
    notes = []
    if any(entry.quant is not None for entry in entries):
        notes.append(
            "the codes of this recording serve as values, so its own scale shows no error; give REF and BACKEND"
        )
    return entries, notes


def _schemes_of(
    entries: Sequence[_Entry], scheme: QuantScheme, node_schemes: Mapping[str, str]
) -> dict[int, QuantScheme]:
    """Return the scheme of each tensor, by the `id` of its entry.

    Raises:
        UsageError: A pattern matches no node, or there is no such scheme.
    """
    schemes = dict.fromkeys(map(id, entries), scheme)
    for pattern, kind in node_schemes.items():
        matches = [entry for entry in entries if entry.matches(pattern)]
        if not matches:
            raise UsageError(
                f"No node with a scale to choose matches {pattern!r}.",
                hint="Give the name of a node, or op: followed by an operator, as in --scheme 'op:Sigmoid=asymmetric'.",
            )
        schemes |= dict.fromkeys(map(id, matches), replace(scheme, kind=kind))
    return schemes


def _range_remarks(histograms: Sequence[RangeHistogram]) -> Iterator[str]:
    """Yield a note about tensors of which only the range is known."""
    coarse_count = sum(histogram.coarse for histogram in histograms)
    if coarse_count:
        yield f"{coarse_count} of {len(histograms)} tensors have statistics only; {RANGE_ALONE}"


def _entries_of_profile(profile: ScaleProfile, backend: Recording | None) -> list[_Entry]:
    """Return the tensors of a profile, with the backend's codes of the same name."""
    codes_by_tensor: dict[str, tuple[str, QuantParams]] = {}
    if backend is not None:
        for name, info in backend.graph.tensors.items():
            quant = coded_quant(backend.graph, name)
            if quant is not None and not backend.graph.is_constant(name):
                codes_by_tensor.setdefault(info.stands_for or name, (name, quant))
    return [
        _Entry(
            values=TensorValues(name, histogram=tensor.histogram),
            backend_tensor=codes_by_tensor.get(name, ("",))[0],
            node=tensor.node,
            op=tensor.op,
            quant=codes_by_tensor[name][1] if name in codes_by_tensor else None,
        )
        for name, tensor in profile.tensors.items()
    ]


def _entries_of_pairs(reference: Recording, backend: Recording, bins: int) -> tuple[list[_Entry], list[str]]:
    """Return the backend's quantized tensors with the reference's values that they represent."""
    reference = as_compared(reference)
    entries = []
    for pair in align_tensors(reference, backend):
        quant = coded_quant(backend.graph, pair.backend)
        if quant is None or backend.graph.is_constant(pair.backend):
            continue
        producer = backend.graph.producer(pair.backend)
        entries.append(
            _Entry(
                values=TensorValues.of_pair(pair, reference, bins=bins),
                backend_tensor=pair.backend,
                node=producer.name if producer else "",
                op=producer.op if producer else "",
                reference_node=reference.graph.producer(pair.reference),
                quant=quant if quant.scale.size == 1 or pair.backend_view is None else None,
            )
        )
    if not entries:
        raise UsageError(
            "The backend has no tensor with integer codes, a scale and a reference partner.",
            hint="Give a recording of the quantized network as BACKEND, or leave it out.",
        )
    return entries, []


def with_codes_of(quant: QuantParams | None, scheme: QuantScheme) -> QuantScheme:
    """Return a scheme with the dtype and the range of a tensor's codes, if these have 4, 8 or 16 bits.

    Args:
        quant: Quantization of the tensor, or None if it is not quantized.
        scheme: The scheme, which is returned unchanged for other codes.
    """
    if quant is None or quant.qmin is None or not is_integer(quant.dtype):
        return scheme
    bits = int(quant.dtype.removeprefix("u").removeprefix("int"))
    if bits not in BITS:
        return scheme
    full_scheme = replace(scheme, bits=bits, signed=not quant.dtype.startswith("u"), narrow=False)
    return replace(full_scheme, narrow=quant.qmin > full_scheme.qmin)


def _make_row(entry: _Entry, calibrators: Sequence[Calibrator], scheme: QuantScheme) -> ScaleRow:
    values, histogram = entry.values, entry.values.histogram
    recorded_choice, choices, best = _rate_choices(
        values, entry.quant, [choose_range(calibrator, histogram, scheme) for calibrator in calibrators]
    )
    flags: Iterable[ScaleFlag] = ()
    if recorded_choice is not None and recorded_choice.quant is not None:
        title = entry.backend_tensor or values.name
        flags = quant_flags(title, entry.node, recorded_choice.quant, histogram, recorded_choice.error)
    return ScaleRow(
        tensor=values.name,
        backend_tensor=entry.backend_tensor,
        node=entry.node,
        op=entry.op,
        count=histogram.total,
        low=histogram.low,
        high=histogram.high,
        dtype=scheme.dtype,
        recorded=recorded_choice,
        choices=choices,
        best=best,
        flags=tuple(flags),
        scheme=scheme.kind,
    )


def _rate_choices(
    values: TensorValues, quant: QuantParams | None, choices: Sequence[ScaleChoice]
) -> tuple[ScaleChoice | None, tuple[ScaleChoice, ...], str | None]:
    """Return the recorded parameters and the choices, with their losses, and the calibrator with the smallest loss."""
    recorded_error, *errors = values.errors([quant, *(choice.quant for choice in choices)])
    recorded_choice = None
    if quant is not None:
        recorded_choice = ScaleChoice(calibrator="recorded", quant=quant, error=recorded_error, reason="as recorded")
    rated_choices = tuple(replace(choice, error=error) for choice, error in zip(choices, errors, strict=True))
    known_errors = [
        (choice.error.square_error, index) for index, choice in enumerate(rated_choices) if choice.error is not None
    ]
    return recorded_choice, rated_choices, rated_choices[min(known_errors)[1]].calibrator if known_errors else None


def _weight_rows(
    reference: Recording,
    backend: Recording | None,
    calibrators: Sequence[Calibrator],
    scheme: QuantScheme,
    *,
    granularity: Granularity | None,
    node: str | None,
) -> Iterator[ScaleRow]:
    """Yield a row for each float weight of the reference, or only for those of one node."""
    backend_weights = {} if backend is None else recorded_weights(backend)
    for weight in weights_of(reference):
        name, quant = find_recorded_weight(weight, backend_weights) or ("", None)
        if node not in (None, weight.node.name, weight.name, name):
            continue
        weight_scheme, weight_granularity = scheme_for(quant, scheme), granularity_of(quant, granularity)
        values = TensorValues(weight.name, reference)
        unrated_choices = [
            _weight_choice(weight, calibrator, weight_scheme, weight_granularity) for calibrator in calibrators
        ]
        recorded_choice, choices, best = _rate_choices(values, quant, unrated_choices)
        has_one_scale = weight_granularity.kind == "tensor"
        flags = [*channel_flags(weight, name or weight.name, quant, weight_scheme)] if has_one_scale else []
        flags += [] if quant is None else quant_flags(name, weight.node.name, quant)
        size = f":{weight_granularity.block_size}" if weight_granularity.block_size else ""
        yield ScaleRow(
            tensor=weight.name,
            backend_tensor=name,
            node=weight.node.name,
            op=weight.node.op,
            count=int(np.isfinite(weight.values).sum()),
            low=float(weight.values.min()),
            high=float(weight.values.max()),
            dtype=weight_scheme.dtype,
            recorded=recorded_choice,
            choices=choices,
            best=best,
            flags=tuple(flags),
            granularity=f"{weight_granularity.kind}{size}",
            weight=True,
            scheme=weight_scheme.kind,
        )


def _weight_owners(reference: Recording, backend: Recording | None) -> dict[str, str]:
    """Return the node of each float weight of the reference, by the names of the weight and of the node."""
    backend_weights = {} if backend is None else recorded_weights(backend)
    owners: dict[str, str] = {}
    for weight in weights_of(reference):
        recorded_weight = find_recorded_weight(weight, backend_weights)
        names = (weight.node.name, weight.name, *(recorded_weight[:1] if recorded_weight else ()))
        owners |= dict.fromkeys(names, weight.node.name)
    return owners


def _names_of_entry(entry: _Entry) -> tuple[str, ...]:
    """Return the names by which a user can select a tensor."""
    return entry.node, entry.values.name, entry.backend_tensor


def _weight_choice(
    weight: WeightValues, calibrator: Calibrator, scheme: QuantScheme, granularity: Granularity
) -> ScaleChoice:
    try:
        quant = choose_weight_scales(weight, calibrator, scheme, granularity)
    except UsageError as error:
        return ScaleChoice(calibrator=calibrator.name, reason=error.message)
    return ScaleChoice(calibrator=calibrator.name, quant=quant, reason=f"one scale for each {granularity.kind}")


def choose_range(calibrator: Calibrator, histogram: RangeHistogram, scheme: QuantScheme) -> ScaleChoice:
    """Return a calibrator's choice for the values of a histogram, or why it makes none.

    Args:
        calibrator: Chooses the range.
        histogram: The values.
        scheme: Computes scale and zero point from the range.
    """
    try:
        quant, chosen_range = calibrate(calibrator, histogram, scheme)
    except UsageError as error:
        return ScaleChoice(calibrator=calibrator.name, reason=error.message)
    return ScaleChoice(
        calibrator=calibrator.name,
        quant=quant,
        low=chosen_range.low,
        high=chosen_range.high,
        score=chosen_range.score,
        unit=chosen_range.unit,
        reason=chosen_range.reason,
    )


def _shared_flags(quantized_run: Recording, entries: Sequence[_Entry]) -> Iterator[ScaleFlag]:
    """Flag nodes whose branches share a scale despite very different ranges, with the effect of separate scales."""
    values = {entry.backend_tensor or entry.values.name: entry.values for entry in entries}
    known_values = {
        name: tensor_values for name, tensor_values in values.items() if tensor_values.missing_reason() is None
    }
    for node, tensor, branches in joined_branches(quantized_run.graph):
        quant = coded_quant(quantized_run.graph, tensor)
        if quant is None or quant.scale.size > 1:
            continue
        ranges = [
            (max(abs(known_values[name].histogram.low), abs(known_values[name].histogram.high)), name)
            for name in branches
            if name in known_values and known_values[name].histogram.total
        ]
        ranges = [entry for entry in ranges if entry[0] > 0]
        if len(ranges) < 2:
            continue
        (wide_extent, wide_tensor), (narrow_extent, narrow_tensor) = max(ranges), min(ranges)
        if wide_extent / narrow_extent < BRANCH_MIN_RANGE_RATIO:
            continue
        separate_quant = choose_range(
            MinMax(), known_values[narrow_tensor].histogram, with_codes_of(quant, QuantScheme())
        ).quant
        shared_error, separate_error = known_values[narrow_tensor].errors([quant, separate_quant])
        effect = ""
        if shared_error is not None and separate_error is not None:
            effect = (
                f"; {narrow_tensor!r} has an SQNR of {shared_error.sqnr_db:.1f} dB in the shared scale, and "
                f"{separate_error.sqnr_db:.1f} dB in its own scale"
            )
        yield ScaleFlag(
            kind="shared_range",
            tensor=tensor,
            node=node.name,
            sentence=(
                f"{node.op} joins ranges of {wide_extent:.4g} ({wide_tensor!r}) and {narrow_extent:.4g} in one "
                f"scale{effect}"
            ),
            amount=wide_extent / narrow_extent,
            limit=BRANCH_MIN_RANGE_RATIO,
            unit="times",
        )
