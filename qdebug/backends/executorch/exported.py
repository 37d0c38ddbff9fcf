"""Lower exported programs for ExecuTorch, with tensors as additional outputs, and find the placement of each node.

`executorch.devtools.intermediate_output_tap` adds the outputs before the program is lowered.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qdebug.backends.executorch.ops import convert_errors
from qdebug.backends.torch.delegated import PORTABLE

__all__ = ["LoweredProgram", "lower"]

_LOWER_HINT = "Check that to_edge_transform_and_lower(program).to_executorch() works by itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredProgram:
    """A program lowered for the runtime.

    Args:
        content: The bytes of the .pte file.
        taps: Names of the fx nodes that are additional outputs, in order.
        placement: The delegate that runs each fx node, or "portable".
    """

    content: bytes
    taps: tuple[str, ...]
    placement: Mapping[str, str]


def lower(program: Any, delegate: str, taps: Sequence[str] = ()) -> LoweredProgram:
    """Lower an exported program.

    Args:
        program: The program; it is not changed.
        delegate: "xnnpack" or "portable".
        taps: Names of fx nodes to add as outputs.

    Raises:
        BackendError: ExecuTorch cannot lower it.
    """
    failure = f"ExecuTorch cannot lower the program{' with its tensors as outputs' if taps else ''}"
    with convert_errors(failure, _LOWER_HINT if not taps else "Use --taps outputs to record only inputs and outputs."):
        import executorch.kernels.quantized  # noqa: F401  registers quantized_decomposed
        import torch
        from executorch.devtools.intermediate_output_tap import FULL_TENSOR, strip_taps_, tap_intermediate_outputs_
        from executorch.exir import to_edge_transform_and_lower

        source, tapped_names = copy.deepcopy(program), ()
        if taps:
            tap_names = frozenset(taps)
            source, specs = tap_intermediate_outputs_(source, [(lambda node: node.name in tap_names, FULL_TENSOR)])
            tapped_names = tuple(spec.node_name for spec in specs)
        with torch.no_grad():  # buffers that the program writes may require gradients
            edge = to_edge_transform_and_lower(source, partitioner=_partitioners(delegate))
            placement = dict(_node_placements(edge.exported_program(), {node.name for node in program.graph.nodes}))
            strip_taps_(edge)
            content = edge.to_executorch().buffer
    return LoweredProgram(content=bytes(content), taps=tapped_names, placement=placement)


def _partitioners(delegate: str) -> list[Any]:
    if delegate == PORTABLE:
        return []
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return [XnnpackPartitioner()]


def _node_placements(program: Any, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the placements of nodes of the exported program. Delegates come last, so that they win for split nodes."""
    module = program.graph_module
    delegated_placements: list[tuple[str, str]] = []
    for node in module.graph.nodes:
        submodule: Any = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if hasattr(submodule, "original_module"):
            inner_nodes = submodule.original_module.graph.nodes
            delegated_placements += [
                (name, submodule.backend_id)
                for inner_node in inner_nodes
                for name in _ancestors(inner_node)
                if name in names
            ]
        elif node.op == "call_function" and node.target is not operator.getitem:
            yield from ((name, PORTABLE) for name in _ancestors(node) if name in names)
    yield from delegated_placements


def _ancestors(node: Any) -> Iterator[str]:
    """Yield the names of the nodes from which a node was derived."""
    sources = list(node.meta.get("from_node") or ())
    while sources:
        source = sources.pop()
        yield source.name
        sources.extend(source.from_node or ())
