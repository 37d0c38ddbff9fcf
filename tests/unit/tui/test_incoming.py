"""What a terminal sends, in bursts cut anywhere: escapes are keys of their own, and nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.tui.incoming import Incoming

KEYS = st.sampled_from([b"j", b"/", b"q", b"\r", b"\x1b[A", b"\x1b[6~", b"\x1bOP", b"\x1b[<0;3;4M", "é".encode()])


def passed(*bursts):
    """Give what is passed on of bursts that follow each other at once, with "|" where an escape has to be taken."""
    incoming, found = Incoming(), []
    for burst in bursts:
        for part, wait in incoming.take(burst, escaped=False):
            found += [part, b"|"] if wait else [part]
    return b"".join(found)


@given(st.lists(KEYS, min_size=1, max_size=12), st.data())
def test_sequences_cut_anywhere_are_passed_on_whole(keys, data):
    sent = b"".join(keys)
    places = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=5)))
    bursts = [sent[start:end] for start, end in zip([0, *places], [*places, len(sent)], strict=True) if end > start]
    assert passed(*bursts) == sent


@pytest.mark.parametrize(
    ("bursts", "expected"),
    [
        ([b"\x1bj"], b"\x1b|j"),
        ([b"\x1b", b"j"], b"\x1b|j"),
        ([b"abc\x1b/x"], b"abc\x1b|/x"),
        ([b"\x1b\r"], b"\x1b|\r"),
        ([b"\x1b\x1b[A"], b"\x1b|\x1b[A"),
        ([b"\x1b", b"[", b"B"], b"\x1b[B"),
        ([b"\x1b[", b""], b"\x1b|["),
        ([b"\x1b]", b""], b"\x1b|]"),
        ([b"\x1bO", b""], b"\x1b|O"),
        ([b"\x1b", b""], b"\x1b"),
    ],
)
def test_an_escape_is_taken_before_what_comes_after_it(bursts, expected):
    assert passed(*bursts) == expected


@pytest.mark.parametrize(
    "answer", [b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", b"\x1b]11;rgb:00/00/00\x07", b"\x1b[?62;22c", b"\x1b[?1;2c"]
)
@pytest.mark.parametrize("at", [None, 2, 5])
def test_an_answer_that_comes_late_is_no_key(answer, at):
    bursts = [b"j" + answer + b"k"] if at is None else [b"j" + answer[:at], answer[at:] + b"k"]
    assert passed(*bursts) == b"jk"


def test_an_escape_that_was_taken_for_a_key_begins_nothing():
    incoming = Incoming()
    assert list(incoming.take(b"\x1b", escaped=False)) == [(b"\x1b", False)]
    assert list(incoming.take(b"[B", escaped=True)) == [(b"[B", False)]


@pytest.mark.parametrize("cut", [None, 8, 9, 12, 14])
def test_escapes_in_what_is_pasted_press_no_key(cut):
    sent = b"\x1b[200~a\x1bq\x1b[31mb\x1b[201~\x1bj"
    bursts = [sent] if cut is None else [sent[:cut], sent[cut:]]
    assert passed(*bursts) == b"\x1b[200~aq[31mb\x1b[201~\x1b|j"
