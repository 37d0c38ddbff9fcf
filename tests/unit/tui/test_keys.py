from collections import Counter

from textual.binding import Binding
from textual.events import Key
from textual.fuzzy import Matcher

from qdebug.tui.application import QdebugApp, _split_alt_key
from qdebug.tui.keys import key_label
from qdebug.tui.screen.bindings import COMMANDS_WITHOUT_KEY, all_key_rows, shared_key_rows, view_key_rows
from qdebug.tui.screen.main_screen import MainScreen
from qdebug.tui.screens import VIEWS
from qdebug.tui.views.table import view_class

ASKED = set("jkgGnNdqhlWfmiyeHLoXvbY123456789") | {
    *("at", "tab", "shift+tab", "exclamation_mark", "comma", "full_stop", "slash", "question_mark"),
    *("up", "down", "ctrl+d", "ctrl+u", "pageup", "pagedown", "home", "end", "enter", "escape", "backspace"),
    *("right_square_bracket", "left_square_bracket"),
}
DISGUISED = {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+left_square_bracket", "ctrl+slash", "esc", "ctrl+enter", "shift+enter"}


def bindings(*classes):
    return [each for one in classes for each in Binding.make_bindings(one.BINDINGS)]


def test_every_key_that_was_promised_is_there_once():
    keys = [each.key for each in bindings(MainScreen, QdebugApp)]
    assert {*keys, "enter"} >= ASKED
    assert max(Counter(keys).values()) == 1


def test_there_are_few_enough_to_learn():
    """Each row is something to know: as many as a page of help holds."""
    digits = [row for row in shared_key_rows() if row.keys[0].isdigit()]
    own = {row.keys[0] for _, row in all_key_rows()} - {row.keys[0] for row in shared_key_rows()}
    assert len(shared_key_rows()) - len(digits) + 1 + len(own) <= 45


def test_a_letter_means_the_same_on_every_screen():
    """A screen may say more exactly what a key of all screens does there; an own letter has one meaning."""
    meanings = {}
    for view in VIEWS:
        for row in view_key_rows(view_class(view)):
            for key in row.keys:
                meanings.setdefault(key, set()).add(row.action.rpartition(".")[2])
    shared = {key for row in shared_key_rows() for key in row.keys}
    for key, actions in meanings.items():
        assert len(actions) == 1 or key in {"s", "space", *shared}, (key, actions)


def test_no_key_is_another_one_in_disguise():
    keys = {each.key for each in bindings(MainScreen, QdebugApp, *(view_class(view) for view in VIEWS))}
    assert not DISGUISED & keys


def test_every_action_exists():
    app_actions = {each.action for each in bindings(QdebugApp)}
    for view in VIEWS:
        for row in (*shared_key_rows(), *view_key_rows(view_class(view))):
            name = row.action.rpartition(".")[2].partition("(")[0]
            there = MainScreen if row.action.startswith("screen.") or row in shared_key_rows() else view_class(view)
            assert callable(getattr(there, f"action_{name}")), row.action
    for action, _ in COMMANDS_WITHOUT_KEY:
        namespace, _, name = action.partition("(")[0].rpartition(".")
        assert callable(getattr(QdebugApp if namespace == "app" else MainScreen, f"action_{name}")), action
    assert app_actions


def test_labels_are_what_people_write():
    assert key_label("right_square_bracket") == "]"
    assert key_label("ctrl+d") == "ctrl+d"
    assert key_label("up") == "up"


PLAIN = {
    "graph": "screen graph",
    "histogram": "screen tensor",
    "clipping": "screen tensor",
    "worst elements": "screen tensor",
    "weights": "constants of the node",
    "bias": "constants of the node",
    "codes": "form",
    "hex": "form",
    "heat map": "form",
    "channels": "screen channels",
    "samples": "screen samples",
    "explain": "screen why",
    "another scale": "try another scale",
    "budget": "budget",
    "edits": "screen mend",
    "backends": "all backends",
    "first divergence": "first divergence",
    "culprit": "origin",
    "origin": "origin",
    "worst input": "worst input",
    "find": "search",
    "filter": "filter",
    "mark": "mark the node",
    "return": "return to a mark",
    "metric": "metric",
    "sort": "sort by",
    "export": "export",
    "save": "export",
    "csv": "export",
    "copy": "copy the name",
    "theme": "theme",
    "colours": "theme",
    "acknowledge": "acknowledge",
    "note": "note on",
    "pair": "pair the tensor",
    "quit": "quit",
    "exit": "quit",
    "verdict": "the whole verdict",
    "limits": "the whole verdict",
    "help": "help",
    "back": "back: question",
    "history": "history",
    "open": "open",
    "reset": "reset",
    "suspend": "suspend",
}
"""What people type, and how the help of the action begins that they mean."""


def test_the_palette_finds_an_action_by_its_plain_word(make_app, make_session):
    app = make_app(make_session())
    titles = [command.title for command in app.get_system_commands(app._main)]
    missed = {}
    for word, begins in PLAIN.items():
        matcher = Matcher(word)
        ranked = sorted(titles, key=lambda title: -matcher.match(title))
        best = [title for title in ranked[:4] if matcher.match(title) > 0]
        if not any(title.startswith(begins) for title in best):
            missed[word] = best
    assert not missed


def test_a_digit_in_one_burst_with_an_escape_is_a_key_of_its_own():
    burst = Key("trade_mark_sign", "™")  # what Textual reads for escape and 2
    assert [key.key for key in _split_alt_key(burst, types_text=False)] == ["escape", "2"]
    assert [*_split_alt_key(burst, types_text=True)] == [burst], "in a text it may be meant"
