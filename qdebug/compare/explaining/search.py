"""Search for the arithmetic of one quantized node: every known variant, on the elements that decide.

The heavy part of a unit is computed once for all variants that share it. A variant that misses one recorded element is
out: variants that agree on 99.99 % are common, and are no explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.explaining.functions import Shape, shape_of
from qdebug.compare.explaining.programs import endings, programs
from qdebug.compare.explaining.selection import Decisive, decisive, parameters
from qdebug.compare.explaining.trials import all_codes, channels_first, known_variants, products, same_values, telling
from qdebug.compare.explaining.units import UnitSource
from qdebug.errors import KernelError
from qdebug.model.thresholds.explanation import (
    OTHER_SUMS_MAX_PRODUCTS,
    RUNNER_UP_CANDIDATES,
    UNSATURATED_RANGE_SHARE,
    VARIANT_MIN_ELEMENTS,
)
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.given import given_ratio
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Sums, Variant

__all__ = ["Finding", "reproduces", "search", "search_known"]

_WINDOWED = ("conv", "average_pool", "max_pool")
_BATCH = 256
_WITNESSES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a search has found for one node.

    Args:
        source: The node and its recorded values.
        kind: What it computes.
        dtypes: Types of its operands and its output.
        per_channel: Whether an operand has a scale for each channel.
        branch: What of its kind it is, where backends have a kernel for each: a lookup's function.
        elements: Recorded elements of all samples.
        matching: Variants that reproduce every element, the simplest first.
        best: The variant that reproduces most elements.
        match: The share of elements that it reproduces.
        plain: The simplest known variant, unless another gets less than half as many elements wrong, then that.
        runner_up: The best variant that does not reproduce every element, if another was tried.
        runner_up_match: The share that it reproduces.
        witnesses: Different numbers (sums, or codes, and the channel's parameters) that the runner-up gets wrong: what
            the answer rests on. Counted on the first 65,536 wrong elements of each sample.
        witness_elements: Recorded elements that hold them.
        tried: Variants tried.
        unknown: Whether step programs that nobody is known to use would have been tried.
        reason: Why nothing could be tried; None if something was.
        given: The recorded multiplier over the quotient of the scales; None if none was recorded.
        shape: The node without its values, if something reproduces it.
        novel: Of a node that only step programs reproduce which nobody is known to use, the elements among those that
            decide which the best known variant gets wrong; None of any other.
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

    def without_novel(self) -> Finding:
        """Give the finding without the programs that nobody is known to use."""
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


def search(source: UnitSource, *, unknown: bool = True) -> Finding:
    """Find the variants that reproduce a node's recorded output, or the one that comes closest.

    Args:
        source: The node and its recorded values.
        unknown: Whether to try step programs that nobody is known to use where no known variant reproduces the node.
    """
    return _Search(source).run(unknown=unknown)


def search_known(source: UnitSource, first: Sequence[Variant]) -> Finding:
    """Find one known variant that reproduces a node, trying some before the others and stopping at the first.

    Args:
        source: The node and its recorded values.
        first: Variants to try first.
    """
    return _Search(source).run_known(first)


def reproduces(source: UnitSource, variant: Variant) -> bool:
    """Tell whether a variant gives every recorded element of a node."""
    return bool(_Search(source).run_only(variant).matching)


class _Search:
    """The search for one node."""

    def __init__(self, source: UnitSource) -> None:
        self._source = source
        self._unit = source.unit(source.places[0])
        self._recorded = channels_first(source.codes(source.places[0]), self._unit).reshape(-1)
        self._sizes = dict.fromkeys(range(len(source.places)), self._recorded.size)
        self._columns: dict[Sums, Columns] = {}
        self._deciding: dict[Sums, Decisive] = {}
        self._rates: dict[Variant, float] = {}
        self._matching: list[Variant] = []
        self._tried = 0
        self._failure: str | None = None
        self._novel: int | None = None

    def run(self, *, unknown: bool) -> Finding:
        """Go through all known variants, and the unknown ones if none of them reproduces the node."""
        known = known_variants(self._unit) if self._elements else ()
        for sums in dict.fromkeys(variant.sums for variant in known):
            if self._matching and products(self._unit) > OTHER_SUMS_MAX_PRODUCTS:
                break
            if self._prepare(sums):
                self._try(sums, [variant for variant in known if variant.sums == sums])
        if unknown and not self._matching and self._elements >= VARIANT_MIN_ELEMENTS:
            missed = [self._try_programs(sums) for sums in self._columns]
            if self._matching:
                self._novel = min((count for count in missed if count), default=0)
        return replace(self._finding(), unknown=unknown)

    def run_known(self, first: Sequence[Variant]) -> Finding:
        """Go through the known variants until one reproduces the node."""
        for variant in first if self._elements else ():
            if self._prepare(variant.sums):
                self._try(variant.sums, [variant])
            if self._matching:
                return self._finding(ranked=False)
        known = known_variants(self._unit) if self._elements else ()
        for sums in dict.fromkeys(variant.sums for variant in known):
            if not self._matching and self._prepare(sums):
                self._try(sums, [variant for variant in known if variant.sums == sums and variant not in first])
        return self._finding(ranked=False)

    def run_only(self, variant: Variant) -> Finding:
        """Try one variant."""
        if self._elements and self._prepare(variant.sums):
            self._try(variant.sums, [variant])
        return self._finding(ranked=False)

    @property
    def _elements(self) -> int:
        """Recorded elements of all samples; one that was not read yet counts like the first."""
        return sum(self._sizes.values())

    def _prepare(self, sums: Sums) -> bool:
        """Compute a heavy part of the first sample; tell whether that is possible."""
        if sums in self._columns:
            return True
        try:
            columns = accumulate(self._unit, sums)
        except KernelError as error:
            self._failure = self._failure or error.message
            return False
        if int(np.prod(columns.shape, dtype=np.int64)) != self._recorded.size:
            found = self._source.codes(self._source.places[0]).shape
            bare = self._unit.kind in _WINDOWED and not self._unit.attrs
            hint = "; no attributes were recorded, such as pads and strides" if bare else ""
            self._failure = f"the replay gives shape {columns.shape} and the recording has {found}{hint}"
            return False
        self._columns[sums] = columns
        self._deciding[sums] = decisive(self._unit, columns, self._recorded)
        return True

    def _try(self, sums: Sums, variants: Sequence[Variant], *, rated: bool = True) -> None:
        """Try variants of one heavy part on the elements that decide, and those that pass on whatever is left."""
        deciding = self._deciding[sums]
        expected = self._recorded[deciding.places]
        passing = []
        for variant, codes in all_codes(self._unit, self._columns[sums].take(deciding.places), variants):
            rate = float(np.mean(same_values(codes, expected)))
            self._tried += rated
            if rated:
                self._rates[variant] = rate
            if rate == 1.0:
                passing.append(variant)
        self._matching += self._verified(sums, passing)

    def _verified(self, sums: Sums, variants: Sequence[Variant]) -> list[Variant]:
        """Give the variants that reproduce every recorded element of every sample."""
        left = list(variants)
        deciding: Decisive | None = self._deciding[sums]
        for unit, columns, recorded in self._every(sums, start=0 if left else len(self._source.places)):
            if deciding is None:
                deciding = decisive(unit, columns, recorded)
                expected = recorded[deciding.places]
                found = all_codes(unit, columns.take(deciding.places), left)
                left = [variant for variant, codes in found if same_values(codes, expected).all()]
            left = [v for v in left if deciding.settles(v) or same_values(finish(unit, columns, v), recorded).all()]
            deciding = None
            if not left:
                break
        return left

    def _every(self, sums: Sums, *, start: int = 0) -> Iterator[tuple[Unit, Columns, np.ndarray]]:
        """Go through the samples: the unit, its columns, the recorded codes."""
        for position, place in enumerate(self._source.places[start:], start):
            checkpoint()
            if position == 0:
                yield self._unit, self._columns[sums], self._recorded
                continue
            unit = self._source.unit(place)
            recorded = channels_first(self._source.codes(place), unit).reshape(-1)
            self._sizes[position] = recorded.size
            yield unit, accumulate(unit, sums), recorded

    def _try_programs(self, sums: Sums) -> int:
        """Try programs that no known backend is on record for, first on a few elements that the best one misses.

        Returns:
            How many of the elements that decide the best known variant misses.
        """
        hard = self._hardest(sums)
        if hard is None:
            return 0
        unit, columns, recorded, places, missed = hard
        few = columns.take(places)
        expected = recorded[places]
        passing: list[Variant] = []
        batch: list[Variant] = []
        for variant in (*programs(unit, sums), None):
            if variant is not None and variant not in self._rates:
                batch.append(variant)
            if len(batch) == _BATCH or (variant is None and batch):
                self._tried += len(batch)
                passing += [passed for passed, codes in all_codes(unit, few, batch) if np.array_equal(codes, expected)]
                batch = []
        others = [other for variant in passing for other in endings(variant)]
        self._tried += len(others)
        self._try(sums, [*passing, *others], rated=False)
        return missed

    def _hardest(self, sums: Sums) -> tuple[Unit, Columns, np.ndarray, np.ndarray, int] | None:
        """Find the first sample that the best known variant of some sums gets wrong, and a few telling elements of it.

        The last number is that of the wrong ones among the elements that decide. Gives None if no program can
        reproduce that sample.
        """
        best = max((v for v in self._rates if v.sums == sums), key=self._rates.__getitem__, default=None)
        if best is None:
            return None
        for unit, columns, recorded in self._every(sums):
            codes = finish(unit, columns, best)
            if np.array_equal(codes, recorded):
                continue
            deciding = decisive(unit, columns, recorded)
            if not deciding.consistent:
                return None
            places = deciding.places
            if unit.out.dtype.kind in "iu":
                low, high = unit.out.limits
                middle = (
                    np.abs(codes[places].astype(np.int64) * 2 - low - high) < (high - low) * UNSATURATED_RANGE_SHARE
                )
                places = places[middle] if middle.any() else places
            wrong = codes[places] != recorded[places]
            return unit, columns, recorded, telling(places, wrong), int(np.count_nonzero(wrong))
        return None

    def _finding(self, *, ranked: bool = True) -> Finding:
        finding = Finding(
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
        if not self._rates or not self._elements:
            empty = "its output has no elements" if not self._elements else "nothing could be tried"
            return replace(finding, reason=self._failure or empty)
        matching = tuple(self._matching)
        fitting = set(matching)
        others = [variant for variant in self._rates if variant not in fitting]
        if not ranked:
            return replace(finding, matching=matching)
        others.sort(key=lambda variant: -self._rates[variant])
        simplest = next(iter(self._rates))
        rivals = others[:RUNNER_UP_CANDIDATES]
        shares, missed = self._shares(rivals if matching else dict.fromkeys([simplest, *rivals]))
        places = {variant: place for place, variant in enumerate(self._rates)}  # of equals the first, the simplest
        order = sorted(((shares[v], v) for v in rivals), key=lambda pair: (-pair[0], places[pair[1]]))
        if matching:
            shape = shape_of(self._unit, {sums: self._columns[sums] for sums in {v.sums for v in matching}})
            finding = replace(finding, matching=matching, best=matching[0], match=1.0, shape=shape)
        else:
            best_share, best = order[0]
            plain = best if 1 - best_share < (1 - shares[simplest]) / 2 else simplest
            finding = replace(finding, best=best, match=best_share, plain=plain)
            order = order[1:]
        if not order:
            return finding
        share, runner = order[0]
        if matching:
            elements = round((1 - share) * finding.elements)
            finding = replace(finding, witnesses=_different(missed[runner]), witness_elements=elements)
        return replace(finding, runner_up=runner, runner_up_match=share)

    def _shares(self, variants: Iterable[Variant]) -> tuple[dict[Variant, float], dict[Variant, list[np.ndarray]]]:
        """Give the share of all recorded elements that each variant reproduces, and the numbers that it gets wrong."""
        wanted = list(variants)
        same = dict.fromkeys(wanted, 0)
        missed: dict[Variant, list[np.ndarray]] = {variant: [] for variant in wanted}
        for sums in dict.fromkeys(variant.sums for variant in wanted):
            own = [variant for variant in wanted if variant.sums == sums]
            for unit, columns, recorded in self._every(sums):
                for variant in own:
                    right = same_values(finish(unit, columns, variant), recorded)
                    same[variant] += int(np.count_nonzero(right))
                    if not right.all():
                        missed[variant].append(_numbers(unit, columns, np.flatnonzero(~right)[:_WITNESSES]))
        return {variant: count / self._elements for variant, count in same.items()}, missed


def _numbers(unit: Unit, columns: Columns, places: np.ndarray) -> np.ndarray:
    """Give what programs start from at some elements, and which parameters they have there: (elements, numbers)."""
    key = parameters(unit, columns)
    own = np.zeros(places.size) if key is None else np.broadcast_to(key, (columns.size,))[places]
    return np.stack([own, *(np.broadcast_to(a, columns.shape).reshape(-1)[places] for a in columns.values)], axis=1)


def _different(parts: Sequence[np.ndarray]) -> int:
    """Count the different rows of some arrays."""
    return len(np.unique(np.concatenate(parts), axis=0)) if parts else 0
