"""Known kernel mistakes inside the step of a recurrent layer. Begin at `wrong_cells`.

The cells are those of ONNX's LSTM and GRU with their default activations, in one direction and in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node

__all__ = ["GRU_CELLS", "LSTM_CELLS", "wrong_cells"]

Gates = list[np.ndarray]
"""Sums of a step before the activations, one array (batch, hidden) for each gate in ONNX's order."""


def wrong_cells(node: Node, values: Mapping[str, np.ndarray], cells: Mapping[str, Cell]) -> Iterator[Mistake]:
    """Yield the mistakes of leaving out, moving or confusing one term inside each step.

    Args:
        node: The node's real form.
        values: Its inputs.
        cells: Cells with a mistake, by the mistake in words.
    """
    names = [*node.inputs, *[""] * (_INPUTS - len(node.inputs))]
    is_plain = node.attrs.get("direction", "forward") == "forward" and not node.attrs.get("layout")
    if not is_plain or names[_LENGTHS] or node.attrs.get("activations") or node.attrs.get("clip"):
        return
    layer = _Layer.of(node, [values.get(name) for name in names])
    for likely, cell in cells.items():
        yield Mistake(likely=likely, node=node, values={}, after=always(layer.run(cell)))


_INPUTS, _LENGTHS = 8, 4
"""Maximum number of inputs, and the slot of the lengths of the sequences."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layer:
    """The parameters of one direction.

    Args:
        x: Data (steps, batch, size).
        weight: (gates * hidden, size).
        recurrence: (gates * hidden, hidden).
        input_bias: (gates * hidden,)
        state_bias: (gates * hidden,)
        hidden: Initial state (batch, hidden).
        cell: Initial cell (batch, hidden).
        peepholes: Of the input, output and forget gate, (hidden,) each.
        reset_after_product: Whether the reset gate of a GRU multiplies the product of the state, not the state.
        dtype: Format of the result.
    """

    x: np.ndarray
    weight: np.ndarray
    recurrence: np.ndarray
    input_bias: np.ndarray
    state_bias: np.ndarray
    hidden: np.ndarray
    cell: np.ndarray
    peepholes: tuple[np.ndarray, np.ndarray, np.ndarray]
    reset_after_product: bool
    dtype: np.dtype

    @classmethod
    def of(cls, node: Node, inputs: list[np.ndarray | None]) -> _Layer:
        """Return the parameters of a node."""
        x, weight, recurrence = (np.asarray(array, np.float64) for array in inputs[:3])
        rows, size = recurrence.shape[1:]
        bias, state, cell, peepholes = (
            np.zeros(shape) if array is None else np.asarray(array[0], np.float64)
            for array, shape in zip(
                (inputs[3], *inputs[5:8]), ((2 * rows,), *[(x.shape[1], size)] * 2, (3 * size,)), strict=True
            )
        )
        input_peephole, output_peephole, forget_peephole = np.split(peepholes, 3)
        return cls(
            x=x,
            weight=weight[0],
            recurrence=recurrence[0],
            input_bias=bias[:rows],
            state_bias=bias[rows:],
            hidden=state,
            cell=cell,
            peepholes=(input_peephole, output_peephole, forget_peephole),
            reset_after_product=bool(node.attrs.get("linear_before_reset")),
            dtype=np.dtype(np.float32) if inputs[0] is None else inputs[0].dtype,
        )

    def run(self, cell: Cell) -> np.ndarray:
        """Return all hidden states (steps, 1, batch, hidden) of a layer with a given cell."""
        hidden, state, results = self.hidden, self.cell, []
        for x in self.x:
            hidden, state = cell(self, x, hidden, state)
            results.append(hidden)
        return np.asarray(np.stack(results)[:, None], self.dtype)

    def gates(self, x: np.ndarray, hidden: np.ndarray) -> Gates:
        """Return the sums of all gates."""
        sums = x @ self.weight.T + hidden @ self.recurrence.T + self.input_bias + self.state_bias
        return np.split(sums, sums.shape[1] // hidden.shape[1], axis=1)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(values / 2)))


def _identity(values: np.ndarray) -> np.ndarray:
    return values


Cell = Callable[[_Layer, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Returns the hidden state and the cell after a step, given the layer, the data, the hidden state and the cell."""


def _lstm_cell(
    *,
    late_peepholes: frozenset[str] = frozenset(),
    reads_old_cell: bool = False,
    keeps: str = "both",
    candidate: Callable[[np.ndarray], np.ndarray] = np.tanh,
    finish: str = "tanh of the cell",
) -> Cell:
    """Return the cell of an LSTM with one part changed.

    Args:
        late_peepholes: Gates whose peephole is added after the sigmoid.
        reads_old_cell: Whether the output gate's peephole reads the cell before the step.
        keeps: Terms of the new cell: "both", "old" without the input gate, or "new" without the old cell.
        candidate: Activation of the candidate.
        finish: How the result follows from the cell.
    """

    def gate(name: str, total: np.ndarray, peephole: np.ndarray) -> np.ndarray:
        return _sigmoid(total) + peephole if name in late_peepholes else _sigmoid(total + peephole)

    def step(layer: _Layer, x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total_in, total_out, total_forget, total_cell = layer.gates(x, hidden)
        peek_in, peek_out, peek_forget = layer.peepholes
        gate_in, gate_forget = gate("input", total_in, peek_in * cell), gate("forget", total_forget, peek_forget * cell)
        new_cell = candidate(total_cell) * (1.0 if keeps == "old" else gate_in)
        if keeps != "new":
            new_cell = new_cell + gate_forget * cell
        gate_out = gate("output", total_out, peek_out * (cell if reads_old_cell else new_cell))
        if finish == "tanh of the product":
            return np.tanh(gate_out * new_cell), new_cell
        return gate_out * (new_cell if finish == "cell" else np.tanh(new_cell)), new_cell

    return step


LSTM_CELLS: Mapping[str, Cell] = MappingProxyType(
    {
        "the output gate's peephole is added after its sigmoid": _lstm_cell(late_peepholes=frozenset({"output"})),
        "all peepholes are added after the sigmoids": _lstm_cell(
            late_peepholes=frozenset({"input", "output", "forget"})
        ),
        "the output gate's peephole reads the cell before the step": _lstm_cell(reads_old_cell=True),
        "the input gate does not multiply the candidate": _lstm_cell(keeps="old"),
        "the old cell is not added to the new one": _lstm_cell(keeps="new"),
        "the candidate is not passed through Tanh": _lstm_cell(candidate=_identity),
        "the cell is not passed through Tanh before the output gate": _lstm_cell(finish="cell"),
        "Tanh is applied to the product with the output gate, not to the cell": _lstm_cell(
            finish="tanh of the product"
        ),
    }
)
"""Cells of an LSTM with a mistake, by the mistake in words."""


def _gru_cell(
    *,
    resets: bool = True,
    adds_state: bool = True,
    activation: Callable[[np.ndarray], np.ndarray] = np.tanh,
    forgets_state_in_candidate: bool = False,
) -> Cell:
    """Return the cell of a GRU with one part changed.

    Args:
        resets: Whether the reset gate is applied.
        adds_state: Whether the old state is part of the new one.
        activation: Activation of the candidate.
        forgets_state_in_candidate: Whether the candidate depends on the data alone.
    """

    def step(layer: _Layer, x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size = hidden.shape[1]
        update, reset, _ = layer.gates(x, hidden)
        update, reset = _sigmoid(update), _sigmoid(reset) if resets else np.ones_like(reset)
        recurrence, bias = layer.recurrence[2 * size :].T, layer.state_bias[2 * size :]
        from_state = (
            reset * (hidden @ recurrence + bias) if layer.reset_after_product else (reset * hidden) @ recurrence + bias
        )
        from_data = x @ layer.weight[2 * size :].T + layer.input_bias[2 * size :]
        candidate = activation(from_data + (0.0 if forgets_state_in_candidate else from_state))
        return (1 - update) * candidate + (update * hidden if adds_state else 0.0), cell

    return step


GRU_CELLS: Mapping[str, Cell] = MappingProxyType(
    {
        "the reset gate is not applied": _gru_cell(resets=False),
        "the old state is not added to the new one": _gru_cell(adds_state=False),
        "the candidate is not passed through Tanh": _gru_cell(activation=_identity),
        "the candidate does not depend on the state": _gru_cell(forgets_state_in_candidate=True),
    }
)
"""Cells of a GRU with a mistake, by the mistake in words."""
