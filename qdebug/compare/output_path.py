"""From a node's own error to an output: what the reference's output becomes where nodes err as the backend's do.

The reference's nodes are replayed in the reference's own arithmetic: what it has in codes is rounded to them. A tensor
with an error put in may leave the domain of an operator behind it, such as a root or a logarithm. Then it is clipped to
the range that the two runs recorded of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qdebug.compare.align.layouts import in_one_order, into_stored_order
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.backend_replay import read, real_values
from qdebug.compare.attribute.band import difference, finite_norm, norm, sum_terms
from qdebug.compare.attribute.code_spans import held
from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.measure.joined_parts import JoinedPart
from qdebug.compare.own_error import own_error, own_parts
from qdebug.errors import KernelError, NotRecordedError, QdebugError
from qdebug.model import Node
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.verdict import (
    CONTRIBUTION_ELEMENT_WORK,
    CONTRIBUTION_MAX_WORK,
    CONTRIBUTION_NODE_WORK,
)
from qdebug.numerics.affine import on_grid
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.extents import recorded_sizes, room
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_real, run_segment

__all__ = ["OutputPath"]

_Values = Mapping[str, np.ndarray]
_SMALL = 1 << 16
"""Bytes of a constant that is held on to: to look it up takes longer than to read it."""


class OutputPath:
    """What leads to one output, for one sample and step: errors are added to the reference there, and replayed to it.

    Args:
        graphs: Holds the two graphs against each other.
        output: The output.
        place: Sample and step.
        part: The part of the output that is looked at; None for all of it.

    Attributes:
        why: Why nodes could not be replayed, each reason once, in the order in which they were met.
        last_reason: The one that was met last.
    """

    def __init__(
        self, graphs: GraphCheck, output: PlannedNode, place: tuple[int, int], part: JoinedPart | None
    ) -> None:
        self._graphs, self._output, self._place, self._part = graphs, output, place, part
        self._reference, self._backend = graphs.replays.ref.recording, graphs.replays.be.recording
        self._above = upstream(self._reference.graph, (output.reference_tensor,))
        self._known_work: dict[str, float] = {}
        self._recorded = recorded_sizes(self._reference, place)
        self._small: dict[tuple[str, str], np.ndarray] = {}  # constants, by form and name
        self._left_domain = False
        self.why: dict[str, None] = {}
        self.last_reason = ""

    def own_error(self, entry: PlannedNode) -> np.ndarray | None:
        """Return the error that a node makes itself, in the order that the pair is compared in; None if not known."""
        try:
            return own_error(self._graphs, entry, self._place)
        except (KernelError, NotRecordedError) as error:
            self._note(error)
            return None

    def own_parts(self, entry: PlannedNode) -> Mapping[str, np.ndarray]:
        """Return the parts of a node's own error, see `own_parts`; none where they are not known."""
        try:
            return own_parts(self._graphs, entry, self._place)
        except (KernelError, NotRecordedError):
            return {}

    def relative(self, error: np.ndarray, tensor: str) -> float:
        """Return the norm of an error over that of a reference tensor; infinite if this has no signal.

        NaN if either is not finite.
        """
        signal = finite_norm(real_values(self._reference, tensor, self._place))
        return norm(error) / signal if signal else math.inf

    def whole(self) -> float:
        """Return the norm of the error of the output, or of the part that is looked at, over that of its signal."""
        return self._off(self.signal(), self.recorded())

    def recorded(self) -> np.ndarray:
        """Return the backend's output as the reference keeps it: real values, in its shape."""
        pair, theirs = self._output.pair, self.signal()
        ours = real_values(self._backend, self._output.tensor, self._place)
        _, ours = in_one_order(theirs, pair.reference_view, ours, pair.backend_view)
        return into_stored_order(ours, pair.reference_view).reshape(theirs.shape)

    def _off(self, theirs: np.ndarray, made: np.ndarray) -> float:
        """Return the norm of an error of the output, or of the part that is looked at, over that of its signal."""
        off = difference(theirs, made.reshape(theirs.shape))
        if self._part is not None:
            off, theirs = self._part.of(off), self._part.of(theirs)
        signal = finite_norm(theirs)
        return norm(off) / signal if signal else math.inf

    def replayed(self, entry: PlannedNode) -> float | None:
        """Return what a node's own error alone makes of the output, relative to its signal; None if not known."""
        return self.with_errors([entry])

    def with_errors(self, entries: Sequence[PlannedNode]) -> float | None:
        """Return what the own errors of some nodes make of the output together, relative to its signal.

        None if a node in between cannot be replayed.
        """
        made = self.output_with(entries)
        if made is None:
            return None
        return self._known(self._off(self.signal(), made))

    def _known(self, share: float) -> float | None:
        """Return a share of the output's signal; None, with the reason, if it is no finite number."""
        if math.isfinite(share):
            return share
        self._note(KernelError("The reference's output has no signal to measure an error against."))
        return None

    def signal(self) -> np.ndarray:
        """Return the reference's output, as real values."""
        return real_values(self._reference, self._output.reference_tensor, self._place)

    def output_with(
        self, entries: Sequence[PlannedNode], errors: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> np.ndarray | None:
        """Return what the reference's output becomes where some nodes err.

        Each error is added where the reference, computed with the errors before, has its tensor. The result is finite
        wherever the reference is.

        Args:
            entries: The nodes' tensors.
            errors: The errors, by backend tensor, in the order that the pair is compared in; the own error of a node
                for those that are left out.

        Returns:
            Real values of the output's shape; None if a node in between cannot be replayed.
        """
        made = self._output_with(entries, errors, clipped=False)
        return self._output_with(entries, errors, clipped=True) if made is None and self._left_domain else made

    def _output_with(
        self, entries: Sequence[PlannedNode], errors: Mapping[str, np.ndarray], *, clipped: bool
    ) -> np.ndarray | None:
        at, end = dict[str, list[PlannedNode]](), self._output.reference_tensor
        for entry in entries:
            at.setdefault(entry.reference_tensor, []).append(entry)

        def moved(name: str, values: np.ndarray) -> np.ndarray:
            for entry in at.get(name, ()):
                values = self._moved(entry, values, errors.get(entry.tensor), clipped=clipped)
            return values

        def load(form: Node, name: str) -> np.ndarray:
            if name in at:
                return moved(name, real_values(self._reference, name, self._place))
            return self._read(form, name)

        def run(node: Node, form: Node, opset: Mapping[str, int], values: Mapping[str, np.ndarray]) -> _Values:
            checkpoint()
            made = {name: self._in_codes(name, array) for name, array in run_real(node, form, opset, values).items()}
            for name, array in made.items():
                self._check_finite(node, name, array)
            return {name: moved(name, array) for name, array in made.items()}

        self._left_domain = False
        try:
            with room(recorded=self._recorded):
                made = run_segment(self._nodes_below(at), end, self._reference.graph.opset, load, run)
            if made is None and end in at:
                made = moved(end, self.signal())
        except (KernelError, NotRecordedError) as error:
            if clipped or not self._left_domain:  # else it is tried once more
                self._note(error)
            return None
        theirs = self.signal()
        return None if made is None or made.size != theirs.size else made.reshape(theirs.shape)

    def _read(self, form: Node, name: str) -> np.ndarray:
        """Read an input of a node as the reference has it; small constants once."""
        known = self._small.get((form.name, name))
        if known is None:
            known = read(self._reference, self._place, form, name)
            if known.nbytes <= _SMALL and self._reference.graph.is_constant(name):
                self._small[form.name, name] = known
        return known

    def _moved(self, entry: PlannedNode, values: np.ndarray, own: np.ndarray | None, *, clipped: bool) -> np.ndarray:
        """Add the own error of a node to the reference's values of its tensor; clip them to what was recorded if asked.

        Raises:
            KernelError: The error is not known.
        """
        own = self.own_error(entry) if own is None else own
        if own is None:
            raise KernelError(f"The own error of {entry.tensor!r} is not known.")
        own = into_stored_order(own, entry.pair.reference_view).reshape(values.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            made = np.asarray((values + own).astype(values.dtype))
        return np.clip(made, *self._recorded_range(entry)) if clipped and made.dtype.kind == "f" else made

    def _recorded_range(self, entry: PlannedNode) -> tuple[float | None, float | None]:
        """Return the least and largest finite value that either run recorded of a tensor; None if there is none."""
        theirs = real_values(self._reference, entry.reference_tensor, self._place)
        ours = held(real_values(self._backend, entry.tensor, self._place), clamp_of(entry.pair.backend_view))
        finite = [values[np.isfinite(values)] for values in (theirs, ours)]
        ends = [(values.min(), values.max()) for values in finite if values.size]
        return (float(min(low for low, _ in ends)), float(max(high for _, high in ends))) if ends else (None, None)

    def _in_codes(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return what a replayed node gives, rounded to the codes that the reference has it in, if any."""
        quant = self._reference.graph.tensors[name].quant
        return on_grid(values, quant) if quant is not None and values.dtype.kind == "f" else values

    def _check_finite(self, node: Node, name: str, values: np.ndarray) -> None:
        """Refuse a replayed tensor that is not finite where the reference's is.

        Raises:
            KernelError: It is not.
        """
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return
        if self._reference.has(name, *self._place):
            theirs = real_values(self._reference, name, self._place)
            if theirs.size == values.size and np.isfinite(values[np.isfinite(theirs).reshape(values.shape)]).all():
                return
        self._left_domain = True
        raise KernelError(f"The replay is not finite behind {node.op} {node.name!r}.")

    @property
    def allowed(self) -> float:
        """Work that replays may take: as much as replaying every node in every sample, but not too little."""
        places = len(self._reference.places())
        return max(CONTRIBUTION_MAX_WORK, places * sum(map(self._work, self._reference.graph.nodes)))

    def work(self, entry: PlannedNode) -> float:
        """Return the work of replaying what is below a node, in multiplications."""
        return sum(map(self._work, self._nodes_below({entry.reference_tensor})))

    def _work(self, node: Node) -> float:
        if node.name not in self._known_work:
            form, _ = real_form(node, self._reference.graph.opset)
            self._known_work[node.name] = self._work_of(form)
        return self._known_work[node.name]

    def _work_of(self, form: Node) -> float:
        if not any(form.outputs[:1]):
            return CONTRIBUTION_NODE_WORK
        try:
            shapes = {name: shape_of(self._reference, name, *self._place) for name in form.inputs if name}
            made = shape_of(self._reference, form.outputs[0], *self._place)
        except NotRecordedError:  # it cannot be replayed either
            return CONTRIBUTION_NODE_WORK
        elements = math.prod(made) * (sum_terms(form, shapes, made) + CONTRIBUTION_ELEMENT_WORK)
        return elements + CONTRIBUTION_NODE_WORK

    def _nodes_below(self, starts: Iterable[str]) -> list[Node]:
        """List the reference's nodes from some tensors to the output, in order."""
        reached, nodes = set(starts), list[Node]()
        for node in self._reference.graph.nodes:
            if not reached.isdisjoint(node.inputs) and not self._above.isdisjoint(node.outputs):
                nodes.append(node)
                reached.update(filter(None, node.outputs))
        return nodes

    def _note(self, error: QdebugError) -> None:
        self.last_reason = error.message[0].lower() + error.message[1:].rstrip(".")
        self.why[self.last_reason] = None
