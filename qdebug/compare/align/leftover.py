"""Says for each tensor without partner why it has none, and whether anything is lost by it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from qdebug.compare.align.expand import says_nothing
from qdebug.compare.align.found import add_partner
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Kind, Pair, Side, Unmatched
from qdebug.compare.align.region import between, why_unchecked
from qdebug.model import Recording, operators
from qdebug.model.outline import Outline, outline_of

__all__ = ["Search", "leftovers", "said_unchecked"]

_UNCHECKED = "nothing checked that both do the same in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What the search for partners ended with.

    Args:
        found: Every pair by backend tensor, whether its tensors were recorded or not.
        notes: Why a backend tensor has no partner.
        undecided: Backend tensors that several reference tensors fit equally well.
    """

    found: Mapping[str, Pair]
    notes: Mapping[str, str]
    undecided: Collection[str]


def leftovers(
    ref: IndexedRecording, be: IndexedRecording, pairs: Sequence[Pair], search: Search
) -> tuple[Unmatched, ...]:
    """List every tensor of two recordings that is in no pair.

    Args:
        ref: The reference run.
        be: The backend run.
        pairs: The pairs found.
        search: What else the search for partners ended with.
    """
    theirs_inside, ours_inside = _inside(ref, be, pairs, search.undecided)
    held = _Held(ref, be, pairs, search)
    reference, backend = ref.recording, be.recording
    theirs = (
        _reference_entry(tensor, held, theirs_inside)
        for tensor in reference.names
        if tensor not in held.paired_reference
    )
    ours = (
        _backend_entry(tensor, held, ours_inside, search.notes)
        for tensor in backend.names
        if tensor not in held.paired_backend
    )
    skipped = (
        *_skipped(reference, Side.REFERENCE, held.ref, held.paired_reference),
        *_skipped(backend, Side.BACKEND, held.be, held.paired_backend),
    )
    return (*theirs, *ours, *skipped)


class _Held:
    """What is known while the reasons are found."""

    def __init__(self, ref: IndexedRecording, be: IndexedRecording, pairs: Sequence[Pair], search: Search) -> None:
        self.ref, self.be = ref, be
        self.reference, self.backend = ref.recording, be.recording
        self._compared = [pair.reference for pair in pairs]
        self.paired_reference = set(self._compared)
        self.paired_backend = {pair.backend for pair in pairs}
        self.backend_names = set(self.backend.names)
        self.reference_names = set(self.reference.names)
        names, known = (self.reference_names, self.backend_names), (ref.recording.graph, be.recording.graph)
        apart = [p for p in search.found.values() if p.reference not in names[0] or p.backend not in names[1]]
        apart = [p for p in apart if p.reference in known[0].tensors and p.backend in known[1].tensors]
        self.without_backend = {p.reference for p in apart if p.backend not in self.backend_names}
        self.without_reference = {p.backend for p in apart if p.reference not in self.reference_names}

    def same_values(self, tensor: str, side: Side) -> str | None:
        """Give a compared tensor of the very values of one that nobody said anything of: blocks hand on their last."""
        recording = self.reference if side is Side.REFERENCE else self.backend
        node = recording.graph.producer(tensor)
        outline = outline_of(recording, tensor) if node is not None and says_nothing(node) else None
        return None if outline is None else self._outlines[side].get(outline)

    @cached_property
    def _outlines(self) -> Mapping[Side, Mapping[Outline, str]]:
        """Compared tensors by what is known of their values without reading them."""
        found: dict[Side, dict[Outline, str]] = {Side.REFERENCE: {}, Side.BACKEND: {}}
        sides = (
            (Side.REFERENCE, self.reference, self.paired_reference),
            (Side.BACKEND, self.backend, self.paired_backend),
        )
        for side, recording, paired in sides:
            for name in recording.names:
                outline = outline_of(recording, name) if name in paired else None
                if outline is not None:
                    found[side].setdefault(outline, name)
        return found

    @cached_property
    def reference_roots(self) -> dict[str, str]:
        """Compared tensors of the reference, the first of each class, by its root."""
        return {self.ref.root(tensor): tensor for tensor in reversed(self._compared)}

    @cached_property
    def reference_doubles(self) -> dict[int, str]:
        """Compared tensors of the reference, the first of each, by the number of the computation that makes them."""
        return {self.ref.number(tensor): tensor for tensor in reversed(self._compared)}


def _reference_entry(tensor: str, held: _Held, inside: Mapping[str, tuple[str, str]]) -> Unmatched:
    def entry(kind: Kind, reason: str, within: str | None = None) -> Unmatched:
        return Unmatched(side=Side.REFERENCE, tensor=tensor, kind=kind, reason=reason, inside=within)

    if held.ref.folds(tensor):
        return entry(Kind.BENIGN, _constant_reason(held.reference, tensor))
    if (same := held.same_values(tensor, Side.REFERENCE)) is not None:
        return entry(Kind.BENIGN, f"the same values as {same!r}, which is compared")
    twin = held.reference_roots.get(held.ref.root(tensor))
    if twin is not None:
        return entry(Kind.BENIGN, f"another form of {twin!r}, which is compared")
    if tensor in held.without_backend:
        return entry(Kind.LOST, "the backend's recording has no values of it")
    if tensor in inside and tensor not in held.reference.graph.outputs:
        return entry(Kind.BENIGN, *inside[tensor])
    double = held.reference_doubles.get(held.ref.number(tensor))
    if double is not None:
        return entry(Kind.BENIGN, f"the same computation as {double!r}, which is compared")
    harmless = _harmless(tensor, held.ref, held.paired_reference)
    if harmless:
        return entry(Kind.BENIGN, harmless)
    if tensor in held.backend.graph.tensors and tensor not in held.backend_names:
        return entry(Kind.LOST, "the backend's recording has no values of it")
    return entry(Kind.LOST, "no tensor of the backend answers to it")


def _backend_entry(
    tensor: str, held: _Held, inside: Mapping[str, tuple[str, str]], notes: Mapping[str, str]
) -> Unmatched:
    def entry(kind: Kind, reason: str, within: str | None = None) -> Unmatched:
        return Unmatched(side=Side.BACKEND, tensor=tensor, kind=kind, reason=reason, inside=within)

    if held.be.folds(tensor):
        return entry(Kind.BENIGN, _constant_reason(held.backend, tensor))
    if (same := held.same_values(tensor, Side.BACKEND)) is not None:
        return entry(Kind.BENIGN, f"the same values as {same!r}, which is compared")
    if tensor in held.without_reference:
        return entry(Kind.LOST, "the reference's recording has no values of it")
    if tensor in inside and tensor not in held.backend.graph.outputs:
        return entry(Kind.BENIGN, *inside[tensor])
    harmless = _harmless(tensor, held.be, held.paired_backend)
    if harmless:
        return entry(Kind.BENIGN, harmless)
    if tensor in held.reference.graph.tensors and tensor not in held.reference_names:
        return entry(Kind.LOST, "the reference's recording has no values of it")
    return entry(Kind.LOST, notes.get(tensor, "no tensor of the reference answers to it"))


def said_unchecked(reason: str, why: str) -> str:
    """Add to the reason of what lies inside a part that nothing checked the part, and why."""
    return reason if _UNCHECKED in reason else f"{reason}; {_UNCHECKED}, since {why}"


def _harmless(tensor: str, run: IndexedRecording, paired: set[str]) -> str:
    """Say why nothing is lost by a tensor of either side that has no partner; "" if something is."""
    graph = run.graph
    node = graph.producer(tensor)
    if not graph.consumers(tensor) and tensor not in graph.outputs and not (node and says_nothing(node)):
        return "nothing reads it"
    if run.of_shape(tensor):
        return "arithmetic on shapes"
    if tensor not in graph.outputs and _only_moves(tensor, run, paired):
        return "only arranges values anew; what comes of it is compared"
    return ""


def _only_moves(tensor: str, run: IndexedRecording, paired: set[str]) -> bool:
    """Tell whether a tensor is an arrangement of compared values, and leads only to compared ones by arranging."""
    graph = run.graph

    def moved(name: str) -> bool:
        node = graph.producer(name)
        return node is not None and (operators.of(node.op).moves or run.handed_on(node) is not None)

    return moved(tensor) and all(
        run.of_shape(output)
        or any(form in paired for form in run.members(output))
        or (moved(output) and _only_moves(output, run, paired))
        for reader in graph.consumers(tensor)
        for output in reader.outputs
        if output
    )


def _constant_reason(recording: Recording, tensor: str) -> str:
    return "constant" if recording.graph.is_constant(tensor) else "computed from constants alone"


def _skipped(recording: Recording, side: Side, run: IndexedRecording, paired: set[str]) -> Iterable[Unmatched]:
    """List what was never recorded; nothing is lost by a list or a text if all that is made of it is compared."""
    for tensor, reason in recording.info.skipped.items():
        said = f"not recorded: {reason}"
        known = tensor in run.graph.tensors and tensor not in run.graph.outputs
        if known and _leads_to_compared(tensor, run, paired):
            yield Unmatched(
                side=side, tensor=tensor, kind=Kind.BENIGN, reason=f"{said}; what is made of it is compared"
            )
        else:
            yield Unmatched(side=side, tensor=tensor, kind=Kind.LOST, reason=said)


def _leads_to_compared(tensor: str, run: IndexedRecording, paired: set[str]) -> bool:
    """Tell whether everything that is made of a tensor is compared, and something is."""
    made = [name for node in run.graph.consumers(tensor) for name in node.outputs if name]
    return bool(made) and all(any(form in paired for form in run.members(name)) for name in made)


def _arranged(run: IndexedRecording, tensor: str) -> str:
    """Give the root of what a tensor is an arrangement of, all elements and no more; of itself if of nothing."""
    node = run.graph.producer(tensor)
    while node is not None and operators.of(node.op).arranges:
        tensor = run.root(node.inputs[0])
        node = run.graph.producer(tensor)
    return run.root(tensor)


def _inside(
    ref: IndexedRecording, be: IndexedRecording, pairs: Sequence[Pair], undecided: Collection[str]
) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """Find the tensors of either side that lie in a part of the network that the two compute in different ways.

    From each compared tensor both graphs are searched backwards down to compared ones. Where all of those that the
    reference's result hangs on are partners of those that the backend's hangs on, what lies between is accounted for by
    the result.

    Returns:
        For each tensor of the reference and of the backend, where it is computed, and the result that accounts for it.
    """
    roots: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        add_partner(roots, be.root(pair.backend), ref.root(pair.reference))

    def numbers(names: Iterable[str]) -> set[int]:
        return {ref.number(name) for name in names}

    doubles: dict[int, set[str]] = {}
    theirs: dict[str, tuple[str, str]] = {}
    ours: dict[str, tuple[str, str]] = {}
    producer = be.recording.graph.producer
    for pair in pairs:
        node = producer(pair.backend)
        mine = None if node is None else between(be, pair.backend, roots)
        if node is None or mine is None:
            continue
        fed = {name for root in mine[1] for name in roots[root]}
        if be.recorded.isdisjoint(mine[0]) and (plain := between(ref, pair.reference, fed)) and not plain[0]:
            continue  # one node answers to one node
        doubles = doubles or _doubles(ref)
        whole = {_arranged(ref, name) for name in fed}
        fed |= {twin for name in fed for twin in doubles[ref.number(name)]}
        other = between(ref, pair.reference, fed) or between(ref, pair.reference, fed | whole)
        if other is None or not mine[0].isdisjoint(undecided):
            continue
        real = [name for name in mine[0] if name in be.recorded]
        if not real and not other[0]:
            continue
        place = f"computed inside {node.op} {node.name!r}"
        part = f"inside a part that the backend computes in another way: its result {pair.backend!r} is compared"
        unchecked = why_unchecked(ref, pair.reference, other[0])
        if unchecked:
            place, part = (said_unchecked(said, unchecked) for said in (place, part))
        for name in other[0]:
            theirs.setdefault(name, (part if real else place, pair.backend))
        if numbers(_arranged(ref, name) for name in other[1]) == numbers(whole):
            for name in real:
                ours.setdefault(name, (part, pair.backend))
    return theirs, ours


def _doubles(run: IndexedRecording) -> dict[int, set[str]]:
    """Give the roots of the tensors that the same operators make of the same inputs, by number."""
    doubles: dict[int, set[str]] = {}
    for name in run.graph.tensors:
        doubles.setdefault(run.number(name), set()).add(run.root(name))
    return doubles
