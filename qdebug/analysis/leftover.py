"""Says for each tensor without partner why it has none, and whether anything is lost by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qdebug.analysis.alignment import Kind, Pair, Side, Unmatched
from qdebug.analysis.ops import KEEPS_VALUES, MOVES_VALUES
from qdebug.analysis.value_classes import Run, ValueClasses
from qdebug.model import Recording

__all__ = ["leftovers"]


def leftovers(ref: Run, be: Run, pairs: Sequence[Pair], notes: Mapping[str, str]) -> tuple[Unmatched, ...]:
    """List every tensor of two recordings that is in no pair.

    Args:
        ref: The reference run.
        be: The backend run.
        pairs: The pairs found.
        notes: What the search for a partner ended with, by backend tensor.
    """
    inside = _folded_into(ref.classes, be, pairs)
    held = _Held(ref, be, pairs)
    reference, backend = ref.recording, be.recording
    theirs = (
        _reference_entry(tensor, held, inside) for tensor in reference.names if tensor not in held.paired_reference
    )
    ours = (_backend_entry(tensor, held, notes) for tensor in backend.names if tensor not in held.paired_backend)
    return (*theirs, *ours, *_skipped(reference, Side.REFERENCE), *_skipped(backend, Side.BACKEND))


class _Held:
    """What is known while the reasons are found."""

    def __init__(self, ref: Run, be: Run, pairs: Sequence[Pair]) -> None:
        self.ref, self.be = ref.classes, be.classes
        self.reference, self.backend = ref.recording, be.recording
        self.paired_reference = {pair.reference for pair in pairs}
        self.paired_backend = {pair.backend for pair in pairs}
        self.reference_roots = {self.ref.root(tensor): tensor for tensor in self.paired_reference}
        self.reference_doubles = {self.ref.number(tensor): tensor for tensor in self.paired_reference}
        self.backend_names = set(self.backend.names)
        self.reference_names = set(self.reference.names)


def _reference_entry(tensor: str, held: _Held, inside: Mapping[str, str]) -> Unmatched:
    def entry(kind: Kind, reason: str) -> Unmatched:
        return Unmatched(side=Side.REFERENCE, tensor=tensor, kind=kind, reason=reason)

    if held.ref.folds(tensor):
        return entry(Kind.BENIGN, _constant_reason(held.reference, tensor))
    twin = held.reference_roots.get(held.ref.root(tensor))
    if twin is not None:
        return entry(Kind.BENIGN, f"another form of {twin!r}, which is compared")
    if tensor in inside:
        return entry(Kind.BENIGN, f"computed inside {inside[tensor]}")
    double = held.reference_doubles.get(held.ref.number(tensor))
    if double is not None:
        return entry(Kind.BENIGN, f"the same computation as {double!r}, which is compared")
    harmless = _harmless(tensor, held.ref, held.paired_reference)
    if harmless:
        return entry(Kind.BENIGN, harmless)
    if tensor in held.backend.graph.tensors and tensor not in held.backend_names:
        return entry(Kind.LOST, "the backend's recording has no values of it")
    return entry(Kind.LOST, "no tensor of the backend answers to it")


def _backend_entry(tensor: str, held: _Held, notes: Mapping[str, str]) -> Unmatched:
    def entry(kind: Kind, reason: str) -> Unmatched:
        return Unmatched(side=Side.BACKEND, tensor=tensor, kind=kind, reason=reason)

    if held.be.folds(tensor):
        return entry(Kind.BENIGN, _constant_reason(held.backend, tensor))
    harmless = _harmless(tensor, held.be, held.paired_backend)
    if harmless:
        return entry(Kind.BENIGN, harmless)
    if tensor in held.reference.graph.tensors and tensor not in held.reference_names:
        return entry(Kind.LOST, "the reference's recording has no values of it")
    return entry(Kind.LOST, notes.get(tensor, "no tensor of the reference answers to it"))


def _harmless(tensor: str, classes: ValueClasses, paired: set[str]) -> str:
    """Say why nothing is lost by a tensor of either side that has no partner; "" if something is."""
    graph = classes.graph
    if not graph.consumers(tensor) and tensor not in graph.outputs:
        return "nothing reads it"
    if classes.of_shape(tensor):
        return "arithmetic on shapes"
    if tensor not in graph.outputs and _only_moves(tensor, classes, paired):
        return "only arranges values anew; what comes of it is compared"
    return ""


def _only_moves(tensor: str, classes: ValueClasses, paired: set[str]) -> bool:
    """Tell whether a tensor is an arrangement of compared values, and leads only to compared ones by arranging."""
    graph = classes.graph

    def moved(name: str) -> bool:
        node = graph.producer(name)
        return node is not None and (node.op in MOVES_VALUES or node.op in KEEPS_VALUES)

    return moved(tensor) and all(
        any(form in paired for form in classes.members(output))
        or (moved(output) and _only_moves(output, classes, paired))
        for reader in graph.consumers(tensor)
        for output in reader.outputs
        if output
    )


def _constant_reason(recording: Recording, tensor: str) -> str:
    return "constant" if recording.graph.is_constant(tensor) else "computed from constants alone"


def _skipped(recording: Recording, side: Side) -> Iterable[Unmatched]:
    for tensor, reason in recording.info.skipped.items():
        yield Unmatched(side=side, tensor=tensor, kind=Kind.LOST, reason=f"not recorded: {reason}")


def _folded_into(ref: ValueClasses, be: Run, pairs: Sequence[Pair]) -> dict[str, str]:
    """Find the reference tensors that a single backend node computes on its way.

    From the partner of a node's output the reference's graph is searched backwards down to tensors that have
    partners. If all of those are partners of what the node reads, then what lies between belongs to the node.
    """
    partner = {pair.backend: ref.root(pair.reference) for pair in pairs}
    ends = set(partner.values())
    inside: dict[str, str] = {}
    for pair in pairs:
        node = be.recording.graph.producer(pair.backend)
        if node is None or be.classes.root(pair.backend) != pair.backend:
            continue
        between, reached = _search_back(ref, pair.reference, ends)
        fed = {
            partner[m] for tensor in be.classes.data_inputs(node) for m in be.classes.members(tensor) if m in partner
        }
        if between and reached <= fed:
            inside.update((tensor, f"{node.op} {node.name!r}") for tensor in between if tensor not in inside)
    return inside


def _search_back(ref: ValueClasses, tensor: str, ends: set[str]) -> tuple[set[str], set[str]]:
    """Give the tensors between one tensor and the nearest classes in `ends` before it, and those classes."""
    between: set[str] = set()
    reached: set[str] = set()
    waiting = [tensor]
    while waiting:
        current = waiting.pop()
        node = ref.graph.producer(current)
        if node is None:
            if current != tensor:
                reached.add(current)
            continue
        for name in ref.data_inputs(node):
            root = ref.root(name)
            if root in ends and root != ref.root(tensor):
                reached.add(root)
            elif name not in between:
                between.add(name)
                waiting.append(name)
    return between, reached
