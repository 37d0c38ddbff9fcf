"""Differences in steps of a scale, exact where both sides lie on its lattice.

The position of a real value x on the lattice of scale s is the integer k if x is the real value of
the code k steps from the zero point, else x / s. So two codes of equal quantization differ by exactly their
integer difference, although their real values are rounded to float32.
"""

from __future__ import annotations

import math

import numpy as np

from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import ScaleMap

__all__ = ["Steps", "difference_in_steps", "steps_between", "sum_in_steps", "whole_steps"]


class Steps:
    """The size of an LSB for each element of a tensor.

    Args:
        quant: Quantization of the tensor, whose scale is the step; None if it has none.
        shape: Its shape.
        step: One size for all elements instead; None to take the scale.
        whole: Whether both sides are integer codes on one lattice, so that every difference is a whole number of
            steps.

    Raises:
        UsageError: The parameters do not fit the shape.
    """

    __slots__ = ("_map", "_scale", "uniform", "whole")

    def __init__(
        self, quant: QuantParams | None, shape: tuple[int, ...], step: float | None = None, *, whole: bool = False
    ) -> None:
        self.whole = whole
        self._map: ScaleMap | None = None
        self.uniform: float | None = None
        if step is None and quant is not None:
            if quant.scale.size == 1:
                step = float(quant.scale.reshape(-1)[0])
            else:
                self._map = ScaleMap(quant, shape)
                self._scale = quant.scale.astype(np.float64)
        if step is not None and np.isfinite(step) and step > 0:
            self.uniform = step

    @property
    def known(self) -> bool:
        """Whether differences can be measured in steps at all."""
        return self.uniform is not None or self._map is not None

    def of(self, start: int, stop: int) -> np.ndarray | float:
        """Give the step of elements start to stop, or the one of all; NaN where there is none."""
        if self._map is None:
            return np.nan if self.uniform is None else self.uniform
        return _positive(self._map.expand(self._scale, start, stop))

    def at(self, places: np.ndarray) -> np.ndarray | float:
        """Give the step of elements anywhere, by flat index, or the one of all; NaN where there is none."""
        if self._map is None:
            return np.nan if self.uniform is None else self.uniform
        return _positive(self._map.at(self._scale, places))


def _positive(scale: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(scale) & (scale > 0), scale, np.nan)


def whole_steps(difference: np.ndarray, step: np.ndarray | float) -> np.ndarray:
    """Give differences of codes on one lattice in steps.

    Args:
        difference: backend - reference in real units, float64.
        step: Size of one step for all elements, or for each; where it is NaN so is the result.
    """
    return np.asarray(np.rint(difference / step))


def difference_in_steps(reference: np.ndarray, backend: np.ndarray, step: np.ndarray | float) -> np.ndarray:
    """Give backend - reference in steps.

    Args:
        reference: Real values, float64.
        backend: Real values, float64, same shape.
        step: Size of one step for all elements, or for each; where it is NaN so is the result.

    Returns:
        Signed differences, float64.
    """
    steps = np.asarray(_position(backend, step) - _position(reference, step))
    lost = np.isnan(steps)
    if lost.any():  # both positions are beyond float64; their difference need not be
        steps = np.where(lost, (backend - reference) / step, steps)
    return steps


def steps_between(reference: float, backend: float, step: float) -> float:
    """Give backend - reference in steps, as `difference_in_steps` does, for two finite numbers."""
    low, high = reference / step, backend / step
    if not math.isfinite(high - low):
        return float(difference_in_steps(np.array([reference]), np.array([backend]), step)[0])
    return _one_position(backend, high, step) - _one_position(reference, low, step)


def _one_position(value: float, quotient: float, step: float) -> float:
    nearest = round(quotient)
    real = nearest * step
    return float(nearest) if value in (real, float(np.float32(real))) else quotient


def sum_in_steps(mantissa: np.ndarray, exponent: np.ndarray, step: np.ndarray | float) -> tuple[float, int, int]:
    """Sum signed differences in steps, whatever their magnitude.

    Args:
        mantissa: The differences as `numpy.frexp` gives them, float64; no NaN, not infinite.
        exponent: Their exponents.
        step: Size of one step for all elements, or for each; where it is NaN the element is left out.

    Returns:
        The sum as a float and the power of two it is to be multiplied by, and how many of the differences are not 0.
    """
    places = np.flatnonzero((mantissa != 0.0) & ~np.isnan(step))
    if not places.size:
        return 0.0, 0, 0
    step_mantissa, step_exponent = np.frexp(step[places] if isinstance(step, np.ndarray) else step)
    shift = exponent[places] - step_exponent
    highest = int(shift.max())  # what falls below float64 relative to the largest term does not count
    total = np.ldexp(mantissa[places] / step_mantissa, shift - highest).sum()
    return float(total), highest, int(places.size)


def _position(values: np.ndarray, step: np.ndarray | float) -> np.ndarray:
    quotient = values / step
    nearest = np.rint(quotient)
    real = nearest * step
    # The lattice is the set of real values of codes: float32, or float64 for codes kept as float64.
    on_lattice = (real == values) | (real.astype(np.float32).astype(np.float64) == values)
    return np.where(on_lattice, nearest, quotient)
