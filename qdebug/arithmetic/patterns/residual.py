"""Describes the error of a node that no arithmetic reproduces: its size, its pattern and the likely cause.

The causes are known kernel bugs: a tile's tail computed wrongly, padding with 0 instead of the zero point, a dropped
bias, pairs of products that saturate in 16 bits. A pattern is a fact; a cause is only ever likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.code_table import CodeTable
from qdebug.arithmetic.patterns.wrong_evidence import CodesOfTensor, Trait
from qdebug.arithmetic.patterns.wrong_places import Layout, WrongPlace, places
from qdebug.arithmetic.patterns.wrong_values import traits
from qdebug.model.json_object import JsonObject
from qdebug.model.thresholds.patterns import SLIGHT_ERROR_CODES

__all__ = ["PATTERNS", "Residual", "residual"]

PATTERNS = MappingProxyType(
    {
        "one_sample": "state left over from another run, or an input that was recorded differently than used",
        "few_samples": "a path of the kernel that only some inputs take",
        "clamp": "an activation's range, or a clamp merged with another, does not match the graph",
        "one_code": "never written, or a scale, zero point or bias that moves every value out of range",
        "signedness": "unsigned codes read as signed, or signed codes read as unsigned",
        "unwritten": "elements that the kernel skips",
        "stale": "a wrong address; elements have values that belong elsewhere",
        "borders": "wrong padding: 0 instead of the zero point, or pixels taken from the wrong side",
        "block_tail": "the tail of a tile of the kernel",
        "tail": "the tail of a tile of the kernel, or padding that is missing at one end",
        "rows": "a part of the output that the kernel skips or computes twice",
        "channels": "a block of filters that the kernel skips, repeats, or computes with wrong parameters",
        "constant": "an output zero point that is not added, an unscaled bias, or a constant at a different scale",
        "constant_per_channel": "a bias or a zero point that is dropped, unscaled or clipped",
        "factor": "a scale that differs from the graph's",
        "factor_per_channel": "scales applied along the wrong axis, or one scale for all channels",
        "multiplier": "a multiplier that the compiler derived from scales other than the recorded ones",
        "growing": "sums that saturate or wrap in 16 bits",
        "wrapped": "codes beyond the range wrap around instead of saturating",
        "overflow": "results that overflow or lose their sign on the way, and then saturate",
        "ties_only": "an unknown rounding of ties",
        "off_by_one": "a multiplier with few bits, or an unknown rounding in several stages",
        "altered": "not a rounding; single elements are overwritten, or read before they are written",
        "scattered": "no known pattern",
    }
)
"""The likely cause of each pattern."""
_CAUSES_WITHOUT_WINDOWS = MappingProxyType(
    {
        "borders": "the outermost elements, which the kernel reads or writes on a separate path",
        "tail": "the tail of a tile of the kernel, or other parameters for the last part",
        "channels": "a block of channels that the kernel skips, repeats, or computes with wrong parameters",
    }
)
"""Causes that replace those in `PATTERNS` for operators without filters or windows."""

_CAUSES_OF_VALUES = MappingProxyType(
    {
        "unwritten": "elements that are never written",
        "stale": "values of other elements, from a wrong address",
    }
)
"""What the values of wrong elements add to a cause that follows from their place."""

_MAX_SHOWN_ELEMENTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual(JsonObject):
    """The error that remains at a node with the best known arithmetic.

    Args:
        wrong: Number of wrong elements.
        total: Number of elements.
        max_lsb: Largest error in codes.
        pattern: A key of `PATTERNS`.
        detail: A clause with the positions and values of the wrong elements.
        likely: The likely cause.
        elements: Indices of the first wrong elements, with the sample first.
        against: Text of the variant that the recording was compared with.
        reproduces: Whether the likely cause reproduces every element.
        table: The table of a function of one 8-bit code, or None.
        usual: The likely cause that follows from the pattern alone.
    """

    json_keys = "max_lsb wrong total pattern detail likely=cause elements against reproduces table"

    wrong: int
    total: int
    max_lsb: int
    pattern: str
    detail: str
    likely: str
    elements: tuple[tuple[int, ...], ...] = ()
    against: str = ""
    reproduces: bool = False
    table: CodeTable | None = None
    usual: str = ""

    @property
    def is_pattern_alone(self) -> bool:
        """Whether the likely cause follows from the pattern alone, and not from a replay of a mistake."""
        return self.likely == self.usual

    @property
    def cause(self) -> str:
        """The likely cause, after the word "likely"."""
        return f"likely: {self.likely}"


def residual(evidence: CodesOfTensor) -> Residual | None:
    """Describe the wrong elements of a tensor, or return None if there are none.

    Args:
        evidence: Its recorded codes, and the codes of the best replay.
    """
    error = evidence.error
    wrong = error != 0
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    found_places = places(wrong, evidence.layout)
    far_places = _places_of_far_elements(error, evidence.layout, found_places)
    found_places = far_places or found_places
    found_traits = traits(evidence)
    if far_places and not found_traits:
        found_traits = traits(replace(evidence, recorded=_without_slight_errors(evidence)))
    found_traits = _drop_partial_constants(found_traits, found_places)
    pattern = _main_pattern(found_places, found_traits)
    details = [place.detail for place in found_places[:3]] + [trait.detail for trait in found_traits[:2]]
    if far_places:
        slight_count = count - int(np.count_nonzero(np.abs(error) > SLIGHT_ERROR_CODES))
        details.append(f"{slight_count} others are off by one code")
    first_wrong = np.argwhere(wrong)[:_MAX_SHOWN_ELEMENTS]
    if pattern == "scattered" and count == 1 and np.abs(error).max() > 1:
        pattern = "altered"  # a rounding rule would change more than one element
    likely = _likely_cause(pattern, found_places, found_traits, kind=evidence.kind)
    return Residual(
        wrong=count,
        total=wrong.size,
        max_lsb=int(np.abs(error).max()),
        pattern=pattern,
        detail="; ".join(details) or _scattered_text(first_wrong, count, evidence.layout),
        likely=likely,
        usual=likely,
        elements=tuple(tuple(int(index) for index in row) for row in first_wrong),
    )


def _places_of_far_elements(error: np.ndarray, layout: Layout, of_all: Sequence[WrongPlace]) -> tuple[WrongPlace, ...]:
    """Find the places of the elements that are off by more than one code.

    Empty unless such a place is smaller than all places of all wrong elements.

    A different rounding scatters errors of one code over the tensor, which hides the location of a fault.

    Args:
        error: Recorded minus expected codes.
        layout: Roles of the axes.
        of_all: The places that contain all wrong elements.
    """
    distance = np.abs(error)
    if not np.any((distance > 0) & (distance <= SLIGHT_ERROR_CODES)):
        return ()
    far_places = tuple(place for place in places(distance > SLIGHT_ERROR_CODES, layout) if not place.loose)
    smallest_share = min((place.share for place in of_all if not place.loose), default=1.0)
    return far_places if far_places and far_places[0].share < smallest_share else ()


def _without_slight_errors(evidence: CodesOfTensor) -> np.ndarray:
    return np.where(np.abs(evidence.error) > SLIGHT_ERROR_CODES, evidence.recorded, evidence.expected)


def _scattered_text(first: np.ndarray, count: int, layout: Layout) -> str:
    if count == 1:
        return f"only at {layout.element(first[0].tolist())}"
    return f"{count} elements in no particular place" if count <= _MAX_SHOWN_ELEMENTS else "all over the tensor"


def _drop_partial_constants(found_traits: Sequence[Trait], found_places: Sequence[WrongPlace]) -> tuple[Trait, ...]:
    """Drop constant errors if only some samples or positions are wrong, because a constant would show everywhere."""
    elsewhere = any(not place.channels for place in found_places)
    return tuple(trait for trait in found_traits if not (elsewhere and trait.pattern.startswith("constant")))


def _likely_cause(pattern: str, found_places: Sequence[WrongPlace], found_traits: Sequence[Trait], *, kind: str) -> str:
    """Return the cause of a pattern, narrowed by the places and values of the wrong elements."""
    cause = PATTERNS[pattern]
    has_filters = kind in ("conv", "linear")
    if not has_filters and not kind.endswith("_pool"):
        cause = _CAUSES_WITHOUT_WINDOWS.get(pattern, cause)
    if has_filters and pattern == "tail" and any(place.pattern == "tail" and place.channels for place in found_places):
        cause = "the filters that are left over from the kernel's blocks of channels"
    values = {trait.pattern for trait in found_traits} if pattern not in ("clamp", *_CAUSES_OF_VALUES) else set()
    return "; ".join((cause, *(clause for value, clause in _CAUSES_OF_VALUES.items() if value in values)))


_AMOUNT_PATTERNS = ("constant", "constant_per_channel", "factor", "factor_per_channel")
_DECISIVE_TRAITS = ("one_code", "clamp", "wrapped", "ties_only", *_AMOUNT_PATTERNS)
"""Traits that reveal more about the cause than any place does."""


def _main_pattern(found_places: Sequence[WrongPlace], found_traits: Sequence[Trait]) -> str:
    """Choose the pattern that reveals most about the cause."""
    trait_patterns = [trait.pattern for trait in found_traits]
    place_patterns = [place.pattern for place in found_places if not (place.loose and "growing" in trait_patterns)]
    decisive_patterns = [kind for kind in trait_patterns if kind in _DECISIVE_TRAITS]
    if decisive_patterns and not {"block_tail", "borders"} & set(place_patterns):
        return decisive_patterns[0]
    if place_patterns:
        inner_patterns = [spot for spot in place_patterns if spot not in ("one_sample", "few_samples")]
        # If wrong elements are both in the last channels and at the last positions, the tail of a tile explains both.
        return next((spot for spot in ("block_tail", *inner_patterns) if spot in place_patterns), place_patterns[0])
    return trait_patterns[0] if trait_patterns else "scattered"
