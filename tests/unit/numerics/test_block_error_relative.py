"""The error of each element relative to its own reference."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qdebug.numerics.block_error import RelativeCounter
from qdebug.numerics.histogram import count_rows

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def errors_of(references, differences):
    counter = RelativeCounter()
    with np.errstate(all="ignore"):
        counter.add(np.abs(np.array(differences)), np.array(references))
    found, row = counter.errors(), np.abs(np.array(differences))
    check_few(found, row, np.array(references))
    return found


def check_few(found, row, references):
    """Check that the same comes out where the quotients of a few elements are counted beforehand."""
    with np.errstate(all="ignore"):
        quotients = np.abs(row / references)
    counter = RelativeCounter()
    counter.add_counts(count_rows(quotients[np.newaxis])[0], quotients, references, np.count_nonzero(row == 0.0))
    few = counter.errors()
    assert (few.zero_refs, few.zero_refs_hit) == (found.zero_refs, found.zero_refs_hit)
    assert few.quotients.counts.tolist() == found.quotients.counts.tolist()
    assert (few.quotients.lowest, few.quotients.zeros) == (found.quotients.lowest, found.quotients.zeros)


@given(pairs=st.lists(st.tuples(st.one_of(FINITE, st.sampled_from([0.0, -0.0, 5e-324])), FINITE), min_size=1))
def test_each_element_counts_once_at_its_power_of_two(pairs):
    found = errors_of(*zip(*pairs, strict=True))
    referred = [(x, abs(d)) for x, d in pairs if x != 0]
    assert found.zero_refs == len(pairs) - len(referred)
    assert found.zero_refs_hit == sum(x == 0 and d == 0 for x, d in pairs)
    quotients = found.quotients
    assert quotients.total == len(referred)
    with np.errstate(all="ignore"):
        expected = [np.float64(d) / abs(np.float64(x)) for x, d in referred]
    exponents = sorted(1024 if np.isinf(q) else int(np.frexp(q)[1]) - 1 for q in expected if q)
    counted = [quotients.lowest + k for k, count in enumerate(quotients.counts.tolist()) for _ in range(count)]
    assert counted == exponents


def test_arrays_are_not_written_to():
    references, differences = np.array([-2.0, 0.0]), np.array([1.0, 0.5])
    found = errors_of(references, differences)
    assert (references.tolist(), differences.tolist()) == ([-2.0, 0.0], [1.0, 0.5])
    assert (found.quotients.lowest, found.quotients.counts.tolist(), found.zero_refs_hit) == (-1, [1], 0)
