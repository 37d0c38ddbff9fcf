"""Numbers of elements that kernels process at once."""

from __future__ import annotations

from qdebug.model.thresholds.patterns import KERNEL_BLOCKS

__all__ = ["empty_lanes", "ends_of_tiles"]

_FRACTIONS = (2, 4)


def empty_lanes(count: int) -> list[int]:
    """Return the possible numbers of empty lanes after the elements of a row.

    Rows may be padded to a multiple of a kernel's block, or to the next power of 2.

    Args:
        count: Number of elements of a row.
    """
    return sorted({*(-count % block for block in KERNEL_BLOCKS), (1 << (count - 1).bit_length()) - count} - {0})


def ends_of_tiles(count: int) -> list[int]:
    """Return where a kernel may end before the last element, longest parts first.

    It processes whole tiles alone, one tile alone, or a fraction of the elements.

    Args:
        count: Number of elements.
    """
    ends = {count - count % tile for tile in KERNEL_BLOCKS} | {tile for tile in KERNEL_BLOCKS if tile < count}
    ends |= {count // part for part in _FRACTIONS if count % part == 0}
    return sorted(ends - {0, count}, reverse=True)
