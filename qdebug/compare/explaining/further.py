"""Causes of a wrong result that no known mistake of the operator reproduces.

The first match is reported: a simple relation between the result and the right one, an operand that has another weight,
is misread or is replaced by another tensor, or a mistake in one part of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qdebug.arithmetic.mistakes.mistake import MISFITS
from qdebug.arithmetic.patterns.residual import Residual
from qdebug.arithmetic.search import SearchResult
from qdebug.compare.attribute.grid_rounding import grid_of_codes
from qdebug.compare.explaining.claims import EVERY, LIKELY
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.layer_cause import cause_inside
from qdebug.compare.explaining.wrong_node import WrongNode
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Graph, Node, QuantParams, Recording
from qdebug.model.thresholds.rounding import GRID_MAX_LEVELS
from qdebug.model.view import View

__all__ = ["further_cause", "with_further_cause"]

Place = tuple[int, int]


def further_cause(
    recording: Recording,
    node: Node,
    tensor: str,
    places: Sequence[Place],
    *,
    in_layer: bool = True,
    roundings: bool = True,
) -> str | None:
    """Return the cause of an output that no known mistake of the operator reproduces, as a clause, or None.

    A mistake is reported as likely, a relation to the right result as a fact.

    Args:
        recording: The run.
        node: A node whose replay does not reproduce its output.
        tensor: The output, of real numbers, whole sums or codes.
        places: Samples and steps to examine.
        in_layer: Whether to search inside the fused layer that the node ends, if nothing else is found.
        roundings: Whether a rounding to a shorter float format counts as a mistake.
    """
    if not places:
        return None
    cause = _cause_as_recorded(recording, node, tensor, places, in_layer=in_layer, roundings=roundings)
    with_codes = None if cause is not None else _with_codes(recording, tensor, places)
    if with_codes is None:
        return cause
    return _cause_as_recorded(with_codes, node, tensor, places, in_layer=in_layer, roundings=roundings)


def _cause_as_recorded(
    recording: Recording, node: Node, tensor: str, places: Sequence[Place], *, in_layer: bool, roundings: bool
) -> str | None:
    """Return the cause of an output, of codes if it has a scale, else of numbers, or None."""
    coded = recording.graph.tensors[tensor].quant is not None
    try:
        case = WrongNode(recording, node, tensor, places, roundings=roundings)
        cause = case.cause_of_codes() if coded else case.cause_of_numbers()
    except NotRecordedError:  # the node ends a fused layer, whose inner tensors were not recorded
        cause = None
    except (KernelError, UsageError, *MISFITS):
        return None
    if cause is not None or not in_layer:
        return cause
    layers = recording if isinstance(recording, WithFused) else WithFused(recording)
    try:
        inside = cause_inside(layers, node, tensor, places)
    except MISFITS:
        return None
    return None if inside is None else f"{LIKELY}{inside}"


def _with_codes(recording: Recording, tensor: str, places: Sequence[Place]) -> Recording | None:
    """Return a recording in which a tensor of dequantized values holds codes, or None if its values are on no grid.

    The codes range from the smallest to the largest recorded value, because others may have been clipped to these.
    """
    graph = recording.graph
    info = graph.tensors[tensor]
    if info.quant is not None:
        return None
    grid = grid_of_codes(lambda: (recording.load(tensor, *place) for place in places))
    if grid is None:
        return None
    dtype: type[np.int8 | np.int16] = np.int8 if grid.levels <= GRID_MAX_LEVELS else np.int16
    name, lowest = dtype.__name__, int(np.iinfo(dtype).min)
    first_level = int(np.rint(grid.low / grid.step))
    quant = QuantParams(
        dtype=name,
        scale=np.asarray(grid.step, np.float32),
        zero_point=np.asarray(lowest - first_level),
        qmin=lowest,
        qmax=lowest + grid.levels - 1,
    )

    def to_codes(values: np.ndarray) -> np.ndarray:
        return (np.rint(values.astype(np.float64) / grid.step) - first_level + lowest).astype(dtype)

    tensors = [*graph.tensors.values(), replace(info, dtype=name, quant=quant)]
    changed = Graph(graph.nodes, tensors=tensors, inputs=graph.inputs, outputs=graph.outputs, opset=graph.opset)
    return View(recording, graph=changed, changes={tensor: to_codes})


def with_further_cause(residual: Residual, finding: SearchResult) -> Residual:
    """Return the residual of a search, with the cause replaced by one from `further_cause` if there is one.

    Residuals with errors of at most one LSB are returned unchanged, because a rounding explains them.

    Args:
        residual: The residual of a node that no known mistake on codes reproduces.
        finding: The search result of the node.
    """
    if residual.reproduces or residual.max_lsb <= 1 or residual.pattern in _CONCLUSIVE_PATTERNS:
        return residual
    source = finding.source
    recording = with_understood_graph(source.recording)
    in_layer = residual.pattern != "factor"  # many different mistakes inside a layer scale its output
    cause = further_cause(recording, source.node, source.tensor, source.places, in_layer=in_layer)
    if cause is None:
        return residual
    return replace(residual, likely=cause.removeprefix(LIKELY), reproduces=EVERY in cause)


_CONCLUSIVE_PATTERNS = frozenset(("clamp", "one_code"))
"""Patterns of wrong codes that describe the cause as well as a mistake would."""
