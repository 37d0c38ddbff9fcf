"""Try another scale on one node: what its tensor loses, and what the network gives, replayed with that scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qdebug.arithmetic.arithmetic_file import find_arithmetic
from qdebug.backends.interpreter import backend as interpreter
from qdebug.compare.align.align import align_runs
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.measure.recordings import as_compared, with_understood_graph
from qdebug.compare.result.result import json_safe
from qdebug.errors import KernelError, UsageError
from qdebug.model import Graph, Node, QuantParams, Recording, Role, TensorInfo, operators
from qdebug.model.dtypes import code_limits, is_integer
from qdebug.model.forwarding import ForwardingRecording
from qdebug.model.recording import places_of
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.affine import dequantize, quantize
from qdebug.numerics.quant_error import QuantError
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.run import one_thread
from qdebug.workflow.scales_choose import TensorValues
from qdebug.workflow.scales_flags import coded_quant

__all__ = ["OutputEffect", "ScaleTrial", "try_scale"]


_Pairs = Mapping[str, tuple[str, tuple[float | None, float | None]]]
"""The reference's tensor of each of the backend's, and the bounds that are applied to its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEffect:
    """An output of the network before and after.

    Args:
        output: Its name.
        now: Its error with the recorded scales, replayed.
        trial: Its error with the scale that is tried.
        against: What both are held against: "reference" or "recorded".
    """

    output: str
    now: ErrorStats
    trial: ErrorStats
    against: str

    def to_dict(self) -> dict[str, Any]:
        """Return the effect as plain values."""
        names = ("rel_l2", "sqnr_db", "max_abs", "cosine")
        return {
            "output": self.output,
            "against": self.against,
            "now": {name: getattr(self.now, name) for name in names},
            "trial": {name: getattr(self.trial, name) for name in names},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTrial:
    """What another scale does.

    Args:
        node: The node.
        tensor: The tensor that is quantized, as the values are called.
        backend_tensor: The backend's codes of it; "" without.
        now: The parameters in use; None if the tensor is not quantized.
        trial: Those that are tried.
        now_error: What the parameters in use lose on the tensor's values; None without.
        trial_error: What those that are tried lose, exactly.
        outputs: What becomes of the outputs; empty if the network could not be replayed.
        replayed: Samples that were replayed.
        same: Whether the replay with the recorded scales gives the recorded outputs bit for bit; None if unknown.
        arithmetic: Name of the arithmetic of the replay.
        notes: What is to be known of it.
    """

    node: str
    tensor: str
    backend_tensor: str
    now: QuantParams | None
    trial: QuantParams
    now_error: QuantError | None
    trial_error: QuantError
    outputs: tuple[OutputEffect, ...]
    replayed: int
    same: bool | None
    arithmetic: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, ready for JSON."""
        plain: dict[str, Any] = json_safe(
            {
                "format": "qdebug.scale_trial",
                "version": 1,
                "node": self.node,
                "tensor": self.tensor,
                "backend_tensor": self.backend_tensor or None,
                "now": None if self.now is None else self.now.to_dict(),
                "trial": self.trial.to_dict(),
                "tensor_error": {
                    "now": None if self.now_error is None else self.now_error.to_dict(),
                    "trial": self.trial_error.to_dict(),
                },
                "outputs": [output.to_dict() for output in self.outputs],
                "replayed": self.replayed,
                "same_as_recorded": self.same,
                "arithmetic": self.arithmetic,
                "notes": list(self.notes),
            }
        )
        return plain


class _Rescaled(ForwardingRecording):
    """A recording in whose graph one tensor has another scale, wherever it is made and read.

    Args:
        recording: The recording, with its constants.
        tensors: The tensor, and those that it is handed on to by nodes that carry no scale.
        quant: The scale and zero point.
    """

    def __init__(self, recording: Recording, tensors: frozenset[str], quant: QuantParams) -> None:
        super().__init__(recording)
        self._own: dict[str, np.ndarray] = {}
        self._changed = _rescaled(recording, tensors, quant, self._own)

    @property
    def graph(self) -> Graph:
        """The graph with the other scale."""
        return self._changed

    @property
    def names(self) -> list[str]:
        """Names of the tensors, those of new constants included."""
        return [*super().names, *self._own]

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Tell whether values of a tensor were kept, or are a new constant."""
        return tensor in self._own or super().has(tensor, sample, step)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements, or a new constant."""
        return self._own[tensor] if tensor in self._own else super().load(tensor, sample, step)


def _handed_on(graph: Graph, tensor: str) -> frozenset[str]:
    """Return a tensor and all that have its codes by its scale: nodes without scales of their own hand it on."""
    quant, found = coded_quant(graph, tensor), {tensor}
    waiting = [tensor]
    while waiting:
        name = waiting.pop()
        for other in (*_after(graph, name), *_before(graph, name)):
            if other not in found and coded_quant(graph, other) == quant:
                found.add(other)
                waiting.append(other)
    return frozenset(found)


def _after(graph: Graph, codes: str) -> Iterator[str]:
    """Yield the codes that a node makes of codes without computing, be it between Dequantize and QuantizeLinear."""
    for node in graph.consumers(codes):
        if _hands_on(node) and node.inputs[0] == codes:
            yield from node.outputs[:1]
        if not operators.of(node.op).dequantizes:
            continue
        for middle in graph.consumers(node.outputs[0]):
            if _hands_on(middle):
                last = graph.consumers(middle.outputs[0])
                yield from (each.outputs[0] for each in last if operators.of(each.op).quantizes)


def _before(graph: Graph, codes: str) -> Iterator[str]:
    """Yield the codes that codes were made of so."""
    node = graph.producer(codes)
    if node is None:
        return
    if _hands_on(node):
        yield from node.inputs[:1]
    if not operators.of(node.op).quantizes:
        return
    middle = graph.producer(node.inputs[0])
    first = graph.producer(middle.inputs[0]) if middle is not None and _hands_on(middle) else None
    if first is not None and operators.of(first.op).dequantizes:
        yield first.inputs[0]


def _hands_on(node: Node) -> bool:
    row = operators.of(node.op)
    return (row.moves or row.selects) and row.real is None and not row.converts_codes and not row.joins


def _rescaled(recording: Recording, tensors: frozenset[str], quant: QuantParams, own: dict[str, np.ndarray]) -> Graph:
    """Return the graph with another scale, and put the constants that are new into `own`."""
    graph = recording.graph
    first = min(tensors)
    names = f"{first} trial scale", f"{first} trial zero point"
    infos = dict(graph.tensors)
    nodes = []
    for node in graph.nodes:
        inputs = list(node.inputs)
        for place in dict.fromkeys(_scale_places(node, tensors)):
            zero_point = inputs[place + 1] if place + 1 < len(inputs) else ""
            dtype = recording.load(zero_point).dtype if zero_point else np.dtype(quant.dtype)
            before = recording.load(inputs[place])
            own.setdefault(names[0], np.full(before.shape, quant.scale.reshape(-1)[0], before.dtype))
            own.setdefault(names[1], np.full(before.shape, quant.zero_point.reshape(-1)[0]).astype(dtype))
            if place + 1 == len(inputs):
                inputs.append("")
            inputs[place], inputs[place + 1] = names
            if node.inputs[0] in tensors and place == 1:
                _requantized_bias(recording, node, inputs, quant, own)
        nodes.append(node if tuple(inputs) == node.inputs else replace(node, inputs=tuple(inputs)))
    for name in tensors:
        infos[name] = replace(infos[name], quant=quant)
    for name in own:
        infos[name] = TensorInfo(name=name, role=Role.CONSTANT)
    return Graph(
        nodes,
        tensors=infos.values(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def _scale_places(node: Node, tensors: frozenset[str]) -> Iterator[int]:
    """Yield the inputs of a node that are the scale of one of several tensors; the zero point follows each."""
    row = operators.of(node.op)
    count = len(node.inputs)
    if row.quantizes and node.outputs[0] in tensors and count > 1:
        yield 1
    if row.dequantizes and node.inputs[0] in tensors and count > 1:
        yield 1
    if row.real is None:
        return
    for at in operators.coded_inputs(node.op, count):
        if at != row.bias and node.inputs[at] in tensors:
            yield at + 1
    if row.real.out is not None and node.outputs[0] in tensors and row.real.out < count:
        yield row.real.out


def _requantized_bias(
    recording: Recording, node: Node, inputs: list[str], quant: QuantParams, own: dict[str, np.ndarray]
) -> None:
    """Write the bias of a node in codes of the new scale of the sums, input scale x weight scale."""
    row = operators.of(node.op)
    if row.bias is None or row.real is None or row.bias >= len(node.inputs) or not node.inputs[row.bias]:
        return
    codes = recording.load(node.inputs[row.bias])
    if codes.dtype.kind not in "iu":
        return
    before = recording.load(node.inputs[1]).astype(np.float64).reshape(-1)[0]
    ratio = before / float(quant.scale.reshape(-1)[0])
    info = np.iinfo(codes.dtype)
    name = f"{node.inputs[row.bias]} of {node.name} trial"
    own[name] = np.clip(np.rint(codes.astype(np.float64) * ratio), info.min, info.max).astype(codes.dtype)
    inputs[row.bias] = name


def try_scale(
    reference: Recording,
    backend: Recording | None = None,
    *,
    node: str,
    scale: float,
    zero_point: int = 0,
    qmin: int | None = None,
    qmax: int | None = None,
    dtype: str | None = None,
    arithmetic: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> ScaleTrial:
    """Tell what another scale and zero point do to one node's tensor and to the outputs of the network.

    The error of the tensor is exact: the reference's values are held to the codes. The outputs are replayed by the
    interpreter, with the recorded scales and with the one that is tried. Of a float network without a backend, the
    tensor is quantized and dequantized in the replay, and nothing else is.

    Args:
        reference: The values, best a recording of the float net; with its constants if there is no backend.
        backend: A recording of the quantized net, with its constants.
        node: A node, or a tensor, of the backend or the reference.
        scale: Real units per code, above 0.
        zero_point: The code of 0.
        qmin: Lowest code; as recorded, or the dtype's, if left out.
        qmax: Highest code; the same.
        dtype: Dtype of the codes; as recorded, or int8, if left out.
        arithmetic: How quantized nodes are replayed: a preset or a file; the interpreter's default if None.
        progress: Called as it gets on.

    Raises:
        UsageError: There is no such node, it has no values or more than one scale, or the scale is none.
        AlignmentError: Reference and backend record different networks.
    """
    run = as_compared(backend) if backend is not None else with_understood_graph(reference)
    reference = as_compared(reference) if backend is not None else run
    pairs = _pairs(reference, run) if backend is not None else {}
    tensor, values = _found(run, reference, pairs, node)
    now = coded_quant(run.graph, tensor)
    trial = _trial(now, scale=scale, zero_point=zero_point, qmin=qmin, qmax=qmax, dtype=dtype)
    why = values.why_none()
    if why is not None:
        raise UsageError(f"Nothing is known of {values.name!r}: {why}.", hint="Record it with --keep full.")
    if now is not None and now.scale.size > 1:
        raise UsageError(f"{tensor!r} has {now.scale.size} scales; one can be tried.", hint="Choose another node.")
    now_error, trial_error = values.errors([now, trial])
    if trial_error is None:
        raise UsageError(f"A scale of {scale:g} holds no values.", hint="Give a scale above 0: --scale S.")
    effects = _Effects(run, reference, pairs)
    if arithmetic is not None:
        find_arithmetic(arithmetic)  # a name that there is not is no reason to go without a replay
    try:
        replayed = _replayed(run, effects, tensor, trial, arithmetic=arithmetic, progress=progress)
    except (UsageError, KernelError) as error:
        replayed = _unreplayed(error.message.rstrip("."))
    maker = run.graph.producer(tensor)
    return ScaleTrial(
        node=maker.name if maker else tensor,
        tensor=values.name,
        backend_tensor=tensor if backend is not None else "",
        now=now,
        trial=trial,
        now_error=now_error,
        trial_error=trial_error,
        **replayed,
    )


def _pairs(reference: Recording, backend: Recording) -> dict[str, tuple[str, tuple[float | None, float | None]]]:
    """Return the reference's tensor of each tensor of the backend, and the bounds that are applied to it."""
    with one_thread(), np.errstate(all="ignore"):
        found = align_runs(
            IndexedRecording.of(reference),
            IndexedRecording.of(backend),
            told=lambda stage: None,  # noqa: ARG005
        )
    return {
        pair.backend: (
            pair.reference,
            (None, None)
            if pair.reference_view is None
            else (pair.reference_view.clamp_low, pair.reference_view.clamp_high),
        )
        for pair in found.pairs
    }


def _found(
    run: Recording,
    reference: Recording,
    pairs: _Pairs,
    name: str,
) -> tuple[str, TensorValues]:
    """Find the tensor that is quantized, by the name of a node or a tensor of either side, and the values of it."""
    graph = run.graph
    makers = [tensor for node in graph.nodes if node.name == name for tensor in node.outputs if tensor]
    theirs = [ours for ours, (tensor, _) in pairs.items() if tensor == name]
    theirs += [
        ours
        for ours, (tensor, _) in pairs.items()
        if (maker := reference.graph.producer(tensor)) and maker.name == name
    ]
    known = [*makers, *([name] if name in graph.tensors else []), *theirs]
    if pairs:
        known = [tensor for tensor in known if tensor in pairs]
        known.sort(key=lambda tensor: coded_quant(graph, tensor) is None)
    if not known:
        raise UsageError(
            f"There is no node or tensor {name!r} with values of the reference.",
            hint="List them: qdebug scales choose REF BACKEND.",
        )
    tensor = known[0]
    if not pairs:
        return tensor, TensorValues(tensor, run)
    source, clamp = pairs[tensor]
    return tensor, TensorValues(source, reference, clamp=clamp)


def _trial(
    now: QuantParams | None, *, scale: float, zero_point: int, qmin: int | None, qmax: int | None, dtype: str | None
) -> QuantParams:
    if not (math.isfinite(scale) and scale > 0):
        raise UsageError(f"A scale of {scale:g} holds no values.", hint="Give a scale above 0: --scale S.")
    kind = dtype or (now.dtype if now is not None else "int8")
    if not is_integer(kind):
        raise UsageError(f"Codes of {kind} have no scale to try.", hint="Give integer codes: --dtype int8.")
    keep = now is not None and now.dtype == kind
    if now is not None and not keep:
        raise UsageError(
            f"The codes are {now.dtype}; nodes that compute on them take no {kind}.",
            hint=f"Try {kind} on the float run alone: qdebug scales try REF --node NAME --scale S --dtype {kind}.",
        )
    made = QuantParams(
        dtype=kind,
        scale=np.array(scale, np.float32),
        zero_point=np.array(zero_point),
        qmin=now.qmin if qmin is None and keep and now is not None else qmin,
        qmax=now.qmax if qmax is None and keep and now is not None else qmax,
    )
    low, high = made.qmin, made.qmax
    if low is None or high is None or not low <= zero_point <= high:
        raise UsageError(f"The zero point {zero_point} is outside {low}..{high}.", hint="Give one of these codes.")
    return made


def _replayed(
    run: Recording,
    effects: _Effects,
    tensor: str,
    trial: QuantParams,
    *,
    arithmetic: str | None,
    progress: Callable[[int, int, str], None] | None,
) -> dict[str, Any]:
    """Replay the network with the recorded scales and with the one that is tried, sample by sample."""
    options = {} if arithmetic is None else {"arithmetic": arithmetic}
    places = [place for place in places_of(run) if all(run.has(name, *place) for name in run.graph.inputs)]
    if run.steps > 1:
        return _unreplayed("a stateful network is not replayed")
    if not places:
        return _unreplayed("the inputs of the network were not recorded")
    coded = coded_quant(run.graph, tensor) is not None
    changed = _Rescaled(run, _handed_on(run.graph, tensor), trial) if coded else run
    with (
        closing(interpreter.open(run, options=options)) as before,
        closing(
            interpreter.open(changed, options=options, faults=_held(run.graph, tensor, trial, coded=coded))
        ) as after,
    ):
        for done, place in enumerate(places):
            if progress is not None:
                progress(done, len(places), f"sample {place[0]}")
            feed = {name: run.load(name, *place) for name in run.graph.inputs}
            effects.add(place, before.plain(feed), after.plain(_feed(feed, tensor, trial, coded=coded)))
        chosen = str(before.facts.options.get("arithmetic", ""))
    return {
        "outputs": effects.outputs(),
        "replayed": len(places),
        "same": effects.same,
        "arithmetic": chosen,
        "notes": (*effects.notes(coded=coded), *(_narrowed(trial) if coded else ())),
    }


def _narrowed(trial: QuantParams) -> Iterator[str]:
    """Say that a replay on codes saturates at the ends of the dtype."""
    if (trial.qmin, trial.qmax) != code_limits(trial.dtype):
        yield f"the replay saturates at the ends of {trial.dtype}, not at {trial.qmin}..{trial.qmax}"


def _unreplayed(why: str) -> dict[str, Any]:
    return {"outputs": (), "replayed": 0, "same": None, "arithmetic": "", "notes": (f"no replay: {why}",)}


def _feed(feed: Mapping[str, np.ndarray], tensor: str, trial: QuantParams, *, coded: bool) -> Mapping[str, np.ndarray]:
    if coded or tensor not in feed:
        return feed
    return {**feed, tensor: dequantize(quantize(feed[tensor], trial), trial).astype(feed[tensor].dtype)}


def _held(graph: Graph, tensor: str, trial: QuantParams, *, coded: bool) -> dict[str, Any] | None:
    """Return what holds a float tensor to codes where it is made; None for codes, whose scale is changed instead."""
    maker = graph.producer(tensor)
    if coded or maker is None:
        return None
    place = [name for name in maker.outputs if name].index(tensor)

    def hold(outputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        held = dequantize(quantize(outputs[place], trial), trial).astype(outputs[place].dtype)
        return (*outputs[:place], held, *outputs[place + 1 :])

    return {maker.name: hold}


class _Effects:
    """Sums up the errors of outputs, before and after, against the reference's where there is one."""

    def __init__(
        self,
        run: Recording,
        reference: Recording,
        pairs: _Pairs,
    ) -> None:
        self._run, self._reference, self._pairs = run, reference, pairs
        self._sums: dict[str, tuple[ErrorAccumulator, ErrorAccumulator]] = {}
        self.same: bool | None = None

    def add(self, place: tuple[int, int], before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> None:
        """Add the outputs of one sample."""
        for name in self._run.graph.outputs:
            if self._run.has(name, *place):
                equal = np.array_equal(self._run.load(name, *place), before[name])
                self.same = equal if self.same is None else self.same and equal
            source = self._pairs.get(name, (name, (None, None)))[0] if self._pairs else name
            holder = self._reference if self._pairs else self._run
            if not holder.has(source, *place):
                continue
            target = holder.load(source, *place)
            if name not in self._sums:
                known = holder.graph.tensors[source].quant, self._run.graph.tensors[name].quant
                self._sums[name] = tuple(  # type: ignore[assignment]
                    ErrorAccumulator(reference_quant=known[0], backend_quant=known[1]) for _ in range(2)
                )
            for accumulator, values in zip(self._sums[name], (before[name], after[name]), strict=True):
                accumulator.update(target, values.reshape(target.shape), sample=place[0])

    def outputs(self) -> tuple[OutputEffect, ...]:
        """Return the effect on each output."""
        against = "reference" if self._pairs else "recorded"
        return tuple(
            OutputEffect(output=name, now=now.stats(), trial=trial.stats(), against=against)
            for name, (now, trial) in self._sums.items()
        )

    def notes(self, *, coded: bool) -> Iterator[str]:
        """Say what the figures hold for: floats that differ in their last bits are no other arithmetic."""
        if self.same is False and coded:
            yield (
                "with the recorded scales the replay does not give the recorded outputs bit for bit: the backend has "
                "another arithmetic. Find it: qdebug explain BACKEND --write-arithmetic own.toml. Then add "
                "--arithmetic own.toml"
            )
        if not self._sums:
            yield "no output has recorded values to be held against"
