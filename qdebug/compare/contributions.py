"""What each node's own error makes of a network's output: how a net goes wrong without a node that is wrong.

The error that a node makes itself is added to what the reference recorded of its tensor, and the reference's nodes
below are replayed with it: what the output then loses is that node's contribution. Contributions to an output need not
add up, since errors of one sign do and others do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from qdebug.compare.align.layouts import in_one_order, into_stored_order
from qdebug.compare.attribute.backend_replay import read, real_values
from qdebug.compare.attribute.band import minus, norm, sum_terms
from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.measure.joined_parts import JoinedPart
from qdebug.compare.result.result import Contributions, Contributor, Together
from qdebug.compare.result.result_table import ResultTable
from qdebug.errors import KernelError, QdebugError, RecordingError
from qdebug.model import Node
from qdebug.model.outline import shape_of
from qdebug.model.recording import places_of
from qdebug.model.thresholds.verdict import (
    CONTRIBUTION_ELEMENT_WORK,
    CONTRIBUTION_MAX_WORK,
    CONTRIBUTION_NODE_WORK,
    CONTRIBUTORS_NAMED,
)
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.extents import recorded_room
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_real, run_segment

__all__ = ["contributions"]

_Values = Mapping[str, np.ndarray]


def contributions(
    graphs: GraphCheck,
    plan: Sequence[PlannedNode],
    of: ResultTable,
    output: PlannedNode,
    *,
    most: float | None = None,
    part: JoinedPart | None = None,
) -> Contributions:
    """Replay the own error of each node above an output to that output, in the sample that comes out worst there.

    Those with the largest bound come first. Where that is too much work, or there is no replay, the bound stands: the
    node's own error relative to its signal, times the growth of the whole relative error from there to the output.

    Args:
        graphs: Holds the two graphs against each other.
        plan: What was compared.
        of: How it came out.
        output: The output.
        most: Work after which no more is replayed, in multiplications; if None, as much as the thresholds say.
        part: The part of the output that is looked at; None for all of it.
    """
    path = _Path(graphs, output, _worst_place(graphs, of, output), part)
    above = upstream(graphs.replays.be.recording.graph, (output.tensor,))
    at_output = float(of.carried[of.rows[output.tensor]]) if part is None else path.whole()
    bounds: list[tuple[float, PlannedNode]] = []
    unknown = 0
    for entry in (each for each in plan if each.tensor in above and each.op != "Input"):
        checkpoint()
        own, carried = path.own_error(entry), float(of.carried[of.rows[entry.tensor]])
        if own is None or not math.isfinite(carried):
            unknown += 1
        elif norm(own) and carried:
            bounds.append((path.relative(own, entry.reference_tensor) * at_output / carried, entry))
    found: list[Contributor] = []
    left = path.allowed if most is None else most
    for bound, entry in sorted(bounds, key=lambda item: -item[0]):
        checkpoint()
        exact = None
        left -= path.work(entry) if left >= 0 else 0
        if left >= 0:
            exact = path.replayed(entry)
        else:
            path.why["replaying all would take too long"] = None
        share = bound if exact is None else exact
        found.append(
            Contributor(
                node=entry.node,
                tensor=entry.tensor,
                output=output.tensor,
                sqnr_db=_decibels(share),
                how="bounded" if exact is None else "exact",
            )
        )
    ordered = tuple(sorted(found, key=lambda each: (each.how != "exact", each.sqnr_db)))
    together = _together(path, ordered, {entry.tensor: entry for _, entry in bounds}, complete=not unknown)
    return Contributions(nodes=ordered, unknown=unknown, why=tuple(path.why), together=together)


def _together(
    path: _Path, ordered: Sequence[Contributor], entries: Mapping[str, PlannedNode], *, complete: bool
) -> Together | None:
    """Replay the errors of the nodes that contribute most at once, and those of all others.

    Args:
        path: What leads to the output.
        ordered: The contributions, the most first.
        entries: All tensors whose own error is known, by name.
        complete: Whether these are all that have one.
    """
    first = [each for each in ordered if each.how == "exact"][:CONTRIBUTORS_NAMED]
    if len(first) < 2:
        return None  # of one node its contribution says it
    named = {each.tensor for each in first}
    share = path.with_errors([entries[tensor] for tensor in named])
    if share is None:
        return None
    others = [entry for tensor, entry in entries.items() if tensor not in named]
    rest = path.with_errors(others) if complete and others else None
    return Together(
        nodes=tuple(each.node for each in first),
        sqnr_db=_decibels(share),
        without_db=None if rest is None else _decibels(rest),
    )


def _decibels(share: float) -> float:
    """Return the SQNR of an error relative to its signal."""
    return -20 * math.log10(share) if share else math.inf


def _worst_place(graphs: GraphCheck, of: ResultTable, output: PlannedNode) -> tuple[int, int]:
    """Return the sample and step in which an output is worst, relative to its signal."""
    reference, backend = graphs.replays.ref.recording, graphs.replays.be.recording
    samples = of[of.rows[output.tensor]].samples
    worst = min(samples, key=lambda each: math.inf if each.sqnr_db is None else each.sqnr_db, default=None)
    places = [each for each in recorded_places(reference, backend, output) if worst is None or each[0] == worst.sample]

    def off(place: tuple[int, int]) -> float:
        theirs = real_values(reference, output.reference_tensor, place)
        ours = real_values(backend, output.tensor, place)
        theirs, ours = in_one_order(theirs, output.pair.reference_view, ours, output.pair.backend_view)
        return norm(minus(theirs, ours.reshape(theirs.shape))) / (norm(theirs) or 1.0)

    return max(places, key=off) if len(places) > 1 else next(iter(places), (0, 0))


class _Path:
    """What leads to one output, for one sample and step.

    Args:
        graphs: Holds the two graphs against each other.
        output: The output.
        place: Sample and step.
        part: The part of the output that is looked at; None for all of it.

    Attributes:
        why: Why nodes could not be replayed, each reason once, in the order in which they were met.
    """

    def __init__(
        self, graphs: GraphCheck, output: PlannedNode, place: tuple[int, int], part: JoinedPart | None
    ) -> None:
        self._graphs, self._output, self._place, self._part = graphs, output, place, part
        self._reference, self._backend = graphs.replays.ref.recording, graphs.replays.be.recording
        self._above = upstream(self._reference.graph, (output.reference_tensor,))
        self._known_work: dict[str, float] = {}
        self.why: dict[str, None] = {}

    def own_error(self, entry: PlannedNode) -> np.ndarray | None:
        """Return the error that a node makes itself, in the order that the pair is compared in; None if not known."""
        try:
            known = self._graphs.of(entry)
            if known is None:
                raise KernelError(f"What leads to {entry.tensor!r} is not known.")
            return known.own_error(self._place)
        except (KernelError, RecordingError) as error:
            self._note(error)
            return None

    def relative(self, error: np.ndarray, tensor: str) -> float:
        """Return the norm of an error over that of a reference tensor; infinite if this has no signal."""
        signal = norm(real_values(self._reference, tensor, self._place))
        return norm(error) / signal if signal else math.inf

    def whole(self) -> float:
        """Return the norm of the error of the output, or of the part that is looked at, over that of its signal."""
        entry = self._output
        theirs = real_values(self._reference, entry.reference_tensor, self._place)
        return self._off(theirs, real_values(self._backend, entry.tensor, self._place))

    def _off(self, theirs: np.ndarray, made: np.ndarray) -> float:
        """Return the norm of an error of the output, or of the part that is looked at, over that of its signal."""
        off = minus(theirs, made.reshape(theirs.shape))
        if self._part is not None:
            off, theirs = self._part.of(off), self._part.of(theirs)
        return norm(off) / norm(theirs) if norm(theirs) else math.inf

    def replayed(self, entry: PlannedNode) -> float | None:
        """Return what a node's own error alone makes of the output, relative to its signal; None if not known."""
        return self.with_errors([entry])

    def with_errors(self, entries: Sequence[PlannedNode]) -> float | None:
        """Return what the own errors of some nodes make of the output together, relative to its signal.

        Each is added where the reference, computed with the errors before, has its tensor. None if a node in between
        cannot be replayed.
        """
        at, end = {entry.reference_tensor: entry for entry in entries}, self._output.reference_tensor

        def load(form: Node, name: str) -> np.ndarray:
            if name in at:
                return self._moved(at[name], real_values(self._reference, name, self._place))
            return read(self._reference, self._place, form, name)

        def run(node: Node, form: Node, opset: Mapping[str, int], values: Mapping[str, np.ndarray]) -> _Values:
            checkpoint()
            made = run_real(node, form, opset, values)
            return {name: self._moved(at[name], array) if name in at else array for name, array in made.items()}

        try:
            with recorded_room(self._reference, self._place):
                made = run_segment(self._nodes_below(at), end, self._reference.graph.opset, load, run)
            if made is None and end in at:
                made = self._moved(at[end], real_values(self._reference, end, self._place))
        except (KernelError, RecordingError) as error:
            self._note(error)
            return None
        theirs = real_values(self._reference, end, self._place)
        if made is None or made.size != theirs.size:
            return None
        found = self._off(theirs, made)
        return found if math.isfinite(found) else None

    def _moved(self, entry: PlannedNode, values: np.ndarray) -> np.ndarray:
        """Add the own error of a node to the reference's values of its tensor.

        Raises:
            KernelError: The error is not known.
        """
        own = self.own_error(entry)
        if own is None:
            raise KernelError(f"The own error of {entry.tensor!r} is not known.")
        own = into_stored_order(own, entry.pair.reference_view).reshape(values.shape)
        return np.asarray((values + own).astype(values.dtype))

    @property
    def allowed(self) -> float:
        """Work that replays may take: as much as replaying every node in every sample, but not too little."""
        places = len(places_of(self._reference))
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
        try:
            shapes = {
                name: shape_of(self._reference, name, *self._place)
                for name in filter(None, (*form.inputs, *form.outputs[:1]))
            }
            made = shapes[form.outputs[0]]
            elements = math.prod(made) * (sum_terms(form, shapes, made) + CONTRIBUTION_ELEMENT_WORK)
            return elements + CONTRIBUTION_NODE_WORK
        except (RecordingError, IndexError, KeyError, ZeroDivisionError):  # it cannot be replayed either
            return CONTRIBUTION_NODE_WORK

    def _nodes_below(self, starts: Iterable[str]) -> list[Node]:
        """List the reference's nodes from some tensors to the output, in order."""
        reached, nodes = set(starts), list[Node]()
        for node in self._reference.graph.nodes:
            if not reached.isdisjoint(node.inputs) and not self._above.isdisjoint(node.outputs):
                nodes.append(node)
                reached.update(filter(None, node.outputs))
        return nodes

    def _note(self, error: QdebugError) -> None:
        self.why[error.message[0].lower() + error.message[1:].rstrip(".")] = None
