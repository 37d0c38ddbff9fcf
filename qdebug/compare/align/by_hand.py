"""Pairs stated by the user, which take precedence over all others."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Pair, Side
from qdebug.errors import UsageError

__all__ = ["pair_as_stated"]


def pair_as_stated(context: Context) -> Iterator[Pair]:
    """Pair tensors as stated by the user.

    Raises:
        UsageError: A recording has no values for a stated tensor.
    """
    for tensor in context.given.alone:
        _check_has_values(context.be, tensor, Side.BACKEND)
    for pair in context.given.pairs:
        for side in Side:
            _check_has_values(context.run(side), pair.of(side), side)
        yield pair


def _check_has_values(run: IndexedRecording, tensor: str, side: Side) -> None:
    if tensor in run.recorded:
        return
    near = get_close_matches(tensor, run.recorded, n=1)
    also = f" Did you mean {near[0]!r}?" if near else ""
    raise UsageError(
        f"The map names {tensor!r}, but the {side} recording has no values for it.{also}",
        hint="List the names: qdebug info FILE --tensors.",
    )
