"""What had to be decoded to be looked at is decoded once, and kept for as long as it is looked at."""

import numpy as np

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.tui.reading.glimpse import OpenPairs


class Source:
    """A comparison whose tensors have as many elements as asked for."""

    def __init__(self, elements):
        self.values, self.opened = np.zeros(elements), []

    def pair(self, tensor, *, sample, step):
        self.opened.append((tensor, sample, step))
        return OpenPair(self.values, self.values)


def test_what_lies_in_memory_is_opened_once_until_another_is_looked_at():
    source, pairs = Source(1000), OpenPairs(min_bytes=8000)
    first = pairs.open(source, "a", sample=0, step=0)
    again = pairs.open(source, "a", sample=0, step=0)
    assert first is not again, "each thread has its own"
    assert pairs.nbytes == first.held == 8000, "both sides are the same array"
    assert source.opened == [("a", 0, 0)]
    pairs.open(source, "a", sample=1, step=0)
    pairs.open(source, "a", sample=0, step=0)
    assert len(source.opened) == 3
    pairs.open(Source(1000), "a", sample=0, step=0)
    pairs.open(source, "a", sample=0, step=0)
    assert len(source.opened) == 4
    pairs.forget()
    assert pairs.nbytes == 0
    pairs.open(source, "a", sample=0, step=0)
    assert len(source.opened) == 5


def test_what_is_little_is_not_kept():
    source, pairs = Source(10), OpenPairs(min_bytes=8000)
    pairs.open(source, "a", sample=0, step=0)
    pairs.open(source, "a", sample=0, step=0)
    assert len(source.opened) == 2
    assert pairs.nbytes == 0
