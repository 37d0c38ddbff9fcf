"""The elements around the one looked at, read at once on a thread of its own while the reader is still comparing.

To compare one huge tensor takes minutes, in steps of seconds that nothing interrupts. What was recorded of any tensor
can be seen meanwhile; nothing is judged by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from qdebug.errors import QdebugError
from qdebug.tui.events import Glimpsed
from qdebug.tui.requests import DetailRequest
from qdebug.tui.slab import Slab, make_slab
from qdebug.tui.source import DiffSource

if TYPE_CHECKING:
    from qdebug.tui.source import PairWindow

__all__ = ["ROOM", "Glimpser", "part_of"]

EXTENTS = (128, 256)
"""Elements along the last two dimensions: several screens, read in a few milliseconds."""
ROOM = 32
"""Elements around the one looked at that are on the screen with it, at the most, or nearly so."""


class Glimpser(threading.Thread):
    """Reads a window for the newest request; older ones are dropped.

    Args:
        find: Gives the open comparison that a request is of, and the sample to show; None if none is open. Raises
            RecordingError where its files must not be read any more.
        post: Takes each event; called on this thread, must not block.
    """

    def __init__(
        self,
        find: Callable[[DetailRequest], tuple[DiffSource, int] | None],
        post: Callable[[Glimpsed], object],
    ) -> None:
        super().__init__(name="qdebug-glimpse", daemon=True)
        self._find, self._post = find, post
        self._wake = threading.Condition()
        self._request: DetailRequest | None = None
        self._stopped = False

    def ask(self, request: DetailRequest | None) -> None:
        """Read this next, instead of what waits; nothing with None. Begins with the first request."""
        with self._wake:
            self._request = request
            self._wake.notify()
        if request is not None and not self.is_alive() and not self._stopped:
            self.start()

    def stop(self) -> None:
        """End soon."""
        with self._wake:
            self._stopped = True
            self._wake.notify()

    def run(self) -> None:
        """Wait for requests and answer them."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopped or self._request is not None)
                request, self._request = self._request, None
            if self._stopped or request is None:
                return
            seen = self._read(request)
            if seen is not None and self._request is None and not self._stopped:
                self._post(seen)

    def _read(self, request: DetailRequest) -> Glimpsed | None:
        sample = request.sample or 0
        part, problem = None, ""
        try:
            known = self._find(request)
            if known is None:
                return None
            source, sample = known
            found = source.window(
                request.tensor, around=request.element, extents=EXTENTS, sample=sample, step=request.step
            )
            part = part_of(found)
        except (QdebugError, ValueError, TypeError, OSError) as error:
            problem = str(error)
        return Glimpsed(request=request, part=part, sample=sample, problem=problem)


def part_of(window: PairWindow) -> Slab:
    """Make what the screens draw out of a window."""
    return make_slab(
        window.reference,
        window.backend,
        codes=(window.reference_codes, window.backend_codes),
        quant=window.backend_quant,
        reference_quant=window.reference_quant,
        place=(window.start, window.whole),
    )
