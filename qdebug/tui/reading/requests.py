"""What the screen asks of the reader thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdebug.tui.reading.source import DiffSource

__all__ = [
    "AcceptRequest",
    "DetailRequest",
    "ExportRequest",
    "Job",
    "LookAway",
    "LookRequest",
    "LookedAt",
    "NoteRequest",
    "Request",
    "Withdraw",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailRequest:
    """Ask for everything about one row.

    Args:
        id: Grows with each request; an answer to an older one is dropped.
        backend: Which comparison.
        row: The row of the list.
        tensor: Its backend tensor.
        sample: One sample; None for all.
        step: The step whose elements are shown.
        elements: Whether the elements are wanted too.
        explain: Whether an arithmetic is to be looked for.
        side: "reference" or "backend" where that one alone has the tensor; "" of one that is compared.
    """

    id: int
    backend: int = 0
    row: int
    tensor: str
    sample: int | None
    step: int = 0
    elements: bool = False
    explain: bool = False
    side: str = ""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What is looked at of a tensor.

    Args:
        element: Its index; None if that is not known.
        plane: Whether a map of the plane through it is looked at.
    """

    element: tuple[int, ...] | None = None
    plane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    """Ask for the elements around one of them.

    Args:
        id: Grows with each request; an answer to an older one is dropped.
        backend: Which comparison.
        row: The row of the list.
        tensor: Its backend tensor.
        sample: One sample; None for the one that is shown.
        step: The step whose elements are shown.
        element: The one that is looked at; None for the first.
        plane: Whether a map of the plane through it is wanted too.
    """

    id: int
    backend: int = 0
    row: int
    tensor: str
    sample: int | None
    step: int = 0
    element: tuple[int, ...] | None = None
    plane: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAway:
    """Nobody looks at elements any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Ask to write a new file.

    Args:
        backend: Which comparison.
        path: A file that does not exist.
        write: Writes it and says what was written; called on the reader thread.
    """

    backend: int
    path: Path
    write: Callable[[DiffSource, Path], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """Ask to accept the error of a node from now on.

    Args:
        backend: Which comparison.
        node: The backend's node.
        reason: Why; "" to accept it no longer.
        expires: Last day on which that holds; None for ever.
        path: The limits file to write it into.
    """

    backend: int
    node: str
    reason: str
    expires: str | None
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Nobody waits for what was asked about a row any more; it need not be found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRequest:
    """Ask to keep a note on a node.

    Args:
        backend: Which comparison.
        node: The backend's node.
        text: What to remember; "" to take the note out.
        path: The limits file to write it into.
    """

    backend: int
    node: str
    text: str
    path: Path


Job = ExportRequest | AcceptRequest | NoteRequest
"""What is done however much else is asked."""

Request = DetailRequest | Withdraw | LookRequest | LookAway | Job
"""Whatever the screen asks for."""
