"""Tell quickly whether a known arithmetic reproduces a node: what a comparison asks of every node that differs.

The arithmetic that reproduced the last nodes of the same kind and types is tried first, so that most nodes cost one
replay. Which others would do as well, and step programs that nobody is known to use, are left to
`qdebug.compare.explaining.explain`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.search import search_known
from qdebug.arithmetic.units import Place, Units, UnitSource
from qdebug.errors import KernelError, QdebugError
from qdebug.model import Node, Recording
from qdebug.model.thresholds.explanation import VARIANT_MIN_ELEMENTS, VARIANTS_TRIED_FIRST
from qdebug.replay.evaluate import compute
from qdebug.replay.run import one_thread
from qdebug.replay.variant import Variant, describe

__all__ = ["Reproduced", "ReproductionCheck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """Whether a known arithmetic reproduces a node's output bit for bit.

    Args:
        by: The arithmetic in words; None if none of the known ones does.
        firm: Whether that can hardly be chance: many elements, or the arithmetic of siblings with many.
        variant: The arithmetic; None likewise.
    """

    by: str | None
    firm: bool = False
    variant: Variant | None = None


class ReproductionCheck:
    """Looks for the arithmetic of one node after the other.

    Args:
        recording: The backend's recording.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._units: Units | None = None
        self._last: dict[tuple[object, ...], list[Variant]] = {}
        self._firm: set[tuple[object, ...]] = set()

    def reproduce(self, node: Node, tensor: str, *, first: Variant | None = None) -> Reproduced | None:
        """Look for the arithmetic of a node; None if it only moves codes, is no quantized unit or lacks values.

        Args:
            node: A node of the recording.
            tensor: One of its outputs.
            first: An arithmetic that is tried before others.
        """
        self._units = self._units or Units(self._recording)
        try:
            if self._units.missing(node, tensor) is not None:
                return None
            source = self._units.find(node, tensor)
            if not isinstance(source, UnitSource) or source.moves:
                return None
            if source.flaw is not None:
                return Reproduced(by=None)
            key = node.op, tuple(self._recording.graph.tensors[name].dtype for name in (*node.inputs, tensor) if name)
            known = [*([] if first is None else [first]), *self._last.get(key, [])]
            with one_thread():
                finding = search_known(source, known)
        except QdebugError:
            return None
        if finding.reason is not None:
            return None
        if not finding.matching:
            return Reproduced(by=None)
        variant = finding.matching[0]
        self._last[key] = [variant, *(other for other in known if other != variant)][:VARIANTS_TRIED_FIRST]
        if finding.elements >= VARIANT_MIN_ELEMENTS:
            self._firm.add((*key, variant))
        return Reproduced(by=describe(variant), firm=(*key, variant) in self._firm, variant=variant)

    def compute(self, node: Node, tensor: str, place: Place, variant: Variant) -> np.ndarray:
        """Compute a node by some arithmetic on its recorded inputs.

        Args:
            node: A node that `reproduce` has an answer for.
            tensor: One of its outputs.
            place: Sample and step.
            variant: The arithmetic.

        Returns:
            Codes, in the node's own layout.

        Raises:
            KernelError: The node cannot be computed so.
            RecordingError: An operand cannot be read.
        """
        self._units = self._units or Units(self._recording)
        source = self._units.find(node, tensor)
        if not isinstance(source, UnitSource):
            raise KernelError(f"Node {node.name!r} is no quantized unit.")
        with one_thread():
            return compute(source.unit(place), variant)
