"""Run networks that distinguish arithmetics on a backend, and identify the arithmetic of each kind of node.

A runtime may compute differently on another processor, and may use several arithmetics at once. Each answer is
therefore only valid for one kind of node, its types, and this processor.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, TypeVar

import numpy as np

from qdebug.arithmetic.functions import same_functions, shape_of
from qdebug.arithmetic.presets import Preset, known_presets
from qdebug.arithmetic.units import Units, UnitSource
from qdebug.backends import WRITERS, load_backend, write_model
from qdebug.backends.protocol import Backend
from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.compare.measure.recordings import as_compared
from qdebug.errors import BackendError, KernelError, QdebugError, UsageError
from qdebug.model import MemoryRecording, Recording, RunInfo, operators
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.probe.dialects import translate_floats_to_pytorch, translate_to_pt2e, translate_to_qdq, translate_to_tflite
from qdebug.probe.models import PROBED, ProbeModel, probe_models
from qdebug.probe.rounding_models import ROUNDED_FORMATS, ROUNDED_OPS
from qdebug.probe.roundings import RoundingEntry, probe_rounding
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.run import one_thread
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant, describe, parse_variant, variant_keys
from qdebug.running.feeds import ArrayFeeds
from qdebug.running.record import record_feeds
from qdebug.session import opened_recording

__all__ = [
    "STATUSES",
    "PresetScore",
    "ProbeEntry",
    "ProbeResult",
    "distinct_functions",
    "find_reproduced_nodes",
    "run_probe",
]

Key = TypeVar("Key")


def find_reproduced_nodes(
    kind: str, recording: Recording, choices: Mapping[Key, Callable[[Unit], Variant]]
) -> dict[Key, frozenset[str]]:
    """Return the nodes that each of several arithmetics reproduces.

    Args:
        kind: The kind of node.
        recording: The recording, of which only the first sample is used.
        choices: The variant of a unit in each arithmetic.

    Returns:
        For each of `choices`, the names of the nodes whose recorded elements are all reproduced.
    """
    nodes_of: dict[Key, set[str]] = {key: set() for key in choices}
    with one_thread():
        for name, unit, recorded in _nodes_of_kind(kind, recording):
            columns: dict[HeavyPart, Columns] = {}
            is_reproduced: dict[Variant, bool] = {}
            for key, choice in choices.items():
                variant = choice(unit)
                if variant not in is_reproduced:
                    is_reproduced[variant] = _reproduces(unit, variant, columns, recorded)
                if is_reproduced[variant]:
                    nodes_of[key].add(name)
    return {key: frozenset(names) for key, names in nodes_of.items()}


def distinct_functions(kind: str, recording: Recording, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the first of each group of variants that compute the same function of all nodes of a kind.

    Args:
        kind: The kind of node.
        recording: The recording, of which only the first sample is used.
        texts: Variants that reproduce all of these nodes.
    """
    variants = [parse_variant(text) for text in texts]
    with one_thread():
        shapes = []
        for _, unit, _ in _nodes_of_kind(kind, recording) if len(variants) > 1 else ():
            sums = dict.fromkeys(variant.sums for variant in variants)
            shapes.append(shape_of(unit, {part: accumulate(unit, part) for part in sums}))
        numbers = same_functions(variants, shapes) if shapes else range(len(variants))
    first: dict[int, str] = {}
    for text, number in zip(texts, numbers, strict=True):
        first.setdefault(number, text)
    return tuple(first.values())


def _nodes_of_kind(kind: str, recording: Recording) -> Iterator[tuple[str, Unit, np.ndarray]]:
    """Yield name, unit and recorded codes (channels first, flat) of each node of a kind."""
    units = Units(recording)
    for node in recording.graph.nodes:
        tensor = node.outputs[0]
        source = units.missing(node, tensor) or units.find(node, tensor)
        if not isinstance(source, UnitSource):
            continue
        unit = source.unit(source.places[0])
        if unit.kind == kind:
            recorded = source.codes(source.places[0])
            yield node.name, unit, (np.moveaxis(recorded, -1, 1) if unit.channels_last else recorded).reshape(-1)


def _reproduces(unit: Unit, variant: Variant, columns: dict[HeavyPart, Columns], recorded: np.ndarray) -> bool:
    try:
        if variant.sums not in columns:
            columns[variant.sums] = accumulate(unit, variant.sums)
        return bool(np.array_equal(finish(unit, columns[variant.sums], variant), recorded))
    except KernelError:
        return False


STATUSES = ("explained", "mixed", "unexplained", "unfused", "failed")
"""Answers for a kind of node: see `ProbeEntry.status`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEntry(JsonObject):
    """The answer for one kind of node and its types.

    Args:
        kind: The kind of the nodes, as in `qdebug.replay.unit.KINDS`.
        title: The kind with its types.
        key: The kind with its branch and types, in the format of the keys of `Arithmetic.variants`. Empty if it could
            not be run.
        status: "explained"; "mixed" if each node is explained, but not all by the same arithmetic; "unexplained";
            "unfused" if the backend computes it in floating point between dequantizing and quantizing; "failed" if it
            could not be run, or has no kernel here.
        variants: Variants that reproduce every element of every node, simplest first, one for each function of these
            nodes: those that could not be distinguished. For a mixture, one for each part. If a node is unexplained,
            the closest one.
        words: The first variant in plain words, or None.
        presets: Known backends that state an arithmetic for the kind and reproduce every element.
        conflicts: Known backends that state one and do not reproduce every element.
        nodes: Number of nodes.
        elements: Number of elements that were compared.
        match: The share of elements that the first variant reproduces.
        runner_up: The best variant that does not reproduce every element.
        runner_up_match: The share that it reproduces.
        tried: Number of variants tried.
        reason: An error or a remark, or None.
    """

    kind: str
    title: str
    status: Annotated[str, SchemaPart(enum=[*STATUSES])]
    key: str = ""
    variants: tuple[str, ...] = ()
    words: str | None = None
    presets: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    nodes: int = 0
    elements: int = 0
    match: float | None = None
    runner_up: str | None = None
    runner_up_match: float | None = None
    tried: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetScore(JsonObject):
    """The score of a preset in a probe.

    Args:
        name: Name of the preset.
        fits: Probed kinds, with types, for which the preset states an arithmetic that reproduces the probe.
        conflicts: Probed kinds, with types, for which the preset states an arithmetic that does not.
    """

    json_keys = "name provenance about fits conflicts"

    name: str
    fits: tuple[str, ...]
    conflicts: tuple[str, ...]

    @property
    def provenance(self) -> str:
        """The provenance of the preset."""
        return known_presets()[self.name].provenance

    @property
    def about(self) -> str:
        """The measurement or the source."""
        return known_presets()[self.name].about

    @property
    def stands(self) -> bool:
        """Whether it has fits and no conflicts."""
        return bool(self.fits) and not self.conflicts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult(JsonObject):
    """The result of a probe.

    Args:
        run: Facts of the runs.
        entries: One for each kind of node and types.
        roundings: One for each float operator and 16-bit format.
    """

    json_format = "probe"
    json_keys = "backend=run summary kinds=entries presets=scores roundings"

    run: RunInfo
    entries: tuple[ProbeEntry, ...]
    roundings: tuple[RoundingEntry, ...] = ()

    @property
    def summary(self) -> Annotated[Mapping[str, int], SchemaPart(required=[*STATUSES])]:
        """Number of kinds with each status."""
        return {status: sum(entry.status == status for entry in self.entries) for status in STATUSES}

    @property
    def scores(self) -> tuple[PresetScore, ...]:
        """Presets that state a probed kind, sorted by standing and number of fits."""
        scores = []
        for name in known_presets():
            fits = tuple(entry.title for entry in self.entries if name in entry.presets)
            conflicts = tuple(entry.title for entry in self.entries if name in entry.conflicts)
            if fits or conflicts:
                scores.append(PresetScore(name=name, fits=fits, conflicts=conflicts))
        return tuple(sorted(scores, key=lambda score: (not score.stands, -len(score.fits), len(score.conflicts))))

    @property
    def exit_code(self) -> int:
        """Exit code of `qdebug probe`.

        It is 2 if nothing ran; 3 if all quantized nodes that ran were computed in floating point, and no float operator
        is explained; 1 if a kind or float operator that ran is not explained; 0 in all other cases.
        """
        statuses = {entry.status for entry in self.entries} | {entry.status for entry in self.roundings}
        if statuses <= {"failed", "not_run"}:
            return 2
        if statuses <= {"failed", "not_run", "unfused", "in_band"}:
            return 3
        return 1 if "unexplained" in statuses else 0


def run_probe(
    backend: str,
    *,
    options: Mapping[str, str] | None = None,
    kinds: Sequence[str] = (),
    on_progress: Callable[[int, int, str], None] | None = None,
) -> ProbeResult:
    """Probe a backend.

    Args:
        backend: Name of the backend.
        options: Options of the backend.
        kinds: Kinds of nodes to probe, or formats in which to probe float operators. All if empty.
        on_progress: Called with (done, total, label).

    Raises:
        UsageError: No such backend, option or kind, or no model can be made for the backend.
        MissingExtraError: A package that the backend, or making models for it, needs is not installed.
    """
    for kind in kinds:
        if kind not in (*PROBED, *ROUNDED_FORMATS):
            raise UsageError(
                f"Nodes of kind {kind!r} cannot be probed; probed kinds are {', '.join((*PROBED, *ROUNDED_FORMATS))}.",
                hint="Leave --kind out to probe all of them.",
            )
    chosen = load_backend(backend)
    quantized_kinds = [kind for kind in kinds or PROBED if kind in PROBED]
    models = [
        translated
        for model in (probe_models(quantized_kinds) if quantized_kinds else ())
        if (translated := _translate_for_backend(chosen, model)) is not None
    ]
    operators_in_formats = [
        (op, short) for short in ROUNDED_FORMATS if not kinds or short in kinds for op in ROUNDED_OPS
    ]
    total = len(models) + len(operators_in_formats)
    entries: list[ProbeEntry] = []
    info: RunInfo | None = None
    for finished, model in enumerate(models):
        if on_progress is not None:
            on_progress(finished, total, model.title)
        entry, run = _probe_model(chosen, model, options or {})
        # A backend without this quantized operator may support the same computation in QDQ form.
        if entry.status in _NO_ANSWER and _model_suffix(chosen) == ".onnx":
            qdq_entry, qdq_run = _probe_model(chosen, translate_to_qdq(model), options or {})
            entry, run = (entry, run) if qdq_entry.status in _NO_ANSWER else (qdq_entry, qdq_run)
        info = info or run
        entries.append(entry)
    roundings: list[RoundingEntry] = []
    runner = _FloatRunner(chosen, options or {})
    for finished, (op, short) in enumerate(operators_in_formats, len(models)):
        if on_progress is not None:
            on_progress(finished, total, f"{op} {short}")
        roundings.append(probe_rounding(op, short, runner))
    if on_progress is not None:
        on_progress(total, total, "")
    run_info = info or runner.info or RunInfo(backend=backend, options=dict(options or {}))
    return ProbeResult(run=run_info, entries=tuple(entries), roundings=tuple(roundings))


_NO_ANSWER = ("failed", "unfused")


def _probe_model(backend: Backend, model: ProbeModel, options: Mapping[str, str]) -> tuple[ProbeEntry, RunInfo | None]:
    """Run a network and explain its nodes. Also return facts of the run, unless it failed.

    Raises:
        UsageError: The backend has no such option.
    """
    with tempfile.TemporaryDirectory(prefix="qdebug-probe-") as folder:
        try:
            _record(backend, model, options, Path(folder))
        except UsageError:
            raise
        except QdebugError as error:
            return ProbeEntry(kind=model.kind, title=model.title, status="failed", reason=error.message), None
        with opened_recording(Path(folder, _RECORDED)) as recording:
            return _make_entry(model, recording), _without_model(recording.info)


class _FloatRunner:
    """Runs networks of float operators on a backend.

    Args:
        backend: The backend.
        options: Its options.
    """

    def __init__(self, backend: Backend, options: Mapping[str, str]) -> None:
        self._backend, self._options = backend, options
        self.info: RunInfo | None = None
        """Facts of the first run that succeeded."""

    def __call__(self, model: ProbeModel) -> Mapping[str, np.ndarray]:
        """Run a network, and return its recorded results by name.

        Raises:
            QdebugError: The backend cannot run the network, or its output was not recorded.
        """
        suffix, (output,) = _model_suffix(self._backend), model.graph.outputs
        if suffix == ".pt2":
            model = translate_floats_to_pytorch(model)
        elif suffix in _TRANSLATIONS:
            raise BackendError(f"{suffix} models of operators in {model.kind} are not written")
        with tempfile.TemporaryDirectory(prefix="qdebug-probe-") as folder:
            _record(self._backend, model, self._options, Path(folder))
            with opened_recording(Path(folder, _RECORDED)) as recording:
                self.info = self.info or _without_model(recording.info)
                names = [name for node in model.graph.nodes for name in node.outputs if recording.has(name, 0, 0)]
                results = {name: np.array(recording.load(name, 0, 0)) for name in names}
                renamed_output = next(iter(recording.graph.outputs), output)  # PyTorch names the results of a program
                if output not in results and recording.has(renamed_output, 0, 0):
                    results[output] = np.array(recording.load(renamed_output, 0, 0))
        if output not in results:
            raise BackendError("the result was not recorded")
        return results


def _without_model(info: RunInfo) -> RunInfo:
    return replace(info, model="", model_sha256="")


def _model_suffix(backend: Backend) -> str:
    """Return the suffix of the model files that a backend is probed with.

    Raises:
        UsageError: The backend runs no kind of model file that can be written.
    """
    models = getattr(backend, "models", (".onnx",))  # third-party backends need not have this attribute
    for ending in models:
        if ending in WRITERS:
            return str(ending)
    raise UsageError(
        f"Backend {backend.name!r} cannot be probed: it runs {', '.join(models)} files, but probe writes "
        f"{', '.join(WRITERS)}.",
        hint="Record one of your own networks on it and explain it: qdebug explain RUN.h5.",
    )


def _translate_for_backend(backend: Backend, model: ProbeModel) -> ProbeModel | None:
    """Return a network in the form of a backend's model files, or None if it cannot be expressed."""
    translate = _TRANSLATIONS.get(_model_suffix(backend))
    return model if translate is None else translate(model)


_TRANSLATIONS: Mapping[str, Callable[[ProbeModel], ProbeModel | None]] = MappingProxyType(
    {".tflite": translate_to_tflite, ".pt2": translate_to_pt2e}
)
"""Translations of a network for model files, by their suffix. ONNX files need none."""


_RECORDED = "probe.h5"


def _record(backend: Backend, model: ProbeModel, options: Mapping[str, str], folder: Path) -> None:
    """Run a network and record it in a folder."""
    source: Path | Recording = folder / f"probe{_model_suffix(backend)}"
    if getattr(backend, "runs_recordings", False):
        arrays = {(name, 0, 0): array for name, array in model.constants.items()}
        source = MemoryRecording(model.graph, arrays, RunInfo(backend="probe", model=model.graph.name))
    elif isinstance(source, Path):
        write_model(model.graph, model.constants, source)
    with closing(backend.open(source, options=options)) as run:
        feeds = ArrayFeeds(model.feed, run.inputs)
        record_feeds(run, feeds, folder / _RECORDED)


def _make_entry(model: ProbeModel, recording: Recording) -> ProbeEntry:
    """Explain the probed nodes of a recorded network, and return the answer for their kind."""
    explanation = explain_recording(recording)
    recording = as_compared(recording)
    nodes = [node for node in explanation.nodes if node.kind == model.kind]
    if not nodes:
        return _make_entry_without_nodes(model, explanation.nodes)
    wrong = [node for node in nodes if node.status is not ExplainStatus.EXPLAINED]
    texts = dict.fromkeys(text for node in nodes if node not in wrong for text in node.members)
    fits = find_reproduced_nodes(model.kind, recording, {text: _choose_always(parse_variant(text)) for text in texts})
    mixture = _cover_by_variants(fits, len(nodes) - len(wrong))
    common = distinct_functions(model.kind, recording, [text for text in texts if len(fits[text]) == len(nodes)])
    worst = min(wrong or nodes, key=lambda node: 0.0 if node.match is None else node.match)
    rivals = [node.runner_up for node in nodes if node.runner_up is not None]
    rival = max(rivals, key=lambda runner: runner.match) if rivals else None
    status = "unexplained" if wrong else "explained" if common else "mixed"
    keys = _keys_of_nodes(model.kind, recording)
    stating_presets = {
        name: known_preset
        for name, known_preset in known_presets().items()
        if not known_preset.variants.keys().isdisjoint(keys)
    }
    preset_fits = find_reproduced_nodes(
        model.kind, recording, {name: _choose_by_preset(known_preset) for name, known_preset in stating_presets.items()}
    )
    variants = worst.variants[:1] if wrong else common or tuple(mixture)
    return ProbeEntry(
        kind=model.kind,
        title=model.title,
        status=status,
        key=keys[0],
        variants=variants,
        words=describe(parse_variant(variants[0])) if variants else None,
        presets=tuple(name for name in stating_presets if len(preset_fits[name]) == len(nodes)),
        conflicts=tuple(name for name in stating_presets if len(preset_fits[name]) < len(nodes)),
        nodes=len(nodes),
        elements=sum(node.elements for node in nodes),
        match=worst.match,
        runner_up=None if rival is None else rival.variant,
        runner_up_match=None if rival is None else rival.match,
        tried=max(node.tried for node in nodes),
        reason=_describe_reason(worst, mixture) if status != "explained" else None,
    )


def _describe_reason(worst: NodeExplanation, mixture: Mapping[str, int]) -> str | None:
    """Describe the worst node, or the mixture of arithmetics."""
    if worst.status is ExplainStatus.EXPLAINED:
        return "; ".join(f"{count} node{'s' * (count > 1)}: {text}" for text, count in mixture.items())
    return worst.reason if worst.residual is None else worst.residual.detail


def _cover_by_variants(fits: Mapping[str, frozenset[str]], count: int) -> dict[str, int]:
    """Return a small set of variants that together reproduce all nodes, each with its number of nodes."""
    uncovered: frozenset[str] = frozenset().union(*fits.values())
    parts: dict[str, int] = {}
    while uncovered and sum(parts.values()) < count:
        # In a tie, max returns the first variant, which is the simplest.
        text = max(fits, key=lambda text: len(fits[text] & uncovered))
        parts[text] = len(fits[text] & uncovered)
        uncovered -= fits[text]
    return parts


def _keys_of_nodes(kind: str, recording: Recording) -> tuple[str, ...]:
    """Return the keys of the nodes of a kind, most specific first. All nodes have the same types."""
    for _, unit, _ in _nodes_of_kind(kind, recording):
        return variant_keys(kind, unit.branch, unit.dtypes)
    return (kind,)


def _choose_always(variant: Variant) -> Callable[[Unit], Variant]:
    return lambda _: variant


def _choose_by_preset(preset: Preset) -> Callable[[Unit], Variant]:
    return preset.arithmetic.variant


def _make_entry_without_nodes(model: ProbeModel, nodes: Sequence[NodeExplanation]) -> ProbeEntry:
    """Return the answer if no node of the kind could be examined, with the reason."""
    unknown = [node for node in nodes if node.on_codes and node.status is ExplainStatus.NO_KERNEL]
    if any(operators.named(node.op).quantizes for node in nodes) and not unknown:
        reason = "computed in floating point, between dequantizing and quantizing"
        return ProbeEntry(kind=model.kind, title=model.title, status="unfused", reason=reason)
    reasons = [node.reason for node in unknown or nodes if node.reason]
    return ProbeEntry(
        kind=model.kind,
        title=model.title,
        status="failed",
        reason=reasons[0] if reasons else "no such node was recorded",
    )
