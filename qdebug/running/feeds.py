"""Read the inputs of a run from a file, check them against the model, and split them into samples and steps."""

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

__all__ = ["UNREADABLE", "ArrayFeeds", "check_expansion", "check_names", "has_shape_of", "has_steps", "read_inputs"]

# Errors that numpy and zipfile raise on damaged, encrypted and absurdly large archives.
UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, MemoryError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def read_inputs(inputs: str | Path | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the input arrays by name, from an .npz file or a mapping.

    Raises:
        InputError: The file is missing, is not an .npz file, or holds Python objects.
    """
    if isinstance(inputs, Mapping):
        return {name: np.asarray(array) for name, array in inputs.items()}
    path = Path(inputs)
    try:
        with open_binary(path) as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                raise InputError(
                    f"The input file {str(path)!r} contains one array without a name; expected an .npz file.",
                    hint="Create it: numpy.savez('inputs.npz', INPUT=array).",
                )
            with content:
                check_expansion(path, content.zip.infolist())
                return {name: content[name] for name in content.files}
    except FileNotFoundError as error:
        raise InputError(f"There is no input file {str(path)!r}.", hint="Give an .npz file.") from error
    except OSError as error:
        raise InputError(
            f"The input file {str(path)!r} cannot be read as .npz: {error.strerror or error}.",
            hint="Give an .npz file.",
        ) from error
    except UNREADABLE as error:
        reason = "it contains Python objects" if "Object arrays" in str(error) else _unreadable_reason(path)
        raise InputError(
            f"The input file {str(path)!r} cannot be read as .npz: {reason}.",
            hint="Save plain arrays: numpy.savez('inputs.npz', INPUT=array).",
        ) from error


MAX_ARRAYS = 100_000
"""Maximum number of arrays in an archive."""
_MAX_RATIO, _MIN_LIMIT = 200, 1 << 30
"""Limit on the expanded size of an archive: this multiple of its own size, or this many bytes if that is more."""


def check_expansion(path: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Reject an archive that claims far more data than its size allows, before any memory is allocated.

    Args:
        path: The archive.
        entries: Directory of the archive.

    Raises:
        InputError: The archive claims too much.
    """
    size, total = path.stat().st_size, sum(entry.file_size for entry in entries)
    if len(entries) > MAX_ARRAYS or total > max(_MAX_RATIO * size, _MIN_LIMIT):
        raise InputError(
            f"The archive {str(path)!r} has {size} bytes and claims to contain {len(entries)} arrays of {total} bytes.",
            hint="If this is right, save it again with numpy.savez, which does not compress.",
        )


def _unreadable_reason(path: Path) -> str:
    """Return why a file is not an .npz file, as a clause. numpy's own message would call it pickled data."""
    try:
        with open_binary(path) as file:
            start = file.read(8)
    except OSError:
        return "it cannot be read"
    if start == b"\x89HDF\r\n\x1a\n":
        return "it is an HDF5 file, such as a recording"
    return "it is damaged, or another kind of file"


class ArrayFeeds:
    """Arrays split into samples and steps.

    If the remaining shape lacks only the model's batch axis, a batch axis of 1 is added.

    Args:
        arrays: One array per model input, with leading axes for samples if `samples` is given, and for steps if `steps`
            is.
        inputs: The model's inputs.
        samples: Number of samples to use, or None if the arrays are one sample.
        steps: Number of steps to use, or None if each sample is one step.
        states: Inputs that only have an initial value, whose array therefore has no axis of steps. One value may serve
            all samples. Without an array, a state starts as zeros.

    Attributes:
        zeros: The states without an array, which start as zeros.

    Raises:
        UsageError: `samples` or `steps` is below 1.
        InputError: A name is missing or unknown, or a dtype or shape does not match the model.
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
        for noun, count in (("samples", samples), ("steps", steps)):
            if count is not None and count < 1:
                raise UsageError(
                    f"Invalid number of {noun}: {count}; expected at least 1.",
                    hint=f"Give --{noun} N, or leave it out.",
                )
        self.samples = samples or 1
        self.steps = steps or 1
        axes = [(axis, count) for axis, count in (("sample", samples), ("step", steps)) if count is not None]
        self.zeros = tuple(info.name for info in inputs if info.name in states and info.name not in arrays)
        arrays = {**arrays, **{info.name: _zero_state(info) for info in inputs if info.name in self.zeros}}
        check_names(arrays, inputs)
        self._axes = {info.name: axes for info in inputs} | {
            info.name: _axes_of_state(info, arrays[info.name], axes) for info in inputs if info.name in states
        }
        self._arrays = {info.name: _check_array(info, arrays[info.name], self._axes[info.name]) for info in inputs}

    def feed(self, sample: int, step: int = 0) -> dict[str, np.ndarray]:
        """Return one array per model input."""
        place = {"sample": sample, "step": step}
        return {
            name: np.asarray(array[tuple(place[axis] for axis, _ in self._axes[name])], order="C")
            for name, array in self._arrays.items()
        }

    def describe_nonfinite(self) -> list[str]:
        """Return a clause for each input with NaN or infinite values, whose effects are not bugs."""
        clauses = []
        for name, array in self._arrays.items():
            used_values = array[tuple(slice(count) for _, count in self._axes[name])]
            nonfinite_count = (
                int(np.count_nonzero(~np.isfinite(used_values))) if is_float(logical_name(used_values.dtype)) else 0
            )
            if nonfinite_count:
                clauses.append(f"{nonfinite_count} of {used_values.size} values of input {name!r} are NaN or infinite")
        return clauses


_Axes = Sequence[tuple[str, int]]
"""The leading axes of an array, "sample" or "step", each with the number of entries that are used."""


def has_steps(info: TensorInfo, array: np.ndarray, *, samples: int | None, steps: int) -> bool:
    """Return whether an array has an axis of steps, so that it is not the initial value of a state.

    Args:
        info: The input.
        array: The array of the input.
        samples: Number of samples, or None if the arrays are one sample.
        steps: Number of steps.
    """
    axes = [("sample", samples)] if samples is not None else []
    try:
        _check_array(info, array, [*axes, ("step", steps)])
    except InputError:
        return False
    return True


def _axes_of_state(info: TensorInfo, array: np.ndarray, axes: _Axes) -> _Axes:
    """Return the leading axes of a state's initial value: an axis of samples, or none if one value serves them all."""
    sample_axes = [axis for axis in axes if axis[0] == "sample"]
    return [] if info.shape is not None and has_shape_of(array.shape, info.shape) else sample_axes


def _zero_state(info: TensorInfo) -> np.ndarray:
    """Return zeros with the shape and dtype of a state. A free batch dimension becomes 1.

    Raises:
        InputError: Another dimension is free, or the dtype is unknown.
    """
    shape = info.shape
    # States of recurrent operators are (directions, batch, hidden), so a free axis 1 is the batch there.
    batch = (0, 1) if shape is not None and len(shape) == 3 else (0,)
    if (
        shape is None
        or info.dtype is None
        or any(extent is None and axis not in batch for axis, extent in enumerate(shape))
    ):
        shape_text = "not known" if shape is None else _shape_text(shape)
        raise InputError(
            f"The state {info.name!r} has no initial value, and its shape {shape_text} is not fixed.",
            hint=f"Add an array {info.name!r} to the inputs.",
        )
    return np.zeros([1 if extent is None else extent for extent in shape], logical_dtype(info.dtype))


def _check_array(info: TensorInfo, array: np.ndarray, axes: _Axes) -> np.ndarray:
    array = _check_dtype(info, array)
    for axis, (noun, count) in enumerate(axes):
        if array.ndim <= axis or array.shape[axis] < count:
            found_text = array.shape[axis] if array.ndim > axis else "no axis for them"
            raise InputError(
                f"Input {info.name!r} has shape {_shape_text(array.shape)}: {count} {noun}s were requested along axis "
                f"{axis}, found {found_text}.",
                hint=f"Give --{noun}s at most this number; the leading axis of each array counts them.",
            )
    leading_axes = len(axes)
    if (
        leading_axes
        and info.shape is not None
        and array.ndim - leading_axes == len(info.shape) - 1
        and info.shape[0] in (None, 1)
    ):
        with_batch = np.expand_dims(array, leading_axes)
        if has_shape_of(with_batch.shape[leading_axes:], info.shape):
            array = with_batch
    if info.shape is not None and not has_shape_of(array.shape[leading_axes:], info.shape):
        raise InputError(
            f"Input {info.name!r} has shape {_shape_text(array.shape[leading_axes:])}"
            f"{' for each ' + axes[-1][0] if leading_axes else ''}; expected {_shape_text(info.shape)}.",
            hint="If the arrays contain several samples along their leading axis, give their number: --samples N."
            if not leading_axes
            else "The leading axes are samples, then steps, and then the shape of the model's input.",
        )
    return array


def check_names(arrays: Mapping[str, np.ndarray], inputs: Sequence[TensorInfo]) -> None:
    """Check that each input of a model has an array, and that there are no others.

    Raises:
        InputError: An array is missing or unknown.
    """
    expected_names = [info.name for info in inputs]
    missing_names = [name for name in expected_names if name not in arrays]
    unknown_names = [name for name in arrays if name not in expected_names]
    if missing_names or unknown_names:
        problems = [
            f"{problem} {_names_text(names)}"
            for problem, names in (("missing", missing_names), ("unknown", unknown_names))
            if names
        ]
        raise InputError(
            f"The inputs do not fit the model: {', '.join(problems)}; "
            f"found {_names_text(list(arrays))}, expected {_names_text(expected_names)}.",
            hint="Name the arrays of the .npz file after the model's inputs: "
            f"numpy.savez('inputs.npz', **{{{expected_names[0] if expected_names else 'INPUT'!r}: array}}).",
        )


def _conversion_hint(info: TensorInfo, expected_dtype: np.dtype, array: np.ndarray) -> str:
    """Return a hint on converting values to the dtype of an input: to codes by scale and zero point."""
    name, quant = expected_dtype.name, info.quant
    if array.dtype.kind == "f" and quant is not None and not quant.per_channel:
        scale, zero = quant.scale.reshape(-1)[0], quant.zero_point.reshape(-1)[0]
        codes = f"np.clip(np.rint(array / {scale:.9g}) + {zero}, {quant.qmin}, {quant.qmax}).astype('{name}')"
        return f"The input takes codes. Quantize real values yourself: {codes}."
    import_note = " after import ml_dtypes" if expected_dtype.isbuiltin != 1 else ""
    return f"Convert it yourself, so that no rounding goes unnoticed: array.astype('{name}'){import_note}."


def _check_dtype(info: TensorInfo, array: np.ndarray) -> np.ndarray:
    """Return an array in the dtype of its input, after checking that at most the byte order differs.

    .npz files have no dtype for short floats such as bfloat16, so raw bytes of the same size are reinterpreted.
    """
    if info.dtype is None:
        raise InputError(f"Input {info.name!r} of the model does not take numbers; qdebug cannot feed it.")
    expected_dtype = logical_dtype(info.dtype)
    if array.dtype == np.dtype(f"V{expected_dtype.itemsize}") and expected_dtype.isbuiltin != 1:
        return array.view(expected_dtype)
    if array.dtype.name != expected_dtype.name:
        raise InputError(
            f"Input {info.name!r} has dtype {array.dtype.name}; expected {expected_dtype.name}.",
            hint=_conversion_hint(info, expected_dtype, array),
        )
    return array.astype(expected_dtype, copy=False)


def has_shape_of(shape: Sequence[int], model_shape: Sequence[int | None]) -> bool:
    """Return whether a shape matches that of a model's input, in which None matches any extent."""
    return len(shape) == len(model_shape) and all(e in (None, s) for s, e in zip(shape, model_shape, strict=True))


def _shape_text(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape) + "]"


def _names_text(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
