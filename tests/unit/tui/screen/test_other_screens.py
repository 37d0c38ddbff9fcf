"""The help: every key, and no word cut off however narrow the terminal is."""

import pytest

from qdebug.tui.keys import KEYS
from qdebug.tui.screen.other_screens import help_lines


@pytest.mark.parametrize("width", [40, 58, 78, 129, 130, 200])
def test_no_word_of_the_help_is_cut(width):
    lines = ["".join(piece for piece, _ in line) for line in help_lines(width)]
    assert max(map(len, lines)) <= width
    if width < 130:
        said = " ".join(" ".join(lines).split())
        assert all(row.help in said for row in KEYS)
