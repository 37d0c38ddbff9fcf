"""What the screen needs of the application that shows it, so that the screen does not know the application."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from textual.app import App

__all__ = ["ScreenHost"]


class ScreenHost(App[int]):
    """An application with files to write to and commands to show."""

    limits_file: Path
    """Where acknowledgements are written."""
    map_file: Path
    """Where pairs made by hand are written."""

    @abstractmethod
    def command_words(self, *, accepted: bool, backend: int = 0) -> Sequence[str]:
        """Return the command that opens the same recordings again, as they are judged here."""

    @abstractmethod
    def files(self, backend: int) -> tuple[str, str]:
        """Return the reference's file and that of a backend."""

    @abstractmethod
    def prefer(self, backend: int) -> None:
        """Compare this backend before the others."""

    @abstractmethod
    def next_theme(self) -> str:
        """Change the colours; return what they are now, or why they stay."""
