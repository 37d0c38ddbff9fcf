"""The choices that an operator's definition leaves open and that backends make differently."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ROUNDINGS", "Arithmetic"]

ROUNDINGS = ("even", "away")
"""What happens to a value half way between two codes: to the even code, or away from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """How quantized kernels compute where the operator's definition allows more than one way.

    Float kernels take no notice of it. A further choice of a backend becomes a further field here, with
    the default that ONNX states, and reaches every kernel through `Call` without any change in between.

    Args:
        rounding: One of `ROUNDINGS`.

    Raises:
        ValueError: The rounding is not among `ROUNDINGS`.
    """

    rounding: str = "even"

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding is {self.rounding!r}; expected one of {ROUNDINGS}")
