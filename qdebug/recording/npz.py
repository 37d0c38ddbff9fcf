"""Arrays by name as an .npz file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

__all__ = ["write_arrays"]

_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_arrays(path: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write arrays as numpy.savez does, one after the other, under any name; the same values give the same bytes.

    numpy.savez has keywords of its own, which an array may be called like.

    Args:
        path: The file, overwritten if it exists.
        arrays: Names and arrays; each is asked for when the ones before are written.

    Raises:
        OSError: It cannot be written.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays:
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
