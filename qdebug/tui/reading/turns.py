"""How long the reader may keep the screen waiting: the turns in which threads of one interpreter run.

Each look at 100,000 rows takes dozens of numpy calls, each of which gives the interpreter away and has to get it back
from the reader. With turns of 5 ms, which are usual, a redraw of 6 ms took 200 ms while results came in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["short_turns"]

_SECONDS = 0.0002


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads take turns of a fraction of a millisecond inside the block; turns that are shorter stay so."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
