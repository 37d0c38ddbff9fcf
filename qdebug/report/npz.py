"""Recorded values as an .npz file, one array after the other, whatever the tensors are called."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import Recording
from qdebug.numerics.affine import dequantize
from qdebug.numerics.wide_codes import is_wide_code

__all__ = ["NAMES", "member_names", "write_npz"]

NAMES = "tensor_names"
"""The member that tells which array is which tensor: rows of (member, tensor)."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_npz(
    recording: Recording,
    path: Path,
    *,
    tensors: Sequence[str] = ("*",),
    sample: int = 0,
    step: int = 0,
    real: bool = False,
) -> int:
    """Write the values of tensors for one sample and step.

    A member has the tensor's name where that is a harmless file name, else one made of it; `tensor_names` tells all.
    Types that numpy has not are written in the next larger one that it has: bfloat16 as float32, int4 as int8.

    Args:
        recording: Where the values are.
        path: The file, overwritten if it exists.
        tensors: Patterns for names; constants are written too if they fit.
        sample: The sample.
        step: The step of a stateful net.
        real: Write real values instead of codes.

    Returns:
        How many arrays were written.

    Raises:
        UsageError: No tensor with values fits, or there is no such sample or step.
        RecordingError: Values cannot be read.
    """
    chosen = _chosen(recording, tensors, sample, step)
    members = member_names(chosen)
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        rows = list(members.items())
        _add(archive, NAMES, np.array([(member, name) for name, member in rows], dtype=np.str_))
        for name, member in rows:
            _add(archive, member, _values(recording, name, sample, step, real=real))
    return len(chosen)


def _chosen(recording: Recording, tensors: Sequence[str], sample: int, step: int) -> list[str]:
    """Give the names of the tensors to write.

    Raises:
        UsageError: There are none.
    """
    if sample >= recording.samples or step >= recording.steps:
        raise UsageError(
            f"There is no sample {sample}, step {step}: the recording holds {recording.samples} samples of "
            f"{recording.steps} steps.",
            hint="Count both from 0.",
        )
    chosen = [
        name
        for name in recording.names
        if recording.has(name, sample, step) and any(fnmatchcase(name, pattern) for pattern in tensors)
    ]
    if not chosen:
        shown = ", ".join(repr(pattern) for pattern in tensors)
        raise UsageError(
            f"No tensor with values for sample {sample}, step {step} fits {shown}.",
            hint="List what the recording holds: qdebug info FILE --tensors.",
        )
    return chosen


def member_names(names: Sequence[str]) -> dict[str, str]:
    """Give a harmless name for the file of each tensor, different even where case does not count.

    Args:
        names: Names of tensors.
    """
    members: dict[str, str] = {}
    taken = {NAMES}
    for position, name in enumerate(names):
        plain = name if _PLAIN.fullmatch(name) and ".." not in name else ""
        if not plain or plain.lower() in taken:
            unique = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
            cleaned = re.sub(r"[^A-Za-z0-9_]+", "_", name)[-40:]
            plain = f"t{position:05d}_{cleaned}_{unique}"
        taken.add(plain.lower())
        members[name] = plain
    return members


def _values(recording: Recording, name: str, sample: int, step: int, *, real: bool) -> np.ndarray:
    stored = recording.load(name, sample, step)
    if real:
        stored = dequantize(stored, recording.graph.tensors[name].quant, double=is_wide_code(stored.dtype))
    if stored.dtype.kind in "biuf":
        return stored
    return stored.astype(np.int8 if "int" in stored.dtype.name else np.float32)


def _add(archive: zipfile.ZipFile, member: str, array: np.ndarray) -> None:
    entry = zipfile.ZipInfo(f"{member}.npy", date_time=_EPOCH)  # the same values give the same bytes
    entry.external_attr = 0o644 << 16
    with archive.open(entry, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
