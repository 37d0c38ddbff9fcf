"""Checks whether both runs were given the same inputs. If not, errors are not evidence against the nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.compare.align.layouts import in_one_order, permute_quant
from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.band import difference, finite_norm, norm
from qdebug.compare.attribute.code_spans import clip_in_turn
from qdebug.compare.measure.recordings import is_fed_back
from qdebug.compare.result.finding import apart
from qdebug.model import Graph, QuantParams, Recording, operators
from qdebug.model.recording import either_places
from qdebug.model.thresholds.rounding import LSB_SLACK
from qdebug.model.thresholds.verdict import EQUAL_INPUTS_MIN_SQNR, EQUAL_INPUTS_MIN_SQNR_OF_16_BITS
from qdebug.numerics.accumulate import has_same_elements
from qdebug.numerics.affine import dequantize
from qdebug.numerics.grid import grid_step
from qdebug.numerics.short_formats import SHORT_FORMATS, format_of

__all__ = ["ElementOrder", "InputDifference", "different_inputs", "input_difference"]


class ElementOrder(Enum):
    """A wrong order in which elements are often stored."""

    CHANNELS_LAST = "channels last"
    CHANNELS_SECOND = "channels second"
    REVERSED_CHANNELS = "reversed channels"
    SWAPPED_PLANE = "swapped plane"


def _channels_last(values: np.ndarray) -> np.ndarray:
    """Reorder elements that are stored channels-last into a channels-second shape."""
    batch, channels, *spatial = values.shape
    return np.moveaxis(values.reshape(batch, *spatial, channels), -1, 1)


def _channels_second(values: np.ndarray) -> np.ndarray:
    """Reorder elements that are stored channels-second into a channels-last shape."""
    batch, *spatial, channels = values.shape
    return np.moveaxis(values.reshape(batch, channels, *spatial), 1, -1)


def _reversed_channels(values: np.ndarray) -> np.ndarray:
    """Reverse the channels, whichever dimension they are in."""
    return np.flip(values, axis=1 if values.shape[1] <= values.shape[-1] else -1)


def _swapped_plane(values: np.ndarray) -> np.ndarray:
    """Swap height and width, if the shape allows it."""
    first, second = (2, 3) if values.shape[1] <= values.shape[-1] else (1, 2)
    return values.swapaxes(first, second) if values.ndim == 4 else values


_ORDERS: Mapping[ElementOrder, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    ElementOrder.CHANNELS_LAST: (
        "it is equal if read with channels last; import it with --layout NHWC",
        _channels_last,
    ),
    ElementOrder.CHANNELS_SECOND: (
        "it is equal if read with channels second; import it with --layout NCHW",
        _channels_second,
    ),
    ElementOrder.REVERSED_CHANNELS: ("it is equal if its channels are reversed (RGB and BGR)", _reversed_channels),
    ElementOrder.SWAPPED_PLANE: ("it is equal if its height and width are swapped", _swapped_plane),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDifference:
    """The difference of a network input between two runs.

    Args:
        tensor: The backend's input.
        amount: The largest difference, or the SQNR in dB.
        limit: Its limit.
        unit: Unit of both: "steps", "dB", or "elements" for non-finite values and for integers that are not codes.
        nonfinite: Whether these elements are NaN or infinite in one run only.
        order: The order of elements in which the inputs would be equal, or None.
    """

    tensor: str
    amount: float
    limit: float
    unit: str
    nonfinite: bool = False
    order: ElementOrder | None = None

    @property
    def excess(self) -> float:
        """How far it exceeds its limit. Larger is worse."""
        if self.nonfinite:
            return math.inf
        return self.limit - self.amount if self.unit == "dB" else self.amount - self.limit

    @property
    def sentence(self) -> str:
        """A clause without the name of the input."""
        return self._differs if self.order is None else f"{self._differs}; {_ORDERS[self.order][0]}"

    @property
    def _differs(self) -> str:
        if self.unit == "dB":
            return f"differs: SQNR {apart(self.amount, self.limit)} dB is below {self.limit:g} dB"
        if self.nonfinite:
            count = f"{self.amount:g} {'element' if self.amount == 1 else 'elements'}"
            return f"has {count} NaN or infinite in one run only"
        if self.unit == "elements":
            return f"differs in {self.amount:g} {'element' if self.amount == 1 else 'elements'}"
        return f"differs by up to {apart(self.amount, self.limit)} LSB, more than {self.limit:g} LSB"


def different_inputs(reference: Recording, backend: Recording, pairs: Iterable[Pair]) -> Iterator[InputDifference]:
    """Yield the network inputs that differ between two runs by more than their formats explain.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment.
    """
    for pair in pairs:
        difference = input_difference(reference, backend, pair)
        if difference is not None:
            yield difference


def input_difference(reference: Recording, backend: Recording, pair: Pair) -> InputDifference | None:
    """Return the difference of a network input if it is more than the formats explain.

    Codes explain clipping and half a step of the coarser scale that either run declares for the input. Reals on a grid
    with few levels count as codes. Other reals must agree to 60 dB, or 30 dB in 16 bits. States that a run feeds back
    to itself do not count as inputs.

    Args:
        reference: The reference run.
        backend: The backend run.
        pair: A pair of the alignment.

    Returns:
        The difference, or None for equal inputs, for other tensors, and if values were not kept in full.
    """
    graphs = reference.graph, backend.graph
    names = pair.reference, pair.backend
    if not any(name in graph.inputs for graph, name in zip(graphs, names, strict=True)):
        return None
    if not all(_may_be_input(graph, name) for graph, name in zip(graphs, names, strict=True)):
        return None
    if is_fed_back(reference, pair.reference) and is_fed_back(backend, pair.backend):
        return None
    quants = [*_declared_quants(graphs[0], pair.reference), *_declared_quants(graphs[1], pair.backend)]

    def values() -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
        return _load_both_sides(reference, backend, pair)

    differences = (
        _difference_beyond_limit(pair.backend, expected, actual, quants, short=short)
        for expected, actual, short in values()
    )
    worst = max(
        (difference for difference in differences if difference is not None),
        key=lambda difference: difference.excess,
        default=None,
    )
    return None if worst is None else replace(worst, order=_find_element_order(pair.backend, values, quants))


def _find_element_order(
    tensor: str, values: Callable[[], Iterator[tuple[np.ndarray, np.ndarray, bool]]], quants: Sequence[QuantParams]
) -> ElementOrder | None:
    """Return the order in which the backend's elements equal the reference's in all samples, or None if unknown."""
    for order, (_, rearrange) in _ORDERS.items():
        for reference_values, actual, is_16_bit in values():
            rearranged = rearrange(actual) if actual.ndim > 2 else actual
            if (
                rearranged.shape != reference_values.shape
                or _difference_beyond_limit(tensor, reference_values, rearranged, quants, short=is_16_bit) is not None
            ):
                break
        else:
            return order
    return None


def _may_be_input(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor is a network input or has no recorded node."""
    node = graph.producer(tensor)
    return node is None or (has_unknown_inputs(node) and not any(node.inputs))


def _declared_quants(graph: Graph, tensor: str) -> Iterator[QuantParams]:
    """Yield the quantization that a graph declares for an input, either there or at a quantizer that reads it."""
    names = [tensor]
    names += [node.outputs[0] for node in graph.consumers(tensor) if operators.of(node.op).quantizes]
    yield from (quant for name in names if (quant := graph.tensors[name].quant) is not None)


def _load_both_sides(
    reference: Recording, backend: Recording, pair: Pair
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Yield the real values of both sides in one order, if of equal size, and whether one side has 16 bits."""
    quants = reference.graph.tensors[pair.reference].quant, backend.graph.tensors[pair.backend].quant
    for place in either_places(reference, pair.reference, backend, pair.backend):
        if not (reference.has(pair.reference, *place) and backend.has(pair.backend, *place)):
            continue
        reference_values, backend_values = reference.load(pair.reference, *place), backend.load(pair.backend, *place)
        reference_values, backend_values = in_one_order(
            reference_values, pair.reference_view, backend_values, pair.backend_view
        )
        if (
            (quants[0] is None) is not (quants[1] is None)
            and reference_values.dtype == backend_values.dtype
            and reference_values.dtype.kind in "iu"
        ):
            quants = None, None  # if only one side states the scale, compare the codes
        is_16_bit = any(array.dtype.name in _SHORT for array in (reference_values, backend_values))
        if has_same_elements(reference_values.shape, backend_values.shape):
            yield (
                dequantize(reference_values, permute_quant(quants[0], pair.reference_view)),
                dequantize(backend_values, permute_quant(quants[1], pair.backend_view)).reshape(reference_values.shape),
                is_16_bit,
            )


def _difference_beyond_limit(
    tensor: str, expected: np.ndarray, actual: np.ndarray, quants: Sequence[QuantParams], *, short: bool
) -> InputDifference | None:
    """Return the difference of an input, `short` if a side has a 16-bit format, or None if it is within its limit."""
    is_real = expected.dtype.kind == actual.dtype.kind == "f"
    if np.array_equal(expected, actual, equal_nan=is_real):
        return None
    if not is_real and not quants:
        return InputDifference(
            tensor=tensor,
            amount=float(np.count_nonzero(expected != actual)),
            limit=0.0,
            unit="elements",
        )
    nonfinite_count = np.count_nonzero(~np.isfinite(difference(actual, expected)))
    if nonfinite_count:
        return InputDifference(tensor=tensor, amount=float(nonfinite_count), limit=0.0, unit="elements", nonfinite=True)
    steps, spans = [float(np.max(quant.real_scale)) for quant in quants], [quant.span for quant in quants]
    if not steps:
        grids = [(step, values) for values in (expected, actual) if (step := grid_step(values)) is not None]
        steps, spans = [step for step, _ in grids], [(values.min(), values.max()) for _, values in grids]
    expected, actual = clip_in_turn(expected, *spans), clip_in_turn(actual, *spans)
    errors = difference(actual, expected)
    if steps:
        amount = float(np.max(np.abs(errors), initial=0.0)) / (max(steps) or math.inf)
        is_beyond = amount > _HALF_STEP * (1 + LSB_SLACK)
        return InputDifference(tensor=tensor, amount=amount, limit=_HALF_STEP, unit="steps") if is_beyond else None
    short = short or any(format_of(values, read=()) is not None for values in (expected, actual))
    limit = EQUAL_INPUTS_MIN_SQNR_OF_16_BITS if short else EQUAL_INPUTS_MIN_SQNR
    signal, error = finite_norm(expected), norm(errors)
    level = 20 * math.log10(signal / error) if signal and error else -math.inf
    return InputDifference(tensor=tensor, amount=level, limit=limit, unit="dB") if level < limit else None


_SHORT = frozenset(short.name for short in SHORT_FORMATS)
_HALF_STEP = 0.5
"""Error that rounding to codes explains, in steps."""
