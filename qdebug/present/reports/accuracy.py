"""Accuracies and their history as documents: verdict, confidence and changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from qdebug.accuracy.report import AccuracyReport, Decision, Loss, Measure, PairAccuracy
from qdebug.accuracy.track import History, Movement
from qdebug.plural import plural
from qdebug.present import numbers
from qdebug.present.reports.document import Block, Document, FactList, Grid, Items, Title
from qdebug.present.text import safe_text

__all__ = ["accuracy_document", "history_document", "sparkline"]

_NAME_LIMIT = 40
_BARS = "▁▂▃▄▅▆▇█"
_RUNS_SHOWN = 30
_MOVEMENTS_SHOWN = 5
_STYLES = {Decision.WITHIN: "", Decision.WORSE: "bold red", Decision.UNDECIDED: "yellow"}


def accuracy_document(report: AccuracyReport) -> Document:
    """Return the report on accuracies."""
    names = list(dict.fromkeys(measure.name for run in report.runs for measure in run.measures))
    blocks: list[Block] = [_accuracy_title(report)]
    blocks.append(
        Grid(
            titles=("recording", "backend", "form", *(f"{safe_text(name)} (95 %)" for name in names), "rows"),
            rows=[
                (
                    safe_text(run.file, limit=_NAME_LIMIT),
                    safe_text(run.info.backend, limit=_NAME_LIMIT),
                    "quantized" if run.quantized else "float",
                    *(
                        _measure_text(next((measure for measure in run.measures if measure.name == name), None))
                        for name in names
                    ),
                    numbers.grouped(run.rows),
                )
                for run in report.runs
            ],
            right=frozenset({3 + len(names)}),
            names=frozenset({0}),
        )
    )
    if report.pairs:
        blocks.append(_losses_grid(report))
    blocks.append(Items.of(map(safe_text, report.notes)))
    blocks.append(Items.of((safe_text(shortcoming) for shortcoming in report.shortcomings), style="bold yellow"))
    return blocks


def _accuracy_title(report: AccuracyReport) -> Title:
    worse_losses, undecided_losses = report.losses(Decision.WORSE), report.losses(Decision.UNDECIDED)
    if worse_losses:
        pair, loss = max(worse_losses, key=lambda pair_and_loss: pair_and_loss[1].value)
        outcome = f"{safe_text(pair.backend.file)} loses {_amount_text(loss, loss.value)} of {safe_text(loss.name)}"
        return Title("WORSE", f"{outcome}; the margin is {_amount_text(loss, loss.margin)}", "bold red")
    if undecided_losses:
        needed = [loss.needed for _, loss in undecided_losses]
        known_counts = [count for count in needed if count is not None]
        are_all_known = len(known_counts) == len(needed)
        outcome = (
            f"{numbers.grouped(max(known_counts))} samples needed"
            if are_all_known
            else "more samples like these would not decide"
        )
        return Title(
            "NOT DECIDED",
            f"{len(undecided_losses)} of {_count_losses(report)} losses have the margin inside their interval: "
            f"{outcome}",
            "bold yellow",
        )
    if report.pairs:
        return Title("WITHIN", f"all {_count_losses(report)} losses are below their margins", "bold green")
    return Title("ACCURACY", "only one recording, so nothing to compare", "bold")


def _count_losses(report: AccuracyReport) -> int:
    return sum(len(pair.losses) for pair in report.pairs)


def _losses_grid(report: AccuracyReport) -> Grid:
    rows, styles = [], []
    for pair in report.pairs:
        for loss in pair.losses:
            rows.append(
                (
                    safe_text(pair.backend.file, limit=_NAME_LIMIT),
                    safe_text(pair.reference.file, limit=_NAME_LIMIT),
                    safe_text(loss.name, limit=_NAME_LIMIT),
                    _amount_text(loss, loss.value),
                    _interval_text(loss, loss.interval),
                    numbers.MISSING if loss.lost is None else f"{loss.lost} / {loss.won}",
                    *_rank_cells(pair, loss),
                    _decision_text(loss),
                )
            )
            styles.append(_STYLES[loss.decision])
    return Grid(
        titles=("recording", "against", "measure", "loss", "95 %", "lost / won", "agree", "rank", "verdict"),
        rows=rows,
        right=frozenset({3, 5, 6, 7}),
        names=frozenset({0, 1}),
        styles=styles,
    )


def _rank_cells(pair: PairAccuracy, loss: Loss) -> tuple[str, str]:
    if pair.agreement is None or loss is not pair.losses[0]:
        return numbers.MISSING, numbers.MISSING
    return numbers.percent(pair.agreement, 1.0), numbers.MISSING if pair.worst_rank is None else str(pair.worst_rank)


def _decision_text(loss: Loss) -> str:
    if loss.decision is not Decision.UNDECIDED:
        return str(loss.decision)
    if loss.needed is None:
        return "not decided"
    return f"not decided, {numbers.grouped(loss.needed)} samples needed"


def _amount_text(loss: Loss, value: float) -> str:
    return numbers.number(value, digits=4) if loss.lost is None else f"{100 * value:.2f} %"


def _interval_text(loss: Loss, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return numbers.MISSING
    low, high = interval
    if loss.lost is None:
        return f"{numbers.number(low)} to {numbers.number(high)}"
    return f"{100 * low:.2f} to {100 * high:.2f}"


def _measure_text(measure: Measure | None) -> str:
    if measure is None:
        return numbers.MISSING
    low, high = measure.interval or (math.nan, math.nan)
    if measure.right is None:
        ends = "" if measure.interval is None else f" ({numbers.number(low)} to {numbers.number(high)})"
        return f"{numbers.number(measure.value, digits=4)}{ends}"
    return f"{100 * measure.value:.2f} % ({100 * low:.1f} to {100 * high:.1f})"


def sparkline(values: Sequence[float | None]) -> str:
    """Return numbers as bars, with the smallest as the lowest and a blank for a missing one.

    Args:
        values: The numbers, oldest first. An infinite one gets the highest or the lowest bar.
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)

    def bar(value: float | None) -> str:
        if value is None or math.isnan(value):
            return " "
        if not math.isfinite(value) or low == high:
            return _BARS[0] if value == -math.inf else _BARS[-1]
        return _BARS[round((value - low) / (high - low) * (len(_BARS) - 1))]

    return "".join(map(bar, values[-_RUNS_SHOWN:]))


def history_document(history: History, *, everything: bool = False) -> Document:
    """Return the report on a history.

    Args:
        history: The history.
        everything: List unchanged numbers too.
    """
    runs = f"{history.runs} runs in {history.series} series" if history.runs != 1 else "1 run"
    worse_movements = history.worse
    blocks: list[Block] = []
    if worse_movements:
        count = plural(len(worse_movements), "result")
        blocks.append(
            Title("WORSE", f"{count} of {len(history.movements)} got worse by more than the margin; {runs}", "bold red")
        )
        blocks.append(
            FactList.of(fact for movement in worse_movements[:_MOVEMENTS_SHOWN] for fact in _blame_facts(movement))
        )
        hidden_count = len(worse_movements) - _MOVEMENTS_SHOWN
        blocks.append(
            Items.of([f"and {numbers.grouped(hidden_count)} more, see the table"] if hidden_count > 0 else [])
        )
    else:
        blocks.append(Title("STEADY", f"nothing got worse by more than its margin; {runs}", "bold green"))
    shown_movements = [movement for movement in history.movements if everything or movement.moved or not movement.name]
    options = {movement.backend for movement in history.movements}
    backend_counts = Counter(backend.partition(":")[0] for backend in options)
    blocks.append(
        Grid(
            titles=("from", "network", "backend", "what", "runs", "best", "last", "status"),
            rows=[
                (
                    movement.verb,
                    safe_text(movement.network, limit=_NAME_LIMIT),
                    safe_text(movement.backend if backend_counts[plain] > 1 else plain, limit=_NAME_LIMIT),
                    safe_text(f"{movement.name} {movement.measure}".strip(), limit=_NAME_LIMIT),
                    sparkline(movement.values),
                    _value_text(movement, movement.best),
                    _value_text(movement, movement.values[-1]),
                    "WORSE" if movement.worse else safe_text(movement.status),
                )
                for movement, plain in ((movement, movement.backend.partition(":")[0]) for movement in shown_movements)
            ],
            right=frozenset({5, 6}),
            names=frozenset({3}),
            styles=["bold red" if movement.worse else "" for movement in shown_movements],
        )
    )
    unchanged_count = len(history.movements) - len(shown_movements)
    blocks.append(
        Items.of(
            [f"{numbers.grouped(unchanged_count)} results did not change; --all lists them"] if unchanged_count else []
        )
    )
    blocks.append(Items.of([f"processors: {', '.join(cpus)}"] if len(cpus := _processors(history)) > 1 else []))
    return blocks


def _processors(history: History) -> list[str]:
    return list(dict.fromkeys(safe_text(movement.cpu, limit=_NAME_LIMIT) for movement in history.movements))


def _blame_facts(movement: Movement) -> Iterator[tuple[str, str]]:
    subject = f"node {movement.name!r}" if movement.name else movement.measure
    sentence = f"{subject} of {movement.network} on {movement.backend.partition(':')[0]}: {movement.why}"
    yield "worse", safe_text(sentence, limit=400)
    if movement.last_good is not None:
        good_commit, bad_commit = (_run_text(movement, at) for at in (movement.last_good, movement.last_good + 1))
        yield "", f"last good: {good_commit}; first bad: {bad_commit}"


def _run_text(movement: Movement, at: int) -> str:
    commit = movement.commits[at]
    return f"run {at + 1} of {len(movement.commits)}{f', commit {safe_text(commit)}' if commit else ''}"


def _value_text(movement: Movement, value: float | None) -> str:
    if value is None:
        return numbers.MISSING
    return f"{100 * value:.2f} %" if movement.measure.startswith("top-") else numbers.number(value, digits=4)
