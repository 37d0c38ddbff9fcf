"""Answers to what a scale would do: estimated from a histogram at once, exact and on the whole network after."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from qdebug.errors import QdebugError
from qdebug.numerics.calibration import calibrator_named
from qdebug.numerics.scheme import SCHEMES, QuantScheme
from qdebug.tui.elements.summing import Cancelled
from qdebug.tui.reading.answers import check_unchanged
from qdebug.tui.reading.messages import TrialReady, TrialRequest
from qdebug.workflow.scales_choose import DEFAULT_CALIBRATORS, ScaleChoice, choose_range, with_codes_of
from qdebug.workflow.scales_try import TrialBench

if TYPE_CHECKING:
    from qdebug.model import QuantParams
    from qdebug.numerics.quant_error import QuantError
    from qdebug.numerics.range_histogram import RangeHistogram
    from qdebug.session import DiffSession

__all__ = ["TrialFacts", "Trials"]

_OFTEN = 0.1
"""Seconds after which is told how far a replay is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """What is known of a tensor whose scale is tried, whatever the scale.

    Args:
        bench: Checks parameters; nothing else of it may be used on another thread than the reader's.
        values: The tensor that the values are of.
        histogram: The values.
        now_error: What the parameters in use lose, exactly; None without, or not known yet.
        choices: What each calibrator chooses, by scheme; empty until they are asked.
    """

    bench: TrialBench
    values: str
    histogram: RangeHistogram
    now_error: QuantError | None = None
    choices: Mapping[str, tuple[ScaleChoice, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def now(self) -> QuantParams | None:
        """The parameters in use; None if the tensor is not quantized."""
        return self.bench.now


class Trials:
    """Answers on the reader thread, and keeps what is known of the tensor that was tried last.

    Args:
        post: Takes each part of an answer.
    """

    def __init__(self, post: Callable[[TrialReady], object]) -> None:
        self._post = post
        self._key: tuple[DiffSession, str] | None = None
        self._facts: TrialFacts | None = None

    def answer(
        self,
        source: DiffSession,
        request: TrialRequest,
        outdated: Callable[[], bool],
        *,
        changed: Callable[[], str] | None = None,
    ) -> None:
        """Answer in parts, the quick ones first.

        Args:
            source: The comparison.
            request: What was asked.
            outdated: Tells whether something newer was asked.
            changed: Says which file is no longer what was opened; "" if all are. None if they may change.

        Raises:
            Cancelled: Nobody waits for the rest any more.
        """
        ready = TrialReady(request=request)
        try:
            check_unchanged(changed)
            facts = self._facts_of(source, request)
            ready = replace(ready, facts=facts)
            if request.quant is not None:
                (error,) = facts.bench.values.errors([request.quant])
                ready = replace(ready, error=error)
                self._post(ready)
                if request.replay:
                    self._replay(ready, facts.bench, request.quant, outdated)
        except (QdebugError, ValueError, TypeError, MemoryError) as error:
            self._post(replace(ready, problem=error.message if isinstance(error, QdebugError) else str(error)))

    def _facts_of(self, source: DiffSession, request: TrialRequest) -> TrialFacts:
        """Return all that is known of a tensor; tell the parts of it that come first.

        Raises:
            UsageError: Nothing can be tried on it.
        """
        key, facts = (source, request.tensor), self._facts
        if facts is None or self._key != key:
            self._facts = None
            bench = TrialBench.of_tensor(
                source.backend, request.tensor, reference=source.reference, pairs=source.alignment.pairs
            )
            facts = TrialFacts(bench=bench, values=bench.values.name, histogram=bench.values.histogram)
            self._key, self._facts = key, facts
        if not facts.choices:
            self._post(TrialReady(request=request, facts=facts))
            (now_error,) = facts.bench.values.errors([facts.now])
            facts = self._facts = replace(facts, now_error=now_error, choices=_choices(facts))
        self._post(TrialReady(request=request, facts=facts))
        return facts

    def _replay(self, ready: TrialReady, bench: TrialBench, quant: QuantParams, outdated: Callable[[], bool]) -> None:
        told = 0.0

        def progress(done: int, total: int, _: str) -> None:
            nonlocal told
            if outdated():
                raise Cancelled
            if time.monotonic() - told > _OFTEN:
                told = time.monotonic()
                self._post(replace(ready, replayed=(done, total)))

        self._post(replace(ready, replay=bench.replay(quant, progress)))


def _choices(facts: TrialFacts) -> Mapping[str, tuple[ScaleChoice, ...]]:
    asked = [calibrator_named(name) for name in DEFAULT_CALIBRATORS]
    found = {}
    for kind in SCHEMES:
        scheme = with_codes_of(facts.now, QuantScheme(kind=kind))
        found[kind] = tuple(choose_range(each, facts.histogram, scheme) for each in asked)
    return MappingProxyType(found)
