from collections import Counter
from operator import attrgetter

from textual.fuzzy import Matcher

from qdebug.tui.keys import GROUPS, KEYS, footer_keys, key_label, markdown_table

ASKED = set("jkgGnNsSdztyqhlwWfFmiYeHLvcCbxrR1234567890") | {
    *("plus", "minus", "semicolon", "colon"),
    *("at", "apostrophe", "tab", "shift+tab", "ctrl+z", "right_parenthesis", "left_parenthesis"),
    *("up", "down", "ctrl+d", "ctrl+u", "pageup", "pagedown", "home", "end", "enter", "escape", "backspace", "ctrl+p"),
    *("slash", "right_square_bracket", "left_square_bracket", "exclamation_mark", "comma", "full_stop"),
    "question_mark",
}
DISGUISED = {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+left_square_bracket", "ctrl+slash", "esc", "ctrl+enter", "shift+enter"}


def test_every_key_that_was_promised_is_there_once():
    keys = [key for row in KEYS for key in row.keys]
    assert set(keys) >= ASKED
    assert max(Counter(keys).values()) == 1


def test_no_key_is_another_one_in_disguise():
    assert not DISGUISED & {key for row in KEYS for key in row.keys}


def test_every_action_exists(make_app, make_session):
    screen = make_app(make_session())._main
    for row in KEYS:
        assert callable(attrgetter(row.action)(screen)), row.action


def test_every_row_has_help_in_a_known_group():
    assert {row.group for row in KEYS} == set(GROUPS)
    assert all(row.help for row in KEYS)


def test_the_footer_keeps_the_important_keys_when_it_is_narrow():
    assert [row.footer for row in footer_keys(40)][:3] == ["open", "first", "origin"]
    assert "q" in {row.names for row in footer_keys(79)}
    assert sum(len(key_label(row.keys[0])) + len(row.footer) + 3 for row in footer_keys(60)) <= 60
    assert len(footer_keys(300)) == sum(1 for row in KEYS if row.footer)


def test_labels_are_what_people_write():
    assert key_label("right_square_bracket") == "]"
    assert key_label("ctrl+d") == "ctrl+d"


def test_the_markdown_lists_every_key():
    table = markdown_table()
    assert table.count("\n") == len(KEYS) + 2
    assert "| `esc` `backspace` |" in table


PLAIN = {
    "graph": "screen graph",
    "histogram": "screen tensor",
    "clipping": "screen tensor",
    "worst elements": "screen tensor",
    "weights": "constants of the node",
    "bias": "constants of the node",
    "codes": "form",
    "hex": "form",
    "heat map": "screen map",
    "channels": "screen channels",
    "samples": "screen samples",
    "explain": "screen explain",
    "what-if": "screen what-if",
    "budget": "screen budget",
    "edits": "screen edits",
    "backends": "screen backends",
    "first divergence": "first divergence",
    "culprit": "origin",
    "origin": "origin",
    "worst input": "worst input",
    "find": "search",
    "filter": "filter",
    "mark": "mark the node",
    "return": "return to a mark",
    "metric": "metric",
    "sort": "sort by the next",
    "export": "export",
    "save": "export",
    "csv": "export",
    "copy": "copy the name",
    "theme": "theme",
    "colours": "theme",
    "zoom": "zoom",
    "acknowledge": "acknowledge",
    "note": "note on",
    "pair": "pair the tensor",
    "quit": "quit",
    "exit": "quit",
    "verdict": "the whole verdict",
    "limits": "the whole verdict",
    "help": "help",
    "back": "back: screen",
    "history": "back in the history",
    "open": "open",
    "reset": "what-if: reset",
    "calibrator": "what-if: what the next calibrator",
    "suspend": "suspend",
}
"""What people type, and how the help of the action begins that they mean."""


def test_the_palette_finds_an_action_by_its_plain_word():
    missed = {}
    for word, begins in PLAIN.items():
        matcher = Matcher(word)
        ranked = sorted((row.help for row in KEYS), key=lambda title: -matcher.match(title))
        best = [title for title in ranked[:3] if matcher.match(title) > 0]
        if not any(title.startswith(begins) for title in best):
            missed[word] = best
    assert not missed
