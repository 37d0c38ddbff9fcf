"""What a backend's outputs become when some of its nodes are changed: replayed from the first change on.

What no change reaches is as the backend recorded it. A node that is changed, or that reads real numbers where the
recording has codes, is computed on real numbers with the backend's constants and rounded to its codes. All others are
computed on codes, in the arithmetic that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from qdebug.compare.attribute.backend_replay import read
from qdebug.compare.attribute.code_spans import held
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_integer
from qdebug.numerics.affine import dequantize, quantize
from qdebug.replay import Arithmetic
from qdebug.replay.extents import recorded_room
from qdebug.replay.real_form import real_form
from qdebug.replay.run import one_thread, run_as_recorded
from qdebug.replay.segment import run_real

__all__ = ["Change", "EditedReplay", "merged"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """What is changed of a run.

    Args:
        nodes: Nodes that are computed on real numbers, by name.
        constants: Real values of constants by node and name, in the place of the recorded ones.
        floats: Tensors that are kept as real numbers, and the bounds that a fused clamp sets to them.
        quants: Tensors that are rounded to other codes.
        shifts: What is added to a node's result, by node; it broadcasts.
    """

    nodes: frozenset[str] = frozenset()
    constants: Mapping[tuple[str, str], np.ndarray] = field(default_factory=dict)
    floats: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    quants: Mapping[str, QuantParams] = field(default_factory=dict)
    shifts: Mapping[str, np.ndarray] = field(default_factory=dict)


def merged(*changes: Change) -> Change:
    """Return all of some changes at once; of two that concern one thing the last holds."""
    return Change(
        nodes=frozenset().union(*(each.nodes for each in changes)),
        constants={name: array for each in changes for name, array in each.constants.items()},
        floats={name: span for each in changes for name, span in each.floats.items()},
        quants={name: quant for each in changes for name, quant in each.quants.items()},
        shifts={name: array for each in changes for name, array in each.shifts.items()},
    )


class EditedReplay:
    """Replays a recorded run with changes.

    Args:
        backend: The run, with its constants.
        arithmetic: How nodes on codes are computed.
        told: Called before each node with the number of those done and of all. What it raises gives the replay up.
    """

    def __init__(
        self, backend: Recording, arithmetic: Arithmetic, told: Callable[[int, int], object] | None = None
    ) -> None:
        self._run, self._arithmetic, self._told = backend, arithmetic, told

    def outputs(self, change: Change, place: tuple[int, int], *, everything: bool = False) -> dict[str, np.ndarray]:
        """Return the network's outputs as real values.

        Args:
            change: What is changed.
            place: Sample and step.
            everything: Compute what no change reaches, too: it tells how far the replay is the backend's.

        Raises:
            KernelError: A node cannot be computed.
            RecordingError: An input or a constant was not recorded.
        """
        graph, made = self._run.graph, _Made(self._run, place)
        with recorded_room(self._run, place), one_thread(), np.errstate(all="ignore"):
            for done, node in enumerate(graph.nodes):
                if self._told is not None:
                    self._told(done, len(graph.nodes))
                edited = node.name in change.nodes or not change.floats.keys().isdisjoint(node.outputs)
                edited = edited or not change.quants.keys().isdisjoint(node.outputs)
                if not edited and not made.reaches(node) and not everything:
                    continue
                if all(graph.is_constant(name) for name in node.outputs if name) or (made.keeps(node) and not edited):
                    continue
                if edited or made.reads_real(node):
                    self._compute_real(node, change, made)
                else:
                    values = {name: made.kept(name) for name in node.inputs if name}
                    for name, array in run_as_recorded(graph, node, values, self._arithmetic).items():
                        made.keep(name, array)
        return {name: made.real(name) for name in graph.outputs}

    def reproduces(self, node: Node, place: tuple[int, int]) -> bool:
        """Tell whether a node gives its recorded outputs on its recorded inputs, or cannot be computed alone."""
        graph, recorded = self._run.graph, _Made(self._run, place)
        try:
            values = {name: recorded.kept(name) for name in node.inputs if name}
            with recorded_room(self._run, place), one_thread(), np.errstate(all="ignore"):
                found = run_as_recorded(graph, node, values, self._arithmetic)
            pairs = [(recorded.kept(name), found[name]) for name in node.outputs if name in found]
            return all(np.array_equal(kept, made, equal_nan=made.dtype.kind == "f") for kept, made in pairs)
        except (KernelError, NotRecordedError):
            return True

    def _compute_real(self, node: Node, change: Change, made: _Made) -> None:
        form, opset = real_form(node, self._run.graph.opset)
        values = made.inputs_of(form)
        for name in form.inputs:
            if (node.name, name) in change.constants:
                values[name] = change.constants[node.name, name].astype(values[name].dtype)
        for name, array in run_real(node, form, opset, values).items():
            result, quant = array, self._run.graph.tensors[name].quant
            if node.name in change.shifts and name == node.outputs[0]:
                result = (result + change.shifts[node.name]).astype(array.dtype)
            if name in change.floats:
                made.keep_real(name, held(result, change.floats[name]))
            elif name in change.quants:
                made.keep_real(name, dequantize(quantize(result, change.quants[name]), change.quants[name]))
            elif quant is not None and is_integer(quant.dtype) and result.dtype.kind == "f":
                made.keep(name, quantize(result, quant))
            else:
                made.keep(name, result)


class _Made:
    """What was computed so far, where it is not as recorded.

    Args:
        run: The recorded run.
        place: Sample and step.
    """

    def __init__(self, run: Recording, place: tuple[int, int]) -> None:
        self._run, self._place = run, place
        self._kept: dict[str, np.ndarray] = {}
        self._real: dict[str, np.ndarray] = {}
        self._extents: set[str] = set()

    def reaches(self, node: Node) -> bool:
        """Tell whether a node reads something that is not as recorded."""
        return any(name in self._kept or name in self._real for name in node.inputs)

    def keeps(self, node: Node) -> bool:
        """Tell whether a node's result is as recorded whatever changes: extents, or what is made of extents alone."""
        given = [name for name in node.inputs if name and not self._run.graph.is_constant(name)]
        if operators.named(node.op).counts is not operators.Count.EXTENTS and not (
            given and self._extents.issuperset(given)
        ):
            return False
        self._extents.update(node.outputs)
        return True

    def reads_real(self, node: Node) -> bool:
        """Tell whether a node reads real numbers where the recording has codes."""
        return any(name in self._real for name in node.inputs)

    def keep(self, name: str, array: np.ndarray) -> None:
        """Keep what was computed, unless it is what was recorded: then nothing below is changed by it."""
        if not name:
            return
        if self._run.has(name, *self._place):
            recorded = self._run.load(name, *self._place)
            if recorded.dtype == array.dtype and np.array_equal(recorded, array, equal_nan=array.dtype.kind == "f"):
                return
        self._kept[name] = array

    def keep_real(self, name: str, array: np.ndarray) -> None:
        """Keep real numbers in the place of codes."""
        self._real[name] = array

    def kept(self, name: str) -> np.ndarray:
        """Return a tensor as it is now, as the recording keeps such."""
        if name in self._kept:
            return self._kept[name]
        place = (0, 0) if self._run.graph.is_constant(name) else self._place
        if not self._run.has(name, *place):
            raise KernelError(f"{name!r} was not recorded.")
        return self._run.load(name, *place)

    def real(self, name: str) -> np.ndarray:
        """Return a tensor as it is now, as real values."""
        if name in self._real:
            return self._real[name]
        return dequantize(self.kept(name), self._run.graph.tensors[name].quant)

    def inputs_of(self, form: Node) -> dict[str, np.ndarray]:
        """Return what the real form of a node reads."""
        return {
            name: self.real(name)
            if name in self._kept or name in self._real
            else read(self._run, self._place, form, name)
            for name in form.inputs
            if name
        }
