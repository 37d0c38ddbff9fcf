"""What a terminal sends, in bursts cut anywhere: escapes are keys of their own, and nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.tui.console.driver import Incoming

KEY = b"\x1b\x1b[?0;0$y"
"""An escape as it is passed on: with what ends it at once, whatever comes next."""
KEYS = st.sampled_from([b"j", b"/", b"q", b"\r", b"\x1b[A", b"\x1b[6~", b"\x1bOP", b"\x1b[<0;3;4M", "é".encode()])


def passed(*bursts, mouse=True):
    """Return what is passed on of bursts that follow each other at once, with "|" for what ends an escape."""
    incoming = Incoming(mouse=mouse)
    return b"".join(incoming.take(burst) for burst in bursts).replace(KEY, b"\x1b|")


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
        ([b"\x1b[", *[b""] * 5], b"\x1b|["),
        ([b"\x1b]", b""], b"\x1b|]"),
        ([b"\x1bO", *[b""] * 5], b"\x1b|O"),
        ([b"\x1b"], b""),
        ([b"\x1b", b""], b"\x1b|"),
        ([b"\x1b", b"", b"[B"], b"\x1b|[B"),
    ],
)
def test_an_escape_is_taken_before_what_comes_after_it(bursts, expected):
    assert passed(*bursts) == expected


@pytest.mark.parametrize(
    ("bursts", "expected"),
    [
        ([b"j\xffk"], b"jk"),
        ([b"\x9b0;1c"], b"0;1c"),
        ([b"\xe2\x82", b"", b"j"], b"j"),
        ([b"\xe2\x82", b"\xac"], "€".encode()),
        ([b"\x1b[200~a\xfeb\x1b[201~"], b"\x1b[200~ab\x1b[201~"),
    ],
)
def test_bytes_that_are_no_text_are_left_out(bursts, expected):
    assert passed(*bursts) == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"\x1b[>0;276;0c",
        b"\x1b[?1u",
        b"\x1b[?997;1n",
        b"\x1b[8;24;80t",
        b"\x1bP>|xterm(370)\x1b\\",
        b"\x1bP1+r436f=323536\x1b\\",
        b"\x1b_Gi=1;OK\x1b\\",
        b"\x1b]10;rgb:00/00/00\x07",
    ],
)
@pytest.mark.parametrize("at", [None, 5, 6])
def test_an_answer_to_what_another_program_asked_is_no_key(answer, at):
    bursts = [b"j" + answer + b"k"] if at is None else [b"j" + answer[:at], b"", answer[at:] + b"k"]
    assert passed(*bursts) == b"jk"


@pytest.mark.parametrize(
    "half",
    [b"\x1b]11;rgb:ff", b"\x1b]11;rgb:ffff\x1b", b"\x1b[?62", b"\x1b[<0;1", b"\x1b[1;", b"\x1bP>|x", b"\x1b_Gq"],
)
def test_half_of_a_sequence_whose_other_half_never_comes_presses_no_key_and_keeps_none_back(half):
    assert passed(half, *[b""] * 10, b"j").lstrip(b"\x1b|") == b"j"
    assert passed(half, b"\x03j").lstrip(b"\x1b|") == b"\x03j"
    assert passed(half, b"", b"j", b"q").lstrip(b"\x1b|") == b"jq" or half.endswith(b"\x1b")


@pytest.mark.parametrize(
    "known",
    [
        b"\x1b[24;80R",
        b"\x1b[?2026;2$y",
        b"\x1b[48;24;80;480;640t",
        b"\x1b[1;5A",
        b"\x1b[97;5u",
        b"\x1b[15;2~",
        b"\x1b[M !!",
    ],
)
def test_what_textual_knows_is_passed_on(known):
    assert passed(known, b"j") == known + b"j"


@pytest.mark.parametrize(
    ("typed", "expected"), [(b"\x1b[j", b"\x1b|[j"), (b"\x1b[4j", b"\x1b|[4j"), (b"\x1b[?j", b"\x1b|[?j")]
)
def test_an_escape_and_keys_that_look_like_a_sequence_are_keys(typed, expected):
    assert passed(typed) == expected


@pytest.mark.parametrize("key", [b"\x1b[A", b"\x1bOP", b"\x1b[6~", b"\x1b[1;5A"])
def test_a_key_whose_bytes_come_slowly_is_one_key(key):
    slowly = [key[:2], *(each for byte in key[2:] for each in (b"", b"", b"", b"", bytes([byte])))]
    assert passed(*slowly) == key
    assert passed(key[:1], key[1:2], *slowly[1:]) == key


REPORTS = b"\x1b[<0;3;4M\x1b[<35;80;24m\x1b[<64;3;4M\x1b[M !!\x1b[M#\x1b["


@pytest.mark.parametrize("at", [None, *range(1, len(REPORTS))])
def test_the_mouse_is_told_of_only_where_somebody_asked(at):
    bursts = [b"j" + REPORTS + b"k"] if at is None else [b"j" + REPORTS[:at], REPORTS[at:] + b"k"]
    assert passed(*bursts, mouse=False) == b"jk"
    assert passed(b"\x1b[M!", *[b""] * 5, b"j", mouse=False) == b"j"


def test_ctrl_c_ends_what_is_pasted_without_an_end():
    assert passed(b"\x1b[200~abc", b"\x03") == b"\x1b[200~abc\x1b[201~\x03"
    assert passed(b"\x1b[200~a\x03c\x1b[201~") == b"\x1b[200~a\x03c\x1b[201~"


@pytest.mark.parametrize(
    "answer", [b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", b"\x1b]11;rgb:00/00/00\x07", b"\x1b[?62;22c", b"\x1b[?1;2c"]
)
@pytest.mark.parametrize("at", [None, 2, 5])
def test_an_answer_that_comes_late_is_no_key(answer, at):
    bursts = [b"j" + answer + b"k"] if at is None else [b"j" + answer[:at], answer[at:] + b"k"]
    assert passed(*bursts) == b"jk"


@pytest.mark.parametrize("cut", [None, 8, 9, 12, 14])
def test_escapes_in_what_is_pasted_press_no_key(cut):
    sent = b"\x1b[200~a\x1bq\x1b[31mb\x1b[201~\x1bj"
    bursts = [sent] if cut is None else [sent[:cut], sent[cut:]]
    assert passed(*bursts) == b"\x1b[200~aq[31mb\x1b[201~\x1b|j"
