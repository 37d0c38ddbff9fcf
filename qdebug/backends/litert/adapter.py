"""The backend "litert": LiteRT (TensorFlow Lite) with XNNPACK's kernels, its own kernels or its reference kernels.

XNNPACK runs a part of the graph as one fused plan without intermediate tensors. Faithful taps make a quarter of the
tensors at a time outputs of the model, but never two neighbours, and compare the outputs with a plain run each time. A
tensor that cannot be tapped without changing the outputs is left out and listed. Without XNNPACK, each operator runs
separately, and a single run preserves all tensors.

LiteRT allocates tensors in an arena whose memory is reused. Three runs show whether fusion or memory reuse changes the
outputs: a plain run, a run without fusion, and a run without memory reuse.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.litert.model import LiteRTModel, reader
from qdebug.backends.protocol import (
    Feeds,
    OnProgress,
    OptionSpec,
    RunFacts,
    check_options,
    check_taps,
    split_into_harmless_taps,
)
from qdebug.errors import BackendError, UsageError
from qdebug.model import Fidelity, Graph, Recording, TensorInfo
from qdebug.plural import plural
from qdebug.recording.environment import cpu_flags
from qdebug.recording.fidelity import FidelityCheck

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["KERNELS", "LiteRTBackend", "LiteRTRun", "backend"]

KERNELS: Mapping[str, str] = {
    "xnnpack": "BUILTIN",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}
"""LiteRT's resolver names for each set of kernels."""

_OPTIONS = (
    OptionSpec(
        name="kernels",
        default="xnnpack",
        choices=tuple(KERNELS),
        help="kernels to run; xnnpack is the default in production, with builtin kernels where XNNPACK has none",
    ),
    OptionSpec(name="threads", default="1", help="threads inside an operator"),
)

_NO_FUSION = "experimental_disable_delegate_node_fusion"
_COMPARED_SAMPLES = 4
"""Number of samples for which all run variants are compared.

The effects of fusion and memory reuse hardly depend on the values.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The user's interpreter settings.

    Args:
        kernels: One of `KERNELS`.
        threads: Threads within an operator.
    """

    kernels: str
    threads: int


_FILL_PATTERNS = (0xA5, 0x5A)
"""Bytes with which memory is filled before two runs. Memory that keeps both of them is not written by a run."""

_FILLABLE_DTYPES = (np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int16))

_TAP_GROUPS = 4
"""Number of groups into which tensors are split to be tapped group by group.

Neighbours are never in one group, since they could not be fused if they were tapped together.
"""


class _Interpreter:
    """One loaded model.

    Args:
        model: The model.
        settings: The user's settings.
        content: The bytes of a changed model; None for the model's own file.
        may_fuse: Whether a delegate may fuse operators.
        keeps_memory: Whether each tensor has its own memory.
    """

    def __init__(
        self,
        model: LiteRTModel,
        settings: _Settings,
        *,
        content: bytes | None = None,
        may_fuse: bool = True,
        keeps_memory: bool = False,
    ) -> None:
        self._model, self._settings, self._content = model, settings, content
        self._may_fuse, self._keeps_memory = may_fuse, keeps_memory
        self._net: Any = None
        self._shapes: dict[str, tuple[int, ...]] = {}

    def restart(self) -> None:
        """Reset the state that the model keeps from one run to the next."""
        if self._model.stateful:
            self._net = None

    def run(self, feed: Mapping[str, np.ndarray]) -> None:
        """Run once.

        Raises:
            BackendError: LiteRT refused the model, or failed.
        """
        self.prepare(feed)
        with _litert_errors("LiteRT failed"):
            for name, array in feed.items():
                self._net.set_tensor(self._model.indices[name], np.ascontiguousarray(array))
            self._net.invoke()

    def prepare(self, feed: Mapping[str, np.ndarray]) -> None:
        """Load the model once, and allocate inputs with these shapes.

        Raises:
            BackendError: LiteRT refused the model.
        """
        shapes = {name: array.shape for name, array in feed.items()}
        if self._net is not None and shapes == self._shapes:
            return
        with _litert_errors("LiteRT refused the model"):
            if self._net is None:
                self._net = self._load_interpreter()
            for details in self._net.get_input_details():
                name = self._model.names[details["index"]]
                if name in shapes and tuple(details["shape"]) != shapes[name]:
                    self._net.resize_tensor_input(details["index"], shapes[name])
            self._net.allocate_tensors()
        self._shapes = shapes

    def _load_interpreter(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        source = {"model_path": str(self._model.path)} if self._content is None else {"model_content": self._content}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # LiteRT warns that preserved tensors take memory
            return Interpreter(
                **source,
                num_threads=self._settings.threads,
                experimental_op_resolver_type=getattr(OpResolverType, KERNELS[self._settings.kernels]),
                experimental_preserve_all_tensors=self._keeps_memory,
                **({} if self._may_fuse else {_NO_FUSION: True}),
            )

    def delegated_parts(self) -> list[tuple[set[str], list[str]]]:
        """Return the inputs and outputs of each part of the graph that a delegate runs."""
        names = self._model.names
        return [
            (
                {names[index] for index in op["inputs"] if index >= 0},
                [names[index] for index in op["outputs"] if index >= 0],
            )
            for op in self._net._get_ops_details()  # noqa: SLF001  no public method tells
            if op["op_name"] == "DELEGATE" and max((*op["inputs"], *op["outputs"])) < len(names)
        ]

    def tensor(self, name: str) -> np.ndarray | None:
        """Return a copy of a tensor's elements; None if LiteRT does not have them."""
        try:
            elements: np.ndarray = self._net.get_tensor(self._model.indices[name])
        except (ValueError, RuntimeError):
            return None
        return elements

    def fill(self, name: str, pattern: int) -> bool:
        """Fill the memory of a tensor with a byte.

        Return False if it has no memory, or may hold indices that a run needs.
        """
        try:
            memory = self._net.tensor(self._model.indices[name])()
        except (ValueError, RuntimeError):
            return False
        if memory.dtype not in _FILLABLE_DTYPES or not memory.size:
            return False
        memory.reshape(-1).view(np.uint8)[:] = pattern
        return True

    def is_filled(self, name: str, pattern: int) -> bool:
        """Return whether all bytes of a tensor equal a pattern."""
        elements = self.tensor(name)
        return elements is not None and bool(np.all(elements.reshape(-1).view(np.uint8) == pattern))

    def tensors(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return copies of the tensors whose elements LiteRT has."""
        pairs = ((name, self.tensor(name)) for name in names)
        return {name: array for name, array in pairs if array is not None}


class LiteRTRun:
    """A model, ready to run in LiteRT and be recorded.

    Args:
        model: The model.
        settings: The user's settings.
        facts: Facts of the run.
        weights: Whether constants are recorded.
    """

    def __init__(self, model: LiteRTModel, settings: _Settings, facts: RunFacts, *, weights: bool) -> None:
        self.facts = facts
        self.graph = model.graph_to_record
        self.inputs: tuple[TensorInfo, ...] = tuple(model.graph.tensors[name] for name in model.graph.inputs)
        self.outputs: tuple[str, ...] = model.graph.outputs
        self._model = model
        self._settings = settings
        self._weights = weights
        self._plain = _Interpreter(model, settings)
        self.graph = _add_placements(self.graph, self._node_placements())

    def _node_placements(self) -> dict[str, str]:
        """Return the placement of nodes by their output tensors: a delegate, or LiteRT's own kernels."""
        kernels_name = "reference kernels" if self._settings.kernels == "reference" else "builtin kernels"
        placements = {name: kernels_name for node in self.graph.nodes for name in node.outputs}
        if self.fuses:
            try:
                self._plain.prepare({})
            except BackendError:  # the real run reports this error
                return {}
            for inputs, outputs in self._plain.delegated_parts():
                placements |= dict.fromkeys(_tensors_between(self.graph, inputs, outputs), "XNNPACK")
        return placements

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            for name in self._model.constants:
                if self.graph.is_constant(name):
                    yield name, self._model.constant(name)

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the unmodified model as in production and return its outputs.

        Raises:
            BackendError: LiteRT refused the model, or failed.
        """
        self._plain.run(feed)
        return self._plain.tensors(self.select_readable(self.outputs))

    def restart(self) -> None:
        """Reset the state that plain runs left in the model."""
        self._plain.restart()

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps and record every tapped tensor.

        Raises:
            BackendError: LiteRT refused the model, or failed.
        """
        for name, reason in self._model.unreadable.items():
            if name in self.graph.tensors:
                recorder.skip(name, reason)
        _TapRecording(self, feeds, recorder, on_progress).run()

    def make_interpreter(
        self, *, kernels: str = "", taps: Sequence[str] = (), may_fuse: bool = True, keeps_memory: bool = False
    ) -> _Interpreter:
        """Create another interpreter of the model.

        Args:
            kernels: One of `KERNELS`; empty for the chosen ones.
            taps: Tensors to add as outputs.
            may_fuse: Whether a delegate may fuse operators.
            keeps_memory: Whether each tensor has its own memory.
        """
        content = self._model.with_outputs(taps) if taps else None
        settings = replace(self._settings, kernels=kernels or self._settings.kernels)
        return _Interpreter(self._model, settings, content=content, may_fuse=may_fuse, keeps_memory=keeps_memory)

    @property
    def variables(self) -> Sequence[str]:
        """Tensors with the model's state, which runs read."""
        return self.select_readable(self._model.variables)

    @property
    def unpacked(self) -> Sequence[str]:
        """Constants to record that operators unpack; none if the run was opened without weights."""
        return self.select_readable(self._model.unpacked) if self._weights else []

    @property
    def stateful(self) -> bool:
        """Whether a run depends on earlier runs."""
        return self._model.stateful

    @property
    def fuses(self) -> bool:
        """Whether a delegate is used, which may fuse operators."""
        return self._settings.kernels == "xnnpack"

    def select_readable(self, names: Iterable[str]) -> list[str]:
        """Return the tensors with numeric elements."""
        return [name for name in names if name not in self._model.unreadable and name in self.graph.tensors]

    def close(self) -> None:
        """Free the interpreter. Safe to call twice."""
        self._plain = _Interpreter(self._model, self._settings)


class _RunVariants:
    """Runs a model in three variants: plain, without fusion if LiteRT has the option, and without memory reuse.

    Args:
        run: The run.
    """

    def __init__(self, run: LiteRTRun) -> None:
        self._outputs = run.select_readable(run.outputs)
        self.plain = run.make_interpreter()
        self.unshared = run.make_interpreter(keeps_memory=True)
        self._unfused = run.make_interpreter(may_fuse=False) if run.fuses and _can_forbid_fusion() else None
        self._is_fusion_unchecked = run.fuses and self._unfused is None
        self._fusion_check, self._memory_check_of_plain, self._memory_check_of_unfused = (
            FidelityCheck(),
            FidelityCheck(),
            FidelityCheck(),
        )

    def prepare(self, feed: Mapping[str, np.ndarray], *, reset_states: bool) -> None:
        """Prepare all variants for a feed. If `reset_states` is set, their states are reset."""
        for interpreter in self._interpreters():
            if reset_states:
                interpreter.restart()
            interpreter.prepare(feed)

    def run(self, feed: Mapping[str, np.ndarray], place: tuple[int, int]) -> None:
        """Run all variants once and compare their outputs."""
        for interpreter in self._interpreters():
            interpreter.run(feed)
        plain_outputs, unshared_outputs = self.plain.tensors(self._outputs), self.unshared.tensors(self._outputs)
        unfused_outputs = plain_outputs if self._unfused is None else self._unfused.tensors(self._outputs)
        _compare_outputs(self._fusion_check, unfused_outputs, plain_outputs, place)
        _compare_outputs(self._memory_check_of_plain, unshared_outputs, plain_outputs, place)
        _compare_outputs(self._memory_check_of_unfused, unshared_outputs, unfused_outputs, place)

    @property
    def summary(self) -> str:
        """A clause about the cause of changed outputs: fusion or memory reuse."""
        clauses = []
        if self._fusion_check.fidelity is Fidelity.DIFFERS:
            clauses.append(f"operator fusion changes the outputs: {self._fusion_check.worst}")
        if self._memory_check_of_unfused.fidelity is Fidelity.DIFFERS:
            clauses.append(
                "memory reuse changes the outputs: "
                f"{self._memory_check_of_plain.worst or self._memory_check_of_unfused.worst}"
            )
        variants_text = "without fusion and without memory reuse" if self._unfused else "without memory reuse"
        summary = "; ".join(clauses) or f"the same {variants_text}"
        unchecked = "; this version of LiteRT cannot turn off fusion, whose effect is unknown"
        return summary + (unchecked if self._is_fusion_unchecked else "")

    def _interpreters(self) -> list[_Interpreter]:
        return [interpreter for interpreter in (self.plain, self._unfused, self.unshared) if interpreter is not None]


def _can_forbid_fusion() -> bool:
    """Return whether LiteRT can keep delegates from fusing nodes. Versions before 2.1.6 cannot."""
    from ai_edge_litert.interpreter import Interpreter

    parameters = signature(Interpreter.__init__).parameters.values()
    return any(entry.name == _NO_FUSION or entry.kind is Parameter.VAR_KEYWORD for entry in parameters)


class _TapRecording:
    """Records the tensors that one run preserves in a first pass, then the fused plan's tensors, a few at a time."""

    def __init__(self, run: LiteRTRun, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None) -> None:
        self._run, self._feeds, self._recorder, self._on_progress = run, feeds, recorder, on_progress
        self._places = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]
        self._outputs = run.select_readable(run.outputs)
        computed_tensors = dict.fromkeys(name for node in run.graph.nodes for name in node.outputs)
        inner_tensors = [
            name
            for name in run.select_readable(computed_tensors)
            if name not in self._outputs and not run.graph.is_constant(name)
        ]
        is_faithful = run.facts.taps == "faithful" and run.fuses
        self._first_pass_tensors = [] if is_faithful or run.facts.taps == "outputs" else inner_tensors
        self._chunks = _split_into_tap_groups(inner_tensors) if is_faithful else []
        self._first_outputs: dict[str, np.ndarray] = {}
        self._digests: dict[tuple[str, int, int], bytes] = {}
        """Hashes of the outputs in the first pass."""
        self._repeated_runs = 0
        self._runs_done = 0

    def run(self) -> None:
        """Record everything."""
        if self._run.facts.taps != "outputs":
            self._record_unpacked()
        if self._first_pass_tensors and self._run.fuses:
            self._skip_unwritten()
        self._record_first_pass()
        for chunk in self._chunks:
            for taps, tapped in split_into_harmless_taps(chunk, self._try_taps, self._skip_tensor):
                self._record_taps(taps, tapped)
            self._report_progress(len(self._places), "")
        if self._repeated_runs:
            runs_text = plural(self._repeated_runs, "run")
            self._recorder.remark(
                f"{runs_text} with taps gave different outputs and were repeated with a new interpreter"
            )

    def _record_first_pass(self) -> None:
        """Record inputs, outputs and the tensors that a single run preserves, and compare the run variants."""
        all_variants = None if self._run.facts.taps == "outputs" else _RunVariants(self._run)
        recorded_interpreter = (
            self._run.make_interpreter()
            if all_variants is None
            else all_variants.unshared
            if self._first_pass_tensors
            else all_variants.plain
        )
        for sample, step in self._places:
            feed = self._feeds.feed(sample, step)
            variants = all_variants if sample < _COMPARED_SAMPLES else None
            states = self._prepare_step(recorded_interpreter, variants, feed, step)
            if variants is None:
                recorded_interpreter.run(feed)
            else:
                variants.run(feed, (sample, step))
            outputs = recorded_interpreter.tensors(self._outputs)
            self._digests.update({(name, sample, step): _digest(array) for name, array in outputs.items()})
            self._first_outputs = self._first_outputs or outputs
            self._recorder.at(sample, step)
            for name, array in {**outputs, **feed, **states}.items():  # an input tensor can also be an output
                self._put(name, array)
            self._put_tensors(recorded_interpreter, self._first_pass_tensors)
            self._report_progress(1, f"sample {sample}")
        if all_variants is not None:
            sample_note = (
                f" (the first {_COMPARED_SAMPLES} of {self._feeds.samples} samples)"
                if self._feeds.samples > _COMPARED_SAMPLES
                else ""
            )
            self._recorder.remark(all_variants.summary + sample_note)

    def _record_unpacked(self) -> None:
        """Record constants as LiteRT's own kernels unpack them, since XNNPACK stores only packed ones."""
        if self._run.unpacked:
            builtin_interpreter = self._run.make_interpreter(kernels="builtin", keeps_memory=True)
            builtin_interpreter.run(self._feeds.feed(0, 0))
            for name, array in builtin_interpreter.tensors(self._run.unpacked).items():
                self._recorder.constant(name, array)

    def _skip_unwritten(self) -> None:
        """Skip tensors whose memory no run writes, because a delegate computes them elsewhere."""
        interpreter, unwritten, feed = (
            self._run.make_interpreter(keeps_memory=True),
            self._first_pass_tensors,
            self._feeds.feed(0, 0),
        )
        interpreter.run(feed)  # the first run allocates the memory
        for pattern in _FILL_PATTERNS:
            tensors_filled = [name for name in unwritten if interpreter.fill(name, pattern)]
            interpreter.run(feed)
            unwritten = [name for name in tensors_filled if interpreter.is_filled(name, pattern)]
        for name in unwritten:
            self._recorder.skip(name, "LiteRT does not write it: a delegate computes it elsewhere")
        self._first_pass_tensors = [name for name in self._first_pass_tensors if name not in unwritten]

    def _prepare_step(
        self,
        recorded_interpreter: _Interpreter,
        variants: _RunVariants | None,
        feed: Mapping[str, np.ndarray],
        step: int,
    ) -> dict[str, np.ndarray]:
        """Prepare the interpreters, and return the states that the run will read."""
        if variants is not None:
            variants.prepare(feed, reset_states=step == 0)
        else:
            if step == 0:
                recorded_interpreter.restart()
            recorded_interpreter.prepare(feed)
        return recorded_interpreter.tensors(self._run.variables)

    def _try_taps(self, taps: Sequence[str]) -> _Interpreter | None:
        """Return a model with the given taps; None if its outputs differ from the first pass."""
        tapped = self._run.make_interpreter(taps=taps)
        tapped.run(self._feeds.feed(0, 0))
        check = FidelityCheck()
        _compare_outputs(check, tapped.tensors(self._outputs), self._first_outputs, (0, 0))
        return None if check.fidelity is Fidelity.DIFFERS else tapped

    def _skip_tensor(self, name: str) -> None:
        """Skip a tensor that cannot be tapped without changing the outputs."""
        self._recorder.skip(name, "a tap on it changes the outputs, because it is fused away (see --taps all)")

    def _record_taps(self, taps: Sequence[str], tapped: _Interpreter) -> None:
        """Record a few tensors of the fused plan, and tell the recorder about changed outputs.

        With LiteRT 2.3.0 and a network of two hundred tensors, about one interpreter in thirty gives wrong outputs in
        all runs after its first. So a run with different outputs is repeated with a new interpreter.
        """
        for number, (sample, step) in enumerate(self._places):
            if number:  # the first sample ran when the taps were tried
                if step == 0:
                    tapped.restart()
                tapped.run(self._feeds.feed(sample, step))
            changed_outputs = self._changed_outputs(tapped, (sample, step))
            if changed_outputs and number and not self._run.stateful:
                tapped, self._repeated_runs = self._run.make_interpreter(taps=taps), self._repeated_runs + 1
                tapped.run(self._feeds.feed(sample, step))
                changed_outputs = self._changed_outputs(tapped, (sample, step))
            self._recorder.at(sample, step)
            self._put_tensors(tapped, taps)
            if changed_outputs:
                self._recorder.check(changed_outputs, plain=False)

    def _changed_outputs(self, tapped: _Interpreter, place: tuple[int, int]) -> dict[str, np.ndarray]:
        """Return the outputs that differ from the first pass."""
        return {
            name: array
            for name, array in tapped.tensors(self._outputs).items()
            if self._varies(name) and _digest(array) != self._digests[name, *place]
        }

    def _put_tensors(self, source: _Interpreter, names: Sequence[str]) -> None:
        for name in names:
            array = source.tensor(name)
            if array is None:
                self._recorder.skip(name, "LiteRT has no values for it after the run")
            else:
                self._put(name, array)

    def _put(self, name: str, array: np.ndarray) -> None:
        if self._varies(name):
            self._recorder.put(name, array)

    def _varies(self, name: str) -> bool:
        return not self._run.graph.is_constant(name)

    def _report_progress(self, runs: int, label: str) -> None:
        self._runs_done += runs
        if self._on_progress is not None:
            self._on_progress(self._runs_done, (1 + len(self._chunks)) * len(self._places), label)


def _digest(array: np.ndarray) -> bytes:
    return blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()


def _tensors_between(graph: Graph, inputs: set[str], outputs: Sequence[str]) -> set[str]:
    """Return the tensors on paths from the given inputs to the given outputs, including both."""
    tensors: set[str] = set()
    names_left = list(outputs)
    while names_left:
        name = names_left.pop()
        node = graph.producer(name)
        if node is not None and name not in tensors and name not in inputs:
            tensors.add(name)
            names_left += node.inputs
    return tensors


def _add_placements(graph: Graph, placement_of: Mapping[str, str]) -> Graph:
    """Return a graph with the placements of its nodes."""
    nodes = [
        replace(node, placement=next((placement_of[name] for name in node.outputs if name in placement_of), ""))
        for node in graph.nodes
    ]
    tensors = graph.tensors.values()
    return Graph(nodes, tensors=tensors, inputs=graph.inputs, outputs=graph.outputs, name=graph.name)


def _split_into_tap_groups(names: Sequence[str]) -> list[Sequence[str]]:
    """Split tensors into `_TAP_GROUPS` groups, so that the tensors of a group are not neighbours."""
    return [names[start::_TAP_GROUPS] for start in range(min(len(names), _TAP_GROUPS))]


def _compare_outputs(
    check: FidelityCheck,
    outputs: Mapping[str, np.ndarray],
    plain_outputs: Mapping[str, np.ndarray],
    place: tuple[int, int],
) -> None:
    for name, array in outputs.items():
        if name in plain_outputs:
            check.compare(name, array, plain_outputs[name], place)


@contextmanager
def _litert_errors(failure: str) -> Iterator[None]:
    """Raise LiteRT's exceptions as a BackendError with a short message."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        text = " ".join(str(error).split()) or f"{type(error).__name__} without a message"
        text = text if len(text) <= 300 else f"{text[:297]}..."
        raise BackendError(
            f"{failure}: {text.rstrip('.')}.", hint="Check that the model runs in ai_edge_litert's Interpreter itself."
        ) from error


class LiteRTBackend:
    """LiteRT as a backend."""

    name = "litert"
    models = (".tflite",)
    options = _OPTIONS

    def open(
        self, model: Path | Recording, *, options: Mapping[str, str], taps: str = "faithful", weights: bool = True
    ) -> LiteRTRun:
        """Prepare a LiteRT model for running.

        Args:
            model: A .tflite file.
            options: Values of options by name; other options take their defaults.
            taps: One of `TAPS`.
            weights: Whether constants are recorded.

        Raises:
            UsageError: An option or its value is unknown, or the file is not a LiteRT model.
        """
        chosen_options = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "LiteRT runs model files, not recordings.",
                hint="Give the .tflite file, or replay the recording: --backend interpreter.",
            )
        settings = _Settings(kernels=chosen_options["kernels"], threads=_parse_threads(chosen_options["threads"]))
        source = reader.open(model)
        facts = RunFacts(
            backend=self.name,
            model=source.name,
            model_sha256=source.sha256,
            taps=taps,
            versions={"ai-edge-litert": version("ai-edge-litert")},
            cpu_flags=cpu_flags(),
            options={
                **chosen_options,
                "cpus": os.cpu_count() or 0,
                "resolver": KERNELS[settings.kernels],
                **({"note": source.unrecorded_note} if source.inner_subgraphs else {}),
            },
        )
        return LiteRTRun(source, settings, facts, weights=weights)


def _parse_threads(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(
            f"Option 'threads' of backend 'litert' is {text!r}; expected an integer of at least 1.",
            hint="Write --backend litert:threads=1 for one thread.",
        )
    return int(text)


backend = LiteRTBackend()
"""The backend that `qdebug.backends` loads as "litert"."""
