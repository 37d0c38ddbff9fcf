"""Describes the error of a node that no arithmetic reproduces, compared with its likeliest one. See `residual_of`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.code_table import CodeTable, read_table
from qdebug.arithmetic.fitted import PRODUCTS, fit_multiplier
from qdebug.arithmetic.patterns.residual import Residual, residual
from qdebug.arithmetic.patterns.wrong_evidence import CodesOfTensor, stretches
from qdebug.arithmetic.patterns.wrong_places import Layout, layout_of
from qdebug.arithmetic.presets import is_known
from qdebug.arithmetic.refit import refit
from qdebug.arithmetic.rescale_suspects import rescale_suspects
from qdebug.arithmetic.search import SearchResult, all_codes, channels_first, count_products, known_variants
from qdebug.arithmetic.suspect import Suspect
from qdebug.arithmetic.suspects import flip_sign_bit, suspects
from qdebug.arithmetic.units import Place, channels_last
from qdebug.arithmetic.vector_tail import vector_tail
from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.explanation import OTHER_SUMS_MAX_PRODUCTS, VARIANT_MIN_ELEMENTS
from qdebug.model.thresholds.patterns import PATTERN_MAX_ELEMENTS, SLIGHT_ERROR_CODES, TIE_DISTANCE_PARTS
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.scaling import GIVEN
from qdebug.replay.unit import Target, Unit
from qdebug.replay.variant import Variant, describe

__all__ = ["distance_to_ties", "residual_of"]


def residual_of(finding: SearchResult, variant: Variant) -> Residual | None:
    """Describe the error that remains at a node with a variant, or return None if there is nothing to compare.

    Args:
        finding: The search result of a node that no variant reproduces.
        variant: The expected variant: its siblings' arithmetic, or the closest one. The simplest variant is used
            instead if a known mistake then reproduces every element.
    """
    try:
        remaining, mistake, unit = _remaining_error(finding, variant)
    except KernelError:  # the variant of the sibling nodes does not support this node
        variant = candidates(finding.source.unit(_examined_places(finding)[0]))[0]
        remaining, mistake, unit = _remaining_error(finding, variant)
    simplest = None if unit is None else candidates(unit)[0]
    if (
        mistake is None
        and remaining is not None
        and remaining.pattern != "one_code"
        and simplest not in (None, variant)
    ):
        # The closest variant may compensate for part of a mistake. The simplest one does not.
        with_simplest, mistake, _ = _remaining_error(finding, simplest)
        remaining = remaining if mistake is None else with_simplest
    if remaining is None or unit is None:
        return remaining
    if mistake is None and remaining.pattern != "one_code":
        mistake = _find_mistake_in_any(finding, unit)
    if mistake is not None:
        likely = f"{mistake.likely} (reproduces every element)"
        return replace(remaining, pattern=mistake.pattern, likely=likely, reproduces=True)
    table = _read_code_table(finding)
    if table is not None and not table.ambiguous:
        return _explain_by_code_table(remaining, table)
    return (
        _explain_by_two_arithmetics(remaining, finding, unit)
        or _explain_by_other_parameter(remaining, finding, variant)
        or _explain_by_other_multiplier(remaining, finding)
        or _explain_by_lookup(remaining, finding, variant, table)
    )


def _examined_places(finding: SearchResult) -> list[Place]:
    """Return the first samples and steps, with up to `PATTERN_MAX_ELEMENTS` elements."""
    places: list[Place] = []
    total = 0
    for place in finding.source.places:
        places.append(place)
        total += finding.source.codes(place).size
        if total > PATTERN_MAX_ELEMENTS:
            break
    return places


def _explain_by_two_arithmetics(remaining: Residual, finding: SearchResult, unit: Unit) -> Residual | None:
    """Explain a residual by one known arithmetic in a vectorized loop and another in its tail, or return None."""
    tail = vector_tail(
        finding.source, _examined_places(finding), [variant for variant in candidates(unit) if is_known(variant)]
    )
    if tail is None:
        return None
    likely = (
        f"{tail.place_text} use a different arithmetic ({describe(tail.tail)}) from the others ({describe(tail.body)}; "
        f"{tail.elements} elements distinguish them; reproduces every element)"
    )
    return replace(remaining, pattern="tail", likely=likely, reproduces=True)


def _explain_by_other_parameter(remaining: Residual, finding: SearchResult, variant: Variant) -> Residual | None:
    """Explain a residual by a different scale or zero point of one operand, or return None."""
    places = _examined_places(finding)
    units = [finding.source.unit(place) for place in places]
    recorded = [channels_first(finding.source.codes(place), unit) for place, unit in zip(places, units, strict=True)]
    refitted = refit(units, recorded, variant)
    if refitted is None:
        return None
    is_complete = refitted.equal == refitted.total
    share = (
        "every element"
        if is_complete
        else f"{refitted.equal} of {refitted.total} elements, and the others within one code"
    )
    likely = f"{refitted.likely} (reproduces {share})"
    return replace(remaining, pattern=refitted.pattern, likely=likely, reproduces=is_complete)


def _explain_by_other_multiplier(remaining: Residual, finding: SearchResult) -> Residual | None:
    """Explain a residual by multipliers that differ from those of the scales, or return None."""
    parts = []
    for place in _examined_places(finding):
        unit = finding.source.unit(place)
        if unit.kind not in PRODUCTS:
            return None
        recorded = channels_first(finding.source.codes(place), unit).reshape(-1)
        parts.append((unit, accumulate(unit, HeavyPart()), recorded))
    fitted = fit_multiplier(parts)
    return None if fitted is None else replace(remaining, pattern="multiplier", likely=str(fitted), reproduces=True)


def _read_code_table(finding: SearchResult) -> CodeTable | None:
    """Return the lookup table that the recording shows, or None if the node is not a function of one 8-bit code."""
    parts = []
    for place in _examined_places(finding):
        unit = finding.source.unit(place)
        parts.append((unit, channels_first(finding.source.codes(place), unit)))
    return read_table(parts)


def _explain_by_code_table(remaining: Residual, table: CodeTable) -> Residual:
    """Add a lookup table to a residual, and the cause of its deviations."""
    described = replace(remaining, detail=f"{remaining.detail}; {table}", table=table)
    if table.made_for:
        return replace(described, likely=f"a table for {table.made_for} (reproduces every element)", reproduces=True)
    if table.passed_on is not None:
        return replace(described, likely=f"{table.passed_on} (reproduces every element)", reproduces=True)
    few = len(table.deviations) < table.seen - len(table.deviations)
    likely = "wrong entries in the table" if few else f"a table of a function other than {table.function}"
    largest = max(abs(entry.value - entry.exact) for entry in table.deviations)
    if largest <= 1 or (not few and largest <= SLIGHT_ERROR_CODES):
        likely = f"an inexact table of {table.function}, or one computed in several rounded steps"
    return replace(described, likely=f"{likely}; no other input or output scale fits all entries")


def _explain_by_lookup(
    remaining: Residual, finding: SearchResult, variant: Variant, table: CodeTable | None
) -> Residual:
    """Add to a residual whether each input code or sum always maps to the same output code, as in a lookup table."""
    if table is not None:
        return replace(remaining, detail=f"{remaining.detail}; {table}", table=table)
    if remaining.pattern not in _VAGUE_PATTERNS or finding.kind in _KINDS_WITHOUT_SUMS:
        return remaining
    pairs, total, word = [], 0, "sum"
    for place in _examined_places(finding):
        unit = finding.source.unit(place)
        columns = accumulate(unit, variant.sums)
        recorded = channels_first(finding.source.codes(place), unit)
        if len(columns.values) != 1 or columns.size != recorded.size:
            return remaining
        word = "input code" if columns.sums.columns == "codes" or finding.kind in _KINDS_OF_ONE_CODE else "sum"
        numbers = columns.values[0].reshape(columns.shape)
        other_keys = [key for key in (columns.count, columns.member) if key is not None]
        if unit.per_channel and unit.kind in ("conv", "linear"):
            axis = 1 if unit.kind == "conv" else -1
            channels = np.arange(columns.shape[axis])
            other_keys.append(channels.reshape([-1, *[1] * (numbers.ndim - 2)]) if axis == 1 else channels)
        keys = [np.broadcast_to(key, numbers.shape).reshape(-1) for key in (numbers, *other_keys)]
        pairs.append(np.unique(np.stack([*keys, recorded.reshape(-1)]).astype(np.float64), axis=1))
        total += recorded.size
    distinct = np.unique(np.concatenate(pairs, axis=1), axis=1)
    _, code_counts = np.unique(distinct[:-1], axis=1, return_counts=True)
    if total < 2 * code_counts.size:
        return remaining  # most inputs occur only once, so it proves nothing that each maps to one code
    ambiguous = np.count_nonzero(code_counts > 1)
    if ambiguous:
        return replace(
            remaining, detail=f"{remaining.detail}; {ambiguous} of {code_counts.size} {word}s map to more than one code"
        )
    if word == "sum":
        sums_text = (
            f"the sums are right, but their conversion to codes is wrong; each of {code_counts.size} sums "
            "always maps to one code"
        )
        return replace(remaining, likely=sums_text)
    likely = (
        "a different function of the code, such as a different table; "
        f"each of {code_counts.size} input codes always maps to one code"
    )
    return replace(remaining, likely=likely)


_KINDS_WITHOUT_SUMS = ("softmax", "resize", "where", "quantize")
"""Kinds whose output is a function neither of one code nor of one sum of codes."""
_KINDS_OF_ONE_CODE = ("lookup", "requantize", "max_pool", "pad", "concat")
"""Kinds in which each output code depends on one input code."""
_VAGUE_PATTERNS = ("scattered", "off_by_one", "ties_only", "altered")
"""Patterns that reveal little about the cause."""


def _remaining_error(finding: SearchResult, variant: Variant) -> tuple[Residual | None, Suspect | None, Unit | None]:
    """Return the error that remains with a variant, the mistake that reproduces every element, and the first unit.

    Each may be None: there is no error, no mistake does, or the output holds no integer codes.
    """
    units: list[Unit] = []
    parts: list[CodesOfTensor] = []
    for place in _examined_places(finding):
        unit = finding.source.unit(place)
        if unit.out.dtype.kind not in "iu":
            return None, None, None
        sample_codes = _codes_of_sample(unit, finding.source.codes(place), variant)
        if not parts or sample_codes.expected.shape == parts[0].expected.shape:
            units.append(unit)
            parts.append(sample_codes)
    unit, shape = units[0], parts[0].expected.shape
    layout = layout_of(unit, max(len(shape), 2) - 1, last=_has_channels_last(finding, unit))
    joined_arrays: dict[str, Any] = {
        name: _join_samples([getattr(sample_codes, name) for sample_codes in parts]) for name in _JOINED_FIELDS
    }
    remaining = residual(
        replace(
            parts[0],
            layout=replace(layout, first=_batch_axis_name(shape, len(parts))),
            zero_point=int(unit.out.zero_point.reshape(-1)[0]),
            span=unit.out.limits,
            **joined_arrays,
        )
    )
    if remaining is None:
        return None, None, unit
    remaining = replace(_in_recorded_order(remaining, unit, shape), against=str(variant))
    recorded = [sample_codes.recorded for sample_codes in parts]
    # If all elements hold one code, many different mistakes that saturate every element fit, which proves nothing.
    mistake = _find_mistake(units, recorded, variant) if remaining.pattern != "one_code" else None
    return remaining, mistake, unit


_JOINED_FIELDS = ("expected", "recorded", "distance", "magnitude", "sums")


def _codes_of_sample(unit: Unit, recorded: np.ndarray, variant: Variant) -> CodesOfTensor:
    """Return the recorded codes of one sample and those expected with a variant, channels first."""
    columns = accumulate(unit, variant.sums)
    sums = columns.values[0] if unit.kind in ("conv", "linear") else None
    return CodesOfTensor(
        layout=Layout(),
        expected=finish(unit, columns, variant).reshape(columns.shape),
        recorded=channels_first(recorded, unit),
        distance=distance_to_ties(unit, columns, variant),
        magnitude=_sum_magnitudes(unit),
        sums=None if sums is None else np.abs(sums).reshape(columns.shape),
        kind=unit.kind,
    )


def _find_mistake(units: Sequence[Unit], recorded: Sequence[np.ndarray], variant: Variant) -> Suspect | None:
    """Find the mistake that reproduces every recorded code of every sample.

    Different mistakes in rescaling may saturate the same codes. Up to two of them are joined.
    """
    rescalings: dict[str, Suspect] = {}
    for suspect in chain(suspects(units[0]), rescale_suspects(units[0])):
        if suspect.likely not in rescalings and all(
            _reproduces(suspect if unit is units[0] else _find_same_mistake(suspect, unit), codes, variant)
            for unit, codes in zip(units, recorded, strict=True)
        ):
            if suspect.rescale is None:
                return suspect
            rescalings[suspect.likely] = suspect
    if not 0 < len(rescalings) <= _MAX_RESCALINGS:
        return None
    return replace(next(iter(rescalings.values())), likely=", or ".join(rescalings))


_MAX_RESCALINGS = 2
"""Maximum number of mistakes in rescaling that are named together."""


def _find_mistake_in_any(finding: SearchResult, unit: Unit) -> Suspect | None:
    """Find the only mistake that reproduces every recorded code together with any known arithmetic, or return None.

    A wrong kernel may round differently from all its siblings. Few elements suffice to rule out most pairs of a mistake
    and an arithmetic.

    Args:
        finding: The search result of the node.
        unit: Its first sample.
    """
    places = _examined_places(finding)
    units = [finding.source.unit(place) for place in places]
    recorded = [
        channels_first(finding.source.codes(place), sample_unit)
        for place, sample_unit in zip(places, units, strict=True)
    ]
    if sum(codes.size for codes in recorded) < VARIANT_MIN_ELEMENTS:
        return None
    variants = known_variants(unit)
    if count_products(unit) > OTHER_SUMS_MAX_PRODUCTS:
        variants = tuple(variant for variant in variants if variant.sums == variants[0].sums)
    by_likely: dict[str, Suspect] = {}
    for suspect in suspects(unit):
        for variant in _variants_passing_trial(suspect, recorded[0], variants):
            if all(
                _reproduces(_find_same_mistake(suspect, sample_unit), codes, variant)
                for sample_unit, codes in zip(units, recorded, strict=True)
            ):
                by_likely[suspect.likely] = suspect
                break
    return next(iter(by_likely.values())) if len(by_likely) == 1 else None


def _variants_passing_trial(suspect: Suspect, recorded: np.ndarray, variants: Sequence[Variant]) -> Iterator[Variant]:
    """Yield the variants that reproduce a few recorded codes together with a mistake."""
    if suspect.accumulate or suspect.has_opposite_signedness or suspect.casts != ("", "sat"):
        return
    codes, determined = suspect.determined_codes(recorded)
    trial = determined[:: max(1, determined.size // _TRIAL_ELEMENTS)]
    for sums in dict.fromkeys(variant.sums for variant in variants):
        try:
            columns = accumulate(suspect.unit, sums)
        except KernelError:
            continue
        if columns.size != codes.size:
            continue
        with_sums = [variant for variant in variants if variant.sums == sums]
        with np.errstate(all="ignore"):  # a wrong scale can overflow float32
            computed = [*all_codes(suspect.unit, columns.take(trial), with_sums)]
        for variant, trial_codes in computed:
            if np.array_equal(trial_codes, codes[trial]):
                yield variant


_MAX_INCONCLUSIVE_EXTENT = 3
"""Largest extent of an axis for which a late write proves little, because one of its indices is undetermined."""
_TRIAL_ELEMENTS = 512
"""Number of elements of a first trial. They rule out most pairs of a mistake and an arithmetic."""


def _find_same_mistake(suspect: Suspect, unit: Unit) -> Suspect | None:
    candidates = suspects(unit) if suspect.rescale is None else rescale_suspects(unit)
    return next((candidate for candidate in candidates if candidate.name == suspect.name), None)


def _reproduces(suspect: Suspect | None, recorded: np.ndarray, variant: Variant) -> bool:
    if suspect is None:
        return False
    try:
        if suspect.rescale is not None:
            trial = np.arange(0, recorded.size, max(1, recorded.size // _TRIAL_ELEMENTS))
            if not np.array_equal(suspect.rescale(trial), recorded.reshape(-1)[trial]):
                return False
        with np.errstate(all="ignore"):  # a wrong scale can overflow float32
            codes = suspect.codes(variant)
    except (KernelError, UsageError):
        return False
    if codes.shape != recorded.shape:
        return False
    if suspect.late is not None:
        shifted_codes, determined = suspect.determined_codes(recorded)
        return codes.shape[suspect.late[0]] > _MAX_INCONCLUSIVE_EXTENT and np.array_equal(
            codes.reshape(-1)[determined], shifted_codes[determined]
        )
    if not suspect.has_opposite_signedness:
        return np.array_equal(codes, recorded)
    if recorded.dtype.kind not in "iu" or recorded.dtype.itemsize != codes.dtype.itemsize:
        return False
    bits = np.ascontiguousarray(recorded).view(codes.dtype)
    return np.array_equal(codes, bits) or np.array_equal(codes, flip_sign_bit(bits))


def _batch_axis_name(shape: tuple[int, ...], parts: int) -> str:
    """Return the name of the merged axis of samples and batch entries."""
    if len(shape) < 2 or shape[0] == 1:
        return "sample"
    return "batch row" if parts == 1 else "sample or batch row"


def _join_samples(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Join the arrays of all samples along axis 0. Batch entries count as further samples."""
    present = [array for array in arrays if array is not None]
    if len(present) < len(arrays):
        return None
    if present[0].ndim > 1:
        return np.concatenate([array.reshape(-1, *array.shape[1:]) for array in present])
    return np.stack(present)


def _has_channels_last(finding: SearchResult, unit: Unit) -> bool:
    """Return whether a node without a layout of its own, such as an addition, computes on channels-last data."""
    has_own_layout = unit.kind in ("conv", "linear") or unit.kind.endswith("_pool")
    return not has_own_layout and channels_last(finding.source.recording.graph, finding.source.node)


def distance_to_ties(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray | None:
    """Return each element's distance from the nearest tie, in codes, at most 0.5, or None if unknown.

    The variant is computed with an output scale so fine that its codes show the fraction that is rounded. For a variant
    that truncates, codes change at integers, so the distance is from the nearest integer.

    Args:
        unit: The unit.
        columns: Its columns, complete.
        variant: A variant that uses the columns' sums.
    """
    if unit.out.dtype.kind not in "iu":
        return None
    fine = Target(
        dtype=np.dtype(np.int32), scale=unit.out.scale / TIE_DISTANCE_PARTS, zero_point=np.zeros((), np.int32)
    )
    if variant.multiplier.real or variant.multiplier.number == GIVEN:
        variant = replace(variant, multiplier=replace(variant.multiplier, number="f64"))
    try:
        codes = finish(replace(unit, out=fine), columns, variant)
    except (KernelError, UsageError):
        return None
    limit = 0 if _truncates(variant) else TIE_DISTANCE_PARTS // 2
    distance = np.empty(codes.size)
    for fine_codes, out in stretches(codes, distance):
        offset = (fine_codes.astype(np.int64) - limit) & (TIE_DISTANCE_PARTS - 1)
        np.divide(np.minimum(offset, TIE_DISTANCE_PARTS - offset), TIE_DISTANCE_PARTS, out=out)
    return distance.reshape(columns.shape)


def _truncates(variant: Variant) -> bool:
    """Return whether the last rounding of a program truncates rather than rounds to nearest."""
    roundings = [step.rounding for step in variant.requantize if step.op in ("round", "shr", "avg")]
    return bool(roundings) and ROUNDINGS[roundings[-1]].cuts


def _sum_magnitudes(unit: Unit) -> np.ndarray | None:
    """Return the sum of the magnitudes of each element's products, or None if the unit has no sums."""
    if unit.kind not in ("conv", "linear"):
        return None
    zero = np.zeros((), np.int16)
    operands = tuple(replace(operand, codes=np.abs(operand.centred), zero_point=zero) for operand in unit.operands)
    try:
        columns = accumulate(replace(unit, operands=operands, bias=None), HeavyPart())
    except KernelError:
        return None
    return columns.values[0].reshape(columns.shape)


def _in_recorded_order(remaining: Residual, unit: Unit, shape: tuple[int, ...]) -> Residual:
    """Convert indices of wrong elements to the layout of the recorded tensor, with the sample first."""
    if len(shape) < 2:
        return remaining
    converted = []
    for sample, *index in remaining.elements:
        sample_index, row = divmod(sample, shape[0])
        order = [*index[1:], index[0]] if unit.channels_last else index
        converted.append((sample_index, row, *order))
    return replace(remaining, elements=tuple(converted))
