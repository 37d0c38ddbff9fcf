"""Record each operator of a PyTorch module while it runs, with a dispatch mode, a function mode and module hooks.

A tensor is identified by its Python object. The result of an in-place operator gets a new name, and every other tensor
with the same memory is recorded again when it is next read. So the recorded inputs of a node are never outdated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qdebug.backends.torch.ops import (
    Names,
    array_of,
    bind_arguments,
    dtype_of,
    dtype_of_number,
    is_quantizer,
    node_arguments,
    node_title,
    put_constant,
    put_tensor,
    quant_of_arguments,
    quantizes_activations,
    schema_of,
    wraps_tensors,
)
from qdebug.recording.recorder import Recorder

__all__ = ["Watch"]

_ALIAS_OPS = frozenset(("aten.detach.default", "aten.alias.default", "aten.lift_fresh.default"))
"""Operators that return their input tensor."""
_UNINITIALIZED_OPS = ("aten.empty", "aten.new_empty")
"""Prefixes of operators that return uninitialized memory."""
CHANGED = "changed in place"
"""Operator of a node that stands for a write to a tensor's memory through another tensor."""


@dataclass(slots=True)
class _Composite:
    """A PyTorch function on a torchao tensor, which internally runs other operators.

    Args:
        title: Name of its node.
        codes: Names of codes that were quantized from a tensor inside the function, by the tensor's name.
    """

    title: str
    codes: dict[str, str] = field(default_factory=dict)


class Watch:
    """Records one call of a module.

    Args:
        recorder: The recorder.
        constants: Parameters and buffers by name.
        changed_constants: Names of the constants that the call changes.
        recorded_names: Names of the constants that earlier calls recorded; updated in place.
        weights: Whether constants are recorded.
    """

    def __init__(
        self,
        recorder: Recorder,
        constants: Mapping[str, Any],
        changed_constants: frozenset[str],
        recorded_names: set[str],
        *,
        weights: bool,
    ) -> None:
        from torch.utils.weak import WeakTensorKeyDictionary

        self._recorder, self._changed_constants, self._recorded_names, self._weights = (
            recorder,
            changed_constants,
            recorded_names,
            weights,
        )
        self._names = Names()
        self._constants = {id(constant): self._names.unique(name) for name, constant in constants.items()}
        self._name_and_version: Any = WeakTensorKeyDictionary()
        self._writes: dict[int, int] = {}
        self._writer: dict[int, str] = {}
        self._dtypes: dict[str, str] = {}
        self._modules: list[tuple[str, str]] = [("", "")]
        self._composite: _Composite | None = None
        self._is_recording = False
        """Whether a function is being recorded. The operators inside it are ignored."""

    # -- modes -------------------------------------------------------------------------------------------------------

    @contextmanager
    def watch_module(self, model: Any) -> Iterator[None]:
        """Watch the operators that run inside the block.

        Args:
            model: The running module.
        """
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode

        watch = self

        class Operators(TorchDispatchMode):  # type: ignore[misc]  # frameworks are imported in functions alone
            supports_higher_order_operators = True

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return watch.run_operator(func, args, kwargs or {})

        class Functions(TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return watch.run_function(func, args, kwargs or {})

        with ExitStack() as stack:
            for path, module in model.named_modules():
                kind = f"{type(module).__module__}.{type(module).__qualname__}"
                entering_hook = module.register_forward_pre_hook(
                    lambda *_, entry=(path, kind): watch._modules.append(entry)
                )
                leaving_hook = module.register_forward_hook(lambda *_: watch._leave_module(), always_call=True)
                stack.callback(entering_hook.remove)
                stack.callback(leaving_hook.remove)
            stack.enter_context(Operators())
            stack.enter_context(Functions())
            yield

    def _leave_module(self) -> None:
        self._modules.pop()

    def run_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a function, and record it as one node if it is called with torchao tensors."""
        op = None if self._is_recording or self._composite is not None else _operator_of(function, args, kwargs)
        if op is None:
            return function(*args, **kwargs)
        path, kind = self._modules[-1]
        composite = self._composite = _Composite(self._names.unique(node_title(path, kind, str(op))))
        try:
            result = function(*args, **kwargs)
        finally:
            self._composite = None
        self._is_recording = True
        try:
            self._put_function(op, args, kwargs, result, composite)
        finally:
            self._is_recording = False
        return result

    def _put_function(
        self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, composite: _Composite
    ) -> None:
        """Record a function as one node. An input that it quantizes inside is replaced by the codes."""
        parsed_arguments = node_arguments(
            schema_of(op), bind_arguments(op, args, kwargs), node=composite.title, name_of=self.name_of
        )
        is_quantization_hidden = (
            any(quantizes_activations(argument) for argument in _flat_values(args, kwargs)) and not composite.codes
        )
        facts = {
            "op": f"{_wrapper_class(args, kwargs)}.{op}" if is_quantization_hidden else str(op),
            "inputs": tuple(composite.codes.get(name, name) for name in parsed_arguments.inputs),
            "attrs": parsed_arguments.attrs,
        }
        self._put_numbers(parsed_arguments.numbers, parsed_arguments.inputs)
        self._put_results(composite.title, result, facts)

    def run_operator(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator and record its results."""
        composite = self._composite
        if self._is_recording:
            return op(*args, **kwargs)
        if composite is not None:
            result = op(*args, **kwargs)
            if is_quantizer(op):
                self._put_codes(op, args, kwargs, result, composite)
            return result
        path, kind = self._modules[-1]
        title = node_title(path, kind, str(op))
        if schema_of(op) is None:
            return self._run_control_flow(op, args, kwargs, self._names.unique(title))
        if str(op) in _ALIAS_OPS:
            result = op(*args, **kwargs)
            if args and _is_tensor(result) and (name := self.name_of(args[0])):
                self._register(result, name)
            return result
        title = self._names.unique(title) if _returns_tensors(op) else title
        call_arguments = bind_arguments(op, args, kwargs)
        # Read the arguments before the call, which may overwrite them.
        parsed_arguments = node_arguments(schema_of(op), call_arguments, node=title, name_of=self.name_of)
        result = op(*args, **kwargs)
        self._note_writes(op, call_arguments, title)
        if _returns_tensors(op):
            self._put_numbers(parsed_arguments.numbers, parsed_arguments.inputs)
            is_uninitialized = str(op).startswith(_UNINITIALIZED_OPS)
            self._put_results(
                title,
                result,
                {"op": str(op), "inputs": parsed_arguments.inputs, "attrs": parsed_arguments.attrs},
                is_uninitialized,
            )
        return result

    def _run_control_flow(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], title: str) -> Any:
        """Run control flow and record its results. Operators inside are not watched."""
        inputs = [name for argument in _flat_values(args, kwargs) if (name := self.name_of(argument))]
        result = op(*args, **kwargs)
        self._put_results(title, result, {"op": str(op), "inputs": inputs})
        self._recorder.skip(f"{title}:body", f"what runs inside {str(op)!r} is not recorded")
        return result

    # -- names -------------------------------------------------------------------------------------------------------

    def record_input(self, name: str, tensor: Any) -> None:
        """Record an input of the call."""
        name = self._names.unique(name)
        put_tensor(self._recorder, name, tensor)
        self._register(tensor, name)

    def name_of(self, value: Any) -> str | None:
        """Return the name of a tensor, None for other values. Record the tensor if its producer was not watched."""
        if not _is_tensor(value):
            return None
        if value in self._name_and_version:
            name, writes = self._name_and_version[value]
            return str(name) if writes == self._writes.get(_memory_id(value), 0) else self._record_again(name, value)
        constant = self._constants.get(id(value))
        if constant is not None and not self._writes.get(_memory_id(value), 0):
            self._put_constant(constant, value)
            self._register(value, constant)
            return constant
        name = self._names.unique(constant or "tensor")
        self._put_constant(name, value)
        self._register(value, name)
        return name

    def _record_again(self, old_name: str, tensor: Any) -> str:
        """Record a tensor again after its memory was overwritten."""
        name = self._names.unique(f"{old_name}.changed")
        input_names = tuple(dict.fromkeys((old_name, self._writer.get(_memory_id(tensor), old_name))))
        put_tensor(self._recorder, name, tensor, node=name, op=CHANGED, inputs=input_names)
        self._register(tensor, name)
        return name

    def _put_constant(self, name: str, tensor: Any) -> None:
        """Record a parameter or buffer, or a tensor created by the model's code, once for all calls."""
        if name in self._changed_constants:
            put_tensor(self._recorder, name, tensor)
        elif self._weights and name not in self._recorded_names:
            put_constant(self._recorder, name, tensor)
            self._recorded_names.add(name)

    def _register(self, tensor: Any, name: str) -> None:
        self._name_and_version[tensor] = name, self._writes.get(_memory_id(tensor), 0)
        self._dtypes[name] = dtype_of(tensor.dtype) or ""

    def _note_writes(self, op: Any, call_arguments: Mapping[str, Any], title: str) -> None:
        """Note the memory that an operator has written."""
        if not schema_of(op).is_mutable:
            return
        for argument in schema_of(op).arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = call_arguments.get(argument.name)
                for tensor in value if isinstance(value, list | tuple) else (value,):
                    if _is_tensor(tensor):
                        memory = _memory_id(tensor)
                        self._writes[memory] = self._writes.get(memory, 0) + 1
                        self._writer[memory] = title

    # -- values ------------------------------------------------------------------------------------------------------

    def _put_results(self, title: str, result: Any, facts: dict[str, Any], is_uninitialized: bool = False) -> None:  # noqa: FBT001, FBT002
        parts = result if isinstance(result, tuple | list) else (result,)
        for position, item in enumerate(parts):
            if _is_tensor(item):
                name = title if position == 0 else self._names.unique(f"{title}:{position}")
                if is_uninitialized:
                    self._recorder.skip(name, "its memory is not initialized")
                else:
                    put_tensor(self._recorder, name, item, node=title, **facts)
                self._register(item, name)

    def _put_numbers(self, numbers: Mapping[str, np.ndarray], inputs: Sequence[str]) -> None:
        """Record plain numbers that are passed in place of tensors."""
        for name, number in numbers.items():
            if name not in self._recorded_names and self._weights:
                input_dtypes = [self._dtypes[input_name] for input_name in inputs if input_name in self._dtypes]
                self._recorder.constant(name, number.astype(dtype_of_number(input_dtypes, number)))
                self._recorded_names.add(name)

    def _put_codes(
        self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], codes: Any, composite: _Composite
    ) -> None:
        """Record codes that a function quantizes inside from a tensor, to be inputs of the function's node."""
        call_arguments = bind_arguments(op, args, kwargs)
        source: Any = args[0] if args else None
        if (
            not _is_tensor(codes)
            or not _is_tensor(source)
            or codes.shape != source.shape
            or source not in self._name_and_version
        ):
            return
        source_name = self.name_of(source)
        plain_arguments = {
            key: array_of(value) if _is_tensor(value) else value for key, value in call_arguments.items()
        }
        quant = quant_of_arguments(op, plain_arguments, dtype_of(codes.dtype) or "", list(codes.shape))
        if quant is None or source_name is None:
            return
        name = self._names.unique(f"{composite.title}.quantize")
        put_tensor(self._recorder, name, codes, quant, node=name, op=str(op), inputs=(source_name,))
        composite.codes[source_name] = name


def _operator_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the operator of a function that was called with torchao tensors; None without one."""
    import torch

    if not _wrapper_class(args, kwargs):
        return None
    name = str(getattr(function, "__name__", "_"))
    overload_packet = None if name.startswith("_") else getattr(torch.ops.aten, name, None)
    op = function if schema_of(function) is not None else getattr(overload_packet, "default", None)
    if op is None or not _returns_tensors(op) or str(op) in _ALIAS_OPS:
        return None
    max_arguments = len(schema_of(op).arguments)
    return op if len(args) + len(kwargs) <= max_arguments else None


def _wrapper_class(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the class name of the first wrapper tensor (as in torchao) among the arguments; "" without one."""
    class_names = (type(value).__name__ for value in _flat_values(args, kwargs) if wraps_tensors(value))
    return next(class_names, "")


def _flat_values(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    for value in (*args, *kwargs.values()):
        yield from value if isinstance(value, list | tuple) else (value,)


def _returns_tensors(op: Any) -> bool:
    return any("Tensor" in str(return_value.type) for return_value in schema_of(op).returns)


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _memory_id(tensor: Any) -> int:
    """Return the identity of a tensor's memory."""
    try:
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001
    except (RuntimeError, NotImplementedError):  # wrapper subclasses have no memory
        return id(tensor)
