"""Computes float nodes with the roundings of a backend, as an arithmetic file states them by operator or by node.

A key is an operator with the format of its results (`Add:bfloat16`), or `node`, a format and the name of a node
(`node:bfloat16:layers.0.add`). The key of a node takes precedence. Values are texts of a `Placement`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.floats.recipes import RECIPES
from qdebug.arithmetic.floats.search import Placement, parse_placement
from qdebug.arithmetic.floats.steps import Evaluation, edges_of, source
from qdebug.errors import KernelError, UsageError
from qdebug.model import Graph, Node
from qdebug.model.dtypes import logical_dtype
from qdebug.numerics.float_rounding import round_float
from qdebug.numerics.short_formats import SHORT_FORMATS, ShortFormat

__all__ = ["NODE_KEY", "ExplainedPlacements", "RoundedNodes", "roundings_of_nodes"]

NODE_KEY = "node:"
"""Prefix of the key of a single node."""
_FORMATS: Mapping[str, ShortFormat] = {short.name: short for short in SHORT_FORMATS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPlacements:
    """A node with the placements that reproduce it.

    Args:
        node: Name of the node.
        op: Its operator in ONNX.
        short: Name of its result's format.
        placements: Texts of the placements, simplest first.
    """

    node: str
    op: str
    short: str
    placements: Sequence[str]


def roundings_of_nodes(nodes: Sequence[ExplainedPlacements]) -> dict[str, str]:
    """Return the most common placement by operator and format, and by node where another one is needed.

    Args:
        nodes: The explained nodes.

    Returns:
        Texts of placements by key, as in an arithmetic file.
    """
    by_key: dict[str, list[ExplainedPlacements]] = {}
    for node in nodes:
        by_key.setdefault(f"{node.op}:{node.short}", []).append(node)
    roundings: dict[str, str] = {}
    for key, members in by_key.items():
        counts = Counter(text for node in members for text in node.placements if not _depends_on_other_node(text))
        first = {text: at for node in reversed(members) for at, text in enumerate(node.placements)}
        if not counts:
            continue
        usual = min(counts, key=lambda text: (-counts[text], first[text]))
        roundings[key] = usual
        for node in members:
            placements = [text for text in node.placements if not _depends_on_other_node(text)]
            if usual not in placements and placements:
                roundings[f"{NODE_KEY}{node.short}:{node.node}"] = placements[0]
    return roundings


def _depends_on_other_node(text: str) -> bool:
    """Return whether a placement names the output of another node, in quotes."""
    return any("'" in edge for edge, _ in parse_placement(text).edges)


class RoundedNodes:
    """Computes nodes in the placements of an arithmetic file.

    Args:
        graph: The graph, with the types of its tensors.
        roundings: Placements by key.

    Raises:
        UsageError: A key names a node that the graph does not have.
    """

    def __init__(self, graph: Graph, roundings: Mapping[str, Placement]) -> None:
        self._graph, self._roundings = graph, roundings
        node_names = {node.name for node in graph.nodes}
        for key in roundings:
            name = key.removeprefix(NODE_KEY).partition(":")[2]
            if key.startswith(NODE_KEY) and name not in node_names:
                raise UsageError(
                    f"The rounding file states a rounding for node {name!r}, but the graph has no such node."
                )

    def __call__(
        self, node: Node, values: Mapping[str, np.ndarray], otherwise: Callable[[], Mapping[str, np.ndarray]]
    ) -> Mapping[str, np.ndarray]:
        """Compute a node with its placement.

        Args:
            node: The node.
            values: Its inputs by name.
            otherwise: Computes the node if it has no placement.

        Raises:
            KernelError: A placement does not fit the operator.
        """
        placement_and_format = self._placement_of(node)
        if placement_and_format is None:
            return otherwise()
        placement, short = placement_and_format
        inputs = [values[name] for name in node.inputs if name]
        results = RECIPES[node.op].steps(node, [source(array) for array in inputs], [array.shape for array in inputs])
        outputs = {}
        for name, step in zip(node.outputs, results, strict=False):
            if not name:
                continue
            usual = {edge: words[0] for edge, words in edges_of(step).items()}
            unknown = [edge for edge, _ in placement.edges if edge not in usual]
            if unknown:
                raise KernelError(f"{node.op} has no step {unknown[0]!r}; it has {', '.join(usual) or 'none'}.")
            with np.errstate(all="ignore"):
                interval = Evaluation(step, short).evaluate(usual | dict(placement.edges))
                middle = interval.low if interval.is_exact else (interval.low + interval.high) / 2
                exact = interval.low == interval.high
                result = np.where(exact, middle, middle.astype(np.float32))
                rounded = round_float(
                    result, short, placement.rounding, flush=placement.flush, overflow=placement.overflow
                )
                outputs[name] = rounded.astype(self._dtype(name))
        return outputs

    def _dtype(self, tensor: str) -> np.dtype:
        return logical_dtype(self._graph.tensors[tensor].dtype or "float32")

    def _placement_of(self, node: Node) -> tuple[Placement, ShortFormat] | None:
        """Return the placement stated for a node, with the format of its result, or None."""
        if node.op not in RECIPES or not node.outputs:
            return None
        dtype = self._graph.tensors[node.outputs[0]].dtype or "float32"
        for name, short in _FORMATS.items():
            for key in (f"{NODE_KEY}{name}:{node.name}", f"{node.op}:{name}"):
                if key in self._roundings and dtype in (name, "float32", "float64"):
                    return self._roundings[key], short
        return None
