"""Record a run of a model: check its inputs, run it, and measure whether recording changed the outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.backends import check_model_file, load_backend
from qdebug.backends.protocol import BackendRun, Feeds, OnProgress, open_run
from qdebug.errors import OutputExistsError, RecordingError, UsageError
from qdebug.model import Fidelity, Node, Recording
from qdebug.recording.environment import recorded_facts
from qdebug.recording.keep_policy import KeepPolicy
from qdebug.recording.reading.opening import is_manifest
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import has_unfinished_run, recover_hint
from qdebug.recording.writing.sinks import RecordingStopped
from qdebug.regular_file import open_binary
from qdebug.running.feeds import ArrayFeeds, has_steps, read_inputs
from qdebug.running.states import StateFeeds, find_state_pairs, parse_state_pairs
from qdebug.session import opened_recording

__all__ = ["RecordSummary", "record_feeds", "record_run"]

_HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSummary:
    """Summary of a recording.

    Args:
        path: The file.
        tensors: Number of tensors with values, including constants.
        bytes: Size of the file.
        samples: Number of samples.
        steps: Number of steps in each sample.
        fidelity: Whether recording changed the outputs.
        fidelity_detail: How the fidelity was established, or how large the change is, as one clause.
        skipped: Tensors of the run that were not recorded, with the reason.
        states: Outputs that were fed back from step to step, with a clause for each.
    """

    path: Path
    tensors: int
    bytes: int
    samples: int
    steps: int
    fidelity: Fidelity
    fidelity_detail: str
    skipped: Mapping[str, str]
    states: tuple[str, ...] = ()


def record_run(
    model: str | Path,
    *,
    backend: str,
    inputs: str | Path | Mapping[str, np.ndarray],
    out: str | Path,
    options: Mapping[str, str] | None = None,
    samples: int | None = None,
    steps: int | None = None,
    taps: str = "faithful",
    weights: bool = True,
    force: bool = False,
    on_progress: OnProgress | None = None,
    on_tensor: Callable[[], None] | None = None,
    keep: KeepPolicy | None = None,
    states: Sequence[str] = (),
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> RecordSummary:
    """Run a model, record its tensors, and compare its outputs with those of plain runs, bit for bit.

    An error leaves nothing behind. An interrupted run leaves a finished recording, without the remaining tensors, if
    all inputs and outputs were recorded. Otherwise it leaves a recording that is marked as incomplete, or files that
    can be recovered. So does a full disk.

    Args:
        model: A model file, or a recording whose graph and weights are replayed.
        backend: Name of the backend.
        inputs: An .npz file or a mapping: one array per model input.
        out: The recording to write.
        options: Options of the backend.
        samples: Number of samples along the leading axis of the inputs, or None if they are one sample.
        steps: Number of steps of a stateful network along the next axis, or None if there are none.
        taps: Which tensors are tapped, and how: "faithful", "all" or "outputs".
        weights: Whether constants are recorded.
        force: Whether `out` may be replaced.
        on_progress: Called with (done, total, label).
        on_tensor: Called before each tensor is recorded. An exception ends the run.
        keep: How much of each tensor to keep, or None for all of it.
        states: Outputs that are fed back into inputs at the next step, as "OUT=IN". If empty, outputs are paired with
            inputs by name, shape and dtype, except inputs whose array has an axis of steps.
        shapes: Shapes for the free dimensions of inputs, by input. The model is compiled with them.

    Raises:
        UsageError: No such model or backend, unknown options, or one file for two purposes.
        InputError: The inputs do not fit the model.
        MissingExtraError: A package that the backend needs is not installed.
        BackendError: The backend failed.
        OutputExistsError: `out` exists and `force` is not set.
        RecordingError: `out` cannot be written.
    """
    model, out = Path(model), Path(out)
    _check_target(model, inputs, out, force=force)
    loaded_backend = load_backend(backend)
    arrays = read_inputs(inputs)
    with (
        _open_source(model) as source,
        closing(
            open_run(loaded_backend, source, options=options or {}, taps=taps, weights=weights, shapes=shapes)
        ) as run,
    ):
        pairs = _state_pairs(run, arrays, states, samples=samples, steps=steps)
        array_feeds = ArrayFeeds(arrays, run.inputs, samples=samples, steps=steps, states=pairs)
        feeds = StateFeeds(array_feeds, run.plain, pairs, restart=run.restart) if pairs else array_feeds
        summary = record_feeds(run, feeds, out, force=force, on_progress=on_progress, on_tensor=on_tensor, keep=keep)
        return (
            replace(summary, states=tuple(feeds.describe_states(array_feeds.zeros)))
            if isinstance(feeds, StateFeeds)
            else summary
        )


def _state_pairs(
    run: BackendRun,
    arrays: Mapping[str, np.ndarray],
    state_texts: Sequence[str],
    *,
    samples: int | None,
    steps: int | None,
) -> dict[str, str]:
    """Return the output that feeds each state's input at the next step; empty if there are no steps."""
    if state_texts and steps is None:
        raise UsageError("--state needs --steps: states are passed from one step to the next.", hint="Add --steps N.")
    if steps is None:
        return {}
    if state_texts:
        return parse_state_pairs(state_texts, [info.name for info in run.inputs], run.outputs)
    pairs = find_state_pairs(run.inputs, [run.graph.tensors[name] for name in run.outputs])
    stepped_inputs = {
        info.name
        for info in run.inputs
        if info.name in arrays and has_steps(info, arrays[info.name], samples=samples, steps=steps)
    }
    return {name: output for name, output in pairs.items() if name not in stepped_inputs}


def record_feeds(
    run: BackendRun,
    feeds: Feeds,
    out: Path,
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
    on_tensor: Callable[[], None] | None = None,
    keep: KeepPolicy | None = None,
    further_facts: Mapping[str, str | bool] | None = None,
) -> RecordSummary:
    """Record an opened model on checked inputs, otherwise like `record_run`.

    Args:
        run: The model, which is left open.
        feeds: The inputs.
        out: The recording to write.
        force: Whether `out` may be replaced.
        on_progress: Called with (done, total, label).
        on_tensor: Called before each tensor is recorded. An exception ends the run.
        keep: How much of each tensor to keep, or None for all of it.
        further_facts: Facts to record among the options of the run.

    Raises:
        BackendError: The backend failed.
        KernelError: A node cannot be computed (interpreter).
        OutputExistsError: `out` exists and `force` is not set.
        RecordingError: `out` cannot be written, or the disk is full. The message states how much is safe.
    """
    nonfinite = feeds.describe_nonfinite() if isinstance(feeds, ArrayFeeds | StateFeeds) else []
    recorder = _make_recorder(
        run, out, force=force, on_tensor=on_tensor, keep=keep, nonfinite=nonfinite, further_facts=further_facts or {}
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecordingStopped)  # becomes an error below, which says how much is safe
            _record_and_check(run, feeds, recorder, on_progress)
            recorder.close()
    except KeyboardInterrupt:
        recorder.on_tensor = None
        with suppress(RecordingError):  # nothing was recorded yet
            recorder.close(complete=_finish_interrupted(run, feeds, recorder))
        raise
    except BaseException:
        recorder.discard()
        raise
    if recorder.failure is not None:
        raise _stopped_error(recorder, out)
    return _summary(out)


def _stopped_error(recorder: Recorder, out: Path) -> RecordingError:
    """Return the error for a recording that stopped before the run did, with a message on how much is safe."""
    safe_text = f"{recorder.kept} tensor{' is' if recorder.kept == 1 else 's are'} safe"
    if not recorder.kept:
        return RecordingError(f"{recorder.failure} Nothing was kept.", hint="Record to a disk with more space.")
    if out.exists() and not has_unfinished_run(out):
        return RecordingError(
            f"{recorder.failure} {safe_text}: {str(out)!r} is incomplete.", hint="Record to a disk with more space."
        )
    return RecordingError(
        f"{recorder.failure} {safe_text} beside {str(out)!r}.", hint=f"{recover_hint(out)[:-1]} -o OTHER-DISK/OUT.h5."
    )


def _finish_interrupted(run: BackendRun, feeds: Feeds, recorder: Recorder) -> bool:
    """Mark the missing tensors of an interrupted run as skipped, and return whether it can be closed as finished.

    It can if all inputs and outputs were recorded. In that case, the first sample is also run without taps, to
    determine the fidelity.
    """
    graph = run.graph
    places = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]

    def is_recorded(name: str) -> bool:
        return graph.is_constant(name) or all(recorder.was_put(name, *place) for place in places)

    if not all(map(is_recorded, (*graph.inputs, *graph.outputs))):
        return False
    outputs = [name for node in graph.nodes for name in node.outputs if name]
    for name in outputs:
        if name not in recorder.skipped and not is_recorded(name):
            recorder.skip(name, "given up: the recording was interrupted", because="not_dumped")
    run.restart()
    _check_outputs(run, recorder, (0, 0), _plain_outputs(run, feeds, 0, 0))
    return True


class _CancellableRecorder(Recorder):
    """A recorder that calls `on_tensor` before each tensor, which may raise."""

    on_tensor: Callable[[], None] | None = None

    def put(self, name: str, array: Any, **facts: Any) -> None:
        """Record a tensor, like `Recorder.put`."""
        if self.on_tensor is not None:
            self.on_tensor()
        super().put(name, array, **facts)


def _check_target(model: Path, inputs: str | Path | Mapping[str, np.ndarray], out: Path, *, force: bool) -> None:
    check_model_file(model)
    sources = [model] if isinstance(inputs, Mapping) else [model, Path(inputs)]
    if out.is_dir():
        raise UsageError(f"{str(out)!r} is a folder.", hint="Name a file in it, such as run.h5.")
    if out.exists():
        for source in sources:
            if source.exists() and out.samefile(source):
                raise UsageError(
                    f"The recording would overwrite its source {str(source)!r}.", hint="Name another file."
                )
        if not force:
            raise OutputExistsError(
                f"The file {str(out)!r} already exists{_partial_run_text(out)}.",
                hint="Add --force to overwrite it, or name another file.",
            )


def _partial_run_text(path: Path) -> str:
    """Return a clause if a file has part of an interrupted run, which the user probably wants to repeat; else ""."""
    try:
        with opened_recording(path) as recording:
            is_complete = recording.info.complete
    except RecordingError:
        return ""
    return "" if is_complete else ", with the part of an interrupted run that was recorded"


@contextmanager
def _open_source(path: Path) -> Iterator[Path | Recording]:
    """Yield an open recording if the file is one, whatever its name, or else the path of a model file."""
    try:
        with open_binary(path) as file:
            start = file.read(len(_HDF5))
    except OSError as error:
        raise UsageError(
            f"The model file {str(path)!r} cannot be read: {error.strerror}.", hint="Check its permissions."
        ) from error
    if start != _HDF5 and not is_manifest(path):
        yield path
        return
    with opened_recording(path) as recording:
        yield recording


def _make_recorder(
    run: BackendRun,
    out: Path,
    *,
    force: bool,
    on_tensor: Callable[[], None] | None,
    keep: KeepPolicy | None,
    nonfinite: Sequence[str],
    further_facts: Mapping[str, str | bool],
) -> _CancellableRecorder:
    facts = recorded_facts(run.facts)
    facts["options"] = {**facts["options"], **further_facts}
    if nonfinite:
        note = "; ".join(filter(None, (str(facts["options"].get("note", "")), *nonfinite)))
        facts["options"] = {**facts["options"], "note": note}
    facts["cpu_flags"] = facts["cpu_flags"] or None  # with None, the flags of this machine are recorded
    recorder = _CancellableRecorder(out, graph=run.graph, force=force, keep=keep, **facts)
    recorder.on_tensor = on_tensor
    return recorder


def _record_and_check(run: BackendRun, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None) -> None:
    for name, array in run.constants():
        recorder.constant(name, array)
    run.record(feeds, recorder, on_progress)
    places = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]
    for done_count, (sample, step) in enumerate(places, start=1):
        if step == 0 and not isinstance(feeds, StateFeeds):
            run.restart()
        _check_outputs(run, recorder, (sample, step), _plain_outputs(run, feeds, sample, step))
        if on_progress is not None:
            on_progress(done_count, len(places), "plain runs, for the fidelity")
    if recorder.fidelity is Fidelity.DIFFERS and recorder.differing:
        _check_determinism(run, feeds, recorder)


def _plain_outputs(run: BackendRun, feeds: Feeds, sample: int, step: int) -> dict[str, np.ndarray]:
    """Return the outputs of a run without taps. Earlier steps of the sample must have been run before."""
    return feeds.plain(sample, step) if isinstance(feeds, StateFeeds) else run.plain(feeds.feed(sample, step))


def _check_outputs(
    run: BackendRun, recorder: Recorder, place: tuple[int, int], plain_outputs: Mapping[str, np.ndarray]
) -> None:
    """Compare the outputs of a run without taps with the recorded outputs. Constants are left out."""
    varying_outputs = {name: array for name, array in plain_outputs.items() if not run.graph.is_constant(name)}
    if varying_outputs:
        recorder.at(*place)
        recorder.check(varying_outputs)


def _check_determinism(run: BackendRun, feeds: Feeds, recorder: Recorder) -> None:
    """Repeat a run without taps that gave different outputs, to find out whether the backend is nondeterministic."""
    sample, last_step = recorder.differing[0]
    for _ in range(_REPEATS):
        if isinstance(feeds, StateFeeds):
            feeds.forget()
        else:
            run.restart()
        for step in range(last_step + 1):
            plain_outputs = _plain_outputs(run, feeds, sample, step)
        _check_outputs(run, recorder, (sample, last_step), plain_outputs)
        if recorder.fidelity is Fidelity.NONDETERMINISTIC:
            break
    else:
        return
    nodes = _nondeterministic_nodes(run, feeds, sample)
    if nodes:
        more_text = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        recorder.remark(f"values change from run to run at {nodes[0].op} {nodes[0].name!r}{more_text}, on equal inputs")


def _nondeterministic_nodes(run: BackendRun, feeds: Feeds, sample: int) -> list[Node]:
    """Record one sample twice in memory, and return the nodes with equal inputs but different outputs."""
    runs = []
    for _ in range(2):
        recorder = Recorder(None, graph=run.graph, **recorded_facts(run.facts))
        run.record(_SampleFeeds(feeds, sample), recorder)
        recorder.close()
        runs.append(recorder.recording)
    first, second = runs
    changed_names = {name for name in first.names if not _is_equal(first, second, name)}
    return [
        node
        for node in run.graph.nodes
        if not changed_names.isdisjoint(node.outputs) and changed_names.isdisjoint(node.inputs)
    ]


def _is_equal(first: Recording, second: Recording, name: str) -> bool:
    places = [place for place in first.places(name) if first.has(name, *place) and second.has(name, *place)]
    return all(first.load(name, *place).tobytes() == second.load(name, *place).tobytes() for place in places)


class _SampleFeeds:
    """The inputs of one sample, as sample 0."""

    def __init__(self, feeds: Feeds, sample: int) -> None:
        self._feeds, self._sample = feeds, sample

    @property
    def samples(self) -> int:
        """Always 1."""
        return 1

    @property
    def steps(self) -> int:
        """Number of steps of the sample."""
        return self._feeds.steps

    def feed(self, _sample: int, step: int = 0) -> dict[str, np.ndarray]:
        """Return one array per model input."""
        return self._feeds.feed(self._sample, step)


_REPEATS = 3
"""Number of runs that must agree before a backend counts as deterministic, since stale memory may match by chance."""


def _summary(out: Path) -> RecordSummary:
    with opened_recording(out) as recording:
        return _summary_of(recording, out)


def _summary_of(recording: Recording, out: Path) -> RecordSummary:
    info = recording.info
    return RecordSummary(
        path=out,
        tensors=len(recording.names),
        bytes=out.stat().st_size,
        samples=recording.samples,
        steps=recording.steps,
        fidelity=info.fidelity,
        fidelity_detail=info.fidelity_detail,
        skipped=info.skipped,
    )
