"""A repair as a document: the edits, their gain on searched and held-out samples, and their cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from qdebug.byte_size import byte_size
from qdebug.plural import plural
from qdebug.present import numbers
from qdebug.present.error_bars import bar
from qdebug.present.reports.document import Block, Document, FactList, Grid, Items, Title
from qdebug.present.text import safe_text
from qdebug.repair.edits import KINDS, Edit
from qdebug.repair.find import Repair
from qdebug.repair.search import Score
from qdebug.repair.sweep import FloatSweep

__all__ = ["EDIT_TITLES", "cost_words", "edit_cells", "faithful_words", "repair_document", "sweep_document"]

EDIT_TITLES = ("edit", "node", "op", "multiply-adds", "bytes")
"""Headings of `edit_cells`."""
_NAME_LIMIT = 48
_STUCK_SHOWN = 5
"""Maximum number of nodes that are named if they cannot be left in float."""
_BAR_WIDTH = 24
"""Length of the longest bar of a curve, in characters."""


def repair_document(repair: Repair) -> Document:
    """Return the report on a repair."""
    blocks: list[Block] = [_repair_title(repair), FactList.of(_repair_facts(repair))]
    if repair.edits:
        blocks.append(
            Grid(
                titles=EDIT_TITLES,
                rows=[edit_cells(edit) for edit in repair.edits],
                right=frozenset({3, 4}),
                names=frozenset({1}),
            )
        )
    blocks.append(Items.of(_repair_notes(repair)))
    return blocks


def _repair_title(repair: Repair) -> Title:
    name, goal = repair.metric.name, _value_text(repair, repair.goal)
    count = "1 edit brings" if len(repair.edits) == 1 else f"{len(repair.edits)} edits bring"
    if repair.refuted:
        reached = f"{name} is {_value_text(repair, repair.search.after)} on the samples used for the search"
        return Title("NOT PROVED", f"{reached}, but {' and '.join(_refutations(repair))}", "bold yellow")
    if repair.reached and not repair.edits:
        return Title("NOTHING TO DO", f"{name} is {_value_text(repair, repair.search.before)} already", "bold green")
    moved = f"{name} from {_value_text(repair, repair.search.before)} to {_value_text(repair, repair.search.after)}"
    if repair.reached:
        return Title("REPAIRED", f"{count} {moved}; the goal is {goal}", "bold green")
    return Title("NOT REACHED", f"{count} {moved}, short of the goal of {goal}", "bold red")


def _refutations(repair: Repair) -> Iterator[str]:
    """Yield clauses on the evidence that contradicts a repair."""
    goal = _value_text(repair, repair.goal)
    for name, condition in (("held out", "on the samples held out"), ("model run", "when the changed model is run")):
        score = repair.proofs.get(name)
        if name in repair.refuted and score is not None:
            yield f"{_value_text(repair, score.after)} {condition} (goal {_value_text(repair, repair.goal_of(score))})"
        elif name in repair.refuted:
            yield "not known for the changed model"
    if "replay" in repair.refuted:
        yield f"the replay reproduces the backend to only {_value_text(repair, repair.faithful)} (goal {goal})"


def _repair_facts(repair: Repair) -> Iterator[tuple[str, str]]:
    yield "searched", _score_text(repair, repair.search)
    if repair.held_out is not None:
        yield "held out", _score_text(repair, repair.held_out)
    if repair.proof is not None:
        yield "model run", _score_text(repair, repair.proof)
    if repair.edits:
        yield "cost", cost_words(repair.edits)
    same = faithful_words(repair.faithful)
    if repair.replayed is not None:
        same += f"; {repair.metric.name} is {_value_text(repair, repair.replayed)} in that replay, recorded"
        same += f" {_value_text(repair, repair.search.before)}"
    yield "replay", f"{repair.replays} sets of edits tried (arithmetic: {safe_text(repair.arithmetic)}); {same}"


def edit_cells(edit: Edit) -> tuple[str, ...]:
    """Return an edit and its cost as texts, in the order of `EDIT_TITLES`."""
    return (
        edit.kind,
        safe_text(edit.unit.node.name, limit=_NAME_LIMIT),
        safe_text(edit.unit.node.op, limit=_NAME_LIMIT),
        numbers.percent(edit.macs, 1.0) if edit.macs else "0",
        numbers.grouped(edit.size),
    )


def cost_words(edits: Sequence[Edit]) -> str:
    """Return the combined cost of all edits, in words."""
    share = numbers.percent(min(1.0, sum(edit.macs for edit in edits)), 1.0)
    size = byte_size(sum(edit.size for edit in edits))
    return f"{share} of the multiply-adds in float, {size}"


def faithful_words(sqnr_db: float) -> str:
    """Return a clause on how close a replay without edits is to the recorded outputs.

    Args:
        sqnr_db: As returned by `measure_fidelity` in `qdebug.repair.find`.
    """
    same = "reproduces the recorded outputs of the first sample bit for bit"
    if math.isnan(sqnr_db):
        same = "cannot be checked: a node outside all edits cannot be computed, or no output was recorded"
    elif sqnr_db == -math.inf:
        same = "differs from the recorded outputs of the first sample, which are zero or not finite"
    elif math.isfinite(sqnr_db):
        near = numbers.number(sqnr_db)
        same = (
            f"reproduces the recorded outputs of the first sample to {near} dB; a gain may partly come from the replay"
        )
    return f"without edits the replay {same}"


def _score_text(repair: Repair, score: Score) -> str:
    text = f"{_value_text(repair, score.before)} before, {_value_text(repair, score.after)} after"
    if math.isfinite(score.reference):
        text += f", {_value_text(repair, score.reference)} in the reference"
    samples = plural(score.samples, "sample")
    if score.interval is not None:
        low, high = (_value_text(repair, end) for end in score.interval)
        text += f"; 95 % confidence {low} to {high}"
    return f"{samples}: {text}"


def _value_text(result: Repair | FloatSweep, value: float) -> str:
    return f"{numbers.number(value, digits=4)} {result.metric.unit}".rstrip()


def sweep_document(sweep: FloatSweep) -> Document:
    """Return the report on layers left in float: the metric and the cost for each number of layers."""
    values = [count.score.after for count in sweep.counts]
    finite = [value for value in values if math.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    lengths = [
        0.0 if math.isnan(value) or high == low else (min(max(value, low), high) - low) / (high - low)
        for value in values
    ]
    rows = [
        (
            str(count.layers),
            _value_text(sweep, value),
            bar(length, _BAR_WIDTH),
            safe_text(count.node, limit=_NAME_LIMIT),
            safe_text(count.op, limit=_NAME_LIMIT),
            numbers.percent(min(count.macs, 1.0), 1.0) if count.macs else "0",
            numbers.grouped(count.size),
        )
        for count, value, length in zip(sweep.counts, values, lengths, strict=True)
    ]
    titles = ("in float", sweep.metric.name, "", "added node", "op", "multiply-adds", "bytes")
    return [
        _sweep_title(sweep),
        FactList.of(_sweep_facts(sweep)),
        Grid(titles=titles, rows=rows, right=frozenset({0, 1, 5, 6}), names=frozenset({3})),
        Items.of(_sweep_notes(sweep)),
    ]


def _sweep_title(sweep: FloatSweep) -> Title:
    name, goal, measured = sweep.metric.name, _value_text(sweep, sweep.goal), sweep.counts
    if sweep.enough is None:
        best = max(measured, key=lambda count: -math.inf if math.isnan(count.score.after) else count.score.after)
        reached = f"at most {_value_text(sweep, best.score.after)}, with {_layers_text(sweep, best.layers)} in float"
        return Title("NOT REACHED", f"{name} is {reached}; the goal is {goal}", "bold red")
    value = _value_text(sweep, measured[sweep.enough].score.after)
    if not sweep.proved:
        text = f"the replay has {name} {value} with {_layers_text(sweep, sweep.enough)} in float, but without edits it"
        return Title("NOT PROVED", f"{text} differs from the backend by more than the goal of {goal}", "bold yellow")
    if not sweep.enough:
        return Title("NOTHING TO DO", f"{name} is {value} with no layer in float; the goal is {goal}", "bold green")
    verb = "brings" if sweep.enough == 1 else "bring"
    text = f"{_layers_text(sweep, sweep.enough)} in float {verb} {name} to {value}; the goal is {goal}"
    return Title("REACHED", text, "bold green")


def _layers_text(sweep: FloatSweep, count: int) -> str:
    if count <= 1:
        return f"the {sweep.end} layer" if count else "no layer"
    return f"the {sweep.end} {plural(count, 'layer')}"


def _sweep_facts(sweep: FloatSweep) -> Iterator[tuple[str, str]]:
    first, last = sweep.counts[0].score, sweep.counts[-1].score
    recorded = (
        f"{plural(first.samples, 'sample')}: {sweep.metric.name} is {_value_text(sweep, first.before)} as recorded"
    )
    if math.isfinite(first.reference):
        recorded += f", {_value_text(sweep, first.reference)} in the reference"
    yield "outputs", recorded
    if last.interval is not None:
        low, high = (_value_text(sweep, end) for end in last.interval)
        yield "confidence", f"95 % {low} to {high} with {_layers_text(sweep, sweep.counts[-1].layers)} in float"
    yield "layers", f"{plural(sweep.layers, 'node')} on codes can be left in float"
    yield "replay", f"arithmetic: {safe_text(sweep.arithmetic)}; {faithful_words(sweep.fidelity_db)}"


def _sweep_notes(sweep: FloatSweep) -> Iterator[str]:
    for before, after in itertools.pairwise(sweep.counts):
        if after.score.after < before.score.after:
            change = f"{_value_text(sweep, before.score.after)} to {_value_text(sweep, after.score.after)}"
            yield f"{safe_text(after.node, limit=_NAME_LIMIT)!r} in float makes the outputs worse: {change}"
    if sweep.stuck:
        names = ", ".join(repr(safe_text(name, limit=_NAME_LIMIT)) for name in sweep.stuck[:_STUCK_SHOWN])
        more = f" and {len(sweep.stuck) - _STUCK_SHOWN} more" if len(sweep.stuck) > _STUCK_SHOWN else ""
        yield f"always on codes, because the reference's weights for them are unknown: {names}{more}"
    if not sweep.proved:
        yield "find out where the backend and the replay differ: qdebug explain"
    if sweep.stopped:
        yield f"the sweep ended early: {safe_text(sweep.stopped)}"


def _repair_notes(repair: Repair) -> Iterator[str]:
    for kind in dict.fromkeys(edit.kind for edit in repair.edits):
        yield f"{kind}: {KINDS[kind]}"
    if repair.edits and repair.minimal:
        yield "every edit is needed: without any of them the goal is missed"
    if repair.stopped:
        yield f"the search ended early: {safe_text(repair.stopped)}"
    elif not repair.reached:
        yield "no further allowed edit brings the outputs closer to the goal"
    if "held out" in repair.refuted:
        yield "the goal is missed on the held-out samples; record more samples and search again"
    if "replay" in repair.refuted:
        yield "the backend differs from the replay; run the changed model with --write-model to prove the repair"
    if repair.refuted == ("model run",) and not repair.failed:
        yield "the changed model differs from the replay; see `qdebug explain` and --arithmetic"
    yield from map(safe_text, repair.notes)
