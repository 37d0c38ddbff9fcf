"""Checkpoints at which a long computation can be cancelled: its starter sets a callback, and its loops call it.

The loops lie several layers below the starter, and most callers cancel nothing. The callback is therefore stored by
thread (and by task) and not passed from function to function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["asking", "checkpoint"]

_ask: ContextVar[Callable[[], object] | None] = ContextVar("qdebug_checkpoint", default=None)


@contextmanager
def asking(ask: Callable[[], object]) -> Iterator[None]:
    """Call a function at every checkpoint inside the block; it raises to cancel the computation.

    Args:
        ask: Called hundreds of times a second from the computing thread, so it must be quick. Its exception must pass
            through the computation: no error that qdebug itself raises and catches.
    """
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def checkpoint() -> None:
    """Call the callback of `asking`, if there is one."""
    ask = _ask.get()
    if ask is not None:
        ask()
