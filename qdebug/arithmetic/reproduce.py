"""Tell quickly whether a known arithmetic reproduces a node: what a comparison asks of every node that differs.

The first known variant that fits is the answer, so that most nodes cost one replay. Which others would do as well, and
step programs that nobody is known to use, are left to `qdebug.compare.explaining.explain`.

Nodes of one operator and types mostly have one arithmetic, and of some nodes several fit. So the usual arithmetic of
such siblings is found first, in the first few with many elements, and is tried before all others. In a node of few
elements, where many would fit by chance, it is believed. An answer depends on the recording alone, and not on what was
asked before, so workers that share a comparison give the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from qdebug.arithmetic.search import known_variants, search_common, search_known
from qdebug.arithmetic.units import Place, Units, UnitSource
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.explanation import LARGE_SIBLINGS_TRIED, VARIANT_MIN_ELEMENTS
from qdebug.replay.evaluate import compute
from qdebug.replay.run import one_thread
from qdebug.replay.variant import Variant, describe

__all__ = ["Reproduced", "ReproductionCheck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """Whether a known arithmetic reproduces a node's output bit for bit.

    Args:
        by: The arithmetic in words; None if none of the known ones does.
        firm: Whether that can hardly be chance: many elements, the arithmetic of a sibling with many, or sums in few
            bits, which foretell the elements that are far off, and their codes.
        variant: The arithmetic; None likewise.
    """

    by: str | None
    firm: bool = False
    variant: Variant | None = None


class _Answer(NamedTuple):
    """The arithmetic that reproduces a node, if one does, and whether the node alone shows that it is no chance."""

    variant: Variant | None = None
    firm: bool = False


class ReproductionCheck:
    """Looks for the arithmetic of nodes.

    Args:
        recording: The backend's recording.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._answers: dict[str, _Answer | None] = {}
        self._usual_of: dict[tuple[object, ...], tuple[Variant, ...]] = {}  # by operator and types

    @cached_property
    def _units(self) -> Units:
        return Units(self._recording)

    def reproduce(self, node: Node, tensor: str) -> Reproduced | None:
        """Look for the arithmetic of a node; None if it only moves codes, is no quantized unit or lacks values.

        Args:
            node: A node of the recording.
            tensor: One of its outputs.
        """
        answer = self._answer(node, tensor)
        if answer is None or answer.variant is None:
            return None if answer is None else Reproduced(by=None)
        firm = answer.firm or answer.variant in self._usual(node, tensor)
        return Reproduced(by=describe(answer.variant), firm=firm, variant=answer.variant)

    def variant(self, node: Node, tensor: str, first: Variant | None = None, *, firmly: bool = False) -> Variant | None:
        """Look for the arithmetic of a node by itself; None if none is known.

        Args:
            node: A node of the recording.
            tensor: One of its outputs.
            first: An arithmetic that is tried before all others.
            firmly: Return none that may give the same bits by chance.
        """
        answer = self._answer(node, tensor) if first is None else self._search(node, tensor, first)
        return None if answer is None or (firmly and not answer.firm) else answer.variant

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
        source = self._units.find(node, tensor)
        if not isinstance(source, UnitSource):
            raise KernelError(f"Node {node.name!r} is no quantized unit.")
        with one_thread():
            return compute(source.unit(place), variant)

    def codes_off(self, node: Node, tensor: str, place: Place) -> int:
        """Return the largest difference in codes between a node's output and the simplest known arithmetic.

        Args:
            node: A node that `reproduce` has an answer for.
            tensor: One of its outputs.
            place: Sample and step.

        Raises:
            KernelError: The node cannot be computed so.
            RecordingError: An operand cannot be read.
        """
        source = self._units.find(node, tensor)
        known = known_variants(source.unit(place)) if isinstance(source, UnitSource) else ()
        if not known:
            raise KernelError(f"No arithmetic is known for node {node.name!r}.")
        made, codes = self.compute(node, tensor, place, known[0]), self._recording.load(tensor, *place)
        if made.dtype.kind not in "iu" or made.size != codes.size:
            raise KernelError(f"Node {node.name!r} gives other codes than were recorded.")
        return int(np.max(np.abs(made.reshape(codes.shape).astype(np.int64) - codes.astype(np.int64)), initial=0))

    def _answer(self, node: Node, tensor: str) -> _Answer | None:
        """Search for the arithmetic of a node once; None if it only moves codes, is no unit or lacks values."""
        if tensor not in self._answers:
            self._answers[tensor] = self._search(node, tensor, *self._usual(node, tensor))
        return self._answers[tensor]

    def _search(self, node: Node, tensor: str, *first: Variant) -> _Answer | None:
        try:
            source = self._source(node, tensor)
            if source is None or source.flaw is not None:
                return None if source is None else _Answer()
            with one_thread():
                finding = search_known(source, first)
        except (KernelError, NotRecordedError, UsageError):
            return None
        if finding.reason is not None or not finding.matching:
            return None if finding.reason is not None else _Answer()
        variant = finding.matching[0]
        firm = finding.elements >= VARIANT_MIN_ELEMENTS or variant.limited_sums is not None
        return _Answer(variant, firm)

    def _source(self, node: Node, tensor: str) -> UnitSource | None:
        source = None if self._units.missing(node, tensor) is not None else self._units.find(node, tensor)
        return source if isinstance(source, UnitSource) and not source.moves else None

    def _usual(self, node: Node, tensor: str) -> tuple[Variant, ...]:
        """Return the arithmetic of the first large siblings of a node: the one of all of them, else that of each."""
        kind = self._kind(node, tensor)
        if kind not in self._usual_of:
            large = islice(filter(self._is_large, self._siblings.get(kind, ())), LARGE_SIBLINGS_TRIED)
            answers = {name: self._search(sibling, name) for sibling, name in large}
            reproduced = {name: each.variant for name, each in answers.items() if each is not None and each.variant}
            found = tuple(dict.fromkeys(reproduced.values()))
            common = self._common(reproduced) if len(found) > 1 else next(iter(found), None)
            self._usual_of[kind] = found if common is None else (common,)
            if common is not None or not found:
                self._answers |= answers | {name: _Answer(common, firm=True) for name in reproduced}
        return self._usual_of[kind]

    def _common(self, tensors: Iterable[str]) -> Variant | None:
        """Return the first known arithmetic that reproduces each of some tensors."""
        graph = self._recording.graph
        found = [self._source(node, name) for name in tensors if (node := graph.producer(name)) is not None]
        with one_thread():
            return search_common([source for source in found if source is not None])

    def _is_large(self, sibling: tuple[Node, str]) -> bool:
        node, tensor = sibling
        if self._units.missing(node, tensor) is not None:
            return False
        shapes = (shape_of(self._recording, tensor, *place) for place in self._units.places(node, tensor))
        return sum(map(math.prod, shapes)) >= VARIANT_MIN_ELEMENTS

    @cached_property
    def _siblings(self) -> dict[tuple[object, ...], list[tuple[Node, str]]]:
        """All nodes with their first output, by operator and types."""
        found: dict[tuple[object, ...], list[tuple[Node, str]]] = {}
        for node in self._recording.graph.nodes:
            for tensor in islice(filter(None, node.outputs), 1):
                found.setdefault(self._kind(node, tensor), []).append((node, tensor))
        return found

    def _kind(self, node: Node, tensor: str) -> tuple[object, ...]:
        tensors = self._recording.graph.tensors
        return node.op, *(tensors[name].dtype for name in (*node.inputs, tensor) if name)
