"""Checks quickly whether a known arithmetic reproduces a node. A comparison does this for every node that differs.

The search stops at the first known variant that fits, so most nodes cost one replay. Other fitting variants and step
programs of no known backend are left to `qdebug.compare.explaining.explain`.

Nodes of the same operator and types mostly share one arithmetic, and several variants may fit a single node. So the
usual arithmetic of such siblings is found first, from the first few with many elements, and is tried before all others.
It is also accepted for a node with few elements, which many variants fit by chance. Answers depend only on the
recording and not on earlier calls, so all workers of a comparison agree.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
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
        by: The arithmetic in words, or None.
        firm: Whether chance is ruled out: by many elements, by a sibling with many elements and this arithmetic, or
            because the arithmetic sums in few bits, which predicts large errors at certain elements.
        variant: The arithmetic, or None.
    """

    by: str | None
    firm: bool = False
    variant: Variant | None = None


class _Answer(NamedTuple):
    """The arithmetic that reproduces a node, if any, and whether the node rules out chance without its siblings."""

    variant: Variant | None = None
    firm: bool = False


class ReproductionCheck:
    """Finds known arithmetics that reproduce nodes of a recording.

    Args:
        recording: The backend's recording.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._answers: dict[str, _Answer | None] = {}
        self._usual_by_kind: dict[tuple[object, ...], tuple[Variant, ...]] = {}  # by operator and types

    @cached_property
    def _units(self) -> Units:
        return Units(self._recording)

    def reproduce(self, node: Node, tensor: str) -> Reproduced | None:
        """Find the arithmetic of a node, or return None if it only moves codes, is not a unit or was not recorded.

        Args:
            node: A node of the recording.
            tensor: One of its outputs.
        """
        answer = self._find_answer(node, tensor)
        if answer is None or answer.variant is None:
            return None if answer is None else Reproduced(by=None)
        firm = answer.firm or answer.variant in self._usual_variants(node, tensor)
        return Reproduced(by=describe(answer.variant), firm=firm, variant=answer.variant)

    def variant(self, node: Node, tensor: str, first: Variant | None = None, *, firmly: bool = False) -> Variant | None:
        """Return the arithmetic of a node, or None if no known one reproduces it.

        Args:
            node: A node of the recording.
            tensor: One of its outputs.
            first: An arithmetic to try before all others, in place of the usual one of its siblings.
            firmly: Whether to reject an arithmetic that may fit by chance.
        """
        answer = self._find_answer(node, tensor) if first is None else self._search(node, tensor, first)
        return None if answer is None or (firmly and not answer.firm) else answer.variant

    def compute(self, node: Node, tensor: str, place: Place, variant: Variant) -> np.ndarray:
        """Compute a node with an arithmetic on its recorded inputs.

        Args:
            node: A node that `reproduce` has an answer for.
            tensor: One of its outputs.
            place: Sample and step.
            variant: The arithmetic.

        Returns:
            Codes, in the node's own layout.

        Raises:
            KernelError: The node cannot be computed this way.
            RecordingError: An operand cannot be read.
        """
        source = self._units.find(node, tensor)
        if not isinstance(source, UnitSource):
            raise KernelError(f"Node {node.name!r} is not a quantized unit.")
        with one_thread():
            return compute(source.unit(place), variant)

    def compute_each(
        self, node: Node, tensor: str, places: Collection[Place], variant: Variant
    ) -> Iterator[tuple[Place, np.ndarray]]:
        """Compute a node with an arithmetic at several samples and steps, together where that gives the same results.

        Args:
            node: A node that `reproduce` has an answer for.
            tensor: One of its outputs.
            places: Samples and steps.
            variant: The arithmetic.

        Yields:
            Each place with its codes, flat, in the node's own layout.

        Raises:
            KernelError: The node cannot be computed this way.
            NotRecordedError: The node was not recorded at a place.
            RecordingError: An operand cannot be read.
        """
        source = self._units.find(node, tensor)
        if not isinstance(source, UnitSource):
            raise KernelError(f"Node {node.name!r} is not a quantized unit.")
        wanted = set(places)
        if not wanted.issubset(source.places):
            raise NotRecordedError(f"Node {node.name!r} was not recorded in every sample.")
        for batch in source.batches:
            if wanted.isdisjoint(batch):
                continue
            with one_thread():
                codes = compute(source.unit(*batch), variant).reshape(len(batch), -1)
            yield from ((place, part) for place, part in zip(batch, codes, strict=True) if place in wanted)

    def codes_off(self, node: Node, tensor: str, place: Place) -> int:
        """Return the largest error of a node's output in codes, compared with the simplest known arithmetic.

        Args:
            node: A node that `reproduce` has an answer for.
            tensor: One of its outputs.
            place: Sample and step.

        Raises:
            KernelError: The node cannot be computed this way.
            RecordingError: An operand cannot be read.
        """
        source = self._units.find(node, tensor)
        variants = known_variants(source.unit(place)) if isinstance(source, UnitSource) else ()
        if not variants:
            raise KernelError(f"No arithmetic is known for node {node.name!r}.")
        computed, codes = self.compute(node, tensor, place, variants[0]), self._recording.load(tensor, *place)
        if computed.dtype.kind not in "iu" or computed.size != codes.size:
            raise KernelError(f"Node {node.name!r} does not reproduce the recorded codes.")
        return int(np.max(np.abs(computed.reshape(codes.shape).astype(np.int64) - codes.astype(np.int64)), initial=0))

    def _find_answer(self, node: Node, tensor: str) -> _Answer | None:
        """Find the arithmetic of a node, cached. None for the same reasons as in `reproduce`."""
        if tensor not in self._answers:
            self._answers[tensor] = self._search(node, tensor, *self._usual_variants(node, tensor))
        return self._answers[tensor]

    def _search(self, node: Node, tensor: str, *first: Variant) -> _Answer | None:
        try:
            source = self._find_source(node, tensor)
            if source is None or source.bad_scale_text is not None:
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

    def _find_source(self, node: Node, tensor: str) -> UnitSource | None:
        source = None if self._units.missing(node, tensor) is not None else self._units.find(node, tensor)
        return source if isinstance(source, UnitSource) and not source.only_moves_codes else None

    def _usual_variants(self, node: Node, tensor: str) -> tuple[Variant, ...]:
        """Return the arithmetic that reproduces the first large siblings of a node, or else the arithmetic of each."""
        kind = self._sibling_key(node, tensor)
        if kind not in self._usual_by_kind:
            large = islice(filter(self._is_large, self._siblings.get(kind, ())), LARGE_SIBLINGS_TRIED)
            answers = {name: self._search(sibling, name) for sibling, name in large}
            reproduced = {
                name: answer.variant for name, answer in answers.items() if answer is not None and answer.variant
            }
            distinct = tuple(dict.fromkeys(reproduced.values()))
            common = self._common_variant(reproduced) if len(distinct) > 1 else next(iter(distinct), None)
            self._usual_by_kind[kind] = distinct if common is None else (common,)
            if common is not None or not distinct:
                self._answers |= answers | {name: _Answer(common, firm=True) for name in reproduced}
        return self._usual_by_kind[kind]

    def _common_variant(self, tensors: Iterable[str]) -> Variant | None:
        """Return the first known arithmetic that reproduces each of the given tensors."""
        graph = self._recording.graph
        sources = [self._find_source(node, name) for name in tensors if (node := graph.producer(name)) is not None]
        with one_thread():
            return search_common([source for source in sources if source is not None])

    def _is_large(self, sibling: tuple[Node, str]) -> bool:
        node, tensor = sibling
        if self._units.missing(node, tensor) is not None:
            return False
        shapes = (shape_of(self._recording, tensor, *place) for place in self._units.places(node, tensor))
        return sum(map(math.prod, shapes)) >= VARIANT_MIN_ELEMENTS

    @cached_property
    def _siblings(self) -> dict[tuple[object, ...], list[tuple[Node, str]]]:
        """All nodes with their first output, by operator and types."""
        siblings: dict[tuple[object, ...], list[tuple[Node, str]]] = {}
        for node in self._recording.graph.nodes:
            for tensor in islice(filter(None, node.outputs), 1):
                siblings.setdefault(self._sibling_key(node, tensor), []).append((node, tensor))
        return siblings

    def _sibling_key(self, node: Node, tensor: str) -> tuple[object, ...]:
        tensors = self._recording.graph.tensors
        return node.op, *(tensors[name].dtype for name in (*node.inputs, tensor) if name)
