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
from qdebug.backends.native_output import collected
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

_OWN_ARENA = 1024
"""Bytes that TFLM needs for itself. With only a few hundred, it kills the process instead of raising an error."""
_LEAST_ARENA = 1 << 16
_MAX_ARENA = 1 << 31
"""Maximum arena size in bytes. The size is doubled as long as TFLM reports missing bytes."""

_MISSING = re.compile(r"Requested: \d+, available:? \d+, missing: (\d+)")
"""TFLM's message if the arena is too small."""

_NO_KERNEL = "Failed to get registration"
"""TFLM's message if it lacks a kernel for an operator."""


class _Interpreter:
    """One loaded model.

    Args:
        model: The model.
        kept: Whether each tensor has its own memory.
        arena: Size of the arena in bytes; 0 to determine it.
    """

    def __init__(self, model: LiteRTModel, *, kept: bool, arena: int = 0) -> None:
        self._model, self._kept = model, kept
        self._stateful = model.stateful or any(node.domain == CUSTOM_DOMAIN for node in model.graph.nodes)
        self._net: Any = None
        self.arena = arena or max(_LEAST_ARENA, 10 * model.path.stat().st_size)
        self._grows = not arena

    def restart(self) -> None:
        """Reset state that the model keeps between runs, as custom operators may do."""
        if self._stateful:
            self._net = None

    def load(self) -> None:
        """Load the model unless it is loaded.

        Raises:
            BackendError: TFLM refused the model, or the arena is too small.
        """
        while self._net is None:
            printed: list[str] = []
            try:
                with collected(printed):
                    self._net = self._loaded()
            except (RuntimeError, ValueError, MemoryError) as error:
                missing = [int(count) for count in _MISSING.findall(" ".join(printed))]
                if not missing:
                    raise self._refused(error, printed) from error
                if not self._grows or self.arena >= _MAX_ARENA:
                    raise self._too_small(max(missing)) from error
                self.arena = min(max(2 * self.arena, self.arena + max(missing)), _MAX_ARENA)

    def _loaded(self) -> Any:
        from tflite_micro import runtime

        config = runtime.InterpreterConfig
        return runtime.Interpreter.from_file(
            str(self._model.path),
            arena_size=self.arena,
            intrepreter_config=config.kPreserveAllTensors if self._kept else config.kAllocationRecording,
        )

    def _refused(self, error: Exception, printed: list[str]) -> BackendError:
        failed = _failed("TFLM refused the model", error, printed)
        if not any(line.startswith(_NO_KERNEL) for line in printed):
            return failed
        custom = ", ".join(sorted({node.op for node in self._model.graph.nodes if node.domain == CUSTOM_DOMAIN}))
        return BackendError(
            f"{failed.message} Custom operators of the model: {custom}." if custom else failed.message,
            hint="TFLM lacks this operator; record it with another runtime: --backend litert:kernels=reference.",
        )

    def _too_small(self, missing: int) -> BackendError:
        arena_hint = "Write --backend tflm without arena= to let it find a size, or give a larger one."
        return BackendError(
            f"An arena of {self.arena} bytes is too small for {self._model.name!r}: TFLM lacks at least {missing}.",
            hint="Try another runtime: --backend litert:kernels=reference." if self._grows else arena_hint,
        )

    def run(self, feed: Mapping[str, np.ndarray]) -> None:
        """Run once.

        Raises:
            BackendError: TFLM refused the model, or failed.
        """
        self.load()
        printed: list[str] = []
        try:
            with collected(printed):
                for number, name in enumerate(self._model.graph.inputs):
                    self._net.set_input(np.ascontiguousarray(feed[name]), number)
                self._net.invoke()
        except (RuntimeError, ValueError) as error:
            raise _failed("TFLM failed", error, printed) from error

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an input, which is fixed."""
        self.load()
        details = self._net.get_input_details(self._model.graph.inputs.index(name))
        return tuple(int(extent) for extent in details["shape"])

    def output(self, name: str) -> np.ndarray:
        """Return a copy of an output's elements."""
        return np.asarray(self._net.get_output(self._model.graph.outputs.index(name)))

    def tensor(self, name: str) -> np.ndarray:
        """Return a copy of a tensor's elements. Requires an arena in which tensors do not share memory.

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
        plain: Its loaded interpreter, configured as in production.
        facts: Facts of the run.
        weights: Whether constants are recorded.
    """

    def __init__(self, model: LiteRTModel, plain: _Interpreter, facts: RunFacts, *, weights: bool) -> None:
        self.facts = facts
        self.graph = model.run_graph
        self.inputs: tuple[TensorInfo, ...] = tuple(
            replace(model.graph.tensors[name], shape=plain.shape(name)) for name in model.graph.inputs
        )
        self.outputs: tuple[str, ...] = model.graph.outputs
        self._model, self._plain, self._weights = model, plain, weights

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
        net = _Interpreter(self._model, kept=True)
        everything = self.facts.taps != "outputs"
        node_outputs = [name for node in self.graph.nodes for name in node.outputs] if everything else []
        given = {*self.graph.inputs, *self._model.variables}
        tapped = [
            name
            for name in self._readable((*node_outputs, *self.outputs))
            if name not in given and not self.graph.is_constant(name)
        ]
        moments = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]
        for finished, (sample, step) in enumerate(moments, start=1):
            if step == 0:
                net.restart()
                net.load()
            feed = feeds.feed(sample, step)
            states = {name: net.tensor(name) for name in self._readable(self._model.variables) if everything}
            net.run(feed)
            recorder.at(sample, step)
            for name, array in {**states, **feed}.items():
                recorder.put(name, array)
            self._put(net, tapped, recorder)
            if on_progress is not None:
                on_progress(finished, len(moments), f"sample {sample}")
        if everything and self._weights:  # constants that an operator unpacks are tensors that a run writes
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
        self._plain = _Interpreter(self._model, kept=False)


def _failed(failure: str, error: Exception, printed: list[str]) -> BackendError:
    """Return an error with TFLM's exception and its printed messages in one sentence."""
    message = "; ".join((str(error).rstrip("."), *dict.fromkeys(printed)))
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
        chosen = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "TFLM runs model files, not recordings.",
                hint="Give the .tflite file, or replay the recording: --backend interpreter.",
            )
        source = reader.open(model)
        plain = _Interpreter(source, kept=False, arena=_arena(chosen["arena"]))
        plain.load()
        facts = RunFacts(
            backend=self.name,
            model=source.name,
            model_sha256=source.sha256,
            taps=taps,
            versions={"tflite-micro": version("tflite-micro")},
            cpu_flags=cpu_flags(),
            options={**chosen, "arena_bytes": plain.arena, **({"note": source.unrecorded} if source.inner else {})},
        )
        return TFLMRun(source, plain, facts, weights=weights)


def _arena(text: str) -> int:
    """Return the size of the arena in bytes; 0 if TFLM determines it."""
    if text == "auto":
        return 0
    if not text.isdecimal() or not _OWN_ARENA <= int(text) <= _MAX_ARENA:
        raise UsageError(
            f"Option 'arena' of backend 'tflm' is {text!r}; "
            f"expected auto or a number of bytes from {_OWN_ARENA} to {_MAX_ARENA}.",
            hint="Write --backend tflm to let it find a size.",
        )
    return int(text)


backend = TFLMBackend()
"""The backend that `qdebug.backends` loads as "tflm"."""
