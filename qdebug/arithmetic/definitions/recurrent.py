"""Definitions of recurrent layers, as ONNX states them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.definitions.definition import Definition, Value, parse
from qdebug.arithmetic.definitions.functions import number
from qdebug.model import Node

__all__ = ["define_recurrence"]

_GATES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"RNN": ("h",), "GRU": ("update", "reset", "hidden"), "LSTM": ("input", "output", "forget", "cell")}
)
"""Gates in the order of the weights."""
_ACTIVATIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
)
_INPUTS = 8


def define_recurrence(node: Node, inputs: Sequence[np.ndarray | None], output: int) -> Definition | None:
    """Return the definition of an RNN, GRU or LSTM, or None where it is not supported.

    Args:
        node: The node.
        inputs: Its inputs in order, None where one is left out.
        output: Index of the output that is defined: the states of all steps, or the last state.
    """
    x, weight, recurrence, bias, lengths, hidden, cell, peepholes = [*inputs, *[None] * _INPUTS][:_INPUTS]
    activations = node.attrs.get("activations")
    if x is None or weight is None or recurrence is None or node.attrs.get("layout") or output > 1:
        return None
    if isinstance(activations, tuple) and {str(each).lower() for each in activations} != set(_ACTIVATIONS[node.op]):
        return None
    gates, size, directions = _GATES[node.op], recurrence.shape[-1], len(weight)
    steps, batch = x.shape[:2]
    orders = _orders(str(node.attrs.get("direction", "forward")), steps, batch, lengths)
    both = np.zeros((directions, 2 * len(gates) * size)) if bias is None else bias.astype(np.float64)
    values: dict[str, Value] = {"zero": np.zeros((directions, batch, size))}
    for name, state in (("hidden", hidden), ("cell", cell)):
        values[name] = np.zeros((directions, batch, size)) if state is None else state.astype(np.float64)
    data: dict[str, np.ndarray] = {}
    rows = np.arange(batch)
    for at, gate in enumerate(gates):
        part = slice(at * size, (at + 1) * size)
        own, other = both[:, : len(gates) * size][:, part], both[:, len(gates) * size :][:, part]
        read = np.stack([x.astype(np.float64)[order, rows] for order in orders], axis=1)
        data[f"x_{gate}"] = np.matmul(read, weight.astype(np.float64)[:, part].swapaxes(1, 2)) + own[:, None]
        values[f"w_{gate}"] = recurrence.astype(np.float64)[:, part].swapaxes(1, 2)
        values[f"b_{gate}"] = np.broadcast_to(other[:, None], (directions, batch, size))
    for at, gate in enumerate(("input", "output", "forget") if peepholes is not None else ()):
        peephole = np.asarray(peepholes, np.float64)[:, None, at * size : (at + 1) * size]
        values[f"p_{gate}"] = np.broadcast_to(peephole, (directions, batch, size))
    if lengths is not None:
        running = np.arange(steps)[:, None] < lengths
        data["running"] = np.broadcast_to(running[:, None, :, None], (steps, directions, batch, size))
    if number(node, "clip", 0):
        values["limit"] = number(node, "clip", 0)
    text = _text(node, has_peepholes=peepholes is not None, has_lengths=lengths is not None, is_last=output == 1)

    def finish(result: np.ndarray) -> np.ndarray:
        if output == 1:
            return np.asarray(result[-1])
        ordered = np.zeros_like(result)
        for direction, order in enumerate(orders):
            ordered[order, direction, rows] = result[:, direction]
        return ordered

    return Definition(lines=parse(text), values=values, finish=finish, steps=data)


def _orders(direction: str, steps: int, batch: int, lengths: np.ndarray | None) -> list[np.ndarray]:
    """Return the step that each direction reads at each time, (steps, batch). Reversed sequences start at their end."""
    times = np.repeat(np.arange(steps)[:, None], batch, axis=1)
    ends = np.full(batch, steps) if lengths is None else lengths.astype(np.int64)
    backwards = np.where(times < ends, ends - 1 - times, times)
    return {"forward": [times], "reverse": [backwards]}.get(direction, [times, backwards])


def _text(node: Node, *, has_peepholes: bool, has_lengths: bool, is_last: bool) -> str:
    """Return the lines of one step."""

    def total(gate: str, state: str = "hidden", cell: str = "cell") -> str:
        peephole = f" + p_{gate} * {cell}" if has_peepholes and gate in ("input", "output", "forget") else ""
        sum_text = f"x_{gate} + matmul({state}, w_{gate}) + b_{gate}{peephole}"
        return f"clip({sum_text}, limit)" if number(node, "clip", 0) else sum_text

    if node.op == "RNN":
        lines = [f"total_h = {total('h')}", "new_hidden = tanh(total_h)"]
    elif node.op == "GRU":
        from_state = (
            "reset * (matmul(hidden, w_hidden) + b_hidden)"
            if node.attrs.get("linear_before_reset")
            else "matmul(reset * hidden, w_hidden) + b_hidden"
        )
        inner = f"x_hidden + {from_state}"
        inner = f"clip({inner}, limit)" if number(node, "clip", 0) else inner
        lines = [
            f"update = sigmoid({total('update')})",
            f"reset = sigmoid({total('reset')})",
            f"candidate = tanh({inner})",
            "new_hidden = (1 - update) * candidate + update * hidden",
        ]
    else:
        forget = "1 - input" if node.attrs.get("input_forget") else f"sigmoid({total('forget')})"
        lines = [
            f"input = sigmoid({total('input')})",
            f"forget = {forget}",
            f"candidate = tanh({total('cell')})",
            "new_cell = forget * cell + input * candidate",
            f"output = sigmoid({total('output', cell='new_cell')})",
            f"new_hidden = output * tanh({'clip(new_cell, limit)' if number(node, 'clip', 0) else 'new_cell'})",
            "cell = where(running, new_cell, cell)" if has_lengths else "cell = new_cell",
        ]
    lines.append("hidden = where(running, new_hidden, hidden)" if has_lengths else "hidden = new_hidden")
    if not is_last:
        lines.append("y = where(running, new_hidden, zero)" if has_lengths else "y = new_hidden")
    return "\n".join(lines)
