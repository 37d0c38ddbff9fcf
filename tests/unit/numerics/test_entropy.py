"""Entropy by prefix sums: the thresholds of the loops of MXNet and ONNX Runtime, and the definition of our own."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import UsageError
from qdebug.numerics.entropy import entropy_range, mxnet_threshold, ort_threshold

KINDS = {
    "laplace": lambda rng, n: rng.laplace(size=n),
    "relu": lambda rng, n: np.maximum(rng.normal(size=n), 0),
    "student": lambda rng, n: rng.standard_t(3, size=n),
    "sparse": lambda rng, n: rng.normal(size=n) * (rng.random(n) < 0.02),
    "few": lambda rng, n: rng.integers(-3, 4, size=n) / 3,
}


def values_of(kind, seed, count=3000):
    return KINDS[kind](np.random.default_rng(seed), count).astype(np.float32)


def smoothed(p, eps=1e-4):
    """_smooth_distribution of MXNet; None where it raises or asserts."""
    zeros, others = (p == 0).astype(np.float32), (p != 0).astype(np.float32)
    if not others.sum() or eps * float(zeros.sum()) / float(others.sum()) >= 1:
        return None
    hist = p.astype(np.float32)
    hist += eps * zeros + (-eps * float(zeros.sum()) / float(others.sum())) * others
    return hist if (hist > 0).all() else None


def mxnet_loop(hist, groups):
    """_get_optimal_threshold of MXNet, bin by bin; gives the last bin of the window plus one."""
    middle, half = hist.size // 2, groups // 2
    found = []
    for i in range(half, middle + 1):
        start, stop = middle - i, middle + i + 1
        window = hist[start:stop]
        p = window.copy()
        p[0] += hist[:start].sum()
        p[-1] += hist[stop:].sum()
        merged = window.size // groups
        q = np.zeros(window.size, np.float32)
        for j in range(groups):
            first, last = j * merged, window.size if j == groups - 1 else (j + 1) * merged
            norm = np.count_nonzero(p[first:last])
            if norm:
                q[first:last] = float(window[first:last].sum()) / float(norm)
        q[p == 0] = 0
        p, q = smoothed(p), smoothed(q)
        if p is None or q is None:
            found.append(np.inf)
            continue
        p, q = p / p.sum(), q / q.sum()
        found.append((p * np.log(p / q)).sum())
    return middle + half + int(np.argmin(found)) + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bins", "groups"), [(301, 63), (257, 255), (501, 127)])
def test_the_threshold_is_that_of_mxnets_loop(kind, bins, groups):
    for seed in range(2):
        values = values_of(kind, seed)
        hist, _ = np.histogram(values, bins, (-abs(values).max(), abs(values).max()))
        found = mxnet_threshold(hist, groups)
        assert found.stop == mxnet_loop(hist, groups)
        assert found.start == bins - found.stop


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bins", "groups"), [(300, 64), (255, 128), (128, 128)])
def test_the_threshold_is_that_of_onnxruntimes_loop(kind, bins, groups):
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    for seed in range(2):
        values = values_of(kind, seed)
        collector = calibrate.HistogramCollector("entropy", False, bins, groups, 99.9, "same")
        collector.collect_value({"x": values})
        held = collector.histogram_dict["x"]
        low, high = collector.get_entropy_threshold(held, groups)
        found = ort_threshold(held[0], groups)
        assert (max(held[1][found.start], held[2]), min(held[1][found.stop], held[3])) == (low, high)


def defined(counts, start, stop, groups):
    """KL(P || (1 - 1e-6) Q + 1e-6 / W), bin by bin."""
    window = counts[start:stop].astype(float)
    p = window.copy()
    p[0] += counts[:start].sum()
    p[-1] += counts[stop:].sum()
    bounds = [j * window.size // groups for j in range(groups + 1)]
    q = np.zeros(window.size)
    for first, last in itertools.pairwise(bounds):
        filled = p[first:last] > 0
        if filled.any():
            q[first:last] = np.where(filled, window[first:last].sum() / filled.sum(), 0)
    q = (1 - 1e-6) * q / max(window.sum(), 1) + 1e-6 / window.size
    p /= p.sum()
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a)


@drawn(60)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40).filter(any), st.integers(2, 9), st.data())
def test_our_own_is_finite_for_every_histogram_and_the_widest_of_the_best(counts, groups, data):
    counts = np.array(counts)
    zero = data.draw(st.integers(0, counts.size))
    found = entropy_range(counts, zero, groups)
    assert np.isfinite(found.divergence)
    assert 0 <= found.start <= zero <= found.stop <= counts.size
    reach = max(zero, counts.size - zero)
    windows = [(max(zero - far, 0), min(zero + far, counts.size)) for far in range(1, reach + 1)]
    windows = [window for window in windows if window[1] - window[0] >= groups]
    if not windows:
        assert (found.start, found.stop) == (0, counts.size)
        return
    every = [defined(counts, *window, groups) for window in windows]
    widest = max(place for place, value in enumerate(every) if value <= min(every) + 1e-6)
    assert defined(counts, found.start, found.stop, groups) == pytest.approx(min(every), abs=1.1e-6)
    assert (found.start, found.stop) == windows[widest]


def test_of_equal_windows_the_widest_wins():
    counts = np.zeros(40, np.int64)
    counts[20] = 7  # every window holds all of it
    assert entropy_range(counts, 20, 4).stop == 40


def test_nothing_and_too_few_bins_are_refused():
    for choose in (lambda c: entropy_range(c, 0, 4), mxnet_threshold, ort_threshold):
        with pytest.raises(UsageError, match="empty"):
            choose(np.zeros(301, np.int64))
    with pytest.raises(UsageError, match="odd number of bins"):
        mxnet_threshold(np.ones(300, np.int64))
    with pytest.raises(UsageError, match="at least 128"):
        ort_threshold(np.ones(100, np.int64))
