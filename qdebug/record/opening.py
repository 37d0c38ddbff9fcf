"""Opens a recording by what it is: a file, the manifest of several, or one that is still being written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from qdebug.store.joined import is_manifest, read_manifest
from qdebug.store.reader import open_file

if TYPE_CHECKING:
    from qdebug.model import Recording
    from qdebug.record.follow import FollowedRecording

__all__ = ["open_recording"]


@overload
def open_recording(path: str | Path, *, follow: Literal[False] = False) -> Recording: ...
@overload
def open_recording(path: str | Path, *, follow: Literal[True]) -> FollowedRecording: ...
def open_recording(path: str | Path, *, follow: bool = False) -> Recording:
    """Open a recording file for reading.

    Args:
        path: A file that a recorder wrote, or the manifest of several.
        follow: Read it while another process still writes it: `refresh()` takes in what is new.

    Raises:
        RecordingError: The file is missing, no recording, damaged, of a newer format, or not finished.
    """
    path = Path(path)
    if is_manifest(path):
        from qdebug.store.joined import JoinedRecording

        return JoinedRecording(read_manifest(path), path)
    if follow:
        from qdebug.record.follow import FollowedRecording

        return FollowedRecording(path)
    return open_file(path)
