"""What the range of a tensor's codes does in place of a Relu or Clip, on either side."""

from __future__ import annotations

import numpy as np

from qdebug.compare.align.expand import says_nothing
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.model import Node, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.operators import clamp_bounds, is_foreign, operands, same_family
from qdebug.numerics.affine import dequantize

__all__ = [
    "CodeClamps",
    "bounds_of",
    "clamped_inside",
    "code_span",
    "codes_clamp",
    "is_after_codes",
    "is_codes_without_scale",
]


def bounds_of(run: IndexedRecording, node: Node) -> tuple[float, float] | None:
    """Give the interval that a Relu or Clip of a run clamps to, if it is known."""
    recording = run.recording
    constants = {name: recording.load(name) for name in node.inputs[1:] if name and recording.has(name)}
    return clamp_bounds(node, constants)


def codes_clamp(run: IndexedRecording, tensor: str, bounds: tuple[float, float] | None) -> bool:
    """Tell whether the range of a tensor's codes does what a clamp to an interval does.

    Args:
        run: The run that has the tensor.
        tensor: Its name; a tensor without integer codes clamps nothing.
        bounds: The interval; None clamps nothing that is known.
    """
    quant = run.graph.tensors[tensor].quant
    span = None if quant is None or bounds is None else code_span(run, tensor)
    if quant is None or span is None or bounds is None:
        return False
    step = float(quant.scale.item()) if quant.scale.size == 1 else float(np.max(quant.scale))
    return span[0] >= bounds[0] - step / 2 and span[1] <= bounds[1] + step / 2


def clamped_inside(
    run: IndexedRecording, tensor: str, other: IndexedRecording, before: str, bounds: tuple[float, float] | None
) -> bool:
    """Tell whether the real values of a tensor show a Relu or Clip that the other run does in a node of its own.

    Not every harness says what its convolutions have inside. Nobody looks where a recording says all of what it did.

    Args:
        run: The run that may have one inside the node of the tensor.
        tensor: The tensor.
        other: The other run.
        before: What enters its Relu or Clip.
        bounds: The interval of that.
    """
    node = run.recording.graph.producer(tensor)
    if bounds is None or node is None or not (is_foreign(node) or says_nothing(node)):
        return False
    if not (run.recording.has(tensor) and other.recording.has(before)):
        return False
    return _within(run, tensor, bounds) and not _within(other, before, bounds)


def _within(run: IndexedRecording, tensor: str, bounds: tuple[float, float]) -> bool:
    values = dequantize(run.recording.load(tensor), run.graph.tensors[tensor].quant)
    return bool(values.size) and bool(np.min(values) >= bounds[0]) and bool(np.max(values) <= bounds[1])


def code_span(run: IndexedRecording, tensor: str) -> tuple[float, float] | None:
    """Give the least and the greatest real number that a tensor's integer codes can stand for; None without codes."""
    quant = run.graph.tensors[tensor].quant
    if quant is None or quant.qmin is None or quant.qmax is None:
        return None
    if quant.scale.size == 1:  # as numpy does it, in a tenth of the time
        step, zero_point = float(quant.scale.item()), int(quant.zero_point.item())
        return step * (quant.qmin - zero_point), step * (quant.qmax - zero_point)
    low = float(np.min(quant.scale * (quant.qmin - quant.zero_point)))
    return low, float(np.max(quant.scale * (quant.qmax - quant.zero_point)))


def is_after_codes(run: IndexedRecording, tensor: str) -> bool:
    """Tell whether a tensor has been through codes: it is made of them, or they were made real numbers again."""
    while True:
        if run.graph.tensors[tensor].quant is not None:
            return True
        node = run.graph.producer(tensor)
        if node is None:
            return False
        if operators.of(node.op).dequantizes:
            return True
        source = run.handed_on(node)
        if source is None:
            return False
        tensor = source


def is_codes_without_scale(run: IndexedRecording, tensor: str) -> bool:
    """Tell whether a tensor is of codes that a product sums up as they are, and nobody states what one stands for.

    Its scale may have gone into a constant that the sums are multiplied with: then no real numbers are known of it.
    """
    info = run.graph.tensors[tensor]
    if info.quant is not None or info.dtype is None or not is_integer(info.dtype):
        return False
    waiting, seen = [tensor], {tensor}
    while waiting:
        name = waiting.pop()
        for node in run.graph.consumers(name):
            row = operators.of(node.op)
            if row.sums_codes and name in node.inputs[:2]:
                return True
            made = set(node.outputs) - seen - {""} if row.moves and name in operands(node) else set()
            waiting += made
            seen |= made
    return False


class CodeClamps:
    """Finds such clamps on either side.

    Args:
        reference: The reference run.
        backend: The backend run.
    """

    def __init__(self, reference: IndexedRecording, backend: IndexedRecording) -> None:
        self._ref, self._be = reference, backend

    def before_clamp(self, tensor: str, reference: str) -> str | None:
        """Give the input of the reference's Relu or Clip whose work the backend leaves to the codes that follow."""
        theirs = self._ref.graph.producer(reference)
        if theirs is None or not operators.of(theirs.op).clamps:
            return None
        ours = self._be.graph.producer(tensor)
        if ours is None or is_after_codes(self._be, tensor):
            return None
        if same_family(ours, theirs):
            return None
        before = self._ref.graph.producer(theirs.inputs[0])
        while before is not None and not same_family(before, ours):
            row = operators.of(before.op)
            if not (row.goes_into_weights or row.keeps_values) or len(self._ref.data_inputs(before)) != 1:
                return None
            before = self._ref.graph.producer(self._ref.data_inputs(before)[0])
        if before is None:
            return None
        return theirs.inputs[0] if self._codes_follow(tensor, theirs) else None

    def _codes_follow(self, tensor: str, clamp: Node) -> bool:
        """Tell whether all that reads a backend tensor turns it into codes that do what a reference clamp does."""
        bounds = bounds_of(self._ref, clamp)
        readers = self._be.graph.consumers(tensor)
        return bool(readers) and all(
            operators.of(node.op).quantizes and codes_clamp(self._be, node.outputs[0], bounds) for node in readers
        )

    def clamp_after(self, tensor: str, reference: str) -> str | None:
        """Give the result of the reference's Relu or Clip that the codes of a backend tensor's readers stand for."""
        readers = self._ref.consumers(reference)
        if len(readers) != 1 or not operators.of(readers[0].op).clamps or is_after_codes(self._be, tensor):
            return None
        return readers[0].outputs[0] if self._codes_follow(tensor, readers[0]) else None

    def is_clamped_later(self, tensor: str, reference: str, clamp: Node) -> bool:
        """Tell whether the reference leaves a backend's Relu or Clip to the codes that a tensor turns into."""
        theirs = self._ref.graph.producer(reference) if operators.of(clamp.op).clamps else None
        if theirs is None or same_family(theirs, clamp):
            return False
        form = self.after_codes(tensor, reference)
        coded = [m for m in self._ref.members(form) if codes_clamp(self._ref, m, bounds_of(self._be, clamp))]
        return form != reference and bool(coded)

    def after_codes(self, tensor: str, reference: str) -> str:
        """Choose among the forms of a reference tensor: after its codes if there are any, of the same name if so."""
        members = self._ref.members(reference)
        after = [name for name in members if is_after_codes(self._ref, name)]
        if not after:
            return reference
        if tensor in after:
            return tensor
        coded = self._be.graph.tensors[tensor].quant is not None
        recorded = [name for name in after if name in self._ref.recorded] or after
        alike = [name for name in recorded if (self._ref.graph.tensors[name].quant is not None) == coded]
        return next(iter((*alike, *recorded, reference)))

    def span_of_readers(self, tensor: str) -> tuple[float, float] | None:
        """Give the range of the codes that all that reads a backend tensor makes of it; None if there is not one."""
        readers = self._be.graph.consumers(tensor)
        if not readers or not all(operators.of(node.op).quantizes for node in readers):
            return None
        spans = {code_span(self._be, node.outputs[0]) for node in readers}
        if len(spans) != 1:
            return None
        return spans.pop()
