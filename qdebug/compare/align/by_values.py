"""Finds the reference tensor that holds the values of a backend tensor, where neither names nor graphs lead to one.

The last resort, and only where a harness said its part of a graph in words of its own, or nothing of it: what qdebug
recorded itself is matched by what its nodes do. Values tell less than a graph: behind an error that is large there is
no tensor alike any more, and then none is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.node_match import Answer
from qdebug.compare.align.pairs import Match
from qdebug.compare.align.undeclared_quantization import computes_with_codes, has_loose
from qdebug.model import operators
from qdebug.model.outline import shape_of
from qdebug.model.thresholds.alignment import (
    CLEARER_CANDIDATE_MAX_ERROR_RATIO,
    FUSED_AFTER_PRODUCT_MAX_NODES,
    VALUE_MATCH_MAX_MOMENT_DIFFERENCE,
    VALUE_MATCH_MAX_REL_ERROR,
    VALUE_MATCH_MIN_ELEMENTS,
    VALUE_MATCH_MIN_RUNNER_UP_RATIO,
    VALUE_MATCH_OTHER_PARTNER_RATIO,
    VALUE_MATCH_SURE_REL_ERROR,
    VALUES_READ_MAX_ELEMENTS,
)
from qdebug.numerics.affine import dequantize

__all__ = ["ValueMatcher"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sketch:
    """What is the same in every order of a tensor's elements: its mean and the root of its mean square."""

    mean: float
    rms: float

    def like(self, other: _Sketch) -> bool:
        """Tell whether two tensors can be alike."""
        off = max(abs(self.rms - other.rms), abs(self.mean - other.mean))
        return self.rms > 0 and off <= VALUE_MATCH_MAX_MOMENT_DIFFERENCE * other.rms


class ValueMatcher:
    """Compares values of tensors that have no partner.

    Args:
        ref: The reference run.
        be: The backend run.
    """

    def __init__(self, ref: IndexedRecording, be: IndexedRecording) -> None:
        self._ref, self._be = ref, be
        self._loose = any(has_loose(run.recording.graph) for run in (ref, be))
        self._by_size: dict[int, list[str]] | None = None
        self._sketches: dict[str, _Sketch | None] = {}

    @property
    def looks(self) -> bool:
        """Whether values are looked at: a harness said some of what it recorded in words of its own, or not at all."""
        return self._loose

    def find(self, tensor: str, taken: Callable[[str], bool]) -> Answer | None:
        """Find the reference tensor whose values are a backend tensor's; None if none stands out.

        Args:
            tensor: The backend tensor.
            taken: Tells of a reference tensor whether it is another's partner.
        """
        if not self._loose or not self._be.recording.has(tensor):
            return None
        size = math.prod(shape_of(self._be.recording, tensor))
        candidates = self._of_size(size) if VALUE_MATCH_MIN_ELEMENTS <= size <= VALUES_READ_MAX_ELEMENTS else []
        free = [name for name in candidates if name not in self._be.graph.tensors and not taken(name)]
        if not free:
            return None
        ours = _values(self._be, tensor)
        own = _sketched(ours)
        if own is None:
            return None
        found = self._ranked(free, ours, own)
        if not found:
            return None
        error, _, best = found[0]
        others = (
            self._ranked([name for name in candidates if name not in free], ours, own)
            if error > VALUE_MATCH_SURE_REL_ERROR
            else []
        )
        if others and others[0][0] < VALUE_MATCH_OTHER_PARTNER_RATIO * error:
            return None  # it has the values of another's partner
        rivals = [name for other, _, name in found[1:] if other < VALUE_MATCH_MIN_RUNNER_UP_RATIO * error]
        nearest = _values(self._ref, best)
        if any(_distance(nearest, _values(self._ref, name)) > error for name in rivals):
            return None
        first = min((best, *rivals), key=free.index)
        if self._stage(tensor, first) != first:
            return None
        reason = f"no name and no node leads to it; its values are nearest to those of {first!r}"
        return Answer(tensor=first, reason=reason, match=Match.DATA)

    def _ranked(self, names: Sequence[str], ours: np.ndarray, own: _Sketch) -> list[tuple[float, int, str]]:
        """Give the reference tensors that are near some values, with their distance and place, the nearest first."""
        found: list[tuple[float, int, str]] = []
        for place, name in enumerate(names):
            known = self._sketch(name)
            if known is not None and own.like(known):
                found.append((_distance(_values(self._ref, name), ours), place, name))
        return [entry for entry in sorted(found) if entry[0] < VALUE_MATCH_MAX_REL_ERROR]

    def at_its_stage(self, tensor: str, answer: Answer) -> Answer:
        """Give the answer that a tensor's values bear out: one side may do in one node what takes the other two.

        What is added to a product, and the activation behind it, is not always said of the node that does it.

        Args:
            tensor: The backend tensor.
            answer: What its node leads to.
        """
        if answer.tensor is None or not self._loose:
            return answer
        stage = self._stage(tensor, answer.tensor)
        if stage == answer.tensor:
            return answer
        if stage is None:
            reason = f"the reference computes it together with what follows, to {answer.tensor!r}, as the values tell"
            return Answer(tensor=None, reason=reason)
        reason = f"{answer.reason}, and what follows there up to {stage!r}, as the values tell"
        return Answer(tensor=stage, reason=reason, match=Match.FUSED)

    def before_clamp(self, tensor: str, reference: str) -> str | None:
        """Give what enters the reference's Relu or Clip if its result lends its name to that: codes do its work.

        Args:
            tensor: The backend tensor, of which nothing but its name is known.
            reference: The reference tensor of that name.
        """
        node, clamp = self._be.recording.graph.producer(tensor), self._ref.graph.producer(reference)
        if clamp is None or not operators.of(clamp.op).clamps or not any(clamp.inputs):
            return None
        if tensor in self._be.graph.outputs:
            return None
        if node is None or not self._coded or not self._be.recording.has(tensor):
            return None
        source = clamp.inputs[0]
        if not all(map(self._ref.recording.has, (source, reference))):
            return None
        ours = _values(self._be, tensor)
        before, after = (_distance(_values(self._ref, name), ours) for name in (source, reference))
        return source if before < CLEARER_CANDIDATE_MAX_ERROR_RATIO * after else None

    @cached_property
    def _coded(self) -> bool:
        return self._loose and has_loose(self._be.recording.graph) and computes_with_codes(self._be.recording)

    def _stage(self, tensor: str, reference: str) -> str | None:
        """Give the tensor among those made of a reference tensor in turn that a backend tensor is; None if a later one.

        Where the values do not tell, that is the reference tensor itself.
        """
        if not (self._ref.recording.has(reference) and self._be.recording.has(tensor)):
            return reference
        theirs, ours = _values(self._ref, reference), _values(self._be, tensor)
        error = _distance(theirs, ours) if theirs.size == ours.size else 0.0
        if not error > VALUE_MATCH_SURE_REL_ERROR:
            return reference
        for name in _in_turn(self._ref, reference):
            if _distance(_values(self._ref, name), ours) < min(
                VALUE_MATCH_OTHER_PARTNER_RATIO * error, VALUE_MATCH_MAX_REL_ERROR
            ):
                return name
        for name in _in_turn(self._be, tensor):
            if _distance(theirs, _values(self._be, name)) < min(
                VALUE_MATCH_OTHER_PARTNER_RATIO * error, VALUE_MATCH_MAX_REL_ERROR
            ):
                return None
        return reference

    def _of_size(self, size: int) -> list[str]:
        if self._by_size is None:
            self._by_size = {}
            recorded = self._ref.recorded
            for name in self._ref.recording.names:
                if name in recorded and self._ref.recording.has(name) and not self._ref.of_shape(name):
                    self._by_size.setdefault(math.prod(shape_of(self._ref.recording, name)), []).append(name)
        return self._by_size.get(size, [])

    def _sketch(self, name: str) -> _Sketch | None:
        if name not in self._sketches:
            self._sketches[name] = _sketched(_values(self._ref, name))
        return self._sketches[name]


def _in_turn(run: IndexedRecording, tensor: str) -> Iterator[str]:
    """Give what is made of a tensor by adding constants, scaling and activations, as far as nothing else reads it."""
    size = math.prod(shape_of(run.recording, tensor))
    for _ in range(FUSED_AFTER_PRODUCT_MAX_NODES):
        readers = [node for node in run.consumers(tensor) if not run.of_shape(node.outputs[0])]
        if len(readers) != 1 or not operators.plain(readers[0]).folded_before:
            return
        tensor = readers[0].outputs[0]
        if run.recording.has(tensor) and math.prod(shape_of(run.recording, tensor)) == size:
            yield tensor


def _values(run: IndexedRecording, tensor: str) -> np.ndarray:
    values = dequantize(run.recording.load(tensor), run.graph.tensors[tensor].quant)
    return np.asarray(values, np.float64) if values.dtype.kind in "fiu" else np.asarray(values, np.float32)


def _sketched(values: np.ndarray) -> _Sketch | None:
    """Sketch a tensor; None where its values tell nothing: they are all one, or not finite."""
    if not np.isfinite(values).all() or np.ptp(values) == 0:
        return None
    return _Sketch(mean=float(np.mean(values)), rms=float(np.sqrt(np.mean(np.square(values)))))


def _distance(reference: np.ndarray, backend: np.ndarray) -> float:
    """Give norm(backend - reference) / norm(reference) in the order of dimensions in which that is least."""
    norm = float(np.linalg.norm(reference))
    if not norm:
        return math.inf
    return (
        min(
            (float(np.linalg.norm(turned - reference)) for turned in _turns(backend, reference.shape)), default=math.inf
        )
        / norm
    )


def _turns(array: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Give an array in each order of dimensions, channels last or second first of all, that gives it some extents."""
    plain = tuple(extent for extent in shape if extent != 1)
    squeezed = array.reshape([extent for extent in array.shape if extent != 1])
    if squeezed.ndim > 4 or squeezed.ndim != len(plain):
        return
    for order in permutations(range(squeezed.ndim)):
        turned = squeezed.transpose(order)
        if turned.shape == plain:
            yield turned.reshape(shape)
