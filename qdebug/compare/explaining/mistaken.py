"""Which known mistake reproduces a node's output if the correct computation does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

import numpy as np

from qdebug.arithmetic.mistakes import Mistake, mistakes
from qdebug.compare.attribute.backend_replay import read
from qdebug.compare.attribute.band import allowed_error, difference, norm
from qdebug.compare.explaining.fused import WithFused
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording, operators
from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES, FURTHER_CAUSE_MIN_EQUAL_CODES
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF, LSB_SLACK
from qdebug.numerics.affine import dequantize
from qdebug.numerics.short_formats import format_of
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node

__all__ = ["made_by", "mistake_inside", "mistake_of", "read_inputs", "rounding_of"]


def mistake_of(recording: Recording, node: Node, tensor: str, places: Sequence[tuple[int, int]]) -> str | None:
    """Return the only known mistake that reproduces all of a node's output, in words, or None if none or several do.

    Args:
        recording: The run.
        node: A node whose replay does not reproduce its output.
        tensor: The output, of real numbers or of whole sums.
        places: Samples and steps to examine.
    """
    form, opset = real_form(node, recording.graph.opset)
    if recording.graph.tensors[tensor].quant is not None or tensor not in form.outputs[:1] or not places:
        return None
    wanted: dict[str, Mistake] | None = None  # key: the text of the mistake
    try:
        for place in places:
            values, recorded = read_inputs(recording, form, place), recording.load(tensor, *place)
            if wanted is None and np.unique(recorded).size < CAUSE_MIN_DISTINCT_VALUES:
                return None
            with recorded_limits(recording, place), np.errstate(all="ignore"):
                right = run_node(form, values, opset)[form.outputs[0]]
                wanted = {
                    each.likely: each
                    for each in chain(mistakes(form, values, opset), _of_scales(recording, form, values))
                    if (wanted is None or each.likely in wanted)
                    and _gives(each, values, recorded, opset, right if each.node is form else None)
                }
            if not wanted:
                return None
    except (KernelError, NotRecordedError, UsageError):
        return None
    fitting = list((wanted or {}).values())
    # Prefer mistakes that explain all elements.
    found = [each for each in fitting if not each.told] or fitting
    one = len(found) == 1 or (len({each.about for each in found}) == 1 and found[0].about)
    return ", or ".join(each.likely for each in found) if one else None


def mistake_inside(layers: WithFused, node: Node, tensor: str, places: Sequence[tuple[int, int]]) -> str | None:
    """Return the only known mistake inside a layer that reproduces its whole output, in words, with the node.

    Args:
        layers: The run with tensors inside its layers computed.
        node: The last node of the layer.
        tensor: Its output.
        places: Samples and steps to examine.

    Returns:
        The clause, or None if none or several mistakes do, or if the output is not far enough off to distinguish them.
    """
    chains = [chain for name in node.inputs if name and (chain := layers.chain(name)) is not None]
    if len(chains) != 1 or chains[0].makes_codes or not places:
        return None
    nodes, wanted = [*chains[0].nodes, node], None
    try:
        for place in places:
            found = set(_of_nodes(layers, nodes, tensor, place))
            wanted = found if wanted is None else wanted & found
            if len(wanted) == 0:
                return None
    except (KernelError, NotRecordedError, UsageError):
        return None
    return f"{next(iter(wanted))} (reproduces every element)" if wanted is not None and len(wanted) == 1 else None


def _of_nodes(layers: WithFused, nodes: Sequence[Node], tensor: str, place: tuple[int, int]) -> Iterator[str]:
    """Yield the mistakes of each node in turn that reproduce the recorded output of the last node."""
    quant = layers.graph.tensors[tensor].quant
    recorded = dequantize(layers.load(tensor, *place), quant)
    short = format_of(recorded, read=())
    unit = FLOAT32_UNIT_ROUNDOFF if short is None else short.unit
    known: dict[str, np.ndarray] = {}

    def give(node: Node, made: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        names = dict.fromkeys(filter(None, node.inputs))
        return layers.run(node, {name: made[name] if name in made else layers.load(name, *place) for name in names})

    with recorded_limits(layers, place), np.errstate(all="ignore"):
        for node in nodes:
            known.update(give(node, known))
        right = dequantize(known[tensor], quant)
        off = difference(recorded, right) if recorded.shape == right.shape else np.zeros(0)
        if np.unique(recorded).size < CAUSE_MIN_DISTINCT_VALUES or not norm(off) > _FAR * norm(
            recorded.astype(np.float64)
        ):
            return
        step = 0.0 if quant is None else float(np.max(quant.scale)) * (1 + LSB_SLACK)
        if quant is not None and not np.count_nonzero(np.abs(off) > step) >= CAUSE_MIN_DISTINCT_VALUES:
            return
        allowed = 0.0 if quant is not None else layers.rounding(nodes[-1], *place) * unit / FLOAT32_UNIT_ROUNDOFF
        for at, node in enumerate(nodes):
            form, opset = real_form(node, layers.graph.opset)
            names = dict.fromkeys(filter(None, form.inputs))
            values = {name: known[name] if name in known else layers.load(name, *place) for name in names}
            for each in chain(mistakes(form, values, opset), _of_scales(layers, form, values)):
                if each.told:
                    continue
                with suppress(KernelError, UsageError):
                    made = run_node(each.node, {**values, **each.values}, each.opset or opset)
                    results = {**known, node.outputs[0]: each.after(made[each.node.outputs[0]])}
                    for later in nodes[at + 1 :]:
                        results.update(give(later, results))
                    last = dequantize(results[tensor], quant)
                    if last.shape == recorded.shape and _are_alike(difference(recorded, last), allowed, step):
                        yield f"{each.likely} in {node.name!r} ({node.op}), inside the layer"


def _are_alike(off: np.ndarray, allowed: float, step: float) -> bool:
    """Return whether results are equal up to rounding: for codes, up to one step in a few of them."""
    if not step:
        return norm(off) <= allowed
    equal = np.count_nonzero(np.abs(off) <= step * LSB_SLACK)
    return bool(np.all(np.abs(off) <= step) and equal >= FURTHER_CAUSE_MIN_EQUAL_CODES * off.size)


def read_inputs(recording: Recording, form: Node, place: tuple[int, int]) -> dict[str, np.ndarray]:
    """Load a node's inputs, computing unrecorded ones that depend only on constants.

    Args:
        recording: The run.
        form: The node's real-valued form.
        place: Sample and step.

    Raises:
        KernelError: An input cannot be computed.
        NotRecordedError: An input was not recorded.
    """
    made: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(filter(None, form.inputs)):
        maker = recording.graph.producer(name)
        if recording.has(name, *place) or maker is None or not _reads_constants(recording, maker):
            made[name] = read(recording, place, form, name)
        else:
            held = {each: recording.load(each) for each in maker.inputs if each}
            made[name] = run_node(maker, held, recording.graph.opset)[name]
    return made


def _reads_constants(recording: Recording, node: Node) -> bool:
    return all(recording.graph.is_constant(each) and recording.has(each) for each in node.inputs if each)


def _of_scales(recording: Recording, form: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in dequantizing a weight: scales along a wrong axis, the first scale for all, no zero point."""
    graph = recording.graph
    for name in dict.fromkeys(filter(None, form.inputs)):
        maker = graph.producer(name)
        if maker is None or not operators.plain(maker).dequantizes or name not in values:
            continue
        if not _reads_constants(recording, maker):
            continue
        scale, axis = recording.load(maker.inputs[1]).astype(np.float32), maker.attrs.get("axis", 1)
        weight = values[name]
        if scale.ndim != 1 or scale.size < _TOLD_LEAST or not isinstance(axis, int) or np.unique(scale).size == 1:
            continue
        bare = weight / _along(scale, axis, weight.ndim)
        for other in range(weight.ndim):
            if other != axis % weight.ndim and weight.shape[other] == scale.size:
                said = f"the scales of {name!r} are applied along axis {other}, not {axis}"
                yield Mistake(likely=said, node=form, values={name: bare * _along(scale, other, weight.ndim)})
        yield from _of_lanes(form, name, np.rint(bare), _along(scale, axis, weight.ndim))
        said = f"the first scale of {name!r} is used for all channels"
        yield Mistake(likely=said, node=form, values={name: np.asarray(bare * scale[0])})
        said = f"the scales of {name!r} are shifted by one channel"
        yield Mistake(likely=said, node=form, values={name: bare * _along(np.roll(scale, 1), axis, weight.ndim)})


def _of_lanes(form: Node, name: str, codes: np.ndarray, scale: np.ndarray) -> Iterator[Mistake]:
    """Yield codes unpacked several at a time, with each negative code borrowing 1 from the next."""
    for axis, extent in enumerate(codes.shape):
        for lanes in (each for each in _LANES if extent % each == 0 and np.any(codes < 0)):
            parts = np.moveaxis(codes, axis, -1).reshape(-1, extent // lanes, lanes).copy()
            parts[..., 1:] -= parts[..., :-1] < 0
            borrowed = np.moveaxis(parts.reshape(np.moveaxis(codes, axis, -1).shape), -1, axis)
            said = f"each negative code of {name!r} borrows 1 from the next along axis {axis}, in lanes of {lanes}"
            yield Mistake(likely=said, node=form, values={name: (borrowed * scale).astype(np.float32)})


_LANES = (2, 4, 8)
"""Number of codes unpacked at a time."""


def _along(values: np.ndarray, axis: int, axes: int) -> np.ndarray:
    return values.reshape([-1 if at == axis % axes else 1 for at in range(axes)])


_FAR = 0.01
"""Relative error norm of a layer's output above which a mistake inside it is searched for."""
_TOLD_LEAST = 3
"""Rows and columns of which a mistake must predict all but one."""


def _gives(
    mistake: Mistake,
    values: Mapping[str, np.ndarray],
    recorded: np.ndarray,
    opset: Mapping[str, int],
    right: np.ndarray | None,
) -> bool:
    """Return whether a node with a mistake reproduces the recorded output up to rounding.

    Args:
        mistake: The mistake.
        values: The node's inputs.
        recorded: The recorded output.
        opset: Version of each operator set.
        right: The correct output, if the mistake only concerns how it is used, or None.
    """
    made = made_by(mistake, values, opset, right)
    if made is None or made.shape != recorded.shape or (made.dtype.kind == "f") != (recorded.dtype.kind == "f"):
        return False
    if mistake.told and min(made.shape[-2:], default=0) < _TOLD_LEAST:
        return False
    part, kept = made[mistake.told], recorded[mistake.told]
    if _is_exact(mistake.node, made):
        return np.array_equal(part, kept, equal_nan=made.dtype.kind == "f")
    read = {**values, **mistake.values}
    return norm(difference(kept, part)) <= rounding_of(mistake.node, read, made, kept, opset)


def made_by(
    mistake: Mistake, values: Mapping[str, np.ndarray], opset: Mapping[str, int], right: np.ndarray | None
) -> np.ndarray | None:
    """Return the output of a node with a mistake, or None if it cannot be computed.

    Args:
        mistake: The mistake.
        values: The node's inputs.
        opset: Version of each operator set.
        right: The correct output, if the mistake only concerns how it is used, or None.
    """
    known = None if mistake.values or mistake.opset is not None else right
    try:
        if known is None:
            made = run_node(mistake.node, {**values, **mistake.values}, mistake.opset or opset)
            known = made[mistake.node.outputs[0]]
        return mistake.after(known)
    except (KernelError, UsageError):
        return None


def rounding_of(
    node: Node, values: Mapping[str, np.ndarray], made: np.ndarray, recorded: np.ndarray, opset: Mapping[str, int]
) -> float:
    """Return the error norm that rounding explains, or 0 for an operator that does not round.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
        made: Its computed output.
        recorded: Its recorded output.
        opset: Version of each operator set.
    """
    if _is_exact(node, made):
        return 0.0
    short = format_of(recorded, read=values.values())
    unit = FLOAT32_UNIT_ROUNDOFF if short is None else short.unit
    return allowed_error(node, values, made, opset, unit)


def _is_exact(node: Node, made: np.ndarray) -> bool:
    row = operators.of(node.op)
    return made.dtype.kind != "f" or row.casts or row.rounds_nothing
