"""The screens on top of the main screen: help and other texts, and the list of all commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.command import CommandPalette
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import OptionList

from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.glyphs import wrap
from qdebug.tui.drawing.look import Look
from qdebug.tui.keys import KeyRow
from qdebug.tui.nodes.filter import FLAGS, NUMBERS, TEXTS
from qdebug.tui.screens import ScreenId
from qdebug.tui.widgets.current_size import has_terminal_size
from qdebug.tui.widgets.lines import TextScroll

__all__ = ["CommandScreen", "HelpScreen", "ReadingScreen", "help_lines"]

_KEYS_WIDTH = 18
_KEYS_HINT = "esc closes, j k scroll, G signs and words, ctrl+p finds a key"

_SIGNS = (
    ("!", "first divergence: the first node beyond its limit, in topological order"),
    ("*", "failing: beyond its limit, or NaN or infinite on one side only"),
    (
        "+",
        "within its limit, at a cost (is=cost): codes too coarse or narrow, or a large error of a known arithmetic",
    ),
    ("?", "not compared; the detail says why"),
    ("-", "not compared: the reference alone has it"),
    ("~", "acknowledged: beyond its limit, and accepted with a reason"),
    ("'", "marked by you"),
    (".", "not compared yet"),
    (" ", "within its limit"),
)
_NOTES = (
    "clipped, in boxes clip: share of the reference's values that the codes cannot represent, below or above range",
    "clipped=0 in a filter: the range holds all of the reference; clipping of the backend is shown separately",
    "at qmin, at qmax: codes at the ends of their range, at_ends in a filter; not a fault without clipped values",
    "a Relu's zero: a code at qmin that stands for 0 after a Relu, whether that is right or wrong",
    "introduced: error that the node adds itself; propagated: error of its inputs; both as rel L2 on 1 and 2",
    "own, added here: share of introduced: its RMSE squared, over the sum of its square and that of propagated",
    "parts of an error may cancel: one part can be larger than the whole",
    "a share above 100 %: this node's error alone makes more than the output's squared error; others cancel the excess",
    "rows of the answer (1): first the nodes that help most together in float, up to the line 'left'; then by share",
    "arithmetic: the judged number < or > its limit: LSB without clipping, or a share of the rounding bound",
    "a limit that the column has no room for is in the detail (4)",
    "max rel: largest |backend - ref| / |ref| of an element: large where the reference is nearly 0",
    "mismatches: elements that differ at all: nearly all of a float tensor, which is not a fault",
    "gain: propagated error divided by the largest error of an input, each relative to its signal",
    "amplifies: a gain far above the median of its kind: a property of the net, not a fault in itself",
    "? in a shape: an extent that the model leaves open",
    "dB s7: SQNR of the output in its worst sample, here 7, if this node alone had its error; alone dB: in all",
    "the answer (1) has at most 200: the origin, the first divergence, what fails, costs an output most, adds most",
    "explained: the arithmetic that reproduces every bit; qdebug help arithmetics describes each, such as m=f32:xw/y",
    "> at the end of the heading: more columns, shown with the right arrow",
    "filter fields: " + " ".join((*NUMBERS, *TEXTS)) + "; what can follow is=: " + " ".join(FLAGS),
    "filter numbers are compared in full: 19.97 fits sqnr<20, and shows as 20.0",
    "filter terms: rel>1e-2, clipped>1%, op~regex, name='whole', conv; & and, | or, ! not, ( )",
    "origin: from the worst input to its worst input, until a node adds as much error as its inputs have",
    "in_band: a float node whose own error is within the rounding of its sums",
    "ctrl+c ends the program at once; esc closes a prompt",
    "bars of samples: rel L2 of each; the strip clipped: a full bar is all of a tensor",
    "span of codes: from the lowest code that occurs to the highest",
    "profile: error along the topological order, largest of each stretch; bad marks the bad end of its axis",
)


def help_lines(
    view: ScreenId, own_rows: Sequence[KeyRow], shared_rows: Sequence[KeyRow], width: int
) -> Sequence[Sequence[Piece]]:
    """Return the help: the keys of the screen, then the keys of all screens, then symbols and terms.

    Args:
        view: The screen below the help.
        own_rows: Its own keys.
        shared_rows: The keys of all screens.
        width: Cells per line.
    """
    lines: list[Sequence[Piece]] = [*_hanging_lines("Keys   ", _KEYS_HINT, width)]
    lines.append([])
    for title, rows in ((f"On the screen {view}", own_rows), ("On every screen", shared_rows)):
        lines.append([(title, "title")])
        for row in rows:
            lines += _hanging_lines(f"  {row.label.ljust(_KEYS_WIDTH)} ", row.help, width)
        lines.append([])
    lines.append([("Signs", "title")])
    for sign, text in _SIGNS:
        lines += _hanging_lines(f"  {sign} ", text, width)
    lines += [[], [("Words", "title")]]
    for note in _NOTES:
        lines += [[(f"  {line}", "muted")] for line in wrap(note, max(width - 2, 10))]
    return lines


def _hanging_lines(head: str, text: str, width: int) -> list[list[Piece]]:
    """Format text after a head, with continuation lines aligned to the text."""
    return [
        [((head if not at else " " * len(head)), "accent"), (line, "plain")]
        for at, line in enumerate(wrap(text, max(width - len(head), 10)))
    ]


class ReadingScreen(ModalScreen[None]):
    """Shows text until a key closes it.

    Args:
        look: Shared look.
        draw: Returns the lines for a width.
    """

    BINDINGS = [  # noqa: RUF012  as Textual declares it
        Binding("escape,q,question_mark,enter,backspace,h,v", "dismiss", show=False),
        Binding("j,down", "step(1)", show=False),
        Binding("k,up", "step(-1)", show=False),
        Binding("pagedown,ctrl+d,space", "step(10)", show=False),
        Binding("pageup,ctrl+u", "step(-10)", show=False),
        Binding("g,home", "step(-1000)", show=False),
        Binding("G,end", "step(1000)", show=False),
    ]
    DEFAULT_CSS = """
    ReadingScreen { align: center middle; background: $background; }
    ReadingScreen TextScroll { padding: 0 1; scrollbar-size-vertical: 1; overflow-x: hidden; scrollbar-gutter: stable; }
    ReadingScreen.ascii TextScroll { scrollbar-size: 0 0; }
    """

    def __init__(self, look: Look, draw: Callable[[int], Sequence[Sequence[Piece]]]) -> None:
        super().__init__(classes=look.glyphs.name)
        self._text = TextScroll(look, draw, id="text")

    def compose(self) -> ComposeResult:
        """Arrange the screen."""
        yield self._text

    def on_resize(self, event: Resize) -> None:
        """Arrange the screen, but only for the terminal's current size."""
        has_terminal_size(event, self)

    def action_step(self, lines: int) -> None:
        """Scroll."""
        self._text.scroll_by(lines)

    def redraw(self) -> None:
        """Redraw the text, which may have changed."""
        self._text.redraw()


class HelpScreen(ReadingScreen):
    """Shows the help."""


class CommandScreen(CommandPalette):
    """Runs the chosen command exactly once."""

    _was_dismissed = False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse keys of the list until it is laid out, since it has no lines before."""
        if action == "command_list":
            return any(
                options.option_count and options.scrollable_content_region.area for options in self.query(OptionList)
            )
        return super().check_action(action, parameters)

    def on_resize(self, event: Resize) -> None:
        """Arrange the screen, but only for the terminal's current size."""
        has_terminal_size(event, self)

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close the screen. A second call does not close the screen below it."""
        if self._was_dismissed:
            return AwaitComplete()
        self._was_dismissed = True
        return super().dismiss(result)
