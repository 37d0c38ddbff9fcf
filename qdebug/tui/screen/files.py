"""The files that a comparison in the terminal reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files that belong to the comparison.

    Args:
        limits: Where acknowledgements and notes are written.
        map: Where pairs made by hand are written.
        recordings: The reference's file, and each backend's.
        command: The command that opens the same recordings again, without their files.
        limits_apart: Whether the limits file applies only where it is named on the command line.
    """

    limits: Path
    map: Path
    recordings: Sequence[str]
    command: Sequence[str]
    limits_apart: bool = True

    def command_words(self, *, accepted: bool, backend: int = 0) -> Sequence[str]:
        """Return the command that opens the same recordings again, as they are judged here.

        Args:
            accepted: Whether any node is accepted.
            backend: The backend that is shown, which comes first then.
        """
        limits = ("--limits", str(self.limits)) if accepted and self.limits_apart else ()
        reference, *backends = self.recordings
        others = [file for at, file in enumerate(backends) if at != backend]
        return (*self.command, *limits, reference, backends[backend], *others)

    def pair(self, backend: int) -> tuple[str, str]:
        """Return the reference's file and that of a backend."""
        return self.recordings[0], self.recordings[1 + backend]
