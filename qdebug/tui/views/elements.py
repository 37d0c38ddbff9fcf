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
from qdebug.tui.elements.summing import MOST_PLACES, Whole
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import LookedAt
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import DrawnView, Line, Scene, View, paragraph

__all__ = [
    "FORMS",
    "ElementCursor",
    "ElementsView",
    "alone",
    "has_values",
    "judged",
    "of_sample",
    "so_far",
    "waiting",
    "waiting_lines",
]

FORMS: Mapping[str, str] = {"real": "real numbers", "codes": "stored codes", "hex": "hexadecimal bits"}
"""The forms in which elements can be shown."""
_NO_CODES = "the backend has no codes here: nothing is clipped"


class ElementCursor:
    """An index into the tensor under the list's cursor, initially the worst element."""

    def __init__(self) -> None:
        self.index: tuple[int, ...] = ()
        self.form = "real"
        self._of: tuple[object, ...] = ()
        self._waits = False  # for the worst element to become known, unless the user moves first
        self._awaited: tuple[tuple[object, ...], str | None] | None = None
        """The tensor, and the element to go to once it is read: its index as text, or None for the next clipped one."""

    def whole(self, scene: Scene) -> Whole | None:
        """Return the totals of all elements, or of those read so far; None if unknown.

        Also adjusts the index to the shape. Not all elements are in memory. `in_part` returns the ones that are.
        """
        whole = None if scene.ready is None else scene.ready.whole
        if whole is not None:
            self._settle(scene, whole.shape)
        return whole

    def in_part(self, scene: Scene) -> Slab | None:
        """Return the elements around the index, or all of a small tensor; None if there are none.

        Also adjusts the index to the tensor's shape.
        """
        slab = None if scene.glimpse is None else scene.glimpse.part
        whole = None if scene.ready is None else scene.ready.whole
        if slab is None:
            return None
        self._settle(scene, slab.shape)
        if whole is None or whole.missing or whole.shape != slab.shape:
            return slab
        return replace(slab, largest=whole.largest)

    def shape(self, scene: Scene) -> tuple[int, ...] | None:
        """Return the extents of the tensor, and adjust the index to them; None if unknown."""
        part = self.in_part(scene) or self.whole(scene)
        return None if part is None else part.shape

    def _settle(self, scene: Scene, shape: tuple[int, ...]) -> None:
        """Adjust the index to a tensor of this shape: at the worst element once that is known, else at the first."""
        key = (*scene.place, shape)
        if key != self._of or len(self.index) != len(shape):
            self._of, self._waits = key, True
            self.index = (0,) * len(shape)
        worst = () if scene.ready is None else scene.ready.worst
        if self._waits and worst:
            self._waits = False
            self.index = next(iter(_places(scene, shape)), self.index)

    def look(self, scene: Scene | None, view: View | None) -> LookedAt:
        """Return the element and plane that a view shows."""
        if scene is None:
            return LookedAt()
        self.shape(scene)
        is_same = self._of[:2] == scene.place
        return LookedAt(self.index if is_same else None, view is not None and view.plane)

    def channel_axis(self, scene: Scene) -> int:
        """Return the channel axis; 0 while it is unknown."""
        part = self.in_part(scene) or self.whole(scene)
        return 0 if part is None else part.axis

    def put(self, index: tuple[int, ...]) -> str:
        """Go to an element of the current tensor."""
        self.index, self._waits = index, False
        return ""

    def step(self, scene: Scene, axis: int, by: int) -> str:
        """Move along a dimension.

        Args:
            scene: The scene with the elements.
            axis: The dimension, counted from the end if negative. A dimension that the tensor lacks has one element.
            by: The distance; the cursor stops at both ends.
        """
        shape = self.shape(scene)
        if shape is None:
            return waiting(scene)
        at = axis % len(shape) if -len(shape) <= axis < len(shape) else None
        if at is None:
            return f"this tensor has {len(shape)} dimensions only"
        if not shape[at]:
            return "the tensor has no elements"
        target = min(max(self.index[at] + by, 0), shape[at] - 1)
        if target == self.index[at]:
            return f"dimension {at} {'ends' if by > 0 else 'begins'} here, it has {shape[at]} entries"
        self.index = (*self.index[:at], target, *self.index[at + 1 :])
        self._waits = False
        return ""

    def rank(self, scene: Scene) -> str:
        """Return which of the worst elements the cursor is on; "" if it is on none, or if they are unknown."""
        whole = self.whole(scene)
        places = [] if whole is None or scene.ready is None else _places(scene, whole.shape)
        return f"worst {places.index(self.index) + 1} of {len(places)}" if self.index in places else ""

    def worst(self, scene: Scene, direction: int) -> str:
        """Go to the next or previous worst element."""
        whole = self.whole(scene)
        if whole is None or scene.ready is None:
            return alone(scene) or waiting(scene)
        places = _places(scene, whole.shape)
        if not places and scene.ready.worst:
            steps = sorted({element.step for element in scene.ready.worst})
            return f"the worst elements are in other steps: {', '.join(map(str, steps))}; ( and ) choose one"
        if not places:
            if scene.ready.complete:
                return "no element differs"
            return Provisional("the worst elements are still being looked for", Until.ELEMENTS)
        at = places.index(self.index) + direction if self.index in places else 0
        self.index = places[at % len(places)]
        message = f"worst element {at % len(places) + 1} of {len(places)}"
        if scene.navigator.steps > 1:
            first = scene.ready.worst[0].step
            more = "" if first == scene.navigator.step else f"; the worst of all is in step {first}"
            message += f" in step {scene.navigator.step}{more}"
        return message

    def clipped(self, scene: Scene) -> str:
        """Go to the next element whose reference the backend's codes cannot represent."""
        if scene.planned.missing is None and scene.planned.quant is None:
            return _NO_CODES
        whole = self.whole(scene)
        if whole is None or scene.ready is None:
            return alone(scene) or waiting(scene)
        if whole.clipped is None:
            return _NO_CODES
        so_far = " so far" if whole.missing else ""
        if not whole.clipped:
            of = _which_sample(scene)
            return f"no element is clipped in {of or 'this tensor'}{so_far}{_elsewhere(scene) if of else ''}"
        here = int(np.ravel_multi_index(self.index, whole.shape)) if whole.shape else 0
        at = bisect_right(whole.clipped, here) % len(whole.clipped)
        self.put(tuple(int(place) for place in np.unravel_index(whole.clipped[at], whole.shape)))
        first = "first " if len(whole.clipped) == MOST_PLACES else ""
        return f"clipped element {at + 1} of {'the ' + first if first else ''}{len(whole.clipped)}{so_far}"

    def jump(self, scene: Scene, text: str) -> str:
        """Go to an element given as numbers with commas. Negative numbers count from the end."""
        shape = self.shape(scene)
        if shape is None:
            return waiting(scene)
        try:
            positions = tuple(int(part) for part in text.strip().lstrip("@").strip("[]() ").split(",") if part.strip())
        except ValueError:
            return f"an index is numbers with commas, such as {position(self.index)}"
        if len(positions) != len(shape):
            return f"this tensor needs {len(shape)} numbers, such as {position(self.index)}"
        index = tuple(at + size if at < 0 else at for at, size in zip(positions, shape, strict=True))
        if not _inside(index, shape):
            return f"outside of {'x'.join(map(str, shape))}"
        self.index, self._waits = index, False
        return f"element {position(index)}"

    def next_form(self, scene: Scene) -> str | None:
        """Show the elements in the next form. After the last form, return None and start over."""
        forms = list(FORMS)
        at = forms.index(self.form) + 1
        self.form = forms[at % len(forms)]
        if at == len(forms):
            return None
        slab = self.in_part(scene)
        if self.form == "codes" and slab is not None and slab.backend_codes is None and slab.reference_codes is None:
            self.form = "hex"
            return f"hex; {'this is not' if slab.alone else 'neither side is'} quantized, so there are no codes"
        return FORMS[self.form]

    # An element to go to once it is read

    def to_element(self, scene: Scene, view: ScreenId, text: str) -> str:
        """Go to an element now, or once the elements are read."""
        there = self.shape(scene) is not None
        never = any(answer is not None and answer.problem for answer in (scene.ready, scene.glimpse))
        waits = not there and not never
        self._awaited = (_shown_tensor(scene, view), text) if waits else None
        message = self.jump(scene, text)
        return f"{message.rstrip(' .')}; then it goes to {safe_text(text, limit=40)}" if waits else message

    def to_clipped(self, scene: Scene, view: ScreenId) -> str:
        """Go to the next clipped element now, or once the elements are read."""
        self._awaited = None
        message, ready = self.clipped(scene), scene.ready
        if scene.planned.missing is None and (ready is None or (ready.whole is None and not ready.problem)):
            self._awaited = _shown_tensor(scene, view), None
            return f"{message.rstrip(' .')}; then it goes to a clipped one"
        return message

    def forget(self) -> None:
        """Stop waiting for an element."""
        self._awaited = None

    def arrive(self, scene: Scene, view: ScreenId) -> str | None:
        """Go to the awaited element if it is there, and return a message; None if there is nothing to report."""
        awaited = self._awaited
        if awaited is None:
            return None
        if awaited[0] != _shown_tensor(scene, view):
            self._awaited = None
        elif awaited[1] is None:
            if scene.ready is not None and (scene.ready.whole is not None or scene.ready.problem):
                return self.to_clipped(scene, view)
        elif self.shape(scene) is not None or (scene.ready is not None and scene.ready.problem):
            return self.to_element(scene, view, awaited[1])
        return None


def _shown_tensor(scene: Scene, view: ScreenId) -> tuple[object, ...]:
    navigator = scene.navigator
    return scene.backend, scene.planned.tensor, navigator.sample, navigator.step, view


class ElementsView(DrawnView):
    """A screen that shows elements.

    Args:
        cursor: The element that all such screens share.
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
        return self._cursor.worst(scene, direction)

    def channel(self, scene: Scene, direction: int) -> str:
        """Go to the next or previous channel."""
        return self._cursor.step(scene, self._cursor.channel_axis(scene), direction)

    def action_channel(self, direction: int) -> None:
        """Go to the next or previous channel."""
        self.stage.with_scene(lambda scene: self.channel(scene, direction))


def alone(scene: Scene) -> str:
    """Return a note for a tensor that only one side has; "" otherwise."""
    side = scene.planned.side
    return f"the {side} alone has it: no error; 5 shows its values, v there their sizes" if side else ""


def has_values(scene: Scene) -> bool:
    """Return whether all elements of the tensor can be shown, as far as they are read."""
    ready, outcome = scene.ready, scene.outcome
    sides = () if ready is None or ready.recorded is None else ready.recorded
    has_all = all(side.statistics is not None and side.elements == side.statistics.count for side in sides)
    problem = "" if ready is None else ready.problem
    return has_all and not problem and (outcome is None or outcome.metrics is not None)


def waiting(scene: Scene) -> str:
    """Return why there are no elements to show yet."""
    if scene.planned.side:
        problem = scene.glimpse.problem if scene.glimpse is not None else ""
        if problem:
            return f"not compared: {scene.planned.missing}; its values cannot be shown: {problem}"
        return Provisional(f"not compared: {scene.planned.missing}; its values are being read ..", Until.ELEMENTS)
    if scene.ready is not None and scene.ready.problem:
        return scene.ready.problem
    if scene.outcome is None:
        return Provisional(_before_its_turn(scene), Until.RESULTS | Until.ELEMENTS)
    if scene.glimpse is not None and scene.glimpse.problem:
        return f"the elements cannot be shown: {scene.glimpse.problem}"
    return Provisional("the elements are being read ..", Until.ELEMENTS)


def _before_its_turn(scene: Scene) -> str:
    """Return a note for a tensor that is not compared yet."""
    if scene.glimpse is None:
        return "not compared yet: its turn comes, in topological order; its elements are being read .."
    if scene.glimpse.part is None:
        return f"not compared yet, and its elements cannot be shown before: {scene.glimpse.problem}"
    return "not compared yet: its turn comes, in topological order; 5 shows its elements meanwhile, v there its planes"


def so_far(part: str, width: int, *, of: str = "tensor") -> str:
    """Return a note on how much of the tensor, or of a plane of it, a screen covers."""
    text = f" SO FAR: {part} of the {of} is read; what is shown holds for that part"
    return text if len(text) <= width else f" SO FAR: of the {part} that are read"


def waiting_lines(scene: Scene, head: Line, width: int) -> list[Line]:
    """Draw a screen that does not have elements yet."""
    lines = [head, [], *paragraph(safe_text(waiting(scene)), scene, width)]
    if scene.ready is not None and scene.ready.recorded is not None:
        lines += [[], *paragraph("4 shows the statistics that were recorded of it.", scene, width)]
    return lines


def of_sample(scene: Scene) -> str:
    """Return which sample and step the elements are from, and why; "" if there is only one."""
    sample = _seen_sample(scene)
    stats = None if scene.outcome is None else scene.outcome.metrics
    why = "largest max abs" if stats is not None and stats.worst_sample == sample else "the first"
    why = why if scene.navigator.sample is None else "chosen"
    return ", ".join([_which_sample(scene), *([why] if scene.navigator.samples > 1 else [])])


def _seen_sample(scene: Scene) -> int:
    if scene.ready is not None:
        return scene.ready.values_sample
    return 0 if scene.glimpse is None else scene.glimpse.sample


def _which_sample(scene: Scene) -> str:
    """Return the selected sample and step; each is left out if there is only one."""
    sample = [f"sample {_seen_sample(scene)}"] if scene.navigator.samples > 1 else []
    return ", ".join([*sample, *([f"step {scene.navigator.step}"] if scene.navigator.steps > 1 else [])])


def judged(scene: Scene) -> str:
    """Return a note while only a window of the tensor is loaded; "" otherwise."""
    if scene.planned.side:
        return f" compared with nothing: {safe_text(scene.planned.missing or '')}"
    if scene.outcome is None:
        return " NOT COMPARED YET: elements as they were recorded, nothing is judged"
    whole = None if scene.ready is None else scene.ready.whole
    if whole is None or whole.missing:
        return " the elements around this one; the whole tensor is being read .."
    return ""


def _places(scene: Scene, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the positions of the worst elements in the current step."""
    worst = () if scene.ready is None else scene.ready.worst
    step = scene.navigator.step
    return [element.index for element in worst if element.step == step and _inside(element.index, shape)]


def _elsewhere(scene: Scene) -> str:
    """Return how many elements are clipped in all samples and steps, if none are in the current one."""
    rails = None if scene.outcome is None else scene.outcome.saturation
    if rails is None:
        return ""
    many, keys = (
        rails.clipped,
        [". and ,"] * (scene.navigator.samples > 1) + ["( and )"] * (scene.navigator.steps > 1),
    )
    return f"; {numbers.grouped(many)} in all: {', '.join(keys)} go through them" if many else ", nor in any other"


def _inside(index: Sequence[int], shape: Sequence[int]) -> bool:
    return len(index) == len(shape) and all(0 <= at < size for at, size in zip(index, shape, strict=True))
