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
        limits: The file to which acknowledgements and notes are written.
        map: The file to which manual pairs are written.
        recordings: The reference's file, and each backend's.
        command: The command that opens the same recordings again, without file names.
        needs_limits_option: Whether the limits file applies only if it is named on the command line.
    """

    limits: Path
    map: Path
    recordings: Sequence[str]
    command: Sequence[str]
    needs_limits_option: bool = True

    def command_words(self, *, has_acknowledged: bool, backend: int = 0) -> Sequence[str]:
        """Return the command that opens the same recordings again with the same judgement.

        Args:
            has_acknowledged: Whether any node is acknowledged.
            backend: The backend on the screen, which comes first in the command.
        """
        limits = ("--limits", str(self.limits)) if has_acknowledged and self.needs_limits_option else ()
        reference, *backends = self.recordings
        others = [file for at, file in enumerate(backends) if at != backend]
        return (*self.command, *limits, reference, backends[backend], *others)

    def pair(self, backend: int) -> tuple[str, str]:
        """Return the reference's file and the given backend's."""
        return self.recordings[0], self.recordings[1 + backend]
