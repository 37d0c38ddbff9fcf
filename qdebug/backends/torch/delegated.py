"""The graph of an exported program as executed by a runtime that folds nodes: a delegate, or a compiler.

A runtime with integer kernels folds a convolution, the DequantizeLinear before it and the QuantizeLinear after it into
one operator. This is described as a single node, since only its codes exist and can be tapped.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from qdebug.backends.torch.exported import ExportedGraph
from qdebug.backends.torch.ops import Arguments, schema_of
from qdebug.errors import BackendError

__all__ = ["PORTABLE", "DelegatedGraph"]

PORTABLE = "portable"
"""Placement of nodes that are not delegated: the runtime's own kernels run them one by one."""
_ACTIVATIONS = frozenset(("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default", "aten.relu6.default"))
"""Operators that are folded into a preceding integer operator."""

_INNER_REASON = "{} computes it inside an integer operator and does not store it in a tensor (see --taps all)"
_DEQUANTIZED_REASON = "a tap on dequantized values keeps {} from running the operators around it"
_LAYOUT_REASON = "{} returns dequantized outputs of more than two dimensions with their dimensions in the wrong order"
_MAX_RANK_WITHOUT_LAYOUT = 2
"""Maximum number of dimensions for which the position of the channels is unambiguous."""
_DYNAMIC_REASON = "{} chooses the scale inside its operator, and a tap would prevent this"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold:
    """An integer operator that a delegate folds from several nodes.

    Args:
        node: The fx node of its operator.
        activation: Its fused activation under TensorFlow Lite's name; "" without one.
        folded_names: Names of the fx nodes folded into it.
    """

    node: Any
    activation: str
    folded_names: tuple[str, ...]


class DelegatedGraph(ExportedGraph):
    """The graph of an exported program as delegates run it.

    Args:
        program: The program, a `torch.export.ExportedProgram`, without in-place operators.
        placement: The delegate that runs each fx node, or "portable".
        taps_everything: Whether each tensor is tapped, so that no operators are folded.
        readers_dequantize: Whether every reader dequantizes codes itself, so that dequantized values never exist.

    Attributes:
        taps: Fx nodes to add as outputs, with the names of their tensors.

    Raises:
        BackendError: It has control flow, or an input that is not a tensor.
    """

    def __init__(
        self, program: Any, placement: Mapping[str, str], *, taps_everything: bool, readers_dequantize: bool = False
    ) -> None:
        self._placement, self._taps_everything = placement, taps_everything
        self._fx_nodes = {node.name: node for node in program.graph.nodes}
        self._fold_by_quantizer = {} if taps_everything else dict(self._find_folds())
        self._integer_ops = {fold.node.name for fold in self._fold_by_quantizer.values()}
        readers = (
            {node.name for node in self._fx_nodes.values() if node.op == "call_function"}
            if readers_dequantize
            else self._integer_ops
        )
        read_names = (
            node.name for node in self._fx_nodes.values() if _is_dequantizer(node) and _are_all_in(node.users, readers)
        )
        self._folded_names = {
            *read_names,
            *(name for fold in self._fold_by_quantizer.values() for name in fold.folded_names),
        }
        for name in program.graph_signature.user_inputs:
            if not hasattr(self._fx_nodes[name].meta.get("val") if name in self._fx_nodes else None, "dtype"):
                raise BackendError(
                    f"Input {name!r} of the program is not a tensor, so it cannot be fed.",
                    hint="Export the program with that input fixed, or as a tensor.",
                )
        super().__init__(program)
        self.taps: dict[str, str] = {}
        for node in self._fx_nodes.values():
            name = self._name_of_node.get(node.name)
            if node.op != "call_function" or node.name in self._folded_names or not name:
                continue
            if reason := "" if taps_everything else self._untapped_reason(node):
                self.skipped[name] = reason
            else:
                self.taps[node.name] = name

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _declare_node(self, node: Any) -> None:
        """Declare a node. The last of several folded nodes becomes their integer operator, which computes on codes."""
        if node.name in self._folded_names:
            if _is_dequantizer(node):
                self._name_of_node[node.name] = self._name_of_node.get(node.args[0].name, "")
                self._note_scale(node, "")
            return
        super()._declare_node(node)
        graph_node = self._nodes.get(node.name)
        if graph_node is None:
            return
        graph_node = replace(graph_node, origin=(), placement=self._placement.get(node.name, ""))
        if (fold := self._fold_by_quantizer.get(node.name)) is not None:
            fused_attrs = {"fused_activation_function": fold.activation} if fold.activation else {}
            graph_node = replace(
                graph_node,
                name=fold.node.name,
                op=str(fold.node.target),
                attrs={**graph_node.attrs, **fused_attrs},
                origin=(*reversed(fold.folded_names), node.name),
            )
        self._nodes[node.name] = graph_node
        if _is_quantizer(node):
            self._infos[graph_node.outputs[0]] = replace(
                self._infos[graph_node.outputs[0]], stands_for=node.args[0].name
            )

    def _is_left_out(self, node: Any) -> bool:  # noqa: ARG002  nodes that choose a scale do run here
        return False

    def _node_name(self, node: Any) -> str:
        return str(node.name)

    def _node_arguments(self, node: Any, title: str) -> Arguments:
        if schema_of(node.target) is None:
            raise BackendError(
                f"The program has control flow ({node.target}), whose branches cannot be recorded.",
                hint="Export it without control flow, or record the branches as separate programs.",
            )
        fold = self._fold_by_quantizer.get(node.name)
        return super()._node_arguments(node if fold is None else fold.node, title)

    # -- taps --------------------------------------------------------------------------------------------------------

    def _untapped_reason(self, node: Any) -> str:
        """Return why a tensor is not tapped; "" if it is tapped."""
        source = node.args[0] if node.target is operator.getitem else node
        delegate = self._placement.get(source.name, PORTABLE)
        if delegate == PORTABLE:
            return ""
        if "choose_qparams" in str(source.target) or _is_dynamic(node):
            return _DYNAMIC_REASON.format(delegate)
        if _is_dequantizer(node):
            if _is_dynamic(node.args[0]):
                return _DYNAMIC_REASON.format(delegate)
            if node.args[0].op == "placeholder" or any(user.name in self._integer_ops for user in node.users):
                return _DEQUANTIZED_REASON.format(delegate)
            if node.meta["val"].dim() > _MAX_RANK_WITHOUT_LAYOUT:
                return _LAYOUT_REASON.format(delegate)
        return _INNER_REASON.format(delegate) if self._is_inner(node) else ""

    def _is_inner(self, node: Any) -> bool:
        """Return whether a node reads dequantized codes and its result is quantized, so that a delegate folds it."""
        if _is_dequantizer(node) or _is_quantizer(node) or not node.users:
            return False
        source = node.args[0] if _is_fused_activation(node) else node
        reads_codes = any(map(_is_dequantizer, source.all_input_nodes))
        return reads_codes and all(
            _is_quantizer(user) or (_is_fused_activation(user) and self._is_inner(user)) for user in node.users
        )

    def drop_dequantized_taps(self) -> bool:
        """Drop taps on dequantized values, which may change how a delegate folds. Return whether there were any."""
        dropped_taps = [
            name for name in self.taps if _is_dequantizer(self._fx_nodes[name]) and not self._taps_everything
        ]
        for name in dropped_taps:
            tensor = self.taps.pop(name)
            self.skipped[tensor] = _DEQUANTIZED_REASON.format(self._placement.get(name, PORTABLE))
        return bool(dropped_taps)

    # -- integer operators -------------------------------------------------------------------------------------------

    def _find_folds(self) -> Iterator[tuple[str, _Fold]]:
        """Yield the integer operators that a delegate computes, keyed by the fx node that quantizes the result."""
        for node in self._fx_nodes.values():
            if _is_quantizer(node) and (fold := self._find_fold(node)) is not None:
                yield node.name, fold

    def _find_fold(self, quantizer: Any) -> _Fold | None:
        delegate = self._placement.get(quantizer.name, PORTABLE)
        node, folded_names, activation = quantizer.args[0], [], ""
        if _is_dynamic(quantizer):
            return None
        if _is_fused_activation(node) and len(node.users) == 1:
            activation_name = _activation_name(node)
            if activation_name is None:
                return None
            activation, folded_names, node = activation_name, [node.name], node.args[0]
        if node.op != "call_function" or len(node.users) != 1 or delegate == PORTABLE:
            return None
        if self._placement.get(node.name) != delegate or not hasattr(node.meta.get("val"), "dtype"):
            return None
        if _is_dequantizer(node) or _is_quantizer(node) or not any(map(_is_dequantizer, node.all_input_nodes)):
            return None
        if not all(
            _is_dequantizer(input_node) or input_node.op == "placeholder" for input_node in node.all_input_nodes
        ):
            return None
        return _Fold(node=node, activation=activation, folded_names=(*folded_names, node.name))


def _is_quantizer(node: Any) -> bool:
    return str(node.target).startswith("quantized_decomposed.quantize_per_")


def _is_dequantizer(node: Any) -> bool:
    return str(node.target).startswith("quantized_decomposed.dequantize_per_")


def _is_dynamic(node: Any) -> bool:
    """Return whether a node quantizes with a scale chosen at run time."""
    item_sources = [input_node.args[0] for input_node in node.all_input_nodes if input_node.target is operator.getitem]
    return _is_quantizer(node) and any("choose_qparams" in str(input_node.target) for input_node in item_sources)


def _is_activation(node: Any) -> bool:
    return str(node.target) in _ACTIVATIONS


def _is_fused_activation(node: Any) -> bool:
    """Return whether a node is an activation applied to an operator's result rather than to dequantized values."""
    return _is_activation(node) and not _is_dequantizer(node.args[0])


def _activation_name(node: Any) -> str | None:
    """Return TensorFlow Lite's name for an activation; None without one."""
    if str(node.target) == "aten.relu.default":
        return "RELU"
    limits: tuple[float, ...] = tuple(float(limit) for limit in node.args[1:3] if isinstance(limit, int | float))
    names_by_limits: Mapping[tuple[float, ...], str] = {(0.0, 6.0): "RELU6", (-1.0, 1.0): "RELU_N1_TO_1"}
    return names_by_limits.get(limits)


def _are_all_in(users: Mapping[Any, Any], names: set[str]) -> bool:
    return bool(users) and all(user.name in names for user in users)
