"""What a search tries on a unit: which variants, on which few elements, and whether what they give was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from qdebug.errors import KernelError, UsageError
from qdebug.model.thresholds.explanation import UNKNOWN_PROGRAM_TRIAL_ELEMENTS
from qdebug.replay.arithmetic import keys_of
from qdebug.replay.candidates import candidates
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import finish, finish_many
from qdebug.replay.given import given_variants
from qdebug.replay.presets import PRESETS
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["all_codes", "channels_first", "known_variants", "products", "same_values", "telling"]

_CODES_AT_ONCE = 1 << 24


def channels_first(codes: np.ndarray, unit: Unit) -> np.ndarray:
    """Give recorded codes in the order that units are computed in."""
    return np.moveaxis(codes, -1, 1) if unit.channels_last else codes


def same_values(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Tell which elements are equal; not-a-numbers are."""
    same = ours == theirs
    if ours.dtype.kind == "f" and theirs.dtype.kind == "f":
        same |= np.isnan(ours) & np.isnan(theirs)
    return np.asarray(same)


def known_variants(unit: Unit) -> tuple[Variant, ...]:
    """Give what a unit may be computed by.

    First the programs with the multiplier that was recorded with it, then the variants of the catalogue, the simplest
    first, and those that known backends are said to use.
    """
    return tuple(
        dict.fromkeys((*given_variants(unit), *candidates(unit), *_stated(unit.kind, unit.branch, unit.dtypes)))
    )


@lru_cache(maxsize=64)
def _stated(kind: str, branch: str, dtypes: tuple[str, ...]) -> tuple[Variant, ...]:
    keys = keys_of(kind, branch, dtypes)
    variants = [known.arithmetic.variants for known in PRESETS.values()]
    return tuple(dict.fromkeys(own[key] for own in variants for key in keys if key in own))


def telling(places: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Choose a few elements: up to half of them wrong, the others spread over the rest.

    Args:
        places: Positions to choose from.
        wrong: Which of them the best known variant gets wrong.
    """
    if places.size <= UNKNOWN_PROGRAM_TRIAL_ELEMENTS:
        return places
    order = np.argsort(~wrong, kind="stable")
    half = order[: min(int(np.count_nonzero(wrong)), UNKNOWN_PROGRAM_TRIAL_ELEMENTS // 2)]
    rest = order[half.size :: max(1, (order.size - half.size) // (UNKNOWN_PROGRAM_TRIAL_ELEMENTS - half.size))]
    return np.asarray(places[np.concatenate([half, rest])])


def all_codes(unit: Unit, columns: Columns, variants: Sequence[Variant]) -> Iterator[tuple[Variant, np.ndarray]]:
    """Compute many variants on the same columns; those whose program does not fit the unit are left out."""
    at_once = max(1, _CODES_AT_ONCE // max(columns.size, 1))
    for first in range(0, len(variants), at_once):
        batch = variants[first : first + at_once]
        try:
            yield from zip(batch, finish_many(unit, columns, batch), strict=True)
        except (KernelError, UsageError):
            for variant in batch:
                try:
                    codes = finish(unit, columns, variant)
                except (KernelError, UsageError):  # no integer stands for a scale that is not a number
                    continue
                yield variant, codes


def products(unit: Unit) -> int:
    """Estimate the number of products that the heavy part of a unit takes."""
    if unit.kind not in ("conv", "linear"):
        return 0
    x, weight = (operand.codes for operand in unit.operands[:2])
    per_output = weight.size / max(weight.shape[0] if unit.kind == "conv" else weight.shape[-1], 1)
    return int(x.size * weight.size / max(per_output, 1)) if unit.kind == "linear" else int(x.size * per_output)
