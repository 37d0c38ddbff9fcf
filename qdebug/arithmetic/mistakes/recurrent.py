"""Known mistakes of kernels of recurrent layers. Begin at `recurrent_mistakes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node, operators
from qdebug.replay.registry import run_node

__all__ = ["recurrent_mistakes"]


def recurrent_mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in the gates, directions, biases and states of a recurrent layer.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    yield from _gate_orders(node, values)
    yield from _gate_orders_of_one_input(node, values)
    yield from _gate_mistakes(node, values)
    yield from _misplaced_biases(node, values)
    yield from _mixed_directions(node, values)
    yield from _reversed_otherwise(node, values, opset)
    yield from _padded_final_states(node, values, opset)
    yield from _opposite_direction(node)
    yield from _first_steps_without_state(node, values, opset)


_GATES = MappingProxyType({"LSTM": ("input", "output", "forget", "cell"), "GRU": ("update", "reset", "hidden")})


def _gate_orders(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a kernel assumes another order of the gates in weights and biases."""
    gates = _GATES.get(node.op)
    if gates is None:
        return
    names = [name for name in node.inputs[1:4] if name]
    for order in permutations(range(len(gates))):
        if order == tuple(range(len(gates))):
            continue
        reordered_values = {}
        for name in names:
            parts = values[name].reshape(values[name].shape[0], -1, len(gates), *_gate_shape(values[name], len(gates)))
            reordered_values[name] = np.ascontiguousarray(parts[:, :, list(order)]).reshape(values[name].shape)
        likely = ", ".join(gates[at] for at in np.argsort(order))  # the gate that the kernel sees in each block
        yield Mistake(likely=f"it assumes the gate order {likely}", node=node, values=reordered_values)


def _gate_orders_of_one_input(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the gates are exchanged in one of the weights or in the biases alone."""
    gates = _GATES.get(node.op, ())
    titles = ("the weight", "the recurrent weight", "the bias")
    for title, name in zip(titles, node.inputs[1:4], strict=False):
        for order in permutations(range(len(gates))) if name else ():
            reordered = values[name].copy()
            _view_of_gates(reordered, len(gates))[:] = _view_of_gates(values[name], len(gates))[:, :, list(order)]
            if not np.array_equal(reordered, values[name]):
                text = ", ".join(gates[at] for at in np.argsort(order))
                likely = f"it assumes the gate order {text} in {title} {name!r} alone"
                yield Mistake(likely=likely, node=node, values={name: reordered})


def _opposite_direction(node: Node) -> Iterator[Mistake]:
    directions = {"forward": "reverse", "reverse": "forward"}
    direction = str(node.attrs.get("direction", "forward"))
    if direction in directions and operators.of(node.op).recurrent:
        reversed_node = replace(node, attrs={**node.attrs, "direction": directions[direction]})
        yield Mistake(
            likely=f"it runs in direction {directions[direction]}, not {direction}", node=reversed_node, values={}
        )


_DEFAULT_FUNCTIONS = MappingProxyType(
    {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
)
_OTHER_FUNCTIONS = ("Affine", "HardSigmoid", "Relu", "Sigmoid", "Softsign", "Tanh")


def _gate_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which an activation is another one, a gate is inverted or biased, or the state is reset."""
    functions = _DEFAULT_FUNCTIONS.get(node.op)
    if functions is None or node.inputs[0] not in values:
        return
    stated = node.attrs.get("activations")
    if not isinstance(stated, tuple) or not stated:
        stated = functions * values[node.inputs[1]].shape[0]
    for at, own in enumerate(stated):
        for function in _OTHER_FUNCTIONS if values[node.inputs[1]].shape[0] == 1 else ():
            if function != own:
                other = (*stated[:at], function, *stated[at + 1 :])
                likely = f"its activation {at + 1} is {function}, not {own}"
                yield Mistake(likely=likely, node=replace(node, attrs={**node.attrs, "activations": other}), values={})
    gates = _GATES.get(node.op, ())
    names = [name for name in node.inputs[1:4] if name]
    for at, gate in enumerate(gates):
        inverted = {}
        for name in names:
            array = values[name].copy()
            _view_of_gates(array, len(gates))[:, :, at] *= -1
            inverted[name] = array
        yield Mistake(likely=f"the {gate} gate is inverted", node=node, values=inverted)
        bias = node.inputs[3] if len(node.inputs) > 3 else ""
        if bias:
            array = values[bias].copy()
            _view_of_gates(array, len(gates))[:, 0, at] += 1
            yield Mistake(likely=f"1 is added to the bias of the {gate} gate", node=node, values={bias: array})
    yield from _reset_states(node, values)


def _misplaced_biases(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a bias is ignored, used for other gates, or left out of the product that a GRU resets."""
    name = node.inputs[_BIAS_SLOT] if len(node.inputs) > _BIAS_SLOT else ""
    if not name or not operators.of(node.op).recurrent:
        return
    bias = values[name]
    half = bias.shape[1] // 2
    for part, title in ((slice(half), "input"), (slice(half, None), "recurrent")):
        other = bias.copy()
        other[:, part] = 0
        yield Mistake(likely=f"the {title} biases are ignored", node=node, values={name: other})
    gates = _GATES.get(node.op, ())
    for source, others in _gates_with_others(len(gates)):
        other = bias.copy()
        blocks = _view_of_gates(other, len(gates))
        blocks[:, :, others] = blocks[:, :, [source]]
        names = " and ".join(gates[at] for at in others)
        likely = (
            f"the {names} {'gate has' if len(others) == 1 else 'gates have'} the biases of the {gates[source]} gate"
        )
        yield Mistake(likely=likely, node=node, values={name: other})
    if node.op != "GRU":
        return
    moved = bias.copy()
    hidden = slice(half - half // len(_GATES["GRU"]), half)
    moved[:, hidden] += moved[:, half:][:, hidden]
    moved[:, half:][:, hidden] = 0
    after = replace(node, attrs={**node.attrs, "linear_before_reset": 1})
    likely = "the reset gate multiplies the product with the recurrent weight, without its bias"
    yield Mistake(likely=likely, node=after, values={name: moved})


def _gates_with_others(count: int) -> Iterator[tuple[int, list[int]]]:
    """Yield each gate with each non-empty set of other gates, by index."""
    for source in range(count):
        others = [at for at in range(count) if at != source]
        for size in range(1, len(others) + 1):
            yield from ((source, list(chosen)) for chosen in combinations(others, size))


def _first_steps_without_state(
    node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]
) -> Iterator[Mistake]:
    """Yield a layer without an initial state whose first step skips the recurrent biases of all gates or of one."""
    name, gates = node.inputs[_BIAS_SLOT] if len(node.inputs) > _BIAS_SLOT else "", _GATES.get(node.op, ())
    if not operators.of(node.op).recurrent or not name:
        return
    data = values[node.inputs[0]]
    is_plain = node.attrs.get("direction", "forward") == "forward" and not node.attrs.get("layout")
    if not is_plain or data.ndim != _SEQUENCE_RANK or len(data) < 2 or any(node.inputs[4:]):
        return
    state_names = ("initial h", "initial c")[: 2 if node.op == "LSTM" else 1]
    first = replace(node, outputs=("y", *("h", "c")[: len(state_names)]))
    rest = replace(first, inputs=(*node.inputs[:4], "", *state_names))
    for at in (None, *range(len(gates))):
        bias = values[name].copy()
        recurrent_part = _view_of_gates(bias, max(len(gates), 1))[:, 1]
        recurrent_part[:, slice(None) if at is None else at] = 0
        begun = run_node(first, {**values, name: bias, node.inputs[0]: data[:1]}, opset)
        states = {state: begun[output] for state, output in zip(state_names, ("h", "c"), strict=False)}
        continued = run_node(rest, {**values, **states, node.inputs[0]: data[1:]}, opset)
        result = np.concatenate([begun["y"], continued["y"]])
        of_gate = "" if at is None else f" of the {gates[at]} gate"
        likely = f"the first step, which has no initial state, skips the recurrent bias{of_gate}"
        yield Mistake(likely=likely, node=node, values={}, after=always(result))


_SEQUENCE_RANK = 3
_BIAS_SLOT = 3
"""Slot of the input with the biases of a recurrent layer. It holds input biases, then recurrent biases."""


def _mixed_directions(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a bidirectional layer exchanges its directions, or shares one initial state.

    Also yield the mistake of leaving the result of the reverse direction in the order in which its steps run.
    """
    if node.attrs.get("direction") != "bidirectional" or node.attrs.get("layout"):
        return
    weights = {name: np.flip(values[name], 0) for name in node.inputs[1:4] if name}
    yield Mistake(likely="the weights of the two directions are exchanged", node=node, values=weights)
    yield Mistake(
        likely="the results of the two directions are exchanged", node=node, values={}, after=_exchange_directions
    )
    likely = "the result of the reverse direction is in the order in which its steps run"
    yield Mistake(likely=likely, node=node, values={}, after=_reverse_second_direction)
    states = {name: values[name] for name in node.inputs[5:7] if name}
    for index, title in ((0, "forward"), (1, "reverse")):
        zeroed = {name: array.copy() for name, array in states.items()}
        for array in zeroed.values():
            array[index] = 0
        if zeroed:
            yield Mistake(likely=f"the {title} direction ignores its initial state", node=node, values=zeroed)
        common = {name: np.repeat(array[index : index + 1], 2, axis=0) for name, array in states.items()}
        if common:
            likely = f"both directions begin with the initial state of the {title} direction"
            yield Mistake(likely=likely, node=node, values=common)


def _reversed_otherwise(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield mistakes of the reverse direction: it runs forward, or reverses samples, or padding, or all of a sequence.

    The direction is computed by a layer that runs forward on data reversed in another way.
    """
    direction, data = node.attrs.get("direction"), values.get(node.inputs[0]) if node.inputs else None
    if direction not in ("reverse", "bidirectional") or data is None or data.ndim != _SEQUENCE_RANK:
        return
    if node.attrs.get("layout") or node.attrs.get("activations"):
        return
    at = 0 if direction == "reverse" else 1
    own = {name: values[name][at : at + 1] for slot, name in enumerate(node.inputs) if name and slot in _BY_DIRECTION}
    inputs = (*node.inputs, *[""] * _MAX_INPUTS)[:_MAX_INPUTS]
    lengths = inputs[_LENGTHS_SLOT]
    single = replace(node, outputs=("y", "h"), attrs={**node.attrs, "direction": "forward"})
    unlimited = replace(single, inputs=(*inputs[:_LENGTHS_SLOT], "", *inputs[_LENGTHS_SLOT + 1 :]))

    def run(layer: Node, read: np.ndarray) -> Mapping[str, np.ndarray]:
        return run_node(layer, {**values, **own, node.inputs[0]: read}, opset)

    def mistake(likely: str, y: np.ndarray, h: np.ndarray | None = None) -> Mistake:
        return Mistake(likely=likely, node=node, values={}, after=partial(_with_direction, at=at, y=y, h=h))

    title = "the reverse direction" if at else "the layer"
    if at:
        forward = run(single, data)
        yield mistake(
            f"{title} runs forward, as if another axis than that of the steps were reversed", *forward.values()
        )
    turned = run(single, data[:, ::-1])
    yield mistake(
        f"{title} reverses the order of the samples (axis 1), not of the steps (axis 0)", turned["y"], turned["h"]
    )
    if not lengths:
        return
    is_padding = np.arange(len(data))[:, None] >= values[lengths]
    padding = is_padding[:, None, :, None]
    steps_reversed = run(unlimited, data[::-1])
    all_steps = steps_reversed["y"][::-1]
    likely = f"{title} begins with the padding, at the last step, not at the end of each sequence"
    yield mistake(likely, np.where(padding, 0, all_steps), steps_reversed["h"])
    yield mistake(f"{likely}, and writes results for the padding", all_steps, steps_reversed["h"])
    limited = run(single, data[::-1])
    likely = f"{title} reverses all steps with the padding, and runs as many of them as the sequence is long"
    yield mistake(likely, limited["y"][::-1], limited["h"])
    yield mistake(f"{likely}, in this order", limited["y"], limited["h"])


def _with_direction(result: np.ndarray, *, at: int, y: np.ndarray, h: np.ndarray | None) -> np.ndarray:
    """Return a result with one direction replaced, of the output for all steps or of the final state."""
    changed = result.copy()
    if result.ndim == 1 + _AXES_AFTER_DIRECTIONS:
        changed[:, at] = y[:, 0]
    elif h is not None:
        changed[at] = h[0]
    return changed


_MAX_INPUTS = 8
_LENGTHS_SLOT = 4
_BY_DIRECTION = frozenset((1, 2, 3, 5, 6, 7))
"""Slots of the inputs with an entry for each direction."""


def _padded_final_states(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield a final state that is read from the last step of the padded output, which is 0 for shorter sequences."""
    lengths = node.inputs[_LENGTHS_SLOT] if len(node.inputs) > _LENGTHS_SLOT else ""
    if not lengths or len(node.outputs) < len(("y", "h")) or node.attrs.get("layout"):
        return
    y = run_node(replace(node, outputs=("y",)), values, opset)["y"]
    likely = "the final state is read from the last step of the output, which is padding in shorter sequences"
    yield Mistake(likely=likely, node=node, values={}, after=partial(_if_final_state, state=y[-1]))


def _if_final_state(result: np.ndarray, *, state: np.ndarray) -> np.ndarray:
    return state if result.shape == state.shape else result


def _exchange_directions(result: np.ndarray) -> np.ndarray:
    """Swap the two directions of a result: axis 1 of the output for all steps, axis 0 of a final state."""
    return np.ascontiguousarray(np.flip(result, result.ndim - _AXES_AFTER_DIRECTIONS))


def _reverse_second_direction(result: np.ndarray) -> np.ndarray:
    """Reverse the second direction of a result along the steps. A final state is returned unchanged."""
    if result.ndim != 1 + _AXES_AFTER_DIRECTIONS:
        return result
    turned = result.copy()
    turned[:, 1] = turned[::-1, 1]
    return turned


_AXES_AFTER_DIRECTIONS = 3
"""The last axes of a result are direction, sample and hidden element."""


def _view_of_gates(array: np.ndarray, count: int) -> np.ndarray:
    """Return a view of weights or biases as (direction, input or recurrent bias, gate, *shape of a gate)."""
    return array.reshape(array.shape[0], -1, count, *_gate_shape(array, count))


def _reset_states(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of starting each step from the initial state, computed by treating steps as samples."""
    data = values[node.inputs[0]]
    lengths = node.inputs[4] if len(node.inputs) > 4 else ""
    if data.ndim != 3 or data.shape[0] == 1 or lengths or node.attrs.get("layout"):
        return
    steps, samples = data.shape[:2]
    states = {name: np.tile(values[name], (1, steps, 1)) for name in node.inputs[5:7] if name}

    def in_steps(result: np.ndarray) -> np.ndarray:
        if result.ndim != 4 or result.shape[0] != 1:
            return result
        split = result.reshape(result.shape[1], steps, samples, -1)
        return np.ascontiguousarray(split.transpose(1, 0, 2, 3))

    yield Mistake(
        likely="its state is reset before each step",
        node=node,
        values={node.inputs[0]: data.reshape(1, steps * samples, -1), **states},
        after=in_steps,
    )


def _gate_shape(array: np.ndarray, gates: int) -> tuple[int, ...]:
    """Return the shape of one gate in weights or biases, without the direction. Biases hold two rows of gates."""
    return (array.shape[1] // (2 * gates),) if array.ndim == 2 else (array.shape[1] // gates, *array.shape[2:])
