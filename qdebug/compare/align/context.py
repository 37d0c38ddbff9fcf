"""The state of an alignment: both indexed recordings, the pairs found so far, and notes on unpaired tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from qdebug.compare.align.expand import kind
from qdebug.compare.align.indexed_recording import IndexedRecording, tensor_order
from qdebug.compare.align.pairs import Match, Pair, PairList, Side, Transform
from qdebug.compare.align.sampling import Candidate, Sampler
from qdebug.compare.align.undeclared_quantization import computes_with_codes, has_loosely_described_nodes
from qdebug.compare.align.weights import WeightSketches
from qdebug.model import Node

__all__ = ["Context", "PairMap", "add_partner", "make_pair", "only_result"]


def make_pair(backend: str, reference: str, match: Match, reason: str, view: Transform | None = None) -> Pair:
    """Return a pair in which at most the backend side has a view."""
    return Pair(backend=backend, reference=reference, match=match, reason=reason, backend_view=view)


class PairMap(dict[str, Pair]):
    """Pairs by backend tensor, whether or not the two tensors were recorded.

    Args:
        ref: The reference run.
        be: The backend run.

    Attributes:
        partners: For each root of a backend class, the roots of the reference classes that it corresponds to.
        taken: The first backend tensor that each reference tensor was paired with.
    """

    def __init__(self, ref: IndexedRecording, be: IndexedRecording) -> None:
        super().__init__()
        self._ref, self._be = ref, be
        self.partners: dict[str, tuple[str, ...]] = {}
        self.taken: dict[str, str] = {}

    def add(self, pair: Pair) -> None:
        """Add a pair, replacing an earlier pair of the same backend tensor."""
        self[pair.backend] = pair
        add_partner(self.partners, self._be.root(pair.backend), self._ref.root(pair.reference))
        self.taken.setdefault(pair.reference, pair.backend)

    def drop(self, backend: str) -> None:
        """Remove the pair of a backend tensor."""
        pair = self.pop(backend)
        if self.taken.get(pair.reference) == backend:
            del self.taken[pair.reference]
        root = self._be.root(backend)
        self.partners.pop(root, None)
        for member in self._be.members(root):
            if member in self:
                add_partner(self.partners, root, self._ref.root(self[member].reference))


def add_partner(partners: dict[str, tuple[str, ...]], backend: str, reference: str) -> None:
    """Add a reference class to those that a backend class corresponds to. There are rarely several."""
    earlier = partners.get(backend, ())
    if reference not in earlier:
        partners[backend] = (*earlier, reference)


@dataclass(kw_only=True)
class Context:
    """State shared by the alignment strategies.

    Args:
        ref: The reference run.
        be: The backend run.
        given: Pairs that the user stated.

    Attributes:
        pair_map: The pairs found so far.
        notes: Why backend tensors have no partner.
        undecided: Backend tensors that several reference tensors fit equally well.
        withdrawn: Backend tensors whose values contradict the pair that the graphs suggest.
        clamped_later: Relu or Clip outputs of the reference that codes replace, by backend tensor.
        by_structure: Pairs that the graphs suggest, before any other evidence.
        candidates: Reference tensors with roughly the values of a backend tensor, once searched.
    """

    ref: IndexedRecording
    be: IndexedRecording
    given: PairList = field(default_factory=PairList)
    notes: dict[str, str] = field(default_factory=dict)
    undecided: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    clamped_later: dict[str, str] = field(default_factory=dict)
    by_structure: dict[str, Pair | None] = field(default_factory=dict)
    candidates: dict[str, list[Candidate]] = field(default_factory=dict)

    @cached_property
    def pair_map(self) -> PairMap:
        """The pairs found so far."""
        return PairMap(self.ref, self.be)

    @cached_property
    def sampler(self) -> Sampler:
        """Reads sampled values of both runs."""
        return Sampler(self.ref, self.be)

    @cached_property
    def ref_weights(self) -> WeightSketches:
        """The weights of the reference."""
        return WeightSketches(self.ref)

    @cached_property
    def be_weights(self) -> WeightSketches:
        """The weights of the backend."""
        return WeightSketches(self.be)

    @cached_property
    def kinds(self) -> dict[tuple[str, bool], list[Node]]:
        """The reference's nodes, grouped by `kind`."""
        nodes_by_kind: dict[tuple[str, bool], list[Node]] = {}
        for node in self.ref.graph.nodes:
            nodes_by_kind.setdefault(kind(node), []).append(node)
        return nodes_by_kind

    @cached_property
    def recorded_at(self) -> dict[str, int]:
        """The position of each reference tensor in recording order."""
        return {name: position for position, name in enumerate(self.ref.recording.names)}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The backend's tensors in topological order."""
        return tensor_order(self.be.graph)

    @property
    def pairs(self) -> list[Pair]:
        """The pairs found so far, in the backend's topological order."""
        return [self.pair_map[name] for name in self.order if name in self.pair_map]

    @cached_property
    def uses_values(self) -> bool:
        """Whether values count as evidence: a harness described some nodes in its own terms, or not at all."""
        return any(has_loosely_described_nodes(run.recording.graph) for run in (self.ref, self.be))

    @cached_property
    def undeclared_codes(self) -> bool:
        """Whether the backend computes with codes but may not declare where."""
        return has_loosely_described_nodes(self.be.recording.graph) and computes_with_codes(self.be.recording)

    @cached_property
    def forms(self) -> dict[str, str]:
        """The reference tensor that stands for each tensor of the source model, preferably a recorded one."""
        forms_found: dict[str, str] = {}
        for info in self.ref.graph.tensors.values():
            if info.stands_for and (info.stands_for not in forms_found or info.name in self.ref.recorded):
                forms_found[info.stands_for] = info.name
        return forms_found

    @cached_property
    def results(self) -> dict[str, str]:
        """The output of each single-output reference node, by node name."""
        return {node.name: result for node in self.ref.graph.nodes if (result := only_result(node)) is not None}

    def run(self, side: Side) -> IndexedRecording:
        """Return the run of one side."""
        return self.be if side is Side.BACKEND else self.ref

    def note_unpaired(self, tensor: str, reason: str, *, undecided: bool = False) -> None:
        """Note why a backend tensor has no partner."""
        self.notes[tensor] = reason
        (self.undecided.add if undecided else self.undecided.discard)(tensor)

    def add(self, pair: Pair) -> None:
        """Add a pair. A pair stated by the user is never replaced."""
        earlier = self.pair_map.get(pair.backend)
        if earlier is not None and earlier.match is Match.MANUAL and pair.match is not Match.MANUAL:
            return
        self.pair_map.add(pair)
        self.notes.pop(pair.backend, None)
        self.undecided.discard(pair.backend)


def only_result(node: Node) -> str | None:
    """Return the only output of a node, or None if it has several outputs."""
    results = [name for name in node.outputs if name]
    return results[0] if len(results) == 1 else None
