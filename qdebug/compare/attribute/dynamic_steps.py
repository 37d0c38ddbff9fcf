"""Holds each node of a part that quantizes its data at run time against its own recorded inputs, element by element.

Rounding data to codes makes errors that a wrong row can hide in. But the codes are there, or follow from the data: the
sums that they give are whole numbers, of which there is one right value each, and what scales them rounds once. So each
node whose inputs were recorded is computed as it is, codes and all, and its own elements are compared with that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qdebug.compare.align.value_classes import Run
from qdebug.compare.attribute.backend_replay import compute
from qdebug.compare.attribute.band import beyond_own_terms
from qdebug.compare.attribute.rounding import real_values
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Node, operators
from qdebug.model.thresholds.attribution import DYNAMIC_TIE_REL_DISTANCE
from qdebug.model.thresholds.rounding import ELEMENTWISE_ROUNDOFFS, FLOAT32_UNIT_ROUNDOFF
from qdebug.replay.kernels.quantize import dynamic_quantize
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["DynamicSteps", "WrongStep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongStep:
    """A node some of whose elements its recorded inputs do not account for.

    Args:
        node: The node.
        wrong: How many elements.
        count: Of how many.
    """

    node: Node
    wrong: int
    count: int

    @property
    def few(self) -> bool:
        """Whether most elements are right, so that the arithmetic is known; another one would change most of them."""
        return 2 * self.wrong <= self.count

    def said(self, last: Node) -> str:
        """Say it in a clause about a node, which is that one or the last one of the part."""
        what = "sums" if operators.of(self.node.op).sums_codes else "elements"
        who = "it" if self.node is last else f"{self.node.op} {self.node.name!r}"
        return f"{who} gives {self.wrong} of {self.count} {what} that are not those of its inputs"


class DynamicSteps:
    """Finds the first wrong node of a part.

    Args:
        be: The backend run.
    """

    def __init__(self, be: Run) -> None:
        self._be = be

    def wrong(self, segment: Segment, place: tuple[int, int]) -> WrongStep | None:
        """Give the first of a segment's own nodes that its recorded inputs do not account for; None if all are right.

        A node whose inputs or outputs were not recorded, or that has no kernel, is passed over.

        Args:
            segment: The segment.
            place: Sample and step.
        """
        for node in segment.own:
            try:
                found = self._of_node(node, place)
            except (KernelError, RecordingError):
                continue
            if found is not None and found.wrong:
                return found
        return None

    def _of_node(self, node: Node, place: tuple[int, int]) -> WrongStep | None:
        recording = self._be.recording
        outputs = [name for name in node.outputs if name and recording.has(name, *place)]
        if not outputs or recording.graph.is_constant(outputs[0]) or not (node.inputs and node.inputs[0]):
            return None
        row = operators.of(node.op)
        if not row.takes_codes:
            return self._of_plain(node, outputs[0], place)
        known = row.sums_codes or row.scales_sums or row.gives_scale  # to the last unit, of their codes
        if not known or not has_kernel(node.op, node.domain):
            return None
        values = {name: recording.load(name, *place) for name in node.inputs if name}
        recorded = recording.load(outputs[0], *place)
        if row.gives_scale:
            return self._of_codes(node, values, place)
        if row.sums_codes and recorded.dtype.kind != "i":
            return None  # shown as real values
        if not row.chooses_scale and values[node.inputs[0]].dtype.kind not in "iu":
            return None
        made = run_node(node, values, recording.graph.opset)[outputs[0]]
        if made.shape != recorded.shape:
            return None
        with np.errstate(invalid="ignore"):  # what is not finite is judged before
            off = np.nan_to_num(np.abs(np.subtract(made, recorded, dtype=np.float64)), nan=0.0)
        allowed = 0.0 if row.sums_codes else _allowed(node, values, made)
        return WrongStep(node=node, wrong=int(np.count_nonzero(off > allowed)), count=made.size)

    def _of_codes(self, node: Node, values: Mapping[str, np.ndarray], place: tuple[int, int]) -> WrongStep | None:
        """Hold codes against the data under the scale that was recorded with them; a tie may go either way."""
        recording = self._be.recording
        names = node.outputs[:3]
        if len(names) < 3 or not all(recording.has(name, *place) for name in names):
            return None
        codes, scale, zero = (recording.load(name, *place) for name in names)
        data = values[node.inputs[0]]
        if codes.dtype.kind not in "iu" or not scale.size == zero.size == 1 or not float(scale.reshape(())):
            return None
        steps = data.astype(np.float64) / float(scale.reshape(())) + int(zero.reshape(()))
        off = np.nan_to_num(np.abs(np.clip(steps, 0, 255) - codes), nan=0.0)
        return WrongStep(
            node=node, wrong=int(np.count_nonzero(off > 0.5 + DYNAMIC_TIE_REL_DISTANCE * 256)), count=codes.size
        )

    def _of_plain(self, node: Node, output: str, place: tuple[int, int]) -> WrongStep | None:
        recording = self._be.recording
        form, opset = real_form(node, recording.graph.opset)
        if form is not node or recording.graph.tensors[output].quant is not None:
            return None
        values = {name: real_values(recording, name, *place) for name in form.inputs if name}
        recorded = recording.load(output, *place)
        if recorded.dtype.kind != "f":
            return None
        made = compute(node, form, opset, values)[output]
        wrong = beyond_own_terms(form, values, made, recorded, FLOAT32_UNIT_ROUNDOFF)
        return WrongStep(node=node, wrong=wrong, count=recorded.size)


def _allowed(node: Node, values: Mapping[str, np.ndarray], made: np.ndarray) -> np.ndarray:
    """Bound what scaling exact sums and adding a bias rounds, and what codes beside a tie change."""
    row = operators.of(node.op)
    name = node.inputs[row.bias] if row.bias is not None and row.bias < len(node.inputs) else ""
    bias = values[name].astype(np.float64) if name else np.zeros(())
    allowed = ELEMENTWISE_ROUNDOFFS * FLOAT32_UNIT_ROUNDOFF * (np.abs(made - bias) + np.abs(bias))
    return allowed + _by_ties(node, values) if row.chooses_scale else allowed


def _by_ties(node: Node, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Give what each element of a product may change where data lie so near a tie that they are rounded either way."""
    data, weight, scales = (values[name] for name in node.inputs[:3])
    _, scale, _ = dynamic_quantize(data)
    steps = data.astype(np.float64) / (float(scale) or 1.0)
    either = np.abs(np.abs(steps - np.floor(steps)) - 0.5) <= DYNAMIC_TIE_REL_DISTANCE * np.maximum(np.abs(steps), 1)
    name = node.inputs[3] if len(node.inputs) > 3 else ""
    zero = values[name].astype(np.float64) if name else np.zeros(())
    centred = np.abs(weight.astype(np.float64) - (zero.reshape(()) if zero.size == 1 else zero))
    return np.asarray(np.matmul(either.astype(np.float64), centred) * float(scale) * np.abs(scales.reshape(-1)))
