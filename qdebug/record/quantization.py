"""Quantization parameters out of what a caller says of a tensor, checked against its values."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from qdebug.errors import RecordingError
from qdebug.model import QuantParams
from qdebug.model.dtypes import code_limits, logical_name

__all__ = ["QuantFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantFacts:
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
            said = [entry.name for entry in fields(self) if getattr(self, entry.name) is not None]
            if said:
                raise RecordingError(
                    f"Tensor {name!r} is put with {said[0]} and without scale.", hint="Give its scale too."
                )
            return None
        try:
            quant = QuantParams(
                dtype=logical_name(data.dtype),
                scale=np.asarray(self.scale),
                zero_point=np.asarray(0 if self.zero_point is None else self.zero_point),
                axis=self._axis(data.ndim),
                block_size=self.block_size,
                qmin=self.qmin,
                qmax=self.qmax,
                multiplier=None if self.multiplier is None else np.asarray(self.multiplier),
                shift=None if self.shift is None else np.asarray(self.shift),
            )
        except (TypeError, ValueError) as exc:
            raise RecordingError(f"The quantization of tensor {name!r} makes no sense: {exc}.") from None
        _check_channels(name, data, quant)
        _check_limits(name, quant)
        return quant

    def _axis(self, ndim: int) -> int | None:
        """Give the axis counted from the front, as it is stored."""
        if self.axis is None:
            return None
        if not -ndim <= self.axis < ndim:
            raise ValueError(f"axis {self.axis} of a tensor with {ndim} dimensions")
        return self.axis % ndim


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


def _check_channels(name: str, data: np.ndarray, quant: QuantParams) -> None:
    if quant.axis is None or quant.block_size is not None or quant.scale.ndim != 1 or quant.scale.size == 1:
        return
    extent = data.shape[quant.axis]
    if quant.scale.size != extent:
        raise RecordingError(
            f"Tensor {name!r} is put with {quant.scale.size} scales along axis {quant.axis}, "
            f"which has {extent} elements (shape {data.shape}).",
            hint="Give one scale, or one for each channel.",
        )
