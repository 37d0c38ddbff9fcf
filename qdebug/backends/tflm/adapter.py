"""The backend "tflm": TensorFlow Lite Micro, whose reference kernels run on microcontrollers.

TFLM runs each operator of the file separately, in one arena whose memory is reused. A recorded run gives each tensor
its own memory, and its outputs are compared with the outputs of a run with reused memory. Names, graph and quantization
come from the model file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.litert.model import CUSTOM_DOMAIN, LiteRTModel, reader
from qdebug.backends.native_output import capture_native_output
from qdebug.backends.protocol import (
    Feeds,
    OnProgress,
    OptionSpec,
    RunFacts,
    check_options,
    check_taps,
)
from qdebug.errors import BackendError, UsageError
from qdebug.model import Recording, TensorInfo
from qdebug.recording.environment import cpu_flags

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["TFLMBackend", "TFLMRun", "backend"]

_OPTIONS = (
    OptionSpec(
        name="arena",
        default="auto",
        help="arena size of the plain run in bytes, as on the device; auto uses the size that the model needs",
    ),
)

_MIN_GIVEN_ARENA = 1024
"""Minimum arena size in bytes that a user may give. With a few hundred, TFLM aborts the process without an error."""
_MIN_ARENA = 1 << 16
"""Minimum arena size in bytes to begin with if the user gives none."""
_MAX_ARENA = 1 << 31
"""Maximum arena size in bytes. The size is doubled as long as TFLM reports missing bytes."""

_MISSING_PATTERN = re.compile(r"Requested: \d+, available:? \d+, missing: (\d+)")
"""TFLM's message if the arena is too small."""

_NO_KERNEL_TEXT = "Failed to get registration"
"""TFLM's message if it lacks a kernel for an operator."""


class _Interpreter:
    """One loaded model.

    Args:
        model: The model.
        keeps_memory: Whether each tensor has its own memory.
        arena: Size of the arena in bytes; 0 to find a sufficient size.
    """

    def __init__(self, model: LiteRTModel, *, keeps_memory: bool, arena: int = 0) -> None:
        self._model, self._keeps_memory = model, keeps_memory
        self._stateful = model.stateful or any(node.domain == CUSTOM_DOMAIN for node in model.graph.nodes)
        self._net: Any = None
        self.arena = arena or max(_MIN_ARENA, 10 * model.path.stat().st_size)
        self._may_grow = not arena

    def restart(self) -> None:
        """Reset the state that the model keeps between runs. Custom operators may keep state too."""
        if self._stateful:
            self._net = None

    def load(self) -> None:
        """Load the model if it is not loaded yet.

        Raises:
            BackendError: TFLM refused the model, or the arena is too small.
        """
        while self._net is None:
            output_lines: list[str] = []
            try:
                with capture_native_output(output_lines):
                    self._net = self._create_interpreter()
            except (RuntimeError, ValueError, MemoryError) as error:
                missing_bytes = [int(count) for count in _MISSING_PATTERN.findall(" ".join(output_lines))]
                if not missing_bytes:
                    raise self._refusal_error(error, output_lines) from error
                if not self._may_grow or self.arena >= _MAX_ARENA:
                    raise self._arena_error(max(missing_bytes)) from error
                self.arena = min(max(2 * self.arena, self.arena + max(missing_bytes)), _MAX_ARENA)

    def _create_interpreter(self) -> Any:
        from tflite_micro import runtime

        config = runtime.InterpreterConfig
        return runtime.Interpreter.from_file(
            str(self._model.path),
            arena_size=self.arena,
            intrepreter_config=config.kPreserveAllTensors if self._keeps_memory else config.kAllocationRecording,
        )

    def _refusal_error(self, error: Exception, output_lines: list[str]) -> BackendError:
        refusal = _failure_error("TFLM refused the model", error, output_lines)
        if not any(line.startswith(_NO_KERNEL_TEXT) for line in output_lines):
            return refusal
        custom_ops = ", ".join(sorted({node.op for node in self._model.graph.nodes if node.domain == CUSTOM_DOMAIN}))
        return BackendError(
            f"{refusal.message} Custom operators of the model: {custom_ops}." if custom_ops else refusal.message,
            hint="TFLM lacks this operator; record it with another runtime: --backend litert:kernels=reference.",
        )

    def _arena_error(self, missing_bytes: int) -> BackendError:
        arena_hint = "Write --backend tflm without arena= to let it find a size, or give a larger one."
        return BackendError(
            f"An arena of {self.arena} bytes is too small for {self._model.name!r}: "
            f"TFLM needs at least {missing_bytes} more.",
            hint="Try another runtime: --backend litert:kernels=reference." if self._may_grow else arena_hint,
        )

    def run(self, feed: Mapping[str, np.ndarray]) -> None:
        """Run once.

        Raises:
            BackendError: TFLM refused the model, or failed.
        """
        self.load()
        output_lines: list[str] = []
        try:
            with capture_native_output(output_lines):
                for number, name in enumerate(self._model.graph.inputs):
                    self._net.set_input(np.ascontiguousarray(feed[name]), number)
                self._net.invoke()
        except (RuntimeError, ValueError) as error:
            raise _failure_error("TFLM failed", error, output_lines) from error

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an input. TFLM cannot change it."""
        self.load()
        details = self._net.get_input_details(self._model.graph.inputs.index(name))
        return tuple(int(extent) for extent in details["shape"])

    def output(self, name: str) -> np.ndarray:
        """Return a copy of an output's elements."""
        return np.asarray(self._net.get_output(self._model.graph.outputs.index(name)))

    def tensor(self, name: str) -> np.ndarray:
        """Return a copy of a tensor's elements. The interpreter must keep the memory of each tensor.

        Raises:
            BackendError: TFLM cannot return it.
        """
        try:
            return np.asarray(self._net.GetTensor(self._model.indices[name], 0)["tensor_data"])
        except (RuntimeError, ValueError, TypeError) as error:
            raise BackendError(f"TFLM cannot read tensor {name!r}: {error}.") from error


class TFLMRun:
    """A model, ready to run in TFLM and be recorded.

    Args:
        model: The model.
        plain_interpreter: Its loaded interpreter, configured as in production.
        facts: Facts of the run.
        weights: Whether constants are recorded.
    """

    def __init__(self, model: LiteRTModel, plain_interpreter: _Interpreter, facts: RunFacts, *, weights: bool) -> None:
        self.facts = facts
        self.graph = model.graph_to_record
        self.inputs: tuple[TensorInfo, ...] = tuple(
            replace(model.graph.tensors[name], shape=plain_interpreter.shape(name)) for name in model.graph.inputs
        )
        self.outputs: tuple[str, ...] = model.graph.outputs
        self._model, self._plain, self._weights = model, plain_interpreter, weights

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            for name in self._model.constants:
                if self.graph.is_constant(name):
                    yield name, self._model.constant(name)

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once with reused memory, as in production, and return its outputs.

        Raises:
            BackendError: TFLM failed.
        """
        self._plain.run(feed)
        return {name: self._plain.output(name) for name in self._readable(self.outputs)}

    def restart(self) -> None:
        """Reset the state that plain runs left in the model."""
        self._plain.restart()

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps and record every tensor.

        Raises:
            BackendError: TFLM failed.
        """
        for name, reason in self._model.unreadable.items():
            if name in self.graph.tensors:
                recorder.skip(name, reason)
        net = _Interpreter(self._model, keeps_memory=True)
        has_taps = self.facts.taps != "outputs"
        node_outputs = [name for node in self.graph.nodes for name in node.outputs] if has_taps else []
        names_with_values = {*self.graph.inputs, *self._model.variables}
        tapped_names = [
            name
            for name in self._readable((*node_outputs, *self.outputs))
            if name not in names_with_values and not self.graph.is_constant(name)
        ]
        places = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]
        for runs_done, (sample, step) in enumerate(places, start=1):
            if step == 0:
                net.restart()
                net.load()
            feed = feeds.feed(sample, step)
            states = {name: net.tensor(name) for name in self._readable(self._model.variables) if has_taps}
            net.run(feed)
            recorder.at(sample, step)
            for name, array in {**states, **feed}.items():
                recorder.put(name, array)
            self._put(net, tapped_names, recorder)
            if on_progress is not None:
                on_progress(runs_done, len(places), f"sample {sample}")
        if has_taps and self._weights:  # a run writes the constants that operators unpack
            for name in self._readable(self._model.unpacked):
                recorder.constant(name, net.tensor(name))

    def _put(self, net: _Interpreter, names: list[str], recorder: Recorder) -> None:
        for name in names:
            try:
                recorder.put(name, net.tensor(name))
            except BackendError as error:
                recorder.skip(name, str(error))

    def _readable(self, names: Iterable[str]) -> list[str]:
        """Return the tensors with numeric elements, each once."""
        unreadable, tensors = self._model.unreadable, self.graph.tensors
        return [name for name in dict.fromkeys(names) if name not in unreadable and name in tensors]

    def close(self) -> None:
        """Free the interpreter. Safe to call twice."""
        self._plain = _Interpreter(self._model, keeps_memory=False)


def _failure_error(failure: str, error: Exception, output_lines: list[str]) -> BackendError:
    """Return an error whose message combines TFLM's exception and the messages that it printed."""
    message = "; ".join((str(error).rstrip("."), *dict.fromkeys(output_lines)))
    message = message if len(message) <= 300 else f"{message[:297]}..."
    return BackendError(
        f"{failure}: {message.rstrip('.')}.", hint="Check that the model runs in tflite_micro's Interpreter itself."
    )


class TFLMBackend:
    """TensorFlow Lite Micro as a backend."""

    name = "tflm"
    models = (".tflite",)
    options = _OPTIONS

    def open(
        self, model: Path | Recording, *, options: Mapping[str, str], taps: str = "faithful", weights: bool = True
    ) -> TFLMRun:
        """Prepare a TensorFlow Lite model for running in TFLM.

        Args:
            model: A .tflite file.
            options: Values of options by name; other options take their defaults.
            taps: One of `TAPS`. TFLM does not fuse operators, so "faithful" and "all" are equivalent.
            weights: Whether constants are recorded.

        Raises:
            UsageError: An option or its value is unknown, or the file is not a TensorFlow Lite model.
            BackendError: TFLM refused the model.
        """
        chosen_options = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "TFLM runs model files, not recordings.",
                hint="Give the .tflite file, or replay the recording: --backend interpreter.",
            )
        source = reader.open(model)
        plain_interpreter = _Interpreter(source, keeps_memory=False, arena=_parse_arena(chosen_options["arena"]))
        plain_interpreter.load()
        facts = RunFacts(
            backend=self.name,
            model=source.name,
            model_sha256=source.sha256,
            taps=taps,
            versions={"tflite-micro": version("tflite-micro")},
            cpu_flags=cpu_flags(),
            options={
                **chosen_options,
                "arena_bytes": plain_interpreter.arena,
                **({"note": source.unrecorded_note} if source.inner_subgraphs else {}),
            },
        )
        return TFLMRun(source, plain_interpreter, facts, weights=weights)


def _parse_arena(text: str) -> int:
    """Return the size of the arena in bytes; 0 for auto."""
    if text == "auto":
        return 0
    if not text.isdecimal() or not _MIN_GIVEN_ARENA <= int(text) <= _MAX_ARENA:
        raise UsageError(
            f"Option 'arena' of backend 'tflm' is {text!r}; "
            f"expected auto or a number of bytes from {_MIN_GIVEN_ARENA} to {_MAX_ARENA}.",
            hint="Write --backend tflm to let it find a size.",
        )
    return int(text)


backend = TFLMBackend()
"""The backend that `qdebug.backends` loads as "tflm"."""
