"""Decides whether the order and precision of a float node's sums account for its difference from a replay.

A float kernel may sum in any order, so its output rarely equals the replay bit for bit. The difference is bounded (see
`qdebug.compare.attribute.band`), and can be estimated from the spread over a few orders. A kernel that first rounds its
operands to fewer bits (TF32, bfloat16, float16) is recognized by doing the same before the replay. A kernel that
accumulates in 16 bits is recognized by the size of its error, which is orders of magnitude larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.arithmetic.units import Place
from qdebug.compare.attribute.band import finite_norm
from qdebug.compare.explaining.explanation import Band
from qdebug.compare.explaining.float_node import (
    ACCUMULATOR,
    ACCUMULATORS,
    INPUT_CASTS,
    ON_CODES,
    OUTPUT,
    SHORT_TITLES,
    FloatNode,
    SummedError,
    difference_of,
    is_finite,
    is_nan,
    rounds_nothing,
)
from qdebug.compare.explaining.mistaken import mistake_of
from qdebug.compare.explaining.stretches import in_stretches
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, Recording, operators
from qdebug.replay.real_form import real_form

__all__ = [
    "FloatFinding",
    "FloatReplay",
    "assumption_clause",
    "judge_float",
    "locate_outliers",
    "replay_float",
    "rounded_inputs",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatFinding:
    """How a node's output compares with a replay on real numbers.

    Args:
        band: The finest precision that accounts for the error, or float32 if none does, and the size of the error.
        within: Whether that precision accounts for the error.
        match: Share of the elements that equal the replay.
        elements: Number of elements compared.
        reason: What is wrong, or None.
        likely: The mistake that reproduces every element, in the words of the reason, or None if unknown.
    """

    band: Band
    within: bool
    match: float
    elements: int
    reason: str | None = None
    likely: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatReplay:
    """One sample of a float node with its replay.

    Args:
        recorded: The recorded values as real numbers.
        replayed: The replayed values.
        allowed: The allowed norm of their difference, or 0 for an operator that does not round.
        outside: A clause on results beyond the range of the output's format, or None.
    """

    recorded: np.ndarray
    replayed: np.ndarray
    allowed: float
    outside: str | None = None

    @property
    def error(self) -> float:
        """Norm of the difference where both are finite, infinite if only one of them is."""
        if np.any(is_finite(self.recorded) != is_finite(self.replayed)):
            return np.inf
        return finite_norm(difference_of(self.recorded, self.replayed))


def judge_float(recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> FloatFinding:
    """Compare a node's recorded output with a replay on its recorded inputs.

    Args:
        recording: The backend's recording.
        node: The node.
        tensor: One of its outputs.
        at: Samples and steps to examine.

    Raises:
        KernelError: The node cannot be replayed.
        RecordingError: A value cannot be read.
    """
    stretches = in_stretches(recording, real_form(node, recording.graph.opset)[0], tensor, at)
    if stretches is not None:
        finding = _judge_float(stretches, node, tensor, stretches.places())
        if finding.within:
            return finding
    return _judge_float(recording, node, tensor, at)


def _judge_float(recording: Recording, node: Node, tensor: str, at: Sequence[Place]) -> FloatFinding:
    """Compare a node's recorded output with a replay, holding whole tensors in memory."""
    case = FloatNode(recording, node, tensor, at)
    single, equal, total, odd = SummedError(), 0, 0, 0
    for place in at:
        recorded_values, replayed, allowed = case.compare(place)
        equal += int(np.count_nonzero((recorded_values == replayed) | (is_nan(recorded_values) & is_nan(replayed))))
        total += recorded_values.size
        odd += int(np.count_nonzero(is_finite(recorded_values) != is_finite(replayed)))
        single.add(difference_of(recorded_values, replayed), 0.0 if rounds_nothing(node) else allowed)
    match = equal / total if total else 1.0
    if equal == total:
        band = Band(precision="exact", ratio=0.0, exact=True)
        return FloatFinding(band=band, within=True, match=1.0, elements=total, reason=case.clause_of_range())
    spread = case.error_over_spread(at[0])
    band = Band(precision=case.output_precision, ratio=single.ratio, spread=spread)
    finding = FloatFinding(band=band, within=False, match=match, elements=total)
    if odd:
        are = "is" if odd == 1 else "are"
        symptom = f"{odd} of {total} elements {are} NaN or infinite in the recording or the replay, not in both"
        likely = mistake_of(recording, node, tensor, at)
        reason = f"{symptom}: {next(filter(None, map(case.clause_of_nonfinite, at)))}{_likely_text(likely)}"
        return replace(finding, reason=reason, likely=likely)
    if single.ratio <= 1:
        return replace(finding, within=True, reason=case.clause_of_range())
    on_codes = case.error_ratio_on_codes(at)
    if on_codes is not None and on_codes <= 1:
        return replace(finding, band=Band(precision=ON_CODES, ratio=on_codes, spread=spread), within=True)
    likely = None
    for precision, ratio in () if on_codes is not None else case.coarser_precisions(at):
        # The error allowed for a 16-bit accumulator is so large that it hides mistakes. So first look for a mistake
        # that reproduces every element.
        likely = mistake_of(recording, node, tensor, at) if ratio <= 1 and precision.endswith(ACCUMULATOR) else None
        if ratio <= 1 and likely is None:
            return replace(finding, band=Band(precision=precision, ratio=ratio, spread=spread), within=True)
    likely = likely or mistake_of(recording, node, tensor, at)
    finding, cause = replace(finding, likely=likely), _likely_text(likely)
    if rounds_nothing(node) or not single.allowed:
        nothing = f"{node.op} does not round" if rounds_nothing(node) else "its sums are exact"
        if operators.of(node.op).casts:
            nothing = f"{node.op} has one right result for each element"
        symptom = f"{total - equal} of {total} elements differ{case.clause_of_outliers(at)}; {nothing}"
        return replace(finding, reason=symptom + cause)
    symptom = f"its error is {single.ratio:.3g} times the rounding bound{case.clause_of_outliers(at)}"
    return replace(finding, reason=symptom + cause)


def _likely_text(mistake: str | None) -> str:
    return "" if mistake is None else f"; likely: {mistake} (reproduces every element)"


def rounded_inputs(recording: Recording, node: Node, tensor: str, place: Place) -> tuple[str, ...]:
    """Return the short formats that a product may have rounded its factors to, if that accounts for its error.

    Args:
        recording: The backend's recording.
        node: A node whose error exceeds the bound for float32 sums.
        tensor: Its output.
        place: The sample and step to examine.

    Returns:
        Names of formats. TF32 and float16 have equally many digits, so usually both or neither fit. Empty for other
            operators and unrecorded tensors.
    """
    try:
        case = FloatNode(recording, node, tensor, [place])
        return tuple(case.possible_input_formats(place))
    except (KernelError, NotRecordedError):
        return ()


def locate_outliers(
    recording: Recording, node: Node, tensor: str, at: Sequence[Place], *, is_wrong: np.ndarray | None = None
) -> str | None:
    """Return a clause on where the outliers among a float node's errors lie, or None if they are scattered.

    Args:
        recording: The backend's recording.
        node: The node.
        tensor: Its output.
        at: Samples and steps. Only the first is examined.
        is_wrong: Mask of the outliers, if it is known.
    """
    if not at:
        return None
    try:
        clause = FloatNode(recording, node, tensor, at[:1]).clause_of_outliers(at, is_wrong)
        return clause.removeprefix(", ") or None
    except (KernelError, NotRecordedError):
        return None


def assumption_clause(recording: Recording, tensor: str, band: Band) -> str | None:
    """Return a clause on the rounding that a precision assumes and the recorded type does not state, or None.

    Args:
        recording: The backend's recording.
        tensor: The output of a node.
        band: The precision that accounts for its error.
    """
    if band.precision == ON_CODES:
        node = recording.graph.producer(tensor)
        weights = "weights and " if node is not None and operators.of(node.op).product else ""
        return f"{weights}results rounded to codes of an unrecorded scale"
    number, _, rounded_part = band.precision.partition(" ")
    name = SHORT_TITLES.get(number)
    if name is None:
        return None
    if rounded_part == ACCUMULATOR:
        return f"sums held in {name}"
    if rounded_part != OUTPUT:
        return f"{rounded_part} rounded to {name}"
    dtype = recording.graph.tensors[tensor].dtype
    return None if dtype == name else f"results rounded to {name}"


def replay_float(recording: Recording, node: Node, tensor: str, place: Place, precision: str) -> FloatReplay:
    """Replay one sample of a float node in a given precision.

    Args:
        recording: The backend's recording.
        node: The node.
        tensor: One of its outputs.
        place: The sample and step.
        precision: The value of `Band.precision` for the node or its siblings.

    Raises:
        KernelError: The node cannot be replayed.
        RecordingError: A value cannot be read.
    """
    case = FloatNode(recording, node, tensor, [place])
    number, _, rounded_part = precision.partition(" ")
    if precision == ON_CODES and (grid := case.code_grid([place])) is not None:
        recorded_values, replayed, allowed, _ = case.compare_with_codes(place, grid)
        return FloatReplay(recorded=recorded_values, replayed=replayed, allowed=allowed)
    number = "" if rounded_part == OUTPUT else number
    narrow = ACCUMULATORS.get(number) if rounded_part == ACCUMULATOR else None
    recorded_values, replayed, allowed = case.compare(
        place, cast=INPUT_CASTS.get(number), bias=rounded_part != "inputs", narrow=narrow
    )
    allowed = 0.0 if rounds_nothing(node) else allowed
    return FloatReplay(recorded=recorded_values, replayed=replayed, allowed=allowed, outside=case.clause_of_range())
