"""Recurrent layers: RNN, GRU and LSTM, forward, reverse and bidirectional."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from qdebug.replay.data_codes import ROW_GROUPS
from qdebug.replay.extents import Cost
from qdebug.replay.form_codes import hyperbolic_tangent, logistic
from qdebug.replay.kernels.activation import activate
from qdebug.replay.kernels.quantize import dynamic_quantize
from qdebug.replay.precision import narrow, widen
from qdebug.replay.qsum import exact_dtype, subtract_zero_point, sum_bound
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []

_State = tuple[np.ndarray, ...]
_Step = Callable[[np.ndarray, _State], _State]
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_DEFAULTS["DynamicQuantizeLSTM"] = _DEFAULTS["LSTM"]


def _cell_count(call: Call) -> int:
    """Return the number of cells, derived from the shape of the recurrent weight."""
    return min(call.shape(2)[1:])


class _Layer:
    """One direction of a recurrent node.

    Args:
        call: The node.
        direction: Index of the direction.
    """

    def __init__(self, call: Call, direction: int) -> None:
        self.call = call
        self.weight, self.recurrence = (self.matrix(position, direction) for position in (1, 2))
        self.hidden, bias = _cell_count(call), call.optional(3)
        zeros = np.zeros(2 * max(call.shape(1)[1:]) if bias is None else 0, widen(call.array(0)).dtype)
        biases = zeros if bias is None else widen(bias[direction])
        self.input_bias, self.state_bias = np.split(biases, 2)
        names = call.attrs.get("activations")
        per = len(_DEFAULTS[call.op])
        listed = tuple(str(name) for name in names) if isinstance(names, tuple) else ()
        self.functions = listed[direction * per : (direction + 1) * per] or _DEFAULTS[call.op]
        if len(self.functions) < per:
            raise ValueError(f"{len(listed)} activations were given; expected {per} per direction")
        self.clip = call.real("clip")

    def matrix(self, position: int, direction: int) -> np.ndarray:
        """Return one direction's matrix of the weight at an input position."""
        return widen(self.call.array(position)[direction])

    def apply(self, position: int, values: np.ndarray) -> np.ndarray:
        """Apply one of the layer's activations to values, which are clipped first if the node has a `clip`."""
        bounded = np.clip(values, -self.clip, self.clip) if self.clip else values
        name = self.functions[position]
        return activate(bounded, name, (0.2, 0.5) if name == "HardSigmoid" else ())

    def prepare_inputs(self, x: np.ndarray) -> np.ndarray:
        """Return the input term of every step, from data (steps, batch, size)."""
        return x

    def gates(self, x: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
        """Return x W' + h R' + biases, one array (batch, hidden) per gate."""
        total = x @ self.weight.T + h @ self.recurrence.T + self.input_bias + self.state_bias
        return np.split(total, total.shape[1] // self.hidden, axis=1)


class _CodedLayer(_Layer):
    """A direction of a DynamicQuantizeLSTM, whose weights are codes (inputs, 4 hidden).

    All data of a direction are quantized by one range, and the state of each step by its own. Source: onnxruntime,
    core/providers/cpu/rnn (uni_directional_lstm.cc, rnn_helpers.cc).
    """

    def __init__(self, call: Call, direction: int) -> None:
        super().__init__(call, direction)
        self._scales = [call.array(position)[direction].astype(np.float32) for position in (8, 10)]
        self._bias = self.input_bias + self.state_bias
        self._groups = max(call.integer(ROW_GROUPS, 1), 1)

    def matrix(self, position: int, direction: int) -> np.ndarray:
        """Return the codes (inputs, 4 hidden) minus their zero point."""
        point = self.call.optional(9 if position == 1 else 11)
        return subtract_zero_point(self.call.array(position)[direction], None if point is None else point[direction])

    def prepare_inputs(self, x: np.ndarray) -> np.ndarray:
        """Multiply the data of all steps by the weight."""
        return self._product(x.reshape(-1, x.shape[-1]), self.weight, self._scales[0]).reshape(*x.shape[:2], -1)

    def gates(self, x: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
        """Multiply the state by the recurrent weight, and add the input term and the bias."""
        size = -(-len(h) // self._groups)
        groups = (h[first : first + size] for first in range(0, len(h), size))
        parts = [self._product(group, self.recurrence, self._scales[1]) for group in groups]
        return np.split((x + np.concatenate(parts)) + self._bias, 4, axis=1)

    def apply(self, position: int, values: np.ndarray) -> np.ndarray:
        """Apply an activation in the runtime's approximation."""
        approximated = {"sigmoid": logistic, "tanh": hyperbolic_tangent}.get(self.functions[position].lower())
        if approximated is None:
            return super().apply(position, values)
        return approximated(np.clip(values, -self.clip, self.clip) if self.clip else values)

    @staticmethod
    def _product(x: np.ndarray, weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
        codes, scale, point = dynamic_quantize(x)
        data = subtract_zero_point(codes, point)
        dtype = exact_dtype(sum_bound(data, weight, (0,)))
        sums = np.matmul(data.astype(dtype), weight.astype(dtype)).astype(np.float32)
        return np.asarray(sums * (scale * factor))


def _rnn_step(layer: _Layer) -> _Step:
    def step(x: np.ndarray, state: _State) -> _State:
        return (layer.apply(0, layer.gates(x, state[0])[0]),)

    return step


def _gru_step(layer: _Layer) -> _Step:
    def step(x: np.ndarray, state: _State) -> _State:
        h, size = state[0], layer.hidden
        update, reset, _ = layer.gates(x, h)
        update, reset = layer.apply(0, update), layer.apply(0, reset)
        from_x = x @ layer.weight[2 * size :].T + layer.input_bias[2 * size :]
        recurrence, bias = layer.recurrence[2 * size :].T, layer.state_bias[2 * size :]
        before = layer.call.integer("linear_before_reset")
        from_h = reset * (h @ recurrence + bias) if before else (reset * h) @ recurrence + bias
        candidate = layer.apply(1, from_x + from_h)
        return ((1 - update) * candidate + update * h,)

    return step


def _lstm_step(layer: _Layer, peephole: np.ndarray | None) -> _Step:
    size = layer.hidden
    peeks = np.zeros(3 * size, layer.weight.dtype) if peephole is None else widen(peephole)
    peek_in, peek_out, peek_forget = np.split(peeks, 3)

    def step(x: np.ndarray, state: _State) -> _State:
        h, c = state
        gate_in, gate_out, gate_forget, cell = layer.gates(x, h)
        gate_in = layer.apply(0, gate_in + peek_in * c)
        coupled = layer.call.integer("input_forget")
        gate_forget = 1 - gate_in if coupled else layer.apply(0, gate_forget + peek_forget * c)
        c = gate_forget * c + gate_in * layer.apply(1, cell)
        return layer.apply(0, gate_out + peek_out * c) * layer.apply(2, c), c

    return step


def _directions(call: Call, x: np.ndarray) -> Iterator[tuple[int, np.ndarray, _Step, bool]]:
    """Yield each direction's index, step inputs and step function, and whether it runs backwards."""
    direction_name = call.text("direction", "forward")
    peepholes = call.optional(7) if len(_DEFAULTS[call.op]) == 3 else None
    for direction in range(call.array(1).shape[0]):
        layer = (_CodedLayer if call.op == "DynamicQuantizeLSTM" else _Layer)(call, direction)
        peephole = None if peepholes is None else peepholes[direction]
        step = {"RNN": _rnn_step, "GRU": _gru_step}.get(call.op, lambda layer, p=peephole: _lstm_step(layer, p))(layer)
        yield direction, layer.prepare_inputs(x), step, direction_name == "reverse" or direction == 1


def _recurrent_cost(call: Call) -> Cost:
    """Estimate the cost of all steps of all directions."""
    rows = call.shape(0)[0] * call.shape(0)[1]
    directions, gates = call.shape(1)[0], max(call.shape(1)[1:])
    steps = call.shape(0)[1 if call.integer("layout") else 0]
    return Cost(rows * directions * _cell_count(call), rows * directions * gates, steps * directions)


def _check_extents(call: Call, batch_axis: int) -> None:
    """Check that all inputs agree on the number of directions, and that no sequence exceeds the number of steps."""
    directions, steps = call.shape(1)[0], call.shape(0)[1 - batch_axis]
    for position, axis in ((2, 0), (3, 0), (5, 1 - batch_axis), (6, 1 - batch_axis), (7, 0)):
        array = call.optional(position)
        if array is not None and array.shape[axis] != directions:
            raise ValueError(f"input {position} has {array.shape[axis]} directions; expected {directions}")
    ends = call.optional(4)
    if ends is not None and (ends.shape != (call.shape(0)[batch_axis],) or np.any((ends < 0) | (ends > steps))):
        raise ValueError(f"sequence lengths must be from 0 to {steps}, one for each sample")


@kernel("DynamicQuantizeLSTM", domain="com.microsoft", cost=_recurrent_cost, ranks=(3, 3, 3, 2, 1, 3, 3, 2))
@kernel("RNN", "GRU", "LSTM", cost=_recurrent_cost, ranks=(3, 3, 3, 2, 1, 3, 3, 2), kinds=("iuf",) * 8)
def _recurrent(call: Call) -> tuple[np.ndarray, ...]:
    """Run x (steps, batch, size) through the layer.

    Return all hidden states, the last hidden states, and the last cells. With layout 1 the batch comes first in x, in
    the states and in the results.
    """
    batch_first = bool(call.integer("layout"))
    _check_extents(call, 0 if batch_first else 1)
    x = widen(call.array(0))
    x = np.swapaxes(x, 0, 1) if batch_first else x
    steps, batch = x.shape[:2]
    lengths = call.optional(4)
    ends = np.full(batch, steps) if lengths is None else lengths.astype(np.int64)
    directions, hidden = call.array(2).shape[0], _cell_count(call)
    all_states = np.zeros((steps, directions, batch, hidden), x.dtype)
    last: list[list[np.ndarray]] = []
    for direction, data, step, backwards in _directions(call, x[: int(ends.max(initial=0))]):
        state = _initial_state(call, direction, (batch, hidden), x.dtype, batch_first=batch_first)
        for time in range(len(data)):
            running = (time < ends)[:, None]
            at = np.where(time < ends, ends - 1 - time if backwards else time, time)
            # Runtimes zero the state of an ended sequence, and a scale chosen over all samples includes these zeros.
            ended = (time > ends)[:, None]
            new = step(data[at, np.arange(batch)], (np.where(ended, 0, state[0]), *state[1:]))
            state = tuple(np.where(running, now, old) for now, old in zip(new, state, strict=True))
            all_states[at, direction, np.arange(batch)] = np.where(running, state[0], 0)
        if len(state) > 1:  # ONNX Runtime's LSTM returns zeros as the state of an empty sequence
            state = tuple(np.where((ends == 0)[:, None], 0, part) for part in state)
        last.append(list(state))
    finals = [np.stack(parts) for parts in zip(*last, strict=True)]
    if batch_first:
        all_states, finals = all_states.transpose(2, 0, 1, 3), [np.swapaxes(final, 0, 1) for final in finals]
    return tuple(narrow(array, call.array(0).dtype) for array in (all_states, *finals))


def _initial_state(
    call: Call, direction: int, shape: tuple[int, int], dtype: np.dtype, *, batch_first: bool
) -> tuple[np.ndarray, ...]:
    """Return the initial hidden state of a direction and, for an LSTM, the initial cell."""
    states: list[np.ndarray] = []
    for position in (5, 6) if len(_DEFAULTS[call.op]) == 3 else (5,):
        initial_state = call.optional(position)
        if initial_state is None:
            states.append(np.zeros(shape, dtype))
        else:
            states.append(widen(initial_state[:, direction] if batch_first else initial_state[direction]))
    return tuple(states)
