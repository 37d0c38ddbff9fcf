"""Commands that are printed come back from a shell as the words they were made of, whatever a name holds."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.present.shell import command, shell_word
from qdebug.present.text import safe_text

_SHELL = shutil.which("bash")
_NAMES = [
    "conv1",
    "model/layer 4/conv",
    "two\nlines",
    'a\'b\\n"c"',
    "\x1b[2J$(touch x);`id`",
    "tab\there\r",
    "é中\u202egpj.exe\u2028",
    "quote'and\nnewline\\",
    "not utf-8: \udcff",
    "\x01ff then hex",
    "x" * 5000,
    "",
]


def read_back(line):
    """Return the words that bash makes of a line, as bytes."""
    done = subprocess.run([_SHELL, "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, timeout=20)
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.skipif(_SHELL is None, reason="bash is not installed")
@pytest.mark.parametrize("name", _NAMES)
def test_a_shell_reads_the_very_words(name):
    line = command("qdebug", "explain", "my file.h5", "--node", name)
    words = [b"qdebug", b"explain", b"my file.h5", b"--node", name.encode("utf-8", "surrogateescape")]
    assert read_back(line) == words


@pytest.mark.skipif(_SHELL is None, reason="bash is not installed")
@drawn(25)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=12))
def test_any_words_come_back(words):
    assert read_back(" ".join(map(shell_word, words))) == [word.encode() for word in words]


@pytest.mark.parametrize("name", _NAMES)
def test_what_is_printed_is_one_harmless_line(name):
    line = command("qdebug", name)
    assert safe_text(line, limit=100_000) == line


def test_plain_words_stay_plain():
    assert command("qdebug", "diff", "a.h5", "b c.h5") == "qdebug diff a.h5 'b c.h5'"


def test_a_name_that_begins_with_a_dash_is_tied_to_its_option():
    assert command("qdebug", "explain", "b.h5", "--node", "-x y", "-o", "t") == "qdebug explain b.h5 --node='-x y' -o t"
