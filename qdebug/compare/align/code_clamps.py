"""Clamps that one side leaves to its codes: a Relu or Clip that the range of the codes behind it does anyway."""

from __future__ import annotations

from qdebug.compare.align.clamps import bounds_of, code_span, codes_clamp, is_after_codes
from qdebug.compare.align.value_classes import Run
from qdebug.model import Node, operators
from qdebug.model.operators import same_family

__all__ = ["CodeClamps"]


class CodeClamps:
    """Finds such clamps on either side.

    Args:
        reference: The reference run.
        backend: The backend run.
    """

    def __init__(self, reference: Run, backend: Run) -> None:
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
            if not (row.goes_into_weights or row.keeps_values) or len(self._ref.classes.data_inputs(before)) != 1:
                return None
            before = self._ref.graph.producer(self._ref.classes.data_inputs(before)[0])
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
        readers = self._ref.classes.consumers(reference)
        if len(readers) != 1 or not operators.of(readers[0].op).clamps or is_after_codes(self._be, tensor):
            return None
        return readers[0].outputs[0] if self._codes_follow(tensor, readers[0]) else None

    def is_clamped_later(self, tensor: str, reference: str, clamp: Node) -> bool:
        """Tell whether the reference leaves a backend's Relu or Clip to the codes that a tensor turns into."""
        theirs = self._ref.graph.producer(reference) if operators.of(clamp.op).clamps else None
        if theirs is None or same_family(theirs, clamp):
            return False
        form = self.after_codes(tensor, reference)
        coded = [m for m in self._ref.classes.members(form) if codes_clamp(self._ref, m, bounds_of(self._be, clamp))]
        return form != reference and bool(coded)

    def after_codes(self, tensor: str, reference: str) -> str:
        """Choose among the forms of a reference tensor: after its codes if there are any, of the same name if so."""
        members = self._ref.classes.members(reference)
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
