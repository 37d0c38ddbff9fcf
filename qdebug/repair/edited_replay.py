"""Replay a backend's outputs with some changed nodes, from the first change on. The entry point is `EditedReplay`.

Tensors that no change reaches keep their recorded values. A node that is changed, or that reads real numbers in place
of recorded codes, is computed on real numbers with the backend's constants and rounded to its codes. All others are
computed on codes, in a given arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import xxhash

from qdebug.compare.attribute.backend_replay import load_input
from qdebug.compare.attribute.code_spans import clip_in_turn
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.recording import shape_of
from qdebug.numerics.affine import dequantize, quantize
from qdebug.repair.replay_states import ReplayStates
from qdebug.replay import Arithmetic
from qdebug.replay.extents import recorded_sizes, size_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.run import one_thread, run_as_recorded
from qdebug.replay.segment import run_real
from qdebug.replay.stacked import LATEST_OPSET, MAX_STACKED_ELEMENTS, MAX_STACKED_RUNS, can_stack

__all__ = ["Change", "EditedReplay", "merge_changes"]

_MAX_COMPARED = 64
"""Maximum number of elements of a tensor that is checked for equality between runs before it is stacked."""
_SAMPLED = 16
"""Number of elements of a tensor that are compared with the recorded ones before all of them are."""
_MAX_CACHED_CONSTANT_BYTES = 1 << 16
"""Largest constant that is cached."""
_RunOutputs = tuple[tuple[int, ...], Mapping[str, np.ndarray]]
"""One or several runs, and the outputs of a node in them by name, stacked along the first axis."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """A change of a run.

    Args:
        nodes: Nodes that are computed on real numbers, by name.
        constants: Real values that replace recorded constants, by node and name.
        floats: Tensors that stay real numbers, each with the bounds of the clamp that its codes implied.
        quants: Tensors that are rounded to different codes.
        shifts: Terms that are added to a node's result, by node. They broadcast.
    """

    nodes: frozenset[str] = frozenset()
    constants: Mapping[tuple[str, str], np.ndarray] = field(default_factory=dict)
    floats: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    quants: Mapping[str, QuantParams] = field(default_factory=dict)
    shifts: Mapping[str, np.ndarray] = field(default_factory=dict)


def merge_changes(*changes: Change) -> Change:
    """Return the union of several changes. If they conflict, the last one wins."""
    return Change(
        nodes=frozenset().union(*(change.nodes for change in changes)),
        constants={name: array for change in changes for name, array in change.constants.items()},
        floats={name: span for change in changes for name, span in change.floats.items()},
        quants={name: quant for change in changes for name, quant in change.quants.items()},
        shifts={name: array for change in changes for name, array in change.shifts.items()},
    )


class EditedReplay:
    """Replays a recorded run with changes.

    Args:
        backend: The run, with its constants.
        arithmetic: The arithmetic of nodes on codes.
        on_progress: Called before each node with the number of finished nodes and the total. It may raise to cancel.
    """

    def __init__(
        self, backend: Recording, arithmetic: Arithmetic, on_progress: Callable[[int, int], object] | None = None
    ) -> None:
        self._run, self._arithmetic, self._on_progress = backend, arithmetic, on_progress
        self._recorded = _RecordedValues(backend)
        self._real_forms: dict[str, tuple[Node, Mapping[str, int]]] = {}
        self._is_stackable: dict[tuple[str, tuple[bool, ...]], bool] = {}
        self._states = ReplayStates[_ReplayedValues]()
        self._marks: set[int] = set()
        """Positions of nodes that some change affects, or may affect. States are stored before these nodes."""
        self._shapes: dict[tuple[str, tuple[int, int]], tuple[int, ...]] = {}
        self._sizes: dict[tuple[tuple[int, int], int], Callable[[str], int | None]] = {}
        graph = backend.graph
        readers = {name: position for position, node in enumerate(graph.nodes) for name in node.inputs}
        self._last_readers = {name: position for name, position in readers.items() if name not in graph.outputs}

    def expect(self, changes: Iterable[Change]) -> None:
        """Store states ahead of the first node of each change, from which later replays that add one can continue."""
        positions = {node.name: position for position, node in enumerate(self._run.graph.nodes)}
        self._marks |= {min(positions[name] for name in change.nodes) for change in changes if change.nodes}

    def outputs(
        self, change: Change, places: Sequence[tuple[int, int]], *, everything: bool = False
    ) -> list[dict[str, np.ndarray]]:
        """Return the network's outputs as real values, by name, for each of the given places.

        A node with independent samples runs once for all places, on stacked data. Memory grows with the number of
        places, see `group_places`.

        Args:
            change: The change.
            places: Samples and steps.
            everything: Whether to also compute nodes that no change reaches, which shows how exact the replay is.

        Raises:
            KernelError: A node cannot be computed.
            RecordingError: An input or a constant was not recorded.
        """
        graph = self._run.graph
        digests = _digests_of_changes(change, graph.nodes)
        runs = tuple(places), everything
        self._marks |= digests.keys()
        state = self._states.latest(runs, digests, self._marks)
        start, values = (0, _ReplayedValues(self._recorded, places)) if state is None else (state[0], state[1].copy())
        with one_thread(), np.errstate(all="ignore"):
            for position, node in enumerate(graph.nodes[start:], start=start):
                if self._on_progress is not None:
                    self._on_progress(position, len(graph.nodes))
                if position in self._marks and position > start:
                    self._states.keep(runs, digests, position, values)
                self._compute_node(node, change, values, everything=everything)
                for name in dict.fromkeys(node.inputs):
                    if self._last_readers.get(name) == position:
                        values.drop(name)
        return [{name: values.real(name, run) for name in graph.outputs} for run in range(len(places))]

    def _compute_node(self, node: Node, change: Change, values_so_far: _ReplayedValues, *, everything: bool) -> None:
        """Compute a node, in all runs if it is edited or reads real numbers, else in those where an input changed."""
        is_edited = node.name in change.nodes or not change.floats.keys().isdisjoint(node.outputs)
        is_edited = is_edited or not change.quants.keys().isdisjoint(node.outputs)
        is_real = is_edited or values_so_far.reads_real(node)
        runs = tuple(range(len(values_so_far.places))) if is_real or everything else values_so_far.reached_runs(node)
        if not runs or all(self._run.graph.is_constant(name) for name in node.outputs if name):
            return
        if values_so_far.is_fixed_by_shapes(node) and not is_edited:
            return
        if is_real:
            self._compute_real(node, change, values_so_far, runs)
        else:
            for computed_runs, outputs in self._compute_as_recorded(node, values_so_far, runs):
                values_so_far.store(computed_runs, outputs)

    def group_places(self, places: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
        """Split places into groups that are replayed together, as large as fits into a core's cache."""
        group_size = (
            max(1, min(MAX_STACKED_RUNS, MAX_STACKED_ELEMENTS // self._max_elements(places[0]))) if places else 1
        )
        for start in range(0, len(places), group_size):
            yield places[start : start + group_size]

    def _max_elements(self, place: tuple[int, int]) -> int:
        """Return the number of elements of the largest non-constant tensor of a place."""
        names = {name for node in self._run.graph.nodes for name in node.outputs if name}
        return max((math.prod(self._shape(name, place)) for name in names), default=1)

    def _shape(self, name: str, place: tuple[int, int]) -> tuple[int, ...]:
        """Return the shape of a tensor, or () if it was not recorded."""
        if (name, place) not in self._shapes:
            try:
                self._shapes[name, place] = shape_of(self._run, name, *place)
            except NotRecordedError:
                self._shapes[name, place] = ()
        return self._shapes[name, place]

    def _size_limits(self, place: tuple[int, int], *, times: int = 1) -> AbstractContextManager[None]:
        """Limit nodes to the recorded sizes, which all nodes and replays look up in one cache."""
        if (place, times) not in self._sizes:
            self._sizes[place, times] = recorded_sizes(self._run, place, times=times)
        return size_limits(recorded=self._sizes[place, times])

    def reproduces(self, node: Node, place: tuple[int, int]) -> bool:
        """Return whether a node reproduces its recorded outputs from its recorded inputs; True if it cannot be run."""
        recorded_values = _ReplayedValues(self._recorded, [place])
        try:
            with one_thread(), np.errstate(all="ignore"):
                ((_, computed),) = self._compute_as_recorded(node, recorded_values, (0,))
            pairs = [
                (recorded_values.stored_form(name, 0), computed[name]) for name in node.outputs if name in computed
            ]
            return all(
                np.array_equal(recorded_array, computed_array, equal_nan=computed_array.dtype.kind == "f")
                for recorded_array, computed_array in pairs
            )
        except (KernelError, NotRecordedError):
            return True

    def _compute_as_recorded(
        self, node: Node, values_so_far: _ReplayedValues, runs: tuple[int, ...]
    ) -> Iterator[_RunOutputs]:
        """Compute a node in the form in which it was recorded: on codes if its tensors hold codes."""

        def compute(values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            return run_as_recorded(self._run.graph, node, values, self._arithmetic)

        return self._compute_runs(
            _NodeRuns(node=node, runs=runs, load=values_so_far.stored_form, compute=compute), node.inputs, values_so_far
        )

    def _compute_real(self, node: Node, change: Change, values_so_far: _ReplayedValues, runs: tuple[int, ...]) -> None:
        """Compute a node on real numbers, and store its results as the change requires."""
        real_node, opset = self._real_form(node)

        def load(name: str, run: int) -> np.ndarray:
            values = values_so_far.input_of(real_node, name, run)
            new_constant = change.constants.get((node.name, name))
            return values if new_constant is None else new_constant.astype(values.dtype)

        def compute(values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            return run_real(node, real_node, opset, values)

        job = _NodeRuns(node=node, runs=runs, load=load, compute=compute)
        for computed_runs, stacked_results in self._compute_runs(job, real_node.inputs, values_so_far):
            for name, stacked in stacked_results.items():
                for run, array in zip(computed_runs, _split(stacked, len(computed_runs)), strict=True):
                    is_shifted = node.name in change.shifts and name == node.outputs[0]
                    result = (array + change.shifts[node.name]).astype(array.dtype) if is_shifted else array
                    self._store_real(name, result, change, values_so_far, run=run)

    def _store_real(
        self, name: str, result: np.ndarray, change: Change, values_so_far: _ReplayedValues, *, run: int
    ) -> None:
        quant = self._run.graph.tensors[name].quant
        if name in change.floats:
            values_so_far.store_real(run, name, clip_in_turn(result, change.floats[name]))
        elif name in change.quants:
            values_so_far.store_real(run, name, dequantize(quantize(result, change.quants[name]), change.quants[name]))
        elif quant is not None and is_integer(quant.dtype) and result.dtype.kind == "f":
            values_so_far.store((run,), {name: quantize(result, quant)})
        else:
            values_so_far.store((run,), {name: result})

    def _real_form(self, node: Node) -> tuple[Node, Mapping[str, int]]:
        if node.name not in self._real_forms:
            self._real_forms[node.name] = real_form(node, self._run.graph.opset)
        return self._real_forms[node.name]

    def _compute_runs(
        self, job: _NodeRuns, inputs: Sequence[str], values_so_far: _ReplayedValues
    ) -> Iterator[_RunOutputs]:
        """Yield the results of a node in each of several runs, computed together if its samples are independent."""
        runs, names = job.runs, dict.fromkeys(filter(None, inputs))
        values = {
            name: [job.load(name, run) for run in (runs if values_so_far.varies(name) else runs[:1])] for name in names
        }
        stacked_results = self._compute_stacked(job, values, values_so_far) if len(runs) > 1 else None
        if stacked_results is not None:
            yield runs, stacked_results
            return
        for index, run in enumerate(runs):
            with self._size_limits(values_so_far.places[run]):
                yield (
                    (run,),
                    job.compute({name: arrays[index if len(arrays) > 1 else 0] for name, arrays in values.items()}),
                )

    def _compute_stacked(
        self, job: _NodeRuns, values: Mapping[str, Sequence[np.ndarray]], values_so_far: _ReplayedValues
    ) -> Mapping[str, np.ndarray] | None:
        """Compute a node in several runs together, or return None if their data would mix or differ in shape."""
        node, runs = job.node, job.runs
        varying_names = {name for name, arrays in values.items() if len(arrays) > 1 and not _are_same(arrays)}
        if any(len({(array.shape, array.dtype) for array in values[name]}) > 1 for name in varying_names):
            return None
        output_shape = self._shape(node.outputs[0], values_so_far.places[runs[0]])
        if not output_shape or not self._can_stack(node, values, varying_names, output_shape):
            return None
        stacked_inputs = {
            name: _stacked(arrays) if name in varying_names else arrays[0] for name, arrays in values.items()
        }
        shape = (len(runs) * output_shape[0], *output_shape[1:])
        if operators.of(node.op).reshapes:  # the node states the shape of a single run
            return {node.outputs[0]: stacked_inputs[node.inputs[0]].reshape(shape)}
        with self._size_limits(values_so_far.places[runs[0]], times=len(runs)):
            results = job.compute(stacked_inputs)
        return results if all(array.shape == shape for array in results.values()) else None

    def _can_stack(
        self,
        node: Node,
        values: Mapping[str, Sequence[np.ndarray]],
        varying_names: set[str],
        output_shape: tuple[int, ...],
    ) -> bool:
        real_node, opset = self._real_form(node)
        is_varying = tuple(name in varying_names for name in real_node.inputs)
        if not varying_names.issubset(real_node.inputs):  # a scale or zero point that the run computed varies
            return False
        if (node.name, is_varying) not in self._is_stackable:
            inputs = [values[name][0] if name in values else None for name in real_node.inputs]
            quants = [self._run.graph.tensors[name].quant for name in (*varying_names, node.outputs[0])]
            has_single_scales = not any(quant is not None and quant.per_channel for quant in quants)
            version = opset.get("", LATEST_OPSET)
            self._is_stackable[node.name, is_varying] = has_single_scales and can_stack(
                real_node, version, inputs, is_varying, output_shape
            )
        return self._is_stackable[node.name, is_varying]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _NodeRuns:
    """A node to compute in several runs.

    Args:
        node: The node.
        runs: The runs, in order.
        load: Returns an input, by name and run.
        compute: Computes the node on its inputs by name.
    """

    node: Node
    runs: tuple[int, ...]
    load: Callable[[str, int], np.ndarray]
    compute: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sample:
    """A few elements of a tensor.

    Args:
        shape: Shape of the tensor.
        index: Positions of the elements in C order.
        elements: The elements.
    """

    shape: tuple[int, ...]
    index: np.ndarray
    elements: np.ndarray


class _RecordedValues:
    """Recorded values that many replays read: small constants, and a few elements of each tensor on codes.

    Args:
        run: The recorded run.
    """

    def __init__(self, run: Recording) -> None:
        self.run = run
        self._constants: dict[str, np.ndarray] = {}
        self._samples: dict[tuple[str, tuple[int, int]], _Sample | None] = {}

    def constant(self, name: str) -> np.ndarray:
        """Return a constant. Finding a small one in the file takes longer than reading it, so these are cached."""
        if name in self._constants:
            return self._constants[name]
        if not self.run.has(name):
            raise KernelError(f"{name!r} was not recorded.")
        array = self.run.load(name)
        if array.nbytes <= _MAX_CACHED_CONSTANT_BYTES:
            self._constants[name] = array
        return array

    def equals(self, name: str, place: tuple[int, int], array: np.ndarray) -> bool:
        """Return whether an array equals the recorded one. Most unequal ones differ in the few elements of a sample."""
        if (name, place) not in self._samples:
            self._samples[name, place] = self._take_sample(name, place)
        sample = self._samples[name, place]
        if sample is None or array.shape != sample.shape or array.dtype != sample.elements.dtype:
            return False
        return np.array_equal(array.flat[sample.index], sample.elements) and np.array_equal(
            self.run.load(name, *place), array
        )

    def _take_sample(self, name: str, place: tuple[int, int]) -> _Sample | None:
        try:
            array = self.run.load(name, *place)
        except NotRecordedError:
            return None
        index = np.linspace(0, max(array.size - 1, 0), min(array.size, _SAMPLED)).astype(np.intp)
        return _Sample(shape=array.shape, index=index, elements=array.flat[index])


class _ReplayedValues:
    """Replayed values of several runs, kept only where they differ from the recording.

    Args:
        recorded: The recorded run.
        places: Sample and step of each run.
    """

    def __init__(self, recorded: _RecordedValues, places: Sequence[tuple[int, int]]) -> None:
        self._recorded, self._run, self.places = recorded, recorded.run, places
        self._stored: dict[str, dict[int, np.ndarray]] = {}
        self._real_values: dict[str, dict[int, np.ndarray]] = {}
        self._extents: set[str] = set()

    def copy(self) -> _ReplayedValues:
        """Return the same state, sharing its arrays, which are never modified."""
        copied_values = _ReplayedValues(self._recorded, self.places)
        copied_values._stored = {name: dict(runs) for name, runs in self._stored.items()}
        copied_values._real_values = {name: dict(runs) for name, runs in self._real_values.items()}
        copied_values._extents = set(self._extents)
        return copied_values

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(
            array.nbytes
            for arrays_by_tensor in (self._stored, self._real_values)
            for runs in arrays_by_tensor.values()
            for array in runs.values()
        )

    def reached_runs(self, node: Node) -> tuple[int, ...]:
        """Return the runs in which an input of a node differs from the recording."""
        runs_of_inputs = [
            runs for name in node.inputs for runs in (self._stored.get(name), self._real_values.get(name)) if runs
        ]
        return tuple(sorted(set().union(*runs_of_inputs)))

    def is_fixed_by_shapes(self, node: Node) -> bool:
        """Return whether a node's result never changes because it depends only on shapes."""
        varying_inputs = [name for name in node.inputs if name and self.varies(name)]
        if operators.named(node.op).counts is not operators.Count.EXTENTS and not (
            varying_inputs and self._extents.issuperset(varying_inputs)
        ):
            return False
        self._extents.update(node.outputs)
        return True

    def reads_real(self, node: Node) -> bool:
        """Return whether a node reads real numbers in place of recorded codes."""
        return any(name in self._real_values for name in node.inputs)

    def varies(self, name: str) -> bool:
        """Return whether a tensor may differ between runs."""
        return not self._run.graph.is_constant(name)

    def store(self, runs: tuple[int, ...], stacked_values: Mapping[str, np.ndarray]) -> None:
        """Store the values of some runs, except codes equal to the recorded ones, which have no effect downstream."""
        for name, stacked in filter(itemgetter(0), stacked_values.items()):
            for run, array in zip(runs, _split(stacked, len(runs)), strict=True):
                if array.dtype.kind == "f" or not self._recorded.equals(name, self.places[run], array):
                    self._stored.setdefault(name, {})[run] = array

    def drop(self, name: str) -> None:
        """Free a tensor that no later node reads."""
        self._stored.pop(name, None)
        self._real_values.pop(name, None)

    def store_real(self, run: int, name: str, array: np.ndarray) -> None:
        """Store real numbers in place of codes."""
        self._real_values.setdefault(name, {})[run] = array

    def stored_form(self, name: str, run: int) -> np.ndarray:
        """Return the current values of a tensor as it was recorded: codes or real values."""
        if run in self._stored.get(name, ()):
            return self._stored[name][run]
        if not self.varies(name):
            return self._recorded.constant(name)
        if not self._run.has(name, *self.places[run]):
            raise KernelError(f"{name!r} was not recorded.")
        return self._run.load(name, *self.places[run])

    def real(self, name: str, run: int) -> np.ndarray:
        """Return the current values of a tensor as real values."""
        if run in self._real_values.get(name, ()):
            return self._real_values[name][run]
        return dequantize(self.stored_form(name, run), self._run.graph.tensors[name].quant)

    def input_of(self, real_node: Node, name: str, run: int) -> np.ndarray:
        """Return an input of the float operator that a node implements."""
        is_changed = run in self._stored.get(name, ()) or run in self._real_values.get(name, ())
        return self.real(name, run) if is_changed else load_input(self._run, self.places[run], real_node, name)


def _digests_of_changes(change: Change, nodes: Sequence[Node]) -> dict[int, bytes]:
    """Return a digest of the change to each node that it affects, by position."""
    constants: dict[str, list[tuple[str, bytes]]] = {}
    for (owner, name), array in change.constants.items():
        constants.setdefault(owner, []).append((name, _digest(array)))
    result = {}
    for position, node in enumerate(nodes):
        node_change = (
            node.name in change.nodes,
            sorted(constants.get(node.name, ())),
            _digest(change.shifts[node.name]) if node.name in change.shifts else None,
            [(name, change.floats[name]) for name in node.outputs if name in change.floats],
            [(name, _digest_of_quant(change.quants[name])) for name in node.outputs if name in change.quants],
        )
        if node_change != (False, [], None, [], []):
            result[position] = xxhash.xxh3_128_digest(repr(node_change).encode())
    return result


def _digest_of_quant(quant: QuantParams) -> tuple[object, ...]:
    return (
        quant.dtype,
        quant.axis,
        quant.block_size,
        quant.qmin,
        quant.qmax,
        _digest(quant.scale),
        _digest(quant.zero_point),
    )


def _digest(array: np.ndarray) -> bytes:
    digest = xxhash.xxh3_128(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    digest.update(repr((array.shape, str(array.dtype))).encode())
    return bytes(digest.digest())


def _split(stacked: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the arrays of several runs that are stacked along the first axis, as views; one run needs no such axis."""
    if count == 1:
        return [stacked]
    length = len(stacked) // count
    return [stacked[start : start + length] for start in range(0, count * length, length)]


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Stack the arrays of several runs along the first axis, without a copy if they are the parts of one array."""
    whole, shape, strides = arrays[0].base, arrays[0].shape, arrays[0].strides
    if (
        whole is not None
        and whole.flags.c_contiguous
        and whole.shape == (len(arrays) * len(arrays[0]), *shape[1:])
        and all(array.base is whole and array.shape == shape and array.strides == strides for array in arrays)
    ):
        first, *_, last = _split(whole, len(arrays))
        # Runs are in order, so if the first and the last one are in place, all are.
        if all(
            array.__array_interface__ == part.__array_interface__
            for array, part in ((arrays[0], first), (arrays[-1], last))
        ):
            return whole
    return np.concatenate(arrays)


def _are_same(arrays: Sequence[np.ndarray]) -> bool:
    """Return whether a small array, such as a shape, is the same in all runs. Large arrays count as different."""
    first_array = arrays[0]
    return first_array.size <= _MAX_COMPARED and all(np.array_equal(first_array, array) for array in arrays[1:])
