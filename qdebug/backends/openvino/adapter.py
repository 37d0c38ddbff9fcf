"""The backend "openvino": OpenVINO, recorded in the graph it really runs.

OpenVINO fuses operations when it compiles a model. Faithful taps make the results of executed layers outputs of the
model, all at once if that changes neither the outputs nor what is fused, else in parts. A tensor that cannot be looked
at without changing the outputs is left out and listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.onnx.tensor import unpack
from qdebug.backends.openvino.executed import Executed, Layer, describe, layers_of
from qdebug.backends.openvino.model import DTYPES, OpenVINOModel, Port, errors, port, reader
from qdebug.backends.protocol import (
    Feeds,
    OnProgress,
    OptionSpec,
    RunFacts,
    check_options,
    check_taps,
    halves,
    harmless_parts,
)
from qdebug.errors import UsageError
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
        help="what floating-point layers compute in; default is OpenVINO's choice, bf16 on a processor with AMX",
    ),
    OptionSpec(name="threads", default="0", help="threads of a run; 0 for OpenVINO's own choice"),
    OptionSpec(name="device", default="CPU", help="device, as OpenVINO names it"),
)

_GRID = 1e-3
"""Steps that real values which OpenVINO makes of codes may be off the codes: it multiplies in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What the user chose.

    Args:
        device: The device.
        precision: One of the choices of the option.
        threads: Threads; 0 for OpenVINO's own choice.
    """

    device: str
    precision: str
    threads: int

    @property
    def properties(self) -> dict[str, Any]:
        """Properties to compile a model with."""
        chosen: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        if self.precision != "default":
            chosen["INFERENCE_PRECISION_HINT"] = self.precision
        if self.threads:
            chosen["INFERENCE_NUM_THREADS"] = self.threads
        return chosen


class _Compiled:
    """A compiled model with one request.

    Args:
        source: The model.
        settings: What the user chose.
        taps: Tensors that are outputs as well, with the results they are.
    """

    def __init__(self, source: OpenVINOModel, settings: _Settings, taps: Mapping[str, Port]) -> None:
        import openvino

        self._stateful = source.stateful
        self._types = [each.get_element_type() for each in source.model.inputs]
        self._inputs = source.inputs
        model, names = source.model, _final_names(source)
        if taps:
            model = source.model.clone()
            operations = {each.get_friendly_name(): each for each in model.get_ordered_ops()}
            model.add_outputs([operations[name].output(index) for name, index in taps.values()])
        self._names = [*names, *taps]
        with errors("OpenVINO refused the model"):
            self.compiled = openvino.Core().compile_model(model, settings.device, settings.properties)
            self._request = self.compiled.create_infer_request()

    def restart(self) -> None:
        """Forget state that the model keeps from one run to the next."""
        if self._stateful:
            self._request.reset_state()

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run once and return copies of the outputs that hold numbers.

        Raises:
            BackendError: OpenVINO failed.
        """
        with errors("OpenVINO failed"):
            for index, name in enumerate(self._inputs):
                self._request.set_input_tensor(index, _tensor(feed[name], self._types[index]))
            self._request.infer()
            found: dict[str, np.ndarray] = {}
            for index, name in enumerate(self._names):
                tensor = self._request.get_output_tensor(index)
                dtype = DTYPES.get(tensor.get_element_type().get_type_name())
                if dtype is not None and name not in found:
                    data = np.array(tensor.data).reshape(-1).view(np.uint8) if tensor.get_size() else b""
                    found[name] = unpack(data, dtype, tuple(tensor.get_shape()))
        return found


class OpenVINORun:
    """A model made ready to run in OpenVINO and be recorded.

    Args:
        source: The model.
        settings: What the user chose.
        facts: What is known of the run.
        weights: Whether constants are recorded.

    Raises:
        BackendError: OpenVINO refused the model.
    """

    def __init__(self, source: OpenVINOModel, settings: _Settings, facts: RunFacts, *, weights: bool) -> None:
        self._source, self._settings, self._weights = source, settings, weights
        self._plain: _Compiled | None = self.compile({})
        self.layers: Sequence[Layer] = layers_of(self._plain.compiled, source)
        self.executed: Executed | None = None
        if facts.taps == "faithful":
            self.executed = describe(source, self.layers, settings.device)
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
            options={**facts.options, **self._effective()},
        )

    def _effective(self) -> dict[str, Any]:
        """Return what OpenVINO made of the options."""
        compiled = self._ready().compiled
        used_precision = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        found: dict[str, Any] = {
            "effective_precision": used_precision,
            "asked_for": self._settings.device,
            "execution_devices": ", ".join(compiled.get_property("EXECUTION_DEVICES")),
        }
        notes = []
        if self._settings.precision not in ("default", used_precision):
            notes.append(f"precision {self._settings.precision} was asked for and {used_precision} is used")
        if self._source.bodies:
            notes.append(f"graphs that these operations run are not recorded: {', '.join(self._source.bodies)}")
        if self.executed is not None and self.executed.inserted:
            found["inserted"] = ", ".join(f"{kind} x{n}" for kind, n in sorted(self.executed.inserted.items()))
        return {**found, **({"note": "; ".join(notes)} if notes else {})}

    def compile(self, taps: Mapping[str, Port]) -> _Compiled:
        """Compile the model with further outputs."""
        return _Compiled(self._source, self._settings, taps)

    def _ready(self) -> _Compiled:
        if self._plain is None:
            self._plain = self.compile({})
        return self._plain

    def lost(self, tapped: _Compiled) -> list[Layer]:
        """Return the layers that a model with taps does not have so, or computes in another precision."""
        there = {(layer.operations, layer.precision) for layer in layers_of(tapped.compiled, self._source)}
        return [each for each in self.layers if each.operations and (each.operations, each.precision) not in there]

    def ends_of(self, layers: Sequence[Layer]) -> dict[str, Port]:
        """Return the tensors that layers make."""
        last = [self._source.operations[layer.operations[-1]] for layer in layers]
        return {self._source.named(each.output(0)): port(each.output(0)) for each in last}

    def read_by(self, layers: Sequence[Layer]) -> set[str]:
        """Return the tensors that operations of layers read."""
        operations = [self._source.operations[name] for layer in layers for name in layer.operations]
        return {self._source.named(value) for each in operations for value in each.input_values()}

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if not self._weights:
            return
        for name in self._source.constants_of(self.graph):
            yield name, self._source.constant(name)
        if self.executed is not None:
            yield from self.executed.constants.items()

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the untouched model as production would and give its outputs.

        Raises:
            BackendError: OpenVINO failed.
        """
        return self._ready().run(feed)

    def restart(self) -> None:
        """Forget the state that plain runs left in the model."""
        self._ready().restart()

    def taps(self) -> dict[str, Port]:
        """Return the tensors to tap beside the outputs, in topological order."""
        if self.facts.taps == "outputs":
            return {}
        if self.executed is not None:
            found: Mapping[str, Port] = self.executed.taps
        else:
            made = {name for node in self.graph.nodes for name in node.outputs if name}
            found = {name: value for value, name in self._source.names.items() if name in made}
        return {name: value for name, value in found.items() if name not in self.outputs and self._is_readable(name)}

    def _is_readable(self, name: str) -> bool:
        return name not in self._source.unreadable

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps and put every tapped tensor into the recorder.

        Raises:
            BackendError: OpenVINO failed.
        """
        for name, reason in self._source.unreadable.items():
            if name in self.graph.tensors:
                recorder.skip(name, reason)
        for name, layer in ({} if self.executed is None else self.executed.fused).items():
            recorder.skip(name, f"{layer} computes it inside", because="fused")
        _Work(self, feeds, recorder, on_progress).run()

    def close(self) -> None:
        """Free the compiled model; safe to call twice."""
        self._plain = None


class _Work:
    """One recording: the outputs first, then taps, in as few runs as leave the outputs as they are."""

    def __init__(self, run: OpenVINORun, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None) -> None:
        self._run, self._feeds, self._recorder, self._on_progress = run, feeds, recorder, on_progress
        self._moments = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]
        self._taps = run.taps()
        self._codes = {} if run.executed is None else run.executed.codes
        self._finals: list[str] = []
        self._seen: dict[str, bytes] = {}
        """Values of the outputs, and of taps in runs that fused all that the plain one fuses, by their hashes."""
        self._suspects: set[str] = set()
        self._done = 0

    def run(self) -> None:
        """Record everything."""
        at_once = self._taps if self._run.facts.taps == "all" else {}
        self._pass(list(at_once), self._run.compile(at_once), outputs=True)
        if at_once or not self._taps:
            return
        runs = 0
        for taps, tapped in harmless_parts(list(self._taps), self._attempt, self._refuse, self._split):
            self._pass(taps, tapped)
            runs += 1
        self._recorder.remark(f"{len(self._taps)} taps in {plural(runs, 'run')} a sample")

    def _attempt(self, taps: Sequence[str]) -> _Compiled | None:
        """Return a model that taps some tensors at once; None if its outputs are not those of the plain one.

        A tap may keep operations from being fused. What such a layer makes must then be what it made in a run that
        fused it; where no other run has shown that, the taps are tried in smaller parts.
        """
        wanted = {name: self._taps[name] for name in taps}
        tapped = self._run.compile(wanted)
        lost = self._run.lost(tapped)
        self._suspects = self._run.read_by(lost)
        ends = {name: value for name, value in self._run.ends_of(lost).items() if name not in self._run.outputs}
        known = [name for name in ends if name in self._seen]
        if len(known) < len(ends) and len(taps) > 1:
            return None
        if known:
            tapped = self._run.compile({**ends, **wanted})
        found = tapped.run(self._feeds.feed(0, 0))
        if any(_digest(found[name]) != self._seen[name] for name in (*self._finals, *known)):
            return None
        if not lost:
            self._seen.update({name: _digest(found[name]) for name in taps})
        return tapped

    def _split(self, taps: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Set the taps apart that kept operations from being fused."""
        suspects = [name for name in taps if name in self._suspects]
        others = [name for name in taps if name not in self._suspects]
        return (others, suspects) if suspects and others else halves(taps)

    def _refuse(self, name: str) -> None:
        """List a tensor that cannot be tapped without changing the outputs."""
        self._recorder.skip(name, "the outputs change if it is looked at (see --taps all)")

    def _pass(self, taps: Sequence[str], tapped: _Compiled, *, outputs: bool = False) -> None:
        """Run all samples with some taps. The first time the outputs are recorded, later they are compared with it."""
        for sample, step in self._moments:
            if step == 0:
                tapped.restart()
            feed = self._feeds.feed(sample, step)
            found = tapped.run(feed)
            self._recorder.at(sample, step)
            finals = {name: found[name] for name in self._run.outputs if name in found}
            varying = {name: array for name, array in finals.items() if not self._run.graph.is_constant(name)}
            if outputs:
                if not self._finals:
                    self._finals = list(finals)
                    self._seen = {name: _digest(array) for name, array in finals.items()}
                for name, array in {**varying, **feed}.items():  # an output may be an input
                    self._put(name, array)
            elif varying:
                again = {name: self._stored(name, array) for name, array in varying.items()}
                self._recorder.check(again, plain=False)
            for name in taps:
                self._put(name, found[name])
            self._tell(len(taps) + 1, f"sample {sample}")

    def _put(self, name: str, array: np.ndarray) -> None:
        stored = self._stored(name, array)
        if stored is None:
            self._recorder.skip(name, "its values are not those of the codes that OpenVINO states")
        else:
            self._recorder.put(name, stored)

    def _stored(self, name: str, array: np.ndarray) -> np.ndarray | None:
        """Return the codes of a tensor that OpenVINO hands out as real values; any other as it is."""
        quant = self._codes.get(name)
        return array if quant is None else _as_codes(array, quant)

    def _tell(self, tensors: int, label: str) -> None:
        self._done += tensors
        if self._on_progress is not None:
            total = max(self._done, (len(self._taps) + 2) * len(self._moments))
            self._on_progress(self._done, total, label)


def _digest(array: np.ndarray) -> bytes:
    return blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, digest_size=16).digest()


def _final_names(source: OpenVINOModel) -> list[str]:
    """Return the tensor of each output of a model, in its order."""
    return [source.named(result.input_value(0)) for result in source.model.get_results()]


def _tensor(array: np.ndarray, kind: Any) -> Any:
    """Return a tensor of OpenVINO with the elements of an array."""
    import openvino

    tensor = openvino.Tensor(kind, array.shape)
    if array.size:
        tensor.data.reshape(-1).view(np.uint8)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return tensor


def _as_codes(array: np.ndarray, quant: QuantParams) -> np.ndarray | None:
    """Return the codes that real values stand for; None if they stand for none."""
    if not np.isfinite(array).all():
        return None
    steps = array.astype(np.float64) / float(quant.scale.reshape(-1)[0])
    codes = np.rint(steps)
    moved = codes + float(quant.zero_point.reshape(-1)[0])
    low, high = quant.qmin or 0, quant.qmax or 0
    if array.size and (np.abs(steps - codes).max() > _GRID or moved.min() < low or moved.max() > high):
        return None
    return moved.astype(logical_dtype(quant.dtype))


class OpenVINOBackend:
    """OpenVINO as a backend."""

    name = "openvino"
    models = (".onnx", ".tflite", ".xml")
    options = _OPTIONS

    def open(
        self, model: Path | Recording, *, options: Mapping[str, str], taps: str = "faithful", weights: bool = True
    ) -> OpenVINORun:
        """Make a model ready to run.

        Args:
            model: An IR (.xml), ONNX or LiteRT file.
            options: Values of options by name; the others take their defaults.
            taps: One of `TAPS`.
            weights: Whether constants are recorded.

        Raises:
            UsageError: Unknown option or value, or a kind of file that OpenVINO does not read.
            BackendError: OpenVINO refused the model.
        """
        chosen = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "OpenVINO runs model files, not recordings.",
                hint="Give the model file, or replay the recording: --backend interpreter.",
            )
        _check_device(chosen["device"])
        settings = _Settings(
            device=chosen["device"], precision=chosen["precision"], threads=_threads(chosen["threads"])
        )
        source = reader.open(model)
        facts = RunFacts(
            backend=self.name,
            model=source.name,
            model_sha256=source.sha256,
            taps=taps,
            versions={"openvino": version("openvino")},
            cpu_flags=cpu_flags(),
            options={**chosen, "threads": settings.threads, "cpus": os.cpu_count() or 0},
        )
        return OpenVINORun(source, settings, facts, weights=weights)


def _check_device(name: str) -> None:
    import openvino

    available = openvino.Core().available_devices
    if name not in (*available, "AUTO"):
        raise UsageError(
            f"OpenVINO has no device {name!r} here; it has: {', '.join(available)}.",
            hint="Choose one of these: --backend openvino:device=CPU.",
        )


def _threads(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(
            f"Option 'threads' of backend 'openvino' is {text!r}; expected a whole number.",
            hint="Write --backend openvino:threads=1 for one thread, 0 for OpenVINO's own choice.",
        )
    return int(text)


backend = OpenVINOBackend()
"""What `qdebug.backends` loads under the name "openvino"."""
