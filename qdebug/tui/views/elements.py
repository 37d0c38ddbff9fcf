"""The element that the screens of a tensor show: one index shared by values, channels and map."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from textual.binding import Binding, BindingType

from qdebug.present import numbers
from qdebug.present.rows import position
from qdebug.present.text import safe_text
from qdebug.tui.drawing.look import Look
from qdebug.tui.elements.slab import Slab
from qdebug.tui.elements.summing import MAX_CLIPPED_POSITIONS, TensorStatistics
from qdebug.tui.nodes.rows import sample_reason
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import ShownElement
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import DrawnView, Line, Scene, View, paragraph

__all__ = [
    "FORMS",
    "ElementCursor",
    "ElementsView",
    "has_values",
    "one_side_note",
    "sample_text",
    "so_far_text",
    "waiting_lines",
    "waiting_text",
    "window_note",
]

FORMS: Mapping[str, str] = {"real": "real numbers", "codes": "stored codes", "hex": "hexadecimal bits"}
"""The forms in which elements can be shown."""
_NO_CODES = "the backend has no codes here: nothing is clipped"


class ElementCursor:
    """An index into the tensor under the list's cursor, initially the worst element."""

    def __init__(self) -> None:
        self.index: tuple[int, ...] = ()
        self.form = "real"
        self._tensor_key: tuple[object, ...] = ()
        self._waits_for_worst = False  # whether to go to the worst element once it is known
        self._sample_of_worst: int | None = None
        """The sample whose worst element the cursor went to by itself; None once the user has moved it."""
        self._awaited_element: tuple[tuple[object, ...], str | None] | None = None
        """The tensor, and the element to go to once it is read: its index as text, or None for the next clipped one."""

    def statistics(self, scene: Scene) -> TensorStatistics | None:
        """Return the statistics of all elements, or of those read so far; None if unknown.

        Also adjusts the index to the shape. `slab` returns the elements that are in memory.
        """
        statistics = None if scene.ready is None else scene.ready.statistics
        if statistics is not None:
            self._adjust_index(scene, statistics.shape)
        return statistics

    def slab(self, scene: Scene) -> Slab | None:
        """Return the elements around the index, or all of a small tensor; None if they are not read.

        Also adjusts the index to the tensor's shape.
        """
        slab = None if scene.glimpse is None else scene.glimpse.part
        statistics = None if scene.ready is None else scene.ready.statistics
        if slab is None:
            return None
        self._adjust_index(scene, slab.shape)
        if statistics is None or statistics.unread_count or statistics.shape != slab.shape:
            return slab
        return replace(slab, largest=statistics.largest)

    def shape(self, scene: Scene) -> tuple[int, ...] | None:
        """Return the extents of the tensor, and adjust the index to them; None if unknown."""
        elements = self.slab(scene) or self.statistics(scene)
        return None if elements is None else elements.shape

    def _adjust_index(self, scene: Scene, shape: tuple[int, ...]) -> None:
        """Adjust the index to a tensor of this shape: at the worst element once that is known, else at the first."""
        key = (*scene.row_key, shape)
        if key != self._tensor_key or len(self.index) != len(shape):
            self._tensor_key, self._waits_for_worst, self._sample_of_worst = key, True, None
            self.index = (0,) * len(shape)
        if scene.ready is None or not scene.ready.worst:
            return
        sample = scene.ready.values_sample
        # Until the user chooses one, the verdict may choose another sample.
        is_of_other_sample = scene.navigator.sample is None and self._sample_of_worst not in {None, sample}
        if self._waits_for_worst or is_of_other_sample:
            self._waits_for_worst, self._sample_of_worst = False, sample
            self.index = next(iter(_worst_positions(scene, shape)), self.index)

    def shown_element(self, scene: Scene | None, view: View | None) -> ShownElement:
        """Return the element and plane that a view shows."""
        if scene is None:
            return ShownElement()
        self.shape(scene)
        is_same = self._tensor_key[:2] == scene.row_key
        return ShownElement(self.index if is_same else None, view is not None and view.shows_plane)

    def channel_axis(self, scene: Scene) -> int:
        """Return the channel axis; 0 while it is unknown."""
        elements = self.slab(scene) or self.statistics(scene)
        return 0 if elements is None else elements.axis

    def go_to_index(self, index: tuple[int, ...]) -> str:
        """Go to an element of the current tensor."""
        self.index, self._waits_for_worst, self._sample_of_worst = index, False, None
        return ""

    def move_along(self, scene: Scene, axis: int, distance: int) -> str:
        """Move along a dimension.

        Args:
            scene: The scene with the elements.
            axis: The dimension, counted from the end if negative. A dimension that the tensor lacks has one element.
            distance: The distance; the cursor stops at both ends.
        """
        shape = self.shape(scene)
        if shape is None:
            return waiting_text(scene)
        dimension = axis % len(shape) if -len(shape) <= axis < len(shape) else None
        if dimension is None:
            return f"this tensor has only {len(shape)} dimensions"
        if not shape[dimension]:
            return "the tensor has no elements"
        target = min(max(self.index[dimension] + distance, 0), shape[dimension] - 1)
        if target == self.index[dimension]:
            return (
                f"dimension {dimension} {'ends' if distance > 0 else 'begins'} here, it has {shape[dimension]} entries"
            )
        return self.go_to_index((*self.index[:dimension], target, *self.index[dimension + 1 :]))

    def rank(self, scene: Scene) -> str:
        """Return which of the worst elements the cursor is on; "" if it is on none, or if they are unknown."""
        statistics = self.statistics(scene)
        places = [] if statistics is None or scene.ready is None else _worst_positions(scene, statistics.shape)
        return _rank_text(scene, places.index(self.index), len(places)) if self.index in places else ""

    def next_worst(self, scene: Scene, direction: int) -> str:
        """Go to the next or previous worst element."""
        statistics = self.statistics(scene)
        if statistics is None or scene.ready is None:
            return one_side_note(scene) or waiting_text(scene)
        places = _worst_positions(scene, statistics.shape)
        if not places and scene.ready.worst:
            steps = sorted({element.step for element in scene.ready.worst})
            return f"the worst elements are in other steps: {', '.join(map(str, steps))}; ( and ) choose one"
        if not places:
            if scene.ready.is_complete:
                return "no element differs"
            return Provisional("the worst elements are still being looked for", Until.ELEMENTS)
        rank = places.index(self.index) + direction if self.index in places else 0
        self.go_to_index(places[rank % len(places)])
        first_step = scene.ready.worst[0].step
        other_step_text = "" if first_step == scene.navigator.step else f"; the worst of all is in step {first_step}"
        return f"{_rank_text(scene, rank % len(places), len(places))}{other_step_text}"

    def next_clipped(self, scene: Scene) -> str:
        """Go to the next element whose reference the backend's codes cannot represent."""
        if scene.plan_row.missing is None and scene.plan_row.quant is None:
            return _NO_CODES
        statistics = self.statistics(scene)
        if statistics is None or scene.ready is None:
            return one_side_note(scene) or waiting_text(scene)
        if statistics.clipped is None:
            return _NO_CODES
        progress_suffix = " so far" if statistics.unread_count else ""
        if not statistics.clipped:
            place_text = _place_text(scene)
            elsewhere = _clipped_elsewhere_text(scene) if place_text else ""
            return f"no element is clipped in {place_text or 'this tensor'}{progress_suffix}{elsewhere}"
        flat_index = int(np.ravel_multi_index(self.index, statistics.shape)) if statistics.shape else 0
        rank = bisect_right(statistics.clipped, flat_index) % len(statistics.clipped)
        self.go_to_index(tuple(int(place) for place in np.unravel_index(statistics.clipped[rank], statistics.shape)))
        first = "first " if len(statistics.clipped) == MAX_CLIPPED_POSITIONS else ""
        return (
            f"clipped element {rank + 1} of {'the ' + first if first else ''}{len(statistics.clipped)}{progress_suffix}"
        )

    def jump(self, scene: Scene, text: str) -> str:
        """Go to an element given as numbers with commas. Negative numbers count from the end."""
        shape = self.shape(scene)
        if shape is None:
            return waiting_text(scene)
        try:
            positions = tuple(int(part) for part in text.strip().lstrip("@").strip("[]() ").split(",") if part.strip())
        except ValueError:
            return f"an index is numbers with commas, such as {position(self.index)}"
        if len(positions) != len(shape):
            return f"this tensor needs {len(shape)} numbers, such as {position(self.index)}"
        index = tuple(number + size if number < 0 else number for number, size in zip(positions, shape, strict=True))
        if not _is_inside(index, shape):
            return f"outside of {'x'.join(map(str, shape))}"
        self.go_to_index(index)
        return f"element {position(index)}"

    def next_form(self, scene: Scene) -> str | None:
        """Show the elements in the next form. After the last form, return None and start over."""
        forms = list(FORMS)
        form_index = forms.index(self.form) + 1
        self.form = forms[form_index % len(forms)]
        if form_index == len(forms):
            return None
        slab = self.slab(scene)
        if self.form == "codes" and slab is not None and slab.backend_codes is None and slab.reference_codes is None:
            self.form = "hex"
            return f"hex; {'this is not' if slab.only_side else 'neither side is'} quantized, so there are no codes"
        return FORMS[self.form]

    # An element to go to once it is read

    def go_to_element(self, scene: Scene, view: ScreenId, text: str) -> str:
        """Go to an element now, or once the elements are read."""
        is_read = self.shape(scene) is not None
        has_problem = any(answer is not None and answer.problem for answer in (scene.ready, scene.glimpse))
        must_wait = not is_read and not has_problem
        self._awaited_element = (_shown_tensor(scene, view), text) if must_wait else None
        message = self.jump(scene, text)
        return f"{message.rstrip(' .')}; then it goes to {safe_text(text, limit=40)}" if must_wait else message

    def go_to_clipped(self, scene: Scene, view: ScreenId) -> str:
        """Go to the next clipped element now, or once the elements are read."""
        self._awaited_element = None
        message, ready = self.next_clipped(scene), scene.ready
        if scene.plan_row.missing is None and (ready is None or (ready.statistics is None and not ready.problem)):
            self._awaited_element = _shown_tensor(scene, view), None
            return f"{message.rstrip(' .')}; then it goes to a clipped one"
        return message

    def stop_waiting(self) -> None:
        """Stop waiting for an element."""
        self._awaited_element = None

    def resume_wait(self, scene: Scene, view: ScreenId) -> str | None:
        """Go to the awaited element if it is read, and return a message; None if nothing has changed."""
        target = self._awaited_element
        if target is None:
            return None
        if target[0] != _shown_tensor(scene, view):
            self._awaited_element = None
        elif target[1] is None:
            if scene.ready is not None and (scene.ready.statistics is not None or scene.ready.problem):
                return self.go_to_clipped(scene, view)
        elif self.shape(scene) is not None or (scene.ready is not None and scene.ready.problem):
            return self.go_to_element(scene, view, target[1])
        return None


def _shown_tensor(scene: Scene, view: ScreenId) -> tuple[object, ...]:
    navigator = scene.navigator
    return scene.backend, scene.plan_row.tensor, navigator.sample, navigator.step, view


class ElementsView(DrawnView):
    """A screen that shows elements.

    Args:
        cursor: The element that all such screens share.
        look: Shared look.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "screen.match(1)", "worst", tooltip="next match, worst element or failing node"),
        Binding("c", "channel(1)", "channel", tooltip="next channel; C the previous one"),
        Binding("C", "channel(-1)", show=False, tooltip="previous channel"),
    ]
    has_worst = True

    def __init__(self, cursor: ElementCursor, look: Look | None = None) -> None:
        super().__init__(look)
        self._cursor = cursor

    def worst(self, scene: Scene, direction: int) -> str:
        """Go to the next or previous worst element."""
        return self._cursor.next_worst(scene, direction)

    def channel(self, scene: Scene, direction: int) -> str:
        """Go to the next or previous channel."""
        return self._cursor.move_along(scene, self._cursor.channel_axis(scene), direction)

    def action_channel(self, direction: int) -> None:
        """Go to the next or previous channel."""
        self.stage.with_scene(lambda scene: self.channel(scene, direction))


def one_side_note(scene: Scene) -> str:
    """Return a note for a tensor that only one side has; "" otherwise."""
    side = scene.plan_row.side
    return f"only the {side} has it: no error; 5 shows its values, v there their sizes" if side else ""


def has_values(scene: Scene) -> bool:
    """Return whether nothing is known that prevents showing all elements of the tensor."""
    ready, outcome = scene.ready, scene.outcome
    sides = () if ready is None or ready.recorded is None else ready.recorded
    has_all = all(side.statistics is not None and side.elements == side.statistics.count for side in sides)
    problem = "" if ready is None else ready.problem
    return has_all and not problem and (outcome is None or outcome.metrics is not None)


def waiting_text(scene: Scene) -> str:
    """Return why there are no elements to show yet."""
    if scene.plan_row.side:
        problem = scene.glimpse.problem if scene.glimpse is not None else ""
        if problem:
            return f"not compared: {scene.plan_row.missing}; its values cannot be shown: {problem}"
        return Provisional(f"not compared: {scene.plan_row.missing}; its values are being read ..", Until.ELEMENTS)
    if scene.ready is not None and scene.ready.problem:
        return scene.ready.problem
    if scene.outcome is None:
        return Provisional(_not_compared_text(scene), Until.RESULTS | Until.ELEMENTS)
    if scene.glimpse is not None and scene.glimpse.problem:
        return f"the elements cannot be shown: {scene.glimpse.problem}"
    return Provisional("the elements are being read ..", Until.ELEMENTS)


def _not_compared_text(scene: Scene) -> str:
    """Return a note for a tensor that is not compared yet."""
    if scene.glimpse is None:
        return "not compared yet: nodes are compared in topological order; its elements are being read .."
    if scene.glimpse.part is None:
        return f"not compared yet, and its elements cannot be shown before: {scene.glimpse.problem}"
    return (
        "not compared yet: nodes are compared in topological order; 5 shows its elements meanwhile, v there its planes"
    )


def so_far_text(share_text: str, width: int, *, noun: str = "tensor") -> str:
    """Return a note on how much of the tensor, or of a plane of it, a screen covers."""
    text = f" SO FAR: {share_text} of the {noun} has been read; what is shown covers only that part"
    return text if len(text) <= width else f" SO FAR: of the {share_text} that are read"


def waiting_lines(scene: Scene, head: Line, width: int) -> list[Line]:
    """Draw a screen that does not have elements yet."""
    lines = [head, [], *paragraph(safe_text(waiting_text(scene)), scene, width)]
    if scene.ready is not None and scene.ready.recorded is not None:
        lines += [[], *paragraph("4 shows the statistics that were recorded of it.", scene, width)]
    return lines


def sample_text(scene: Scene) -> str:
    """Return which sample and step the elements are from, and why; "" if there is only one."""
    sample = _sample_shown(scene)
    is_chosen = scene.navigator.sample is not None
    reason = "chosen" if is_chosen else sample_reason(scene.outcome, sample, scene.table.worst_sample)
    return ", ".join([_place_text(scene), *([reason] if scene.navigator.samples > 1 else [])])


def _sample_shown(scene: Scene) -> int:
    if scene.ready is not None:
        return scene.ready.values_sample
    return 0 if scene.glimpse is None else scene.glimpse.sample


def _place_text(scene: Scene) -> str:
    """Return the selected sample and step; each is left out if there is only one."""
    sample = [f"sample {_sample_shown(scene)}"] if scene.navigator.samples > 1 else []
    return ", ".join([*sample, *([f"step {scene.navigator.step}"] if scene.navigator.steps > 1 else [])])


def window_note(scene: Scene) -> str:
    """Return a note while only a window of the tensor is loaded; "" otherwise."""
    if scene.plan_row.side:
        return f" compared with nothing: {safe_text(scene.plan_row.missing or '')}"
    if scene.outcome is None:
        return " NOT COMPARED YET: elements as they were recorded, nothing is judged"
    statistics = None if scene.ready is None else scene.ready.statistics
    if statistics is None or statistics.unread_count:
        return " the elements around this one; the whole tensor is being read .."
    return ""


def _worst_positions(scene: Scene, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the positions of the worst elements in the current step."""
    worst = () if scene.ready is None else scene.ready.worst
    step = scene.navigator.step
    return [element.index for element in worst if element.step == step and _is_inside(element.index, shape)]


def _rank_text(scene: Scene, rank: int, count: int) -> str:
    """Return the rank of an element among the worst ones, which are those of the sample and step that is shown."""
    place_text = _place_text(scene)
    return f"element {rank + 1} of the {count} worst" + (f" in {place_text}" if place_text else "")


def _clipped_elsewhere_text(scene: Scene) -> str:
    """Return how many elements are clipped in all samples and steps, if none are in the current one."""
    rails = None if scene.outcome is None else scene.outcome.saturation
    if rails is None:
        return ""
    clipped_count, keys = (
        rails.clipped,
        [". and ,"] * (scene.navigator.samples > 1) + ["( and )"] * (scene.navigator.steps > 1),
    )
    return (
        f"; {numbers.grouped(clipped_count)} in all: {', '.join(keys)} go through them"
        if clipped_count
        else ", nor in any other"
    )


def _is_inside(index: Sequence[int], shape: Sequence[int]) -> bool:
    return len(index) == len(shape) and all(0 <= at < size for at, size in zip(index, shape, strict=True))
