"""Names as people type them: parts and patterns, and what is near."""

import pytest

from qdebug.model.names import fitting_names, listed_names, near_names

KNOWN = ["net/conv1", "net/conv10", "net/Relu[0]", "head"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("conv1", ["net/conv1", "net/conv10"]),
        ("RELU", ["net/Relu[0]"]),
        ("*conv1", ["net/conv1"]),
        ("net/conv1?", ["net/conv10"]),
        ("[0]", ["net/Relu[0]"]),
        ("*[0]", ["net/Relu[0]"]),
        ("tail", []),
        ("", []),
    ],
)
def test_a_text_stands_for_the_names_that_it_fits(text, found):
    assert fitting_names(text, KNOWN) == found


def test_names_are_listed_up_to_a_number():
    assert listed_names(["a", "b"]) == "'a', 'b'"
    assert listed_names(map(str, range(10))).endswith("'7' and 2 more")


def test_near_names_are_a_sentence():
    assert near_names("haed", KNOWN) == " Near names: 'head'."
    assert near_names("zzz", KNOWN) == ""
