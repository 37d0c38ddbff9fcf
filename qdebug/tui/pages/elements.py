"""The element that the screens of a tensor look at: one index that values, channels and map share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from qdebug.tui.pages.page import Line, Scene, paragraph
from qdebug.tui.slab import Slab
from qdebug.view.rows import position
from qdebug.view.text import safe_text

__all__ = ["FORMS", "ElementCursor", "so_far", "unjudged", "waiting", "waiting_lines"]

FORMS: Mapping[str, str] = {"real": "real numbers", "codes": "stored codes", "hex": "hexadecimal bits"}
"""How elements are written."""


class ElementCursor:
    """An index into the tensor under the list's cursor; it starts at the worst element."""

    def __init__(self) -> None:
        self.index: tuple[int, ...] = ()
        self.form = "real"
        self._of: tuple[object, ...] = ()
        self._waits = False  # for the worst element to become known, unless the user moves first

    def on(self, scene: Scene) -> Slab | None:
        """Give the elements, of which some may be on their way; None if it is not known what any of them sum up to.

        The index is inside their shape.
        """
        self.in_part(scene)
        return None if scene.ready is None else scene.ready.slab

    def in_part(self, scene: Scene) -> Slab | None:
        """Give the elements, or those around the index while it is not read yet; None if there are none."""
        slab = None if scene.ready is None else scene.ready.slab
        part = None if scene.glimpse is None else scene.glimpse.part
        if slab is None or (part is not None and self._on_its_way(slab)):
            slab = part
        if slab is None:
            return None
        key = (scene.backend, scene.row, slab.shape)
        if key != self._of or len(self.index) != len(slab.shape):
            self._of, self._waits = key, True
            self.index = (0,) * len(slab.shape)
        worst = () if scene.ready is None else scene.ready.detail.worst
        if self._waits and worst:
            self._waits = False
            self.index = worst[0].index if _inside(worst[0].index, slab.shape) else self.index
        return slab

    def _on_its_way(self, slab: Slab) -> bool:
        """Tell whether the plane that is looked at is not read yet."""
        if not slab.missing:
            return False
        index = self.index if len(self.index) == len(slab.shape) else (0,) * len(slab.shape)
        return slab.read_of(index) < prod(slab.shape[-2:])

    def seen(self, backend: int, row: int) -> tuple[int, ...] | None:
        """Give the index in a row's tensor; None if it is not there."""
        return self.index if self._of[:2] == (backend, row) else None

    def step(self, scene: Scene, axis: int, by: int) -> str:
        """Move along a dimension.

        Args:
            scene: Where the elements are.
            axis: Which dimension, from the end if negative; one that the tensor does not have has one element.
            by: How far; it stops at both ends.
        """
        slab = self.in_part(scene)
        if slab is None:
            return waiting(scene)
        at = axis % len(slab.shape) if -len(slab.shape) <= axis < len(slab.shape) else None
        if at is None:
            return f"this tensor has {len(slab.shape)} dimensions only"
        if not slab.shape[at]:
            return "the tensor has no elements"
        target = min(max(self.index[at] + by, 0), slab.shape[at] - 1)
        if target == self.index[at]:
            return f"dimension {at} {'ends' if by > 0 else 'begins'} here, it has {slab.shape[at]} entries"
        self.index = (*self.index[:at], target, *self.index[at + 1 :])
        self._waits = False
        return ""

    def worst(self, scene: Scene, direction: int) -> str:
        """Go to the next or previous of the worst elements."""
        slab = self.on(scene)
        if slab is None or scene.ready is None:
            return waiting(scene)
        places = [element.index for element in scene.ready.detail.worst if _inside(element.index, slab.shape)]
        if not places:
            return "no element differs" if scene.ready.complete else "the worst elements are still being looked for"
        at = places.index(self.index) + direction if self.index in places else 0
        self.index = places[at % len(places)]
        return f"worst element {at % len(places) + 1} of {len(places)}"

    def jump(self, scene: Scene, text: str) -> str:
        """Go to an element that is written as numbers with commas; negative ones count from the end."""
        slab = self.in_part(scene)
        if slab is None:
            return waiting(scene)
        try:
            given = tuple(int(part) for part in text.strip().lstrip("@").strip("[]() ").split(",") if part.strip())
        except ValueError:
            return f"an index is numbers with commas, such as {position(self.index)}"
        if len(given) != len(slab.shape):
            return f"this tensor needs {len(slab.shape)} numbers, such as {position(self.index)}"
        index = tuple(one + size if one < 0 else one for one, size in zip(given, slab.shape, strict=True))
        if not _inside(index, slab.shape):
            return f"outside of {'x'.join(map(str, slab.shape))}"
        self.index, self._waits = index, False
        return f"element {position(index)}"

    def next_form(self, scene: Scene) -> str:
        """Write the elements in the next form."""
        forms = list(FORMS)
        self.form = forms[(forms.index(self.form) + 1) % len(forms)]
        slab = self.in_part(scene)
        if self.form == "codes" and slab is not None and slab.backend_codes is None and slab.reference_codes is None:
            self.form = "hex"
            return "hex; neither side is quantized, so there are no codes"
        return FORMS[self.form]


def waiting(scene: Scene) -> str:
    """Say why there are no elements to see yet."""
    if scene.planned.missing is not None:
        return "this tensor is not compared: " + scene.planned.missing
    if scene.ready is not None and scene.ready.problem:
        return scene.ready.problem
    if scene.outcome is None:
        if scene.glimpse is None:
            return "not compared yet: its turn comes, in topological order; its elements are being read .."
        if scene.glimpse.part is None:
            return f"not compared yet, and its elements cannot be shown before: {scene.glimpse.problem}"
        return (
            "not compared yet: its turn comes, in topological order; 5, and 7 in one plane, show its elements meanwhile"
        )
    return "the elements are being read .."


def so_far(slab: Slab, width: int) -> str:
    """Say of how much of the tensor a screen is."""
    text = f" SO FAR: {slab.so_far} of the tensor is read; what is shown holds for that part"
    return text if len(text) <= width else f" SO FAR: of the {slab.so_far} that are read"


def waiting_lines(scene: Scene, head: Line, width: int) -> list[Line]:
    """Draw a screen that has no elements yet."""
    lines = [head, [], *paragraph(safe_text(waiting(scene)), scene, width)]
    if scene.ready is not None and scene.ready.recorded is not None:
        lines += [[], *paragraph("4 shows the statistics that were recorded of it.", scene, width)]
    return lines


def unjudged(scene: Scene) -> str:
    """Say that elements are shown of which nothing is known but what was recorded."""
    if scene.outcome is None:
        return " NOT COMPARED YET: elements as they were recorded, nothing is judged"
    return " the elements around this one; the whole tensor is being read .."


def _inside(index: Sequence[int], shape: Sequence[int]) -> bool:
    return len(index) == len(shape) and all(0 <= one < size for one, size in zip(index, shape, strict=True))
