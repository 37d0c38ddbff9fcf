"""Checkpoints for cancelling a long computation: the outermost caller sets a callback, and the inner loops call it.

The loops are several layers below that caller, and most callers never cancel. The callback is therefore stored per
thread (and per task) instead of being passed from function to function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["calling_at_checkpoints", "checkpoint"]

_ask: ContextVar[Callable[[], object] | None] = ContextVar("qdebug_checkpoint", default=None)


@contextmanager
def calling_at_checkpoints(ask: Callable[[], object]) -> Iterator[None]:
    """Call a function at every checkpoint inside the `with` block. The function may raise an exception to cancel.

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
    """Call the callback set by `calling_at_checkpoints`, if any."""
    ask = _ask.get()
    if ask is not None:
        ask()
