"""The backend "interpreter", which replays a graph with qdebug's own numpy kernels.

It runs a recording's graph on the recorded constants with the core packages only, or a model file with a reader.
Quantized operators can be computed in any known or given arithmetic, so that a reference run can imitate a backend. The
remaining differences are then the backend's bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qdebug.arithmetic.arithmetic_file import find_arithmetic, read_arithmetic
from qdebug.arithmetic.floats.rounded import RoundedNodes
from qdebug.arithmetic.floats.search import Placement
from qdebug.arithmetic.presets import DEFAULT_PRESET, Preset, known_presets
from qdebug.backends import load_reader
from qdebug.backends.protocol import (
    Feeds,
    OnProgress,
    OptionSpec,
    RunFacts,
    check_options,
    check_taps,
)
from qdebug.errors import NoKernelError, UsageError
from qdebug.model import Graph, Recording, TensorInfo
from qdebug.recording.environment import cpu_flags, package_versions
from qdebug.replay import Arithmetic, Fault, find_kernel, run_graph
from qdebug.replay.groups import fuse

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["InterpreterBackend", "InterpreterRun", "backend"]

_OPTIONS = (
    OptionSpec(
        name="arithmetic",
        default=DEFAULT_PRESET,
        help="arithmetic of quantized operators: a file from `qdebug explain --write-arithmetic`, or one of "
        + ", ".join(known_presets()),
    ),
    OptionSpec(
        name="rounding",
        default="",
        help="roundings of float nodes: a file from `qdebug explain --write-arithmetic`; by default those of the file "
        "given as arithmetic",
    ),
)


class _Constants(Mapping[str, np.ndarray]):
    """Constants by name, each read on demand."""

    def __init__(self, names: tuple[str, ...], load: Callable[[str], np.ndarray]) -> None:
        self._names = dict.fromkeys(names)
        self._load = load

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._load(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class InterpreterRun:
    """A graph and its constants, ready for replay.

    Args:
        graph: The graph.
        constants: Its constants by name.
        facts: Facts of the run.
        arithmetic: Arithmetic of the quantized operators.
        weights: Whether constants are recorded.
        faults: Planted bugs, by node name.
        roundings: Placements of the roundings of float nodes, see `RoundedNodes`.

    Raises:
        NoKernelError: An operator has no kernel.
        UsageError: The graph reads a tensor that has neither a producer nor values, or a fault names an unknown node.
    """

    def __init__(
        self,
        graph: Graph,
        constants: Mapping[str, np.ndarray],
        facts: RunFacts,
        *,
        arithmetic: Arithmetic,
        weights: bool = True,
        faults: Mapping[str, Fault] | None = None,
        roundings: Mapping[str, Placement] | None = None,
    ) -> None:
        self.graph = graph
        self.facts = facts
        self.inputs: tuple[TensorInfo, ...] = tuple(graph.tensors[name] for name in graph.inputs)
        self.outputs: tuple[str, ...] = graph.outputs
        self._constants = constants
        self._arithmetic = arithmetic
        self._weights = weights
        self._faults = dict(faults or {})
        self._rounded = RoundedNodes(graph, roundings) if roundings else None
        self._check_graph()

    def _check_graph(self) -> None:
        for node in self.graph.nodes:
            find_kernel(node)
            for name in node.inputs:
                if name and name not in self.graph.inputs and self.graph.producer(name) is None:
                    self._require_constant(name, f"node {node.name!r} ({node.op})")
        node_names = {node.name for node in self.graph.nodes}
        for name in self._faults:
            if name not in node_names:
                raise UsageError(f"The fault is planted in node {name!r}, but the graph has no such node.")

    def _require_constant(self, name: str, reader: str) -> None:
        if name not in self._constants:
            raise UsageError(
                f"The values of {name!r}, which {reader} reads, are not stored in {self.facts.model!r}.",
                hint="Record the model again without --no-weights.",
            )

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            for name in self._constants:
                yield name, self._constants[name]

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the graph once and return its outputs.

        Raises:
            KernelError: A node cannot be computed on this feed.
        """
        return run_graph(
            self.graph,
            feed,
            self._constants,
            arithmetic=self._arithmetic,
            faults=self._faults,
            instead=self._rounded,
        )

    def restart(self) -> None:
        """Do nothing, since runs do not leave state behind."""

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps, and record the inputs and each computed tensor.

        Raises:
            KernelError: A node cannot be computed.
        """
        tapped_only = {*self.graph.inputs, *self.graph.outputs} if self.facts.taps == "outputs" else None

        def record_tensor(name: str, array: np.ndarray) -> None:
            # A tensor that depends only on constants is stored once, as a constant, and not per sample.
            is_folded = self.graph.is_constant(name)
            if not is_folded and (tapped_only is None or name in tapped_only):
                recorder.put(name, array)

        total = feeds.samples * feeds.steps
        for sample in range(feeds.samples):
            for step in range(feeds.steps):
                recorder.at(sample, step)
                feed = feeds.feed(sample, step)
                for name in self.graph.inputs:
                    record_tensor(name, feed[name])
                run_graph(
                    self.graph,
                    feed,
                    self._constants,
                    arithmetic=self._arithmetic,
                    faults=self._faults,
                    on_tensor=record_tensor,
                    instead=self._rounded,
                )
                if on_progress is not None:
                    on_progress(sample * feeds.steps + step + 1, total, f"sample {sample}")

    def close(self) -> None:
        """Do nothing, since the constants belong to the caller."""


class InterpreterBackend:
    """The interpreter as a backend."""

    name = "interpreter"
    models = (".onnx",)
    runs_recordings = True
    options = _OPTIONS

    def open(
        self,
        model: Path | Recording,
        *,
        options: Mapping[str, str],
        taps: str = "faithful",
        weights: bool = True,
        faults: Mapping[str, Fault] | None = None,
    ) -> InterpreterRun:
        """Prepare a graph for replay.

        Args:
            model: A model file with a known reader, or a recording with its constants.
            options: Values of options by name; other options take their defaults.
            taps: One of `TAPS`. "faithful" and "all" are equivalent, since tapping never changes a replay.
            weights: Whether constants are recorded.
            faults: Bugs to plant, by node name. Each changes the result of its node, and the recording names them.

        Raises:
            UsageError: An option or its value is unknown, or the model's constants are missing.
            NoKernelError: An operator does not have a kernel.
        """
        chosen_options = check_options(self.name, self.options, options)
        check_taps(taps)
        arithmetic = find_arithmetic(chosen_options["arithmetic"])
        if chosen_options["rounding"]:
            arithmetic = replace(arithmetic, roundings=read_arithmetic(chosen_options["rounding"]).roundings)
        graph, constants, title, sha256, extent_names = _open_source(model)
        if arithmetic.fused:
            graph, constants = _fuse_qdq(graph, constants, _unfused_tensors(model))
        facts = RunFacts(
            backend=self.name,
            model=title,
            model_sha256=sha256,
            taps=taps,
            versions=package_versions(),
            cpu_flags=cpu_flags(),
            options={
                **{key: text for key, text in chosen_options.items() if text},
                **_describe_arithmetic(arithmetic),
                **({"faults": ",".join(faults)} if faults else {}),
            },
            extent_names=extent_names,
        )
        return InterpreterRun(
            graph,
            constants,
            facts,
            arithmetic=arithmetic.arithmetic,
            weights=weights,
            faults=faults,
            roundings=arithmetic.roundings,
        )


def _unfused_tensors(model: Path | Recording) -> frozenset[str]:
    """Return the tensors that a backend recorded, which shows that it did not fuse them away.

    A node-by-node replay records all tensors, so it does not show what a backend fuses.
    """
    if isinstance(model, Path) or model.info.backend == InterpreterBackend.name:
        return frozenset()
    return frozenset(name for name in model.names if not model.graph.is_constant(name))


def _fuse_qdq(
    graph: Graph, constants: Mapping[str, np.ndarray], unfused_tensors: Collection[str]
) -> tuple[Graph, Mapping[str, np.ndarray]]:
    """Return the graph with its QDQ groups fused to single nodes, and the constants that it still reads."""
    clip_bounds = {
        name: float(np.asarray(constants[name]).reshape(()))
        for node in graph.nodes
        if node.op == "Clip"
        for name in node.inputs[1:]
        if name in constants and np.asarray(constants[name]).size == 1
    }
    fused_graph = fuse(graph, clip_bounds, unfused=unfused_tensors)
    constants_left = tuple(name for name in constants if name in fused_graph.tensors)
    return fused_graph, constants if fused_graph is graph else _Constants(constants_left, constants.__getitem__)


def _describe_arithmetic(preset: Preset) -> dict[str, str]:
    """Return the contents of an arithmetic file as run options, since the recording may outlive the file."""
    texts = {"roundings": ", ".join(f"{key}: {placement}" for key, placement in preset.roundings.items())}
    if preset.provenance == "file":
        texts["variants"] = "; ".join(f"{kind}: {variant}" for kind, variant in preset.variants.items())
    return {name: text for name, text in texts.items() if text}


def _open_source(
    model: Path | Recording,
) -> tuple[Graph, Mapping[str, np.ndarray], str, str, Mapping[str, tuple[str, ...]]]:
    """Return graph, constants, title and hash of a model file or recording, and the names of its input dimensions."""
    if isinstance(model, Path):
        source = load_reader(model)
        constants = _Constants(tuple(source.constants), source.constant)
        return source.graph, constants, source.name, source.sha256, getattr(source, "extent_names", {})
    translated, graph = _translate_to_onnx(model)
    names = tuple(name for name in graph.tensors if graph.is_constant(name) and translated.has(name))
    return graph, _Constants(names, translated.load), model.info.model, model.info.model_sha256, {}


def _translate_to_onnx(recording: Recording) -> tuple[Recording, Graph]:
    """Return a recording and its graph, translated to ONNX operators if another framework's node has no kernel.

    The translated nodes state axes and extents themselves, so nodes that only computed these are left out.
    """
    try:
        for node in recording.graph.nodes:
            find_kernel(node)
    except NoKernelError:
        from qdebug.compare.measure.recordings import with_understood_graph

        translated = with_understood_graph(recording)
        if translated.graph is not recording.graph:
            return translated, _without_dead_nodes(translated.graph)
    return recording, recording.graph


def _without_dead_nodes(graph: Graph) -> Graph:
    """Return a graph without nodes that no output depends on."""
    tensors_needed, nodes = {*graph.inputs, *graph.outputs}, []
    for node in reversed(graph.nodes):
        if not tensors_needed.isdisjoint(node.outputs):
            nodes.append(node)
            tensors_needed.update(node.inputs)
    return Graph(
        reversed(nodes),
        tensors=[info for name, info in graph.tensors.items() if name in tensors_needed],
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


backend = InterpreterBackend()
"""The backend that `qdebug.backends` loads as "interpreter"."""
