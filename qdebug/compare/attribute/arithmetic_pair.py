"""Compares the arithmetic of two quantized runs: if both use the same arithmetic, a node introduces no error.

Exact arithmetic is a poor yardstick for two runs with the same codes. Both round, and a node that rounds as the
reference does adds no error, however much it rounds. So the backend's node is computed with the arithmetic that
reproduces the reference's node, and the result is compared with the recorded codes.
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

__all__ = ["ArithmeticPair", "compare_with_reference_arithmetic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticPair:
    """A backend node compared with the arithmetic of the reference's node.

    Args:
        introduced: Error of the backend's codes against the reference's arithmetic on the same inputs.
        propagated: Error of that arithmetic against the reference's codes.
        reference: The reference's arithmetic in words.
        backend: The backend's arithmetic, or None if unknown.
    """

    introduced: ErrorStats
    propagated: ErrorStats
    reference: str
    backend: str | None

    @property
    def same(self) -> bool:
        """Whether both arithmetics give the same codes for the same inputs."""
        return not self.introduced.mismatches


def compare_with_reference_arithmetic(
    runs: tuple[Recording, Recording],
    entry: PlannedNode,
    checks: tuple[ReproductionCheck, ReproductionCheck],
    backend_variant: Variant | None,
) -> ArithmeticPair | None:
    """Compute a backend node with the reference's arithmetic, and compare the result with the backend's codes.

    Args:
        runs: The reference run and the backend run.
        entry: The compared tensor.
        checks: The reproduction check of the reference run and that of the backend run.
        backend_variant: The arithmetic that reproduces the backend's node, or None if unknown.

    Returns:
        The comparison, or None if quantization, operator or dimension order differ, or if the reference's arithmetic is
        unknown.
    """
    reference, backend = runs
    quant = entry.quant
    reference_node, backend_node = (
        reference.graph.producer(entry.reference_tensor),
        backend.graph.producer(entry.tensor),
    )
    is_permuted = entry.pair.reference_view is not None or entry.pair.backend_view is not None
    if quant is None or reference_node is None or backend_node is None or is_permuted:
        return None
    if reference.graph.tensors[entry.reference_tensor].quant != quant or reference_node.op != backend_node.op:
        return None
    variant = checks[0].variant(reference_node, entry.reference_tensor, backend_variant)
    if variant is None:
        return None
    introduced, propagated = (ErrorAccumulator(reference_quant=quant, backend_quant=quant) for _ in range(2))
    try:
        places = [*recorded_places(reference, backend, entry)]
        results = (
            ((place, backend.load(entry.tensor, *place)) for place in places)
            if backend_variant == variant
            else checks[1].compute_each(backend_node, entry.tensor, places, variant)
        )
        for place, codes in results:
            recorded = backend.load(entry.tensor, *place)
            computed = codes.reshape(recorded.shape)
            introduced.update(computed, recorded, sample=place[0])
            propagated.update(reference.load(entry.reference_tensor, *place), computed, sample=place[0])
    except (KernelError, NotRecordedError, UsageError):
        return None
    return ArithmeticPair(
        introduced=introduced.stats(),
        propagated=propagated.stats(),
        reference=describe(variant),
        backend=None if backend_variant is None else describe(backend_variant),
    )
