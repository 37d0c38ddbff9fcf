"""Checkpoints for cancelling a long computation: its starter sets a callback, and its loops call the callback.

The loops are several layers below the starter, and most callers never cancel. The callback is therefore stored per
thread (and per task) instead of being passed from function to function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["asking", "checkpoint"]

_ask: ContextVar[Callable[[], object] | None] = ContextVar("qdebug_checkpoint", default=None)


@contextmanager
def asking(ask: Callable[[], object]) -> Iterator[None]:
    """Call a function at every checkpoint inside the `with` block. It raises an exception to cancel the computation.

    Args:
        ask: Called hundreds of times a second by the computing thread, so it must be fast. Its exception must propagate
            through the computation, so it must not be an error that qdebug itself raises and catches.
    """
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def checkpoint() -> None:
    """Call the callback set by `asking`, if any."""
    ask = _ask.get()
    if ask is not None:
        ask()
