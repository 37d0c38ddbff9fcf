"""A node's own error, element by element, with its parts and the error it causes at an output.

The own error is the difference between the backend's node and the reference's node on the same inputs. The reference's
node is computed in the reference's own arithmetic: if the reference holds codes, rounding to these codes does not count
as an error. The budget, contributions and edits are all based on it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from qdebug.compare.align.layouts import in_one_order, in_reference_order, into_stored_order
from qdebug.compare.align.pairs import clamp_of
from qdebug.compare.attribute.backend_replay import load_input, real_values, replay, replay_own
from qdebug.compare.attribute.band import difference, finite_norm, norm, sum_terms
from qdebug.compare.attribute.code_spans import (
    clamp_unless_recorded_unclamped,
    clip_in_turn,
    folded_clamp,
    reference_codes,
    uniform_span,
)
from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.graph_checks.tensor_check import TensorCheck
from qdebug.compare.graph_checks.tensor_facts import is_same_shape_but_ones
from qdebug.errors import KernelError, NotRecordedError, QdebugError
from qdebug.model import Node, operators
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.verdict import (
    CONTRIBUTION_ELEMENT_WORK,
    CONTRIBUTION_MAX_WORK,
    CONTRIBUTION_NODE_WORK,
    CONTRIBUTION_REPLAYS,
)
from qdebug.numerics.accumulate import has_same_elements
from qdebug.numerics.affine import dequantize, fake_quantize, quantize
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.extents import max_elements, recorded_sizes, size_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_real
from qdebug.replay.stacked import (
    LATEST_OPSET,
    MAX_STACKED_ELEMENTS,
    MAX_STACKED_RUNS,
    can_stack,
    mixes_steps,
    run_each_step,
)

__all__ = ["NOT_FINITE", "PARTS", "ErrorReplay", "Errors", "Replayed", "Stack", "own_error", "own_parts"]

PARTS = ("weights", "saturation", "rounding", "arithmetic")
"""Parts of a node's own error, in the order in which they arise."""
NOT_FINITE = "its error is not finite"
_MAX_CACHED_CONSTANT_BYTES = 1 << 16
"""Largest constant that is cached. Finding a smaller one in the file takes longer than reading it."""
_MAX_CACHED_ERROR_BYTES = 1 << 26
"""Maximum total size of cached own errors. Each is measured first and replayed later."""


def own_error(graphs: GraphCheck, entry: PlannedNode, place: tuple[int, int]) -> np.ndarray:
    """Return the backend's values minus those that the reference's nodes and constants give on the same inputs.

    Args:
        graphs: Compares the two graphs.
        entry: The compared tensor.
        place: Sample and step.

    Returns:
        float64 in the dimension order of the comparison.

    Raises:
        KernelError: A node cannot be replayed, or gives a different shape.
        RecordingError: A constant or an input was not recorded.
    """
    expected, actual = _expected_and_actual(graphs, entry, _find_check(graphs, entry), place)
    return difference(actual, expected)


def own_parts(graphs: GraphCheck, entry: PlannedNode, place: tuple[int, int]) -> Mapping[str, np.ndarray]:
    """Return the parts of a tensor's own error, which add up to `own_error`.

    "weights" is due to different constants, mostly rounded ones; "saturation" to clipping at the ends of the code
    range; "rounding" to rounding the rest to codes; "arithmetic" to a different computation. Without codes, everything
    except "weights" is "arithmetic".

    Args:
        graphs: Compares the two graphs.
        entry: The compared tensor.
        place: Sample and step.

    Returns:
        float64 by name, one of `PARTS`, in the dimension order of the comparison.

    Raises:
        KernelError: A node cannot be replayed, or gives a different shape.
        RecordingError: A constant or an input was not recorded.
    """
    check = _find_check(graphs, entry)
    expected, actual = _expected_and_actual(graphs, entry, check, place)
    backend, reference = graphs.replays.be.recording, graphs.replays.ref.recording
    view, codes = entry.pair.backend_view, reference_codes(reference.graph, backend.graph, entry)
    # With equal codes, the reference's rounding is also the node's.
    has_own_codes = entry.quant is not None and entry.quant != codes
    if check.segment.has_several_nodes or any(operators.of(node.op).takes_codes for node in check.segment.own):
        stages = [fake_quantize(replay_own(backend, entry.pair, check.segment, expected.shape, place), codes)]
        has_own_codes = False
    else:
        recorded_values = backend.load(entry.tensor, *place)
        replayed = replay(backend, check.node, entry.tensor, place)
        if not has_same_elements(replayed.shape, recorded_values.shape):
            raise KernelError(
                f"The replay has shape {replayed.shape}, but the recorded tensor has {recorded_values.shape}."
            )
        replayed, folded = replayed.reshape(recorded_values.shape), folded_clamp(reference, backend, entry)
        if folded is not None:
            replayed = clamp_unless_recorded_unclamped(replayed, dequantize(recorded_values, entry.quant), folded)
        stages = [fake_quantize(replayed, codes)]
        if has_own_codes and entry.quant is not None:
            stages += [
                clip_in_turn(replayed, uniform_span(entry.quant)),
                dequantize(quantize(replayed, entry.quant), entry.quant),
            ]
        stages = [in_reference_order(stage, view, expected.shape) for stage in stages]
    steps = [expected, *(clip_in_turn(stage.reshape(expected.shape), clamp_of(view)) for stage in stages), actual]
    names = PARTS if has_own_codes else (PARTS[0], PARTS[-1])
    return {
        name: difference(later_stage, earlier_stage)
        for name, earlier_stage, later_stage in zip(names, steps[:-1], steps[1:], strict=True)
    }


def _find_check(graphs: GraphCheck, entry: PlannedNode) -> TensorCheck:
    check = graphs.of(entry)
    if check is None:
        raise KernelError(f"The nodes that compute {entry.tensor!r} are not known.")
    return check


def _expected_and_actual(
    graphs: GraphCheck, entry: PlannedNode, check: TensorCheck, place: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the reference's nodes on the backend's inputs, and the backend's values."""
    backend = graphs.replays.be.recording
    expected = graphs.replays.expected(entry, check.segment, place)
    view = entry.pair.backend_view
    actual = clip_in_turn(
        in_reference_order(real_values(backend, entry.tensor, place), view, expected.shape), clamp_of(view)
    )
    if not is_same_shape_but_ones(actual.shape, expected.shape):
        raise KernelError(f"The replay has shape {expected.shape}, but the recorded tensor has {actual.shape}.")
    return expected, actual.reshape(expected.shape)


class Replayed(NamedTuple):
    """The reference's output after a replay with errors.

    Args:
        values: Real values in the reference's shape, or None if unknown.
        reason: A clause on why they are unknown. "" if they are known, or if no error reaches the output.
    """

    values: np.ndarray | None
    reason: str = ""


Errors = Sequence[tuple[PlannedNode, np.ndarray | None]]
"""Compared tensors, each with an error in the dimension order of the comparison, or None for its own error."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stack:
    """Steps of a sample that are replayed as one, stacked along the first axis.

    Args:
        count: Number of steps, at least two.
        own_error: Returns a tensor's own error at a place, in all these steps.
        mixing_nodes: Whether each node, by name, gives other results for stacked steps. Filled on demand.
    """

    count: int
    own_error: Callable[[PlannedNode, tuple[int, int]], np.ndarray]
    mixing_nodes: dict[str, bool]


class ErrorReplay:
    """Replays errors to one output, in one sample and step.

    Each error is added to the reference's tensor, and the reference's downstream nodes are replayed in the reference's
    own arithmetic: quantized tensors are rounded to their codes. Values that no error reaches are taken as recorded. A
    tensor with an error may leave the domain of a subsequent operator, such as a root or a logarithm. It is then
    clipped to the range that the two runs recorded for it.

    Several replays run through the network together: a node that treats samples independently runs once for all replays
    whose errors reach it, with their data concatenated.

    Args:
        graphs: Compares the two graphs.
        output: The output.
        place: Sample and step.
        stack: The steps that the place stands for, or None if it is a single step.
    """

    def __init__(
        self, graphs: GraphCheck, output: PlannedNode, place: tuple[int, int], *, stack: Stack | None = None
    ) -> None:
        self._graphs, self._output, self._place, self._stack = graphs, output, place, stack
        self._reference, self._backend = graphs.replays.ref.recording, graphs.replays.be.recording
        self._upstream_tensors = upstream(self._reference.graph, (output.reference_tensor,))
        self._recorded = recorded_sizes(self._reference, place)
        self._known_work: dict[str, float] = {}
        self._forms: dict[str, tuple[Node, Mapping[str, int]]] = {}
        self._stackable: dict[tuple[str, tuple[bool, ...]], bool] = {}
        self._small: dict[tuple[str, str], np.ndarray] = {}  # small constants, by node form and name
        self._errors: dict[str, np.ndarray] = {}
        self._cache_bytes_left = _MAX_CACHED_ERROR_BYTES
        self._left_domain = False

    @cached_property
    def signal(self) -> np.ndarray:
        """The reference's output, as real values."""
        return real_values(self._reference, self._output.reference_tensor, self._place)

    @cached_property
    def recorded(self) -> np.ndarray:
        """The backend's output as real values, in the shape of the reference's."""
        pair, signal = self._output.pair, self.signal
        values = real_values(self._backend, self._output.tensor, self._place)
        _, values = in_one_order(signal, pair.reference_view, values, pair.backend_view)
        return into_stored_order(values, pair.reference_view).reshape(signal.shape)

    def own_error(self, entry: PlannedNode) -> np.ndarray:
        """Return a tensor's own error, cached. Raises the same exceptions as the function `own_error`."""
        error = self._errors.get(entry.tensor)
        if error is None:
            measure = partial(own_error, self._graphs) if self._stack is None else self._stack.own_error
            error = measure(entry, self._place)
            if error.nbytes <= self._cache_bytes_left:
                self._errors[entry.tensor] = error
                self._cache_bytes_left -= error.nbytes
        return error

    def own_parts(self, entry: PlannedNode) -> Mapping[str, np.ndarray]:
        """Return the parts of a tensor's own error, see `own_parts`, or an empty mapping if unknown."""
        try:
            return own_parts(self._graphs, entry, self._place)
        except (KernelError, NotRecordedError):
            return {}

    def size(self, entry: PlannedNode) -> float | str:
        """Return the norm of a tensor's own error divided by that of the reference, or the reason if it is unknown.

        Infinite if the reference has no signal, NaN if it is not finite.
        """
        try:
            error_values = self.own_error(entry)
        except (KernelError, NotRecordedError) as error:
            return _reason_clause(error)
        if not np.isfinite(error_values).all():
            return NOT_FINITE
        error_norm = norm(error_values)
        if not error_norm:
            return 0.0
        signal = finite_norm(real_values(self._reference, entry.reference_tensor, self._place))
        return error_norm / signal if signal else math.inf

    def outputs(self, cases: Sequence[Errors]) -> list[Replayed]:
        """Return the reference's output with each of the given sets of errors.

        The result is finite if the reference is.
        """
        results: dict[int, Replayed] = {}
        for group in self._group_cases(cases):
            batch: list[np.ndarray | None] | None = None
            if len(group) > 1:
                # if the batch fails, each single replay states its own reason
                with suppress(KernelError, NotRecordedError):
                    batch = self._replay_together([cases[at] for at in group], clipped=False)
            replays = (self._replay_alone(cases[at]) for at in group) if batch is None else map(Replayed, batch)
            results |= zip(group, replays, strict=True)
        return [results[at] for at in range(len(cases))]

    def output(self, entries: Sequence[PlannedNode]) -> Replayed:
        """Return the reference's output with the own errors of several tensors together."""
        return self._replay_alone([(entry, None) for entry in entries])

    def _replay_alone(self, errors: Errors) -> Replayed:
        """Replay one set of errors, clipping to the recorded range if it leaves an operator's domain."""
        self._left_domain = False
        for clipped in (False, True):
            try:
                return Replayed(self._replay_together([errors], clipped=clipped)[0])
            except (KernelError, NotRecordedError) as error:
                if clipped or not self._left_domain:
                    return Replayed(None, _reason_clause(error))
        raise AssertionError  # unreachable: the second iteration always returns

    def _group_cases(self, cases: Sequence[Errors]) -> Iterator[list[int]]:
        """Group sets of errors to replay together: neighbours in the network, as many as fit into a core's cache."""
        graph = self._reference.graph
        first = [min((graph.position(e.reference_tensor) or 0 for e, _ in errors), default=0) for errors in cases]
        group, group_limit = list[int](), 0
        for at in sorted(range(len(cases)), key=first.__getitem__):
            if len(group) == group_limit and group:
                yield group
                group = []
            if not group:
                group_limit = min(MAX_STACKED_RUNS, max(1, MAX_STACKED_ELEMENTS // self._largest_sizes_from[first[at]]))
            group.append(at)
        if group:
            yield group

    @cached_property
    def _largest_sizes_from(self) -> list[int]:
        """For each node, the number of elements of the largest tensor from there on."""
        nodes = self._reference.graph.nodes
        sizes = [
            max((self._recorded(name) or 1 for name in node.outputs if name in self._upstream_tensors), default=1)
            for node in nodes
        ]
        return [*accumulate(reversed([*sizes, 1]), max)][::-1]

    def _replay_together(self, cases: Sequence[Errors], *, clipped: bool) -> list[np.ndarray | None]:
        """Replay sets of errors together, with None for a set that does not reach the output.

        Raises:
            KernelError: A node cannot be replayed, or an error is unknown.
            NotRecordedError: An input or a constant was not recorded.
        """
        end, waiting_errors = (
            self._output.reference_tensor,
            dict[str, list[tuple[int, PlannedNode, np.ndarray | None]]](),
        )
        for run, errors in enumerate(cases):
            for entry, error_values in errors:
                waiting_errors.setdefault(entry.reference_tensor, []).append((run, entry, error_values))
        nodes = self._nodes_downstream(waiting_errors)
        waiting = Counter(name for node in nodes for name in dict.fromkeys(self._real_form(node)[0].inputs) if name)
        waiting[end] += 1
        computed_tensors: dict[str, _Runs] = {}

        def store(name: str, runs: dict[int, np.ndarray], stacked_values: np.ndarray | None = None) -> None:
            if not waiting[name]:
                return
            for run, entry, error_values in waiting_errors.pop(name, ()):
                base = runs[run] if run in runs else real_values(self._reference, name, self._place)
                runs[run], stacked_values = self._with_error(entry, base, error_values, clipped=clipped), None
            if runs:
                computed_tensors[name] = _Runs(dict(sorted(runs.items())), stacked_values)

        produced = {name for node in nodes for name in node.outputs}
        for name in [name for name in waiting_errors if name not in produced]:
            store(name, {})
        max_extent = 0
        with size_limits(recorded=self._recorded):
            for node in nodes:
                form, _ = self._real_form(node)
                names = dict.fromkeys(filter(None, form.inputs))
                recorded_inputs = {name: self._load_input(form, name) for name in names if name not in computed_tensors}
                max_extent = max(max_extent, max_elements([array.shape for array in recorded_inputs.values()]))
                for name, values in self._run(
                    node, {n: computed_tensors[n] for n in names if n in computed_tensors}, recorded_inputs, max_extent
                ).items():
                    store(name, *values)
                for name in names:
                    waiting[name] -= 1
                    if not waiting[name]:
                        computed_tensors.pop(name, None)
        end_values = computed_tensors[end].parts if end in computed_tensors else {}
        results = (end_values.get(run) for run in range(len(cases)))
        return [None if v is None or v.size != self.signal.size else v.reshape(self.signal.shape) for v in results]

    def _run(
        self,
        node: Node,
        changed_inputs: Mapping[str, _Runs],
        recorded_inputs: Mapping[str, np.ndarray],
        element_limit: int,
    ) -> dict[str, tuple[dict[int, np.ndarray], np.ndarray | None]]:
        """Compute a node in all replays whose errors reach it. Return its outputs per replay, and stacked if they are.

        Args:
            node: The node.
            changed_inputs: Its inputs that errors reach.
            recorded_inputs: Its other inputs, as the reference has them.
            element_limit: Largest allowed number of elements for an output of unknown size.
        """
        form, opset = self._real_form(node)
        runs = tuple(sorted({run for name in changed_inputs for run in changed_inputs[name].parts}))
        outputs: dict[str, tuple[dict[int, np.ndarray], np.ndarray | None]] = {
            name: ({}, None) for name in node.outputs if name
        }
        if not runs:
            return outputs
        # Replays of one sample differ only in the added errors, so many nodes can compute all of them in one call,
        # stacked along the first axis. Other nodes run once per replay. Results equal to the recording are dropped,
        # because the error ends there.
        stacked_inputs = self._stack_runs(form, opset, changed_inputs, recorded_inputs, runs)
        if stacked_inputs is not None:
            checkpoint()
            with size_limits(element_limit=element_limit * len(runs), recorded=partial(self._stacked_size, len(runs))):
                values = self._run_stacked(node, {**recorded_inputs, **stacked_inputs}, len(runs))
            for name, array in values.items():
                stacked = self._rounded_to_codes(name, array)
                extent = len(stacked) // len(runs)
                parts = {run: stacked[at * extent : (at + 1) * extent] for at, run in enumerate(runs)}
                if stacked.dtype.kind == "f" and not np.isfinite(stacked).all():
                    for values_of_run in parts.values():
                        self._check_finite(node, name, values_of_run)
                outputs[name] = parts, stacked
            return outputs
        for run in runs:
            checkpoint()
            inputs = {name: self._input_of_run(form, name, changed_inputs[name], run) for name in changed_inputs}
            with size_limits(element_limit=element_limit):
                values = dict(self._run_alone(node, {**recorded_inputs, **inputs}))
            for name, array in values.items():
                result = self._rounded_to_codes(name, array)
                self._check_finite(node, name, result)
                if not self._is_recorded(name, result):
                    outputs[name][0][run] = result
        return outputs

    def _run_alone(self, node: Node, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Compute a node in one replay: at once, or step by step if it mixes stacked steps."""
        form, opset = self._real_form(node)
        stack, is_constant = self._stack, self._reference.graph.is_constant
        if stack is None or all(map(is_constant, values)):
            return run_real(node, form, opset, values)
        if operators.of(form.op).reshapes:  # its stated shape is that of a single step
            return self._run_stacked(node, values, 1)

        def run(values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            return run_real(node, form, opset, values)

        stacked_names = [name for name in values if not is_constant(name)]
        if node.name not in stack.mixing_nodes:
            stack.mixing_nodes[node.name] = mixes_steps(run, values, stacked_names, stack.count)
        return run_each_step(run, values, stacked_names, stack.count) if stack.mixing_nodes[node.name] else run(values)

    def _run_stacked(self, node: Node, values: Mapping[str, np.ndarray], count: int) -> Mapping[str, np.ndarray]:
        form, opset = self._real_form(node)
        name = form.outputs[0]
        extent, *other_extents = shape_of(self._reference, name, *self._place)
        if operators.of(form.op).reshapes:  # its stated shape is that of a single run
            return {name: values[form.inputs[0]].reshape(count * extent, *other_extents)}
        outputs = run_real(node, form, opset, values)
        if any(array.shape[:1] != (count * extent,) for array in outputs.values()):
            raise KernelError(f"{node.op} {node.name!r} mixes samples.")
        return outputs

    def _stacked_size(self, count: int, name: str) -> int | None:
        size = self._recorded(name)
        return None if size is None else size * count

    def _input_of_run(self, form: Node, name: str, runs: _Runs, run: int) -> np.ndarray:
        return runs.parts[run] if run in runs.parts else self._load_input(form, name)

    def _stack_runs(
        self,
        form: Node,
        opset: Mapping[str, int],
        changed_inputs: Mapping[str, _Runs],
        recorded_inputs: Mapping[str, np.ndarray],
        runs: tuple[int, ...],
    ) -> dict[str, np.ndarray] | None:
        """Return the inputs that errors reach, stacked over all replays, or None if the node would mix replays."""
        is_constant = self._reference.graph.is_constant
        if len(runs) < 2 or (self._stack is not None and not all(map(is_constant, recorded_inputs))):
            return None
        varying = tuple(name in changed_inputs for name in form.inputs)
        if (form.name, varying) not in self._stackable:
            first_values = {name: next(iter(changed_inputs[name].parts.values())) for name in changed_inputs}
            inputs = [first_values.get(name, recorded_inputs.get(name)) if name else None for name in form.inputs]
            try:
                output_shape = shape_of(self._reference, form.outputs[0], *self._place)
            except NotRecordedError:
                output_shape = ()
            quant = self._reference.graph.tensors[form.outputs[0]].quant
            has_common_codes = quant is None or not quant.per_channel
            self._stackable[form.name, varying] = has_common_codes and can_stack(
                form, opset.get("", LATEST_OPSET), inputs, varying, output_shape
            )
        if not self._stackable[form.name, varying]:
            return None
        stacked_inputs = dict[str, np.ndarray]()
        for name, tensor in changed_inputs.items():
            if tensor.stacked is not None and tuple(tensor.parts) == runs:
                stacked_inputs[name] = tensor.stacked
                continue
            parts = [self._input_of_run(form, name, tensor, run) for run in runs]
            if len({(part.shape, part.dtype) for part in parts}) > 1:
                return None
            stacked_inputs[name] = np.concatenate(parts)
        return stacked_inputs

    def _is_recorded(self, name: str, values: np.ndarray) -> bool:
        """Return whether integers, such as shapes, equal the reference's, so that no error propagates from them."""
        if values.dtype.kind == "f" or not self._reference.has(name, *self._place):
            return False
        reference_values = self._reference.load(name, *self._place)
        return reference_values.dtype == values.dtype and np.array_equal(reference_values, values)

    def _real_form(self, node: Node) -> tuple[Node, Mapping[str, int]]:
        if node.name not in self._forms:
            self._forms[node.name] = real_form(node, self._reference.graph.opset)
        return self._forms[node.name]

    def _load_input(self, form: Node, name: str) -> np.ndarray:
        """Load an input of a node from the reference. Small constants are cached."""
        values = self._small.get((form.name, name))
        if values is None:
            values = load_input(self._reference, self._place, form, name)
            if values.nbytes <= _MAX_CACHED_CONSTANT_BYTES and self._reference.graph.is_constant(name):
                self._small[form.name, name] = values
        return values

    def _with_error(
        self, entry: PlannedNode, values: np.ndarray, error_values: np.ndarray | None, *, clipped: bool
    ) -> np.ndarray:
        """Add an error to the reference's values of a tensor. Clip to the recorded range on request.

        Raises:
            KernelError: The error is unknown.
        """
        if error_values is None:
            try:
                error_values = self.own_error(entry)
            except (KernelError, NotRecordedError) as error:
                raise KernelError(f"The error that the node of {entry.tensor!r} introduces is not known.") from error
        error_values = into_stored_order(error_values, entry.pair.reference_view).reshape(values.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            changed_values = np.asarray((values + error_values).astype(values.dtype))
        return (
            np.clip(changed_values, *self._recorded_range(entry))
            if clipped and changed_values.dtype.kind == "f"
            else changed_values
        )

    def _recorded_range(self, entry: PlannedNode) -> tuple[float | None, float | None]:
        """Return the smallest and largest finite value of a tensor in both runs, or None for each if there is none."""
        reference = real_values(self._reference, entry.reference_tensor, self._place)
        backend = clip_in_turn(real_values(self._backend, entry.tensor, self._place), clamp_of(entry.pair.backend_view))
        finite = [values[np.isfinite(values)] for values in (reference, backend)]
        ends = [(values.min(), values.max()) for values in finite if values.size]
        return (float(min(low for low, _ in ends)), float(max(high for _, high in ends))) if ends else (None, None)

    def _rounded_to_codes(self, name: str, values: np.ndarray) -> np.ndarray:
        """Round the result of a replayed node to the codes of the reference's tensor, if it has codes."""
        quant = self._reference.graph.tensors[name].quant
        return fake_quantize(values, quant) if quant is not None and values.dtype.kind == "f" else values

    def _check_finite(self, node: Node, name: str, values: np.ndarray) -> None:
        """Reject a replayed tensor that is non-finite where the reference is finite.

        Raises:
            KernelError: It is non-finite at such an element.
        """
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return
        if self._reference.has(name, *self._place):
            reference_values = real_values(self._reference, name, self._place)
            if (
                reference_values.size == values.size
                and np.isfinite(values[np.isfinite(reference_values).reshape(values.shape)]).all()
            ):
                return
        self._left_domain = True
        raise KernelError(f"The replay is not finite after {node.op} {node.name!r}.")

    @property
    def allowed(self) -> float:
        """Limit of the work of all replays: a few replays of every node in every sample, with a minimum."""
        places = len(self._reference.places())
        network_work = sum(map(self._work_of_node, self._reference.graph.nodes))
        return max(CONTRIBUTION_MAX_WORK, CONTRIBUTION_REPLAYS * places * network_work)

    def work(self, entry: PlannedNode) -> float:
        """Return the work of replaying all nodes downstream of a node, in multiplications."""
        return sum(map(self._work_of_node, self._nodes_downstream({entry.reference_tensor})))

    def _work_of_node(self, node: Node) -> float:
        if node.name not in self._known_work:
            self._known_work[node.name] = CONTRIBUTION_NODE_WORK + self._elements_work(self._real_form(node)[0])
        return self._known_work[node.name]

    def _elements_work(self, form: Node) -> float:
        if not any(form.outputs[:1]):
            return 0
        try:
            shapes = {name: shape_of(self._reference, name, *self._place) for name in form.inputs if name}
            shape = shape_of(self._reference, form.outputs[0], *self._place)
        except NotRecordedError:  # without a shape the node cannot be replayed, so it costs nothing
            return 0
        return math.prod(shape) * (sum_terms(form, shapes, shape) + CONTRIBUTION_ELEMENT_WORK)

    def _nodes_downstream(self, starts: Iterable[str]) -> list[Node]:
        """Return the reference's nodes between the given tensors and the output, in order."""
        reached, nodes = set(starts), list[Node]()
        for node in self._reference.graph.nodes:
            if not reached.isdisjoint(node.inputs) and not self._upstream_tensors.isdisjoint(node.outputs):
                nodes.append(node)
                reached.update(filter(None, node.outputs))
        return nodes


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """A tensor in several replays.

    Args:
        parts: Its values for each replay whose error reaches it, in order.
        stacked: All of them stacked along the first axis, or None if they are not stacked.
    """

    parts: dict[int, np.ndarray]
    stacked: np.ndarray | None


def _reason_clause(error: QdebugError) -> str:
    return error.message[0].lower() + error.message[1:].rstrip(".")
