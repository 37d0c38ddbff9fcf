"""The partial record of a torch tensor, computed where the tensor is, so that 1 kB is copied instead of the tensor.

The projections are those of `qdebug.numerics.sketch`, from the same signs and in float64, so that a sketch made on a
device and one made by NumPy differ by the order of summation alone, and can be compared. The hash is another one: equal
tensors of two devices have equal hashes, those of a device and of NumPy do not. This layer imports no framework: the
operations are those of the caller's torch.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from typing import Any

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES, is_float, logical_dtype
from qdebug.model.kept import EXPONENT_BINS, Kept, Statistics
from qdebug.numerics.sketch import BLOCK, block_signs, element_sign_bits, place_signs

__all__ = ["is_on_device", "placeholder_of", "take_device_record"]

_PIECE = 1 << 22
"""Elements per step: their copy in float64 takes 32 MB on the device."""
_MULTIPLIERS = (-0x61C8864680B583EB, -0x4498517A7B3558C5), (0x2545F4914F6CDD1D, -0x40A7B892E31B1A47)
"""Odd constants of two hashes: of Weyl's sequence (2**64 / golden ratio) and the multipliers of xorshift* and splitmix
(S. Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016)."""
_DOUBLES = ("cpu", "cuda", "xpu")
"""Kinds of devices that compute in float64."""


def is_on_device(value: Any) -> bool:
    """Return whether a value is a torch tensor on a device from which copying is slow, and that computes in float64."""
    device = getattr(getattr(value, "device", None), "type", "")
    return device in _DOUBLES and device != "cpu" and all(hasattr(value, name) for name in ("detach", "new_empty"))


def placeholder_of(record: Kept) -> np.ndarray:
    """Return an array with the dtype and shape of a record that takes no memory."""
    return np.broadcast_to(np.zeros((), logical_dtype(record.dtype)), record.shape)


def take_device_record(tensor: Any) -> Kept | None:
    """Return statistics, a sketch and a hash of a torch tensor; None if it has no floats.

    Args:
        tensor: A tensor on any device that computes in float64.
    """
    torch = sys.modules.get("torch")  # the caller has imported it
    dtype = str(tensor.dtype).removeprefix("torch.")
    if torch is None or dtype not in LOGICAL_DTYPES or not is_float(dtype) or tensor.layout is not torch.strided:
        return None
    flat = tensor.detach().contiguous().reshape(-1)
    if not flat.numel():
        return None
    with torch.no_grad():
        starts = range(0, flat.numel(), _PIECE)
        parts = [_piece(torch, flat[start : start + _PIECE], start, flat.numel()) for start in starts]
        digest = _digest(torch, flat)
        numbers = torch.stack(parts).cpu().numpy()
    return Kept(
        dtype=dtype,
        shape=tuple(tensor.shape),
        digest=digest.cpu().numpy().astype("<i8").tobytes(),
        statistics=_statistics(flat.numel(), numbers),
        sketch=numbers[:, _MOMENTS:].sum(axis=0).astype(np.float32),
    )


_MOMENTS = 10


def _piece(torch: Any, stored: Any, start: int, total: int) -> Any:
    """Return the statistics and projections of a piece, one float64 tensor on the device."""
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
    """Return the projections of a piece that starts at a multiple of whole blocks."""
    device, count = str(finite.device), -(-finite.numel() // BLOCK)
    most_blocks = 1 << (-(-total // BLOCK) - 1).bit_length()
    bits = _bits(torch, device, most_blocks)[start // 8 : start // 8 + count * BLOCK // 8]
    shifts = torch.arange(7, -1, -1, device=finite.device, dtype=torch.uint8)
    signs = 1 - 2 * ((bits[:, None] >> shifts) & 1).reshape(-1).to(torch.float64)
    blocks = finite.new_zeros(count * BLOCK)
    blocks[: finite.numel()] = finite
    projections = (blocks * signs).reshape(count, BLOCK) @ _places(torch, device)
    first = start // BLOCK
    signs_of_blocks = torch.from_numpy(block_signs(first + count)[first:].astype(np.float64)).to(finite.device)
    return (projections * signs_of_blocks).sum(dim=0)


@lru_cache(maxsize=4)
def _bits(torch: Any, device: str, blocks: int) -> Any:
    """Return the sign bits of the first elements, which are kept on the device: a bit each."""
    return torch.from_numpy(element_sign_bits(blocks * BLOCK)).to(device)


@lru_cache(maxsize=8)
def _places(torch: Any, device: str) -> Any:
    return torch.from_numpy(place_signs().copy()).to(device)


def _digest(torch: Any, flat: Any) -> Any:
    """Return a hash of the bits, two int64 on the device: sums of mixed words, each mixed with its position."""
    content = flat.view(torch.uint8)
    sums = [flat.new_zeros((), dtype=torch.int64) for _ in _MULTIPLIERS]
    step = _PIECE * 8
    for start in range(0, content.numel(), step):
        piece = content[start : start + step]
        padded = piece.new_zeros(-(-piece.numel() // 8) * 8)
        padded[: piece.numel()] = piece
        words = padded.view(torch.int64)
        positions = torch.arange(words.numel(), device=flat.device, dtype=torch.int64) + (start // 8 + 1)
        for number, (weyl, multiplier) in enumerate(_MULTIPLIERS):
            mixed = (words ^ (positions * weyl)) * multiplier
            mixed = (mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)) * weyl
            sums[number] = sums[number] + (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)).sum()
    return torch.stack(sums)


def _statistics(count: int, numbers: np.ndarray) -> Statistics:
    """Merge the moments of the pieces (Chan, Golub and LeVeque 1983)."""
    nan, inf, zero, low, high, finite, absmax, mean, spread, square = numbers[:, :_MOMENTS].T
    total = finite.sum()
    has_finite, has_number = total > 0, count > nan.sum()
    middle = float((mean * finite).sum() / total) if has_finite else math.nan
    deviations = float((spread + finite * (mean - middle) ** 2).sum())
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
        mean=middle,
        std=math.sqrt(deviations / total) if has_finite else math.nan,
        l2=math.sqrt(float(square.sum())) if has_finite else math.nan,
        negative=no_bins,
        positive=no_bins,
    )
