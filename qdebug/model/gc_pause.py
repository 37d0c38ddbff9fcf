"""Pauses the cyclic garbage collector while very many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_paused"]


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector.

    For blocks that make hundreds of thousands of objects that stay, such as a graph: Python would look through all of
    them again and again, for a fifth of the time, and find nothing. What it was set to before holds afterwards, also
    if the block fails; blocks may be nested, and entered by several threads.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
