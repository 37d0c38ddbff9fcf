"""Arrays in the text of a program: short ones as literals, the others together in one compressed block."""

from __future__ import annotations

import base64
import io
from textwrap import wrap

import numpy as np

__all__ = ["ArrayPool", "plain_dtype"]

_LITERAL = 80
"""Most characters of the elements of an array that is written as a literal."""
_WIDTH = 110


def plain_dtype(dtype: np.dtype) -> np.dtype:
    """Give a dtype that numpy has by itself and that holds all values: int8 for int4, float32 for bfloat16."""
    name = dtype.name
    if hasattr(np, name):
        return np.dtype(name)
    return np.dtype(np.int8 if name.startswith("int") else np.uint8 if name.startswith("uint") else np.float32)


class ArrayPool:
    """The arrays of one program. Equal arrays are kept once."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def text(self, array: np.ndarray | None) -> str:
        """Give an expression that makes an array; None stands for itself."""
        if array is None:
            return "None"
        array = np.ascontiguousarray(array.astype(plain_dtype(array.dtype), copy=False)).reshape(array.shape)
        if array.size <= _LITERAL // 3 and array.dtype.kind in "iuf" and np.isfinite(array).all():
            # The repr of a float64 holds every float32 exactly.
            values = repr(array.tolist())
            if len(values) <= _LITERAL:
                return f"np.array({values}, np.{array.dtype.name})"
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._names:
            self._names[key] = f"a{len(self._names)}"
            self._arrays[self._names[key]] = array
        return f'ARRAYS["{self._names[key]}"]'

    def block(self) -> str:
        """Give the statement that defines the arrays that are no literals; "" if there are none."""
        if not self._arrays:
            return ""
        file = io.BytesIO()
        np.savez_compressed(file, **self._arrays)  # type: ignore[arg-type]  # a mapping of arrays, whatever their names
        lines = wrap(base64.b64encode(file.getvalue()).decode("ascii"), _WIDTH)
        shapes = [f"# {name}: {array.dtype.name}{list(array.shape)}" for name, array in self._arrays.items()]
        text, known = "\n".join(lines), "\n".join(shapes)
        return f'{known}\n_PACKED = """\n{text}\n"""\nARRAYS = np.load(io.BytesIO(base64.b64decode(_PACKED)))\n'
