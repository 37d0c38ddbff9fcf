"""No text from a recording may steer a terminal, whatever it holds."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.present.text import ELLIPSIS, safe_text, shorten, styled

DANGEROUS = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("conv1", "conv1"),
        ("Ünïcode/层", "Ünïcode/层"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("two\nlines\r\n\tmore", r"two\nlines\r\n\tmore"),
        ("c1\x9b31m", r"c1\x9b31m"),
        ("abc\u202edef", r"abc\u202edef"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("line\u2028sep", r"line\u2028sep"),
        ("half\ud800", r"half\ud800"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("private\ue000", r"private\ue000"),
        ("\x00\x07\x7f", r"\x00\x07\x7f"),
        ("[red]no markup[/red]", "[red]no markup[/red]"),
        (b"bytes", "b'bytes'"),
        (None, "None"),
    ],
)
def test_what_could_steer_a_terminal_is_shown_as_an_escape(raw, shown):
    assert safe_text(raw) == shown


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=300), st.integers(1, 80))
def test_any_text_becomes_one_line_of_at_most_the_limit(raw, limit):
    shown = safe_text(raw, limit=limit)
    assert len(shown) <= limit
    assert not {unicodedata.category(character) for character in shown} & DANGEROUS
    assert len(shown.splitlines()) <= 1


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=50))
def test_ordinary_text_is_left_as_it_is(raw):
    assert safe_text(raw) == raw


def test_a_huge_name_is_cut_before_it_is_escaped():
    shown = safe_text("\x1b" * 10_000_000 + "end", limit=40)
    assert len(shown) == 40
    assert shown.endswith("end")


def test_the_middle_goes_and_most_of_the_end_stays():
    shown = shorten("model/backbone/stage1/block2/conv3", 20)
    assert shown == "model/" + ELLIPSIS + "/block2/conv3"
    assert len(shown) == 20


@given(st.text(max_size=60), st.integers(1, 60))
def test_shortened_text_keeps_both_ends(text, limit):
    shown = shorten(text, limit)
    assert len(shown) == min(len(text), limit)
    if len(text) > limit:
        head, tail = shown.split(ELLIPSIS)[0], shown.rsplit(ELLIPSIS)[-1]
        assert text.startswith(head) or ELLIPSIS in text
        assert text.endswith(tail)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_an_error(limit):
    with pytest.raises(ValueError, match="characters"):
        safe_text("x", limit=limit)
    with pytest.raises(ValueError, match="characters"):
        shorten("x", limit)


def test_a_cell_is_never_read_as_markup():
    text = styled("conv[red]x[/red] [/oops] \x1b[0m", "bold")
    assert text.plain == r"conv[red]x[/red] [/oops] \x1b[0m"
    assert str(text.style) == "bold"
    assert not text.spans
