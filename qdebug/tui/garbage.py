"""Pauses of the cyclic garbage collector, which blocks all threads, and so the screen, for as long as it runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["garbage_collection_paused"]


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector while modules, graphs or rows are created, nearly all of which stay in use.

    Python would search them for garbage again and again: 65 ms each time for 100,000 rows.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
