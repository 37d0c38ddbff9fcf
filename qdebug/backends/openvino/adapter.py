"""The backend "openvino", which records OpenVINO with the graph that it actually runs.

OpenVINO fuses operations when it compiles a model. Faithful taps make the results of executed layers outputs of the
model. They are tapped all at once if that changes nothing, else in parts, until a budget of time and runs is spent. A
tensor whose values a tap would change, or that the budget does not cover, is left out and listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.onnx.tensor import unpack
from qdebug.backends.openvino.executed import ExecutedGraph, describe
from qdebug.backends.openvino.layers import Layer, layers_of
from qdebug.backends.openvino.model import DTYPES, OpenVINOModel, Port, convert_errors, port, reader
from qdebug.backends.protocol import (
    Feeds,
    OnProgress,
    OptionSpec,
    RunFacts,
    check_options,
    check_taps,
    shapes_text,
)
from qdebug.backends.tap_search import PlainLayer, TappedRun, TapSearch
from qdebug.errors import BackendError, UsageError
from qdebug.model import Graph, QuantParams, Recording, TensorInfo
from qdebug.model.dtypes import logical_dtype
from qdebug.plural import plural
from qdebug.recording.environment import cpu_flags

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["OpenVINOBackend", "OpenVINORun", "backend"]

_OPTIONS = (
    OptionSpec(
        name="precision",
        default="default",
        choices=("f32", "bf16", "f16", "default"),
        help="precision of floating-point layers; the default is OpenVINO's choice, bf16 on a processor with AMX",
    ),
    OptionSpec(
        name="mode",
        default="performance",
        choices=("performance", "accuracy"),
        help="execution mode hint; with accuracy, precision=default computes in the model's own precision",
    ),
    OptionSpec(
        name="hint",
        default="latency",
        choices=("latency", "throughput"),
        help="performance hint, which decides how many threads compute one run",
    ),
    OptionSpec(name="threads", default="0", help="threads of a run; 0 for OpenVINO's own choice"),
    OptionSpec(name="device", default="CPU", help="device, as OpenVINO names it"),
    OptionSpec(
        name="tap_seconds",
        default="40",
        help="processor time for finding taps that change nothing; other tensors are listed as not recorded",
    ),
    OptionSpec(name="tap_runs", default="64", help="maximum number of compiled models to try for this"),
)

_CPU_LIMITS = {
    level: (("ONEDNN_MAX_CPU_ISA", level),)
    for level in ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16")
}
"""Environment variables that limit the instruction sets of oneDNN, which has most of OpenVINO's kernels.

The oldest instruction set comes first.
"""

_MAX_CODE_ERROR = 1e-3
"""Tolerance in LSB for dequantized values, since OpenVINO dequantizes with a float32 multiplication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The user's settings.

    Args:
        device: The device.
        precision: One of the option's choices.
        mode: One of the option's choices.
        hint: One of the option's choices.
        threads: Number of threads; 0 leaves the choice to OpenVINO.
        tap_seconds: Processor time for the search for harmless taps.
        tap_runs: Maximum number of compiled models during the search.
    """

    device: str
    precision: str
    mode: str
    hint: str
    threads: int
    tap_seconds: int
    tap_runs: int

    @property
    def properties(self) -> dict[str, Any]:
        """Properties for compiling a model."""
        properties: dict[str, Any] = {"PERFORMANCE_HINT": self.hint.upper()}
        if self.mode != "performance":  # "performance" is the default
            properties["EXECUTION_MODE_HINT"] = self.mode.upper()
        if self.precision != "default":
            properties["INFERENCE_PRECISION_HINT"] = self.precision
        if self.threads:
            properties["INFERENCE_NUM_THREADS"] = self.threads
        return properties


class _CompiledModel:
    """A compiled model and one inference request.

    Args:
        source: The model.
        settings: The user's settings.
        taps: Tensors to add as outputs, with the operation results that hold them.
        short_types: The tapped tensors that are to be returned in a short float type, with that type. OpenVINO computes
            a layer whose result is returned in float32 in another way.
    """

    def __init__(
        self, source: OpenVINOModel, settings: _Settings, taps: Mapping[str, Port], short_types: Mapping[str, str]
    ) -> None:
        import openvino
        from openvino import opset13 as opset

        self._is_stateful = source.stateful
        self._input_types = [entry.get_element_type() for entry in source.model.inputs]
        self._inputs = source.inputs
        model, names = source.model, _output_names(source)
        if taps:
            model = source.model.clone()
            operations = {entry.get_friendly_name(): entry for entry in model.get_ordered_ops()}
            for tensor, (name, index) in taps.items():
                value = operations[name].output(index)
                if tensor in short_types:
                    value = opset.convert(value, short_types[tensor]).output(0)
                model.add_results([opset.result(value)])
        self._short_names = frozenset(short_types)
        self._names = [*names, *taps]
        with convert_errors("OpenVINO refused the model"):
            self.compiled = openvino.Core().compile_model(model, settings.device, settings.properties)
            self._request = self.compiled.create_infer_request()

    def restart(self) -> None:
        """Reset the state that the model keeps from one run to the next."""
        if self._is_stateful:
            self._request.reset_state()

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run once and return copies of the numeric outputs.

        Raises:
            BackendError: OpenVINO failed.
        """
        with convert_errors("OpenVINO failed"):
            for index, name in enumerate(self._inputs):
                self._request.set_input_tensor(index, _to_openvino_tensor(feed[name], self._input_types[index]))
            self._request.infer()
            outputs: dict[str, np.ndarray] = {}
            for index, name in enumerate(self._names):
                tensor = self._request.get_output_tensor(index)
                dtype = DTYPES.get(tensor.get_element_type().get_type_name())
                if dtype is not None and name not in outputs:
                    data = np.array(tensor.data).reshape(-1).view(np.uint8) if tensor.get_size() else b""
                    array = unpack(data, dtype, tuple(tensor.get_shape()))
                    outputs[name] = array.astype(np.float32) if name in self._short_names else array
        return outputs


class OpenVINORun:
    """A model, ready to run in OpenVINO and be recorded.

    Args:
        source: The model.
        settings: The user's settings.
        facts: Facts of the run.
        weights: Whether constants are recorded.

    Raises:
        BackendError: OpenVINO refused the model.
    """

    def __init__(self, source: OpenVINOModel, settings: _Settings, facts: RunFacts, *, weights: bool) -> None:
        self.source, self.settings, self._weights = source, settings, weights
        self._plain: _CompiledModel | None = self.compile({})
        self.layers: Sequence[Layer] = layers_of(self._plain.compiled, source)
        self.executed: ExecutedGraph | None = None
        if facts.taps == "faithful":
            half = self._used_precision() == "f16"
            self.executed = describe(source, self.layers, settings.device, is_half=half)
        self.graph: Graph = source.graph if self.executed is None else self.executed.graph
        values = [(source.names[port(value)], value) for value in source.model.inputs]
        self.inputs: tuple[TensorInfo, ...] = tuple(source.input_info(name, value) for name, value in values)
        self.outputs: tuple[str, ...] = tuple(source.outputs)
        self.facts = RunFacts(
            backend=facts.backend,
            model=facts.model,
            model_sha256=facts.model_sha256,
            taps=facts.taps,
            versions=facts.versions,
            cpu_flags=facts.cpu_flags,
            options={**facts.options, **self._applied_options()},
        )

    def _used_precision(self) -> str:
        return str(self._get_plain_model().compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())

    def _applied_options(self) -> dict[str, Any]:
        """Return the options as OpenVINO applied them."""
        compiled_model, used_precision = self._get_plain_model().compiled, self._used_precision()
        options: dict[str, Any] = {
            "effective_precision": used_precision,
            "asked_for": self.settings.device,
            "execution_devices": ", ".join(compiled_model.get_property("EXECUTION_DEVICES")),
        }
        notes = []
        if self.settings.precision not in ("default", used_precision):
            notes.append(f"precision {self.settings.precision} was requested, but {used_precision} is used")
        if self.source.bodies:
            notes.append(f"graphs that these operations run are not recorded: {', '.join(self.source.bodies)}")
        if self.executed is not None and self.executed.inserted:
            options["inserted"] = ", ".join(f"{kind} x{n}" for kind, n in sorted(self.executed.inserted.items()))
        return {**options, **({"note": "; ".join(notes)} if notes else {})}

    def compile(self, taps: Mapping[str, Port]) -> _CompiledModel:
        """Compile the model with additional outputs."""
        return _CompiledModel(self.source, self.settings, taps, self.short_types() if taps else {})

    def _get_plain_model(self) -> _CompiledModel:
        if self._plain is None:
            self._plain = self.compile({})
        return self._plain

    def plain_layers(self) -> list[PlainLayer]:
        """Return the layers of the plain run, with their inputs and tappable results."""
        layers = [layer for layer in self.layers if layer.operations]
        layer_numbers: dict[str, list[int]] = {}
        for number, layer in enumerate(layers):
            layer_numbers.setdefault(layer.operations[-1], []).append(number)
        ports = {**self.tap_ports(), **self.source.output_ports}
        results_of: dict[str, list[str]] = {}
        for tensor, (name, _) in ports.items():
            results_of.setdefault(name, []).append(tensor)
        layers_read = _layers_read(self.source, layer_numbers)
        result = []
        for number, (layer, compiled_layers) in enumerate(zip(layers, self.forms(self.layers), strict=True)):
            layers_before = frozenset(
                layer_number for name in layer.operations for layer_number in layers_read[name]
            ) - {number}
            results = tuple(results_of.get(layer.operations[-1], ()))
            result.append(PlainLayer(layers_read=layers_before, results=results, form=compiled_layers))
        return result

    def plain_operations(self) -> list[tuple[str, ...]]:
        """Return the operations of each layer of the plain run, in the order of `plain_layers`."""
        return [layer.operations for layer in self.layers if layer.operations]

    def forms(self, layers: Sequence[Layer]) -> list[tuple[Layer, ...]]:
        """Return, for each layer of the plain run in order, the compiled layers that do its work.

        If a compiled layer equals the plain run's layer, only that one is returned, provided that other layers only
        convert its result for an added output.
        """
        compiled_layers_of: dict[str, list[Layer]] = {}
        for layer in map(_computation_form, layers):
            for name in layer.operations:
                compiled_layers_of.setdefault(name, []).append(layer)
        result = []
        for plain_layer in map(_computation_form, self.layers):
            compiled_layers = tuple(
                dict.fromkeys(layer for name in plain_layer.operations for layer in compiled_layers_of.get(name, ()))
            )
            if plain_layer.operations:
                other_operations = {
                    name for layer in compiled_layers if layer != plain_layer for name in layer.operations
                }
                result.append(
                    (plain_layer,)
                    if plain_layer in compiled_layers and other_operations <= {plain_layer.operations[-1]}
                    else compiled_layers
                )
        return result

    def short_types(self) -> dict[str, str]:
        """Return the tapped tensors that the plain run passes on in a short float type, with that type."""
        result_types = {layer.operations[-1]: _result_types(layer) for layer in self.layers if layer.operations}
        return {
            tensor: result_types[name]
            for tensor, (name, _) in self.tap_ports().items()
            if result_types.get(name) in _SHORT_TYPES
        }

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if not self._weights:
            return
        for name in self.source.constants_of(self.graph):
            yield name, self.source.constant(name)
        if self.executed is not None:
            yield from self.executed.constants.items()

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the unmodified model as in production and return its outputs.

        Raises:
            BackendError: OpenVINO failed.
        """
        return self._get_plain_model().run(feed)

    def restart(self) -> None:
        """Reset the state that plain runs left in the model."""
        self._get_plain_model().restart()

    def tap_ports(self) -> dict[str, Port]:
        """Return the tensors to tap in addition to the outputs, in topological order."""
        if self.facts.taps == "outputs":
            return {}
        if self.executed is not None:
            ports: Mapping[str, Port] = self.executed.taps
        else:
            computed_names = {name for node in self.graph.nodes for name in node.outputs if name}
            ports = {name: value for value, name in self.source.names.items() if name in computed_names}
        return {name: value for name, value in ports.items() if name not in self.outputs and self._is_readable(name)}

    def _is_readable(self, name: str) -> bool:
        return name not in self.source.unreadable

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps and record every tapped tensor.

        Raises:
            BackendError: OpenVINO failed.
        """
        for name, reason in self.source.unreadable.items():
            if name in self.graph.tensors:
                recorder.skip(name, reason)
        for name, layer in ({} if self.executed is None else self.executed.fused).items():
            recorder.skip(name, f"{layer} computes it inside", because="fused")
        for name, reason in ({} if self.executed is None else self.executed.views).items():
            recorder.skip(name, reason, because="view")
        _TapRecording(self, feeds, recorder, on_progress).run()

    def close(self) -> None:
        """Free the compiled model. Safe to call twice."""
        self._plain = None


_SHORT_TYPES = ("bf16", "f16")
"""Types of results that OpenVINO computes in place of float32."""


def _result_types(layer: Layer) -> str:
    """Return the element types of a layer's results, each once. The layer lists the type of each reader."""
    return ",".join(sorted(set(layer.result.split(","))))


def _computation_form(layer: Layer) -> Layer:
    """Return a layer without the properties that do not affect its results.

    These are its name and repeated element types. A FakeQuantize computes equal codes in any element type.
    """
    result = _result_types(layer)
    if layer.kind == "FakeQuantize" and set(result.split(",")) <= {"f32", "u8", "i8"}:
        result = "codes"
    return replace(layer, name="", result=result)


def _layers_read(source: OpenVINOModel, layer_numbers_of: Mapping[str, Sequence[int]]) -> Mapping[str, frozenset[int]]:
    """Return the layers that each operation reads from, directly or through operations that do not end a layer.

    An operation inside a layer may also be computed by another layer, which then reads its inputs.

    Args:
        source: The model.
        layer_numbers_of: Indices of the layers that end with each operation.
    """
    writers_of_state = {
        operation.get_variable_id(): [name]
        for name, operation in source.operations.items()
        if operation.get_type_name() == "Assign"
    }
    read_by_name: dict[str, frozenset[int]] = {}
    for _ in range(2):  # twice, since a state is read upstream of the operation that writes it
        for name, operation in source.operations.items():
            input_names = [value.get_node().get_friendly_name() for value in operation.input_values()]
            if operation.get_type_name() == "ReadValue":
                input_names += writers_of_state.get(operation.get_variable_id(), [])
            layers_before = [
                layer_numbers_of.get(title) or read_by_name.get(title, frozenset()) for title in input_names
            ]
            read_by_name[name] = frozenset(number for layer_numbers in layers_before for number in layer_numbers)
    return read_by_name


class _TapRecording:
    """Records first the outputs, then the taps, in as few runs as possible without changing recorded values."""

    def __init__(self, run: OpenVINORun, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None) -> None:
        self._run, self._feeds, self._recorder, self._on_progress = run, feeds, recorder, on_progress
        self._places = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]
        self._taps = run.tap_ports()
        self._codes = {} if run.executed is None else run.executed.codes
        self._first_digests: dict[str, bytes] = {}
        """Hashes of the outputs at the first sample and step."""
        self._outputs: dict[str, bytes] = {}
        """Hashes of the outputs over all samples and steps."""
        self._recorded_taps: set[str] = set()
        self._runs_tried = 0
        self._failures: dict[str, str] = {}
        """Messages of OpenVINO by tensor, for tensors that it fails with if they alone are tapped."""

    def run(self) -> None:
        """Record everything."""
        if self._run.facts.taps == "all":
            self._record_all()
            return
        self._outputs = self._record_pass([], self._run.compile({}), record_outputs=True)
        if not self._taps:
            return
        search = TapSearch(
            self._run.plain_layers(), list(self._taps), self._outputs if self._is_deterministic() else {}
        )
        budget = _Budget(self._run.settings)
        self._search_taps(search, budget)
        runs = self._record_proven(search, budget)
        for name in search.refused_taps:
            failure = self._failures.get(name)
            reason = "a tap on it changes it or the outputs (see --taps all)" if failure is None else failure
            self._recorder.skip(name, reason, because="not_dumped")
        names_given_up = [
            name for name in self._taps if name not in self._recorded_taps and name not in search.refused_taps
        ]
        for name in names_given_up:
            self._recorder.skip(name, f"given up: {budget.spent_text}", because="not_dumped")
        given_up_text = f", {len(names_given_up)} given up: {budget.spent_text}" if names_given_up else ""
        self._recorder.remark(f"{plural(len(self._taps), 'tap')} in {plural(runs, 'run')}{given_up_text}")

    def _record_all(self) -> None:
        """Record all tensors of the model in one run, and mark those that the taps changed."""
        compiled_model, layers = self._run.compile(self._taps), self._run.plain_layers()
        forms = self._run.forms(layers_of(compiled_model.compiled, self._run.source))
        digests = self._record_pass(list(self._taps), compiled_model, hashed_taps=list(self._taps), record_outputs=True)
        self._outputs = self._record_pass([], self._run.compile({}))
        self._first_digests = {name: _digest(array) for name, array in self._run.plain(self._feeds.feed(0, 0)).items()}
        end_tensors = [name for layer in layers for name in layer.results if name in self._taps]
        search = TapSearch(layers, end_tensors, self._outputs)
        full_run = TappedRun(taps=tuple(self._taps), forms=forms, digests=digests)
        search.add_run(full_run)
        budget = _Budget(self._run.settings)
        self._search_taps(search, budget, record=False)
        is_right_by_operations = dict(zip(self._run.plain_operations(), search.trusted_layers(full_run), strict=True))
        changed_operations = {
            name for operations, is_right in is_right_by_operations.items() if not is_right for name in operations
        }
        reason = "tapping all tensors changes how OpenVINO computes it or its inputs"
        for tensor, (name, _) in {**self._taps, **self._run.source.output_ports}.items():
            if name in changed_operations:
                self._recorder.disturbed(tensor, reason)

    def _search_taps(self, search: TapSearch, budget: _Budget, *, record: bool = True) -> None:
        """Run the model with taps until all are settled or the budget is spent."""
        while (self._runs_tried == 0 or budget.has_run_left(self._runs_tried)) and (taps := search.choose_taps()):
            self._try_taps(taps, search, budget, record=record)

    def _is_deterministic(self) -> bool:
        """Return whether the plain model gives the same outputs again for the same inputs."""
        self._run.restart()
        outputs = self._run.plain(self._feeds.feed(0, 0))
        return all(_digest(outputs[name]) == digest for name, digest in self._first_digests.items())

    def _try_taps(self, taps: Sequence[str], search: TapSearch, budget: _Budget, *, record: bool) -> None:
        """Run the model with some taps, and record the values that are proven equal to the plain run's."""
        self._runs_tried += 1
        self._report_progress(search, budget)
        try:
            compiled_model = self._run.compile({name: self._taps[name] for name in taps})
            forms = self._run.forms(layers_of(compiled_model.compiled, self._run.source))
            compiled_model.restart()
            arrays = compiled_model.run(self._feeds.feed(0, 0))
        except BackendError as error:  # the plain model runs, so fewer taps may
            if len(taps) == 1:
                self._failures[taps[0]] = f"with a tap on it, {error.message.rstrip('.')}"
            return
        expected_names = set(search.names_expected_equal(TappedRun(taps=tuple(taps), forms=forms)))
        names_to_check = [name for name in self._first_digests if name in expected_names and search.proven_digests]
        if any(_digest(arrays[name]) != self._first_digests[name] for name in names_to_check):
            return
        digests = self._record_pass([], compiled_model, hashed_taps=taps)
        if any(digests[name] != self._outputs[name] for name in names_to_check):
            return
        search.add_run(TappedRun(taps=tuple(taps), forms=forms, digests=digests))
        names_to_record = (
            [name for name in taps if name in expected_names and name not in self._recorded_taps] if record else []
        )
        if names_to_record:
            self._record_pass(names_to_record, compiled_model, checked_outputs=names_to_check)
            self._recorded_taps.update(names_to_record)

    def _record_proven(self, search: TapSearch, budget: _Budget) -> int:
        """Record the taps that were proven only after their run. Return the total number of runs."""
        runs = self._runs_tried
        while unrecorded := [
            name for name in self._taps if name in search.proven_digests and name not in self._recorded_taps
        ]:
            best_run = search.best_run(unrecorded)
            if best_run is None or not budget.has_time_to_write():
                break
            run, names = best_run
            self._report_progress(search, budget)
            self._record_pass(names, self._run.compile({name: self._taps[name] for name in run.taps}))
            self._recorded_taps.update(names)
            runs += 1
        return runs

    def _record_pass(
        self,
        taps: Sequence[str],
        compiled_model: _CompiledModel,
        *,
        hashed_taps: Sequence[str] = (),
        checked_outputs: Sequence[str] = (),
        record_outputs: bool = False,
    ) -> dict[str, bytes]:
        """Run all samples and record some taps.

        Args:
            taps: The taps to record.
            compiled_model: The model.
            hashed_taps: Taps whose values are hashed.
            checked_outputs: Outputs to compare with the recorded ones.
            record_outputs: Whether inputs and outputs are recorded.

        Returns:
            Hash of the values of each output and each tap in `hashed_taps`, over all samples.
        """
        hashers: dict[str, Any] = {}
        for sample, step in self._places:
            if step == 0:
                compiled_model.restart()
            feed = self._feeds.feed(sample, step)
            arrays = compiled_model.run(feed)
            self._recorder.at(sample, step)
            output_arrays = {name: arrays[name] for name in self._run.outputs if name in arrays}
            varying_outputs = {
                name: array for name, array in output_arrays.items() if not self._run.graph.is_constant(name)
            }
            if record_outputs:
                self._first_digests = self._first_digests or {
                    name: _digest(array) for name, array in output_arrays.items()
                }
                for name, array in {**varying_outputs, **feed}.items():  # an output may be an input too
                    self._put_tensor(name, array)
            outputs_again = {
                name: self._to_stored_codes(name, varying_outputs[name])
                for name in checked_outputs
                if name in varying_outputs
            }
            if outputs_again:
                self._recorder.check(outputs_again, plain=False)
            for name in taps:
                self._put_tensor(name, arrays[name])
            for name in (*output_arrays, *hashed_taps):
                hashers.setdefault(name, blake2b(digest_size=16)).update(_digest(arrays[name]))
            if record_outputs and self._on_progress is not None:
                runs_done = sample * self._feeds.steps + step + 1
                self._on_progress(runs_done, len(self._places), f"sample {sample}")
        return {name: hasher.digest() for name, hasher in hashers.items()}

    def _put_tensor(self, name: str, array: np.ndarray) -> None:
        codes = self._to_stored_codes(name, array)
        if codes is None:
            self._recorder.skip(name, "its values do not match the codes that OpenVINO states")
        else:
            self._recorder.put(name, codes)

    def _to_stored_codes(self, name: str, array: np.ndarray) -> np.ndarray | None:
        """Return the codes of a tensor that OpenVINO returns as real values. Other tensors are returned unchanged."""
        quant = self._codes.get(name)
        return array if quant is None else _to_codes(array, quant)

    def _report_progress(self, search: TapSearch, budget: _Budget) -> None:
        """Report the progress of the search for harmless taps."""
        if self._on_progress is not None:
            settled_count, total = len(self._taps) - len(search.open_taps), len(self._taps)
            spent_text = (
                f"run {self._runs_tried} of at most {budget.runs}, {budget.seconds_spent:.0f} s of {budget.seconds} s"
            )
            self._on_progress(settled_count, total, f"taps that change nothing: {spent_text}")


class _Budget:
    """Limits on the processor time and the compiled models of the search for harmless taps."""

    def __init__(self, settings: _Settings) -> None:
        self.seconds, self.runs = settings.tap_seconds, settings.tap_runs
        self._started = process_time()

    @property
    def seconds_spent(self) -> float:
        """Processor time in seconds since the search began."""
        return process_time() - self._started

    @property
    def spent_text(self) -> str:
        """The budget that was used up, as a clause for a message."""
        return (
            f"{self.seconds} s of processor time or {plural(self.runs, 'run')} for taps are used up "
            "(openvino:tap_seconds=, tap_runs=)"
        )

    def has_run_left(self, runs_done: int) -> bool:
        """Return whether the budget covers another run."""
        return runs_done < self.runs and self.seconds_spent < self.seconds

    def has_time_to_write(self) -> bool:
        """Return whether there is time to record the proven taps, for which half of the budget is added."""
        return self.seconds_spent < 1.5 * self.seconds


def _digest(array: np.ndarray) -> bytes:
    return blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, digest_size=16).digest()


def _output_names(source: OpenVINOModel) -> list[str]:
    """Return the tensor name of each output of a model, in order."""
    return [source.name_of(result.input_value(0)) for result in source.model.get_results()]


def _to_openvino_tensor(array: np.ndarray, kind: Any) -> Any:
    """Return an OpenVINO tensor with the elements of an array."""
    import openvino

    tensor = openvino.Tensor(kind, array.shape)
    if array.size:
        tensor.data.reshape(-1).view(np.uint8)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return tensor


def _to_codes(array: np.ndarray, quant: QuantParams) -> np.ndarray | None:
    """Return the codes of real values; None if the values are not dequantized codes."""
    if not np.isfinite(array).all():
        return None
    steps = array.astype(np.float64) / float(quant.scale.reshape(-1)[0])
    codes = np.rint(steps)
    shifted_codes = codes + float(quant.zero_point.reshape(-1)[0])
    lowest, highest = quant.qmin or 0, quant.qmax or 0
    if array.size and (
        np.abs(steps - codes).max() > _MAX_CODE_ERROR or shifted_codes.min() < lowest or shifted_codes.max() > highest
    ):
        return None
    return shifted_codes.astype(logical_dtype(quant.dtype))


class OpenVINOBackend:
    """OpenVINO as a backend."""

    name = "openvino"
    models = (".onnx", ".tflite", ".xml")
    options = _OPTIONS
    cpu_limits = _CPU_LIMITS
    fixes_shapes = True

    def open(
        self,
        model: Path | Recording,
        *,
        options: Mapping[str, str],
        taps: str = "faithful",
        weights: bool = True,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> OpenVINORun:
        """Prepare a model for running.

        Args:
            model: An IR (.xml), ONNX or LiteRT file.
            options: Values of options by name; other options take their defaults.
            taps: One of `TAPS`.
            weights: Whether constants are recorded.
            shapes: Shapes for inputs with free dimensions, by input.

        Raises:
            UsageError: An option or its value is unknown, or OpenVINO cannot read this kind of file.
            InputError: A shape does not match the model.
            BackendError: OpenVINO refused the model.
        """
        chosen_options = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "OpenVINO runs model files, not recordings.",
                hint="Give the model file, or replay the recording: --backend interpreter.",
            )
        _check_device(chosen_options["device"])
        settings = _Settings(
            device=chosen_options["device"],
            precision=chosen_options["precision"],
            mode=chosen_options["mode"],
            hint=chosen_options["hint"],
            threads=_parse_whole_number("threads", chosen_options["threads"]),
            tap_seconds=_parse_whole_number("tap_seconds", chosen_options["tap_seconds"]),
            tap_runs=_parse_whole_number("tap_runs", chosen_options["tap_runs"]),
        )
        source = reader.open(model)
        shape_options = {"shapes": shapes_text(shapes)} if shapes else {}
        source = source.fixed(shapes) if shapes else source
        facts = RunFacts(
            backend=self.name,
            model=source.name,
            model_sha256=source.sha256,
            taps=taps,
            versions={"openvino": version("openvino")},
            cpu_flags=cpu_flags(),
            options={**chosen_options, **shape_options, "threads": settings.threads, "cpus": os.cpu_count() or 0},
        )
        return OpenVINORun(source, settings, facts, weights=weights)


def _check_device(name: str) -> None:
    import openvino

    devices = openvino.Core().available_devices
    if name not in (*devices, "AUTO"):
        raise UsageError(
            f"OpenVINO has no device {name!r} here; it has: {', '.join(devices)}.",
            hint="Choose one of these: --backend openvino:device=CPU.",
        )


def _parse_whole_number(option: str, text: str) -> int:
    if not text.isdecimal():
        default = next(spec.default for spec in _OPTIONS if spec.name == option)
        raise UsageError(
            f"Option {option!r} of backend 'openvino' is {text!r}; expected an integer.",
            hint=f"Write --backend openvino:{option}={default} for the default.",
        )
    return int(text)


backend = OpenVINOBackend()
"""The backend that `qdebug.backends` loads as "openvino"."""
