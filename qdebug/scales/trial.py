"""Try a different scale on one tensor: its loss on the tensor, and its effect on the replayed outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, TypedDict

import numpy as np

from qdebug.arithmetic.arithmetic_file import find_arithmetic
from qdebug.backends.interpreter import backend as interpreter
from qdebug.compare.align.pairs import Match, Pair
from qdebug.compare.measure.pair_values import PairReader
from qdebug.compare.measure.recordings import as_compared, with_understood_graph
from qdebug.errors import KernelError, UsageError
from qdebug.model import Graph, QuantParams, Recording
from qdebug.model.dtypes import code_limits, is_integer
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.model.names import resolve_name
from qdebug.model.view import View
from qdebug.numerics.affine import dequantize, quantize
from qdebug.numerics.quant_error import QuantError
from qdebug.numerics.stats import ErrorStats
from qdebug.replay import Fault
from qdebug.scales.flags import coded_quant
from qdebug.scales.rescaled import RescaledRecording
from qdebug.scales.values import TensorValues, align_tensors

__all__ = ["OnSample", "OutputEffect", "Replay", "ScaleTrial", "TrialBench", "try_scale"]

OnSample = Callable[[int, int, str], object]
"""Progress callback: number of finished replays of a sample, their total, and the next sample."""


class OutputErrors(TypedDict):
    """A short form of the error of an output, see `ErrorStats`."""

    rel_l2: float | None
    sqnr_db: float | None
    max_abs: float | None
    cosine: float | None


class TensorErrors(TypedDict):
    """The losses on the values of a tensor with the parameters in use and with the tried ones."""

    now: QuantError | None
    trial: QuantError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEffect(JsonObject):
    """A network output with the recorded and with the tried scale.

    Args:
        output: Name of the output.
        now: Error of the replay with the recorded scales.
        trial: Error of the replay with the tried scale.
        against: What both replays are compared with: "reference" or "recorded".
    """

    json_keys = "output against now=errors_now trial=errors_trial"

    output: str
    now: ErrorStats
    trial: ErrorStats
    against: Annotated[str, SchemaPart(enum=["reference", "recorded"])]

    @property
    def errors_now(self) -> OutputErrors:
        """The error with the recorded scales, in short."""
        return _short_errors(self.now)

    @property
    def errors_trial(self) -> OutputErrors:
        """The error with the tried scale, in short."""
        return _short_errors(self.trial)


def _short_errors(stats: ErrorStats) -> OutputErrors:
    return {
        "rel_l2": stats.rel_l2,
        "sqnr_db": stats.sqnr_db,
        "max_abs": stats.max_abs,
        "cosine": stats.cosine,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The replayed outputs of the network.

    Args:
        outputs: Each output. Empty if the network could not be replayed.
        samples: Number of replayed samples.
        same: Whether the replay with the recorded scales equals the recorded outputs bit for bit, or None if unknown.
        arithmetic: Name of the arithmetic of the replay, or "".
        notes: Remarks.
        hint: The next command to run, as sentences, or "".
    """

    outputs: tuple[OutputEffect, ...] = ()
    samples: int = 0
    same: bool | None = None
    arithmetic: str = ""
    notes: tuple[str, ...] = ()
    hint: str = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, and the hint, if any."""
        return (*self.notes, self.hint) if self.hint else self.notes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTrial(JsonObject):
    """The effect of a different scale.

    Args:
        node: The node that computes the tensor, or the tensor itself for an input.
        tensor: The quantized tensor, under the name of its values.
        backend_tensor: The backend's codes of it, or "".
        now: The parameters in use, or None if the tensor is not quantized.
        trial: The tried parameters.
        now_error: Error of the tensor's values with the parameters in use, or None.
        trial_error: Exact error with the tried parameters.
        replay: The effect on the outputs.
    """

    json_format = "scale_trial"
    json_keys = (
        "node tensor backend_tensor|null now trial tensor_error outputs=replay.outputs "
        "replayed=replay.samples same_as_recorded=replay.same arithmetic=replay.arithmetic "
        "notes=replay.remarks"
    )

    node: str
    tensor: str
    backend_tensor: str
    now: QuantParams | None
    trial: QuantParams
    now_error: QuantError | None
    trial_error: QuantError
    replay: Replay

    @property
    def tensor_error(self) -> TensorErrors:
        """The losses on the tensor's values, as in the JSON."""
        return {"now": self.now_error, "trial": self.trial_error}


class TrialBench:
    """Tries several scales on one tensor. Everything that does not depend on the scale is computed once.

    Args:
        run: The run to replay, in normalized form: quantized, or a float run in which only this tensor is quantized.
        tensor: The tensor of the run.
        reference: The reference run, in normalized form, or None to compare replays with the recorded outputs.
        pairs: Pairs of tensors of both runs.
        arithmetic: The arithmetic of quantized nodes: a preset or a file. None for the interpreter's default.

    Raises:
        UsageError: The tensor's values are unknown, it has several scales, or there is no such arithmetic.

    Attributes:
        values: The values to quantize.
        now: The parameters in use, or None if the tensor is not quantized.
    """

    def __init__(
        self,
        run: Recording,
        tensor: str,
        *,
        reference: Recording | None = None,
        pairs: Sequence[Pair] = (),
        arithmetic: str | None = None,
    ) -> None:
        self.tensor, self._run = tensor, run
        pair = next((pair for pair in pairs if pair.backend == tensor), None)
        self.values = TensorValues(tensor, run)
        if reference is not None and pair is not None:
            self.values = TensorValues.of_pair(pair, reference)
        self.now = coded_quant(run.graph, tensor)
        reason = self.values.missing_reason()
        if reason is not None:
            raise UsageError(
                f"The values of {self.values.name!r} are not known: {reason}.", hint="Record it with --keep full."
            )
        if self.now is not None and self.now.scale.size > 1:
            raise UsageError(
                f"{tensor!r} has {self.now.scale.size} scales; only a tensor with one scale can be tried.",
                hint="Choose another.",
            )
        if arithmetic is not None:
            find_arithmetic(arithmetic)  # raise for an unknown name, which would later only prevent the replay
        self._options = {} if arithmetic is None else {"arithmetic": arithmetic}
        self._reference, self._pairs = reference, pairs
        self._pass_now: _ReplayPass | None = None

    @classmethod
    def of_tensor(cls, run: Recording, tensor: str, *, reference: Recording, pairs: Sequence[Pair]) -> TrialBench:
        """Return the bench for a compared tensor, or for the tensor with the codes of its values, if there is one.

        Args:
            run: The backend run.
            tensor: A tensor of the backend.
            reference: The reference run.
            pairs: Pairs of tensors of both runs.

        Raises:
            UsageError: See `TrialBench`.
        """
        reference_tensors = {pair.reference for pair in pairs if pair.backend == tensor}
        names_of_values = [tensor, *(pair.backend for pair in pairs if pair.reference in reference_tensors)]
        coded_names = [name for name in names_of_values if coded_quant(run.graph, name) is not None]
        return cls(run, (coded_names or names_of_values)[0], reference=reference, pairs=pairs)

    @property
    def node(self) -> str:
        """The node that computes the tensor, or the tensor itself for an input."""
        producer = self._run.graph.producer(self.tensor)
        return self.tensor if producer is None else producer.name

    def parameters(
        self,
        scale: float,
        zero_point: int = 0,
        *,
        qmin: int | None = None,
        qmax: int | None = None,
        dtype: str | None = None,
    ) -> QuantParams:
        """Return parameters to try.

        Args:
            scale: Real units per code, above 0.
            zero_point: The code of 0.
            qmin: Lowest code; by default as recorded, or the dtype's.
            qmax: Highest code; by default as recorded, or the dtype's.
            dtype: Dtype of the codes; by default as recorded, or int8.

        Raises:
            UsageError: The scale or the dtype is not valid, or the zero point is not a code.
        """
        float32_scale = float(np.float32(scale)) if abs(scale) <= float(np.finfo(np.float32).max) else math.inf
        if not (math.isfinite(float32_scale) and float32_scale > 0):
            raise UsageError(f"A scale of {scale:g} cannot represent values.", hint="Give a scale above 0: --scale S.")
        now = self.now
        kind = dtype or (now.dtype if now is not None else "int8")
        if not is_integer(kind):
            raise UsageError(f"Codes of {kind} have no scale to try.", hint="Give integer codes: --dtype int8.")
        if now is not None and now.dtype != kind:
            raise UsageError(
                f"The codes are {now.dtype}; nodes that compute on them do not accept {kind}.",
                hint=f"Try {kind} on the float run only: qdebug scales try REF --node NAME --scale S --dtype {kind}.",
            )
        quant = QuantParams(
            dtype=kind,
            scale=np.array(float32_scale, np.float32),
            zero_point=np.array(zero_point),
            qmin=now.qmin if qmin is None and now is not None else qmin,
            qmax=now.qmax if qmax is None and now is not None else qmax,
        )
        low, high = quant.qmin, quant.qmax
        if low is None or high is None or not low <= zero_point <= high:
            raise UsageError(f"The zero point {zero_point} is outside {low}..{high}.", hint="Give one of these codes.")
        return quant

    def trial(self, quant: QuantParams, progress: OnSample | None = None) -> ScaleTrial:
        """Return the effects of the given parameters.

        Args:
            quant: The parameters.
            progress: Progress callback.

        Raises:
            UsageError: Not all values of the tensor were recorded.
        """
        now_error, trial_error = self.values.errors([self.now, quant])
        if trial_error is None:
            raise UsageError(
                f"Only part of the values of {self.values.name!r} was kept.", hint="Record it with --keep full."
            )
        return ScaleTrial(
            node=self.node,
            tensor=self.values.name,
            backend_tensor=self.tensor if self._reference is not None else "",
            now=self.now,
            trial=quant,
            now_error=now_error,
            trial_error=trial_error,
            replay=self.replay(quant, progress),
        )

    def replay(self, quant: QuantParams, progress: OnSample | None = None) -> Replay:
        """Replay the network with the given parameters and, the first time, with those in use.

        If a replay is impossible, the result has no outputs, and a note with the reason.

        Args:
            quant: The parameters.
            progress: Called before each sample. It may raise to cancel the replay.
        """
        run, is_coded = self._run, self.now is not None
        if run.steps > 1:
            return _replay_without_outputs("a stateful network is not replayed")
        places = [place for place in run.places() if all(run.has(name, *place) for name in run.graph.inputs)]
        if not places:
            return _replay_without_outputs("the inputs of the network were not recorded")
        done_count, total = 0, len(places) * (1 if self._pass_now is not None else 2)

        def on_sample(sample: int) -> None:
            nonlocal done_count
            if progress is not None:
                progress(done_count, total, f"sample {sample}")
            done_count += 1

        try:
            if self._pass_now is None:
                self._pass_now = self._replay_all(run, places, on_sample)
            changed_run = RescaledRecording(run, self.tensor, quant) if is_coded else run
            pass_trial = self._replay_all(changed_run, places, on_sample, float_quant=None if is_coded else quant)
        except (UsageError, KernelError) as error:
            return _replay_without_outputs(error.message.rstrip("."))
        pass_now = self._pass_now
        against = "reference" if self._reference is not None else "recorded"
        return Replay(
            outputs=tuple(
                OutputEffect(output=name, now=pass_now.errors[name], trial=errors, against=against)
                for name, errors in pass_trial.errors.items()
            ),
            samples=len(places),
            same=pass_now.is_same,
            arithmetic=pass_now.arithmetic,
            notes=tuple(_replay_notes(pass_now, quant, is_coded=is_coded)),
            hint=_OTHER_ARITHMETIC if pass_now.is_same is False and is_coded else "",
        )

    def _replay_all(
        self,
        model: Recording,
        places: Sequence[tuple[int, int]],
        on_sample: Callable[[int], None],
        float_quant: QuantParams | None = None,
    ) -> _ReplayPass:
        """Replay all samples.

        Args:
            model: The graph and its constants.
            places: Sample and step of each.
            on_sample: Called with the next sample.
            float_quant: Quantization of the tensor if it is computed in float, or None.
        """
        run, outputs = self._run, _OutputErrors(self._run, self._reference, self._pairs)
        faults = None if float_quant is None else _quantizing_faults(run.graph, self.tensor, float_quant)
        with closing(interpreter.open(model, options=self._options, faults=faults)) as interpreter_run:
            for place in places:
                on_sample(place[0])
                feed = {name: run.load(name, *place) for name in run.graph.inputs}
                if float_quant is not None and self.tensor in feed:
                    feed[self.tensor] = _round_to_codes(feed[self.tensor], float_quant)
                outputs.add(place, interpreter_run.plain(feed))
            arithmetic = str(interpreter_run.facts.options.get("arithmetic", ""))
        return _ReplayPass(errors=outputs.errors(), is_same=outputs.is_same, arithmetic=arithmetic)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplayPass:
    errors: Mapping[str, ErrorStats]
    is_same: bool | None
    arithmetic: str


def _replay_without_outputs(reason: str) -> Replay:
    return Replay(notes=(f"no replay: {reason}",))


_OTHER_ARITHMETIC = (
    "Find its arithmetic: qdebug explain BACKEND --write-arithmetic own.toml. Then add --arithmetic own.toml"
)


def _replay_notes(pass_now: _ReplayPass, quant: QuantParams, *, is_coded: bool) -> Iterator[str]:
    """Yield notes about how reliable the replayed outputs are.

    A float replay gets no note if it differs from the recording, since its last bits may differ in any case.
    """
    if pass_now.is_same is False and is_coded:
        yield (
            "with the recorded scales the replay does not reproduce the recorded outputs bit for bit; the backend uses "
            "a different arithmetic"
        )
    if not pass_now.errors:
        yield "no output has recorded values to compare with"
    if is_coded and (quant.qmin, quant.qmax) != code_limits(quant.dtype):
        yield f"the replay saturates at the ends of {quant.dtype}, not at {quant.qmin}..{quant.qmax}"


def _round_to_codes(values: np.ndarray, quant: QuantParams) -> np.ndarray:
    return dequantize(quantize(values, quant), quant).astype(values.dtype)


def _quantizing_faults(graph: Graph, tensor: str, quant: QuantParams) -> dict[str, Fault] | None:
    """Return faults that quantize a float tensor at the node that produces it, or None for a graph input."""
    producer = graph.producer(tensor)
    if producer is None:
        return None
    position = [name for name in producer.outputs if name].index(tensor)

    def quantize_output(outputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        return (*outputs[:position], _round_to_codes(outputs[position], quant), *outputs[position + 1 :])

    return {producer.name: quantize_output}


class _ReplayedOutputs(View):
    """A run in which the latest replayed outputs replace the recorded ones."""

    outputs: Mapping[str, np.ndarray] = MappingProxyType({})

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return an output."""
        del sample, step
        return self.outputs[tensor]


class _OutputErrors:
    """Accumulates the errors of replayed outputs.

    Args:
        run: The replayed run.
        reference: The reference for its outputs, or None for the recorded ones.
        pairs: Pairs of tensors of both runs.
    """

    def __init__(self, run: Recording, reference: Recording | None, pairs: Sequence[Pair]) -> None:
        self._run, self._target, self._replayed_outputs = run, reference or run, _ReplayedOutputs(run)
        if reference is None:
            pairs = [Pair(reference=name, backend=name, match=Match.EXACT, reason="") for name in run.graph.outputs]
        output_pairs = [pair for pair in pairs if pair.backend in run.graph.outputs]
        readers = [PairReader(self._target, self._replayed_outputs, pair) for pair in output_pairs]
        self._readers = [
            (pair, reader, reader.accumulator()) for pair, reader in zip(output_pairs, readers, strict=True)
        ]
        self._names_with_values: set[str] = set()
        self.is_same: bool | None = None

    def add(self, place: tuple[int, int], outputs: Mapping[str, np.ndarray]) -> None:
        """Add the outputs of one sample."""
        self._replayed_outputs.outputs = outputs
        for name, array in outputs.items():
            if self._run.has(name, *place):
                self.is_same = self.is_same is not False and np.array_equal(self._run.load(name, *place), array)
        for pair, reader, accumulator in self._readers:
            if self._target.has(pair.reference, *place):
                accumulator.update(*reader.stored(*place), sample=place[0])
                self._names_with_values.add(pair.backend)

    def errors(self) -> dict[str, ErrorStats]:
        """Return the error of each output that has values to compare with."""
        return {
            pair.backend: sums.stats() for pair, _, sums in self._readers if pair.backend in self._names_with_values
        }


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
    progress: OnSample | None = None,
) -> ScaleTrial:
    """Return the effect of a different scale and zero point on one node's tensor and on the outputs.

    The error of the tensor is exact: the reference's values are rounded to the codes. The interpreter replays the
    outputs with the recorded and with the tried scale. Without a backend, the replay of the float network quantizes and
    dequantizes only this tensor.

    Args:
        reference: The values, ideally a recording of the float network, with its constants if there is no backend.
        backend: A recording of the quantized network, with its constants.
        node: A node, or a tensor, of the backend or the reference.
        scale: Real units per code, above 0.
        zero_point: The code of 0.
        qmin: Lowest code; None as in `TrialBench.parameters`.
        qmax: Highest code; None as in `TrialBench.parameters`.
        dtype: Dtype of the codes; None as in `TrialBench.parameters`.
        arithmetic: The arithmetic of quantized nodes: a preset or a file. None for the interpreter's default.
        progress: Progress callback.

    Raises:
        UsageError: There is no such node, it has no values or more than one scale, or the scale is not valid.
        AlignmentError: Reference and backend record different networks.
    """
    if backend is None:
        run = with_understood_graph(reference)
        bench = TrialBench(run, _find_tensor(node, run), arithmetic=arithmetic)
    else:
        run, reference_run = as_compared(backend), as_compared(reference)
        pairs = align_tensors(reference_run, run)
        tensor = _find_tensor(node, run, reference_run, pairs)
        bench = TrialBench(run, tensor, reference=reference_run, pairs=pairs, arithmetic=arithmetic)
    return bench.trial(bench.parameters(scale, zero_point, qmin=qmin, qmax=qmax, dtype=dtype), progress)


def _find_tensor(name: str, run: Recording, reference: Recording | None = None, pairs: Sequence[Pair] = ()) -> str:
    """Return the tensor of a run for the name of a node or tensor of either run, preferring codes over floats."""
    graph = run.graph
    tensors_of: dict[str, list[str]] = {}
    owners: dict[str, str] = {}
    paired_tensors = {pair.backend for pair in pairs}
    for node in graph.nodes:
        for tensor in filter(None, node.outputs):
            if reference is None or tensor in paired_tensors:
                _add_names(tensors_of, owners, node.name, tensor, (node.name, tensor))
    for tensor in graph.tensors:
        if tensor not in tensors_of and (reference is None or tensor in paired_tensors):
            _add_names(tensors_of, owners, tensor, tensor, (tensor,))
    if reference is not None:
        for pair in pairs:
            producer, own_producer = reference.graph.producer(pair.reference), graph.producer(pair.backend)
            names = (pair.reference, *((producer.name,) if producer else ()))
            _add_names(tensors_of, owners, own_producer.name if own_producer else pair.backend, pair.backend, names)
    found_name = resolve_name(
        name, owners, what="node or tensor with reference values", hint="List them: qdebug scales choose REF BACKEND."
    )
    return min(tensors_of[found_name], key=lambda tensor: coded_quant(graph, tensor) is None)


def _add_names(
    tensors_of: dict[str, list[str]], owners: dict[str, str], node: str, tensor: str, names: Iterable[str]
) -> None:
    """Add names of a tensor, with the node that computes it."""
    for name in names:
        tensors_of.setdefault(name, []).append(tensor)
        owners.setdefault(name, node)
