"""Finds where a node with 16-bit or 8-bit float results rounds, by reproducing its recorded result.

A float kernel may sum in any order. But once a result is rounded to few digits, most elements have only one possible
value. See `qdebug.arithmetic.floats.search`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from qdebug.arithmetic.floats.recipes import RECIPES, Along
from qdebug.arithmetic.floats.search import Observation, PlacementFinding, search_placements
from qdebug.arithmetic.floats.steps import Step, source
from qdebug.arithmetic.mistakes.accumulation import short_sums
from qdebug.arithmetic.mistakes.mistake import MISFITS
from qdebug.arithmetic.units import Place
from qdebug.compare.attribute.backend_replay import inputs_of
from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation, RunnerUp
from qdebug.compare.explaining.float_node import output_format
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording, operators
from qdebug.model.thresholds.explanation import (
    CAUSE_MIN_DISTINCT_VALUES,
    FUSED_MAX_NODES,
    PLACEMENT_MAX_PRODUCTS_BEFORE,
)
from qdebug.numerics.short_formats import ShortFormat
from qdebug.replay.precision import is_real
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node

__all__ = ["find_placement", "jointly_moved_axes", "with_placement"]

_ROUNDING_KIND = "rounding"
"""`NodeExplanation.kind` of a float node that a placement of roundings reproduces."""


def jointly_moved_axes(form: Node, rank: int) -> tuple[int, ...]:
    """Return the axes along which a single rounding error inside a node may shift all elements of its result.

    In a normalization, all elements of a row share a rounded factor. In a product, all elements of a channel share the
    rounded weights. In a cumulative sum, each error is part of all later sums.

    Args:
        form: The real form of the node.
        rank: Number of axes of its result.
    """
    row, recipe = operators.plain(form), RECIPES.get(form.op)
    if row.accumulates:
        return tuple(range(rank))
    if row.windowed:
        return tuple(range(1, rank - 1) if form.attrs.get("channels_last") else range(2, rank))
    if row.product:
        return tuple(range(rank - 1))
    by_rows = not row.elementwise if recipe is None else recipe.along in (Along.LAST, Along.AXIS)
    return (rank - 1,) if by_rows and rank else ()


def find_placement(
    recording: Recording, node: Node, tensor: str, at: Sequence[Place], short: ShortFormat
) -> PlacementFinding | None:
    """Find the placement of roundings that reproduces an output of a float node.

    Args:
        recording: The run.
        node: The node.
        tensor: One of its outputs.
        at: Samples and steps to examine.
        short: The format that the output was rounded to.

    Returns:
        The placements that fit, and the evidence for them. None if the operator has no recipe, or its inputs were not
            recorded.
    """
    expression = _Expression(recording, node, tensor)
    try:
        observations = [expression.observe(place) for place in at]
        return search_placements(observations, short) if observations else None
    except (KernelError, NotRecordedError, *MISFITS):
        return None


def with_placement(recording: Recording, node: Node, tensor: str, answer: NodeExplanation) -> NodeExplanation:
    """Return the answer for a float node as explained by its placement of roundings, if one reproduces its output.

    If none does, sums in a short accumulator are tried. If they fail too, the answer is returned unchanged.

    Args:
        recording: The run.
        node: The node.
        tensor: One of its outputs.
        answer: The answer so far.

    Raises:
        RecordingError: A tensor cannot be read.
    """
    if answer.status is ExplainStatus.EXPLAINED or tensor not in recording.names:
        return answer
    form, _ = real_form(node, recording.graph.opset)
    at = recording.places(tensor)
    short = output_format(recording, form, tensor, at)
    finding = None if short is None else find_placement(recording, node, tensor, at, short)
    if finding is None or finding.named is None:
        return answer if short is None else _with_short_accumulator(recording, node, tensor, answer, short)
    match = 1 - finding.witnesses / max(finding.elements, 1)
    runner_up = None if finding.runner_up is None else RunnerUp(variant=str(finding.runner_up), match=match)
    explained = _explained_answer(answer, finding.words, finding.short, alone=len(finding.fitting), tried=finding.tried)
    return replace(
        explained,
        placements=tuple(map(str, finding.fitting)),
        elements=finding.elements,
        witnesses=finding.witnesses,
        witness_elements=finding.witnesses,
        runner_up=runner_up,
    )


def _explained_answer(answer: NodeExplanation, words: str, short: str, *, alone: int, tried: int) -> NodeExplanation:
    """Return the answer for a node whose roundings reproduce every bit.

    Args:
        answer: The answer so far.
        words: The roundings in words.
        short: Name of the short format.
        alone: Number of candidates that reproduce the node.
        tried: Number of candidates tried.
    """
    return NodeExplanation(
        node=answer.node,
        op=answer.op,
        tensor=answer.tensor,
        status=ExplainStatus.EXPLAINED,
        reason=answer.reason if answer.status is ExplainStatus.IN_BAND else None,
        kind=_ROUNDING_KIND,
        words=words,
        alone=alone,
        tried=tried,
        match=1.0,
        dtypes=short,
        band=answer.band,
    )


def _with_short_accumulator(
    recording: Recording, node: Node, tensor: str, answer: NodeExplanation, short: ShortFormat
) -> NodeExplanation:
    """Return the answer for a node as explained by sums in a short format, if they reproduce every recorded bit.

    The sums take one term after another. If they fail, the answer is returned unchanged.
    """
    form, opset = real_form(node, recording.graph.opset)
    common: dict[str, None] | None = None
    witnesses = elements = tried = 0
    try:
        for place in recording.places(tensor):
            inputs = inputs_of(recording, form, place)
            values = {
                name: array.astype(np.float32) if is_real(array.dtype) else array for name, array in inputs.items()
            }
            recorded = recording.load(tensor, *place).astype(np.float32)
            zeros = np.zeros(recorded.shape, np.float32)
            sums = {each.likely: short.rounded(each.after(zeros)) for each in short_sums(form, values)}
            fitting = [text for text, result in sums.items() if np.array_equal(result, recorded)]
            common, tried = {text: None for text in fitting if common is None or text in common}, len(sums)
            if not common:
                return answer
            in_float32 = run_node(form, values, opset)[form.outputs[0]]
            elements += recorded.size
            witnesses += int(np.count_nonzero(short.rounded(in_float32.astype(np.float32)) != recorded))
    except (KernelError, NotRecordedError, UsageError):
        return answer
    if not common or witnesses < CAUSE_MIN_DISTINCT_VALUES:
        return answer
    explained = _explained_answer(answer, ", or ".join(common), short.name, alone=len(common), tried=tried)
    return replace(explained, elements=elements, witnesses=witnesses, witness_elements=witnesses)


class _Expression:
    """Builds a node's result as an expression of recorded tensors.

    Args:
        recording: The run.
        node: The node.
        tensor: One of its outputs.
    """

    def __init__(self, recording: Recording, node: Node, tensor: str) -> None:
        self._recording, self._node, self._tensor = recording, node, tensor

    def observe(self, place: Place) -> Observation:
        """Return the expression of the node's result, with the recorded result, in one sample and step.

        Raises:
            KernelError: A node has no recipe.
            RecordingError: A tensor was not recorded.
        """
        recorded = self._recording.load(self._tensor, *place)
        arrays: dict[str, np.ndarray] = {}
        nodes = self._collect_nodes(self._node, place, arrays)
        by_rows = recorded.ndim > 0 and all(RECIPES[each.op].is_by_rows(each, recorded.ndim) for each in nodes)
        rows = {name: _as_rows(array, recorded.shape, nodes) for name, array in arrays.items()} if by_rows else {}
        if any(array is None for array in rows.values()):
            by_rows = False
        if not by_rows:
            return Observation(build=lambda _: self._build(arrays, nodes), recorded=recorded, by_rows=False)
        in_rows = {name: array for name, array in rows.items() if array is not None}
        in_last = [_with_last_axis(each) for each in nodes]
        length = recorded.shape[-1]
        return Observation(
            build=partial(self._build_rows, in_rows, in_last), recorded=recorded.reshape(-1, length), by_rows=True
        )

    def _collect_nodes(self, node: Node, place: Place, arrays: dict[str, np.ndarray]) -> list[Node]:
        """Collect the nodes of the expression, in order, and load the tensors that they read.

        Args:
            node: The last node of the expression.
            place: Sample and step.
            arrays: Receives the tensors.

        Raises:
            KernelError: A node has no recipe, or there are too many nodes.
            NotRecordedError: A tensor was not recorded.
        """
        form, _ = real_form(node, self._recording.graph.opset)
        if form.op not in RECIPES:
            raise KernelError(f"no rounding steps are known for {form.op}")
        nodes: list[Node] = []
        for name in dict.fromkeys(filter(None, form.inputs)):
            is_recorded = self._recording.has(name, *place)
            if is_recorded:
                arrays[name] = inputs_of(self._recording, replace(form, inputs=(name,)), place)[name]
            producer = self._recording.graph.producer(name)
            if producer is None or self._recording.graph.is_constant(name):
                if not is_recorded:
                    raise KernelError(f"{name!r} was not recorded")
                continue
            before: dict[str, np.ndarray] = {}
            try:
                inner = (
                    self._collect_nodes(producer, place, before)
                    if not is_recorded
                    else self._recomputed_producer(producer, place, before)
                )
            except (KernelError, NotRecordedError):
                if is_recorded:
                    continue
                raise
            nodes += inner
            arrays.update(before)
        if len(nodes) >= FUSED_MAX_NODES:
            raise KernelError("too many nodes lie between recorded tensors")
        return [*dict.fromkeys((*nodes, form))]

    def _recomputed_producer(self, producer: Node, place: Place, arrays: dict[str, np.ndarray]) -> list[Node]:
        """Return the node before, as a kernel may read its result before it is rounded to the recorded values.

        Args:
            producer: The node before.
            place: Sample and step.
            arrays: Receives its inputs.

        Raises:
            KernelError: It has no element-wise or product recipe, or is too large to be recomputed.
        """
        form, _ = real_form(producer, self._recording.graph.opset)
        if form.op not in RECIPES or RECIPES[form.op].along not in (Along.NOTHING, Along.OTHERS):
            raise KernelError(f"{form.op} cannot be recomputed")
        inputs = inputs_of(self._recording, form, place)
        operands = [inputs[name] for name in form.inputs[:2]]
        if operators.of(form.op).product and _count_products(form, operands) > PLACEMENT_MAX_PRODUCTS_BEFORE:
            raise KernelError(f"{form.op} is too large to be recomputed")
        arrays.update(inputs)
        return [form]

    def _build_rows(self, rows_of: Mapping[str, np.ndarray], nodes: Sequence[Node], rows: np.ndarray | None) -> Step:
        taken = {name: array if rows is None or len(array) == 1 else array[rows] for name, array in rows_of.items()}
        return self._build(taken, nodes)

    def _build(self, arrays: Mapping[str, np.ndarray], nodes: Sequence[Node]) -> Step:
        """Build the expression of the output from the arrays that its nodes read."""
        steps: dict[str, Step] = {}
        shapes = {name: array.shape for name, array in arrays.items()}
        made: Step | None = None
        for node in nodes:
            inputs = [steps[name] if name in steps else source(arrays[name]) for name in node.inputs if name]
            results = RECIPES[node.op].steps(node, inputs, [shapes[name] for name in node.inputs if name])
            for name, result in zip(node.outputs, results, strict=False):
                if not name:
                    continue
                if name == self._tensor:
                    made = result
                    continue
                if name not in shapes:
                    shapes[name] = _shape_of_result(node, shapes)
                if name in arrays:
                    steps[name] = result.or_recorded(f"its input {name!r}", arrays[name])
                else:
                    steps[name] = result.between(f"{name!r}")
        if made is None:
            raise KernelError(f"{nodes[-1].op} does not compute {self._tensor!r}")
        return made


def _with_last_axis(node: Node) -> Node:
    """Return a node that works along the last axis with its axis stated as -1, which is valid for reshaped rows."""
    return replace(node, attrs={**node.attrs, "axis": -1}) if "axis" in node.attrs else node


def _as_rows(array: np.ndarray, shape: tuple[int, ...], nodes: Sequence[Node]) -> np.ndarray | None:
    """Reshape an array to (rows, length), or to a single row that all rows share. None if neither is possible."""
    if array.shape == shape:
        return array.reshape(-1, shape[-1])
    if array.size == 1 or (array.size == array.shape[-1] and array.shape[-1] in (1, shape[-1])):
        return array.reshape(1, -1)
    if all(RECIPES[node.op].along is Along.NOTHING for node in nodes):
        return np.broadcast_to(array, shape).reshape(-1, shape[-1])
    return None


def _shape_of_result(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of an unrecorded result of an element-wise operator, or () for operators of unknown shape."""
    if RECIPES[node.op].along is Along.OTHERS:
        return ()
    return np.broadcast_shapes(*(shapes[each] for each in node.inputs if each))


def _count_products(form: Node, inputs: Sequence[np.ndarray]) -> int:
    """Estimate the number of products in a matrix product or convolution."""
    data, weight = inputs[:2]
    axis = 1 if operators.plain(form).windowed else -1
    return int(data.size // max(data.shape[axis], 1) * weight.size)
