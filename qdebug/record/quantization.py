"""Quantization parameters out of what a caller says of a tensor, checked against its values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from qdebug.errors import RecordingError
from qdebug.model import QuantParams
from qdebug.model.dtypes import LOGICAL_DTYPES, code_limits, is_float, logical_name

__all__ = ["QuantFacts", "doubt_of"]


class QuantFacts(NamedTuple):
    """What was said of a tensor's quantization; None for what was not. Arguments as of `Recorder.put`."""

    scale: npt.ArrayLike | None = None
    zero_point: npt.ArrayLike | None = None
    axis: int | None = None
    block_size: int | None = None
    qmin: int | None = None
    qmax: int | None = None
    multiplier: npt.ArrayLike | None = None
    shift: npt.ArrayLike | None = None

    def params(self, name: str, data: np.ndarray) -> QuantParams | None:
        """Make quantization parameters; None if nothing was said.

        Args:
            name: The tensor, for errors.
            data: Its codes.

        Raises:
            RecordingError: The facts make no sense together, or do not fit the tensor's shape.
        """
        if self.scale is None:
            for value in self:
                if value is not None:
                    title = next(title for title, each in zip(self._fields, self, strict=True) if each is value)
                    raise RecordingError(
                        f"Tensor {name!r} is put with {title} and without scale.", hint="Give its scale too."
                    )
            return None
        try:
            quant = QuantParams(
                dtype=logical_name(data.dtype),
                scale=_numbers(self.scale),
                zero_point=_integers("zero_point", 0 if self.zero_point is None else self.zero_point),
                axis=self._axis(data.ndim),
                block_size=self._block_size(),
                qmin=_whole("qmin", self.qmin),
                qmax=_whole("qmax", self.qmax),
                multiplier=None if self.multiplier is None else _integers("multiplier", self.multiplier),
                shift=None if self.shift is None else _integers("shift", self.shift),
            )
        except (TypeError, ValueError) as exc:
            raise RecordingError(f"The quantization of tensor {name!r} makes no sense: {exc}.") from None
        _check_channels(name, data, quant)
        _check_limits(name, quant)
        return quant

    def _block_size(self) -> int | None:
        size = _whole("block_size", self.block_size)
        if size is not None and size < 1:
            raise ValueError(f"block_size {size}")
        return size

    def _axis(self, ndim: int) -> int | None:
        """Give the axis counted from the front, as it is stored."""
        axis = _whole("axis", self.axis)
        if axis is None:
            return None
        if not -ndim <= axis < ndim:
            raise ValueError(f"axis {axis} of a tensor with {ndim} dimensions")
        return axis % ndim


def doubt_of(quant: QuantParams | None) -> str | None:
    """Say what is strange about a quantization that is kept as it was said: a backend may really use it.

    Args:
        quant: The quantization; None if nothing was said.
    """
    if quant is None:
        return None
    scale = quant.scale.ravel()
    for what, wrong in (
        ("not finite", ~np.isfinite(scale)),
        ("0", scale == 0),
        ("negative", scale < 0),
    ):
        count = int(np.count_nonzero(wrong))
        if count:
            which = "its scale is" if scale.size == 1 else f"{count} of its {scale.size} scales are"
            return f"{which} {what}"
    return None


def _numbers(values: npt.ArrayLike) -> np.ndarray:
    array = np.asarray(values)
    name = array.dtype.name
    real = array.dtype.kind in "biuf" or (name in LOGICAL_DTYPES and is_float(name))
    if array.size == 0 or not real:
        raise ValueError(f"scale must be numbers, found {array.dtype} of shape {array.shape}")
    return array


def _integers(title: str, values: npt.ArrayLike) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf" or array.size == 0 or not bool(np.all(np.abs(array.astype(np.float64)) < 2**63)):
        raise ValueError(f"{title} must be whole numbers of at most 64 bits, found {array.ravel()[:3].tolist()}")
    return array


def _whole(title: str, value: float | None) -> int | None:
    """Give a whole number as an int, whatever type it has."""
    if value is None:
        return None
    whole = int(value)
    if whole != value:
        raise ValueError(f"{title} must be a whole number, found {value!r}")
    return whole


def _check_limits(name: str, quant: QuantParams) -> None:
    low, high = code_limits(quant.dtype)
    for title, limit in (("qmin", quant.qmin), ("qmax", quant.qmax)):
        if limit is not None and not (-(2**63) if low is None else low) <= limit <= (
            2**63 - 1 if high is None else high
        ):
            raise RecordingError(
                f"Tensor {name!r} is put with {title} {limit}, which {quant.dtype} codes cannot reach.",
                hint="Give the limits in codes, not in real units.",
            )
    if quant.qmin is not None and quant.qmax is not None and quant.qmin > quant.qmax:
        raise RecordingError(f"Tensor {name!r} is put with qmin {quant.qmin} above qmax {quant.qmax}.")


def _check_channels(name: str, data: np.ndarray, quant: QuantParams) -> None:
    if quant.axis is None or quant.scale.size == 1:
        return
    extent, block = data.shape[quant.axis], quant.block_size
    expected = extent if block is None else -(-extent // block)
    along = quant.scale.shape == (expected,)
    full = (*data.shape[: quant.axis], expected, *data.shape[quant.axis + 1 :])
    count = quant.scale.size if quant.scale.ndim == 1 else "x".join(map(str, quant.scale.shape))
    if not along and (block is None or quant.scale.shape != full):
        raise RecordingError(
            f"Tensor {name!r} is put with {count} scales along axis {quant.axis}, "
            f"which has {extent} elements (shape {data.shape}){'' if block is None else f' in blocks of {block}'}.",
            hint="Give one scale, or one for each channel or block.",
        )
