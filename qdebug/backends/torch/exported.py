"""An exported program of torch.export: its graph with PyTorch's operators, and its execution node by node.

Programs with in-place operators are functionalized (`run_decompositions` without decompositions), so that a tensor
keeps its recorded values.
"""

from __future__ import annotations

import logging
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.torch.ops import (
    Arguments,
    Names,
    array_of,
    bind_arguments,
    dtype_of,
    dtype_of_number,
    is_quantizer,
    node_arguments,
    node_title,
    put_tensor,
    quant_of_arguments,
    schema_of,
    unreadable_reason,
    weight_of,
)
from qdebug.errors import UsageError
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["ExportedGraph", "load_program", "origin_of", "without_logging", "without_mutation"]

_OnTensor = Callable[[str, Any, QuantParams | None], None]
"""Called with the name of a tensor, its elements, and its quantization if that was chosen during the run."""


@contextmanager
def without_logging() -> Iterator[None]:
    """Suppress PyTorch's logging and warnings inside the block, such as missing accelerators or repeated errors."""
    level_before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level_before)


def load_program(path: Path) -> Any:
    """Load an exported program.

    Raises:
        UsageError: The file is not an exported program.
    """
    import torch

    with without_logging():
        try:
            return torch.export.load(path)
        except Exception as error:  # the loader raises many types of exceptions
            text = " ".join(str(error).split())
            raise UsageError(
                f"The file {str(path)!r} cannot be read as an exported program: {text[:200].rstrip('.')}.",
                hint="Write one: torch.export.save(torch.export.export(model, args), 'model.pt2').",
            ) from error


class ExportedGraph:
    """The graph of an exported program.

    Args:
        program: The program, a `torch.export.ExportedProgram`.

    Attributes:
        original: The given program.
        program: The program that is run node by node.
        graph: Its graph. Shapes that vary are None, since the shapes of the run are recorded.
        inputs: The inputs to feed. Extents that vary are None.
        extent_names: Names of the dimensions of each input; "" for a fixed extent.
        constants: Elements of its constants by name.
        states: Names of the buffers that it changes, with the tensor that holds the new value.
        notes: Remarks about parts that run differently or are not recorded, by a key that avoids repetitions.
        has_inner_graphs: Whether a node, such as control flow, runs a graph that is not recorded.
        skipped: Reasons why tensors are not recorded, by the tensor's name.
    """

    def __init__(self, program: Any) -> None:
        self.original = program
        self.program = without_mutation(program)
        signature = self.program.graph_signature
        self._module = self.program.graph_module
        self._names = Names()
        self._name_of_node: dict[str, str] = {}
        """Name of each tensor by the name of its fx node."""
        self._devices: dict[str, Any] = {}
        """The device of each input, state and constant."""
        self._outputs: dict[str, tuple[str, ...]] = {}
        self._quants: dict[str, QuantParams] = {}
        self._nodes: dict[str, Node] = {}
        self._infos: dict[str, TensorInfo] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.notes: dict[str, str] = {}
        self.has_inner_graphs = False
        self.skipped: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self.inputs: list[TensorInfo] = []
        self.extent_names: dict[str, tuple[str, ...]] = {}
        mutated_buffers = set(signature.buffers_to_mutate.values())
        self._declare_inputs(mutated_buffers)
        self._declare_nodes()
        self.states = {
            name: self._name_of_node[new_name]
            for new_name, name in signature.buffers_to_mutate.items()
            if name in self._infos and new_name in self._name_of_node
        }
        output_names = [self._name_of_node[name] for name in signature.user_outputs if name in self._name_of_node]
        outputs = tuple(dict.fromkeys(output_names))
        for name in outputs:
            if self._infos[name].role is Role.ACTIVATION:
                self._infos[name] = replace(self._infos[name], role=Role.OUTPUT)
        names_used = {*outputs, *(name for node in self._nodes.values() for name in node.inputs)}
        self.graph = Graph(
            self._nodes.values(),
            tensors=[
                info for info in self._infos.values() if info.role is not Role.CONSTANT or info.name in names_used
            ],
            inputs=[info.name for info in self.inputs],
            outputs=outputs,
            name="program",
        )
        self.constants = {name: array for name, array in self.constants.items() if name in names_used}
        self.skipped = {name: reason for name, reason in self.skipped.items() if name in self.graph.tensors}

    # -- contents of the program --------------------------------------------------------------------------------------

    def _declare_inputs(self, mutated_buffers: set[str]) -> None:
        """Declare parameters, buffers, constants and inputs. The user's inputs come first and keep their names."""
        specs = self.program.graph_signature.input_specs
        placeholders = {node.name: node for node in self._module.graph.nodes if node.op == "placeholder"}
        for spec in sorted(specs, key=lambda input_spec: input_spec.kind.name != "USER_INPUT"):
            node = placeholders.get(getattr(spec.arg, "name", ""))
            if node is None or not _is_tensor(node.meta.get("val")):
                continue
            is_user_input = spec.kind.name == "USER_INPUT"
            name = self._names.unique(node.name if is_user_input else str(spec.target))
            self._name_of_node[node.name], self._devices[name] = name, node.meta["val"].device
            if is_user_input:
                self.inputs.append(self._declare(name, node.meta["val"], Role.INPUT))
                self.extent_names[name] = tuple("" if isinstance(n, int) else str(n) for n in node.meta["val"].shape)
                continue
            self._sources[node.name] = str(spec.target)
            self._declare(name, node.meta["val"], Role.ACTIVATION if spec.target in mutated_buffers else Role.CONSTANT)
            if spec.target not in mutated_buffers:
                self._add_constant(name, self.value(str(spec.target)))

    def _add_constant(self, name: str, tensor: Any) -> None:
        weight = None if tensor is None else weight_of(tensor)
        if weight is None:
            self.skipped[name] = (
                "it cannot be read" if tensor is None else unreadable_reason(tensor) or "its class is unknown"
            )
            return
        self.constants[name] = weight.array
        if weight.note:
            self.notes[weight.note] = weight.note
        if weight.quant is not None:
            self._quants[name] = weight.quant
            self._infos[name] = _with_quant(self._infos[name], weight.quant)

    def value(self, target: str) -> Any:
        """Return a parameter, buffer or constant of the program by its original name; None if it does not exist."""
        state = self.program.state_dict.get(target)
        return self.program.constants.get(target) if state is None else state

    def _declare(self, name: str, value: Any, role: Role = Role.ACTIVATION) -> TensorInfo:
        """Declare a tensor, and return its facts."""
        shape = tuple(n if isinstance(n, int) else None for n in value.shape)
        info = TensorInfo(name=name, shape=shape, dtype=dtype_of(value.dtype), role=role)
        self._infos[name] = replace(info, shape=None) if None in shape else info
        return info

    def _declare_nodes(self) -> None:
        for node in self._module.graph.nodes:
            if node.op == "call_function" and node.target is operator.getitem:
                parts = self._outputs.get(node.args[0].name, ())
                if isinstance(node.args[1], int) and node.args[1] < len(parts):
                    self._name_of_node[node.name] = parts[node.args[1]]
            elif node.op == "call_function":
                self._declare_node(node)
            elif node.op == "get_attr" and _is_tensor(attribute := getattr(self._module, str(node.target), None)):
                self._name_of_node[node.name] = name = self._names.unique(str(node.target))
                self._declare(name, attribute, Role.CONSTANT)
                self._add_constant(name, attribute)

    def _declare_node(self, node: Any) -> None:
        value = node.meta.get("val")
        values = list(value) if isinstance(value, tuple | list) else [value]
        if not any(_is_tensor(item) for item in values) or self._is_left_out(node):
            return
        title = self._names.unique(self._node_name(node))
        read_positions = {user.args[1] for user in node.users if user.target is operator.getitem and user.users}
        outputs = tuple(
            (title if position == 0 else self._names.unique(f"{title}:{position}"))
            if _is_tensor(item) and (position == 0 or position in read_positions)
            else ""
            for position, item in enumerate(values)
        )
        for name, item in zip(outputs, values, strict=True):
            if name:
                self._declare(name, item)
        self._outputs[node.name] = outputs
        if len(values) == 1 and not isinstance(value, tuple | list):
            self._name_of_node[node.name] = outputs[0]
        parsed_arguments = self._node_arguments(node, title)
        input_dtypes = [self._infos[name].dtype or "" for name in parsed_arguments.inputs if name in self._infos]
        for name, number in parsed_arguments.numbers.items():
            dtype = dtype_of_number(input_dtypes, number)
            self.constants[name] = number.astype(dtype)
            self._infos[name] = TensorInfo(name=name, shape=(), dtype=dtype, role=Role.CONSTANT)
        self._nodes[node.name] = Node(
            name=title,
            op=str(node.target),
            inputs=parsed_arguments.inputs,
            outputs=outputs,
            attrs=parsed_arguments.attrs,
            origin=origin_of(_module_of(node)[0], node.meta.get("stack_trace")),
            placement=str(next(item.device for item in values if _is_tensor(item))),
        )
        self._note_scale(node, title)

    def _is_left_out(self, node: Any) -> bool:
        """Return whether a node is left out, because its results are recorded as the scale and zero point of codes."""
        return _is_read_as_scale_only(node)

    def _node_name(self, node: Any) -> str:
        """Return the name of a node."""
        return node_title(*_module_of(node), str(node.target))

    def _node_arguments(self, node: Any, title: str) -> Arguments:
        from torch.fx import Node as FxNode

        def name_of(value: Any) -> str | None:
            return self._name_of_node.get(value.name) if isinstance(value, FxNode) else None

        if schema_of(node.target) is None:  # control flow, or another operator that contains graphs
            self.has_inner_graphs = True
            word = str(getattr(node.target, "__name__", node.target))
            self.notes[word] = f"what runs inside {word!r} is not recorded"
            input_names = [name_of(input_node) for input_node in node.all_input_nodes]
            return Arguments(inputs=tuple(name for name in input_names if name))
        bound_arguments = bind_arguments(node.target, node.args, node.kwargs)
        return node_arguments(schema_of(node.target), bound_arguments, node=title, name_of=name_of)

    def _note_scale(self, node: Any, title: str) -> None:
        """Note the scale in a node's arguments as that of the codes that it writes or reads."""
        if schema_of(node.target) is None:
            return
        op, known_arguments = str(node.target), self._resolved_arguments(node)
        is_written = is_quantizer(node.target)
        reads_codes = op.partition(".")[2].startswith("dequantize") and node.args
        name = (
            title
            if is_written
            else self._name_of_node.get(getattr(node.args[0], "name", ""), "")
            if reads_codes
            else ""
        )
        if not name:
            return
        if op.startswith("quantized_decomposed"):
            self.notes["fake"] = "quantized_decomposed nodes run in float; the integer kernels of a backend do not run"
        if op.startswith("torchao"):
            self.notes["torchao"] = (
                "torch.export decomposed torchao's layers; record the module itself to see each layer as one node"
            )
        info = self._infos[name]
        quant = quant_of_arguments(op, known_arguments, info.dtype or "", info.shape)
        if quant is not None and info.quant is None:
            self._infos[name] = _with_quant(info, quant)

    def _resolved_arguments(self, node: Any) -> dict[str, Any]:
        """Return the arguments of a node, with constants as arrays."""
        arguments = bind_arguments(node.target, node.args, node.kwargs)
        names = {key: self._name_of_node.get(getattr(value, "name", None) or "") for key, value in arguments.items()}
        return {
            key: self.constants[name] if (name := names[key]) and name in self.constants else value
            for key, value in arguments.items()
        }

    # -- running -----------------------------------------------------------------------------------------------------

    @property
    def output_names(self) -> tuple[str, ...]:
        """Name of each output in the program's order; "" if the output is not a tensor."""
        return tuple(self._name_of_node.get(str(name), "") for name in self.program.graph_signature.user_outputs)

    def call_arguments_for(self, feed: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for calling a program, by position and by name.

        Args:
            feed: A value for each input.
        """
        from torch.export import pytree

        args, kwargs = pytree.tree_unflatten(self.input_leaves(feed), self.program.call_spec.in_spec)
        return tuple(args), dict(kwargs)

    def input_leaves(self, feed: Mapping[str, Any]) -> list[Any]:
        """Return the value of each input, in order, on the program's device.

        Args:
            feed: A tensor for each tensor input.
        """
        return [self._input_value(spec, feed) for spec in self._user_inputs()]

    def feed_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each input from the arguments of a call."""
        from torch.export import pytree

        leaves = pytree.tree_leaves((tuple(args), dict(kwargs)))
        names = [self._name_of_node.get(name, "") for name in self._user_inputs()]
        return {name: leaf for name, leaf in zip(names, leaves, strict=True) if name}

    def _user_inputs(self) -> list[str]:
        specs = self.program.graph_signature.input_specs
        return [spec.arg.name for spec in specs if spec.kind.name == "USER_INPUT"]

    def record(
        self, feed: Mapping[str, Any], states: Mapping[str, Any], recorder: Recorder, *, taps: str
    ) -> dict[str, Any]:
        """Run the program once node by node, record it, and return the new value of each state.

        Args:
            feed: A tensor for each input; the run may change it.
            states: A tensor for each buffer that the program changes.
            recorder: The recorder.
            taps: "outputs" to record only inputs and outputs.
        """
        output_names = frozenset(self.graph.outputs) if taps == "outputs" else None
        first_tensors = feed if output_names is not None else {**feed, **states}
        for name, tensor in first_tensors.items():
            put_tensor(recorder, name, tensor)

        def record_tensor(name: str, tensor: Any, quant: QuantParams | None) -> None:
            if output_names is None or name in output_names:
                put_tensor(recorder, name, tensor, quant)

        return self._run({**feed, **states}, record_tensor)

    def _run(self, values: Mapping[str, Any], on_tensor: _OnTensor) -> dict[str, Any]:
        """Run the program, and return the new value of each state.

        Args:
            values: A tensor for each input and state.
            on_tensor: Called with each tensor as soon as a node computes it.
        """
        import torch
        from torch.fx import Interpreter

        outputs, scale_of = self._outputs, self._run_time_scale
        new_states: dict[str, Any] = {}
        state_names = frozenset(self.states.values())

        class Run(Interpreter):  # type: ignore[misc]  # frameworks are imported in functions alone
            def run_node(self, n: Any) -> Any:
                result = super().run_node(n)
                parts = result if isinstance(result, tuple | list) else (result,)
                for name, part in zip(outputs.get(n.name, ()), parts, strict=False):
                    if name and isinstance(part, torch.Tensor):
                        on_tensor(name, part, scale_of(n, name, part, self))
                        if name in state_names:
                            new_states[name] = part.detach().clone()
                return result

        placeholders = [node.name for node in self._module.graph.nodes if node.op == "placeholder"]
        Run(self._module).run(*[self._input_value(name, values) for name in placeholders])
        return {state: new_states[name] for state, name in self.states.items() if name in new_states}

    def _input_value(self, placeholder: str, values: Mapping[str, Any]) -> Any:
        name = self._name_of_node.get(placeholder, "")
        if name in values:
            return values[name].to(self._devices[name])
        if placeholder in self._sources:
            return self.value(self._sources[placeholder])
        spec = {
            getattr(input_spec.arg, "name", ""): input_spec.arg
            for input_spec in self.program.graph_signature.input_specs
        }
        return getattr(spec.get(placeholder), "value", None)

    def _run_time_scale(self, node: Any, name: str, tensor: Any, run: Any) -> QuantParams | None:
        """Return the quantization that a node chose during the run; None if it is constant or there are no codes."""
        if self._infos[name].quant is not None or schema_of(node.target) is None or not is_quantizer(node.target):
            return None
        args, kwargs = run.fetch_args_kwargs_from_env(node)
        call_arguments = {
            key: _to_plain_value(value) for key, value in bind_arguments(node.target, args, kwargs).items()
        }
        return quant_of_arguments(node.target, call_arguments, self._infos[name].dtype or "", list(tensor.shape))


def _to_plain_value(value: Any) -> Any:
    import torch

    return array_of(value) if isinstance(value, torch.Tensor) and unreadable_reason(value) is None else value


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _with_quant(info: TensorInfo, quant: QuantParams) -> TensorInfo:
    return replace(info, dtype=quant.dtype, quant=quant)


def without_mutation(program: Any) -> Any:
    """Return a functionalized program, in which no operator changes an input."""
    schemas = [schema_of(node.target) for node in program.graph.nodes if node.op == "call_function"]
    is_mutable = any(schema is not None and schema.is_mutable for schema in schemas)
    return program.run_decompositions({}) if is_mutable else program


def _is_read_as_scale_only(node: Any) -> bool:
    """Return whether a node chooses a scale that only quantizers and dequantizers read."""
    if not str(node.target).partition(".")[2].startswith("choose_qparams"):
        return False
    readers = [reader for part in node.users for reader in part.users]
    return all(str(reader.target).partition(".")[2].startswith(("quantize", "dequantize")) for reader in readers)


def _module_of(node: Any) -> tuple[str, str]:
    """Return the path and class of the module that a node belongs to; "" if unknown."""
    stack = node.meta.get("nn_module_stack") or {}
    path, kind = next(reversed(stack.values()), ("", ""))
    return str(path), kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


_TORCH_SOURCES = re.compile(r"(site|dist)-packages/torch/")
"""Pattern in the paths of PyTorch's own source files. Other files belong to the model."""


def origin_of(path: str, trace: str | None = None) -> tuple[str, ...]:
    """Return the origin of a node: its module, and the line of the model's code that called it.

    Args:
        path: Path of the module.
        trace: The stack as Python prints it, outermost call first.
    """
    source_line = ""
    for line in (trace or "").splitlines():
        parts = line.strip().split('"')
        if len(parts) == 3 and parts[0] == "File " and not _TORCH_SOURCES.search(parts[1]):
            number = parts[2].removeprefix(", line ").partition(",")[0]
            source_line = f"{parts[1].rpartition('/')[2]}:{number}"
    text = f"{path} ({source_line})" if path and source_line else path or source_line
    return (text,) if text else ()
