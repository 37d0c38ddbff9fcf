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
from qdebug.numerics.quant_error import QuantError, estimated_error
from qdebug.numerics.range_histogram import RangeHistogram
from qdebug.numerics.scheme import SCHEMES
from qdebug.present import numbers
from qdebug.present.reports.scales import trial_rows
from qdebug.present.text import safe_text
from qdebug.tui.drawing.draw import area, bars
from qdebug.tui.drawing.look import Look
from qdebug.tui.reading.facts import TrialFacts
from qdebug.tui.reading.messages import ScaleWish, TrialReady, worst_first
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import DrawnView, Line, Scene, Target, heading, paragraph

if TYPE_CHECKING:
    from qdebug.scales.trial import Replay

__all__ = ["WhatIfView"]

_LABEL, _SIDE = 22, 24
_LEAVE_FIRST = ("codes", "span of codes", "MSE", "clipped")
"""Lines of the table that are left out if there is not enough room, in this order."""
_STEPS_OF_2 = 64
"""Number of steps of the scale between two powers of two; one step is about 1.1 %."""
_MOST_STEPS = 32 * _STEPS_OF_2
_PLOT_MOST, _UNDER_PLOT = 8, 3
"""Maximum number of histogram lines, and the number of lines below it for both ranges and the numbers at the ends."""
_SWEEP_OCTAVES, _SWEEP = 3, 28
"""Octaves that the curve extends to either side, and the number of scales besides the trial; the same for any width."""
_FIELDS = ("scale", "zero point", "calibrator", "scheme")
_LARGE = 8
"""Number of steps per page key."""
_CHOICES = 2
"""Index of the first field that the calibrators fill in."""
_ASKING = "the calibrators are being asked .."


class WhatIfView(DrawnView):
    """A trial scale and zero point next to the current ones. Their loss is first estimated, then computed exactly."""

    view = ScreenId.WHAT_IF
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "screen.open", "replay", tooltip="replay the net with what is tried, or give that up"),
        Binding("r", "reset", "reset", tooltip="reset to what was recorded"),
        Binding("pageup,ctrl+u", "step(1)", "8 steps", tooltip="8 steps up"),
        Binding("pagedown,ctrl+d", "step(-1)", show=False, tooltip="8 steps down"),
        Binding("v", "screen.form", "edits", tooltip="edits of the node"),
    ]

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._of: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self._field = 0
        self._shown: dict[int, str] = {}
        self._base: QuantParams | None = None
        self._note = ""
        self._steps = self._codes = 0
        self._choice: tuple[int, int] | None = None
        self._replay = False
        self._swept: tuple[QuantParams, TrialFacts, np.ndarray] | None = None

    def _look_at(self, scene: Scene) -> None:
        """Reset the trial for a new tensor."""
        if self._of != (scene.backend, scene.row):
            self._of = scene.backend, scene.row
            self._forget()

    # What is tried

    def trial(self, scene: Scene) -> ScaleWish | None:
        """Return the request for the effect of the trial scale."""
        self._look_at(scene)
        if scene.planned.missing is not None:
            return None
        return ScaleWish(quant=self._tried(scene), replay=self._replay)

    def _tried(self, scene: Scene) -> QuantParams | None:
        """Return the trial parameters; None without any."""
        attempt = self._attempt(scene)
        return attempt if isinstance(attempt, QuantParams) else None

    def _attempt(self, scene: Scene) -> QuantParams | str:
        """Return the trial parameters, or why there are none, or none yet."""
        ready = scene.tried
        if scene.planned.missing is not None:
            return f"this tensor is not compared: {scene.planned.missing}"
        if ready is not None and ready.problem:
            return ready.problem
        if ready is None or ready.facts is None:
            return "its values are being counted .."
        choices = ready.facts.choices.get("asymmetric", ())
        base = self._base or ready.facts.now or next((choice.quant for choice in choices if choice.quant), None)
        if base is None:
            return f"no scale holds it: {choices[0].reason}" if choices else _ASKING
        scale = float(base.scale.ravel()[0]) * 2.0 ** (self._steps / _STEPS_OF_2)
        zero_point = int(base.zero_point.ravel()[0]) + self._codes
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
        return f"h l change the {_FIELDS[target]}{', pgup pgdn by 8 steps' if target < _CHOICES else ''}"

    def side(self, scene: Scene, direction: int) -> str:
        """Change the selected parameter by one step."""
        if self._field < _CHOICES:
            return self.step(scene, direction)
        return (
            self._choose(scene, calibrators=direction)
            if self._field == _CHOICES
            else self._choose(scene, schemes=direction)
        )

    def step(self, scene: Scene, steps: int) -> str:
        """Change the scale or the zero point by a number of steps."""
        before = self._attempt(scene)
        if isinstance(before, str):
            return before
        old = self._steps, self._codes
        if self._field == 0:
            self._steps = min(max(self._steps + steps, -_MOST_STEPS), _MOST_STEPS)
        else:
            zero_point = int(before.zero_point.ravel()[0])
            self._codes += min(max(zero_point + steps, before.qmin or 0), before.qmax or 0) - zero_point
        after = self._attempt(scene)
        if isinstance(after, str) or after == before:
            self._steps, self._codes = old
            return "it goes no further"
        return self._changed(after)

    def action_step(self, direction: int) -> None:
        """Change the selected parameter by a large step."""
        self.stage.with_scene(lambda scene: self.step(scene, direction * _LARGE))

    def action_reset(self) -> None:
        """Return to the recorded scale."""
        self.stage.with_scene(self.reset)

    def _choose(self, scene: Scene, *, calibrators: int = 0, schemes: int = 0) -> str:
        facts = None if scene.tried is None else scene.tried.facts
        if facts is None or not facts.choices:
            why = self._attempt(scene)
            return why if isinstance(why, str) else _ASKING
        kinds = list(SCHEMES)
        kind, place = self._choice or (0, -1)
        kind, place = (kind + schemes) % len(kinds), max(place, 0) if schemes else place + calibrators
        choices = facts.choices[kinds[kind]]
        if place < -1:
            place = len(choices) - 1
        if not 0 <= place < len(choices):
            return self.reset(scene)
        chosen = choices[place]
        self._choice = kind, place
        note = f"{chosen.calibrator}, {kinds[kind]}"
        if chosen.quant is None:
            return f"{note}: {chosen.reason}"
        self._base, self._steps, self._codes, self._note, self._replay = chosen.quant, 0, 0, note, False
        return f"{note}: {chosen.reason}"

    def reset(self, scene: Scene) -> str:
        """Return to the recorded scale."""
        field = self._field
        self._forget()
        self._field = field
        attempt = self._attempt(scene)
        return attempt if isinstance(attempt, str) else self._title(scene)

    def _title(self, scene: Scene) -> str:
        """Return the origin of the trial scale."""
        coded = scene.tried is not None and scene.tried.facts is not None and scene.tried.facts.now is not None
        return self._note or ("as recorded" if coded else "minmax, asymmetric")

    def _changed(self, quant: QuantParams) -> str:
        self._replay = False
        return f"scale {float(quant.scale[0]):.6g}, zero point {int(quant.zero_point[0])}"

    def replay(self, scene: Scene) -> str:
        """Replay the network with the trial scale, or cancel the replay."""
        quant = self._attempt(scene)
        if isinstance(quant, str):
            return quant
        if self._replay and _replay_of(scene, quant) is not None:
            return "it is replayed already"
        self._replay = not self._replay
        return "" if self._replay else "the replay is given up"

    def enter(self, scene: Scene) -> Target | str:
        """Replay the network with the trial scale, since there is no deeper screen."""
        return self.replay(scene)

    def command(self, scene: Scene, files: Sequence[str]) -> Sequence[str] | None:
        """Return the command that tries the same parameters."""
        quant, ready = self._tried(scene), scene.tried
        if quant is None or ready is None or ready.facts is None:
            return None
        words = ["qdebug", "scales", "try", *files, "--node", ready.facts.bench.tensor]
        words += ["--scale", f"{float(quant.scale[0]):.9g}", f"--zero-point={int(quant.zero_point[0])}"]
        return words if ready.facts.now is not None else [*words, "--dtype", quant.dtype]

    def click(self, _: Scene, __: int, line: int) -> Target | str | None:
        """Select the parameter that h, l, + and - change."""
        label = self._shown.get(line)
        if label not in _FIELDS:
            return None
        self._field = _FIELDS.index(label)
        return ""

    # Drawing

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the table, the histogram with both ranges, and the effect on the outputs."""
        self._look_at(scene)
        ready, quant = scene.tried, self._attempt(scene)
        samples = f"all {scene.navigator.samples} samples" if scene.navigator.samples > 1 else ""
        head = heading(scene, width, samples)
        if ready is None or ready.facts is None or isinstance(quant, str):
            return [head, [], *paragraph(safe_text(quant), scene, width)]
        facts = ready.facts
        is_current = _quant_of(ready) == quant
        error = ready.error if is_current and ready.error is not None else _estimated(facts.histogram, quant)
        now_error = facts.now_error or (None if facts.now is None else _estimated(facts.histogram, facts.now))
        replay = _replay_of(scene, quant)
        rows = trial_rows((facts.now, quant), (now_error, error), () if replay is None else replay.outputs)
        rows = self._with_choices(facts, rows)
        changed = ", changed" if self._steps or self._codes else ""
        titles = (
            "",
            "recorded scale" if facts.now is not None else "not quantized",
            f"trial: {self._title(scene)}{changed}",
        )
        words: list[Line] = []
        sentences = [_basis(facts, error), *_replay_words(ready if is_current and self._replay else None)]
        sentences += [] if replay is None or facts.now is None else _as_recorded(scene, replay)
        sentences += [] if replay is None else _cancelled(replay, now_error, error)
        sentences += (
            [] if facts.now is not None or not _weighted(scene) else ["v lists what can be changed of its weights"]
        )
        for text in sentences:
            words += paragraph(safe_text(text, limit=400), scene, width)
        for label in _LEAVE_FIRST:
            if len(rows) + len(words) + 2 > height:
                rows = [row for row in rows if row[0] != label]
        lines = [head, _row(scene, titles, width, "accent")]
        self._shown = {len(lines) + at: label for at, (label, *_) in enumerate(rows)}
        for label, now, trial in rows:
            here = label == _FIELDS[self._field]
            mark = f"{scene.glyphs.cursor} " if here else "  "
            lines.append(_row(scene, (f"{mark}{label}", now, trial), width, "cursor" if here else "plain"))
        room = height - len(lines) - len(words)  # both drawings give way to what is said
        sweep = self._sweep(scene, facts, quant, width) if room > 0 else []
        room -= len(sweep) + _UNDER_PLOT
        plot = _plot(scene, facts, quant, width, min(room, _PLOT_MOST)) if room > 0 else []
        return [*lines, *sweep, *plot, *words]

    def _with_choices(self, facts: TrialFacts, rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """Add the calibrators' choices below the zero point."""
        kind, place = self._choice or (0, -1)
        kinds = list(SCHEMES)
        choices = facts.choices.get(kinds[kind], ())
        chosen = choices[place].calibrator if 0 <= place < len(choices) else numbers.MISSING
        own = [("calibrator", numbers.MISSING, chosen), ("scheme", numbers.MISSING, kinds[kind])]
        at = next((at + 1 for at, row in enumerate(rows) if row[0] == "zero point"), len(rows))
        return [*rows[:at], *own, *rows[at:]]

    def _sweep(self, scene: Scene, facts: TrialFacts, quant: QuantParams, width: int) -> list[Line]:
        """Draw the estimated SQNR for scales around the trial scale, and state where it is best."""
        factors = 2.0 ** np.linspace(-_SWEEP_OCTAVES, _SWEEP_OCTAVES, _SWEEP + 1)
        if self._swept is None or self._swept[0] != quant or self._swept[1] is not facts:
            errors = [_estimated(facts.histogram, replace(quant, scale=quant.scale * factor)) for factor in factors]
            levels = np.array([-np.inf if error is None else error.sqnr_db for error in errors])
            self._swept = quant, facts, levels
        levels = self._swept[2]
        if not np.isfinite(levels).any():
            return []
        low = float(levels[np.isfinite(levels)].min())
        heights = np.where(np.isfinite(levels), np.minimum(levels, 1e3) - low, 0.0)
        at = int(np.argmax(levels))
        level, scale = float(levels[at]), float(quant.scale.ravel()[0] * factors[at])
        best = f"best ~{numbers.number(level)} dB at {numbers.number(scale)}"
        recorded = None if facts.now is None else _estimated(facts.histogram, facts.now)
        if recorded is not None and recorded.sqnr_db > level:
            best = "the recorded one beats all"
        grid = f"  {_SWEEP + 1} scales, 1/{2**_SWEEP_OCTAVES}..{2**_SWEEP_OCTAVES}x"
        error = -(-_SWEEP // max(width - _LABEL - _SIDE - 1, 8))  # scales from one column to the next
        heights = heights[_SWEEP // 2 % error :: error]
        columns, middle = len(heights), _SWEEP // 2 // error
        drawn = bars(heights, scene.glyphs)
        return [
            [
                (scene.glyphs.fit(grid, _LABEL - 1) + " ", "muted"),
                (drawn[:middle], "fine"),
                (drawn[middle], "cursor"),
                (drawn[middle + 1 :] + "  ", "fine"),
                (scene.glyphs.fit_end(best, max(width - _LABEL - columns - 2, 8)), "plain"),
            ]
        ]


def _estimated(histogram: RangeHistogram, quant: QuantParams) -> QuantError | None:
    try:
        return estimated_error(histogram, quant)
    except UsageError:
        return None


def _quant_of(ready: TrialReady) -> QuantParams | None:
    """Return the parameters that an answer refers to."""
    wish = ready.request.wish
    return wish.quant if isinstance(wish, ScaleWish) else None


def _replay_of(scene: Scene, quant: QuantParams | None) -> Replay | None:
    ready = scene.tried
    return None if ready is None or _quant_of(ready) != quant else ready.replay


def _basis(facts: TrialFacts, error: QuantError | None) -> str:
    """Return a description of the data that the figures are based on."""
    values = f"{numbers.grouped(facts.histogram.total)} values of {facts.values}"
    if error is None:
        return f"only statistics of {facts.values} were kept: no error is known"
    estimated = f"~: estimated from the histogram of {values}"
    return f"the figures above: exact, of {values}; {estimated.partition(' of ')[0]}" if error.exact else estimated


def _weighted(scene: Scene) -> bool:
    """Return whether the tensor's node reads constants."""
    graph = scene.opened.backend_graph
    node = graph.producer(scene.planned.tensor)
    return node is not None and any(graph.is_constant(name) for name in node.inputs)


def _as_recorded(scene: Scene, replay: Replay) -> Sequence[str]:
    """Return the recorded level of an output, if a replay with the recorded scale gives a different one."""
    for output in replay.outputs:
        row = scene.table.row_of(output.output)
        result = None if row is None else scene.table.results[row]
        stats = None if result is None else result.metrics
        if output.against != "reference" or result is None or stats is None or stats.sqnr_db is None:
            continue
        if replay.samples != len(result.samples):  # what is not replayed has an error of its own
            continue
        then, now = numbers.number(stats.sqnr_db), numbers.number(output.now.sqnr_db)
        if then != now:
            name = safe_text(output.output, limit=40)
            return [f"recorded, {name} has {then} dB; replayed with the recorded scale {now} dB"]
    return []


def _cancelled(replay: Replay, now: QuantError | None, trial: QuantError | None) -> Sequence[str]:
    """Return how better codes can make an output worse, if that happens here."""
    if now is None or trial is None or trial.mse >= now.mse:
        return []
    for output in replay.outputs:
        levels = output.now.sqnr_db, output.trial.sqnr_db
        shown = [numbers.number(level) for level in levels]
        if worst_first(levels[1]) < worst_first(levels[0]) and numbers.MISSING not in shown and shown[0] != shown[1]:
            name = safe_text(output.output, limit=40)
            return [f"better codes, and {name} is worse: errors of several nodes may cancel each other"]
    return []


def _replay_words(ready: TrialReady | None) -> Sequence[str]:
    """Return the progress of the replay; empty if no replay of these parameters was requested."""
    if ready is None:
        return ["enter replays the network with this scale"]
    replay, (done, total) = ready.replay, ready.replayed
    if replay is None:
        return [f"replaying the network: {done} of {total} runs .. enter gives it up" if total else "replaying .."]
    if not replay.samples:
        return replay.notes
    against = f", outputs against the {replay.outputs[0].against} ones" if replay.outputs else ""
    return [f"{replay.samples} samples replayed{against}", *replay.notes]  # what to type next is said by the command


def _row(scene: Scene, cells: tuple[str, str, str], width: int, style: str) -> Line:
    label, now, trial = (scene.glyphs.plain(cell) for cell in cells)
    side = max(min(_SIDE, (width - _LABEL) // 2), 8)
    room = max(width - side * 2, 8)
    return [
        (scene.glyphs.fit(label, min(_LABEL, room) - 1) + " ", style if style == "cursor" else "muted"),
        (scene.glyphs.fit(now, side), "plain"),
        (scene.glyphs.fit_end(trial, max(width - _LABEL - side, 8)), style),
    ]


def _plot(scene: Scene, facts: TrialFacts, quant: QuantParams, width: int, height: int) -> list[Line]:
    """Draw the histogram, and below it the range of both sets of parameters."""
    histogram = facts.histogram
    columns = max(width - 10, 8)
    if not histogram.counts.size or histogram.coarse:
        return []
    heights = np.sqrt(_sampled(histogram.counts, columns * 2).astype(np.float64))  # the root keeps thin tails visible
    dots = np.ceil(heights / max(float(heights.max()), 1.0) * 4 * height)
    lines: list[Line] = []
    for at, text in enumerate(area(dots, height, scene.glyphs)):
        lines.append([(("" if at else "values").ljust(8), "muted"), (text, "fine")])
    for label, each in (("now", facts.now), ("trial", quant)):
        if each is not None:
            lines.append([(label.ljust(8), "muted"), (_span(histogram, each, columns), "accent")])
    low, high = float(histogram.edges[0]), float(histogram.edges[-1])
    left, right = numbers.number(low), numbers.number(high)
    lines.append([(" " * 8 + left + right.rjust(max(columns - cell_len(left), len(right) + 1)), "muted")])
    return lines


def _sampled(counts: np.ndarray, columns: int) -> np.ndarray:
    """Sum counts into the given number of columns. If there are few bins, each bin gets several columns."""
    places = np.arange(columns) * counts.size // columns
    return counts[places] if counts.size < columns else np.add.reduceat(counts, places)


def _span(histogram: RangeHistogram, quant: QuantParams, columns: int) -> str:
    """Draw the range of codes as a line below the histogram. Arrows mark a range that extends beyond it."""
    scale, zero_point = float(quant.scale.ravel()[0]), int(quant.zero_point.ravel()[0])
    ends = [((end or 0) - zero_point) * scale for end in (quant.qmin, quant.qmax)]
    first, last = float(histogram.edges[0]), float(histogram.edges[-1])
    places = [(end - first) / (last - first) * columns for end in ends]
    start, stop = (min(max(int(place), 0), columns - 1) for place in places)
    text = list(" " * start + "|" + "-" * max(stop - start - 1, 0) + ("|" if stop > start else ""))
    if places[0] < 0:
        text[0] = "<"
    if places[1] > columns:
        text[-1] = ">"
    return "".join(text)
