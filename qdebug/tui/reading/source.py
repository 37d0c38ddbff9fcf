"""How a comparison is opened for the interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.session import DiffSession

__all__ = ["Opening"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a comparison is opened; both parts are called on the reader thread, in this order.

    Args:
        compare: Opens both recordings, where that is not done yet, and aligns them.
        hear: Takes who is told in a few words what `compare` is doing, and may raise an error to give it up; None where
            nobody tells.
        names: Opens the recordings and gives the names of the backend's tensors, which takes much less time than
            their graphs; None if there is no such short cut.
        refresh: Takes in what a recorder has written since, and tells whether that is anything: then `compare` is
            called again; None for recordings that are finished.
        news: Says what became of the files when something was taken in, "" for nothing; None where nobody looks.
        writing: Tells whether a recorder still adds to one of them; None if none does.
        notes: Gives what was noted on nodes earlier, by node; None if nothing is kept.
        remark: Says what is worth knowing once it is open, "" for nothing; None where nobody looks.
        changed: Says which of the files is no longer the one that was opened; "" if all are. None if they may change.
    """

    compare: Callable[[], DiffSession]
    hear: Callable[[Callable[[str], object]], None] | None = None
    names: Callable[[], Sequence[str]] | None = None
    refresh: Callable[[], bool] | None = None
    news: Callable[[], str] | None = None
    writing: Callable[[], bool] | None = None
    notes: Callable[[], Mapping[str, str]] | None = None
    remark: Callable[[], str] | None = None
    changed: Callable[[], str] | None = None
