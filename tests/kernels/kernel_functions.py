"""Functions that the NumPy of several kernels calls, as text: the page of kernels has them ahead of all kernels."""

import textwrap
from collections.abc import Sequence

from qdebug.replay import fixed_forms

SIGNIFICAND = """
def significand(real, bits):  # real ~ m * 2**(e - bits), half away
    f, e = np.frexp(np.float64(real))
    m = int(np.floor(f * 2.0**bits + 0.5))
    return (m, int(e)) if m < 2**bits else (m // 2, int(e) + 1)
"""
GLOW = """
def glow(real):  # real ~ m * 2**-(pre + r), m of 8 to 9 bits
    f, e = np.frexp(real)
    pre, r = 0, 0
    if f == 0.5:  # a power of two is exact
        return 0, max(1 - int(e), 0), max(int(real), 1)
    while real < 0.5 or (real < 256 and r < 15):
        real, r = real * 2, r + 1
    while real < 255 and pre < r // 2:
        real, pre = real * 2, pre + 1
    return pre, r, int(np.floor(real + 0.5))
"""
FMA = """
def fma(a, b, c):  # a * b + c in float32, rounded once
    p = np.float64(a) * np.float64(b)
    s = np.asarray(p + c)
    lost = (p - (s - (s - p))) + (c - (s - p))
    odd = (lost != 0) & ((s.view(np.int64) & 1) == 0)
    s = np.where(odd, np.nextafter(s, np.copysign(np.inf, lost)), s)
    return s.astype(np.float32)
"""
LEVELS = """
def steps_of_range(one, sy, zy, low, high):  # factor and addend
    least, most = (low - zy) * sy / one, (high - zy) * sy / one
    f = (np.float32(high) - low) / (most - least)
    return f, -least * f


def levels(v, *output):  # steps from the low end of the range
    f, c = steps_of_range(*output)
    return v * f + c


def levels_fma(v, *output):  # the same, rounded once
    f, c = steps_of_range(*output)
    return fma(v, f, c)
"""
HALF = """
def to_half(v):  # as float16 holds it
    return np.asarray(v, np.float32).astype(np.float16).astype(np.float32)


def steps_in_half(one, sy, zy, low, high):  # factor and addend
    least = to_half((low - zy) * sy) / one
    most = to_half((high - zy) * sy) / one
    f = (np.float32(high) - low) / (most - least)
    return f, -least * f


def levels16(v, *output):  # steps from the low end of the range
    f, c = steps_in_half(*output)
    return v * f + c


def levels16_fma(v, *output):  # the same, rounded once
    f, c = steps_in_half(*output)
    return fma(v, to_half(f), to_half(c))
"""
MULHI = """
def mulhi(a, b, bits=31):  # high product, ties up
    return (a * b + (1 << (bits - 1))) >> bits
"""
AWAY = """
def away(v, r):  # v / 2**r, ties away from zero
    return np.sign(v) * ((np.abs(v) + ((1 << r) >> 1)) >> r)
"""


def listed(name: str, values: Sequence[float]) -> str:
    """Return the assignment of a list of numbers, three in a line."""
    rows = [", ".join(map(repr, values[k : k + 3])) for k in range(0, len(values), 3)]
    return "\n".join(f"{name} {'+=' if k else '='} [{row}]" for k, row in enumerate(rows))


EXP = f"""
def exp_below(v, bits, width=32):  # exp(v / 2**(width - 1 - bits)), v <= 0
{textwrap.indent(listed("powers", [power for _, power in fixed_forms._POWERS]), "    ")}
    n, lost = width - 1, 32 - width
    quarter = 1 << (n - bits - 2)
    near = (v & (quarter - 1)) - quarter  # in [-1/4, 0)
    z = (near << bits) + (1 << (n - 3))  # from -1/8 on
    z2 = mulhi(z, z, n)
    h = away(mulhi(z2, z2, n), 2) + mulhi(z2, z, n)
    h = mulhi(h, away({fixed_forms._THIRD}, lost), n) + z2
    p = away({fixed_forms._EXP_MINUS_EIGHTH}, lost)
    p = p + mulhi(p, z + away(h, 1), n)
    for k, c in enumerate(powers[: bits + 2]):
        times = mulhi(p, away(c, lost), n)
        p = np.where((near - v) & (quarter << k), times, p)
    return np.where(v == 0, 2**n - 1, p)
"""
NEWTON = f"""
def newton(half, width=32):  # 1 / half, with 2 bits before the point
    n, lost = width - 1, 32 - width
    slope = away({fixed_forms._SLOPE}, lost)
    q = away({fixed_forms._GUESS}, lost) + mulhi(half, slope, n)
    for _ in range(3):
        rest = 2 ** (n - 2) - mulhi(half, q, n)
        q = q + (mulhi(q, rest, n) << 2)
    return q
"""
HELPERS = {
    "significand": SIGNIFICAND,
    "glow": GLOW,
    "fma": FMA,
    "levels": LEVELS,
    "to_half": HALF,
    "mulhi": MULHI,
    "away": AWAY,
}
HELPERS |= {"exp_below": EXP, "newton": NEWTON}
"""All of them by name, in the order that they stand in on the page."""
