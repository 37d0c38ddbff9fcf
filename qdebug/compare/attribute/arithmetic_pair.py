"""Holds the arithmetic of one quantized run against that of another: what does exactly the same introduces nothing.

Real arithmetic is no judge between two runs in the same codes. Both round, and a node that rounds as the reference's
does adds nothing, however much it rounds. So the backend's node is computed by the arithmetic that reproduces the
reference's node, and the codes that were recorded are held against that.
"""

from __future__ import annotations

from dataclasses import dataclass

from qdebug.arithmetic.reproduce import ReproductionCheck
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Recording
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.variant import Variant, describe

__all__ = ["ArithmeticPair", "hold_arithmetics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticPair:
    """A backend node held against the arithmetic of the reference's node.

    Args:
        introduced: Error of the backend's codes against what the reference's arithmetic makes of the same inputs.
        propagated: Error of that against the reference's codes.
        reference: The reference's arithmetic in words.
        backend: The backend's; None if none is known.
    """

    introduced: ErrorStats
    propagated: ErrorStats
    reference: str
    backend: str | None

    @property
    def same(self) -> bool:
        """Whether both give the same codes for the same inputs."""
        return not self.introduced.mismatches


def hold_arithmetics(
    runs: tuple[Recording, Recording],
    entry: PlannedNode,
    checks: tuple[ReproductionCheck, ReproductionCheck],
    own: Variant | None,
) -> ArithmeticPair | None:
    """Compute a backend node by the arithmetic that reproduces the reference's node, and hold its codes against that.

    Args:
        runs: The reference run and the backend run.
        entry: The compared tensor.
        checks: Look for the arithmetic of either run.
        own: The arithmetic that reproduces the backend's node; None if none is known.

    Returns:
        None where the two are not in the same codes and the same order, or no arithmetic of the reference is known.
    """
    reference, backend = runs
    quant = entry.quant
    theirs, ours = reference.graph.producer(entry.reference_tensor), backend.graph.producer(entry.tensor)
    turned = entry.pair.reference_view is not None or entry.pair.backend_view is not None
    if quant is None or theirs is None or ours is None or turned:
        return None
    if reference.graph.tensors[entry.reference_tensor].quant != quant or (theirs.op, theirs.attrs) != (
        ours.op,
        ours.attrs,
    ):
        return None
    variant = checks[0].variant(theirs, entry.reference_tensor, own)
    if variant is None:
        return None
    introduced, propagated = (ErrorAccumulator(reference_quant=quant, backend_quant=quant) for _ in range(2))
    try:
        for place in recorded_places(reference, backend, entry):
            given = backend.load(entry.tensor, *place)
            made = (
                given if own == variant else checks[1].compute(ours, entry.tensor, place, variant).reshape(given.shape)
            )
            introduced.update(made, given, sample=place[0])
            propagated.update(reference.load(entry.reference_tensor, *place), made, sample=place[0])
    except (KernelError, NotRecordedError, UsageError):
        return None
    return ArithmeticPair(
        introduced=introduced.stats(),
        propagated=propagated.stats(),
        reference=describe(variant),
        backend=None if own is None else describe(own),
    )
