"""Find where a backend rounds the results of float operators in float16 and bfloat16.

A network of one operator is run, and the placement that reproduces its output is searched as `explain` does. The
operator is judged as the network states it, whatever graph the backend made of it: if it is computed in float32 between
two conversions, it rounds its result once. A placement is named only if it also reproduces a second run, on other
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from qdebug.arithmetic.floats.search import PlacementFinding
from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.compare.explaining.placements import find_placement
from qdebug.errors import QdebugError, UsageError
from qdebug.model import MemoryRecording, Recording, RunInfo
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.numerics.short_formats import SHORT_FORMATS, is_exact_in
from qdebug.probe.models import SEED, ProbeModel
from qdebug.probe.rounding_models import ROUNDED_FORMATS, rounding_model

__all__ = ["ROUNDING_STATUSES", "RoundingEntry", "RunModel", "probe_rounding"]

ROUNDING_STATUSES = ("explained", "in_band", "unexplained", "not_run")
"""Answers for an operator in a format: see `RoundingEntry.status`."""
_STATUSES = {ExplainStatus.EXPLAINED: "explained", ExplainStatus.IN_BAND: "in_band"}
_SHORT_BY_NAME = {short.name: short for short in SHORT_FORMATS}
_PLACE = (0, 0)
_REASON_LENGTH = 160

RunModel = Callable[[ProbeModel], Mapping[str, np.ndarray]]
"""Runs a network, and returns its recorded results by their names in the network. Raises `QdebugError` if it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingEntry(JsonObject):
    """Where a backend rounds an operator in a 16-bit float format.

    Args:
        op: The operator, or a chain of operators of which the last is examined.
        short: The format of its operands and results.
        status: "explained" if a placement reproduces every element of two runs; "in_band" if none is named, but the
            result is within the rounding error of its sums; "unexplained"; "not_run" if the backend could not run it.
        placements: The placements that reproduce both runs, simplest first.
        words: The first placement in plain words, or None.
        confirmed: Whether the answer holds for a second run, on other numbers.
        elements: Number of elements that were compared, in both runs.
        reason: An error or a remark, or None.
    """

    json_keys = "op format=short status placement words confirmed placements elements reason"

    op: str
    short: str
    status: Annotated[str, SchemaPart(enum=[*ROUNDING_STATUSES])]
    placements: tuple[str, ...] = ()
    words: str | None = None
    confirmed: bool = False
    elements: int = 0
    reason: str | None = None

    @property
    def placement(self) -> str | None:
        """The first placement, as in an arithmetic file, or None."""
        return self.placements[0] if self.placements else None

    @property
    def title(self) -> str:
        """The operator and its format."""
        return f"{self.op} {self.short}"


def probe_rounding(op: str, short: str, run: RunModel) -> RoundingEntry:
    """Find where a backend rounds an operator.

    Args:
        op: One of `ROUNDED_OPS`.
        short: One of `ROUNDED_FORMATS`.
        run: Runs a network on the backend.

    Raises:
        UsageError: The backend has no such option.
    """
    entry = RoundingEntry(op=op, short=short, status="not_run")
    models = [rounding_model(op, short, seed=seed) for seed in (SEED, SEED + 1)]
    try:
        first_run, second_run = (_Run(model, run(model)) for model in models)
    except UsageError:
        raise
    except QdebugError as error:
        return replace(entry, reason=_shorten(error.message))
    entry = replace(entry, elements=first_run.result.size + second_run.result.size)
    first, second = first_run.find_placement(), second_run.find_placement()
    if first is None or second is None or first.named is None:
        return _explain_without_placement(entry, first_run, second_run)
    common = replace(first, fitting=tuple(each for each in first.fitting if each in second.fitting))
    if common.named is None:
        reason = f"{first.named} reproduces the first run, but not a second one on other numbers"
        return replace(entry, status="unexplained", reason=reason)
    placements = tuple(map(str, common.fitting))
    return replace(entry, status="explained", placements=placements, words=common.words, confirmed=True)


def _explain_without_placement(entry: RoundingEntry, first_run: _Run, second_run: _Run) -> RoundingEntry:
    """Return the answer of `explain` if no placement of roundings is named, such as sums in a short format."""
    first, second = first_run.explain(), second_run.explain()
    status = _STATUSES.get(first.status, "unexplained")
    confirmed = _STATUSES.get(second.status, "unexplained") == status and first.words == second.words
    if status == "explained" and not confirmed:
        status = "unexplained"
    words = first.words if status == "explained" else None
    reason = first_run.describe_fewer_bits() or (None if first.reason is None else _shorten(first.reason))
    return replace(entry, status=status, words=words, confirmed=confirmed and status == "explained", reason=reason)


def _shorten(text: str) -> str:
    """Return the first line of a text, cut off if it is long."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _REASON_LENGTH else f"{line[: _REASON_LENGTH - 3].rstrip()}..."


class _Run:
    """One run of a network: its inputs, constants and recorded results.

    Args:
        model: The network.
        results: Its recorded results by name.
    """

    def __init__(self, model: ProbeModel, results: Mapping[str, np.ndarray]) -> None:
        self._model, self._results = model, results
        (self._output,) = model.graph.outputs

    @property
    def result(self) -> np.ndarray:
        """The recorded output."""
        return self._results[self._output]

    def find_placement(self) -> PlacementFinding | None:
        """Return the placements that reproduce the output from the inputs of the network."""
        recording = self._as_recording({self._output: self.result})
        short = _SHORT_BY_NAME[self._model.kind]
        return find_placement(recording, self._model.graph.nodes[-1], self._output, [_PLACE], short)

    def describe_fewer_bits(self) -> str | None:
        """Return a remark if all elements of the output are representable with fewer bits, or None."""
        bits = _SHORT_BY_NAME[self._model.kind].bits
        for name in ROUNDED_FORMATS:
            short = _SHORT_BY_NAME[name]
            if short.bits < bits and is_exact_in(self.result.astype(np.float32), short):
                return f"all results are exactly representable in {name}"
        return None

    def explain(self) -> NodeExplanation:
        """Return what `explain` finds out about the last operator."""
        explanation = explain_recording(self._as_recording(self._results), tensors=[self._output])
        return next(node for node in explanation.nodes if node.tensor == self._output)

    def _as_recording(self, results: Mapping[str, np.ndarray]) -> Recording:
        arrays = {**self._model.constants, **self._model.feed, **results}
        return MemoryRecording(
            self._model.graph, {(name, *_PLACE): array for name, array in arrays.items()}, RunInfo(backend="probe")
        )
