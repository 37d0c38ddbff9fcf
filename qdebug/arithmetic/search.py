"""Searches for the arithmetic of one quantized node: tries every known variant on the deciding elements.

The heavy part of a unit is computed once for all variants that share it. A variant that misses a single recorded
element is rejected, because many wrong variants reproduce 99.99 % of the elements.

If no known variant fits, step programs of a bounded grammar are tried. With a real multiplier, they scale, round and
add the zero point in any order. With an integer multiplier, they have an optional left shift, a product of which the
high part or all bits are kept, and one or two roundings. Operators on two operands combine a program for the operands
with a program for the result. The ending of a program has no effect well inside the code range, so `other_endings` is
only called for programs that fit there. No program wraps around instead of saturating, because that is a mistake and
not an arithmetic. Multipliers of unusual widths are solved for, see `qdebug.arithmetic.fitted`. Begin at `search`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product

import numpy as np

from qdebug.arithmetic.candidates import any_of, candidates, given_ratio, given_variants, parse_alternatives
from qdebug.arithmetic.fitted import PRODUCTS, fitted_variants, limited_variants, shifted_variants, with_equal_orders
from qdebug.arithmetic.functions import Shape, shape_of
from qdebug.arithmetic.presets import known_presets
from qdebug.arithmetic.selection import Decisive, choose_deciding_elements, number_parameter_sets
from qdebug.arithmetic.units import UnitSource
from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.explanation import (
    CLEARLY_BETTER_MAX_WRONG_RATIO,
    OTHER_SUMS_MAX_PRODUCTS,
    RUNNER_UP_CANDIDATES,
    UNKNOWN_PROGRAM_TRIAL_ELEMENTS,
    UNSATURATED_RANGE_SHARE,
    VARIANT_MIN_ELEMENTS,
)
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import accumulate, finish, finish_many
from qdebug.replay.scaling import EXPRESSIONS, GIVEN, NUMBERS, real_multiplier, scales_of
from qdebug.replay.steps import STEPS, Step, parse_steps
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant, variant_keys

__all__ = [
    "SearchResult",
    "all_codes",
    "channels_first",
    "choose_elements",
    "count_products",
    "known_variants",
    "other_endings",
    "programs",
    "reproduces",
    "same_values",
    "search",
    "search_known",
    "shared_variants",
]

_ROUNDINGS = ("even", "away", "up", "down", "floor", "trunc")
_HIGH_PRODUCT_ROUNDINGS = STEPS["mulhi"].roundings


def programs(unit: Unit, sums: HeavyPart) -> Iterator[Variant]:
    """Yield step programs with a given heavy part, simplest first. The unit may not support some of them.

    Args:
        unit: The unit.
        sums: The heavy part.
    """
    same_sums = [variant for variant in candidates(unit) if variant.sums == sums]
    if not same_sums:
        return
    if any(variant.operand for variant in same_sums):
        yield from _two_stage_programs(same_sums)
    if (
        sums.columns == "sum"
        and same_sums[0].form == "sum"
        and not any(s.op == "bias" for s in same_sums[0].requantize)
    ):
        for text in (*_real_programs(unit), *_integer_programs(unit)):
            for program in parse_alternatives(text):
                yield replace(same_sums[0], multiplier=program.multiplier, requantize=program.requantize)
    else:
        yield from _with_other_roundings(same_sums)


def other_endings(variant: Variant) -> Iterator[Variant]:
    """Yield the variant with each of the alternative endings of its program."""
    if parse_steps("zp,sat") == variant.requantize[-2:]:
        for end in ("sat",) if variant.multiplier.real else ("sat", "sat16,zp,sat"):
            yield replace(variant, requantize=(*variant.requantize[:-2], *parse_steps(end)))


def _expressions(unit: Unit, *, limit: int = len(EXPRESSIONS)) -> list[str]:
    """List expressions with different multipliers for a unit: the first of those that are equal in float64."""
    scales = scales_of(unit)
    by_multiplier: dict[bytes, str] = {}
    for expression in EXPRESSIONS:
        by_multiplier.setdefault(real_multiplier(scales, expression).astype(np.float64).tobytes(), expression)
    return list(by_multiplier.values())[:limit]


def _real_programs(unit: Unit) -> Iterator[str]:
    """Yield texts of programs with a real multiplier: every position of the zero point and every rounding."""
    numbers = [*product(("f32", "f64"), _expressions(unit)), *product(("f16", "bf16"), _expressions(unit, limit=1))]
    rounded = any_of(*(f"<zp,{rounding}|{rounding},zp>" for rounding in STEPS["round"].roundings))
    for number, expression in numbers:
        yield f"m={number}:{expression} steps=<mul|scale,div|scale,inv>,{rounded},sat"


def _integer_programs(unit: Unit) -> Iterator[str]:
    """Yield texts of programs with an integer multiplier and one or two roundings."""
    low_roundings, high_roundings = ("|".join(roundings) for roundings in (_ROUNDINGS, _HIGH_PRODUCT_ROUNDINGS))
    programs = any_of(
        f"<|shl,>mul,shr.<{low_roundings}|tosa>",
        f"<|shl,>mulhi.<{high_roundings}>,shr.<{low_roundings}>",
        f"pre.<floor|up>,mul,shr.<{low_roundings}>",
    )
    has_multiplier = unit.out.multiplier is not None or unit.out.shift is not None
    numbers = [number for number, row in NUMBERS.items() if row.search_orders and number != GIVEN]
    for number in (GIVEN, *numbers) if has_multiplier else numbers:
        for expression in _expressions(unit, limit=1 if NUMBERS[number].search_orders == "one" else len(EXPRESSIONS)):
            yield f"m={number}:{expression} steps={programs},zp,sat"


def _two_stage_programs(variants: list[Variant]) -> Iterator[Variant]:
    """Combine every known operand program with every known result program, both with all roundings."""
    for form_shift in dict.fromkeys((variant.form, variant.shift) for variant in variants):
        same_form = [variant for variant in variants if (variant.form, variant.shift) == form_shift]
        operands = dict.fromkeys(o for variant in same_form for o in _vary_roundings(variant.operand))
        results = dict.fromkeys(r for variant in same_form for r in _vary_roundings(variant.requantize))
        for multiplier in dict.fromkeys(variant.multiplier for variant in same_form):
            for operand, result in product(operands, results):
                yield replace(same_form[0], multiplier=multiplier, operand=operand, requantize=result)


def _with_other_roundings(variants: list[Variant]) -> Iterator[Variant]:
    """Yield known programs with every rounding, and with the zero point on either side of it."""
    for variant in variants:
        for steps in _vary_roundings(variant.requantize):
            yield replace(variant, requantize=steps)
            yield replace(variant, requantize=_with_swapped_zero_point(steps))


def _vary_roundings(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield a program with all combinations of roundings in its steps, including its own."""
    alternatives = []
    for step in steps:
        if step.op in ("round", "shr"):
            alternatives.append([replace(step, rounding=rounding) for rounding in _ROUNDINGS])
        elif step.op == "mulhi":
            alternatives.append([replace(step, rounding=rounding) for rounding in _HIGH_PRODUCT_ROUNDINGS])
        else:
            alternatives.append([step])
    yield from product(*alternatives)


def _with_swapped_zero_point(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Swap the first adjacent pair of a rounding and an addition of the zero point."""
    out = list(steps)
    for at in range(len(out) - 1):
        if {out[at].op, out[at + 1].op} == {"round", "zp"}:
            out[at], out[at + 1] = out[at + 1], out[at]
            break
    return tuple(out)


_MAX_CODES_AT_ONCE = 1 << 24


def _is_same_shape(computed: tuple[int, ...], recorded: tuple[int, ...]) -> bool:
    """Return whether two shapes are equal. Shapes of different ranks count as equal if their sizes are."""
    return computed == recorded if len(computed) == len(recorded) else math.prod(computed) == math.prod(recorded)


def channels_first(codes: np.ndarray, unit: Unit) -> np.ndarray:
    """Return recorded codes with channels first, as in units."""
    return np.moveaxis(codes, -1, 1) if unit.channels_last else codes


def same_values(computed: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    """Return a mask of equal elements, treating NaN as equal to NaN."""
    is_same = computed == recorded
    if computed.dtype.kind == "f":
        is_same |= np.isnan(computed) & np.isnan(recorded)
    return np.asarray(is_same)


def known_variants(unit: Unit) -> tuple[Variant, ...]:
    """Return the known variants of a unit.

    Programs with the recorded multiplier come first, then `candidates`, simplest first, then the variants of presets.
    """
    return tuple(
        dict.fromkeys(
            (*given_variants(unit), *candidates(unit), *_preset_variants(unit.kind, unit.branch, unit.dtypes))
        )
    )


@lru_cache(maxsize=64)
def _preset_variants(kind: str, branch: str, dtypes: tuple[str, ...]) -> tuple[Variant, ...]:
    keys = variant_keys(kind, branch, dtypes)
    variants = [known_preset.variants for known_preset in known_presets().values()]
    return tuple(
        dict.fromkeys(preset_variants[key] for preset_variants in variants for key in keys if key in preset_variants)
    )


def choose_elements(positions: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Choose a few elements: up to half of them wrong, the others evenly spread.

    Args:
        positions: Positions to choose from.
        wrong: Mask of the positions that the best known variant gets wrong.
    """
    if positions.size <= UNKNOWN_PROGRAM_TRIAL_ELEMENTS:
        return positions
    order = np.argsort(~wrong, kind="stable")
    first_half = order[: min(int(np.count_nonzero(wrong)), UNKNOWN_PROGRAM_TRIAL_ELEMENTS // 2)]
    spread_half = order[
        first_half.size :: max(1, (order.size - first_half.size) // (UNKNOWN_PROGRAM_TRIAL_ELEMENTS - first_half.size))
    ]
    return np.asarray(positions[np.concatenate([first_half, spread_half])])


def all_codes(unit: Unit, columns: Columns, variants: Sequence[Variant]) -> Iterator[tuple[Variant, np.ndarray]]:
    """Compute many variants on the same columns. Variants that the unit does not support are skipped."""
    variants_at_once = max(1, _MAX_CODES_AT_ONCE // max(columns.size, 1))
    for first in range(0, len(variants), variants_at_once):
        batch = variants[first : first + variants_at_once]
        try:
            yield from zip(batch, finish_many(unit, columns, batch), strict=True)
        except (KernelError, UsageError):
            for variant in batch:
                try:
                    codes = finish(unit, columns, variant)
                except (KernelError, UsageError):  # such as an integer multiplier for a scale that is NaN
                    continue
                yield variant, codes


def count_products(unit: Unit) -> int:
    """Estimate the number of products of the heavy part of a unit."""
    if unit.kind not in ("conv", "linear"):
        return 0
    x, weight = (operand.codes for operand in unit.operands)
    per_output: int = weight.shape[-1] if unit.kind == "linear" else weight.size // max(weight.shape[0], 1)
    return x.size * per_output


_WINDOWED_KINDS = ("conv", "average_pool", "max_pool")
_BATCH_SIZE = 256
_MAX_WITNESSES = 1 << 16
_TRIAL_ELEMENTS = 512
"""Number of elements of a first trial, on which most wrong variants fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search for one node.

    Args:
        source: The node and its recorded values.
        kind: Kind of its unit.
        dtypes: Types of its operands and its output.
        per_channel: Whether an operand has a scale for each channel.
        branch: For kinds such as "lookup", the function, since backends have a separate kernel for each. "" for others.
        elements: Number of recorded elements in all samples.
        matching: Variants that reproduce every element, simplest first.
        best: The variant that reproduces most elements.
        match: The share of elements that it reproduces.
        plain: The simplest known variant, or the best variant if that gets far fewer elements wrong.
        runner_up: The best variant that does not reproduce every element, or None.
        runner_up_match: The share of elements that it reproduces.
        witnesses: Number of distinct inputs of the program (sums or codes, with the channel's parameters) that the
            runner-up gets wrong: the evidence for the answer. Counted on the first 65,536 wrong elements of each
            sample.
        witness_elements: Number of recorded elements with these inputs.
        tried: Number of variants tried.
        unknown: Whether step programs of no known backend were allowed.
        reason: Why no variant could be tried, or None.
        given: The recorded multiplier divided by the quotient of the scales, or None if none was recorded.
        shape: The node without its values, if any variant reproduces it.
        inside: A clause on what was replayed or merged to examine the node as part of a fused layer, or None.
        unrounded: Whether the replay kept real numbers inside the layer instead of rounding them to codes.
        novel: If only step programs of no known backend reproduce the node: the number of deciding elements that the
            best known variant gets wrong. None in all other cases.
    """

    source: UnitSource
    kind: str
    dtypes: tuple[str, ...]
    per_channel: bool
    elements: int
    branch: str = ""
    matching: tuple[Variant, ...] = ()
    best: Variant | None = None
    match: float | None = None
    plain: Variant | None = None
    runner_up: Variant | None = None
    runner_up_match: float = 0.0
    witnesses: int = 0
    witness_elements: int = 0
    tried: int = 0
    unknown: bool = True
    reason: str | None = None
    novel: int | None = None
    given: float | None = None
    shape: Shape | None = None
    inside: str | None = None
    unrounded: bool = False

    def without_novel(self) -> SearchResult:
        """Return the result as if programs of no known backend had not been tried."""
        return replace(
            self,
            matching=(),
            best=self.runner_up,
            match=self.runner_up_match,
            plain=self.runner_up,
            runner_up=None,
            runner_up_match=0.0,
            witnesses=0,
            witness_elements=0,
            shape=None,
        )


def search(source: UnitSource, *, unknown: bool = True) -> SearchResult:
    """Find the variants that reproduce a node's recorded output, or the closest variant.

    Args:
        source: The node and its recorded values.
        unknown: Whether to try step programs of no known backend if no known variant reproduces the node.
    """
    return _Search(source).run(unknown=unknown)


def search_known(source: UnitSource, first: Sequence[Variant]) -> SearchResult:
    """Find a variant that reproduces a node, and stop at the first.

    Args:
        source: The node and its recorded values.
        first: Variants to try before the other known variants.
    """
    return _Search(source).run_known(first)


def search_common(sources: Sequence[UnitSource]) -> Variant | None:
    """Find the first known variant that reproduces all given nodes, or return None if there is none."""
    first_search, *other_searches = map(_Search, sources) if sources else (None,)
    return None if first_search is None else first_search.run_common(other_searches)


def reproduces(source: UnitSource, variant: Variant) -> bool:
    """Return whether a variant gives every recorded element of a node."""
    return _Search(source).reproduces(variant)


def shared_variants(sources: Sequence[UnitSource], variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Return the variants, among those given, that reproduce every recorded element of all given nodes."""
    searches = [*map(_Search, sources)]
    return tuple(variant for variant in variants if all(node_search.reproduces(variant) for node_search in searches))


class _Search:
    """The search for one node."""

    def __init__(self, source: UnitSource) -> None:
        self._source = source
        first_batch = source.batches[0]
        self._unit = source.unit(*first_batch)
        self._recorded = channels_first(source.codes(*first_batch), self._unit).reshape(-1)
        sample_size = self._recorded.size // len(first_batch)
        self._sizes = {position: sample_size * len(batch) for position, batch in enumerate(source.batches)}
        self._columns: dict[HeavyPart, Columns] = {}
        self._deciding_elements: dict[HeavyPart, Decisive] = {}
        self._match_rates: dict[Variant, float] = {}
        self._matching: list[Variant] = []
        self._tried = 0
        self._failure: str | None = None
        self._novel: int | None = None

    def run(self, *, unknown: bool) -> SearchResult:
        """Try all known variants. If none reproduces the node and `unknown` is true, try step programs too."""
        for sums, variants in self._group_known_variants().items():
            if self._matching and count_products(self._unit) > OTHER_SUMS_MAX_PRODUCTS * len(self._source.batches[0]):
                break
            if self._prepare(sums):
                self._try(sums, variants)
        if unknown and not self._matching and self._elements >= VARIANT_MIN_ELEMENTS:
            self._try_fitted()
            missed = [self._try_programs(sums) for sums in self._columns]
            if self._matching:
                self._novel = min((count for count in missed if count), default=0)
        return replace(self._result(), unknown=unknown)

    def run_known(self, first: Sequence[Variant]) -> SearchResult:
        """Try known variants until one reproduces the node."""
        groups = [*((variant.sums, [variant]) for variant in first), *self._group_known_variants().items()]
        fitting = (variant for sums, variants in groups for variant in self._yield_reproducing(sums, variants))
        self._matching += islice(fitting, 1)
        return self._result(ranked=False)

    def run_common(self, other_searches: Sequence[_Search]) -> Variant | None:
        """Return the first known variant that reproduces this node and others."""
        fitting = (
            variant
            for sums, variants in self._group_known_variants().items()
            for variant in self._yield_reproducing(sums, variants)
        )
        return next(
            (variant for variant in fitting if all(other.reproduces(variant) for other in other_searches)), None
        )

    def reproduces(self, variant: Variant) -> bool:
        """Return whether a variant reproduces the node."""
        return any(self._yield_reproducing(variant.sums, [variant]))

    def _yield_reproducing(self, sums: HeavyPart, variants: Sequence[Variant]) -> Iterator[Variant]:
        """Yield the variants that reproduce the node. Each is tried on a few elements first, and then on all.

        Batches of variants double in size. If an early variant fits, this is faster than choosing deciding elements.
        """
        if not self._elements or not self._accumulate(sums):
            return
        columns, recorded = self._columns[sums], self._recorded
        trial_places = np.arange(0, recorded.size, max(1, recorded.size // _TRIAL_ELEMENTS))
        trial_columns, trial_codes, start = columns.take(trial_places), recorded[trial_places], 0
        untried = [variant for variant in variants if variant not in self._match_rates]
        while start < len(untried):
            for variant, codes in all_codes(self._unit, trial_columns, untried[start : 2 * start + 1]):
                self._tried += 1
                self._match_rates[variant] = rate = float(np.mean(same_values(codes, trial_codes)))
                if rate == 1.0 and all(
                    same_values(finish(unit, columns, variant), recorded).all()
                    for unit, columns, recorded in self._batches(sums, start=0)
                ):
                    yield variant
            start = 2 * start + 1

    def _group_known_variants(self) -> Mapping[HeavyPart, Sequence[Variant]]:
        """Group the known variants by their heavy part. The result is empty for a node without elements."""
        groups: dict[HeavyPart, list[Variant]] = {}
        for variant in known_variants(self._unit) if self._elements else ():
            groups.setdefault(variant.sums, []).append(variant)
        return groups

    @property
    def _elements(self) -> int:
        """Number of recorded elements in all samples. A batch that was not read yet is assumed to be like the first."""
        return sum(self._sizes.values())

    def _prepare(self, sums: HeavyPart) -> bool:
        """Compute a heavy part of the first batch and choose its deciding elements. Return whether that succeeded."""
        if not self._accumulate(sums):
            return False
        if sums not in self._deciding_elements:
            self._deciding_elements[sums] = choose_deciding_elements(self._unit, self._columns[sums], self._recorded)
        return True

    def _accumulate(self, sums: HeavyPart) -> bool:
        """Compute a heavy part of the first batch. Return whether that succeeded."""
        if sums in self._columns:
            return True
        try:
            columns = accumulate(self._unit, sums)
        except KernelError as error:
            self._failure = self._failure or error.message
            return False
        recorded = self._source.codes(*self._source.batches[0])
        if not _is_same_shape(columns.shape, channels_first(recorded, self._unit).shape):
            recorded_shape = recorded.shape
            lacks_attributes = self._unit.kind in _WINDOWED_KINDS and not self._unit.attrs
            hint = "; no attributes were recorded, such as pads and strides" if lacks_attributes else ""
            self._failure = f"the replay has shape {columns.shape}, but the recorded tensor has {recorded_shape}{hint}"
            return False
        equal_columns = next(
            (
                computed_columns
                for computed_columns in self._columns.values()
                if computed_columns.sums.columns == sums.columns
            ),
            columns,
        )
        # Heavy parts with equal columns share a memo, although they accumulate differently.
        self._columns[sums] = replace(columns, memo=equal_columns.memo)
        return True

    def _try(self, sums: HeavyPart, variants: Sequence[Variant], *, rated: bool = True) -> None:
        """Try variants of one heavy part on the deciding elements, and those that pass on all elements.

        Args:
            sums: The heavy part.
            variants: The variants.
            rated: Whether to count the variants as tried, and keep their match rates.
        """
        deciding = self._deciding_elements[sums]
        deciding_codes = self._recorded[deciding.places]
        passing = []
        for variant, codes in all_codes(self._unit, self._columns[sums].take(deciding.places), variants):
            rate = np.count_nonzero(same_values(codes, deciding_codes)) / deciding_codes.size
            self._tried += rated
            if rated:
                self._match_rates[variant] = rate
            if rate == 1.0:
                passing.append(variant)
        self._matching += self._verify(sums, passing)

    def _verify(self, sums: HeavyPart, variants: Sequence[Variant]) -> list[Variant]:
        """Return the variants that reproduce every recorded element of every sample."""
        remaining = list(variants)
        deciding: Decisive | None = self._deciding_elements[sums]
        for unit, columns, recorded in self._batches(sums, start=0 if remaining else len(self._source.batches)):
            if deciding is None:
                deciding = choose_deciding_elements(unit, columns, recorded)
                deciding_codes = recorded[deciding.places]
                trials = all_codes(unit, columns.take(deciding.places), remaining)
                remaining = [variant for variant, codes in trials if same_values(codes, deciding_codes).all()]
            remaining = [
                v for v in remaining if deciding.settles(v) or same_values(finish(unit, columns, v), recorded).all()
            ]
            deciding = None
            if not remaining:
                break
        return remaining

    def _batches(self, sums: HeavyPart, *, start: int = 0) -> Iterator[tuple[Unit, Columns, np.ndarray]]:
        """Yield the unit, its columns and the recorded codes of each batch of samples."""
        for position, batch in enumerate(self._source.batches[start:], start):
            checkpoint()
            if position == 0:
                yield self._unit, self._columns[sums], self._recorded
                continue
            unit = self._source.unit(*batch)
            recorded = channels_first(self._source.codes(*batch), unit).reshape(-1)
            self._sizes[position] = recorded.size
            yield unit, accumulate(unit, sums), recorded

    def _try_fitted(self) -> None:
        """Try multipliers of every width that the recorded codes allow, then with limited shifts, then early shifts."""
        sums = HeavyPart()
        if (
            self._unit.kind not in PRODUCTS
            or sums not in self._deciding_elements
            or not self._deciding_elements[sums].consistent
        ):
            return
        for solve in (fitted_variants, limited_variants, shifted_variants):
            variants = solve(self._unit, self._columns[sums], self._recorded, self._deciding_elements[sums].places)
            self._tried += len(variants)
            self._try(sums, [variant for variant in variants if variant not in self._match_rates], rated=False)
            if self._matching:
                self._matching[:] = with_equal_orders(self._unit, self._matching)
                return

    def _try_programs(self, sums: HeavyPart) -> int:
        """Try programs of no known backend, first on a few elements, many of which the best known variant gets wrong.

        Returns:
            Number of deciding elements that the best known variant gets wrong.
        """
        sample = self._find_hardest_sample(sums)
        if sample is None:
            return 0
        unit, columns, recorded, places, missed = sample
        trial_columns = columns.take(places)
        trial_codes = recorded[places]
        untried = [variant for variant in programs(unit, sums) if variant not in self._match_rates]
        passing: list[Variant] = []
        for start in range(0, len(untried), _BATCH_SIZE):
            trials = all_codes(unit, trial_columns, untried[start : start + _BATCH_SIZE])
            passing += [variant for variant, codes in trials if np.array_equal(codes, trial_codes)]
        further_variants = [other_ending for variant in passing for other_ending in other_endings(variant)]
        self._tried += len(untried) + len(further_variants)
        self._try(sums, [*passing, *further_variants], rated=False)
        return missed

    def _find_hardest_sample(self, sums: HeavyPart) -> tuple[Unit, Columns, np.ndarray, np.ndarray, int] | None:
        """Find the first batch that the best known variant with a given heavy part gets wrong.

        Returns:
            Unit, columns, recorded codes, a few positions to try, and the number of wrong deciding elements. None if
                there is no such batch, or no program can reproduce it.
        """
        best_variant = max(
            (v for v in self._match_rates if v.sums == sums), key=self._match_rates.__getitem__, default=None
        )
        if best_variant is None:
            return None
        for unit, columns, recorded in self._batches(sums):
            codes = finish(unit, columns, best_variant)
            if np.array_equal(codes, recorded):
                continue
            deciding = choose_deciding_elements(unit, columns, recorded)
            if not deciding.consistent:
                return None
            places = deciding.places
            if unit.out.dtype.kind in "iu":
                low, high = unit.out.limits
                is_unsaturated = (
                    np.abs(codes[places].astype(np.int64) * 2 - low - high) < (high - low) * UNSATURATED_RANGE_SHARE
                )
                places = places[is_unsaturated] if is_unsaturated.any() else places
            is_wrong = codes[places] != recorded[places]
            return unit, columns, recorded, choose_elements(places, is_wrong), int(np.count_nonzero(is_wrong))
        return None

    def _result(self, *, ranked: bool = True) -> SearchResult:
        finding = SearchResult(
            source=self._source,
            kind=self._unit.kind,
            dtypes=self._unit.dtypes,
            per_channel=self._unit.per_channel,
            branch=self._unit.branch,
            elements=self._elements,
            tried=self._tried,
            novel=self._novel,
            given=given_ratio(self._unit),
        )
        if not self._match_rates or not self._elements:
            reason = "its output has no elements" if not self._elements else "no variant could be tried"
            return replace(finding, reason=self._failure or reason)
        matching = tuple(self._matching)
        fitting = set(matching)
        rejected = [variant for variant in self._match_rates if variant not in fitting]
        if not ranked:
            return replace(finding, matching=matching)
        rejected.sort(key=lambda variant: -self._match_rates[variant])
        simplest = next(iter(self._match_rates))
        rivals = rejected[:RUNNER_UP_CANDIDATES]
        shares, missed = self._reproduced_shares(rivals if matching else dict.fromkeys([simplest, *rivals]))
        finding = replace(finding, elements=self._elements)  # all samples have been read by now
        # Ties go to the variant that was tried first, which is the simplest.
        ranks = {variant: rank for rank, variant in enumerate(self._match_rates)}
        order = sorted(((shares[v], v) for v in rivals), key=lambda pair: (-pair[0], ranks[pair[1]]))
        if matching:
            shape = shape_of(self._unit, {sums: self._columns[sums] for sums in {v.sums for v in matching}})
            finding = replace(finding, matching=matching, best=matching[0], match=1.0, shape=shape)
        else:
            best_share, best_variant = order[0]
            is_clearly_better = 1 - best_share < CLEARLY_BETTER_MAX_WRONG_RATIO * (1 - shares[simplest])
            plain_variant = best_variant if is_clearly_better else simplest
            finding = replace(finding, best=best_variant, match=best_share, plain=plain_variant)
            order = order[1:]
        if not order:
            return finding
        share, runner = order[0]
        if matching:
            elements = round((1 - share) * finding.elements)
            finding = replace(finding, witnesses=_count_distinct(missed[runner]), witness_elements=elements)
        return replace(finding, runner_up=runner, runner_up_match=share)

    def _reproduced_shares(
        self, variants: Iterable[Variant]
    ) -> tuple[dict[Variant, float], dict[Variant, list[np.ndarray]]]:
        """Return the share of elements that each variant reproduces, and the program inputs that it gets wrong."""
        all_variants = list(variants)
        right_counts = dict.fromkeys(all_variants, 0)
        missed_inputs: dict[Variant, list[np.ndarray]] = {variant: [] for variant in all_variants}
        for sums in dict.fromkeys(variant.sums for variant in all_variants):
            with_sums = [variant for variant in all_variants if variant.sums == sums]
            for unit, columns, recorded in self._batches(sums):
                for variant in with_sums:
                    is_right = same_values(finish(unit, columns, variant), recorded)
                    right_counts[variant] += int(np.count_nonzero(is_right))
                    if not is_right.all():
                        missed_inputs[variant].append(
                            _program_inputs_at(unit, columns, np.flatnonzero(~is_right)[:_MAX_WITNESSES])
                        )
        return {variant: count / self._elements for variant, count in right_counts.items()}, missed_inputs


def _program_inputs_at(unit: Unit, columns: Columns, positions: np.ndarray) -> np.ndarray:
    """Return the program inputs of the given elements, one row each, after the number of their parameter set."""
    key = number_parameter_sets(unit, columns)
    parameter_sets = np.zeros(positions.size) if key is None else np.broadcast_to(key, (columns.size,))[positions]
    return np.stack(
        [parameter_sets, *(np.broadcast_to(a, columns.shape).reshape(-1)[positions] for a in columns.values)], axis=1
    )


def _count_distinct(parts: Sequence[np.ndarray]) -> int:
    """Count the distinct rows of several arrays."""
    rows = np.concatenate(parts)
    rows = rows[np.lexsort(rows.T)]
    return 1 + int(np.count_nonzero((rows[1:] != rows[:-1]).any(axis=1))) if len(rows) else 0
