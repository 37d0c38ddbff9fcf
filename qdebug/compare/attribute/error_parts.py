"""The parts of a tensor's error."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from qdebug.numerics.stats import ErrorStats

__all__ = ["PARTS", "ErrorParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorParts:
    """The origin of a tensor's error. The total error is `propagated` + `constants` + `arithmetic`.

    Args:
        introduced: Error added by this node: `constants` plus `arithmetic`, or `arithmetic` alone if `constants` is
            unknown. None until measured.
        propagated: Error that reaches it through its inputs. None until measured.
        constants: The part of `introduced` that is due to weights, biases, attributes or operators that differ from the
            reference's. None if unknown.
        arithmetic: The part due to the node's arithmetic, clipping included. None if unknown.
        clipping: The part due to the range of the codes. None if the tensor is not quantized.
    """

    introduced: ErrorStats | None = None
    propagated: ErrorStats | None = None
    constants: ErrorStats | None = None
    arithmetic: ErrorStats | None = None
    clipping: ErrorStats | None = None

    def parts(self) -> dict[str, Any]:
        """Return each part by name, ready to construct another object."""
        return {name: getattr(self, name) for name in PARTS}


PARTS = tuple(part.name for part in fields(ErrorParts))
"""Names of the parts, with `clipping` last."""
