"""The backend "litert": LiteRT (TensorFlow Lite) with the kernels of XNNPACK, its own or its reference ones.

XNNPACK runs a part of the graph as one fused plan that keeps no tensor between. Faithful taps make a quarter of the
tensors at a time outputs of the model, never two neighbours, and compare the outputs with a plain run each time: a
tensor that cannot be looked at without changing the outputs is left out and listed. Without XNNPACK every operator is
run by itself, and all tensors are kept in one run.

LiteRT gives each tensor a place in one arena and reuses it. Three runs tell what changes the outputs: the plain one,
one without fusion, and one in which no memory is reused.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import version
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
    harmless_parts,
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
"""LiteRT's name of the resolver of each set of kernels."""

_OPTIONS = (
    OptionSpec(
        name="kernels",
        default="xnnpack",
        choices=tuple(KERNELS),
        help="whose kernels run; xnnpack is production's default, with builtin ones where XNNPACK has none",
    ),
    OptionSpec(name="threads", default="1", help="threads inside an operator"),
)

_TRIED = 4
"""Samples for which all ways of running are compared: what fusion and memory change hardly hangs on the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What the user chose about interpreters.

    Args:
        kernels: One of `KERNELS`.
        threads: Threads inside an operator.
    """

    kernels: str
    threads: int


_PATTERNS = (0xA5, 0x5A)
"""Bytes that memory is filled with to see whether a run writes it: what is still both is not written."""

_FILLABLE = (np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int16))

_APART = 4
"""Runs that the tensors are split over: neighbours that are tapped at once are never fused."""


class _Interpreter:
    """One loaded model.

    Args:
        model: The model.
        settings: What the user chose.
        content: The bytes of a changed model; the model's own file if None.
        fused: Whether a delegate may fuse operators.
        kept: Whether each tensor keeps memory of its own.
    """

    def __init__(
        self,
        model: LiteRTModel,
        settings: _Settings,
        *,
        content: bytes | None = None,
        fused: bool = True,
        kept: bool = False,
    ) -> None:
        self._model, self._settings, self._content = model, settings, content
        self._fused, self._kept = fused, kept
        self._net: Any = None
        self._shapes: dict[str, tuple[int, ...]] = {}

    def restart(self) -> None:
        """Forget state that the model keeps from one run to the next."""
        if self._model.stateful:
            self._net = None

    def run(self, feed: Mapping[str, np.ndarray]) -> None:
        """Run once.

        Raises:
            BackendError: LiteRT refused the model, or failed.
        """
        self.prepare(feed)
        with _errors("LiteRT failed"):
            for name, array in feed.items():
                self._net.set_tensor(self._model.indices[name], np.ascontiguousarray(array))
            self._net.invoke()

    def prepare(self, feed: Mapping[str, np.ndarray]) -> None:
        """Load the model if it is not, and give it room for inputs of these shapes.

        Raises:
            BackendError: LiteRT refused the model.
        """
        shapes = {name: array.shape for name, array in feed.items()}
        if self._net is not None and shapes == self._shapes:
            return
        with _errors("LiteRT refused the model"):
            if self._net is None:
                self._net = self._loaded()
            for details in self._net.get_input_details():
                name = self._model.names[details["index"]]
                if name in shapes and tuple(details["shape"]) != shapes[name]:
                    self._net.resize_tensor_input(details["index"], shapes[name])
            self._net.allocate_tensors()
        self._shapes = shapes

    def _loaded(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        source = {"model_path": str(self._model.path)} if self._content is None else {"model_content": self._content}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it warns that keeping tensors takes memory
            return Interpreter(
                **source,
                num_threads=self._settings.threads,
                experimental_op_resolver_type=getattr(OpResolverType, KERNELS[self._settings.kernels]),
                experimental_preserve_all_tensors=self._kept,
                experimental_disable_delegate_node_fusion=not self._fused,
            )

    def parts(self) -> list[tuple[set[str], list[str]]]:
        """Return what each part that a delegate took reads and makes."""
        names = self._model.names
        return [
            ({names[at] for at in each["inputs"] if at >= 0}, [names[at] for at in each["outputs"] if at >= 0])
            for each in self._net._get_ops_details()  # noqa: SLF001  nothing else tells
            if each["op_name"] == "DELEGATE" and max((*each["inputs"], *each["outputs"])) < len(names)
        ]

    def tensor(self, name: str) -> np.ndarray | None:
        """Return a copy of a tensor's elements; None if LiteRT has none of it."""
        try:
            found: np.ndarray = self._net.get_tensor(self._model.indices[name])
        except (ValueError, RuntimeError):
            return None
        return found

    def fill(self, name: str, pattern: int) -> bool:
        """Fill the memory of a tensor with a byte; False if it has none, or may hold indices: a run may need these."""
        try:
            memory = self._net.tensor(self._model.indices[name])()
        except (ValueError, RuntimeError):
            return False
        if memory.dtype not in _FILLABLE or not memory.size:
            return False
        memory.reshape(-1).view(np.uint8)[:] = pattern
        return True

    def is_filled(self, name: str, pattern: int) -> bool:
        """Tell whether the memory of a tensor holds nothing but one byte."""
        found = self.tensor(name)
        return found is not None and bool(np.all(found.reshape(-1).view(np.uint8) == pattern))

    def tensors(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return copies of those tensors that LiteRT has elements of."""
        found = ((name, self.tensor(name)) for name in names)
        return {name: array for name, array in found if array is not None}


class LiteRTRun:
    """A model made ready to run in LiteRT and be recorded.

    Args:
        model: The model as it was given.
        settings: What the user chose about interpreters.
        facts: What is known of the run.
        weights: Whether constants are recorded.
    """

    def __init__(self, model: LiteRTModel, settings: _Settings, facts: RunFacts, *, weights: bool) -> None:
        self.facts = facts
        self.graph = model.run_graph
        self.inputs: tuple[TensorInfo, ...] = tuple(model.graph.tensors[name] for name in model.graph.inputs)
        self.outputs: tuple[str, ...] = model.graph.outputs
        self._model = model
        self._settings = settings
        self._weights = weights
        self._plain = _Interpreter(model, settings)
        self.graph = _placed(self.graph, self._delegated())

    def _delegated(self) -> dict[str, str]:
        """Return where nodes run, by a tensor that they make: in a delegate, or by LiteRT's own kernels."""
        own = "reference kernels" if self._settings.kernels == "reference" else "builtin kernels"
        found = {name: own for node in self.graph.nodes for name in node.outputs}
        if self.fuses:
            try:
                self._plain.prepare({})
            except BackendError:  # it is said when the model runs
                return {}
            for inputs, outputs in self._plain.parts():
                found |= dict.fromkeys(_between(self.graph, inputs, outputs), "XNNPACK")
        return found

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            for name in self._model.constants:
                if self.graph.is_constant(name):
                    yield name, self._model.constant(name)

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the untouched model as production would and give its outputs.

        Raises:
            BackendError: LiteRT refused the model, or failed.
        """
        self._plain.run(feed)
        return self._plain.tensors(self.readable(self.outputs))

    def restart(self) -> None:
        """Forget the state that plain runs left in the model."""
        self._plain.restart()

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps and put every tapped tensor into the recorder.

        Raises:
            BackendError: LiteRT refused the model, or failed.
        """
        for name, reason in self._model.unreadable.items():
            if name in self.graph.tensors:
                recorder.skip(name, reason)
        _Work(self, feeds, recorder, on_progress).run()

    def interpreter(
        self, *, kernels: str = "", taps: Sequence[str] = (), fused: bool = True, kept: bool = False
    ) -> _Interpreter:
        """Make another interpreter of the model.

        Args:
            kernels: One of `KERNELS`, where not the chosen ones run.
            taps: Tensors that are outputs as well.
            fused: Whether a delegate may fuse operators.
            kept: Whether each tensor keeps memory of its own.
        """
        content = self._model.with_outputs(taps) if taps else None
        settings = replace(self._settings, kernels=kernels or self._settings.kernels)
        return _Interpreter(self._model, settings, content=content, fused=fused, kept=kept)

    @property
    def variables(self) -> Sequence[str]:
        """Tensors in which the model keeps state; a run reads what they hold before it."""
        return self.readable(self._model.variables)

    @property
    def unpacked(self) -> Sequence[str]:
        """Constants to record that operators make of packed ones; none if the run was opened without weights."""
        return self.readable(self._model.unpacked) if self._weights else []

    @property
    def stateful(self) -> bool:
        """Whether a run depends on the runs before it."""
        return self._model.stateful

    @property
    def fuses(self) -> bool:
        """Whether a delegate runs, which may fuse operators."""
        return self._settings.kernels == "xnnpack"

    def readable(self, names: Iterable[str]) -> list[str]:
        """Return those of the tensors whose elements are numbers."""
        return [name for name in names if name not in self._model.unreadable and name in self.graph.tensors]

    def close(self) -> None:
        """Free the interpreter; safe to call twice."""
        self._plain = _Interpreter(self._model, self._settings)


class _Ways:
    """One model run in three ways: plainly, without fusion, and with memory of its own for each tensor.

    Args:
        run: The run.
    """

    def __init__(self, run: LiteRTRun) -> None:
        self._outputs = run.readable(run.outputs)
        self.plain = run.interpreter()
        self.kept = run.interpreter(kept=True)
        self._split = run.interpreter(fused=False) if run.fuses else None
        self._fusion, self._keeping, self._memory = FidelityCheck(), FidelityCheck(), FidelityCheck()

    def prepare(self, feed: Mapping[str, np.ndarray], *, fresh: bool) -> None:
        """Make all ways ready for a feed; a fresh one has forgotten all states."""
        for way in self._all():
            if fresh:
                way.restart()
            way.prepare(feed)

    def run(self, feed: Mapping[str, np.ndarray], place: tuple[int, int]) -> None:
        """Run all ways once and compare their outputs."""
        for way in self._all():
            way.run(feed)
        plain, kept = self.plain.tensors(self._outputs), self.kept.tensors(self._outputs)
        split = plain if self._split is None else self._split.tensors(self._outputs)
        _compare(self._fusion, split, plain, place)
        _compare(self._keeping, kept, plain, place)
        _compare(self._memory, kept, split, place)

    @property
    def sentence(self) -> str:
        """Say in a clause what changes the outputs: fusion, or the reuse of memory."""
        said = []
        if self._fusion.fidelity is Fidelity.DIFFERS:
            said.append(f"fusion of operators changes the outputs: {self._fusion.worst}")
        if self._memory.fidelity is Fidelity.DIFFERS:
            said.append(f"reuse of memory changes the outputs: {self._keeping.worst or self._memory.worst}")
        ways = "without fusion and with no memory reused" if self._split else "with no memory reused"
        return "; ".join(said) or f"the same {ways}"

    def _all(self) -> list[_Interpreter]:
        return [way for way in (self.plain, self._split, self.kept) if way is not None]


class _Work:
    """One recording: a first pass for what one run gives, then a few tensors of the fused plan at a time."""

    def __init__(self, run: LiteRTRun, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None) -> None:
        self._run, self._feeds, self._recorder, self._on_progress = run, feeds, recorder, on_progress
        self._moments = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]
        self._outputs = run.readable(run.outputs)
        made = dict.fromkeys(name for node in run.graph.nodes for name in node.outputs)
        inner = [name for name in run.readable(made) if name not in self._outputs and not run.graph.is_constant(name)]
        faithful = run.facts.taps == "faithful" and run.fuses
        self._at_once = [] if faithful or run.facts.taps == "outputs" else inner
        self._chunks = _apart(inner) if faithful else []
        self._first: dict[str, np.ndarray] = {}
        self._digests: dict[tuple[str, int, int], bytes] = {}
        """Outputs of the first pass, each as a hash."""
        self._repeated = 0
        self._done = 0

    def run(self) -> None:
        """Record everything."""
        if self._run.facts.taps != "outputs":
            self._put_unpacked()
        if self._at_once and self._run.fuses:
            self._leave_out_unwritten()
        self._first_pass()
        for chunk in self._chunks:
            for taps, tapped in harmless_parts(chunk, self._attempt, self._refuse):
                self._pass(taps, tapped)
            self._tell(len(self._moments), "")
        if self._repeated:
            many = plural(self._repeated, "run")
            self._recorder.remark(f"{many} with taps gave other outputs and were repeated by a new interpreter")

    def _first_pass(self) -> None:
        """Record inputs, outputs and what one run keeps, and hold the ways of running against each other."""
        every = None if self._run.facts.taps == "outputs" else _Ways(self._run)
        main = self._run.interpreter() if every is None else every.kept if self._at_once else every.plain
        for sample, step in self._moments:
            feed = self._feeds.feed(sample, step)
            ways = every if sample < _TRIED else None
            states = self._before(main, ways, feed, step)
            if ways is None:
                main.run(feed)
            else:
                ways.run(feed, (sample, step))
            outputs = main.tensors(self._outputs)
            self._digests.update({(name, sample, step): _digest(array) for name, array in outputs.items()})
            self._first = self._first or outputs
            self._recorder.at(sample, step)
            for name, array in {**outputs, **feed, **states}.items():  # an output may be an input
                self._put(name, array)
            self._put_all(main, self._at_once)
            self._tell(1, f"sample {sample}")
        if every is not None:
            some = f" (the first {_TRIED} of {self._feeds.samples} samples)" if self._feeds.samples > _TRIED else ""
            self._recorder.remark(every.sentence + some)

    def _put_unpacked(self) -> None:
        """Record constants that LiteRT unpacks, as its own kernels do: XNNPACK writes them nowhere."""
        if self._run.unpacked:
            own = self._run.interpreter(kernels="builtin", kept=True)
            own.run(self._feeds.feed(0, 0))
            for name, array in own.tensors(self._run.unpacked).items():
                self._recorder.constant(name, array)

    def _leave_out_unwritten(self) -> None:
        """List tensors that keep whatever stood in their memory before the run: a delegate computes them elsewhere."""
        kept, doubted, feed = self._run.interpreter(kept=True), self._at_once, self._feeds.feed(0, 0)
        kept.run(feed)  # before the first run there is no memory
        for pattern in _PATTERNS:
            filled = [name for name in doubted if kept.fill(name, pattern)]
            kept.run(feed)
            doubted = [name for name in filled if kept.is_filled(name, pattern)]
        for name in doubted:
            self._recorder.skip(name, "LiteRT does not write it: a delegate computes it elsewhere")
        self._at_once = [name for name in self._at_once if name not in doubted]

    def _before(
        self, main: _Interpreter, ways: _Ways | None, feed: Mapping[str, np.ndarray], step: int
    ) -> dict[str, np.ndarray]:
        """Make the interpreters ready, and return the states that the run will read."""
        if ways is not None:
            ways.prepare(feed, fresh=step == 0)
        else:
            if step == 0:
                main.restart()
            main.prepare(feed)
        return main.tensors(self._run.variables)

    def _attempt(self, taps: Sequence[str]) -> _Interpreter | None:
        """Return a model that taps some tensors at once; None if its outputs are not those of the first run."""
        tapped = self._run.interpreter(taps=taps)
        tapped.run(self._feeds.feed(0, 0))
        check = FidelityCheck()
        _compare(check, tapped.tensors(self._outputs), self._first, (0, 0))
        return None if check.fidelity is Fidelity.DIFFERS else tapped

    def _refuse(self, name: str) -> None:
        """List a tensor that cannot be tapped without changing the outputs."""
        self._recorder.skip(name, "the outputs change if it is looked at: it is fused away (see --taps all)")

    def _pass(self, taps: Sequence[str], tapped: _Interpreter) -> None:
        """Record a few tensors of the fused plan, and let changed outputs count against fidelity.

        LiteRT 2.3.0 sometimes gives wrong outputs from the second run of such an interpreter on, in all its runs: about
        one interpreter in thirty on a net of two hundred tensors. A run with other outputs is repeated by a new one.
        """
        for number, (sample, step) in enumerate(self._moments):
            if number:  # the first one ran when the taps were found harmless
                if step == 0:
                    tapped.restart()
                tapped.run(self._feeds.feed(sample, step))
            changed = self._changed(tapped, (sample, step))
            if changed and number and not self._run.stateful:
                tapped, self._repeated = self._run.interpreter(taps=taps), self._repeated + 1
                tapped.run(self._feeds.feed(sample, step))
                changed = self._changed(tapped, (sample, step))
            self._recorder.at(sample, step)
            self._put_all(tapped, taps)
            if changed:
                self._recorder.check(changed, plain=False)

    def _changed(self, tapped: _Interpreter, place: tuple[int, int]) -> dict[str, np.ndarray]:
        """Return outputs that are not those of the first pass."""
        return {
            name: array
            for name, array in tapped.tensors(self._outputs).items()
            if self._varies(name) and _digest(array) != self._digests[name, *place]
        }

    def _put_all(self, source: _Interpreter, names: Sequence[str]) -> None:
        for name in names:
            array = source.tensor(name)
            if array is None:
                self._recorder.skip(name, "LiteRT has no elements of it after the run")
            else:
                self._put(name, array)

    def _put(self, name: str, array: np.ndarray) -> None:
        if self._varies(name):
            self._recorder.put(name, array)

    def _varies(self, name: str) -> bool:
        return not self._run.graph.is_constant(name)

    def _tell(self, runs: int, label: str) -> None:
        self._done += runs
        if self._on_progress is not None:
            self._on_progress(self._done, (1 + len(self._chunks)) * len(self._moments), label)


def _digest(array: np.ndarray) -> bytes:
    return blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()


def _between(graph: Graph, inputs: set[str], outputs: Sequence[str]) -> set[str]:
    """Return the tensors that lead from some tensors to others, these included."""
    found: set[str] = set()
    left = list(outputs)
    while left:
        name = left.pop()
        node = graph.producer(name)
        if node is not None and name not in found and name not in inputs:
            found.add(name)
            left += node.inputs
    return found


def _placed(graph: Graph, places: Mapping[str, str]) -> Graph:
    """Return a graph that says where its nodes run."""
    nodes = [
        replace(node, placement=next((places[name] for name in node.outputs if name in places), ""))
        for node in graph.nodes
    ]
    tensors = graph.tensors.values()
    return Graph(nodes, tensors=tensors, inputs=graph.inputs, outputs=graph.outputs, name=graph.name)


def _apart(names: Sequence[str]) -> list[Sequence[str]]:
    """Split tensors so that those of one run lie far apart in the graph."""
    return [names[start::_APART] for start in range(min(len(names), _APART))]


def _compare(
    check: FidelityCheck, found: Mapping[str, np.ndarray], plain: Mapping[str, np.ndarray], place: tuple[int, int]
) -> None:
    for name, array in found.items():
        if name in plain:
            check.compare(name, array, plain[name], place)


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn LiteRT's exceptions into one sentence."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        text = " ".join(str(error).split()) or f"{type(error).__name__} without a message"
        text = text if len(text) <= 300 else f"{text[:297]}..."
        raise BackendError(
            f"{what}: {text.rstrip('.')}.", hint="Check that the model runs in ai_edge_litert's Interpreter itself."
        ) from error


class LiteRTBackend:
    """LiteRT as a backend."""

    name = "litert"
    models = (".tflite",)
    options = _OPTIONS

    def open(
        self, model: Path | Recording, *, options: Mapping[str, str], taps: str = "faithful", weights: bool = True
    ) -> LiteRTRun:
        """Make a LiteRT model ready to run.

        Args:
            model: A .tflite file.
            options: Values of options by name; the others take their defaults.
            taps: One of `TAPS`.
            weights: Whether constants are recorded.

        Raises:
            UsageError: Unknown option or value, or no LiteRT file.
        """
        chosen = check_options(self.name, self.options, options)
        check_taps(taps)
        if not isinstance(model, Path):
            raise UsageError(
                "LiteRT runs model files, not recordings.",
                hint="Give the .tflite file, or replay the recording: --backend interpreter.",
            )
        settings = _Settings(kernels=chosen["kernels"], threads=_threads(chosen["threads"]))
        source = reader.open(model)
        facts = RunFacts(
            backend=self.name,
            model=source.name,
            model_sha256=source.sha256,
            taps=taps,
            versions={"ai-edge-litert": version("ai-edge-litert")},
            cpu_flags=cpu_flags(),
            options={
                **chosen,
                "cpus": os.cpu_count() or 0,
                "resolver": KERNELS[settings.kernels],
                **({"note": source.unrecorded} if source.inner else {}),
            },
        )
        return LiteRTRun(source, settings, facts, weights=weights)


def _threads(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(
            f"Option 'threads' of backend 'litert' is {text!r}; expected a whole number from 1.",
            hint="Write --backend litert:threads=1 for one thread.",
        )
    return int(text)


backend = LiteRTBackend()
"""What `qdebug.backends` loads under the name "litert"."""
