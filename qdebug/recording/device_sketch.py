"""The partial record of a torch tensor, computed on the tensor's device, so that 1 kB is copied instead of the tensor.

The projections use the signs of `qdebug.numerics.sketch` and are computed in float64. So a sketch from a device and a
sketch from NumPy differ only by the order of summation, and can be compared. Hashes from a device differ from those of
NumPy, so equal tensors have equal hashes only if both were hashed on a device. This layer imports no framework. It uses
the torch module that the caller has imported.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from typing import Any

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES, is_float, logical_dtype
from qdebug.model.kept import EXPONENT_BINS, Kept, Statistics
from qdebug.numerics.sketch import BLOCK, block_signs, element_sign_bits, position_signs

__all__ = ["is_on_device", "placeholder_of", "take_device_record"]

_PIECE_ELEMENTS = 1 << 22
"""Elements processed at a time. Their copy in float64 takes 32 MB on the device."""
_MULTIPLIERS = (-0x61C8864680B583EB, -0x4498517A7B3558C5), (0x2545F4914F6CDD1D, -0x40A7B892E31B1A47)
"""Odd constants of the two hashes, among them 2**64 / golden ratio (Weyl's sequence) and multipliers of xorshift* and
splitmix (S. Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016)."""
_FLOAT64_DEVICES = ("cpu", "cuda", "xpu")
"""Types of devices that support float64."""


def is_on_device(value: Any) -> bool:
    """Return whether a value is a torch tensor on an accelerator that supports float64."""
    device = getattr(getattr(value, "device", None), "type", "")
    return (
        device in _FLOAT64_DEVICES and device != "cpu" and all(hasattr(value, name) for name in ("detach", "new_empty"))
    )


def placeholder_of(record: Kept) -> np.ndarray:
    """Return an array of zeros with the dtype and shape of a record. It takes almost no memory."""
    return np.broadcast_to(np.zeros((), logical_dtype(record.dtype)), record.shape)


def take_device_record(tensor: Any) -> Kept | None:
    """Return statistics, a sketch and a hash of a torch tensor; None unless it is dense, real and not empty.

    Args:
        tensor: A tensor on any device that supports float64.
    """
    torch = sys.modules.get("torch")  # already imported by the caller
    dtype = str(tensor.dtype).removeprefix("torch.")
    if torch is None or dtype not in LOGICAL_DTYPES or not is_float(dtype) or tensor.layout is not torch.strided:
        return None
    flat = tensor.detach().contiguous().reshape(-1)
    if not flat.numel():
        return None
    with torch.no_grad():
        starts = range(0, flat.numel(), _PIECE_ELEMENTS)
        parts = [
            _summarize_piece(torch, flat[start : start + _PIECE_ELEMENTS], start, flat.numel()) for start in starts
        ]
        digest = _hash_bits(torch, flat)
        numbers = torch.stack(parts).cpu().numpy()
    return Kept(
        dtype=dtype,
        shape=tuple(tensor.shape),
        digest=digest.cpu().numpy().astype("<i8").tobytes(),
        statistics=_merge_statistics(flat.numel(), numbers),
        sketch=numbers[:, _STATISTICS_COUNT:].sum(axis=0).astype(np.float32),
    )


_STATISTICS_COUNT = 10
"""Number of statistics that precede the projections of a piece."""


def _summarize_piece(torch: Any, stored: Any, start: int, total: int) -> Any:
    """Return the statistics and projections of a piece as one float64 tensor on the device."""
    values = stored.to(torch.float64)
    is_nan, is_inf = values.isnan(), values.isinf()
    finite = torch.where(is_nan | is_inf, 0.0, values)
    count = (~(is_nan | is_inf)).sum().to(torch.float64)
    mean = finite.sum() / count.clamp(min=1)
    spread = torch.where(is_nan | is_inf, 0.0, finite - mean).square().sum()
    low = torch.where(is_nan, math.inf, values).min()
    high = torch.where(is_nan, -math.inf, values).max()
    counts = (is_nan.sum(), is_inf.sum(), (values == 0).sum())
    moments = [*(tensor.to(torch.float64) for tensor in counts), low, high, count, finite.abs().max(), mean, spread]
    return torch.cat([torch.stack([*moments, finite.square().sum()]), _projections(torch, finite, start, total)])


def _projections(torch: Any, finite: Any, start: int, total: int) -> Any:
    """Return the projections of a piece, whose start must be a multiple of the block size."""
    device, count = str(finite.device), -(-finite.numel() // BLOCK)
    most_blocks = 1 << (-(-total // BLOCK) - 1).bit_length()
    bits = _element_sign_bits_on(torch, device, most_blocks)[start // 8 : start // 8 + count * BLOCK // 8]
    shifts = torch.arange(7, -1, -1, device=finite.device, dtype=torch.uint8)
    signs = 1 - 2 * ((bits[:, None] >> shifts) & 1).reshape(-1).to(torch.float64)
    blocks = finite.new_zeros(count * BLOCK)
    blocks[: finite.numel()] = finite
    projections = (blocks * signs).reshape(count, BLOCK) @ _place_signs_on(torch, device)
    first = start // BLOCK
    signs_of_blocks = torch.from_numpy(block_signs(first + count)[first:].astype(np.float64)).to(finite.device)
    return (projections * signs_of_blocks).sum(dim=0)


@lru_cache(maxsize=4)
def _element_sign_bits_on(torch: Any, device: str, blocks: int) -> Any:
    """Return the signs of the elements of the first blocks, one bit per element. They stay on the device."""
    return torch.from_numpy(element_sign_bits(blocks * BLOCK)).to(device)


@lru_cache(maxsize=8)
def _place_signs_on(torch: Any, device: str) -> Any:
    return torch.from_numpy(position_signs().copy()).to(device)


def _hash_bits(torch: Any, flat: Any) -> Any:
    """Return a hash of the bits as two int64 on the device, each a sum of words mixed with their positions."""
    content = flat.view(torch.uint8)
    sums = [flat.new_zeros((), dtype=torch.int64) for _ in _MULTIPLIERS]
    step_bytes = _PIECE_ELEMENTS * 8
    for start in range(0, content.numel(), step_bytes):
        piece = content[start : start + step_bytes]
        padded = piece.new_zeros(-(-piece.numel() // 8) * 8)
        padded[: piece.numel()] = piece
        words = padded.view(torch.int64)
        positions = torch.arange(words.numel(), device=flat.device, dtype=torch.int64) + (start // 8 + 1)
        for number, (weyl, multiplier) in enumerate(_MULTIPLIERS):
            mixed = (words ^ (positions * weyl)) * multiplier
            mixed = (mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)) * weyl
            sums[number] = sums[number] + (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)).sum()
    return torch.stack(sums)


def _merge_statistics(count: int, numbers: np.ndarray) -> Statistics:
    """Merge the statistics of all pieces (Chan, Golub and LeVeque 1983)."""
    nan, inf, zero, low, high, finite, absmax, mean, spread, square = numbers[:, :_STATISTICS_COUNT].T
    total = finite.sum()
    has_finite, has_number = total > 0, count > nan.sum()
    total_mean = float((mean * finite).sum() / total) if has_finite else math.nan
    deviations = float((spread + finite * (mean - total_mean) ** 2).sum())
    no_bins = np.zeros(EXPONENT_BINS, np.uint64)
    return Statistics(
        count=count,
        nan=int(nan.sum()),
        inf=int(inf.sum()),
        zero=int(zero.sum()),
        low=float(low.min()) if has_number else math.nan,
        high=float(high.max()) if has_number else math.nan,
        at_qmin=0,
        at_qmax=0,
        absmax=float(absmax.max()) if has_finite else math.nan,
        mean=total_mean,
        std=math.sqrt(deviations / total) if has_finite else math.nan,
        l2=math.sqrt(float(square.sum())) if has_finite else math.nan,
        negative=no_bins,
        positive=no_bins,
    )
