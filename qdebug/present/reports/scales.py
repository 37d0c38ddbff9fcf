"""Reports on profiles, chosen scales and trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from qdebug.model import QuantParams
from qdebug.numerics.calibration import RANGE_ALONE
from qdebug.numerics.quant_error import QuantError
from qdebug.numerics.stats import ErrorStats
from qdebug.plural import plural
from qdebug.present import numbers
from qdebug.present.reports.document import Block, Document, FactList, Grid, Item, Items, Title
from qdebug.present.text import safe_text
from qdebug.recording.scale_profile import ScaleProfile
from qdebug.scales.choose import WRONG_KINDS, ChosenScales, ScaleChoice, ScaleRow
from qdebug.scales.flags import ScaleFlag
from qdebug.scales.trial import OutputEffect, ScaleTrial

__all__ = [
    "choose_document",
    "output_error",
    "output_rows",
    "profile_document",
    "row_document",
    "trial_document",
    "trial_rows",
]

_PROFILE_TITLES = ("tensor", "op", "values", "min", "max", "zeros", "bins")
_NODE_TITLES = ("calibrator", "scale", "zero point", "clipped", "MSE", "SQNR dB", "how")
_FLAGS_SHOWN = 20
_NAME_LIMIT, _REASON_LIMIT = 40, 400


def _scale_text(quant: QuantParams | None) -> str:
    if quant is None:
        return numbers.MISSING
    if quant.scale.size > 1:
        return f"{quant.scale.size} scales"
    return numbers.number(float(quant.scale.ravel()[0]), digits=5)


def _zero_point_text(quant: QuantParams | None) -> str:
    return (
        numbers.MISSING
        if quant is None
        else numbers.values([int(zero_point) for zero_point in quant.zero_point.ravel()], max_listed=1)
    )


def _sqnr_text(error: QuantError | None) -> str:
    if error is None:
        return numbers.MISSING
    text = numbers.number(error.sqnr_db)
    return text if error.exact else f"~{text}"


def _clipped_text(error: QuantError | None) -> str:
    if error is None:
        return numbers.MISSING
    return numbers.percent(error.clipped_low + error.clipped_high, error.total)


# -- profile -----------------------------------------------------------------------------------------------------------


def _profile_rows(profile: ScaleProfile) -> list[tuple[str, ...]]:
    return [
        (
            safe_text(tensor.name, limit=_NAME_LIMIT),
            safe_text(tensor.op or "input", limit=_NAME_LIMIT),
            numbers.grouped(tensor.histogram.total),
            numbers.number(tensor.histogram.low, digits=4),
            numbers.number(tensor.histogram.high, digits=4),
            numbers.percent(tensor.histogram.zeros, tensor.histogram.total),
            str(tensor.histogram.counts.size),
        )
        for tensor in profile.tensors.values()
    ]


def _profile_facts(profile: ScaleProfile) -> list[tuple[str, str]]:
    samples = sum(int(run["samples"]) for run in profile.runs)
    backends = ", ".join(dict.fromkeys(safe_text(run["backend"]) for run in profile.runs))
    facts = [("profile", f"{len(profile.tensors)} tensors, {samples} samples, {len(profile.runs)} runs ({backends})")]
    nonfinite = [
        tensor.name for tensor in profile.tensors.values() if tensor.histogram.nan or tensor.histogram.infinite
    ]
    if nonfinite:
        facts.append(
            (
                "nonfinite",
                f"{len(nonfinite)} tensors have NaN or infinite values, first {safe_text(nonfinite[0])!r}",
            )
        )
    coarse = sum(tensor.histogram.coarse for tensor in profile.tensors.values())
    if coarse:
        facts.append(("statistics", f"{coarse} tensors have statistics only; {RANGE_ALONE}"))
    if profile.left_out:
        name, why = next(iter(profile.left_out.items()))
        others_text = f" and {len(profile.left_out) - 1} more" if len(profile.left_out) > 1 else ""
        facts.append(("left out", f"{safe_text(name)!r}{others_text}: {safe_text(why)}"))
    return facts


def profile_document(profile: ScaleProfile) -> Document:
    """Make the report on a profile."""
    grid = Grid(titles=_PROFILE_TITLES, rows=_profile_rows(profile), right=frozenset(range(2, 7)), names=frozenset({0}))
    return [FactList.of(_profile_facts(profile)), grid]


# -- choose ------------------------------------------------------------------------------------------------------------


def _choice_titles(scales: ChosenScales) -> tuple[str, ...]:
    names = [choice.calibrator for choice in scales.rows[0].choices]
    return ("tensor", "recorded scale", "zero", "clipped", "dB", *names, "best")


def _choice_cells(scales: ChosenScales) -> list[tuple[str, ...]]:
    rows = []
    for row in sorted(scales.rows, key=_gain, reverse=True):
        quant = None if row.recorded is None else row.recorded.quant
        error = None if row.recorded is None else row.recorded.error
        rows.append(
            (
                safe_text(row.backend_tensor or row.tensor, limit=_NAME_LIMIT),
                _scale_text(quant),
                _zero_point_text(quant),
                _clipped_text(error),
                _sqnr_text(error),
                *(_sqnr_text(choice.error) for choice in row.choices),
                row.best or numbers.MISSING,
            )
        )
    return rows


def _gain(row: ScaleRow) -> float:
    """Return how many dB the best choice gains over the recorded scale, or 0 if that is unknown."""
    choice = next((choice for choice in row.choices if choice.calibrator == row.best), None)
    errors = [
        candidate.error for candidate in (choice, row.recorded) if candidate is not None and candidate.error is not None
    ]
    if len(errors) < 2 or not (math.isfinite(errors[0].sqnr_db) and math.isfinite(errors[1].sqnr_db)):
        return 0.0
    return errors[0].sqnr_db - errors[1].sqnr_db


def _headline(scales: ChosenScales) -> tuple[str, str, str]:
    """Return the title's word, its style and the sentence."""
    wrong_flags = [flag for flag in scales.flags if flag.kind in WRONG_KINDS]
    word, style = ("WRONG SCALES", "bold red") if wrong_flags else ("SCALES", "bold green")
    kinds = Counter(flag.kind for flag in scales.flags)
    flags_text = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing odd"
    return word, style, f"{len(scales.rows)} tensors; {flags_text}"


def _flag_line(flag: ScaleFlag) -> str:
    subject = safe_text(flag.node or flag.tensor, limit=_NAME_LIMIT)
    return f"{flag.kind}  {subject}: {safe_text(flag.sentence, limit=_REASON_LIMIT)}"


def _flag_items(flags: Sequence[ScaleFlag], *, everything: bool) -> Items:
    """List the flags, mistakes first. If there are many, list only the first ones unless `everything` is set."""
    ordered = sorted(flags, key=lambda flag: flag.kind not in WRONG_KINDS)
    shown_flags = ordered if everything else ordered[:_FLAGS_SHOWN]
    items = [Item(_flag_line(flag), style="red" if flag.kind in WRONG_KINDS else "") for flag in shown_flags]
    if len(shown_flags) < len(ordered):
        items.append(Item(f"... and {len(ordered) - len(shown_flags)} more: --all", style="dim"))
    return Items(items)


def _choice_notes(scales: ChosenScales) -> list[str]:
    notes = [safe_text(note, limit=_REASON_LIMIT) for note in scales.notes]
    if scales.left_out:
        name, why = next(iter(scales.left_out.items()))
        notes.append(f"left out {len(scales.left_out)}, first {safe_text(name)!r}: {safe_text(why)}")
    scheme = scales.scheme
    other_schemes = Counter(row.scheme for row in scales.rows if not row.weight and row.scheme != scheme.kind)
    others_text = "".join(f", {kind} for {plural(count, 'tensor')}" for kind, count in other_schemes.items())
    notes.append(
        f"columns: SQNR in dB of the values with each choice ({scheme.kind}{others_text}, rule {scheme.rule}); "
        "scales of each: --node NAME, or --json"
    )
    return notes


def choose_document(chosen: ChosenScales, *, everything: bool = False) -> Document:
    """Make the report on chosen scales: flags, then tensors, those with the most to gain first.

    Args:
        chosen: The scales to show.
        everything: List all flags, not only the first.
    """
    word, style, sentence = _headline(chosen)
    titles = _choice_titles(chosen)
    right = frozenset(range(1, len(titles) - 1))
    return [
        Title(word, sentence, style),
        _flag_items(chosen.flags, everything=everything),
        Grid(titles=titles, rows=_choice_cells(chosen), right=right, names=frozenset({0})),
        Items.of(_choice_notes(chosen), style="dim"),
    ]


def _row_facts(row: ScaleRow) -> list[tuple[str, str]]:
    ends = f"{numbers.number(row.low, digits=5)} to {numbers.number(row.high, digits=5)}"
    return [
        ("tensor", safe_text(row.tensor) + (f", codes {safe_text(row.backend_tensor)}" if row.backend_tensor else "")),
        ("node", f"{safe_text(row.node)} ({safe_text(row.op)})" if row.node else "an input"),
        ("values", f"{numbers.grouped(row.count)} from {ends}"),
        ("codes", f"{row.dtype}, {row.scheme}" + (f", a scale for each {row.granularity}" if row.weight else "")),
    ]


def _row_cells(row: ScaleRow) -> list[tuple[str, ...]]:
    choices: list[ScaleChoice] = [*([row.recorded] if row.recorded is not None else []), *row.choices]
    return [
        (
            f"{choice.calibrator}{' *' if choice.calibrator == row.best else ''}",
            _scale_text(choice.quant),
            _zero_point_text(choice.quant),
            _clipped_text(choice.error),
            numbers.number(None if choice.error is None else choice.error.mse),
            _sqnr_text(choice.error),
            safe_text(choice.reason, limit=_REASON_LIMIT),
        )
        for choice in choices
    ]


def row_document(row: ScaleRow) -> Document:
    """Make the report on one tensor: every choice with its scale, zero point and error. A star marks the best."""
    grid = Grid(titles=_NODE_TITLES, rows=_row_cells(row), right=frozenset(range(1, 6)))
    return [FactList.of(_row_facts(row)), grid, _flag_items(row.flags, everything=True)]


# -- try ---------------------------------------------------------------------------------------------------------------


def trial_rows(
    quants: tuple[QuantParams | None, QuantParams | None],
    errors: tuple[QuantError | None, QuantError | None],
    outputs: Sequence[OutputEffect] = (),
) -> list[tuple[str, str, str]]:
    """Return the effect of current and of trial parameters, side by side: label, now, trial. A ~ marks estimates.

    Args:
        quants: The current and the trial parameters, or None.
        errors: Their quantization errors on the tensor's values, or None if unknown.
        outputs: The effect on the network's outputs.
    """

    def quant_row(label: str, to_text: Callable[[QuantParams | None], str]) -> tuple[str, str, str]:
        return label, to_text(quants[0]), to_text(quants[1])

    def error_row(label: str, to_text: Callable[[QuantError], str]) -> tuple[str, str, str]:
        now, trial = (
            numbers.MISSING if error is None else f"{'' if error.exact else '~'}{to_text(error)}" for error in errors
        )
        return label, now, trial

    rows = [
        quant_row("scale", _scale_text),
        quant_row("zero point", _zero_point_text),
        quant_row("codes", _codes_text),
        error_row(
            "clipped",
            lambda error: f"{numbers.grouped(error.clipped_low + error.clipped_high)} ({_clipped_text(error)})",
        ),
        error_row("MSE", lambda error: numbers.number(error.mse)),
        error_row("SQNR dB of codes", lambda error: numbers.number(error.sqnr_db)),
        error_row("span of codes", lambda error: numbers.grouped(error.used_codes)),
    ]
    return [*rows, *output_rows(outputs)]


def output_rows(outputs: Sequence[OutputEffect]) -> list[tuple[str, str, str]]:
    """Return the effect on the outputs, side by side: label, now, trial."""
    return [
        (
            f"output {safe_text(output.output, limit=_NAME_LIMIT)} rel L2",
            output_error(output.now),
            output_error(output.trial),
        )
        for output in outputs
    ]


def _codes_text(quant: QuantParams | None) -> str:
    return numbers.MISSING if quant is None else f"{quant.dtype} {quant.qmin}..{quant.qmax}"


def output_error(stats: ErrorStats) -> str:
    """Return the error of an output as text: relative, and as SQNR."""
    return f"{numbers.number(stats.rel_l2)} ({numbers.number(stats.sqnr_db)} dB)"


_TRIAL_TITLES = ("", "now", "trial")


def _trial_facts(trial: ScaleTrial) -> list[tuple[str, str]]:
    codes = f", codes {safe_text(trial.backend_tensor)}" if trial.backend_tensor else ""
    facts = [("node", safe_text(trial.node)), ("tensor", f"{safe_text(trial.tensor)}{codes}")]
    replay = trial.replay
    if replay.samples:
        against = replay.outputs[0].against if replay.outputs else "nothing"
        replay_text = (
            f"{replay.samples} samples, arithmetic {safe_text(replay.arithmetic)}; outputs compared with "
            f"the {against} outputs"
        )
        facts.append(("replay", replay_text))
    return facts


def trial_document(trial: ScaleTrial) -> Document:
    """Make the report on a trial."""
    blocks: list[Block] = [FactList.of(_trial_facts(trial))]
    rows = trial_rows((trial.now, trial.trial), (trial.now_error, trial.trial_error), trial.replay.outputs)
    blocks.append(Grid(titles=_TRIAL_TITLES, rows=rows, right=frozenset({1, 2})))
    return [*blocks, Items.of([safe_text(note, limit=_REASON_LIMIT) for note in trial.replay.remarks], style="yellow")]
