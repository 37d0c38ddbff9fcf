"""Inputs of a run: read from a file, checked against the model, handed out sample by sample."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from qdebug.errors import InputError, UsageError
from qdebug.model import TensorInfo
from qdebug.model.dtypes import is_float, logical_dtype, logical_name
from qdebug.regular_file import open_binary

__all__ = ["UNREADABLE", "ArrayFeeds", "check_expansion", "check_names", "fits", "has_steps", "read_inputs"]

# What numpy and zipfile raise on damaged, encrypted and absurdly large archives.
UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, MemoryError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def read_inputs(inputs: str | Path | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the input arrays by name, from an .npz file or a mapping.

    Raises:
        InputError: The file is missing, is no .npz file, or holds Python objects.
    """
    if isinstance(inputs, Mapping):
        return {name: np.asarray(array) for name, array in inputs.items()}
    path = Path(inputs)
    try:
        with open_binary(path) as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise InputError(
                    f"The input file {str(path)!r} is an array without a name; expected an .npz file.",
                    hint="Make one: numpy.savez('inputs.npz', INPUT=array).",
                )
            with loaded:
                check_expansion(path, loaded.zip.infolist())
                return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError as error:
        raise InputError(f"There is no input file {str(path)!r}.", hint="Give an .npz file.") from error
    except OSError as error:
        raise InputError(
            f"The input file {str(path)!r} cannot be read as .npz: {error.strerror or error}.",
            hint="Give an .npz file.",
        ) from error
    except UNREADABLE as error:
        reason = "it holds Python objects" if "Object arrays" in str(error) else _kind(path)
        raise InputError(
            f"The input file {str(path)!r} cannot be read as .npz: {reason}.",
            hint="Make one of plain arrays: numpy.savez('inputs.npz', INPUT=array).",
        ) from error


MOST_ARRAYS = 100_000
"""Arrays that an archive may hold."""
_EXPANDS, _EXPANDS_FREELY = 200, 1 << 30
"""An archive may hold this many times its own bytes, or this many bytes if that is more."""


def check_expansion(path: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse an archive whose arrays are far larger than the file can hold, before any memory is taken.

    Args:
        path: The archive.
        entries: What it says that it holds.

    Raises:
        InputError: It is one.
    """
    size, total = path.stat().st_size, sum(entry.file_size for entry in entries)
    if len(entries) > MOST_ARRAYS or total > max(_EXPANDS * size, _EXPANDS_FREELY):
        raise InputError(
            f"The archive {str(path)!r} has {size} bytes and says that it holds {len(entries)} arrays of {total} "
            "bytes.",
            hint="Save it anew with numpy.savez, which does not compress, if that is true.",
        )


def _kind(path: Path) -> str:
    """Say what a file is that is no .npz file; numpy takes anything that it does not know for pickled objects."""
    try:
        with open_binary(path) as file:
            start = file.read(8)
    except OSError:
        return "it cannot be read"
    if start == b"\x89HDF\r\n\x1a\n":
        return "it is an HDF5 file, such as a recording"
    return "it is damaged or something else"


class ArrayFeeds:
    """Arrays cut into samples and steps.

    Where samples or steps are cut off and the rest lacks exactly the model's batch axis, a batch axis of 1 is added.

    Args:
        arrays: One array per model input; the leading axis is samples if `samples` is given, the next is
            steps if `steps` is given.
        inputs: The model's inputs.
        samples: Number of samples to take; None if the arrays are one sample.
        steps: Number of steps to take; None if each sample is one step.
        states: Inputs whose arrays are first values, without an axis of steps. One value may serve all samples, and
            zeros serve where it is left out.

    Attributes:
        zeros: The states that were left out.

    Raises:
        UsageError: Less than one sample or step is asked for.
        InputError: A name is missing or unknown, or a dtype or shape does not fit.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        inputs: Sequence[TensorInfo],
        *,
        samples: int | None = None,
        steps: int | None = None,
        states: Collection[str] = (),
    ) -> None:
        for what, count in (("samples", samples), ("steps", steps)):
            if count is not None and count < 1:
                raise UsageError(
                    f"{count} {what} make no run; expected at least 1.",
                    hint=f"Give their number, --{what} N, or leave it out.",
                )
        self.samples = samples or 1
        self.steps = steps or 1
        axes = [(what, count) for what, count in (("sample", samples), ("step", steps)) if count is not None]
        self.zeros = tuple(info.name for info in inputs if info.name in states and info.name not in arrays)
        arrays = {**arrays, **{info.name: _zeros(info) for info in inputs if info.name in self.zeros}}
        check_names(arrays, inputs)
        self._axes = {info.name: axes for info in inputs} | {
            info.name: _axes_of_state(info, arrays[info.name], axes) for info in inputs if info.name in states
        }
        self._arrays = {info.name: _prepared(info, arrays[info.name], self._axes[info.name]) for info in inputs}

    def feed(self, sample: int, step: int = 0) -> dict[str, np.ndarray]:
        """Return one array per model input."""
        place = {"sample": sample, "step": step}
        return {
            name: np.asarray(array[tuple(place[what] for what, _ in self._axes[name])], order="C")
            for name, array in self._arrays.items()
        }

    def nonfinite(self) -> list[str]:
        """Say for each input with values that are not finite how many there are: what comes of them is no bug."""
        found = []
        for name, array in self._arrays.items():
            taken = array[tuple(slice(count) for _, count in self._axes[name])]
            wrong = int(np.count_nonzero(~np.isfinite(taken))) if is_float(logical_name(taken.dtype)) else 0
            if wrong:
                found.append(f"{wrong} of {taken.size} values of input {name!r} are NaN or infinite")
        return found


_Axes = Sequence[tuple[str, int]]
"""What the leading axes of an array are, and how much of each is taken."""


def has_steps(info: TensorInfo, array: np.ndarray, *, samples: int | None, steps: int) -> bool:
    """Tell whether an array of an input has an axis of steps, and is no first value of a state.

    Args:
        info: The input.
        array: Its array.
        samples: Number of samples; None if the arrays are one sample.
        steps: Number of steps.
    """
    axes = [("sample", samples)] if samples is not None else []
    try:
        _prepared(info, array, [*axes, ("step", steps)])
    except InputError:
        return False
    return True


def _axes_of_state(info: TensorInfo, array: np.ndarray, axes: _Axes) -> _Axes:
    """Return the axes of a state's first value: that of samples if it has one, and never one of steps."""
    own = [axis for axis in axes if axis[0] == "sample"]
    return [] if info.shape is not None and fits(array.shape, info.shape) else own


def _zeros(info: TensorInfo) -> np.ndarray:
    """Return a state of zeros; its batch is 1 where the model leaves that open.

    Raises:
        InputError: Another extent is open, or the dtype is not known.
    """
    shape = info.shape
    batch = (0, 1) if shape is not None and len(shape) == 3 else (0,)
    if shape is None or info.dtype is None or any(each is None and at not in batch for at, each in enumerate(shape)):
        said = "not known" if shape is None else _shape(shape)
        raise InputError(
            f"The state {info.name!r} has no first value, and its shape is {said}.",
            hint=f"Give an array {info.name!r} among the inputs.",
        )
    return np.zeros([1 if extent is None else extent for extent in shape], logical_dtype(info.dtype))


def _prepared(info: TensorInfo, array: np.ndarray, axes: _Axes) -> np.ndarray:
    array = _of_dtype(info, array)
    for axis, (what, count) in enumerate(axes):
        if array.ndim <= axis or array.shape[axis] < count:
            found = array.shape[axis] if array.ndim > axis else "no axis for them"
            raise InputError(
                f"Input {info.name!r} has shape {_shape(array.shape)}: {count} {what}s are asked for along axis "
                f"{axis}, found {found}.",
                hint=f"Give --{what}s no more than there are; arrays have one leading axis for them.",
            )
    cut = len(axes)
    if cut and info.shape is not None and array.ndim - cut == len(info.shape) - 1 and info.shape[0] in (None, 1):
        with_batch = np.expand_dims(array, cut)
        if fits(with_batch.shape[cut:], info.shape):
            array = with_batch
    if info.shape is not None and not fits(array.shape[cut:], info.shape):
        raise InputError(
            f"Input {info.name!r} has shape {_shape(array.shape[cut:])}"
            f"{' for each ' + axes[-1][0] if cut else ''}; expected {_shape(info.shape)}.",
            hint="If the arrays hold several samples along their leading axis, say how many: --samples N."
            if not cut
            else "The leading axes are samples, then steps; what follows is the shape of the model's input.",
        )
    return array


def check_names(arrays: Mapping[str, np.ndarray], inputs: Sequence[TensorInfo]) -> None:
    """Check that there is an array for each input of a model, and for nothing else.

    Raises:
        InputError: One is missing or left over.
    """
    expected = [info.name for info in inputs]
    missing = [name for name in expected if name not in arrays]
    unknown = [name for name in arrays if name not in expected]
    if missing or unknown:
        problems = [f"{what} {_names(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names]
        raise InputError(
            f"The inputs do not fit the model: {', '.join(problems)}; "
            f"found {_names(list(arrays))}, expected {_names(expected)}.",
            hint="Name the arrays of the .npz file after the model's inputs: "
            f"numpy.savez('inputs.npz', **{{{expected[0] if expected else 'INPUT'!r}: array}}).",
        )


def _conversion(info: TensorInfo, expected: np.dtype, array: np.ndarray) -> str:
    """Say how values become what an input takes: codes by its scale and zero point."""
    name, quant = expected.name, info.quant
    if array.dtype.kind == "f" and quant is not None and not quant.per_channel:
        scale, zero = quant.scale.reshape(-1)[0], quant.zero_point.reshape(-1)[0]
        codes = f"np.clip(np.rint(array / {scale:.9g}) + {zero}, {quant.qmin}, {quant.qmax}).astype('{name}')"
        return f"The input takes codes. Make them of real values yourself: {codes}."
    also = " after import ml_dtypes" if expected.isbuiltin != 1 else ""
    return f"Convert it yourself, so that nothing is rounded unseen: array.astype('{name}'){also}."


def _of_dtype(info: TensorInfo, array: np.ndarray) -> np.ndarray:
    """Check a dtype; only the byte order is ever changed, and bits are read as the short floats .npz cannot name."""
    if info.dtype is None:
        raise InputError(f"Input {info.name!r} of the model holds no numbers; such inputs cannot be fed.")
    expected = logical_dtype(info.dtype)
    if array.dtype == np.dtype(f"V{expected.itemsize}") and expected.isbuiltin != 1:
        return array.view(expected)
    if array.dtype.name != expected.name:
        raise InputError(
            f"Input {info.name!r} has dtype {array.dtype.name}; expected {expected.name}.",
            hint=_conversion(info, expected, array),
        )
    return array.astype(expected, copy=False)


def fits(shape: Sequence[int], expected: Sequence[int | None]) -> bool:
    """Tell whether a shape is what an input takes; None stands for any extent."""
    return len(shape) == len(expected) and all(e in (None, s) for s, e in zip(shape, expected, strict=True))


def _shape(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape) + "]"


def _names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
