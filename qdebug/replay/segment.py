"""Run some nodes on real numbers, undisturbed or with rounded values moved at random.

If the rounding error has no analytic bound, it is sampled: the result is computed a few times, with each rounded value
moved at random within a few times its rounding error (Parker, "Monte Carlo Arithmetic: exploiting randomness in
floating-point arithmetic", UCLA CSD-970002, 1997).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.model.thresholds.attribution import (
    DISTURBANCE_HALF_STEPS,
    DISTURBED_REPLAYS,
    DISTURBED_REPLAYS_OF_SMALL,
    DISTURBED_SMALL_MAX_ELEMENTS,
)
from qdebug.numerics.blocks import stretches
from qdebug.replay.extents import max_elements, size_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import REAL, Moved, run_node
from qdebug.replay.run import run_nodes

__all__ = ["Read", "Run", "disturb_values", "draw_offsets", "estimate_spread", "run_form", "run_real", "run_segment"]

Read = Callable[[Node, str], np.ndarray]
"""Returns an input of a real form from outside the segment; called with the form and the tensor's name."""

Run = Callable[[Node, Node, Mapping[str, int], Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Computes a node; called with the node, its real form, the operator set versions of the form, and its inputs."""


def run_form(
    _node: Node, form: Node, opset: Mapping[str, int], values: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Run a node's real form; a `Run` function.

    Args:
        _node: The node; unused, since its form is sufficient.
        form: Its real form.
        opset: Version of each operator set of the form.
        values: Its inputs.

    Raises:
        KernelError: The form has no kernel, or the inputs do not match it.
    """
    return run_node(form, values, opset)


def run_real(
    node: Node,
    form: Node,
    opset: Mapping[str, int],
    values: Mapping[str, np.ndarray],
    *,
    disturbed: Moved | None = None,
) -> Mapping[str, np.ndarray]:
    """Run a node's real form. A node that chooses its scale at run time is run on real numbers.

    Args:
        node: The node.
        form: Its real form.
        opset: Version of each operator set of the form.
        values: Its inputs. For a node on codes: real data, or codes with their scale and zero point, and stored
            constants.
        disturbed: Distances by which the operands of a node on codes are moved; None moves nothing.

    Raises:
        KernelError: The form has no kernel, or the inputs do not match it.
    """
    if operators.of(node.op).takes_codes:
        return run_node(replace(node, domain=REAL), values, opset, moved=disturbed)
    return run_form(node, form, opset, values)


def run_segment(
    nodes: Sequence[Node], output: str, opset: Mapping[str, int], read: Read, run: Run = run_real
) -> np.ndarray | None:
    """Compute nodes in order on real numbers.

    Args:
        nodes: The nodes, in topological order.
        output: The requested tensor.
        opset: Version of each operator set by domain.
        read: Returns tensors that no earlier node computes.
        run: Computes one node.

    Returns:
        The tensor; None if no node computes it.

    Raises:
        KernelError: A node has no kernel, or its inputs do not match it.
    """
    element_limit = 0

    def computed(node: Node, results: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        nonlocal element_limit
        form, versions = real_form(node, opset)
        inputs = {name: results[name] if name in results else read(form, name) for name in form.inputs if name}
        # Only inputs from outside the segment raise the limit, so that computed sizes cannot grow from node to node.
        element_limit = max(
            element_limit, max_elements([array.shape for name, array in inputs.items() if name not in results])
        )
        # On real numbers, a scale that is chosen at run time is 1.
        is_scale_chosen_here = operators.of(node.op).gives_scale and output in node.outputs[1:]
        with size_limits(element_limit=element_limit):
            return (run_form if is_scale_chosen_here else run)(node, form, versions, inputs)

    return run_nodes(nodes, (output,), computed).get(output)


def draw_offsets(rng: np.random.Generator, shape: tuple[int, ...], half_steps: np.ndarray | float) -> np.ndarray | None:
    """Draw random offsets for values, within a few times their rounding error.

    Args:
        rng: The random generator.
        shape: Shape of the values.
        half_steps: Half a quantization step, per value or for all values.

    Returns:
        float64; None if all steps are 0.
    """
    if not np.any(half_steps):
        return None
    return rng.uniform(-DISTURBANCE_HALF_STEPS, DISTURBANCE_HALF_STEPS, shape) * half_steps


def disturb_values(rng: np.random.Generator, values: np.ndarray, half_steps: np.ndarray | float) -> np.ndarray:
    """Return real values moved by `draw_offsets`; the same array if all offsets are 0."""
    offsets = draw_offsets(rng, values.shape, half_steps)
    return values if offsets is None else np.asarray(values + offsets.astype(values.dtype))


def estimate_spread(plain: np.ndarray, disturbed: Callable[[], np.ndarray]) -> np.ndarray:
    """Estimate how far each element of a result moves when its inputs are disturbed.

    Args:
        plain: The undisturbed result.
        disturbed: Computes the result with new disturbances at each call.

    Returns:
        The root mean square of the movement over a few disturbed replays, float64 in the result's shape.

    Raises:
        KernelError: A disturbed result has a different shape, because a size was disturbed.
    """
    runs = DISTURBED_REPLAYS if plain.size > DISTURBED_SMALL_MAX_ELEMENTS else DISTURBED_REPLAYS_OF_SMALL
    squares = np.zeros(plain.shape, np.float64)
    for _ in range(runs):
        result = disturbed()
        if result.shape != plain.shape:
            raise KernelError(
                f"Rounding its constants changes the shape {plain.shape} of its result to {result.shape}."
            )
        for out, disturbed_block, plain_block in stretches(squares, result, plain):
            with np.errstate(invalid="ignore", over="ignore"):
                difference = np.subtract(disturbed_block, plain_block, dtype=np.float64)
            np.add(out, np.nan_to_num(difference, copy=False, nan=0, posinf=0, neginf=0) ** 2 / runs, out=out)
    return np.sqrt(squares, out=squares)
