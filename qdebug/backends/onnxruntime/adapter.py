"""The backend "onnxruntime", which records ONNX Runtime with the graph that it actually runs.

Making every tensor of a model an output would change what the optimizer may fuse, and so change the results under
examination. Faithful taps avoid this in two steps. First, the graph is optimized as in production and saved. Then the
saved graph is tapped and run with optimization disabled. The recorder checks whether the outputs equal those of a plain
run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.onnx.model import OnnxModel, reader
from qdebug.backends.onnxruntime.executed import channel_block, describe
from qdebug.backends.onnxruntime.session import (
    LEVELS,
    PASSES,
    Session,
    SessionSettings,
    TappedGraph,
    add_outputs,
    unreadable_reason,
)
from qdebug.backends.protocol import (
    Feeds,
    OnProgress,
    OptionSpec,
    RunFacts,
    check_options,
    check_taps,
    shapes_text,
)
from qdebug.errors import BackendError, UsageError
from qdebug.model import Graph, Recording, TensorInfo

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["OnnxRuntimeBackend", "OnnxRuntimeRun", "backend"]

_OPTIONS = (
    OptionSpec(
        name="opt",
        default="all",
        choices=tuple(LEVELS),
        help=(
            "graph optimization level; all is the default in production, a lower level is used if ONNX "
            "Runtime refuses its graph"
        ),
    ),
    OptionSpec(name="threads", default="0", help="threads inside an operator; 0 for ONNX Runtime's own choice"),
    OptionSpec(name="provider", default="CPUExecutionProvider", help="execution provider"),
    OptionSpec(name="disable", default="", help="graph optimizers to leave out, as A+B: their names in ONNX Runtime"),
)


class OnnxRuntimeRun:
    """A model, ready to run in ONNX Runtime and be recorded.

    Args:
        source: The model.
        settings: The user's session settings.
        facts: Facts of the run.
        weights: Whether constants are recorded.

    Raises:
        BackendError: ONNX Runtime refused the model.
    """

    def __init__(self, source: OnnxModel, settings: SessionSettings, facts: RunFacts, *, weights: bool) -> None:
        self.facts = facts
        self._source = source
        self._settings = settings
        self._weights = weights
        self._folder = Path(tempfile.mkdtemp(prefix="qdebug-"))
        self._session: Session | None = None
        self._placements: dict[str, str] = {}
        try:
            self._executed_model, self._tapped_graph, graph = self._prepare()
        except BaseException:
            self.close()
            raise
        if self._executed_model.inner_node_counts:
            graphs_text = ", ".join(
                f"{node_text} ({count} nodes)" for node_text, count in self._executed_model.inner_node_counts.items()
            )
            inner_note = f"tensors inside these graphs are not recorded: {graphs_text}"
            note = "; ".join(filter(None, (str(facts.options.get("note", "")), inner_note)))
            self.facts = replace(facts, options={**facts.options, "note": note})
        self.graph = _add_placements(graph, self._placements)
        self.inputs: tuple[TensorInfo, ...] = tuple(source.graph.tensors[name] for name in source.graph.inputs)
        self.outputs: tuple[str, ...] = source.graph.outputs

    def _prepare(self) -> tuple[OnnxModel, TappedGraph | None, Graph]:
        """Save, tap and describe the graph to run, according to the kind of taps."""
        source, taps = self._source, self.facts.taps
        if taps == "outputs":
            self._get_plain_session()
            return source, None, source.graph
        all_names = [name for node in source.graph.nodes for name in node.outputs if name]
        executed_model = self._save_optimized(self._settings, tuple(all_names) if taps == "all" else ())
        tapped_graph = executed_model.graph if taps == "faithful" else source.graph
        names = [name for node in tapped_graph.nodes for name in node.outputs if name]
        tapped = TappedGraph(executed_model.path, _with_outputs(executed_model, source), self._settings, names)
        if taps == "all":
            return source, tapped, source.graph
        block = channel_block(self.facts.cpu_flags)
        graph = describe(
            source.graph, executed_model.graph, named_graph=self._save_named_graph(), dtypes=tapped.dtypes, block=block
        )
        return executed_model, tapped, graph

    def _save_named_graph(self) -> Graph | None:
        """Return the graph at the highest optimization level that keeps names, if the chosen level does not."""
        if self._settings.level != "all" or self._settings.provider != "CPUExecutionProvider":
            return None
        return self._save_optimized(replace(self._settings, level="extended")).graph

    def _save_optimized(self, settings: SessionSettings, extra_outputs: Sequence[str] = ()) -> OnnxModel:
        """Save the optimized graph of the source, optionally with additional tensors as outputs."""
        target = self._folder / f"{settings.level}.onnx"
        options = settings.make_saving_options(target)
        if extra_outputs:
            proto = type(self._source.proto)()
            proto.CopyFrom(self._source.proto)
            add_outputs(proto, [name for name in extra_outputs if name not in self._source.graph.outputs])
            session = Session(proto.SerializeToString(), settings, options, data_folder=self._source.path.parent)
        else:
            session = self._open_source_session(settings, options)
        self._placements = self._placements or session.placements()
        return reader.open(target)

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            for name in self._executed_model.constants:
                if self.graph.is_constant(name):
                    yield name, self._executed_model.constant(name)

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the unmodified model as in production and return its outputs.

        Raises:
            BackendError: ONNX Runtime failed.
        """
        session = self._get_plain_session()
        names = [name for name in self.outputs if unreadable_reason(session.types[name]) is None]
        return {name: array.copy() for name, array in session.run(feed, names)}

    def _get_plain_session(self) -> Session:
        if self._session is None:
            self._session = self._open_source_session(self._settings, self._settings.make_options())
        return self._session

    def _open_source_session(self, settings: SessionSettings, options: Any) -> Session:
        """Load the model file, or its copy with fixed dimensions."""
        source = self._source
        if not source.changed:
            return Session(source.path, settings, options)
        return Session(source.proto.SerializeToString(), settings, options, data_folder=source.path.parent)

    def restart(self) -> None:
        """Do nothing, since runs do not leave state behind."""

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps and record every tapped tensor, one chunk of tensors at a time.

        Raises:
            BackendError: ONNX Runtime failed.
        """
        if self._tapped_graph is None:
            self._record_outputs(feeds, recorder, on_progress)
            return
        for name, reason in self._tapped_graph.skipped.items():
            recorder.skip(name, reason)
        _ChunkedRecording(
            self._tapped_graph, self.graph, feeds, recorder, weights=self._weights, on_progress=on_progress
        ).run()

    def _record_outputs(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None) -> None:
        session = self._get_plain_session()
        for name in self.outputs:
            reason = unreadable_reason(session.types[name])
            if reason is not None:
                recorder.skip(name, reason)
        places = _list_places(feeds)
        for runs_done, (sample, step) in enumerate(places, start=1):
            recorder.at(sample, step)
            feed = feeds.feed(sample, step)
            for name, array in (*feed.items(), *self.plain(feed).items()):
                recorder.put(name, array)
            if on_progress is not None:
                on_progress(runs_done, len(places), f"sample {sample}")

    def close(self) -> None:
        """Free sessions and temporary files. Safe to call twice."""
        self._session = None
        shutil.rmtree(self._folder, ignore_errors=True)


class _ChunkedRecording:
    """Records all tensors chunk by chunk, and within each chunk sample by sample."""

    def __init__(
        self,
        tapped: TappedGraph,
        graph: Graph,
        feeds: Feeds,
        recorder: Recorder,
        *,
        weights: bool,
        on_progress: OnProgress | None,
    ) -> None:
        self._tapped = tapped
        self._graph = graph
        self._feeds = feeds
        self._recorder = recorder
        self._weights = weights
        self._on_progress = on_progress
        self._places = _list_places(feeds)
        self._tensors_done = 0
        self._digests: dict[tuple[str, int, int], bytes] = {}

    def run(self) -> None:
        """Record everything."""
        final_outputs = frozenset(self._tapped.finals).intersection(self._tapped.taps)
        for number, chunk in enumerate(self._tapped.plan(self._feeds.feed(0, 0)) or [[]]):
            session = self._tapped.run(chunk)
            # Each session returns the final outputs too: those of the first are recorded, later ones are compared.
            names = frozenset(chunk).difference(final_outputs) if number else frozenset(chunk) | final_outputs
            for sample, step in self._places:
                feed = self._feeds.feed(sample, step)
                self._recorder.at(sample, step)
                for name, array in feed.items() if number == 0 else ():
                    self._recorder.put(name, array)
                for name, array in session.tensors(feed):
                    if name in names:
                        self._put_tensor(name, array, is_first=(sample, step) == self._places[0])
                    if name in final_outputs:
                        self._compare(name, array, sample, step)
                self._report_progress(len(chunk), sample)
            session.close()

    def _put_tensor(self, name: str, array: np.ndarray, *, is_first: bool) -> None:
        if not self._graph.is_constant(name):
            self._recorder.put(name, array)
        elif is_first and self._weights:
            self._recorder.constant(name, array)

    def _compare(self, name: str, array: np.ndarray, sample: int, step: int) -> None:
        """Tell the recorder if a final output differs from its value in the run of the first chunk."""
        digest = blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()
        if self._digests.setdefault((name, sample, step), digest) != digest:
            self._recorder.check({name: array}, plain=False)

    def _report_progress(self, tensors: int, sample: int) -> None:
        self._tensors_done += tensors
        if self._on_progress is not None:
            total = len(self._tapped.taps) * len(self._places)
            self._on_progress(self._tensors_done, total, f"sample {sample}")


def _add_placements(graph: Graph, provider_of: Mapping[str, str]) -> Graph:
    """Return a graph in which each node states the provider that runs it.

    Nodes are assigned to providers before they are fused, so a fused node runs where its source nodes were placed.
    """
    all_providers = set(provider_of.values())
    nodes = []
    for node in graph.nodes:
        providers = {provider_of[name] for name in (node.name, *node.origin) if name in provider_of} or all_providers
        nodes.append(replace(node, placement=next(iter(providers))) if len(providers) == 1 else node)
    return Graph(
        nodes,
        tensors=graph.tensors.values(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def _list_places(feeds: Feeds) -> list[tuple[int, int]]:
    return [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]


def _with_outputs(executed_model: OnnxModel, source: OnnxModel) -> Any:
    """Return the saved graph's proto with only the source's outputs."""
    proto = executed_model.proto
    source_outputs = [value for value in proto.graph.output if value.name in source.graph.outputs]
    del proto.graph.output[:]
    proto.graph.output.extend(source_outputs)
    return proto


class OnnxRuntimeBackend:
    """ONNX Runtime as a backend."""

    name = "onnxruntime"
    models = (".onnx",)
    options = _OPTIONS
    passes = PASSES
    fixes_shapes = True

    def open(
        self,
        model: Path | Recording,
        *,
        options: Mapping[str, str],
        taps: str = "faithful",
        weights: bool = True,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> OnnxRuntimeRun:
        """Prepare an ONNX model for running.

        Args:
            model: An ONNX file.
            options: Values of options by name; other options take their defaults.
            taps: One of `TAPS`.
            weights: Whether constants are recorded.
            shapes: Shapes for inputs with free dimensions, by input.

        Raises:
            UsageError: An option or its value is unknown, the file is not an ONNX model, or a provider is not
                available.
            InputError: A shape does not match the model.
            BackendError: ONNX Runtime refused the model.
        """
        chosen_options = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "ONNX Runtime runs model files, not recordings.",
                hint="Give the .onnx file, or replay the recording: --backend interpreter.",
            )
        settings = SessionSettings(
            level=chosen_options["opt"],
            threads=_parse_threads(chosen_options["threads"]),
            provider=chosen_options["provider"],
            disabled=tuple(filter(None, chosen_options["disable"].split("+"))),
        )
        settings.check_provider()
        source = reader.open(model)
        if shapes:
            source, chosen_options = source.fixed(shapes), {**chosen_options, "shapes": shapes_text(shapes)}
        return _run_at_level(source, settings, chosen_options, taps, weights=weights)


def _run_at_level(
    source: OnnxModel, settings: SessionSettings, chosen_options: Mapping[str, str], taps: str, *, weights: bool
) -> OnnxRuntimeRun:
    """Return a run at the chosen level, or at the highest lower level whose graph ONNX Runtime itself accepts.

    Its optimizer may write nodes that do not exist in the model's operator set.
    """
    levels = tuple(LEVELS)
    first_error: BackendError | None = None
    for level in reversed(levels[: levels.index(settings.level) + 1]):
        level_settings = replace(settings, level=level)
        facts = _run_facts(source, level_settings, {**chosen_options, "opt": level}, taps)
        if first_error is not None:
            reason = first_error.message.partition(": ")[2] or first_error.message
            note = f"opt={level} was used, because ONNX Runtime refuses its own graph at opt={settings.level}: {reason}"
            facts = replace(facts, options={**facts.options, "note": note.rstrip(".")})
        try:
            return OnnxRuntimeRun(source, level_settings, facts, weights=weights)
        except BackendError as error:
            first_error = first_error or error
    raise first_error or BackendError(f"ONNX Runtime has no optimization level {settings.level!r}.")


def _parse_threads(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(
            f"Option 'threads' of backend 'onnxruntime' is {text!r}; expected an integer.",
            hint="Write --backend onnxruntime:threads=1 for one thread, or 0 to let ONNX Runtime choose.",
        )
    return int(text)


def _run_facts(source: OnnxModel, settings: SessionSettings, chosen_options: Mapping[str, str], taps: str) -> RunFacts:
    import onnx
    import onnxruntime

    from qdebug.recording.environment import cpu_flags

    options = settings.make_options()
    return RunFacts(
        backend="onnxruntime",
        model=source.name,
        model_sha256=source.sha256,
        taps=taps,
        versions={"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__},
        extent_names=source.extent_names,
        cpu_flags=cpu_flags(),
        options={
            **chosen_options,
            "threads": settings.threads,
            "asked_for": settings.provider,
            "cpus": os.cpu_count() or 0,
            "graph_optimization_level": LEVELS[settings.level],
            "execution_mode": str(options.execution_mode).rsplit(".", 1)[-1],
            "inter_op_num_threads": options.inter_op_num_threads,
            "use_deterministic_compute": options.use_deterministic_compute,
            "build": onnxruntime.get_build_info(),
        },
    )


backend = OnnxRuntimeBackend()
"""The backend that `qdebug.backends` loads as "onnxruntime"."""
