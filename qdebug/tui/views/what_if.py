"""A trial scale for the tensor under the cursor: its loss, and the network's outputs with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from rich.cells import cell_len
from textual.binding import Binding, BindingType

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.quant_error import QuantError, estimate_error
from qdebug.numerics.range_histogram import RangeHistogram
from qdebug.numerics.scheme import SCHEMES
from qdebug.present import numbers
from qdebug.present.text import safe_text
from qdebug.tui.drawing.draw import area, bars
from qdebug.tui.drawing.look import Look
from qdebug.tui.reading.facts import TrialFacts
from qdebug.tui.reading.messages import ScaleWish, TrialReady, worst_first_key
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import DrawnView, Line, Scene, Target, heading, paragraph

if TYPE_CHECKING:
    from qdebug.scales.trial import Replay

__all__ = ["WhatIfView"]

_LABEL_WIDTH, _SIDE_WIDTH = 22, 24
_OPTIONAL_LINES = ("codes", "span of codes", "MSE", "clipped")
"""Lines of the table that are left out if there is not enough room, in this order."""
_STEPS_OF_2 = 64
"""Number of steps of the scale between two powers of two; one step is about 1.1 %."""
_MAX_STEPS = 32 * _STEPS_OF_2
_MAX_PLOT_LINES, _LINES_BELOW_PLOT = 8, 3
"""Maximum number of histogram lines, and the number of lines below them: both ranges, and the values at the ends."""
_SWEEP_OCTAVES, _SWEEP_SCALES = 3, 28
"""Octaves of the curve to either side of the trial, and its number of scales besides the trial, for any width."""
_FIELDS = ("scale", "zero point", "calibrator", "scheme")
_PAGE_STEPS = 8
"""Number of steps per page key."""
_FIRST_CHOICE_FIELD = 2
"""Index of the first field that the calibrators fill in."""
_CALIBRATING_TEXT = "the calibrators are being asked .."


class WhatIfView(DrawnView):
    """A trial scale and zero point next to the current ones. Their loss is first estimated, then computed exactly."""

    view = ScreenId.WHAT_IF
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "screen.open", "replay", tooltip="replay the net with the trial, or cancel the replay"),
        Binding("r", "reset", "reset", tooltip="reset to what was recorded"),
        Binding("pageup,ctrl+u", "step(1)", "8 steps", tooltip="8 steps up"),
        Binding("pagedown,ctrl+d", "step(-1)", show=False, tooltip="8 steps down"),
        Binding("v", "screen.form", "edits", tooltip="edits of the node"),
    ]

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._tensor_key: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self._field = 0
        self._labels_by_line: dict[int, str] = {}
        self._base_quant: QuantParams | None = None
        self._note = ""
        self._scale_steps = self._zero_point_steps = 0
        self._choice: tuple[int, int] | None = None
        self._is_replay_requested = False
        self._latest_sweep: tuple[QuantParams, TrialFacts, np.ndarray] | None = None

    def _reset_for_new_tensor(self, scene: Scene) -> None:
        """Reset the trial for a new tensor."""
        if self._tensor_key != (scene.backend, scene.row):
            self._tensor_key = scene.backend, scene.row
            self._forget()

    # What is tried

    def trial(self, scene: Scene) -> ScaleWish | None:
        """Return the request for the effect of the trial scale."""
        self._reset_for_new_tensor(scene)
        if scene.plan_row.missing is not None:
            return None
        return ScaleWish(quant=self._trial_quant(scene), wants_replay=self._is_replay_requested)

    def _trial_quant(self, scene: Scene) -> QuantParams | None:
        """Return the trial parameters; None without any."""
        attempt = self._trial_quant_or_reason(scene)
        return attempt if isinstance(attempt, QuantParams) else None

    def _trial_quant_or_reason(self, scene: Scene) -> QuantParams | str:
        """Return the trial parameters, or why there are none, or none yet."""
        ready = scene.trial
        if scene.plan_row.missing is not None:
            return f"this tensor is not compared: {scene.plan_row.missing}"
        if ready is not None and ready.problem:
            return ready.problem
        if ready is None or ready.facts is None:
            return "its values are being counted .."
        choices = ready.facts.choices.get("asymmetric", ())
        base = (
            self._base_quant
            or ready.facts.current_quant
            or next((choice.quant for choice in choices if choice.quant), None)
        )
        if base is None:
            return f"no scale covers its range: {choices[0].reason}" if choices else _CALIBRATING_TEXT
        scale = float(base.scale.ravel()[0]) * 2.0 ** (self._scale_steps / _STEPS_OF_2)
        zero_point = int(base.zero_point.ravel()[0]) + self._zero_point_steps
        try:
            return ready.facts.bench.parameters(scale, zero_point, qmin=base.qmin, qmax=base.qmax, dtype=base.dtype)
        except UsageError as error:
            return error.message

    # Keys

    def move(self, scene: Scene, lines: int) -> str:  # noqa: ARG002
        """Select the scale or the zero point."""
        target = min(max(self._field + lines, 0), len(_FIELDS) - 1)
        if target == self._field:
            return f"the {_FIELDS[target]} is chosen already"
        self._field = target
        return f"h l change the {_FIELDS[target]}{', pgup pgdn by 8 steps' if target < _FIRST_CHOICE_FIELD else ''}"

    def side(self, scene: Scene, direction: int) -> str:
        """Change the selected parameter by one step."""
        if self._field < _FIRST_CHOICE_FIELD:
            return self.step(scene, direction)
        return (
            self._choose(scene, calibrators=direction)
            if self._field == _FIRST_CHOICE_FIELD
            else self._choose(scene, schemes=direction)
        )

    def step(self, scene: Scene, steps: int) -> str:
        """Change the scale or the zero point by a number of steps."""
        quant_before = self._trial_quant_or_reason(scene)
        if isinstance(quant_before, str):
            return quant_before
        steps_before = self._scale_steps, self._zero_point_steps
        if self._field == 0:
            self._scale_steps = min(max(self._scale_steps + steps, -_MAX_STEPS), _MAX_STEPS)
        else:
            zero_point = int(quant_before.zero_point.ravel()[0])
            self._zero_point_steps += (
                min(max(zero_point + steps, quant_before.qmin or 0), quant_before.qmax or 0) - zero_point
            )
        quant_after = self._trial_quant_or_reason(scene)
        if isinstance(quant_after, str) or quant_after == quant_before:
            self._scale_steps, self._zero_point_steps = steps_before
            return "it goes no further"
        return self._report_change(quant_after)

    def action_step(self, direction: int) -> None:
        """Change the selected parameter by a large step."""
        self.stage.with_scene(lambda scene: self.step(scene, direction * _PAGE_STEPS))

    def action_reset(self) -> None:
        """Return to the recorded scale."""
        self.stage.with_scene(self.reset)

    def _choose(self, scene: Scene, *, calibrators: int = 0, schemes: int = 0) -> str:
        facts = None if scene.trial is None else scene.trial.facts
        if facts is None or not facts.choices:
            reason = self._trial_quant_or_reason(scene)
            return reason if isinstance(reason, str) else _CALIBRATING_TEXT
        kinds = list(SCHEMES)
        kind_index, choice_index = self._choice or (0, -1)
        kind_index, choice_index = (
            (kind_index + schemes) % len(kinds),
            max(choice_index, 0) if schemes else choice_index + calibrators,
        )
        choices = facts.choices[kinds[kind_index]]
        if choice_index < -1:
            choice_index = len(choices) - 1
        if not 0 <= choice_index < len(choices):
            return self.reset(scene)
        choice = choices[choice_index]
        self._choice = kind_index, choice_index
        note = f"{choice.calibrator}, {kinds[kind_index]}"
        if choice.quant is None:
            return f"{note}: {choice.reason}"
        self._base_quant, self._scale_steps, self._zero_point_steps, self._note, self._is_replay_requested = (
            choice.quant,
            0,
            0,
            note,
            False,
        )
        return f"{note}: {choice.reason}"

    def reset(self, scene: Scene) -> str:
        """Return to the recorded scale."""
        field = self._field
        self._forget()
        self._field = field
        attempt = self._trial_quant_or_reason(scene)
        return attempt if isinstance(attempt, str) else self._trial_title(scene)

    def _trial_title(self, scene: Scene) -> str:
        """Return the origin of the trial scale."""
        is_quantized = (
            scene.trial is not None and scene.trial.facts is not None and scene.trial.facts.current_quant is not None
        )
        return self._note or ("as recorded" if is_quantized else "minmax, asymmetric")

    def _report_change(self, quant: QuantParams) -> str:
        self._is_replay_requested = False
        return f"scale {float(quant.scale[0]):.6g}, zero point {int(quant.zero_point[0])}"

    def replay(self, scene: Scene) -> str:
        """Replay the network with the trial scale, or cancel the replay."""
        quant = self._trial_quant_or_reason(scene)
        if isinstance(quant, str):
            return quant
        if self._is_replay_requested and _replay_of(scene, quant) is not None:
            return "it is replayed already"
        self._is_replay_requested = not self._is_replay_requested
        return "" if self._is_replay_requested else "the replay is cancelled"

    def enter(self, scene: Scene) -> Target | str:
        """Replay the network with the trial scale, since there is no deeper screen."""
        return self.replay(scene)

    def command(self, scene: Scene, files: Sequence[str]) -> Sequence[str] | None:
        """Return the command that tries the same parameters."""
        quant, ready = self._trial_quant(scene), scene.trial
        if quant is None or ready is None or ready.facts is None:
            return None
        words = ["qdebug", "scales", "try", *files, "--node", ready.facts.bench.tensor]
        words += ["--scale", f"{float(quant.scale[0]):.9g}", f"--zero-point={int(quant.zero_point[0])}"]
        return words if ready.facts.current_quant is not None else [*words, "--dtype", quant.dtype]

    def click(self, _: Scene, __: int, line: int) -> Target | str | None:
        """Select the parameter that h, l, + and - change."""
        label = self._labels_by_line.get(line)
        if label not in _FIELDS:
            return None
        self._field = _FIELDS.index(label)
        return ""

    # Drawing

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the table, the histogram with both ranges, and the effect on the outputs."""
        self._reset_for_new_tensor(scene)
        ready, quant = scene.trial, self._trial_quant_or_reason(scene)
        samples = f"all {scene.navigator.samples} samples" if scene.navigator.samples > 1 else ""
        header = heading(scene, width, samples)
        if ready is None or ready.facts is None or isinstance(quant, str):
            return [header, [], *paragraph(safe_text(quant), scene, width)]
        facts = ready.facts
        is_current = _quant_of(ready) == quant
        error = ready.error if is_current and ready.error is not None else _estimate_error(facts.histogram, quant)
        now_error = facts.current_error or (
            None if facts.current_quant is None else _estimate_error(facts.histogram, facts.current_quant)
        )
        replay = _replay_of(scene, quant)
        from qdebug.present.reports.scales import trial_rows  # already imported by the worker

        rows = trial_rows((facts.current_quant, quant), (now_error, error), () if replay is None else replay.outputs)
        rows = self._with_choices(facts, rows)
        changed_text = ", changed" if self._scale_steps or self._zero_point_steps else ""
        titles = (
            "",
            "recorded scale" if facts.current_quant is not None else "not quantized",
            f"trial: {self._trial_title(scene)}{changed_text}",
        )
        words: list[Line] = []
        sentences = [
            _basis_text(facts, error),
            *_replay_text(ready if is_current and self._is_replay_requested else None),
        ]
        sentences += [] if replay is None or facts.current_quant is None else _recorded_level_text(scene, replay)
        sentences += [] if replay is None else _cancellation_text(replay, now_error, error)
        sentences += (
            []
            if facts.current_quant is not None or not _reads_constants(scene)
            else ["v lists what can be changed of its weights"]
        )
        for text in sentences:
            words += paragraph(safe_text(text, limit=400), scene, width)
        for label in _OPTIONAL_LINES:
            if len(rows) + len(words) + 2 > height:
                rows = [row for row in rows if row[0] != label]
        lines = [header, _table_line(scene, titles, width, "accent")]
        self._labels_by_line = {len(lines) + at: label for at, (label, *_) in enumerate(rows)}
        for label, current_text, trial_text in rows:
            is_selected = label == _FIELDS[self._field]
            mark = f"{scene.glyphs.cursor} " if is_selected else "  "
            lines.append(
                _table_line(
                    scene, (f"{mark}{label}", current_text, trial_text), width, "cursor" if is_selected else "plain"
                )
            )
        line_count = height - len(lines) - len(words)  # the text takes precedence over both drawings
        sweep = self._sweep_lines(scene, facts, quant, width) if line_count > 0 else []
        line_count -= len(sweep) + _LINES_BELOW_PLOT
        plot = _plot_lines(scene, facts, quant, width, min(line_count, _MAX_PLOT_LINES)) if line_count > 0 else []
        return [*lines, *sweep, *plot, *words]

    def _with_choices(self, facts: TrialFacts, rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """Add the calibrators' choices below the zero point."""
        kind_index, choice_index = self._choice or (0, -1)
        kinds = list(SCHEMES)
        choices = facts.choices.get(kinds[kind_index], ())
        calibrator = choices[choice_index].calibrator if 0 <= choice_index < len(choices) else numbers.MISSING
        choice_rows = [("calibrator", numbers.MISSING, calibrator), ("scheme", numbers.MISSING, kinds[kind_index])]
        position = next((position + 1 for position, row in enumerate(rows) if row[0] == "zero point"), len(rows))
        return [*rows[:position], *choice_rows, *rows[position:]]

    def _sweep_lines(self, scene: Scene, facts: TrialFacts, quant: QuantParams, width: int) -> list[Line]:
        """Draw the estimated SQNR for scales around the trial scale, and state where it is best."""
        factors = 2.0 ** np.linspace(-_SWEEP_OCTAVES, _SWEEP_OCTAVES, _SWEEP_SCALES + 1)
        if self._latest_sweep is None or self._latest_sweep[0] != quant or self._latest_sweep[1] is not facts:
            errors = [
                _estimate_error(facts.histogram, replace(quant, scale=quant.scale * factor)) for factor in factors
            ]
            levels = np.array([-np.inf if error is None else error.sqnr_db for error in errors])
            self._latest_sweep = quant, facts, levels
        levels = self._latest_sweep[2]
        if not np.isfinite(levels).any():
            return []
        low = float(levels[np.isfinite(levels)].min())
        heights = np.where(np.isfinite(levels), np.minimum(levels, 1e3) - low, 0.0)
        best_position = int(np.argmax(levels))
        level, scale = float(levels[best_position]), float(quant.scale.ravel()[0] * factors[best_position])
        best_text = f"best ~{numbers.number(level)} dB at {numbers.number(scale)}"
        recorded_error = None if facts.current_quant is None else _estimate_error(facts.histogram, facts.current_quant)
        if recorded_error is not None and recorded_error.sqnr_db > level:
            best_text = "the recorded one beats all"
        sweep_title = f"  {_SWEEP_SCALES + 1} scales, 1/{2**_SWEEP_OCTAVES}..{2**_SWEEP_OCTAVES}x"
        # Number of scales from one column to the next.
        stride = -(-_SWEEP_SCALES // max(width - _LABEL_WIDTH - _SIDE_WIDTH - 1, 8))
        heights = heights[_SWEEP_SCALES // 2 % stride :: stride]
        columns, middle = len(heights), _SWEEP_SCALES // 2 // stride
        bar_text = bars(heights, scene.glyphs)
        return [
            [
                (scene.glyphs.fit(sweep_title, _LABEL_WIDTH - 1) + " ", "muted"),
                (bar_text[:middle], "fine"),
                (bar_text[middle], "cursor"),
                (bar_text[middle + 1 :] + "  ", "fine"),
                (scene.glyphs.fit_end(best_text, max(width - _LABEL_WIDTH - columns - 2, 8)), "plain"),
            ]
        ]


def _estimate_error(histogram: RangeHistogram, quant: QuantParams) -> QuantError | None:
    try:
        return estimate_error(histogram, quant)
    except UsageError:
        return None


def _quant_of(ready: TrialReady) -> QuantParams | None:
    """Return the parameters that an answer refers to."""
    wish = ready.request.wish
    return wish.quant if isinstance(wish, ScaleWish) else None


def _replay_of(scene: Scene, quant: QuantParams | None) -> Replay | None:
    ready = scene.trial
    return None if ready is None or _quant_of(ready) != quant else ready.replay


def _basis_text(facts: TrialFacts, error: QuantError | None) -> str:
    """Return a description of the data that the figures are based on."""
    values = f"{numbers.grouped(facts.histogram.total)} values of {facts.values}"
    if error is None:
        return f"only statistics of {facts.values} were kept: no error is known"
    estimate_text = f"~: estimated from the histogram of {values}"
    return (
        f"the figures above: exact, of {values}; {estimate_text.partition(' of ')[0]}" if error.exact else estimate_text
    )


def _reads_constants(scene: Scene) -> bool:
    """Return whether the tensor's node reads constants."""
    graph = scene.opened.backend_graph
    node = graph.producer(scene.plan_row.tensor)
    return node is not None and any(graph.is_constant(name) for name in node.inputs)


def _recorded_level_text(scene: Scene, replay: Replay) -> Sequence[str]:
    """Return the recorded level of an output, if a replay with the recorded scale gives a different one."""
    for output in replay.outputs:
        row = scene.table.row_of(output.output)
        result = None if row is None else scene.table.results[row]
        stats = None if result is None else result.metrics
        if output.against != "reference" or result is None or stats is None or stats.sqnr_db is None:
            continue
        if replay.samples != len(result.samples):  # the recorded level covers other samples, too
            continue
        recorded_text, replayed_text = numbers.number(stats.sqnr_db), numbers.number(output.now.sqnr_db)
        if recorded_text != replayed_text:
            name = safe_text(output.output, limit=40)
            return [f"recorded, {name} has {recorded_text} dB; replayed with the recorded scale {replayed_text} dB"]
    return []


def _cancellation_text(
    replay: Replay, current_error: QuantError | None, trial_error: QuantError | None
) -> Sequence[str]:
    """Return how better codes can make an output worse, if that happens here."""
    if current_error is None or trial_error is None or trial_error.mse >= current_error.mse:
        return []
    for output in replay.outputs:
        levels = output.now.sqnr_db, output.trial.sqnr_db
        level_texts = [numbers.number(level) for level in levels]
        if (
            worst_first_key(levels[1]) < worst_first_key(levels[0])
            and numbers.MISSING not in level_texts
            and level_texts[0] != level_texts[1]
        ):
            name = safe_text(output.output, limit=40)
            return [f"better codes, and {name} is worse: errors of several nodes may cancel each other"]
    return []


def _replay_text(ready: TrialReady | None) -> Sequence[str]:
    """Return the progress of the replay; empty if no replay of these parameters was requested."""
    if ready is None:
        return ["enter replays the network with this scale"]
    replay, (done, total) = ready.replay, ready.replay_progress
    if replay is None:
        return [f"replaying the network: {done} of {total} runs .. enter cancels" if total else "replaying .."]
    if not replay.samples:
        return replay.notes
    against = f", outputs against the {replay.outputs[0].against} ones" if replay.outputs else ""
    return [f"{replay.samples} samples replayed{against}", *replay.notes]


def _table_line(scene: Scene, cells: tuple[str, str, str], width: int, style: str) -> Line:
    label, current_text, trial_text = (scene.glyphs.transliterate(cell) for cell in cells)
    side_width = max(min(_SIDE_WIDTH, (width - _LABEL_WIDTH) // 2), 8)
    max_label_width = max(width - side_width * 2, 8)
    return [
        (
            scene.glyphs.fit(label, min(_LABEL_WIDTH, max_label_width) - 1) + " ",
            style if style == "cursor" else "muted",
        ),
        (scene.glyphs.fit(current_text, side_width), "plain"),
        (scene.glyphs.fit_end(trial_text, max(width - _LABEL_WIDTH - side_width, 8)), style),
    ]


def _plot_lines(scene: Scene, facts: TrialFacts, quant: QuantParams, width: int, height: int) -> list[Line]:
    """Draw the histogram, and below it the range of both sets of parameters."""
    histogram = facts.histogram
    columns = max(width - 10, 8)
    if not histogram.counts.size or histogram.coarse:
        return []
    # The square root keeps thin tails visible.
    heights = np.sqrt(_resample_counts(histogram.counts, columns * 2).astype(np.float64))
    dots = np.ceil(heights / max(float(heights.max()), 1.0) * 4 * height)
    lines: list[Line] = []
    for at, text in enumerate(area(dots, height, scene.glyphs)):
        lines.append([(("" if at else "values").ljust(8), "muted"), (text, "fine")])
    for label, parameters in (("now", facts.current_quant), ("trial", quant)):
        if parameters is not None:
            lines.append([(label.ljust(8), "muted"), (_range_line(histogram, parameters, columns), "accent")])
    low, high = float(histogram.edges[0]), float(histogram.edges[-1])
    left, right = numbers.number(low), numbers.number(high)
    lines.append([(" " * 8 + left + right.rjust(max(columns - cell_len(left), len(right) + 1)), "muted")])
    return lines


def _resample_counts(counts: np.ndarray, columns: int) -> np.ndarray:
    """Sum counts into the given number of columns. If there are few bins, each bin gets several columns."""
    places = np.arange(columns) * counts.size // columns
    return counts[places] if counts.size < columns else np.add.reduceat(counts, places)


def _range_line(histogram: RangeHistogram, quant: QuantParams, columns: int) -> str:
    """Draw the range of codes as a line below the histogram. Arrows mark a range that extends beyond it."""
    scale, zero_point = float(quant.scale.ravel()[0]), int(quant.zero_point.ravel()[0])
    real_limits = [((end or 0) - zero_point) * scale for end in (quant.qmin, quant.qmax)]
    first, last = float(histogram.edges[0]), float(histogram.edges[-1])
    places = [(end - first) / (last - first) * columns for end in real_limits]
    start, stop = (min(max(int(place), 0), columns - 1) for place in places)
    text = list(" " * start + "|" + "-" * max(stop - start - 1, 0) + ("|" if stop > start else ""))
    if places[0] < 0:
        text[0] = "<"
    if places[1] > columns:
        text[-1] = ">"
    return "".join(text)
