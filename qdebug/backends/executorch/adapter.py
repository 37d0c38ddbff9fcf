"""The backend "executorch", ExecuTorch with the delegate XNNPACK or with its portable kernels.

A program file (.pte) runs unchanged, and its ETDump contains the results of each instruction. A call to a delegate is a
single instruction. An exported program (.pt2) is lowered twice: once unchanged, and once with its tensors as additional
outputs, which exposes the tensors inside a delegate. The outputs of both are compared bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.executorch.exported import LoweredProgram, lower
from qdebug.backends.executorch.ops import LoadedProgram, convert_errors
from qdebug.backends.executorch.pte import Pte, read_trace
from qdebug.backends.protocol import (
    Feeds,
    OnProgress,
    OptionSpec,
    RunFacts,
    check_options,
    check_taps,
)
from qdebug.backends.torch.delegated import DelegatedGraph
from qdebug.backends.torch.exported import load_program, without_logging, without_mutation
from qdebug.backends.torch.ops import array_of
from qdebug.errors import BackendError, UsageError
from qdebug.model import Fidelity, Recording, TensorInfo
from qdebug.recording.environment import cpu_flags, recorded_facts
from qdebug.regular_file import open_binary

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["DELEGATES", "ExecuTorchBackend", "ExportedRun", "PteRun", "backend", "record"]

DELEGATES = ("xnnpack", "portable")
"""Delegates of exported programs."""

_OPTIONS = (
    OptionSpec(
        name="delegate",
        default="xnnpack",
        choices=DELEGATES,
        help="delegate for an exported program (.pt2); portable kernels run the rest",
    ),
    OptionSpec(name="method", default="forward", help="method of a program file (.pte)"),
)


class PteRun:
    """A program file, ready to run and be recorded.

    Args:
        model: The program.
        facts: Facts of the run.
        method: The method to run.
        weights: Whether constants are recorded.
    """

    def __init__(self, model: Pte, facts: RunFacts, *, method: str, weights: bool) -> None:
        self.facts, self.graph = facts, model.graph
        self.inputs: tuple[TensorInfo, ...] = tuple(model.graph.tensors[name] for name in model.graph.inputs)
        self.outputs: tuple[str, ...] = model.graph.outputs
        self._model, self._method, self._weights = model, method, weights
        self._loaded: LoadedProgram | None = None

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            yield from ((name, self._model.constant(name)) for name in self._model.constants)

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the program once without tracing and return its outputs.

        Raises:
            BackendError: ExecuTorch failed.
        """
        if self._loaded is None:
            self._loaded = LoadedProgram(self._model.content, self._method)
        return self._name_outputs(self._loaded.run([feed[name] for name in self.graph.inputs]))

    def restart(self) -> None:
        """Reset the state that plain runs left in the program."""
        self._loaded = None

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps and record the tensors in their ETDump.

        Raises:
            BackendError: ExecuTorch failed, or its runtime lacks a tracer.
        """
        has_trace = self.facts.taps != "outputs"
        for name, reason in self._model.skipped.items() if has_trace else ():
            recorder.skip(name, reason)
        trace_bytes = feeds.steps * (self._model.traced_bytes + 4096) if has_trace else 0
        for sample in range(feeds.samples):
            program = LoadedProgram(self._model.content, self._method, trace_bytes=trace_bytes)
            feeds_of_steps = [feeds.feed(sample, step) for step in range(feeds.steps)]
            outputs_of_steps = [
                self._name_outputs(program.run([feed[name] for name in self.graph.inputs])) for feed in feeds_of_steps
            ]
            events, buffer = read_trace(program) if has_trace else ([], b"")
            for step, (feed, outputs) in enumerate(zip(feeds_of_steps, outputs_of_steps, strict=True)):
                inner_arrays = dict(self._model.tensors(events[step], buffer)) if step < len(events) else {}
                recorder.at(sample, step)
                for name, array in {**inner_arrays, **outputs, **feed}.items():
                    recorder.put(name, array)
                for name in self._untraced_tensors(inner_arrays) if has_trace else ():
                    recorder.skip(name, "ExecuTorch's trace has no values for it")
            if on_progress is not None:
                on_progress(sample + 1, feeds.samples, f"sample {sample}")

    def _untraced_tensors(self, arrays: Mapping[str, Any]) -> list[str]:
        outputs = (name for node in self.graph.nodes for name in node.outputs if name)
        return [name for name in outputs if name not in arrays and name not in self.outputs]

    def _name_outputs(self, arrays: Sequence[np.ndarray | None]) -> dict[str, np.ndarray]:
        pairs = zip(self._model.output_names, arrays, strict=False)
        return {name: array for name, array in pairs if name and array is not None and not self.graph.is_constant(name)}

    def close(self) -> None:
        """Free the program. Safe to call twice."""
        self._loaded = None


class ExportedRun:
    """An exported program, ready to run and be recorded.

    Args:
        program: The program, a `torch.export.ExportedProgram`.
        delegate: One of `DELEGATES`.
        facts: Facts of the program before it is lowered.
        weights: Whether constants are recorded.

    Raises:
        BackendError: ExecuTorch cannot lower the program.
    """

    def __init__(self, program: Any, delegate: str, facts: RunFacts, *, weights: bool) -> None:
        with convert_errors(
            "ExecuTorch cannot lower the program", "Export it without operators that change tensors in place."
        ):
            program = without_mutation(program)
        self._plain_program = lower(program, delegate)
        with convert_errors(
            "The program's graph cannot be read", "Export the program with the installed version of torch."
        ):
            taps_everything = delegate == "portable" or facts.taps == "all"
            self._exported = DelegatedGraph(program, self._plain_program.placement, taps_everything=taps_everything)
        self.facts = facts
        self.graph = self._exported.graph
        self.inputs: tuple[TensorInfo, ...] = tuple(self._exported.inputs)
        self.outputs: tuple[str, ...] = self.graph.outputs
        self._weights = weights
        self._tapped_program = self._plain_program
        if facts.taps != "outputs" and self._exported.taps:
            self._tapped_program = _lower_with_taps(program, delegate, self._exported)
        self._loaded: LoadedProgram | None = None

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            yield from self._exported.constants.items()

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the untapped program once and return its outputs.

        Raises:
            BackendError: ExecuTorch failed.
        """
        if self._loaded is None:
            self._loaded = LoadedProgram(self._plain_program.content, "forward")
        return self._name_outputs(self._loaded.run([feed[name] for name in self.graph.inputs]), ())

    def restart(self) -> None:
        """Reset the state that plain runs left in the program."""
        if self._exported.states:
            self._loaded = None

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps of the tapped program and record its tensors.

        Raises:
            BackendError: ExecuTorch failed.
        """
        has_taps = self.facts.taps != "outputs"
        for name, reason in self._exported.skipped.items() if has_taps else ():
            recorder.skip(name, reason)
        taps = tuple(self._exported.taps[name] for name in self._tapped_program.taps)
        state_outputs = self._exported.states
        initial_states = {name: array_of(self._exported.value(name)) for name in state_outputs}
        tapped_program = None
        for sample in range(feeds.samples):
            states = initial_states if has_taps else {}
            if tapped_program is None or state_outputs:
                tapped_program = LoadedProgram(self._tapped_program.content, "forward")
            for step in range(feeds.steps):
                feed = feeds.feed(sample, step)
                arrays = self._name_outputs(tapped_program.run([feed[name] for name in self.graph.inputs]), taps)
                recorder.at(sample, step)
                for name, array in {**states, **arrays, **feed}.items():
                    recorder.put(name, array)
                states = {name: arrays[new_name] for name, new_name in state_outputs.items() if new_name in arrays}
                if on_progress is not None:
                    on_progress(sample * feeds.steps + step + 1, feeds.samples * feeds.steps, f"sample {sample}")

    def _name_outputs(self, arrays: Sequence[np.ndarray | None], taps: Sequence[str]) -> dict[str, np.ndarray]:
        names = (*self._exported.output_names, *taps)
        if len(arrays) != len(names):
            raise BackendError(
                f"The lowered program has {len(arrays)} outputs, but {len(names)} were expected.",
                hint="Use --taps outputs to record only inputs and outputs.",
            )
        pairs = zip(names, arrays, strict=True)
        return {name: array for name, array in pairs if name and array is not None and not self.graph.is_constant(name)}

    def close(self) -> None:
        """Free the program. Safe to call twice."""
        self._loaded = None


def _lower_with_taps(program: Any, delegate: str, exported: DelegatedGraph) -> LoweredProgram:
    """Lower a program with all taps that the delegate accepts."""
    try:
        return lower(program, delegate, tuple(exported.taps))
    except BackendError:
        if not exported.drop_dequantized_taps():
            raise
    return lower(program, delegate, tuple(exported.taps))


class ExecuTorchBackend:
    """ExecuTorch as a backend."""

    name = "executorch"
    models = (".pte", ".pt2")
    options = _OPTIONS

    def open(
        self, model: Path | Recording, *, options: Mapping[str, str], taps: str = "faithful", weights: bool = True
    ) -> PteRun | ExportedRun:
        """Prepare a program for running in ExecuTorch.

        Args:
            model: A .pte file, or a .pt2 file that `torch.export.save` wrote.
            options: Values of options by name; other options take their defaults.
            taps: One of `TAPS`.
            weights: Whether constants are recorded.

        Raises:
            UsageError: An option or its value is unknown, or the file does not exist.
            BackendError: ExecuTorch refused the program.
        """
        chosen_options = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "ExecuTorch runs program files, not recordings.",
                hint="Give the .pte or .pt2 file, or replay the recording: --backend interpreter.",
            )
        with open_binary(model) as file:
            content = file.read()
        digest = sha256(content).hexdigest()
        if content[:4] == b"PK\x03\x04":
            facts = _run_facts(model.name, digest, taps, {"delegate": chosen_options["delegate"]})
            return ExportedRun(_load_exported_program(model), chosen_options["delegate"], facts, weights=weights)
        program = Pte(content, model.name, chosen_options["method"])
        delegates_text = "; ".join(f"{count} {name}" for name, count in program.delegates.items()) or "none"
        note = (
            {"note": "the trace does not show what runs inside a delegate; record the .pt2 file"}
            if delegates_text != "none"
            else {}
        )
        facts = _run_facts(
            model.name, digest, taps, {"method": chosen_options["method"], "delegates": delegates_text, **note}
        )
        return PteRun(program, facts, method=chosen_options["method"], weights=weights)


def _run_facts(model: str, digest: str, taps: str, options: Mapping[str, Any]) -> RunFacts:
    return RunFacts(
        backend="executorch",
        model=model,
        model_sha256=digest,
        taps=taps,
        versions={name: version(name) for name in ("executorch", "torch")},
        cpu_flags=cpu_flags(),
        options=options,
    )


def _load_exported_program(path: Path) -> Any:
    """Load an exported program.

    Raises:
        BackendError: ExecuTorch cannot be loaded.
        UsageError: The file is not an exported program.
    """
    with convert_errors("ExecuTorch cannot be loaded", "Install it again: pip install executorch."), without_logging():
        import executorch.exir
        import executorch.kernels.quantized  # noqa: F401  registers quantized_decomposed

    return load_program(path)


@dataclass(frozen=True, slots=True)
class _SampleFeeds:
    """Inputs of a run, one mapping per sample."""

    feeds: Sequence[Mapping[str, np.ndarray]]
    steps: int = 1

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.feeds)

    def feed(self, sample: int, step: int = 0) -> dict[str, np.ndarray]:  # noqa: ARG002  there is one step
        """Return one array per model input."""
        return dict(self.feeds[sample])


def record(
    program: Any,
    args: tuple[Any, ...] | Sequence[tuple[Any, ...]],
    out: str | Path,
    *,
    partitioner: str = "xnnpack",
    quantizer: Any = None,
    taps: str = "faithful",
    force: bool = False,
) -> Fidelity:
    """Lower a PyTorch model to ExecuTorch, run and record it. Return whether recording changed the outputs.

    Args:
        program: A module or an exported program.
        args: The tensors it is called with, or a list of such tuples, one per sample.
        out: The recording to write.
        partitioner: One of `DELEGATES`.
        quantizer: A torchao or ExecuTorch quantizer. The program is quantized with it, calibrated on all samples.
        taps: One of `TAPS`.
        force: Whether `out` may be replaced.

    Raises:
        UsageError: The partitioner does not exist.
        BackendError: PyTorch or ExecuTorch refused the program, or failed.
        RecordingError: `out` cannot be written.
    """
    import torch

    from qdebug.recording.recorder import Recorder

    chosen_options = check_options("executorch", _OPTIONS, {"delegate": partitioner})
    argument_tuples = [
        tuple(map(_with_regular_strides, argument_tuple))
        for argument_tuple in ([args] if isinstance(args, tuple) else args)
    ]
    with convert_errors(
        "PyTorch cannot export the model", "Check that torch.export.export(model, args) works by itself."
    ):
        if isinstance(program, torch.nn.Module):
            program = torch.export.export(program, argument_tuples[0], strict=True)
        if quantizer is not None:
            program = _quantize(program, argument_tuples, quantizer)
    facts = _run_facts(type(program).__name__, "", taps, {"delegate": chosen_options["delegate"]})
    with closing(ExportedRun(program, chosen_options["delegate"], facts, weights=True)) as run:
        feeds = _SampleFeeds(
            [
                dict(zip(run.graph.inputs, map(array_of, argument_tuple), strict=True))
                for argument_tuple in argument_tuples
            ]
        )
        recorder = Recorder(out, graph=run.graph, force=force, **recorded_facts(run.facts))
        try:
            for name, array in run.constants():
                recorder.constant(name, array)
            run.record(feeds, recorder)
            for sample in range(feeds.samples):
                run.restart()
                recorder.at(sample)
                recorder.check(run.plain(feeds.feed(sample)))
            recorder.close()
        except BaseException:
            recorder.discard()
            raise
        return recorder.fidelity


def _with_regular_strides(tensor: Any) -> Any:
    """Return a tensor without strides of 0, which numpy gives dimensions of one element and ExecuTorch rejects."""
    import torch

    return tensor.clone(memory_format=torch.contiguous_format) if 0 in tensor.stride() else tensor


def _quantize(program: Any, argument_tuples: Sequence[tuple[Any, ...]], quantizer: Any) -> Any:
    """Return an exported program quantized by PT2E, calibrated on the samples."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared_module = prepare_pt2e(copy.deepcopy(program).module(), quantizer)
    for argument_tuple in argument_tuples:
        prepared_module(*argument_tuple)
    return torch.export.export(convert_pt2e(prepared_module), argument_tuples[0], strict=True)


backend = ExecuTorchBackend()
"""The backend that `qdebug.backends` loads as "executorch"."""
