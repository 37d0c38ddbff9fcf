"""The turns of threads while the reader works."""

import sys

import pytest

from qdebug.tui.reading.messages import Finished, Opening
from qdebug.tui.reading.reader import Reader, short_turns


def test_turns_are_short_inside_and_as_before_afterwards():
    before = sys.getswitchinterval()
    with pytest.raises(ValueError), short_turns():  # noqa: PT011, PT012  whatever ends the block
        assert sys.getswitchinterval() < 0.001
        raise ValueError
    assert sys.getswitchinterval() == before


def test_turns_that_are_shorter_stay_so():
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)
        with short_turns():
            assert sys.getswitchinterval() == pytest.approx(1e-5)
    finally:
        sys.setswitchinterval(before)


def test_the_reader_gives_the_interpreter_back_soon(make_session):
    seen = []

    def look(event):
        seen.append(sys.getswitchinterval())
        if isinstance(event, Finished):
            reader.stop()

    before = sys.getswitchinterval()
    reader = Reader([Opening(compare=make_session)], look)
    reader.start()
    reader.join(20)
    assert max(seen) < 0.001
    assert sys.getswitchinterval() == before
