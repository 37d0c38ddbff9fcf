"""The backend "torch": PyTorch, for an exported program of torch.export or any module while it is called.

A program is run node by node, with the names, attributes and source lines of torch.export. The plain run calls the
program's own module. For a user's module, the user's own call is the plain run.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.protocol import (
    Feeds,
    OnProgress,
    OptionSpec,
    RunFacts,
    check_options,
    check_taps,
)
from qdebug.backends.torch.exported import ExportedGraph, load_program, without_logging
from qdebug.backends.torch.inductor import INDUCTOR, PASSES, CompiledRun, check_settings
from qdebug.backends.torch.ops import array_of, make_run_facts, tensor_of, torch_errors, unreadable_reason
from qdebug.errors import MissingExtraError, UsageError
from qdebug.model import Recording, TensorInfo
from qdebug.regular_file import open_binary

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["TorchBackend", "TorchRun", "backend"]

_OPTIONS = (
    OptionSpec(name="threads", default="0", help="threads inside an operator; 0 for PyTorch's own choice"),
    OptionSpec(
        name="compile",
        default="none",
        choices=("none", INDUCTOR),
        help="compile the program like torch.compile with frozen weights; needs a C++ compiler",
    ),
    OptionSpec(name="disable", default="", help="settings of inductor to turn off, as A+B: torch._inductor.config"),
    OptionSpec(name="enable", default="", help="settings of inductor to turn on, such as emulate_precision_casts"),
)

_CPU_LIMITS = {
    "default": (("ATEN_CPU_CAPABILITY", "default"), ("ONEDNN_MAX_CPU_ISA", "SSE41")),
    "avx2": (("ATEN_CPU_CAPABILITY", "avx2"), ("ONEDNN_MAX_CPU_ISA", "AVX2")),
    "avx512": (("ATEN_CPU_CAPABILITY", "avx512"), ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")),
}
"""Environment variables that limit the instruction sets of PyTorch's own kernels and of oneDNN, oldest set first."""
_RUN_HINT = "Check that the program runs: torch.export.load(FILE).module()(...)."


class TorchRun:
    """An exported program, ready to run and be recorded.

    Args:
        exported_graph: The program with its graph.
        facts: Facts of the run.
        weights: Whether constants are recorded.
    """

    def __init__(self, exported_graph: ExportedGraph, facts: RunFacts, *, weights: bool) -> None:
        self.facts = replace(facts, extent_names=exported_graph.extent_names)
        self.graph = exported_graph.graph
        self.inputs: tuple[TensorInfo, ...] = tuple(exported_graph.inputs)
        self.outputs: tuple[str, ...] = self.graph.outputs
        self._exported, self._weights = exported_graph, weights
        self._initial_states = {name: exported_graph.value(name).detach().clone() for name in exported_graph.states}
        self._module: Any = None

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            yield from self._exported.constants.items()

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Call the program's module as in production and return its outputs.

        Raises:
            BackendError: PyTorch failed.
        """
        import torch
        from torch.export import pytree

        with torch_errors("PyTorch failed", _RUN_HINT), torch.no_grad():
            if self._module is None:
                self._module = self._exported.original.module()
                self._restore_states()
            args, kwargs = self._exported.call_arguments_for({name: tensor_of(array) for name, array in feed.items()})
            leaves = pytree.tree_leaves(self._module(*args, **kwargs))
        pairs = zip(self._exported.output_names, leaves, strict=True)
        return {
            name: array_of(leaf).copy()
            for name, leaf in pairs
            if name in self.outputs and unreadable_reason(leaf) is None
        }

    def restart(self) -> None:
        """Restore the initial values of buffers that the program changes."""
        if self._module is not None:
            self._restore_states()

    def _restore_states(self) -> None:
        buffers = {name: buffer for name, buffer in self._module.named_buffers() if name in self._initial_states}
        for name, buffer in buffers.items():
            buffer.copy_(self._initial_states[name])

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps node by node and record every tapped tensor.

        Raises:
            BackendError: PyTorch failed.
        """
        import torch

        for name, reason in self._exported.skipped.items():
            recorder.skip(name, reason)
        total = feeds.samples * feeds.steps
        for sample in range(feeds.samples):
            states: dict[str, Any] = {name: value.clone() for name, value in self._initial_states.items()}
            for step in range(feeds.steps):
                recorder.at(sample, step)
                feed = feeds.feed(sample, step)
                tensor_feed = {name: tensor_of(array) for name, array in feed.items()}
                with torch_errors("PyTorch failed", _RUN_HINT), torch.no_grad():
                    states = self._exported.record(tensor_feed, states, recorder, taps=self.facts.taps)
                if on_progress is not None:
                    on_progress(sample * feeds.steps + step + 1, total, f"sample {sample}")

    def close(self) -> None:
        """Free the module. Safe to call twice."""
        self._module = None


class TorchBackend:
    """PyTorch as a backend."""

    name = "torch"
    models = (".pt2",)
    options = _OPTIONS
    cpu_limits = _CPU_LIMITS
    passes = PASSES

    def open(
        self, model: Path | Recording, *, options: Mapping[str, str], taps: str = "faithful", weights: bool = True
    ) -> TorchRun | CompiledRun:
        """Prepare an exported program for running.

        Args:
            model: A .pt2 file that `torch.export.save` wrote.
            options: Values of options by name; other options take their defaults.
            taps: One of `TAPS`. "faithful" and "all" are equivalent, since each operator runs separately.
            weights: Whether constants are recorded.

        Raises:
            UsageError: An option or its value is unknown, or the file does not exist.
            BackendError: PyTorch refused the program.
        """
        chosen_options = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "PyTorch runs exported programs, not recordings.",
                hint="Give the .pt2 file, or replay the recording: --backend interpreter.",
            )
        _set_threads(chosen_options["threads"])
        settings = _inductor_settings(chosen_options)
        program = _load_with_operators(model)
        with open_binary(model) as file:
            digest = sha256(file.read()).hexdigest()

        def make_facts(way: str, notes: Iterable[str]) -> RunFacts:
            values = [node.meta.get("val") for node in program.graph.nodes]
            devices = [value.device for value in values if hasattr(value, "device")]
            base_facts = make_run_facts(way, notes, taps=taps, devices=devices)
            options = {**base_facts.options, "compile": chosen_options["compile"]}
            options |= {name: chosen_options[name] for name in _SETTING_OPTIONS if chosen_options[name]}
            return replace(base_facts, model=model.name, model_sha256=digest, options=options)

        with torch_errors("PyTorch refused the program", _RUN_HINT), without_logging():
            if chosen_options["compile"] == INDUCTOR:
                way = "compiled by inductor; tensors between its kernels are extra outputs"
                return CompiledRun(program, make_facts(way, ()), weights=weights, settings=settings)
            exported_graph = ExportedGraph(program)
        way = "exported program, run node by node"
        return TorchRun(exported_graph, make_facts(way, exported_graph.notes.values()), weights=weights)


_TORCHAO_OPERATORS = (b"torch.ops.quantized_decomposed.", b"torch.ops.torchao.")
"""Prefixes of the operators that torchao registers, as they appear in a program."""


def _load_with_operators(path: Path) -> Any:
    """Load an exported program, with torchao's operators if it uses any.

    Raises:
        UsageError: The file is not an exported program.
        MissingExtraError: It uses torchao's operators, and torchao is not installed.
    """
    if _uses_torchao_operators(path):
        with without_logging():
            _register_torchao_operators(path)
    return load_program(path)


def _uses_torchao_operators(path: Path) -> bool:
    """Return whether a program uses torchao's operators; False if the file is not an archive."""
    try:
        with open_binary(path) as file, zipfile.ZipFile(file) as archive:
            texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    except (OSError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return False
    return any(word in text for text in texts for word in _TORCHAO_OPERATORS)


def _register_torchao_operators(path: Path) -> None:
    """Import torchao, which registers its operators.

    Raises:
        MissingExtraError: It is not installed.
    """
    if find_spec("torchao") is None:
        raise MissingExtraError("torchao", extra="torch", purpose=f"Running {path.name!r}")
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401


_SETTING_OPTIONS = {"disable": False, "enable": True}
"""Options that name settings of inductor, and the value of these settings."""


def _inductor_settings(options: Mapping[str, str]) -> dict[str, bool]:
    """Return the settings of inductor to turn on (True) or off.

    Raises:
        UsageError: Inductor is not used, or has no such setting.
    """
    settings: dict[str, bool] = {}
    for option, value in _SETTING_OPTIONS.items():
        names = [name for name in options[option].split("+") if name]
        if names and options["compile"] != INDUCTOR:
            raise UsageError(
                f"Option {option!r} is for inductor, which is not in use.",
                hint=f"Write --backend torch:compile=inductor,{option}={names[0]}.",
            )
        settings |= dict.fromkeys(names, value)
    if settings:
        check_settings(settings)
    return settings


def _set_threads(text: str) -> None:
    import torch

    if not text.isdecimal():
        raise UsageError(
            f"Option 'threads' of backend 'torch' is {text!r}; expected an integer.",
            hint="Write --backend torch:threads=1 for one thread, or 0 to let PyTorch choose.",
        )
    if int(text):
        torch.set_num_threads(int(text))


backend = TorchBackend()
"""The backend that `qdebug.backends` loads as "torch"."""
