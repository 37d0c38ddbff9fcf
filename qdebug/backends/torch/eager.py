"""Record a PyTorch module while it is called: `with record(model, "x.h5"): model(x)`.

The call itself is the plain run. Afterwards, the module is run once more, on copies of the inputs and from the same
state of buffers and random numbers. That run is recorded, and the outputs of both runs are compared bit for bit.

There are two methods. torch.export gives a graph with attributes and source lines. If it fails, or would decompose
tensor subclasses, a dispatch mode records each operator while it runs, and hooks identify the module that runs it.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qdebug.backends.torch.cuda import check_not_captured, random_states, restore_random_states
from qdebug.backends.torch.exported import ExportedGraph
from qdebug.backends.torch.ops import (
    array_of,
    make_run_facts,
    put_tensor,
    torch_errors,
    unreadable_reason,
    weight_of,
    wraps_tensors,
)
from qdebug.backends.torch.watch import Watch
from qdebug.errors import BackendError, UsageError
from qdebug.recording.environment import recorded_facts
from qdebug.recording.recorder import Recorder

__all__ = ["WAYS", "record"]

WAYS = ("auto", "export", "dispatch")
"""Recording methods: torch.export if possible, only torch.export, or only the dispatch mode."""

_HINT = "Call the model once without recording; if that works, try way='dispatch'."


class record:  # noqa: N801  it is used as a function: with record(model, path): ...
    """Record the calls of a module inside a `with` block. Each call is a sample.

    Args:
        model: The module, a `torch.nn.Module`.
        path: The file to write; None keeps the recording in memory, as `recording` of the object that the block
            receives.
        way: One of `WAYS`.
        taps: "faithful" or "all" for every tensor, "outputs" for only the inputs and outputs of the module.
        weights: Whether constants are recorded.
        steps: Whether each call is a step of one sample, as in decoding.
        **options: Options of `qdebug.Recorder`: `force`, `keep` and so on.

    Raises:
        UsageError: The model is not a module, or is compiled, in which case its operators do not run one by one.
    """

    def __init__(
        self,
        model: Any,
        path: str | os.PathLike[str] | None,
        *,
        way: str = "auto",
        taps: str = "faithful",
        weights: bool = True,
        steps: bool = False,
        **options: Any,
    ) -> None:
        if way not in WAYS:
            raise UsageError(f"way is {way!r}; expected one of: {', '.join(WAYS)}.", hint="Leave it out for 'auto'.")
        if taps not in ("faithful", "all", "outputs"):
            raise UsageError(
                f"taps is {taps!r}; expected 'faithful', 'all' or 'outputs'.", hint="Leave it out for 'faithful'."
            )
        _check_model(model, taps)
        self._model, self._path, self._options = model, path, options
        self._way, self._taps, self._weights, self._steps = way, taps, weights, steps
        self._calls = 0
        self._run: _ExportRecording | _DispatchRecording | _OutputsRecording | None = None
        self._recorder: Recorder | None = None
        self._hooks: list[Any] = []
        self._is_recording = False
        self._state_before: _StateBeforeCall | None = None

    @property
    def recording(self) -> Any:
        """The finished recording of a block without a path."""
        if self._recorder is None:
            raise UsageError("The model was not called.", hint="Call it inside the with block.")
        return self._recorder.recording

    def __enter__(self) -> Self:
        model = self._model
        self._hooks = [
            model.register_forward_pre_hook(self._prepare, with_kwargs=True),
            model.register_forward_hook(self._record, with_kwargs=True),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        if self._recorder is None:
            if error is None:
                raise UsageError(
                    "Nothing was recorded: the model was not called inside the with block.",
                    hint="Call the module that was passed to record(); methods other than forward are not recorded.",
                )
            return
        self._recorder.__exit__(kind, error, trace)

    def _prepare(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Save everything that the call may change: inputs, buffers, and the state of the random number generators."""
        if not self._is_recording:
            check_not_captured()
            self._state_before = _StateBeforeCall(module, args, kwargs)

    def _record(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Run the module again and record that run. Compare its outputs with the call's."""
        del args, kwargs  # the call may have changed them
        state_before, self._state_before = self._state_before, None
        if self._is_recording or state_before is None:
            return
        self._is_recording = True
        try:
            plain_outputs = [None if leaf is None else leaf.detach().clone() for leaf in _leaves(output)]
            with state_before.restored(module), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecations inside PyTorch
                self._record_call(state_before, plain_outputs)
        finally:
            self._is_recording = False

    def _record_call(self, state_before: _StateBeforeCall, plain_outputs: Sequence[Any]) -> None:
        if self._run is None:
            self._run = self._choose_method(state_before)
            self._recorder = self._run.open_recorder(state_before, self._path, self._options)
        recorder = self._recorder
        if recorder is None:
            return
        recorder.at(*((0, self._calls) if self._steps else (self._calls, 0)))
        self._calls += 1
        names = self._run.record(state_before, recorder)
        checked_outputs = {
            name: array_of(leaf)
            for name, leaf in zip(names, plain_outputs, strict=True)
            if name and leaf is not None and _is_plain(leaf)
        }
        if checked_outputs:
            recorder.check(checked_outputs)

    def _choose_method(
        self, state_before: _StateBeforeCall
    ) -> _ExportRecording | _DispatchRecording | _OutputsRecording:
        """Choose the recording method, and note why torch.export is not used."""
        if self._taps == "outputs":
            return _OutputsRecording(self._model)
        reason = "" if self._way == "dispatch" else _unfit_reason(self._model)
        if self._way == "export" or (self._way == "auto" and not reason):
            try:
                return _ExportRecording(self._model, state_before, weights=self._weights)
            except Exception as error:  # torch.export raises many types of exceptions
                if self._way == "export":
                    with torch_errors("torch.export refused the model", _HINT):
                        raise
                reason = f"torch.export refused it: {' '.join(str(error).split())[:120] or type(error).__name__}"
        return _DispatchRecording(self._model, reason or "asked for", weights=self._weights)


def _check_model(model: Any, taps: str) -> None:
    """Check that a model is a module and, unless only outputs are recorded, is not compiled.

    Raises:
        UsageError: The model is not a module, or is compiled.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"record() got a {type(model).__name__}; expected a torch.nn.Module.",
            hint="Put the function into a module's forward, or give an exported program's module().",
        )
    if taps == "outputs":
        return
    for name, module in model.named_modules():
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            title = f"Module {name!r}" if name else "The model"
            raise UsageError(
                f"{title} is compiled into fused kernels, so its operators cannot be recorded.",
                hint="Record the module that was compiled (model._orig_mod), or only its outputs: taps='outputs'.",
            )


def _unfit_reason(model: Any) -> str:
    """Return why torch.export would not show the operators that are executed; "" if it would."""
    import torch

    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if wraps_tensors(tensor):
            return f"{name} is a {type(tensor).__name__}, which torch.export decomposes"
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")):
        return "autocast is on, and torch.export does not show its casts"
    return ""


class _StateBeforeCall:
    """The state before a call: inputs, buffers, random numbers, and switches that affect the choice of kernels.

    Args:
        module: The module.
        args: Arguments by position.
        kwargs: Arguments by name.
    """

    def __init__(self, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        import torch

        self._args = _copy_tensors(tuple(args)), _copy_tensors(dict(sorted(kwargs.items())))
        self.buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
        self._random, self._random_on_gpus = torch.get_rng_state(), random_states()
        self._has_gradients = torch.is_grad_enabled()
        tensors = (*module.parameters(), *self.buffers.values(), *_leaves((args, kwargs)))
        self.devices = {tensor.device for tensor in tensors if tensor is not None}
        self.changed_buffers: frozenset[str] = frozenset()

    def copy_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call, copied because a run may change them."""
        return _copy_tensors(self._args[0]), _copy_tensors(self._args[1])

    def gradients(self) -> Any:
        """Return a context that enables gradients if the call did, since the choice of some kernels depends on it."""
        import torch

        return torch.set_grad_enabled(self._has_gradients)

    @contextmanager
    def restored(self, module: Any) -> Iterator[None]:
        """Restore the state before the call for a block, and afterwards the state after the call."""
        import torch

        buffers = dict(module.named_buffers())
        buffers_after = {name: buffer.detach().clone() for name, buffer in buffers.items()}
        random, gpu_random = torch.get_rng_state(), random_states()
        has_fastpath = torch.backends.mha.get_fastpath_enabled()
        self.changed_buffers = frozenset(
            name for name, buffer_before in self.buffers.items() if not _is_same(buffer_before, buffers_after[name])
        )
        try:
            with torch.no_grad():
                for name in self.changed_buffers:
                    buffers[name].copy_(self.buffers[name])
            torch.set_rng_state(self._random)
            restore_random_states(self._random_on_gpus)
            torch.backends.mha.set_fastpath_enabled(has_fastpath and not self._has_gradients)
            yield
        finally:
            with torch.no_grad():
                for name in self.changed_buffers:
                    buffers[name].copy_(buffers_after[name])
            torch.set_rng_state(random)
            restore_random_states(gpu_random)
            torch.backends.mha.set_fastpath_enabled(has_fastpath)


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two tensors have equal elements, NaN included."""
    import torch

    return first.shape == second.shape and bool(torch.all((first == second) | ((first != first) & (second != second))))  # noqa: PLR0124


def _copy_tensors(value: Any) -> Any:
    """Return arguments with copies of their tensors."""
    import torch
    from torch.export import pytree

    return pytree.tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value)


def _leaves(value: Any) -> list[Any]:
    """Return the leaves of an output; None for leaves that are not tensors."""
    import torch
    from torch.export import pytree

    return [leaf if isinstance(leaf, torch.Tensor) else None for leaf in pytree.tree_leaves(value)]


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor can be recorded directly."""
    import torch

    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and unreadable_reason(tensor) is None


class _ExportRecording:
    """A module recorded with torch.export.

    Args:
        model: The module.
        state_before: The state before the first call.
        weights: Whether constants are recorded.
    """

    def __init__(self, model: Any, state_before: _StateBeforeCall, *, weights: bool) -> None:
        import torch

        args, kwargs = state_before.copy_arguments()
        with _without_output():
            program = torch.export.export(model, args, kwargs, strict=False)
        self._model, self._weights = model, weights
        self._exported = ExportedGraph(program)
        if self._exported.has_inner_graphs:
            raise ValueError("it has control flow, whose bodies are separate graphs")
        self._weight_versions = _weight_versions(model)

    def open_recorder(self, state_before: _StateBeforeCall, path: Any, options: Mapping[str, Any]) -> Recorder:
        """Open the recorder, and record the constants."""
        exported_graph = self._exported
        facts = replace(
            make_run_facts(
                "torch.export, run node by node",
                exported_graph.notes.values(),
                taps="faithful",
                devices=state_before.devices,
            ),
            model=type(self._model).__name__,
        )
        recorder = Recorder(path, graph=exported_graph.graph, **{**recorded_facts(facts), **options})
        for name, reason in exported_graph.skipped.items():
            recorder.skip(name, reason)
        for name, array in exported_graph.constants.items() if self._weights else ():
            recorder.constant(name, array)
        return recorder

    def record(self, state_before: _StateBeforeCall, recorder: Recorder) -> Sequence[str]:
        """Record one call, and return the names of its outputs."""
        if _weight_versions(self._model) != self._weight_versions:
            raise BackendError(
                "The weights of the model changed between two calls inside the with block.",
                hint="Record the calls before and after into separate files.",
            )
        args, kwargs = state_before.copy_arguments()
        with torch_errors("The exported model failed", _HINT):
            feed = self._exported.feed_of(args, kwargs)
            states = {
                name: state_before.buffers[name] for name in self._exported.states if name in state_before.buffers
            }
            self._check_shapes(feed)
            with state_before.gradients():
                self._exported.record(feed, states, recorder, taps="faithful")
        return self._exported.output_names

    def _check_shapes(self, feed: Mapping[str, Any]) -> None:
        """Check that the inputs have the shapes of the first call, for which the graph was exported.

        Raises:
            BackendError: A shape differs.
        """
        for name, tensor in feed.items():
            first_shape = self._exported.graph.tensors[name].shape
            if first_shape is not None and tuple(tensor.shape) != first_shape:
                raise BackendError(
                    f"Input {name!r} has shape {list(tensor.shape)}; the first call had {list(first_shape)}.",
                    hint="Record calls of other shapes with way='dispatch', or into separate files.",
                )


@contextmanager
def _without_output() -> Iterator[None]:
    """Suppress what torch.export prints on a failure, since its exception repeats it."""
    level_before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            Path(os.devnull).open("w", encoding="utf-8") as null_file,
            redirect_stdout(null_file),
            redirect_stderr(null_file),
        ):
            yield
    finally:
        logging.disable(level_before)


def _weight_versions(model: Any) -> list[tuple[int, int]]:
    """Return a value that changes whenever a weight changes."""
    return [(id(weight), weight._version) for weight in model.parameters() if not weight.is_inference()]  # noqa: SLF001


class _OutputsRecording:
    """A module of which only the inputs and outputs are recorded.

    Args:
        model: The module.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def open_recorder(self, state_before: _StateBeforeCall, path: Any, options: Mapping[str, Any]) -> Recorder:
        """Open the recorder."""
        is_compiled = hasattr(self._model, "_orig_mod") or getattr(self._model, "_compiled_call_impl", None) is not None
        unrecorded_part = "the kernels that torch.compile made" if is_compiled else "the module"
        facts = make_run_facts(
            "inputs and outputs",
            [f"nothing inside {unrecorded_part} is recorded"],
            taps="outputs",
            devices=state_before.devices,
        )
        model = getattr(self._model, "_orig_mod", self._model)
        return Recorder(path, **{**recorded_facts(replace(facts, model=type(model).__name__)), **options})

    def record(self, state_before: _StateBeforeCall, recorder: Recorder) -> Sequence[str]:
        """Record one call, and return the names of its outputs."""
        inputs = []
        for position, leaf in enumerate(_leaves(state_before.copy_arguments())):
            if leaf is not None:
                inputs.append(f"input_{position}")
                put_tensor(recorder, inputs[-1], leaf)
        args, kwargs = state_before.copy_arguments()
        with torch_errors("The model failed", _HINT), state_before.gradients():
            leaves = _leaves(self._model(*args, **kwargs))
        names = [f"output_{position}" if leaf is not None else "" for position, leaf in enumerate(leaves)]
        for name, leaf in zip(names, leaves, strict=True):
            if name:
                put_tensor(recorder, name, leaf, node="model", op=type(self._model).__name__, inputs=inputs)
        recorder.outputs(*filter(None, names))
        return names


class _DispatchRecording:
    """A module recorded operator by operator while it runs, by a dispatch mode.

    Args:
        model: The module.
        reason: Why torch.export was not used.
        weights: Whether constants are recorded.
    """

    def __init__(self, model: Any, reason: str, *, weights: bool) -> None:
        self._model, self._reason, self._weights = model, reason, weights
        self._constants = dict((*model.named_parameters(), *model.named_buffers()))
        self._recorded: set[str] = set()

    def open_recorder(self, state_before: _StateBeforeCall, path: Any, options: Mapping[str, Any]) -> Recorder:
        """Open the recorder."""
        notes = [
            weight.note for constant in self._constants.values() if (weight := weight_of(constant)) and weight.note
        ]
        way = f"dispatch mode ({self._reason})"
        base_facts = make_run_facts(way, dict.fromkeys(notes), taps="faithful", devices=state_before.devices)
        facts = replace(base_facts, model=type(self._model).__name__)
        return Recorder(path, **{**recorded_facts(facts), **options})

    def record(self, state_before: _StateBeforeCall, recorder: Recorder) -> Sequence[str]:
        """Record one call, and return the names of its outputs."""
        import torch

        args, kwargs = state_before.copy_arguments()
        names = _input_names(self._model, args, kwargs)
        watch = Watch(recorder, self._constants, state_before.changed_buffers, self._recorded, weights=self._weights)
        for name, leaf in zip(names, _leaves((args, kwargs)), strict=True):
            if leaf is not None:
                watch.record_input(name, leaf)
        with (
            torch_errors("The model failed while it was recorded", _HINT),
            torch.inference_mode(),
            watch.watch_module(self._model),
        ):
            leaves = _leaves(self._model(*args, **kwargs))
        outputs = ["" if leaf is None else watch.name_of(leaf) or "" for leaf in leaves]
        recorder.outputs(*filter(None, outputs))
        return outputs


def _input_names(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return a name for each leaf of the arguments, based on the parameters of `forward` like in torch.export."""
    from inspect import signature

    from torch.export import pytree

    names = [
        name for name, parameter in signature(model.forward).parameters.items() if parameter.kind.name != "VAR_KEYWORD"
    ]
    leaf_names: list[str] = []
    for name, value in (*zip([*names, *(f"arg_{n}" for n in range(len(args)))], args, strict=False), *kwargs.items()):
        leaves = pytree.tree_leaves(value)
        is_single = len(leaves) == 1 and leaves[0] is value
        leaf_names += [name] if is_single else [f"{name}_{position}" for position in range(len(leaves))]
    return leaf_names
