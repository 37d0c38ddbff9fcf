"""Of which samples and steps two recordings have something, and how that is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from qdebug.compare.align.pairs import Pair
from qdebug.compare.measure.partial import ElementsCompared
from qdebug.model import Recording
from qdebug.model.kept import kept_of

__all__ = ["Place", "Places", "by_sample", "find_places"]


@dataclass(frozen=True, slots=True)
class Place:
    """A sample and a step of it."""

    sample: int
    step: int


@dataclass(frozen=True, slots=True)
class Places:
    """Samples and steps of which both sides hold all values, or of which they kept something; and how many others.

    Args:
        full: Those that both hold in full.
        partly: Those of which both kept something, and one not all.
        only: Number of those that only one side has anything of, by that side's counterpart: the one that lacks it.
    """

    full: list[Place]
    partly: list[Place]
    only: dict[str, int]

    def left_out(self, reference: Recording, backend: Recording, rest: Sequence[ElementsCompared] = ()) -> str:
        """Say in a clause what is not compared, beside the elements of the rest."""
        apart = len(self.partly) - sum(part.places for part in rest)
        lacking = [f"the {side} has none for {count}" for side, count in self.only.items() if count]
        lacking += [f"not all were kept for {apart}"] if apart else []
        total = len(self.full) + len(self.partly) + sum(self.only.values())
        unit = "samples" if max(reference.steps, backend.steps) == 1 else "steps of all samples"
        clauses = []
        if rest:
            compared, count = sum(part.compared for part in rest), sum(part.count for part in rest)
            clauses.append(f"and {compared} of {count} elements of {len(self.partly) - apart}")
        if not lacking and not rest:
            return ""
        head = f"values of {len(self.full)} of {total} {unit} compared"
        return " ".join([head, *clauses]) + (": " + ", ".join(lacking) if lacking else "")

    def lacking(self, rest: Sequence[ElementsCompared]) -> bool:
        """Tell whether there are some that the comparison passes over."""
        return any(self.only.values()) or sum(part.places for part in rest) < len(self.partly)


def find_places(reference: Recording, backend: Recording, pair: Pair) -> Places:
    """Find the samples and steps of which both sides have something, and count those that only one side has."""
    if reference.graph.is_constant(pair.reference) and backend.graph.is_constant(pair.backend):
        every = [Place(0, 0)]
    else:
        samples = range(max(reference.samples, backend.samples))
        steps = range(max(reference.steps, backend.steps))
        every = [Place(sample, step) for sample in samples for step in steps]
    both: list[Place] = []
    partly: list[Place] = []
    only = {"reference": 0, "backend": 0}
    for place in every:
        ours = reference.has(pair.reference, place.sample, place.step)
        theirs = backend.has(pair.backend, place.sample, place.step)
        if ours and theirs:
            both.append(place)
            continue
        ours = ours or kept_of(reference, pair.reference, place.sample, place.step) is not None
        theirs = theirs or kept_of(backend, pair.backend, place.sample, place.step) is not None
        if ours and theirs:
            partly.append(place)
        elif ours or theirs:
            only["backend" if ours else "reference"] += 1
    return Places(both, partly, only)


def by_sample(places: Sequence[Place], further: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    """Give samples in order with the steps of the places; no steps for further samples."""
    steps: dict[int, list[int]] = {sample: [] for sample in further}
    for place in places:
        steps.setdefault(place.sample, []).append(place.step)
    yield from sorted(steps.items())
