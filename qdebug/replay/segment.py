"""Run some nodes on real numbers: as they are, or disturbed by what rounding may move.

Where rounding makes no error that can be bounded, how far a result wanders is seen by computing it again a few times
with each rounded value moved at random within a few times what rounding moves it: perturbation analysis by sampling
(Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA CSD-970002, 1997).
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
from qdebug.replay.extents import max_elements, room
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import REAL, Moved, run_node
from qdebug.replay.run import run_nodes

__all__ = ["Read", "Run", "moved", "offsets", "run_form", "run_real", "run_segment", "spread"]

Read = Callable[[Node, str], np.ndarray]
"""Returns an input of a node's real form that no node of the segment makes: called with the form and the name."""

Run = Callable[[Node, Node, Mapping[str, int], Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Computes a node: called with the node, its real form, the operator sets that this is read by, and its inputs."""


def run_form(
    _node: Node, form: Node, opset: Mapping[str, int], values: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Run a node's real form, as a `Run`.

    Args:
        _node: The node; all that counts is said of its form.
        form: Its real form.
        opset: Version of each operator set that the form is to be read by.
        values: Its inputs.

    Raises:
        KernelError: There is no kernel, or the inputs do not fit it.
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
    """Run a node's real form, and on real numbers even one that chooses the scale of its codes at run time.

    Args:
        node: The node.
        form: Its real form.
        opset: Version of each operator set that the form is to be read by.
        values: Its inputs; of a node that takes codes real data, or codes with their scale and zero point, and
            constants as they are stored.
        disturbed: How far operands of a node that takes codes are moved; None leaves them.

    Raises:
        KernelError: There is no kernel, or the inputs do not fit it.
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
        output: The tensor that is asked for.
        opset: Version of each operator set by domain.
        read: Gives what no node before makes.
        run: Computes one node.

    Returns:
        What the nodes give for it; None if none of them makes it.

    Raises:
        KernelError: A node has no kernel, or its inputs do not fit it.
    """
    most = 0

    def computed(node: Node, made: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        nonlocal most
        form, versions = real_form(node, opset)
        inputs = {name: made[name] if name in made else read(form, name) for name in form.inputs if name}
        # What a node makes may grow from node to node; what was recorded does not.
        most = max(most, max_elements([array.shape for name, array in inputs.items() if name not in made]))
        with room(most=most):
            return run(node, form, versions, inputs)

    return run_nodes(nodes, (output,), computed).get(output)


def offsets(rng: np.random.Generator, shape: tuple[int, ...], half_steps: np.ndarray | float) -> np.ndarray | None:
    """Draw at random how far values are moved, within a few times what rounding moves them.

    Args:
        rng: Where the disturbances come from.
        shape: Of the values.
        half_steps: Half a step of each, or of all.

    Returns:
        float64; None where there is nothing to move them by.
    """
    if not np.any(half_steps):
        return None
    return rng.uniform(-DISTURBANCE_HALF_STEPS, DISTURBANCE_HALF_STEPS, shape) * half_steps


def moved(rng: np.random.Generator, values: np.ndarray, half_steps: np.ndarray | float) -> np.ndarray:
    """Return real values moved by `offsets`; the same array where there is nothing to move them by."""
    off = offsets(rng, values.shape, half_steps)
    return values if off is None else np.asarray(values + off.astype(values.dtype))


def spread(plain: np.ndarray, disturbed: Callable[[], np.ndarray]) -> np.ndarray:
    """Estimate by how much each element of a result wanders when what it is made of is disturbed.

    Args:
        plain: The result as it is.
        disturbed: Computes it, disturbed otherwise each time.

    Returns:
        Root mean squares over a few disturbed replays, float64 of the result's shape.

    Raises:
        KernelError: A disturbed result has another shape: an extent was disturbed.
    """
    runs = DISTURBED_REPLAYS if plain.size > DISTURBED_SMALL_MAX_ELEMENTS else DISTURBED_REPLAYS_OF_SMALL
    squares = np.zeros(plain.shape, np.float64)
    for _ in range(runs):
        found = disturbed()
        if found.shape != plain.shape:
            raise KernelError(f"Rounding its constants changes the shape {plain.shape} of its result to {found.shape}.")
        for out, one, other in stretches(squares, found, plain):
            with np.errstate(invalid="ignore", over="ignore"):
                difference = np.subtract(one, other, dtype=np.float64)
            np.add(out, np.nan_to_num(difference, copy=False, nan=0, posinf=0, neginf=0) ** 2 / runs, out=out)
    return np.sqrt(squares, out=squares)
