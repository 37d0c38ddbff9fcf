"""Exported programs on ExecuTorch: the graph, where each node runs, and a lowered program whose tensors are outputs.

A tapped program has further outputs: `executorch.devtools.intermediate_output_tap` adds them before the program is
lowered. Where XNNPACK computes with integers, a convolution with the DequantizeLinear before and the QuantizeLinear
after it is one operator, and only its codes exist: these are tapped, and the node is described as that one operator.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qdebug.backends.executorch_ops import Names, arguments, array_of, dtype_of, errors, quant_stated
from qdebug.errors import BackendError
from qdebug.model import Graph, Node, Role, TensorInfo

__all__ = ["ExportedGraph", "Lowered", "lowered"]

_LOWERS = "Check that to_edge_transform_and_lower(program).to_executorch() works by itself."
_PORTABLE = "portable"
_ACTIVATIONS = frozenset(("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default", "aten.relu6.default"))
"""Operators that XNNPACK folds into an integer operator before them."""

_SPLITS_FUSION = "{} computes it inside an integer operator, and no tensor holds it (see --taps all)"
_DEQUANTIZED = "a tap on dequantized values keeps {} from running the operators around it"
_LAID_OUT = "{} mixes up the dimensions of dequantized values with more than two of them where they are outputs"
_NO_LAYOUT = 2
"""Dimensions up to which channels have no place of their own to be mixed up."""
_DYNAMIC = "{} chooses the scale inside its operator, and a tap would keep it from that"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold:
    """An integer operator that a delegate makes of several nodes.

    Args:
        node: The fx node that is computed.
        activation: What is fused into it, in TensorFlow Lite's word; "" for nothing.
        gone: Names of the fx nodes that are no nodes of their own.
    """

    node: Any
    activation: str
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A program lowered for the runtime.

    Args:
        content: The bytes of the .pte file.
        taps: Names of fx nodes that are further outputs, in their order.
        placement: The delegate that runs each fx node, or "portable".
    """

    content: bytes
    taps: tuple[str, ...]
    placement: Mapping[str, str]


def lowered(program: Any, delegate: str, taps: Sequence[str] = ()) -> Lowered:
    """Lower an exported program.

    Args:
        program: The program; it is not changed.
        delegate: "xnnpack" or "portable".
        taps: Names of fx nodes to have as further outputs.

    Raises:
        BackendError: ExecuTorch cannot lower it.
    """
    what = f"ExecuTorch cannot lower the program{' with its tensors as outputs' if taps else ''}"
    with errors(what, _LOWERS if not taps else "Write --taps outputs to record inputs and outputs alone."):
        import executorch.kernels.quantized  # noqa: F401  registers quantized_decomposed
        import torch
        from executorch.devtools.intermediate_output_tap import FULL_TENSOR, strip_taps_, tap_intermediate_outputs_
        from executorch.exir import to_edge_transform_and_lower

        source, made = copy.deepcopy(program), ()
        if taps:
            wanted = frozenset(taps)
            source, specs = tap_intermediate_outputs_(source, [(lambda node: node.name in wanted, FULL_TENSOR)])
            made = tuple(spec.node_name for spec in specs)
        with torch.no_grad():  # a buffer that the program changes may want a gradient
            edge = to_edge_transform_and_lower(source, partitioner=_partitioners(delegate))
            placement = dict(_placed(edge.exported_program(), {node.name for node in program.graph.nodes}))
            strip_taps_(edge)
            content = edge.to_executorch().buffer
    return Lowered(content=bytes(content), taps=made, placement=placement)


def _partitioners(delegate: str) -> list[Any]:
    if delegate == _PORTABLE:
        return []
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return [XnnpackPartitioner()]


def _placed(program: Any, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield where nodes of the exported program run; a delegate comes last where a node became several."""
    module = program.graph_module
    delegated: list[tuple[str, str]] = []
    for node in module.graph.nodes:
        held: Any = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if hasattr(held, "original_module"):
            inner = held.original_module.graph.nodes
            delegated += [(name, held.backend_id) for each in inner for name in _ancestors(each) if name in names]
        elif node.op == "call_function" and node.target is not operator.getitem:
            yield from ((name, _PORTABLE) for name in _ancestors(node) if name in names)
    yield from delegated


def _ancestors(node: Any) -> Iterator[str]:
    """Yield the names of the nodes that a node was made of."""
    waiting = list(node.meta.get("from_node") or ())
    while waiting:
        source = waiting.pop()
        yield source.name
        waiting.extend(source.from_node or ())


class ExportedGraph:
    """The graph of an exported program as a backend runs it.

    Args:
        program: The program, a `torch.export.ExportedProgram`; operators in it change nothing in place.
        placement: The delegate that runs each fx node, or "portable".
        every: Whether each tensor is tapped, and so no operators are folded.

    Attributes:
        graph: The graph.
        constants: Elements of its constants by name.
        states: Buffers that the program changes, with their first values.
        taps: Fx nodes to have as outputs, with the names of their tensors.
        skipped: Tensors that are not recorded, with the reason.
    """

    def __init__(self, program: Any, placement: Mapping[str, str], *, every: bool) -> None:
        self._program, self._placement = program, placement
        self._every = every
        self._names = Names()
        self._called: dict[str, str] = {}
        """Name of each tensor by the name of its fx node."""
        self._parts: dict[str, tuple[str, ...]] = {}
        self._infos: dict[str, TensorInfo] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.states: dict[str, np.ndarray] = {}
        self.taps: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self._fx = {node.name: node for node in program.graph.nodes}
        self._inputs: list[str] = []
        self._declare_inputs()
        self._folded = {} if every else dict(self._folds())
        self._inside = {fold.node.name for fold in self._folded.values()}
        read = (each.name for each in self._fx.values() if _is_dequantizer(each) and _all_in(each.users, self._inside))
        self._gone = {*read, *(name for fold in self._folded.values() for name in fold.gone)}
        nodes = [node for each in program.graph.nodes if (node := self._node(each)) is not None]
        signature = program.graph_signature
        self.output_names = tuple(self._called.get(str(name), "") for name in signature.user_outputs)
        self.new_states = {
            str(target): self._called[new] for new, target in signature.buffers_to_mutate.items() if new in self._called
        }
        for name in self.output_names:
            if name and self._infos[name].role is Role.ACTIVATION:
                self._infos[name] = replace(self._infos[name], role=Role.OUTPUT)
        used = {*self._inputs, *self.output_names, *(name for node in nodes for name in (*node.inputs, *node.outputs))}
        self.graph = Graph(
            nodes,
            tensors=[info for info in self._infos.values() if info.name in used],
            inputs=self._inputs,
            outputs=tuple(dict.fromkeys(name for name in self.output_names if name)),
            name="program",
        )
        self.constants = {name: array for name, array in self.constants.items() if name in used}
        self.states = {name: array for name, array in self.states.items() if name in used}

    # -- tensors -----------------------------------------------------------------------------------------------------

    def _declare_inputs(self) -> None:
        mutated = set(self._program.graph_signature.buffers_to_mutate.values())
        for spec in self._program.graph_signature.input_specs:
            given = spec.kind.name == "USER_INPUT"
            node = self._fx.get(getattr(spec.arg, "name", ""))
            value = None if node is None else node.meta.get("val")
            if node is None or not hasattr(value, "dtype"):
                if given:
                    raise BackendError(
                        f"Input {getattr(spec.arg, 'name', '')!r} of the program is no tensor: it cannot be fed.",
                        hint="Export the program with that input fixed, or as a tensor.",
                    )
                continue
            name = self._names.unique(node.name if given else str(spec.target))
            self._called[node.name] = name
            if given:
                self._inputs.append(name)
                self._declare(name, value, Role.INPUT)
            elif spec.target in mutated:
                self._declare(name, value)
                self.states[name] = array_of(self._held(str(spec.target)))
            else:
                self._declare(name, value, Role.CONSTANT)
                self.constants[name] = array_of(self._held(str(spec.target)))

    def _held(self, target: str) -> Any:
        held = self._program.state_dict.get(target)
        return self._program.constants[target] if held is None else held

    def _declare(self, name: str, value: Any, role: Role = Role.ACTIVATION) -> None:
        extents = tuple(n if isinstance(n, int) else None for n in value.shape)
        open_ = role is not Role.INPUT and None in extents  # shapes of the run are recorded
        self._infos[name] = TensorInfo(
            name=name, shape=None if open_ else extents, dtype=dtype_of(value.dtype), role=role
        )

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _node(self, node: Any) -> Node | None:
        """Return a node of the graph; None for what is none of its own."""
        if node.op != "call_function" or node.name in self._gone:
            return None
        if node.target is operator.getitem:
            parts = self._parts.get(node.args[0].name, ())
            if isinstance(node.args[1], int) and node.args[1] < len(parts):
                self._called[node.name] = parts[node.args[1]]
                self._tap(node, parts[node.args[1]])
            return None
        value = node.meta.get("val")
        values = list(value) if isinstance(value, tuple | list) else [value]
        if not any(hasattr(each, "dtype") for each in values):
            return None
        if getattr(node.target, "_schema", None) is None:
            raise BackendError(
                f"The program has control flow ({node.target}), whose branches cannot be told in a recording.",
                hint="Export it without control flow, or record the branches as programs of their own.",
            )
        outputs = self._outputs(node, values)
        fold = self._folded.get(node.name)
        made = node if fold is None else fold.node
        found = arguments(made.target._schema, _given(made), self._name_of)  # noqa: SLF001
        self._note_scale(node, outputs[0])
        if isinstance(value, tuple | list):
            self._parts[node.name] = outputs
        else:
            self._called[node.name] = outputs[0]
            self._tap(node, outputs[0])
        attrs = dict(found.attrs)
        if fold is not None and fold.activation:
            attrs["fused_activation_function"] = fold.activation
        return Node(
            name=made.name,
            op=str(made.target),
            inputs=found.inputs,
            outputs=outputs,
            attrs=attrs,
            origin=() if fold is None else (*reversed(fold.gone), node.name),
        )

    def _outputs(self, node: Any, values: Sequence[Any]) -> tuple[str, ...]:
        read = {user.args[1] for user in node.users if user.target is operator.getitem}
        outputs = tuple(
            (node.name if position == 0 else f"{node.name}:{position}")
            if hasattr(each, "dtype") and (position == 0 or position in read)
            else ""
            for position, each in enumerate(values)
        )
        named = tuple(name and self._names.unique(name) for name in outputs)
        for name, each in zip(named, values, strict=True):
            if name:
                self._declare(name, each)
        return named

    def _name_of(self, value: Any) -> str | None:
        """Return the name of a tensor; that of the codes where a folded operator reads these themselves."""
        name = getattr(value, "name", None)
        if name in self._gone and _is_dequantizer(value):
            return self._called.get(value.args[0].name)
        return self._called.get(name or "") if hasattr(value, "meta") else None

    def _tap(self, node: Any, name: str) -> None:
        """Have a tensor as a further output, or list it with the reason."""
        reason = "" if self._every else self._untapped(node)
        if reason:
            self.skipped[name] = reason
        else:
            self.taps[node.name] = name

    def _untapped(self, node: Any) -> str:
        """Say why a tensor is not tapped; "" if it is."""
        source = node.args[0] if node.target is operator.getitem else node
        delegate = self._placement.get(source.name, _PORTABLE)
        if delegate == _PORTABLE:
            return ""
        if "choose_qparams" in str(source.target) or _is_dynamic(node):
            return _DYNAMIC.format(delegate)
        if _is_dequantizer(node):
            if _is_dynamic(node.args[0]):
                return _DYNAMIC.format(delegate)
            if node.args[0].op == "placeholder" or any(user.name in self._inside for user in node.users):
                return _DEQUANTIZED.format(delegate)
            if node.meta["val"].dim() > _NO_LAYOUT:
                return _LAID_OUT.format(delegate)
        return _SPLITS_FUSION.format(delegate) if self._is_inner(node) else ""

    def _is_inner(self, node: Any) -> bool:
        """Tell whether a node reads codes and its result becomes codes: a delegate does that in one operator."""
        if _is_dequantizer(node) or _is_quantizer(node) or not node.users:
            return False
        source = node.args[0] if _is_activation(node) else node
        reads = any(map(_is_dequantizer, source.all_input_nodes))
        return reads and all(
            _is_quantizer(each) or (_is_activation(each) and self._is_inner(each)) for each in node.users
        )

    def without_dequantized(self) -> bool:
        """Give up taps on dequantized values, which may keep a delegate from what it does; False if there are none."""
        given_up = [name for name in self.taps if _is_dequantizer(self._fx[name]) and not self._every]
        for name in given_up:
            tensor = self.taps.pop(name)
            self.skipped[tensor] = _DEQUANTIZED.format(self._placement.get(name, _PORTABLE))
        return bool(given_up)

    # -- integer operators -------------------------------------------------------------------------------------------

    def _folds(self) -> Iterator[tuple[str, _Fold]]:
        """Yield the integer operators that a delegate computes, by the fx node that quantizes the result."""
        for node in self._fx.values():
            if _is_quantizer(node) and (fold := self._fold(node)) is not None:
                yield node.name, fold

    def _fold(self, quantizer: Any) -> _Fold | None:
        delegate = self._placement.get(quantizer.name, _PORTABLE)
        node, gone, activation = quantizer.args[0], [], ""
        if _is_dynamic(quantizer):
            return None
        if _is_activation(node) and len(node.users) == 1:
            word = _activation_word(node)
            if word is None:
                return None
            activation, gone, node = word, [node.name], node.args[0]
        if node.op != "call_function" or len(node.users) != 1 or delegate == _PORTABLE:
            return None
        if self._placement.get(node.name) != delegate or not hasattr(node.meta.get("val"), "dtype"):
            return None
        if _is_dequantizer(node) or _is_quantizer(node) or not any(map(_is_dequantizer, node.all_input_nodes)):
            return None
        if not all(_is_dequantizer(each) or each.op == "placeholder" for each in node.all_input_nodes):
            return None
        return _Fold(node=node, activation=activation, gone=(*gone, node.name))

    def _note_scale(self, node: Any, made: str) -> None:
        """Note the scale that a node quantizes with, or that of the codes which dequantizers before it read."""
        if _is_quantizer(node):
            self._note(made, node)
            self._infos[made] = replace(self._infos[made], stands_for=node.args[0].name)
        fold = self._folded.get(node.name)
        for each in (node, *(() if fold is None else fold.node.all_input_nodes)):
            if _is_dequantizer(each) and (name := self._called.get(each.args[0].name)) is not None:
                self._note(name, each)

    def _note(self, name: str, node: Any) -> None:
        given = {}
        for key, value in _given(node).items():
            named = self._called.get(getattr(value, "name", "")) if hasattr(value, "meta") else None
            given[key] = self.constants.get(named, value) if named is not None else value
        quant = quant_stated(given, self._infos[name].dtype)
        if quant is not None and self._infos[name].quant is None:
            self._infos[name] = replace(self._infos[name], quant=quant)


def _given(node: Any) -> dict[str, Any]:
    """Return the arguments of a node by name."""
    names = [argument.name for argument in node.target._schema.arguments]  # noqa: SLF001
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _is_quantizer(node: Any) -> bool:
    return str(node.target).startswith("quantized_decomposed.quantize_per_")


def _is_dequantizer(node: Any) -> bool:
    return str(node.target).startswith("quantized_decomposed.dequantize_per_")


def _is_dynamic(node: Any) -> bool:
    """Tell whether a node quantizes with a scale that the run chooses."""
    picked = [each.args[0] for each in node.all_input_nodes if each.target is operator.getitem]
    return _is_quantizer(node) and any("choose_qparams" in str(each.target) for each in picked)


def _is_activation(node: Any) -> bool:
    return str(node.target) in _ACTIVATIONS


def _activation_word(node: Any) -> str | None:
    """Return TensorFlow Lite's word for an activation; None if it has none."""
    if str(node.target) == "aten.relu.default":
        return "RELU"
    limits: tuple[float, ...] = tuple(float(each) for each in node.args[1:3] if isinstance(each, int | float))
    words: Mapping[tuple[float, ...], str] = {(0.0, 6.0): "RELU6", (-1.0, 1.0): "RELU_N1_TO_1"}
    return words.get(limits)


def _all_in(users: Mapping[Any, Any], names: set[str]) -> bool:
    return bool(users) and all(user.name in names for user in users)
