"""Files of the elements of a tensor, written stretch by stretch: they take no memory, however large the tensor is."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.numerics.affine import dequantize

if TYPE_CHECKING:
    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.session import DiffSession

__all__ = ["export_elements", "new_file"]


@contextmanager
def new_file(path: Path, *, text: bool) -> Iterator[IO[Any]]:
    """Open a file that does not exist; leave nothing of it behind if not all of it could be written.

    Args:
        path: Where.
        text: Whether it takes text, as UTF-8, or bytes.

    Raises:
        UsageError: It cannot be written, or exists.
    """
    how: dict[str, Any] = {"encoding": "utf-8", "newline": ""} if text else {}
    made = False
    try:
        with path.open("x" if text else "xb", **how) as file:
            made = True
            yield file
    except BaseException as error:
        if made:
            with suppress(OSError):
                path.unlink()
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            raise UsageError(f"{str(path)!r} cannot be written: {why}.", hint="Give another place.") from error
        raise


_STRETCH = 1 << 18
_NAMES = ("reference", "backend", "reference_codes", "backend_codes")


def export_elements(source: DiffSession, path: Path, *, tensor: str, sample: int, step: int, steps: int = 1) -> str:
    """Write the elements of a tensor into a new file; say what was written.

    Args:
        source: The comparison.
        path: A file that does not exist: .npy for the backend's stored elements, .npz for both sides.
        tensor: Backend tensor.
        sample: Which sample.
        step: Which step.
        steps: How many there are.

    Raises:
        QdebugError: The values cannot be read, or the file exists or cannot be written.
    """
    pair = source.pair(tensor, sample=sample, step=step)
    whose = f"sample {sample}" + (f", step {step}" if steps > 1 else "")
    names = [name for name in _NAMES if getattr(pair.read(0, 0), name) is not None]
    with new_file(path, text=False) as file:
        if path.suffix == ".npy":
            coded = "backend_codes" in names
            _write(file, pair, "backend_codes" if coded else "backend")
            return f"{'codes' if coded else 'values'} of the backend, {whose}"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name in names:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _write(member, pair, name)
    return f"{', '.join(names)} of {whose}"


def _write(file: IO[bytes], pair: OpenPair, name: str) -> None:
    """Write one array as numpy does; numbers that are no codes as numpy knows them."""
    header = {
        "descr": np.lib.format.dtype_to_descr(_part(pair, name, 0, 0).dtype),
        "fortran_order": False,
        "shape": pair.shape,
    }
    np.lib.format.write_array_header_1_0(file, header)
    for start in range(0, pair.size, _STRETCH):
        file.write(_part(pair, name, start, min(start + _STRETCH, pair.size)).tobytes())


def _part(pair: OpenPair, name: str, start: int, stop: int) -> np.ndarray:
    values: np.ndarray = getattr(pair.read(start, stop), name)
    return values if name.endswith("codes") else dequantize(values, None)
