"""A rewrite that changes numerics: its kind, location and size, and an input that reveals it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from qdebug.lint.replay import Span
from qdebug.lint.search import LintPart, Witness
from qdebug.model.json_object import JsonObject, SchemaPart

__all__ = ["KINDS", "LintFinding", "LintFix"]

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "rescale_merged": "rescales were merged; the remaining rescale must keep the intersection of all ranges",
        "rescale_added": "a rescale was added, so values are rounded again and may be clipped again",
        "rescale_in_dequantize": (
            "a rescale was folded into a dequantize; its range must include all values that it reads"
        ),
        "dequantize_quantize_removed": "a dequantize and a quantize were removed; their scales must be equal",
        "clamp_folded": "a Relu or Clip was folded into a code range, which must end at its bounds",
        "activation_dropped": "an activation was dropped",
        "moved": "a quantize or dequantize was moved across an operator; the scales of both sides must be equal",
        "duplicated": "one tensor is quantized twice with unequal scales, and both are used together",
        "bias": "a bias was shifted, or is not rounded at the scale of the sums",
        "batch_norm": "a BatchNormalization was folded into constants that do not compute the same result",
        "zero_point": "a zero point is outside the range of its codes, so they cannot represent 0",
        "asymmetric": "a zero point is not the one that the backend assumes",
        "parameters": "scales, zero points or constants were changed",
        "rewrite": "the two forms do not compute the same result",
    }
)
"""The sentence of each kind of finding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LintFinding(JsonObject):
    """A rewrite that changes numerics.

    Args:
        kind: One of `KINDS`.
        model: Title of the model.
        before: Nodes of the correct form.
        after: Nodes of the form in the model.
        tensor: The tensor that both compute, by its name in the model.
        span_before: Interval of the tensor's values in the first form.
        span_after: The same interval in the second form.
        step: Largest code step that either form rounds to, or 0 for none.
        witness: An input that reveals the difference, replayed.
        allowed: Whether `--allow-param-changes` allows it.
        detail: Further facts, as a clause, or "".
        right: The nodes that compute the tensor correctly, or None if putting them back would be no repair.
        actual: The nodes of the model that they replace.
    """

    json_keys = (
        "kind sentence detail|null model tensor nodes_before=before nodes_after=after "
        "range_before=span_before range_after=span_after largest=witness.largest step|null "
        "reached=witness.reached allowed witness"
    )

    kind: Annotated[str, SchemaPart(enum=[*KINDS])]
    model: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    tensor: str
    span_before: Span
    span_after: Span
    step: float
    witness: Witness
    allowed: bool = False
    detail: str = ""
    right: LintPart | None = None
    actual: LintPart | None = None

    @property
    def sentence(self) -> str:
        """The sentence of this kind of finding."""
        return KINDS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFix(JsonObject):
    """A finding that a changed copy of the model no longer has.

    Args:
        kind: The kind of the finding.
        tensor: The tensor.
        added: The nodes that compute it in the copy, by their names in the correct form.
        removed: The nodes of the model that compute it no longer.
        before: The output element of the witness in the model, replayed.
        after: The same element in the copy.
    """

    kind: Annotated[str, SchemaPart(enum=[*KINDS])]
    tensor: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    before: float
    after: float
