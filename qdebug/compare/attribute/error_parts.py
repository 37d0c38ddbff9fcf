"""The parts that a tensor's error is made of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from qdebug.numerics.stats import ErrorStats

__all__ = ["PARTS", "ErrorParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorParts:
    """Where a tensor's error comes from: its whole error is `propagated` + `constants` + `arithmetic`.

    Args:
        introduced: Error this node adds: `constants` and `arithmetic`, the latter alone where the former is not known;
            None until it is known.
        propagated: Error that reaches it through its inputs; None until it is known.
        constants: The part of `introduced` that other weights, biases, attributes or operators than the reference's
            make; None if not known.
        arithmetic: The part that its arithmetic makes, what clipping cuts off included; None if not known.
        clipping: What the range of the codes cuts off; None if the tensor is not quantized.
    """

    introduced: ErrorStats | None = None
    propagated: ErrorStats | None = None
    constants: ErrorStats | None = None
    arithmetic: ErrorStats | None = None
    clipping: ErrorStats | None = None

    def parts(self) -> dict[str, Any]:
        """Return each part by its name, to make another object that has them."""
        return {name: getattr(self, name) for name in PARTS}


PARTS = tuple(part.name for part in fields(ErrorParts))
"""Names of the parts, of `clipping` last."""
