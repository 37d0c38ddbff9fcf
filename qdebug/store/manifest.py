"""Several recordings as one: a small JSON file names the files of the processes, ranks or workers of one run.

    {"format": "qdebug.manifest", "version": 1,
     "parts": [{"path": "rank0.h5", "prefix": "", "first_sample": 0}, ...]}

A path is relative to the manifest and stays below its folder. `prefix` goes before the names of a part's tensors and
nodes, for ranks that call different tensors alike; `first_sample` is the number that a part's first sample has in the
whole, for workers that each ran some of the samples. Nothing is linked inside the recordings, which the reader refuses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from qdebug.errors import NotARecordingError, RecordingError, UsageError
from qdebug.store.joined import JoinedRecording, Part
from qdebug.store.reader import FileRecording
from qdebug.store.target import check_target
from qdebug.store.whole_file import whole_file

__all__ = ["is_manifest", "join", "read_manifest"]

FORMAT = "qdebug.manifest"
VERSION = 1
_MOST_BYTES = 16 << 20
_MOST_PARTS = 100_000


def is_manifest(path: Path) -> bool:
    """Tell whether a file is JSON and not HDF5, by its first character."""
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def read_manifest(path: Path) -> tuple[Part, ...]:
    """Read the parts of a manifest.

    Raises:
        NotARecordingError: It is none.
        RecordingError: It names a file outside its folder, or is of a newer version.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise NotARecordingError(f"{str(path)!r} is too large for a manifest.", hint="Give a recording.")
    try:
        plain = json.loads(path.read_bytes())
        known = isinstance(plain, dict) and plain.get("format") == FORMAT
    except (ValueError, RecursionError):
        known = False
    if not known:
        raise NotARecordingError(f"{str(path)!r} is JSON and no manifest of recordings.", hint="Give a recording.")
    if plain.get("version") != VERSION:
        raise RecordingError(
            f"{str(path)!r} is a manifest of version {plain.get('version')!r}; this qdebug reads {VERSION}.",
            hint="Upgrade qdebug: pip install --upgrade qdebug.",
        )
    try:
        parts = tuple(_part(path, entry) for entry in plain["parts"])
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise RecordingError(
            f"The manifest {str(path)!r} is damaged: {exc}.", hint="Make it anew: qdebug file join."
        ) from None
    if not 0 < len(parts) <= _MOST_PARTS:
        raise RecordingError(
            f"The manifest {str(path)!r} names {len(parts)} recordings.", hint="Make it anew: qdebug file join."
        )
    return parts


def _part(path: Path, entry: Mapping[str, Any]) -> Part:
    name, prefix, first = entry["path"], entry.get("prefix", ""), entry.get("first_sample", 0)
    if not isinstance(name, str) or not isinstance(prefix, str) or type(first) is not int or not 0 <= first < 2**32:
        raise ValueError("a part has a path, prefix or first sample of a wrong kind")
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in name:
        raise ValueError(f"{name!r} is outside its folder")
    return Part(path=path.parent / relative, prefix=prefix, first_sample=first)


def join(
    paths: Sequence[Path], out: Path, *, by: str = "tensors", force: bool = False, prefixes: Sequence[str] | None = None
) -> None:
    """Write a manifest of recordings, and check that they can be read as one.

    Args:
        paths: The recordings, below the folder of the manifest.
        out: The manifest.
        by: "tensors" if each holds other tensors of the same samples, "samples" if each holds further samples.
        force: Replace `out` if it exists.
        prefixes: What goes before the names of each; nothing if None.

    Raises:
        UsageError: A recording is not below the manifest's folder, is the file to write, or comes twice.
        OutputExistsError: The manifest exists and `force` is not set.
        RecordingError: Its folder is missing, it is a folder or a device, a recording cannot be read, or they
            contradict each other.
    """
    check_target(out, force=force)
    parts: list[Part] = []
    first = 0
    for number, path in enumerate(paths):
        prefix = prefixes[number] if prefixes else ""
        _check_part(path, prefix, parts, out)
        parts.append(Part(path=path, prefix=prefix, first_sample=first))
        with FileRecording(path) as recording:
            first += recording.samples if by == "samples" else 0
    JoinedRecording(parts, out).close()
    entries = [
        {"path": _relative(part.path, out), "prefix": part.prefix, "first_sample": part.first_sample} for part in parts
    ]
    text = json.dumps({"format": FORMAT, "version": VERSION, "parts": entries}, indent=1)
    with whole_file(out) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def _check_part(path: Path, prefix: str, before: Sequence[Part], out: Path) -> None:
    real = os.path.realpath(path)
    if real == os.path.realpath(out):
        raise UsageError(
            f"{str(path)!r} is one of the recordings; the manifest would replace it.",
            hint="Name another file for the manifest: -o run.json.",
        )
    if any(os.path.realpath(part.path) == real and part.prefix == prefix for part in before):
        raise UsageError(f"The recording {str(path)!r} is given twice.", hint="Give each recording once.")


def _relative(path: Path, out: Path) -> str:
    folder = Path(os.path.realpath(out.parent))
    try:
        return Path(os.path.realpath(path)).relative_to(folder).as_posix()
    except ValueError:
        raise UsageError(
            f"The recording {str(path)!r} is not below the folder of {str(out)!r}.",
            hint="Put the manifest beside the recordings, or above them.",
        ) from None
