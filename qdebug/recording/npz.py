"""Write arrays by name to an .npz file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

__all__ = ["write_arrays"]

_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_arrays(path: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write arrays like numpy.savez, but one at a time, under any name, and with reproducible bytes.

    numpy.savez has its own keyword parameters, which can collide with the names of arrays.

    Args:
        path: The file, overwritten if it exists.
        arrays: Names and arrays; each pair is requested after the previous one was written.

    Raises:
        OSError: It cannot be written.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays:
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
