"""Entropy calibration: find the threshold that loses the least information, using prefix sums.

A candidate keeps the bins of a window and adds all counts outside to the bins at its ends (P). Q is the counts of the
window, merged into as many groups as there are levels, with each group spread evenly over its bins that are not empty
in P. The threshold with the least divergence KL(P || Q) wins. Q is constant within a group, so

    KL(P || Q) = (1 / N) [sum p ln p - sum_j P_j ln q_j] - ln N + ln(sum q)

needs only counts, filled bins and sums of h ln h per group, which are differences of prefix sums. All windows are
computed at once, instead of in a loop over bins, groups and windows. The two bins at the ends are corrected for the
counts added to them.

Three variants of the definition are in use, and they choose different thresholds:

- `entropy_range`: q is mixed with a uniform distribution, (1 - e) q + e / W over W bins with e = 1e-6, so that the
  divergence of every window is finite. Groups are as equal as whole bins allow. The widest of equal windows wins.
- `mxnet_threshold`: the loop of Apache MXNet (python/mxnet/contrib/quantization.py, `_get_optimal_threshold`).
- `ort_threshold`: the loop of ONNX Runtime (quantization/calibrate.py, `get_entropy_threshold`). It differs as
  follows: q is truncated to whole counts and kept where p is 0, and bins after the last whole group have q = 0.

Both loops replace zeros by 1e-4, compute in float32 and choose the first minimum. Here the closed form ranks all
windows, and candidates for the loop's choice are computed as the loop does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from qdebug.errors import UsageError

__all__ = ["EntropyChoice", "entropy_range", "mxnet_threshold", "ort_threshold"]

_MIX = 1e-6
_SMOOTH = 1e-4
_CHUNK = 128
"""Windows per chunk, so that its arrays stay in a core's cache."""
_FIRST_EXACT = 12
"""Number of windows that are always computed exactly as in the loop."""
_SUM_ROUNDING = 1e-12
"""Rounding error of the sums, in nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyChoice:
    """The window with the least divergence.

    Args:
        start: Its first bin.
        stop: One past its last bin.
        divergence: Its divergence in nats; infinite if no window has a finite one.
        windows: Number of compared windows.
    """

    start: int
    stop: int
    divergence: float
    windows: int


class _PrefixSums:
    """Prefix sums of a histogram.

    Args:
        counts: Counts of bins, int64, 1-D, not all zero.
    """

    def __init__(self, counts: np.ndarray) -> None:
        self.counts = counts.astype(np.float64)
        self.total = float(counts.sum())
        self.mass = _prefix_sums(self.counts)
        self.filled = _prefix_sums((counts > 0).astype(np.float64))
        self.log = np.log(np.where(counts > 0, self.counts, 1.0))
        self.plogp = _prefix_sums(self.counts * self.log)
        self.logs = _prefix_sums(self.log)
        self.bin_numbers = np.arange(counts.size + 1, dtype=np.float64)


def _prefix_sums(values: np.ndarray) -> np.ndarray:
    out = np.zeros(values.size + 1)
    np.cumsum(values, out=out[1:])
    return out


_GroupSums = Callable[[np.ndarray], np.ndarray]
"""Returns the increase of a prefix sum over each group of each window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """Windows of a histogram, and the distribution P of each.

    Args:
        width: Number of bins of each window.
        mass: Counts of P in each group, (windows, groups).
        merged: Counts of the histogram in each group, without the counts outside the window.
        filled: Number of bins in each group that are not empty in P.
        plogp: Sum of p ln p over the window.
        logs: Sum of ln p over its bins that are not empty.
    """

    width: np.ndarray
    mass: np.ndarray
    merged: np.ndarray
    filled: np.ndarray
    plogp: np.ndarray
    logs: np.ndarray


def _xlogx(values: np.ndarray) -> np.ndarray:
    return np.asarray(values * np.log(np.where(values > 0, values, 1.0)))


def _log_or_zero(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.where(values > 0, values, 1.0)))


def _make_windows(sums: _PrefixSums, start: np.ndarray, stop: np.ndarray, group_sums: _GroupSums) -> _Windows:
    mass, filled = group_sums(sums.mass), group_sums(sums.filled)
    left, right = sums.mass[start], sums.total - sums.mass[stop]
    merged = mass.copy()
    plogp = sums.plogp[stop] - sums.plogp[start]
    logs = sums.logs[stop] - sums.logs[start]
    for group, bin_index, moved in ((0, start, left), (-1, stop - 1, right)):
        before = sums.counts[bin_index]
        mass[:, group] += moved
        filled[:, group] += (before == 0) & (moved > 0)
        plogp += _xlogx(before + moved) - _xlogx(before)
        logs += _log_or_zero(before + moved) - _log_or_zero(before)
    return _Windows(width=stop - start, mass=mass, merged=merged, filled=filled, plogp=plogp, logs=logs)


def _check_histogram(counts: np.ndarray, groups: int) -> None:
    if not counts.size or not counts.any():
        raise UsageError("The histogram is empty, so its entropy is not defined.")
    if groups < 2:
        raise UsageError(f"Entropy needs at least 2 levels, but got {groups}.")


def _even_group_sums(start: np.ndarray, stop: np.ndarray, groups: int) -> _GroupSums:
    """Return sums over groups as equal as whole bins allow: group j of G begins at bin floor(j W / G)."""
    bounds = start[:, np.newaxis] + np.arange(groups + 1) * (stop - start)[:, np.newaxis] // groups

    def group_sums(prefix: np.ndarray) -> np.ndarray:
        sums = prefix[bounds]
        return np.asarray(sums[:, 1:] - sums[:, :-1])

    return group_sums


def _equal_group_sums(start: np.ndarray, stop: np.ndarray, step: int, whole: int) -> _GroupSums:
    """Return sums over `whole` groups of `step` bins and a remainder. Each window starts a bin before the previous one.

    Group bounds are views of the prefix sum, so that nothing is gathered.
    """

    def group_sums(prefix: np.ndarray) -> np.ndarray:
        size = prefix.itemsize
        bounds = as_strided(
            prefix[start[0] :], shape=(start.size, whole + 1), strides=(-size, size * step), writeable=False
        )
        out = np.empty((start.size, whole + 1))
        np.subtract(bounds[:, 1:], bounds[:, :-1], out=out[:, :-1])
        np.subtract(prefix[stop], bounds[:, -1], out=out[:, -1])
        return out

    return group_sums


def entropy_range(counts: np.ndarray, zero: int, groups: int, *, widest: int | None = None) -> EntropyChoice:
    """Find the window around 0 with the least divergence, by this package's definition.

    A window reaches as far on both sides of 0 as the histogram allows. All windows with at least as many bins as groups
    are compared. If there are none, the whole histogram is used.

    Args:
        counts: Counts of bins, int64, 1-D.
        zero: Index of the bin that begins at 0.
        groups: Levels that values are quantized to.
        widest: Bins of the widest window on either side of 0; None for no limit.

    Returns:
        The widest window whose divergence is within 1e-6 nats of the least. Every divergence is finite.

    Raises:
        UsageError: The histogram is empty, or there are fewer than 2 groups.
    """
    _check_histogram(counts, groups)
    reach = max(zero, counts.size - zero) if widest is None else widest
    half_widths = np.arange(1, reach + 1)
    start, stop = np.maximum(zero - half_widths, 0), np.minimum(zero + half_widths, counts.size)
    is_wide_enough = stop - start >= groups
    if not is_wide_enough.any():
        return EntropyChoice(start=0, stop=counts.size, divergence=0.0, windows=0)
    start, stop = start[is_wide_enough], stop[is_wide_enough]

    sums, divergences = _PrefixSums(counts), np.empty(start.size)
    with np.errstate(all="ignore"):
        for first in range(0, start.size, _CHUNK):
            part = slice(first, first + _CHUNK)
            group_sums = _even_group_sums(start[part], stop[part], groups)
            divergences[part] = _mixed_divergences(sums, _make_windows(sums, start[part], stop[part], group_sums))
    # Differences of at most _MIX come from the uniform distribution that is mixed in, not from the values.
    best = int(np.flatnonzero(divergences <= divergences.min() + _MIX)[-1])
    return EntropyChoice(
        start=int(start[best]), stop=int(stop[best]), divergence=max(float(divergences[best]), 0.0), windows=start.size
    )


def _mixed_divergences(sums: _PrefixSums, windows: _Windows) -> np.ndarray:
    inside = windows.merged.sum(axis=1, keepdims=True)
    q = windows.merged / np.maximum(windows.filled, 1.0)
    q *= (1.0 - _MIX) / np.maximum(inside, 1.0)
    q += _MIX / windows.width[:, np.newaxis]
    cross = np.einsum("ij,ij->i", windows.mass, np.log(q, out=q))
    return np.asarray((windows.plogp - cross) / sums.total - np.log(sums.total))


def mxnet_threshold(counts: np.ndarray, groups: int = 255) -> EntropyChoice:
    """Find the window that MXNet's loop chooses.

    Args:
        counts: Counts of an odd number of bins with 0 in the middle bin, int64, 1-D.
        groups: Quantized bins: 255, or 511 if no value is negative and codes are unsigned.

    Returns:
        The window. Its upper end is MXNet's threshold.

    Raises:
        UsageError: The histogram is empty, has an even number of bins, or has fewer bins than groups.
    """
    _check_histogram(counts, groups)
    if counts.size % 2 == 0 or counts.size < groups:
        raise UsageError(
            f"MXNet's entropy needs an odd number of bins, at least {groups}; there are {counts.size}.",
            hint="Profile with more --bins.",
        )
    return _choose_like_loop(counts, groups, keeps_last_bins=False, exact=_mxnet_divergence)


def ort_threshold(counts: np.ndarray, groups: int = 128) -> EntropyChoice:
    """Find the window that ONNX Runtime's loop chooses.

    Args:
        counts: Counts of bins that are symmetric around 0, int64, 1-D.
        groups: Quantized bins; 128 is ONNX Runtime's default.

    Returns:
        The window.

    Raises:
        UsageError: The histogram is empty, or has fewer bins than groups.
    """
    _check_histogram(counts, groups)
    if counts.size < groups:
        raise UsageError(
            f"ONNX Runtime's entropy needs at least {groups} bins; there are {counts.size}.",
            hint="Profile with more --bins.",
        )
    return _choose_like_loop(counts, groups, keeps_last_bins=True, exact=_ort_divergence)


def _choose_like_loop(
    counts: np.ndarray,
    groups: int,
    *,
    keeps_last_bins: bool,
    exact: Callable[[np.ndarray, int, int, int], float],
) -> EntropyChoice:
    """Find the first minimum of the divergences as a loop computes them.

    Args:
        counts: The histogram.
        groups: Quantized bins.
        keeps_last_bins: Whether to follow ONNX Runtime: q is truncated to whole counts and kept where p is 0, and the
            last group is the remainder.
        exact: Computes the divergence of one window as the loop does.
    """
    middle = counts.size // 2
    half_widths = np.arange(groups // 2, middle + 1)
    start, stop = middle - half_widths, np.minimum(middle + half_widths + 1, counts.size)
    sums, closed_form, step = _PrefixSums(counts), np.empty(half_widths.size), (stop - start) // groups
    first = 0
    with np.errstate(all="ignore"):
        while first < half_widths.size:  # windows whose groups have the same number of bins
            last = min(int(np.searchsorted(step, step[first], side="right")), first + _CHUNK)
            part = slice(first, last)
            # The bins after the whole groups are a group of their own in ONNX Runtime, and part of the last in MXNet.
            group_sums = _equal_group_sums(
                start[part], stop[part], int(step[first]), groups if keeps_last_bins else groups - 1
            )
            sizes = group_sums(sums.bin_numbers) if keeps_last_bins else None
            closed_form[part] = _smoothed_divergences(
                sums, _make_windows(sums, start[part], stop[part], group_sums), sizes
            )
            first = last
    order = np.argsort(closed_form, kind="stable")
    exact_divergences: dict[int, float] = {}
    worst = 0.0
    for window in map(int, order):
        best = min(exact_divergences.values(), default=np.inf)
        # The error of the closed form (float32, higher orders of the smoothing) is measured on the windows so far.
        if len(exact_divergences) >= _FIRST_EXACT and closed_form[window] > best + 4.0 * worst + _SUM_ROUNDING:
            break
        exact_divergences[window] = exact(counts, int(start[window]), int(stop[window]), groups)
        if np.isfinite(exact_divergences[window]) and np.isfinite(closed_form[window]):
            worst = max(worst, abs(exact_divergences[window] - float(closed_form[window])))
    smallest = min(exact_divergences.values())
    # Like argmin, choose the first of equal minima, or the first window if every divergence is infinite.
    best_window = (
        min(window for window, value in exact_divergences.items() if value == smallest) if np.isfinite(smallest) else 0
    )
    return EntropyChoice(
        start=int(start[best_window]), stop=int(stop[best_window]), divergence=float(smallest), windows=start.size
    )


def _smoothed_divergences(sums: _PrefixSums, windows: _Windows, sizes: np.ndarray | None) -> np.ndarray:
    """Return the divergences with smoothed zeros, to first order in the share taken from other bins.

    Args:
        sums: The histogram.
        windows: The windows.
        sizes: Bins of each group, if q is kept in bins without counts as in ONNX Runtime; None for MXNet.
    """
    filled, width = windows.filled, windows.width.astype(np.float64)
    q = windows.merged / np.maximum(filled, 1.0)
    if sizes is not None:
        # The bins after the last whole group add to the counts of that group, but have q = 0.
        q[:, -2] = (windows.merged[:, -2] + windows.merged[:, -1]) / np.maximum(filled[:, -2], 1.0)
        q[filled == 0] = 0.0
        np.floor(q, out=q)
        q[:, -1] = 0.0
    empty = q <= 0.0
    spread = np.where(empty, 0.0, filled if sizes is None else sizes)
    p_filled, q_filled = filled.sum(axis=1), spread.sum(axis=1)
    off_p = _SMOOTH * (width - p_filled) / p_filled
    off_q = _SMOOTH * (width - q_filled) / q_filled
    total = np.einsum("ij,ij->i", spread, q)
    q -= off_q[:, np.newaxis]
    q[empty] = _SMOOTH
    is_undefined = (q_filled == 0) | (off_p >= 1.0) | (off_q >= 1.0) | (q.min(axis=1) <= 0.0)
    logs = np.log(q, out=q)
    cross = np.einsum("ij,ij->i", windows.mass, logs) - off_p * np.einsum("ij,ij->i", filled, logs)
    divergences = windows.plogp - off_p * (windows.logs + p_filled) - cross
    if sizes is not None:  # bins where p is 0 and q is not; MXNet's have 1e-4 on both sides, which cancels
        empty_terms = (width - p_filled) * np.log(_SMOOTH)
        divergences += _SMOOTH * (empty_terms - np.einsum("ij,ij->i", sizes - filled, logs))
    divergences = divergences / sums.total - np.log(sums.total) + np.log(total)
    return np.where(is_undefined | np.isnan(divergences), np.inf, divergences)


def _with_outside_at_ends(counts: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return the counts of a window with all counts outside added to its end bins."""
    p = counts[start:stop].copy()
    p[0] += counts[:start].sum()
    p[-1] += counts[stop:].sum()
    return p


def _mxnet_divergence(counts: np.ndarray, start: int, stop: int, groups: int) -> float:
    p, window = _with_outside_at_ends(counts, start, stop), counts[start:stop]
    merged = window.size // groups
    bounds = np.append(np.arange(groups) * merged, window.size)
    masses = np.add.reduceat(window, bounds[:-1])
    filled = np.add.reduceat((p != 0).astype(np.int64), bounds[:-1])
    values = np.where(filled > 0, masses / np.maximum(filled, 1), 0.0).astype(np.float32)
    q = np.repeat(values, np.diff(bounds))
    q[p == 0] = 0
    return _divergence(p, q)


def _ort_divergence(counts: np.ndarray, start: int, stop: int, groups: int) -> float:
    p, window = _with_outside_at_ends(counts, start, stop), counts[start:stop]
    merged = window.size // groups
    whole = merged * groups
    masses = window[:whole].reshape(groups, merged).sum(axis=1)
    masses[-1] += window[whole:].sum()
    filled = (p[:whole].reshape(groups, merged) != 0).sum(axis=1)
    values = np.where(filled > 0, masses // np.maximum(filled, 1), 0)
    q = np.zeros(window.size, np.int64)
    q[:whole] = np.repeat(values, merged)
    return _divergence(p, q)


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Return the divergence of two smoothed distributions as in both loops; infinite if either is malformed."""
    smooth_p, smooth_q = _smooth_zeros(p), _smooth_zeros(q)
    if smooth_p is None or smooth_q is None:
        return np.inf
    pk, qk = smooth_p / np.sum(smooth_p), smooth_q / np.sum(smooth_q)
    with np.errstate(all="ignore"):
        return float(np.sum(pk * np.log(pk / qk)))


def _smooth_zeros(values: np.ndarray) -> np.ndarray | None:
    zeros = (values == 0).astype(np.float32)
    count = float(zeros.sum())
    nonzero_count = values.size - count
    if not nonzero_count or _SMOOTH * count / nonzero_count >= 1.0:
        return None
    out = values.astype(np.float32)
    out += _SMOOTH * zeros - np.float32(_SMOOTH * count / nonzero_count) * (1 - zeros)
    return out if (out > 0).all() else None
