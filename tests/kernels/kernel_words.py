"""Words of a variant as NumPy: what the page of kernels writes for each step, number, order of scales and form.

A word that some preset uses and that has no text here fails `test_kernels.py`, as does a text that computes something
else than the package.
"""

import re
from dataclasses import dataclass

from kernel_functions import listed

from qdebug.numerics.rounding import ROUNDINGS
from qdebug.replay import fixed_forms, form_codes
from qdebug.replay.unit import PAIRS

PAIRED = frozenset({"conv", "linear", *PAIRS})
AVERAGED = frozenset({"average_pool", "global_average_pool", "reduce_mean"})

ORDERS = {
    "xw/y": "sx * sw / sy / n",
    "x/(y*n)": "sx * sw / (sy * n)",
    "d:xw/y": "np.float64(sx) * sw / sy / n",
    "d:f(xw)/y": "np.float64(sx * sw) / sy / n",
}
"""Orders of the scales, of float32 numbers."""

NUMBERS = {
    "f32": ("m = np.float32({real})",),
    "f64": ("m = np.float64({real})",),
    "q31": ("m, e = significand({real}, 31)",),
    "m24": ("m, e = significand(np.float32({real}), 24)",),
    "m24s7": ("m, e = significand(np.float32({real}), 24)", "m = m << 7"),
    "m15": (
        "m, pre = significand(np.float32({real}), 24)",
        "m, pre = min((m + 2**8) >> 9, 2**15 - 1), -pre",
    ),
    "p8": ("m = int(np.rint(256 * np.float64({real})))",),
    "glow": ("pre, r, m = glow({real})",),
    "pow2": ("f, e = np.frexp({real})", "e = int(e) - int(f < 0.5**0.5)"),
}
"""Lines that make the integers of a multiplier, or the real number, of the quotient of the scales."""

NUMBER_FORMULAS = {
    "f32": "M = {real}",
    "f64": "M = {real}",
    "q31": "m 2^(e - 31) ~ {real}, m of 31 bits",
    "m24": "m 2^(e - 24) = {real}, m of 24 bits",
    "m24s7": "m 2^(e - 31) = {real}, m of 24 bits and 7 zeros",
    "m15": "m 2^-(pre + 15) ~ {real}, m of 15 bits",
    "p8": "m 2^-8 ~ {real}, m a whole number",
    "glow": "m 2^-(pre + r) ~ {real}, m of 8 to 9 bits",
    "pow2": "2^e ~ {real}",
}

BITS = {"q31": 31, "m24": 24, "m24s7": 31, "m15": 15, "p8": 8, "pow2": 0}
SHORT = frozenset({"m24s7", "m15", "pow2"})
"""Numbers whose programs shift to the right alone: their multipliers are below 1."""

REAL_STEPS = {
    "mul": "v = v * m",
    "div": "v = v / sy",
    "inv": "v = v * (1 / sy)",
    "scale": "v = v * (sx * sw)",
    "lev": "v = levels(v, one, sy, zy, low, high)",
    "lev-fma": "v = levels_fma(v, one, sy, zy, low, high)",
    "lev16": "v = levels16(v, one, sy, zy, low, high)",
    "lev16-fma": "v = levels16_fma(v, one, sy, zy, low, high)",
    "half": "v = to_half(v)",
    "low": "v = v + low",
    "bias": "v = v + bias",
    "zp": "v = v + zy",
    "sat": "y = np.clip(v, low, high)",
}
WHOLE_STEPS = {
    "mul": "v = v * m",
    "shl": "v = np.clip(v << max(e, 0), -(2**31), 2**31 - 1)",
    "sat16": "v = np.clip(v, -(2**15), 2**15 - 1)",
    "wrap32": "v = v.astype(np.int32).astype(np.int64)",
    "zp": "v = v + zy",
    "sat": "y = np.clip(v, low, high)",
}
REAL_FORMULAS = {
    "mul": "{v} M",
    "div": "{v} / sy",
    "inv": "{v} (1 / sy)",
    "scale": "{v} (sx sw)",
    "lev": "({v} f + c)",
    "lev-fma": "fma({v}, f, c)",
    "lev16": "({v} f + c)",
    "lev16-fma": "fma({v}, to_half(f), to_half(c))",
    "half": "to_half({v})",
    "low": "{v} + low",
    "bias": "{v} + bias",
    "zp": "{v} + zy",
    "sat": "sat({v})",
}
WHOLE_FORMULAS = {
    "mul": "{v} m",
    "shl": "sat32({v} 2^l)",
    "sat16": "sat16({v})",
    "wrap32": "wrap32({v})",
    "zp": "{v} + zy",
    "sat": "sat({v})",
    "mulhi": "{rounding}({v} m / 2^{bits})",
    "pre": "{rounding}({v} / 2^pre)",
    "shr": "{rounding}({v} / 2^{amount})",
    "avg": "{rounding}({v} / n)",
}
"""Steps as formulas of the value `v` before them."""

LEVELS = (
    "f = (high - low) / (most - least), c = -least f",
    "least = (low - zy) sy / {one}, most = (high - zy) sy / {one}",
)
"""What the steps `lev` and `lev-fma` compute with, where one of the numbers is worth so much."""
ONES = {"onto-first": "sa", "onto-second": "sb"}
"""The real value of one, by form, where that is neither 1 nor the scale of the sums."""

ADDING = frozenset({"bias", "zp", "low"})
"""Steps that add to the value before them, which needs no parentheses if it is a sum."""

AVERAGES = {"away": "v = np.sign(v) * ((np.abs(v) + n // 2) // n)"}
NOTES = {"shr.tosa": "For codes of 8 bits this gives what `shl,mulhi.up,shr.away` gives."}
"""What is left to say of a step."""


def shifted(rounding, bits, value="v"):
    """Return the text of a shift to the right that rounds; `bits` is a name or a number."""
    half = f"2**{bits - 1}" if isinstance(bits, int) else f"((1 << {bits}) >> 1)"
    text = re.sub(r"\bv\b", value, ROUNDINGS[rounding].shift_text)
    return re.sub(r"\bbits\b", str(bits), re.sub(r"\bhalf\b", half, text))


SUMS = {
    "conv, linear": """
# conv: a row of x is a window, a column of w a filter
acc = (x - zx) @ (w - zw) + bias
acc = acc.astype(np.int32).astype(np.int64)  # wrap32
""",
    "conv, linear with `acc=pairsat16:hwc`": """
# conv: in a window and a filter, taps go before channels (hwc)
u, zu = (x + 128, zx + 128) if lowest < 0 else (x, zx)  # uint8
p = u[:, :, None] * w[None]
p = np.pad(p, ((0, 0), (0, p.shape[1] % 2), (0, 0)))
pairs = np.clip(p[:, 0::2] + p[:, 1::2], -(2**15), 2**15 - 1)
zeros = zu * w.sum(0) + zw * u.sum(1)[:, None] - len(w) * zu * zw
acc = pairs.sum(1) - zeros + bias
acc = acc.astype(np.int32).astype(np.int64)  # wrap32
""",
    "conv, linear with `bias=float`": """
acc = (x - zx) @ (w - zw)
acc = acc.astype(np.int32).astype(np.int64)  # wrap32
whole = np.asarray(bias).dtype.kind == "i"  # at the scale sx * sw
bias = np.float32(bias) * (sx * sw if whole else np.float32(1))
""",
    "mul": """
acc = (a - za) * (b - zb)
sx, sw = sa, sb
""",
    "average_pool, global_average_pool, reduce_mean": """
acc, raw, n = (x - zx).sum(-1), x.sum(-1), x.shape[-1]
""",
    "concat, where, max_pool, pad, requantize, dequantize": """
acc = x - zx
""",
    "quantize": """
acc = x
""",
}
"""What `acc` and `raw` are, by kinds of node."""

_LEVELS = """
least, most = (low - zy) * sy{unit}, (high - zy) * sy{unit}
f = (np.float32(high) - low) / (most - least)
c = -least * (np.float32(high) - low) / (most - least)
"""
_DEQUANTIZED = """
ra = {a}
rb = {b}
v = op(ra, rb)
"""
_ONTO = """
taken = np.float32({zm} + {zt} * {st} / {sm} * op(0, 1))
moved = ({moved}.astype(np.float32) - taken) * ({sm} / {st})
v = op({first}, {second})
"""
_COMMON = """
ra, rb = sa / sy, sb / sy
r = {bits} + 1 - int(np.frexp(max(ra, rb))[1])
ma = int(np.rint(np.ldexp(np.float64(ra), r)))
mb = op(0, int(np.rint(np.ldexp(np.float64(rb), r))))
v = a * ma + b * mb - (za * ma + zb * mb)
"""
_FIXED15 = """
def bring(q, z, s):  # to multiples of 2**-15, ties away from zero
    v = (q - z).astype(np.float32) * (s / np.float32(2**-15))
    whole = np.trunc(v)
    return whole + np.copysign(np.abs(v - whole) >= 0.5, v)
v = op(bring(a, za, sa), bring(b, zb, sb)).astype(np.float32)
sx = np.float32(2**-15)
"""
_STEPPED = """
steps = np.full(256, sx)
steps[0] = (np.float32(lowest) - zx) * sx
v = f(np.add.accumulate(steps)[x - lowest])
"""
_MLAS = """
{top}
{bottom}
t = np.clip((x - zx).astype(np.float32) * sx, -18, 18)
above, below = np.float32(top[0]), np.float32(bottom[0])
for c in top[1:]:
    above = fma(above, t * t, np.float32(c))
for c in bottom[1:]:
    below = fma(below, t * t, np.float32(c))
v = np.clip(above * t / below + np.float32(0.5), 0, 1)
"""
_HSWISH16 = """
def short(real):
    m, e = significand(real, 31)
    return min((m + 2**15) >> 16, 2**15 - 1), e
fine = np.float32(1 / 128) * sx
(mo, eo), (mt, et) = short(fine / sy), short(fine / np.float32(3 / 2**15))
t = (x - zx) << 7
c = np.clip(t << max(et - 1, 0), -(2**15), 2**15 - 1)
c = mulhi(c, mt, 15)
c = np.clip(c << min(max(et, 0), 1), -(2**15), 2**15 - 1)
c = away(c, max(-et, 0))
v = ((c + 2**15) >> 1) * mulhi(t, mo, 15)
v = np.sign(v) * (np.abs(v) >> 15)
r = -eo
"""
_ROOT31 = f"""
m, e = significand(1 / (np.sqrt(np.float64(sx)) * np.float64(sy)), 31)
t = np.maximum(x - zx, 1)
pairs = (31 - np.frexp(np.float64(t))[1].astype(np.int64)) // 2 - 1
half = away((t << (2 * pairs)) >> 1, 1)  # 3 bits before the point
q = np.full_like(t, 2**28)
for _ in range(5):
    cube = np.clip(mulhi(mulhi(q, q), q) << 6, -(2**31), 2**31 - 1)
    q = mulhi(3 * 2**27, q) - mulhi(half, cube)
    q = np.clip(q << 3, -(2**31), 2**31 - 1)
q = mulhi(q, {fixed_forms._HALF_ROOT_2}) << np.maximum(pairs - 11, 0)
right = np.where(t == 1, 0, np.maximum(11 - pairs, 0))
v = mulhi(1 << 20 - right, np.where(t == 1, 2**31 - 1, q))
v = np.where(x > zx, v, np.where(x < zx, -1, 1) * (2**31 - 1))
e = e - 20
"""
_EXP31 = """
m, e = significand(min(np.float64(sx) * 2**26, 2.0**31 - 1), 31)
d = x - x.max(-1, keepdims=True)
gone = d < -np.floor(31 * 2.0**26 / 2.0**e)
p = exp_below(mulhi(d << max(e, 0), m), 5)
p = np.where(gone, 0, p)
total = away(p, 12).sum(-1, keepdims=True)
free = 31 - np.floor(np.log2(total)).astype(np.int64)
q = np.minimum(newton((total << free) >> 1) << 1, 2**31 - 1)
v = away(mulhi(q, p), 43 - free - bits)
"""
_FIXED16 = """
left = 11 + int(np.frexp(sx)[1])  # 12 + log2(sx)
t = (x - zx) << left
t = np.clip(t, -(2**15), 2**15 - 1)  # 12 bits of fraction
"""
_FIXED31 = """
m, e = significand(np.float64(sx) * 2**27, 31)
t = np.clip((x - zx) << max(e, 0), -(2**31), 2**31 - 1)
t = away(mulhi(t, m), max(-e, 0))  # 27 bits of fraction
"""
_SQUASHED = """
p = exp_below(-np.abs(t), {bits} + tanh, {width})  # of 2 t for Tanh
q = newton((p + 2**{n}) >> 1, {width})
if tanh:
    v = np.sign(t) * np.minimum((q - 2**{two}) << 2, 2**{n} - 1)
else:
    v = np.where(t > 0, q << 1, 2**{n} - 1 - (q << 1))
    v = np.where(t == 0, 2**{half}, v)
r = {half} + int(np.frexp(sy)[1])  # {n} + log2(sy)
"""
_EXP32 = """
real = (x - zx).astype(np.float32) * sx
p = np.exp(real - real.max(-1, keepdims=True))
v = p / p.sum(-1, keepdims=True)
"""
_ORT = """
length = np.float32(x.shape[-1])
largest = np.float32(np.finfo(np.float32).max)
room = max(0.0, float(np.log(largest / length)) - 5)
entries = np.arange(256) - 255 + room / float(sx)
table = np.exp(entries * float(sx)).astype(np.float32)
p = table[x + 255 - x.max(-1, keepdims=True)]
total = np.add.accumulate(p, -1)[..., -1:]
v = p * np.floor(1 / sy) / total
lost = 0 if lowest == 0 else np.inf if zy < 0 else -np.inf
v = np.where(np.isinf(v), np.float32(lost), v)
"""
_GRID10 = """
def taps(size, out):
    ratio = (1024 * size + out // 2) // out
    at = np.arange(out) * ratio + (ratio // 2 - 512 if half else 0)
    low = np.maximum(at >> 10, 0)
    high = np.clip((at + 1023) >> 10, 0, size - 1)
    return low, high, 1024 - (at - 1024 * low), at - 1024 * low
"""
_PLACED = """
def taps(size, out):
    at, factor = np.arange(out, dtype=np.float32), np.float32(out / size)
    at = (at + 0.5) / factor - 0.5 if half else at / factor
    at = np.clip(at, 0, size - 1)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, size - 1)
"""
_BLEND10 = """
    above = np.where(low == high, 0.5, at - low)
    above = (above * 1024).astype(np.int64)
    return low, high, 1024 - above, above
"""
_BLEND32 = """
    above = np.where(low == high, 0.5, at - low).astype(np.float32)
    below = np.where(low == high, 0.5, high - at).astype(np.float32)
    return (low, below), (high, above)
v = np.float32(0)
for row, by in taps(x.shape[-2], rows):
    for column, times in taps(x.shape[-1], columns):
        q = x[..., row, :][..., column].astype(np.float32)
        v = v + q * (by[:, None] * times)
"""
_FLOORED = """
def taps(size, out):
    ratio = np.float32(size) / np.float32(out)
    at = np.arange(out, dtype=np.float32)
    at = (at + 0.5) * ratio - 0.5 if half else at * ratio
    low = np.maximum(np.floor(at), 0).astype(np.int64)
    high = np.minimum(np.ceil(at), size - 1).astype(np.int64)
    above = (at - low).astype(np.float32)
    return (low, 1 - above), (high, above)
"""
_CORNERS32 = """
v = np.float32(0)
for column, times in taps(x.shape[-1], columns):
    for row, by in taps(x.shape[-2], rows):
        q = x[..., row, :][..., column].astype(np.float32)
        v = v + q * by[:, None] * times
"""
_WEIGHTS32 = """
v = np.float32(0)
for row, by in taps(x.shape[-2], rows):
    for column, times in taps(x.shape[-1], columns):
        q = x[..., row, :][..., column].astype(np.float32)
        v = v + q * (by[:, None] * times)
"""
_REAL_LERP = """
def taps(size, out):
    ratio = np.float32(size) / np.float32(out)
    at = np.arange(out, dtype=np.float32) * ratio
    if half:
        at = np.clip(at + (ratio / 2 - np.float32(0.5)), 0, size - 1)
    low = at.astype(np.int64)
    return low, np.minimum(low + 1, size - 1), (at - low).astype(np.float32)

real = (x - zx).astype(np.float32) * sx
l, h, above = taps(x.shape[-1], columns)
v = real[..., l] + (real[..., h] - real[..., l]) * above
l, h, above = taps(x.shape[-2], rows)
v = v[..., l, :] + (v[..., h, :] - v[..., l, :]) * above[:, None]
"""
_BLEND11 = """
def taps(size, out):
    ratio = np.float32(size) / np.float32(out)
    at = np.arange(out, dtype=np.float32) * ratio
    if half:
        at = np.clip(at + (ratio / 2 - np.float32(0.5)), 0, size - 1)
    low = at.astype(np.int64)
    above = np.rint((at - low) * 2048).astype(np.int64)
    return low, np.minimum(low + 1, size - 1), 2048 - above, above
"""
_LERP = """
def taps(size, out):
    ratio = np.float32(size) / np.float32(out)
    at = np.arange(out, dtype=np.float32)
    at = np.maximum(ratio * (at + 0.5) - 0.5, 0) if half else ratio * at
    low = np.minimum(at.astype(np.int64), size - 1)
    above = (at - low).astype(np.float32)
    return low, np.minimum(low + 1, size - 1), 1 - above, above
"""
_LERP_FMA = _LERP.replace("ratio * (at + 0.5) - 0.5", "fma(ratio, at + 0.5, -0.5)")
_ALONG = """
l, h, wl, wh = taps(x.shape[-1], columns)
v = x[..., l] * wl + x[..., h] * wh
l, h, wl, wh = taps(x.shape[-2], rows)
v = v[..., l, :] * wl[:, None] + v[..., h, :] * wh[:, None]
"""
_ALONG_FMA = """
l, h, wl, wh = taps(x.shape[-1], columns)
v = fma(x[..., h], wh, x[..., l] * wl)
l, h, wl, wh = taps(x.shape[-2], rows)
v = fma(v[..., h, :], wh[:, None], v[..., l, :] * wl[:, None])
"""
_COUNTED = """
m, e = significand(np.float64(sx) / sy, 31)
room = min(int(np.frexp(n)[1]) - 1, 31 + e)
m, e = (m << room) // n, e - room
v = acc
"""
_NINES = """
real = (x - zx).astype(np.float32) * sx
real = np.pad(real, ((0, 0), (0, -n % 9))).reshape(len(x), -1, 9)
pairs = [real[..., k] + real[..., k + 1] for k in (0, 2, 4, 6)]
one, two, three, four = pairs
parts = (two + three) + ((one + real[..., 8]) + four)
v = np.add.accumulate(parts, -1)[..., -1] * (np.float32(1) / n)
"""
_REAL = """
real = (x - zx).astype(np.float32) * sx
v = np.add.accumulate(real, -1)[..., -1] / np.float32(n)
"""


@dataclass(frozen=True)
class FormText:
    """How a form is written down.

    Args:
        title: What it is called.
        formula: What the program starts from; a line that begins with `v` or stands alone is the first value.
        code: Lines that make `v`.
        real: Whether the program computes in floating point.
        shift: The bits that the step `shr` shifts by: a name that the code defines, or a number.
        note: What is left to say.
    """

    title: str
    formula: str
    code: str
    real: bool = True
    shift: int | str = ""
    note: str = ""


def _first(unit: str, factor: str) -> str:
    return _LEVELS.replace("{unit}", unit) + factor


FORMS = {
    "fold": FormText(
        "scale and zero point in one constant",
        "f = sx (1 / sy)\nv = x f - zx f",
        "f = sx * (1 / sy)\nv = x.astype(np.float32) * f - zx * f",
    ),
    "fold-fma": FormText(
        "zero points in one constant, fused",
        "ra = sa / sy, rb = sb / sy (sub: -sb / sy)\nv = fma(a, ra, fma(b, rb, zy - (ra za + rb zb)))",
        "ra, rb = sa / sy, op(0, sb / sy)\nc = zy - (ra * za + rb * zb)\nv = fma(a, ra, fma(b, rb, c))",
    ),
    "deq": FormText(
        "dequantized in float32",
        "v = (a - za) sa op (b - zb) sb",
        _DEQUANTIZED.format(a="(a - za).astype(np.float32) * sa", b="(b - zb).astype(np.float32) * sb"),
    ),
    "deq-fma": FormText(
        "dequantized by fused multiply-adds",
        "v = fma(a, sa, -za sa) op fma(b, sb, -zb sb)",
        _DEQUANTIZED.format(a="fma(a, sa, -za * sa)", b="fma(b, sb, -zb * sb)"),
    ),
    "onto-second": FormText(
        "the first operand at the scale of the second",
        "v = (a - (za + zb sb / sa)) (sa / sb) + b (sub: za - zb sb / sa, - b)",
        _ONTO.format(
            zm="za",
            zt="zb",
            st="sb",
            sm="sa",
            moved="a",
            first="moved",
            second="b.astype(np.float32)",
        ),
    ),
    "levels": FormText(
        "steps of the output range",
        "f = (high - low) / (most - least), c = -least f\nleast = (low - zy) sy, most = (high - zy) sy\nv = x f + c",
        _first("", "v = acc * f + c"),
        note="The step `zp` adds the lowest code, which counts as the zero point.",
    ),
    "levels-fma": FormText(
        "steps of the output range, fused",
        "f = (high - low) / (most - least), c = low - least f\n"
        "least = (low - zy) sy / (sx sw), most = (high - zy) sy / (sx sw)\nv = fma(acc, f, c)",
        _first(" / (sx * sw)", "v = fma(acc.astype(np.float32), f, c + low)"),
    ),
    "levels-raw": FormText(
        "averages in steps of the output range, fused",
        "f = (high - low) / (most - least), c = -least f - zx f\n"
        "least = (low - zy) sy / sx, most = (high - zy) sy / sx\nv = fma(raw (1 / n), f, c)",
        _first(" / sx", "c = c - np.float32(zx) * f\nv = fma(raw.astype(np.float32) * (1 / np.float32(n)), f, c)"),
        note="The step `zp` adds the lowest code, which counts as the zero point.",
    ),
    "ratio": FormText(
        "each operand times its ratio to the output",
        "v = (a - za) (sa / sy) op (b - zb) (sb / sy)",
        _DEQUANTIZED.format(a="(a - za).astype(np.float32) * (sa / sy)", b="(b - zb).astype(np.float32) * (sb / sy)"),
    ),
    "common20": FormText(
        "21-bit multipliers with one shift",
        "ma = even(2^r sa / sy), mb = even(2^r sb / sy) (sub: -mb)\nv = a ma + b mb - (za ma + zb mb)",
        _COMMON.format(bits=20),
        real=False,
        shift="r",
    ),
    "common21": FormText(
        "22-bit multipliers with one shift",
        "ma = even(2^r sa / sy), mb = even(2^r sb / sy) (sub: -mb)\nv = a ma + b mb - (za ma + zb mb)",
        _COMMON.format(bits=21),
        real=False,
        shift="r",
    ),
    "fixed15": FormText(
        "operands in multiples of 2^-15",
        "v = away((a - za) sa / 2^-15) op away((b - zb) sb / 2^-15)\nsx = 2^-15",
        _FIXED15,
    ),
    "counted": FormText(
        "31-bit multiplier with the count divided out",
        "m 2^(e - 31) ~ sx / (sy n): m of 31 bits for sx / sy, times 2^room, // n\nv = acc",
        _COUNTED,
        real=False,
    ),
    "real": FormText(
        "averages of real values",
        "v = sum((x - zx) sx) / n, in float32",
        _REAL,
        note="The last axis of `x` holds the n codes of a window. An average pool adds them in order. The order of a "
        "`reduce_mean` or `global_average_pool` is not known; replays add as NumPy does, in order up to 7 codes.",
    ),
    "nines": FormText(
        "averages of real values, nine at a time",
        "r = (x - zx) sx, nine at a time\n"
        "p = ((r2 + r3) + (r4 + r5)) + (((r0 + r1) + r8) + (r6 + r7))\n"
        "v = (p0 + p1 + ... in order) (1 / n), in float32",
        _NINES,
        note="The last axis of `x` holds the n codes of a window, column by column.",
    ),
    "taps": FormText(
        "averages of real values over all taps",
        "v = sum((x - zx) sx) / n, in float32",
        _REAL,
        note="The last axis of `x` holds the codes of a window. With `count_include_pad`, n is the number of taps, "
        "even where `ceil_mode` lets a window reach beyond the padding.",
    ),
    "table": FormText(
        "function of the dequantized value",
        "v = f((x - zx) sx), in float32",
        "v = f((x - zx).astype(np.float32) * sx)",
    ),
    "stepped": FormText(
        "function of values found by repeated addition",
        "v = f((lowest - zx) sx + sx + ... + sx), x - lowest additions in float32",
        _STEPPED,
        note="`lowest` is the lowest code of the input.",
    ),
    "mlas": FormText(
        "ONNX Runtime's polynomials",
        "v = t top(t^2) / bottom(t^2) + 1/2, with fma; t = clip((x - zx) sx, -18, 18)",
        _MLAS.format(top=listed("top", form_codes._NUMERATOR), bottom=listed("bottom", form_codes._DENOMINATOR)),
    ),
    "hswish16": FormText(
        "fixed point of 16 bits",
        "t = 128 (x - zx), the input at scale sx / 128\n"
        "c = t (sx / 128) / (3 / 2^15), in 16 bits with saturation\n"
        "v = trunc((c + 2^15) / 2 * up(t (sx / 128 / sy) 2^-e) / 2^15), r = -e",
        _HSWISH16,
        real=False,
        shift="r",
    ),
    "fixed16": FormText(
        "Sigmoid and Tanh in fixed point of 16 bits",
        "t = sat16(2^12 (x - zx) sx), which stands for numbers below 8\n"
        "v = 2^15 / (1 + exp(-t / 2^12)), or 2^15 tanh(t / 2^12); r = 15 + log2(sy)",
        _FIXED16 + _SQUASHED.strip("\n").format(bits=3, width=16, n=15, half=14, two=13),
        real=False,
        shift="r",
        note="`tanh` is True for Tanh and False for Sigmoid. `x` has 16 bits. Both scales are powers of two: `sx` is "
        "at least 2^-12, `sy` at least 2^-15.",
    ),
    "fixed31": FormText(
        "Sigmoid and Tanh in fixed point of 31 bits",
        "t = sat32(2^27 (x - zx) sx), which stands for numbers below 16\n"
        "v = 2^31 / (1 + exp(-t / 2^27)), or 2^31 tanh(t / 2^27); r = 31 + log2(sy)",
        _FIXED31 + _SQUASHED.strip("\n").format(bits=4, width=32, n=31, half=30, two=29),
        real=False,
        shift="r",
        note="`tanh` is True for Tanh and False for Sigmoid. `x` has 8 bits. `sy` is a power of two.",
    ),
    "root31": FormText(
        "reciprocal root in fixed point of 31 bits",
        "m 2^(e - 31) ~ 1 / (sqrt(sx) sy) in float64, m of 31 bits\n"
        "v = 2^20 / sqrt(x - zx) by 5 rounds of Newton's iteration\n"
        "v = 2^31 - 1 where x = zx\n"
        "e is 20 less in the program",
        _ROOT31,
        real=False,
        note="`x` has 8 bits.",
    ),
    "exp31": FormText(
        "fixed point of 31 bits",
        "p = exp(sx (x - max x)), 31 bits of fraction; 0 below about -31\nv = away(2^bits p / sum p)",
        _EXP31,
        note="The last axis of `x` is the one of the softmax. The output has `bits` bits, 8 or 16, and the "
        "scale 2^-bits.",
    ),
    "exp32": FormText(
        "float32 exponentials",
        "t = (x - zx) sx\nv = exp(t - max t) / sum(exp(t - max t)), in float32",
        _EXP32,
        note="The last axis of `x` is the one of the softmax. `np.exp` of float32 may differ between processors.",
    ),
    "ort": FormText(
        "table of scaled exponentials",
        "p = float32(exp(sx (x - max x) + room)), room = log(largest / length) - 5\n"
        "v = p floor(1 / sy) / (p1 + p2 + ... in order), in float32",
        _ORT,
        note="The last axis of `x` is the one of the softmax, and `x` has 8 bits. The last two lines say what "
        "x86 makes of a product that overflows, in short rows.",
    ),
    "grid10": FormText(
        "interpolation with weights and places of 10 bits",
        "v = sum of 4 neighbours times whole weights in 1024ths, by axis",
        _GRID10 + _ALONG,
        real=False,
        shift=20,
    ),
    "blend10": FormText(
        "interpolation with weights cut off after 10 bits",
        "v = sum of 4 neighbours times whole weights in 1024ths, by axis",
        _PLACED + _BLEND10 + _ALONG,
        real=False,
        shift=20,
    ),
    "blend11": FormText(
        "interpolation with weights of 11 bits",
        "v = sum of 4 neighbours times whole weights in 2048ths, by axis",
        _BLEND11 + _ALONG,
        real=False,
        shift=22,
    ),
    "blend32": FormText(
        "interpolation in float32, four neighbours at once",
        "v = sum of 4 neighbours times the product of both weights, in float32",
        _PLACED + _BLEND32,
    ),
    "corners32": FormText(
        "interpolation in float32, by one weight after the other",
        "v = sum of 4 neighbours times one weight, then the other, in float32",
        _FLOORED + _CORNERS32,
    ),
    "weights32": FormText(
        "interpolation in float32, by products of weights",
        "v = sum of 4 neighbours times the product of both weights, in float32",
        _FLOORED + _WEIGHTS32,
    ),
    "real-lerp": FormText(
        "interpolation of real values, axis by axis",
        "r = (x - zx) sx\nv = low + (above - low) weight, in float32, by axis",
        _REAL_LERP,
    ),
    "lerp": FormText(
        "interpolation in float32, axis by axis",
        "v = sum of 4 neighbours times weights in float32, by axis, less zx",
        _LERP + "x = x.astype(np.float32)" + _ALONG + "v = v - np.float32(zx)",
    ),
    "lerp-fma": FormText(
        "interpolation in float32, axis by axis, fused",
        "v = fma(above, weight, below (1 - weight)) in float32, by axis, less zx",
        _LERP_FMA + "x = x.astype(np.float32)" + _ALONG_FMA + "v = v - np.float32(zx)",
        note="The last two axes of `x` are those that are resized, wherever the channels lie in memory.",
    ),
}
"""Forms that need lines of their own; `kernel_page` writes those that load sums or run programs on operands."""
