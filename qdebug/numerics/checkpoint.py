"""Where a long computation can be given up: whoever starts it says how to ask, and its loops ask.

The loops lie several layers below the one that starts the computation, and most callers have nobody to ask. What is
asked is therefore kept by thread (and by task) and not passed on from function to function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["asking", "checkpoint"]

_ask: ContextVar[Callable[[], object] | None] = ContextVar("qdebug_checkpoint", default=None)


@contextmanager
def asking(ask: Callable[[], object]) -> Iterator[None]:
    """Have every checkpoint on the way ask a function, which raises to give the computation up.

    Args:
        ask: Called hundreds of times a second from the thread that computes, so it must be quick. What it raises has
            to pass through the computation: no error that qdebug itself raises and catches.
    """
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def checkpoint() -> None:
    """Ask whether to go on; does nothing if nobody said how to ask."""
    ask = _ask.get()
    if ask is not None:
        ask()
