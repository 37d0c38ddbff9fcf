"""The page of kernels: each of its snippets runs, and gives what the package gives, bit for bit."""

from itertools import product

import kernel_functions
import kernel_page
import kernel_words
import numpy as np
import pytest
from sweeps import sweep

from qdebug.arithmetic.presets import known_presets
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import accumulate, compute, finish
from qdebug.replay.form_codes import apply_function, fused_multiply_add
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import parse_variant

KERNELS = kernel_page.kernels()
CODES = {"int8": (-128, 127), "uint8": (0, 255)}
DTYPES = pytest.mark.parametrize("dtype", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
SHARES = pytest.mark.parametrize(("dtype", "every"), sweep([("int8", 5), ("int8", 1), ("uint8", 1)], 1))
"""A dtype, and of how many cases one is tried."""
FINE = ("int16", 2.0**-15, -32768, 32767)
WIDE = ("int32", 2.0**-31, -(2**31), 2**31 - 1)
"""Outputs that show small differences: their dtype, scale, and lowest and highest code."""
POWERS = [(2.0**-5, 2.0**-4, 2.0**-2), (2.0**-3, 2.0**-12, 2.0**-4), (2.0**-7, 0.5, 2.0**-7), (2.0**-9, 2.0**-9, 0.25)]
OTHERS = [(0.0371, 0.00293, 0.0912), (0.0235, 0.7107, 0.0334), (0.0049, 0.0021, 1.37), (0.11, 0.003, 0.029)]
OTHERS += [(0.0193, 0.0071, 0.0617), (0.0537, 0.0123, 0.0719), (0.00341, 0.0317, 0.0213), (0.0817, 0.0061, 0.0455)]
LARGE = [(0.25, 4.0, 0.125), (0.91, 0.83, 0.117)]
"""Scales of both operands and the output: powers of two, others, and such that the multiplier is above 1."""
ZEROS = {"int8": (-128, -3, 0, 5, 127), "uint8": (0, 1, 128, 254, 255)}
COUNTED = ("counted", "levels", "levels-fma", "levels-raw")
LOADED = [each for each in KERNELS if each.variant.form in (*kernel_page.LOADED, *COUNTED)]


def run(kernel, names, sums=""):
    """Run a snippet, after what the page says is summed, and return its codes."""
    given = {"np": np, "sw": np.float32(1), **names}
    for helper in kernel_functions.HELPERS.values():
        exec(helper, given)  # noqa: S102  the text that is tested
    with np.errstate(all="ignore"):
        exec(f"{sums}\n{kernel_page.code(kernel)}", given)  # noqa: S102  the text that is tested
    return np.asarray(given["y"])


def operand(codes, dtype, scale, zero):
    return Operand(
        codes=np.asarray(codes).astype(dtype), scale=np.asarray(np.float32(scale)), zero_point=np.asarray(zero, dtype)
    )


def target(dtype, scale, zero):
    return Target(dtype=np.dtype(dtype), scale=np.asarray(np.float32(scale)), zero_point=np.asarray(zero, dtype))


def assert_same(found, expected):
    """Demand the same codes at every place."""
    wrong = np.flatnonzero(found.reshape(-1).astype(np.float64) != expected.reshape(-1).astype(np.float64))
    assert found.shape == expected.shape
    assert not wrong.size, (wrong.size, found.size, found.reshape(-1)[wrong[:5]], expected.reshape(-1)[wrong[:5]])


def near_ties(multiplier, generator):
    """Return sums that lie on ties and beside them, at random, and at the ends of int32."""
    ties = np.rint((np.arange(-300, 300) + 0.5) / multiplier).astype(np.int64)
    beside = (ties[:, None] + np.arange(-1, 2)).reshape(-1)
    spread = generator.integers(-(2**31), 2**31, 500) >> generator.integers(0, 31, 500)
    ends = np.array([0, 1, -1, 2**31 - 1, -(2**31), 2**30, -(2**30), 2**24 + 1, -(2**24) - 1])
    return np.clip(np.concatenate([beside, spread, ends]), -(2**31), 2**31 - 1)


def scales_for(variant):
    short = variant.multiplier.number in kernel_words.SHORT
    return POWERS + OTHERS + ([] if short else LARGE)


@pytest.mark.parametrize("kernel", LOADED, ids=lambda each: str(each.variant))
@SHARES
def test_sums_become_the_same_codes(kernel, dtype, every):
    generator = np.random.default_rng(3)
    for kind in kernel.kinds:
        cases = [*product(enumerate(scales_for(kernel.variant)), (0, 2))]
        for (number, scales), beside in cases[::every]:
            check_sums(kernel, kind, dtype, scales, ZEROS[dtype][(number + beside) % 5], generator)


@pytest.mark.parametrize(
    "kernel", [each for each in LOADED if each.variant.form == "offset"], ids=lambda each: str(each.variant)
)
@SHARES
def test_zero_points_that_are_taken_off_at_the_end_become_the_same_codes(kernel, dtype, every):
    generator = np.random.default_rng(6)
    several = [(0.5, 1.0, 1.0), (0.25, 1.0, 0.5), (0.0371, 1.0, 0.0742), *OTHERS]  # halves of zero points are ties
    for zero, scales, inside in [*product(ZEROS[dtype], several, ZEROS[dtype])][:: every - every // 2]:
        check_sums(kernel, kernel.kinds[0], dtype, scales, zero, generator, inside=inside)


def check_sums(kernel, kind, dtype, scales, zero, generator, variant=None, inside=3):
    """Compare a snippet with the package's program on given sums; `inside` is the input's zero point."""
    paired, averages = kind in kernel_words.PAIRED, kind in kernel_words.AVERAGED
    sx, sw, sy = map(np.float32, scales)
    sw = sw if paired else np.float32(1)
    n = 49 if averages else 1
    sums = near_ties(float(sx) * float(sw) / float(sy) / n, generator)
    if kind == "quantize":
        ties = (np.arange(-300, 300, dtype=np.float32) + np.float32(0.5)) * sy
        ends = np.array([0, -0.0, 1e30, -1e30, 0.4999999701976776], np.float32)
        sums = np.concatenate([ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, ties * 2), ends])
    bias = np.float32(generator.normal(0, 20, 1)) * sy
    unit = Unit(
        kind=kind,
        operands=(operand([[0]], dtype, sx, inside), operand([[0]], dtype, sw, 0))[: 2 if paired else 1],
        out=target("float32" if kind == "dequantize" else dtype, sy, 0 if kind == "dequantize" else zero),
        bias=bias if kernel.variant.bias == "float" else None,
    )
    columns = Columns(
        sums=kernel.variant.sums,
        values=(sums,),
        shape=sums.shape,
        count=np.asarray(np.float32(n)) if averages else None,
        member=np.zeros(sums.shape, np.int64) if kind in ("concat", "where") else None,
        bound=2.0**31,
    )
    low, high = CODES[dtype]
    names = {"sx": sx, "sw": sw, "sy": sy, "zx": inside, "zy": zero, "n": n, "low": low, "high": high}
    assert_same(
        run(kernel, {"acc": sums, "raw": sums, "bias": bias, **names}), finish(unit, columns, variant or kernel.variant)
    )


OPERATIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
OPERATIONS["prelu"] = lambda x, slope: np.where(x < 0, x * slope, x)
OPERATIONS["squared_difference"] = lambda a, b: (a - b) ** 2
PAIRS = [each for each in KERNELS if set(each.kinds) & set(OPERATIONS) and each not in LOADED]


@pytest.mark.parametrize("kernel", PAIRS, ids=lambda each: str(each.variant))
@SHARES
def test_all_pairs_of_codes_become_the_same_codes(kernel, dtype, every):
    low, high = CODES[dtype]
    a, b = (each.reshape(-1) for each in np.meshgrid(np.arange(low, high + 1), np.arange(low, high + 1)))
    zeros = [*zip(ZEROS[dtype], ZEROS[dtype][::-1], (ZEROS[dtype] * 2)[2:7], strict=True)]
    several = [(0.5, 0.25, 0.25), (0.0371, 0.0293, 0.0912), (0.013, 0.0411, 0.0334), (1.0, 1.0, 2.0)]
    for kind in kernel.kinds:
        for (za, zb, zy), (sa, sb, sy) in [*product(zeros, several)][::every]:
            unit = Unit(
                kind=kind,
                operands=(operand(a, dtype, sa, za), operand(b, dtype, sb, zb)),
                out=target(dtype, sy, zy),
            )
            singles = {"sa": np.float32(sa), "sb": np.float32(sb), "sy": np.float32(sy)}
            names = {"za": za, "zb": zb, "zy": zy, "low": low, "high": high, "op": OPERATIONS[kind], **singles}
            expected = compute(unit, kernel.variant)
            numbers = b != zb if kind == "div" else slice(None)  # a division by 0 gives what the processor gives
            assert_same(run(kernel, {"a": a, "b": b, **names})[numbers], expected[numbers])


SQUASHED = [each for each in KERNELS if each.variant.form in ("fixed16", "fixed31")]
LOOKUPS = [each for each in KERNELS if each.kinds == ("lookup",) and each not in SQUASHED]
FUNCTIONS = {"mlas": ("Sigmoid",), "hswish16": ("HardSwish",), "leaky": ("LeakyRelu",), "root31": ("Rsqrt",)}


@pytest.mark.parametrize("kernel", LOOKUPS, ids=lambda each: str(each.variant))
@SHARES
def test_all_codes_become_the_same_codes(kernel, dtype, every):
    low, high = CODES[dtype]
    x = np.arange(low, high + 1)
    for function in FUNCTIONS.get(kernel.variant.form, ("Sigmoid", "LeakyRelu")):
        narrow = [(dtype, sy, low, high) for sy in (0.125, 0.0912, 0.3, 0.0555, 0.0713, 0.0387, 0.1007)]
        fine = [] if kernel.variant.form in ("hswish16", "leaky", "root31") else [(dtype, 1 / 256, low, high), FINE]
        cases = product((2.0**-5, 0.0371, 0.11), narrow + fine, ZEROS[dtype][::2], (low, low + 131))
        for sx, (out, sy, least, most), zx, zy in [*cases][::every]:
            unit = Unit(
                kind="lookup",
                operands=(operand(x, dtype, sx, zx),),
                out=target(out, sy, zy),
                function=function,
                attrs={"alpha": 0.1} if function == "LeakyRelu" else {},
            )
            names = {"zx": zx, "zy": zy, "low": least, "high": most, "lowest": low, "alpha": np.float32(0.1)}
            names |= {"x": x, "sx": np.float32(sx), "sy": np.float32(sy)}
            found = run(kernel, {"f": lambda real, unit=unit: apply_function(unit, real), **names})
            assert_same(found, compute(unit, kernel.variant))


SQUASHED_CODES = {
    "fixed16": ("int16", -32768, 32767, (2.0**-12, 2.0**-11, 2.0**-9, 2.0**-3, 1.0), (0, -3, 5, -32768, 32767)),
    "fixed31": ("int8", -128, 127, (2.0**-30, 2.0**-9, 2.0**-5, 0.0371, 0.11, 0.5, 1.7), ZEROS["int8"]),
}
"""What fixed point is tried on: a dtype, its lowest and highest code, scales, and zero points."""


@pytest.mark.parametrize("kernel", SQUASHED, ids=lambda each: str(each.variant))
@pytest.mark.parametrize("function", ["Sigmoid", "Tanh"])
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_sigmoid_and_tanh_in_fixed_point_give_the_same_codes(kernel, function, unsigned, share):
    dtype, low, high, scales, zeros = SQUASHED_CODES[kernel.variant.form]
    if unsigned:
        dtype, low, high, zeros = f"u{dtype}", 0, high - low, [zero - low for zero in zeros]
    every = 1 if kernel.variant.form == "fixed31" else 37
    targets = (("int8", 2.0**-8, -128, 127), ("uint8", 2.0**-7, 0, 255), ("int16", 2.0**-8, *FINE[2:]), FINE)
    targets += (WIDE,) if kernel.variant.form == "fixed31" else ()
    for number, (sx, zx, (out, sy, least, most)) in [*enumerate(product(scales, zeros, targets))][::share]:
        near = np.clip(np.arange(zx - 300, zx + 301), low, high)  # 0 and numbers beside it
        x = np.concatenate([np.arange(low, high + 1, every), near, [high]])
        zy = (0, least, least + 131, most)[(number + number // len(targets)) % 4]  # each with each target
        unit = Unit(kind="lookup", operands=(operand(x, dtype, sx, zx),), out=target(out, sy, zy), function=function)
        names = {"x": x, "zx": zx, "zy": zy, "low": least, "high": most, "tanh": function == "Tanh"}
        found = run(kernel, {"sx": np.float32(sx), "sy": np.float32(sy), **names})
        assert_same(found, compute(unit, kernel.variant))


SOFTMAXES = [each for each in KERNELS if each.kinds == ("softmax",)]


@pytest.mark.parametrize("kernel", SOFTMAXES, ids=lambda each: str(each.variant))
@DTYPES
@pytest.mark.parametrize("length", [1, 2, 10, 301])
def test_a_softmax_gives_the_same_codes(kernel, dtype, length):
    generator = np.random.default_rng(length)
    low, high = CODES[dtype]
    for sx in (2.0**-6, 0.0371, 0.11, 0.5, 1.7):
        x = generator.integers(low, high + 1, (300, length))
        x[:20] = x[:20, :1]  # all alike
        x[20:60] = np.maximum(x[20:60].max(-1, keepdims=True) - generator.integers(0, 4, (40, length)), low)
        fine = ("int16", 2.0**-16, *FINE[2:]) if kernel.variant.form == "exp31" else FINE
        for out, sy, least, most in ((dtype, 1 / 256, low, high), fine):
            unit = Unit(
                kind="softmax",
                operands=(operand(x, dtype, sx, 3),),
                out=target(out, sy, least),
                attrs={"axis": -1},
            )
            names = {"x": x, "sx": np.float32(sx), "sy": np.float32(sy), "zx": 3, "zy": least, "low": least}
            names["lowest"] = low
            found = run(kernel, {"high": most, "bits": 16 if out == "int16" else 8, **names})
            assert_same(found, compute(unit, kernel.variant))


RESIZES = [each for each in KERNELS if each.kinds == ("resize",)]


@pytest.mark.parametrize("kernel", RESIZES, ids=lambda each: str(each.variant))
@DTYPES
@pytest.mark.parametrize(
    ("size", "half"), sweep(product([(14, 10), (7, 13), (3, 4), (5, 9), (16, 5)], [True, False]), 3)
)
def test_a_bilinear_resize_gives_the_same_codes(kernel, dtype, half, size):
    low, high = CODES[dtype]
    x = np.random.default_rng(5).integers(low, high + 1, (16, 8, 7, 5))
    mode = "half_pixel" if half else "asymmetric"
    zero = low + 9
    targets = [(dtype, 0.0371, zero, low, high)]
    if "lerp" in kernel.variant.form:  # in codes so fine that they show all bits of float32
        targets.append(("int32", 0.0371 * 2.0**-17, 0, *WIDE[2:]))
    for out, sy, zy, least, most in targets:
        unit = Unit(
            kind="resize",
            op="Resize",
            function="Resize",
            operands=(operand(x, dtype, 0.0371, zero),),
            out=target(out, sy, zy),
            attrs={"mode": "linear", "coordinate_transformation_mode": mode},
            settings=(None, None, np.array([16, 8, *size], np.int64)),
        )
        names = {"x": x, "sx": np.float32(0.0371), "sy": np.float32(sy), "zx": zero, "zy": zy}
        names |= {"rows": size[0], "columns": size[1], "half": half, "low": least, "high": most}
        assert_same(run(kernel, names), compute(unit, kernel.variant))


AVERAGES = [each for each in KERNELS if each.variant.form in ("real", "taps", "nines")]


@pytest.mark.parametrize("kernel", AVERAGES, ids=lambda each: str(each.variant))
@DTYPES
@pytest.mark.parametrize("n", [2, 3, 7, 49])
def test_averages_of_real_values_give_the_same_codes(kernel, dtype, n):
    low, high = CODES[dtype]
    x = np.random.default_rng(n).integers(low, high + 1, (500, n))
    ties = n * (250 // n - 0.5)  # a finer output, in which every other average lies near a tie
    for kind in kernel.kinds:
        if kind in ("reduce_mean", "global_average_pool") and n > 7:  # in the order of NumPy, as the page says
            continue
        for (sx, zero), fine in product(((0.0371, 3), (2.0**-5, low + 1), (0.11, high)), (False, True)):
            out, sy, least, most = ("int16", sx / ties, *FINE[2:]) if fine else (dtype, sx, low, high)
            pool = kind.endswith("average_pool")
            windowed = {"kernel_shape": (n,)} if kind == "average_pool" else {}
            unit = Unit(
                kind=kind,
                operands=(operand(x[:, None] if pool else x, dtype, sx, zero),),
                out=target(out, sy, zero),
                attrs=windowed if pool else {"axes": (-1,), "keepdims": 0},
            )
            names = {"x": x, "sx": np.float32(sx), "sy": np.float32(sy), "zx": zero, "zy": zero, "n": n}
            assert_same(run(kernel, {"low": least, "high": most, **names}), compute(unit, kernel.variant).reshape(-1))


def test_joined_codes_become_the_same_codes():
    (kernel,) = (each for each in KERNELS if each.variant.form == "fold")
    x = np.arange(256)
    for sx, zx, zy in product((0.0371, 0.5, 0.25, 0.0711), (0, 128, 7), (0, 3, 255)):
        for out, sy, least, most in (
            ("uint8", 0.0912, 0, 255),
            ("uint8", 0.5, 0, 255),
            ("int16", sx / 127.5, *FINE[2:]),
        ):
            unit = Unit(kind="concat", operands=(operand(x, "uint8", sx, zx),), out=target(out, sy, zy))
            names = {"x": x, "zx": zx, "zy": zy, "low": least, "high": most}
            found = run(kernel, {"sx": np.float32(sx), "sy": np.float32(sy), **names})
            assert_same(found, compute(unit, kernel.variant))


@pytest.mark.parametrize("sums", ["wrap32", "pairsat16:hwc"])
@DTYPES
@pytest.mark.parametrize("depth", [1, 7, 64])
def test_products_are_summed_alike(sums, dtype, depth):
    text = kernel_words.SUMS["conv, linear" + (f" with `acc={sums}`" if sums != "wrap32" else "")]
    generator = np.random.default_rng(depth)
    low, high = CODES[dtype]
    x, w = generator.integers(low, high + 1, (40, depth)), generator.integers(-128, 128, (depth, 30))
    x[:10], w[:, :10] = high, 127
    bias = generator.integers(-(2**31), 2**31, 30)
    bias[:10] = 2**31 - 1  # overflows
    unit = Unit(
        kind="linear",
        operands=(operand(x, dtype, 1, 3), operand(w, "int8", 1, 5)),
        out=target(dtype, 1, 0),
        bias=bias.astype(np.int32),
    )
    given = {"np": np, "x": x, "w": w, "bias": bias, "zx": 3, "zw": 5, "lowest": low}
    exec(text, given)  # noqa: S102  the text that is tested
    assert_same(given["acc"], accumulate(unit, parse_variant(f"acc={sums}").sums).values[0])


BIASED = [each for each in KERNELS if each.variant.bias == "float"]


@pytest.mark.parametrize("kernel", BIASED, ids=lambda each: str(each.variant))
@DTYPES
@pytest.mark.parametrize("kind", ["conv", "linear"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_real_bias_gives_the_same_codes(kernel, dtype, kind, whole):
    generator = np.random.default_rng(whole)
    low, high = CODES[dtype]
    x, w = generator.integers(low, high + 1, (400, 64)), generator.integers(-128, 128, (64, 30))
    bias = generator.integers(-20000, 20000, 30).astype(np.int32) if whole else np.float32(generator.normal(0, 2, 30))
    shapes = ((*x.shape, 1, 1), (*w.T.shape, 1, 1)) if kind == "conv" else (x.shape, w.shape)
    for sx, sw, sy in OTHERS:
        unit = Unit(
            kind=kind,
            operands=(
                operand(x.reshape(shapes[0]), dtype, sx, 3),
                operand((w.T if kind == "conv" else w).reshape(shapes[1]), "int8", sw, 5),
            ),
            out=target(dtype, sy, 7),
            bias=bias,
        )
        names = {"sx": np.float32(sx), "sw": np.float32(sw), "sy": np.float32(sy), "zx": 3, "zw": 5, "zy": 7}
        if any(
            step.op.startswith("lev16") for step in kernel.variant.requantize
        ):  # which a whole bias is scaled by too
            names |= {name: np.float32(np.float16(names[name])) for name in ("sx", "sw")}
        names |= {"x": x, "w": w, "bias": bias, "low": low, "high": high}
        found = run(kernel, names, kernel_words.SUMS["conv, linear with `bias=float`"])
        assert_same(found, compute(unit, kernel.variant).reshape(found.shape))


@pytest.mark.parametrize("kind", ["mul", "reduce_mean", "global_average_pool", "requantize", "quantize", "dequantize"])
def test_what_is_summed_is_what_the_package_sums(kind):
    generator = np.random.default_rng(1)
    text = next(text for kinds, text in kernel_words.SUMS.items() if kind in kinds.split(", "))
    kernel = next(each for each in KERNELS if kind in each.kinds and each.variant.form in ("sum", "offset"))
    x, b = (generator.integers(-128, 128, (200, 3, 9)) for _ in range(2))
    if kind == "quantize":
        x = generator.normal(0, 3, x.shape).astype(np.float32)
    operands = [operand(x, x.dtype if kind == "quantize" else "int8", 0.0371, 3)]
    unit = Unit(
        kind=kind,
        operands=tuple([*operands, operand(b, "int8", 0.21, -7)] if kind == "mul" else operands),
        out=target("float32" if kind == "dequantize" else "int8", 0.0912, 0 if kind == "dequantize" else 5),
        attrs={"axes": (-1,), "keepdims": 0} if kind == "reduce_mean" else {},
    )
    names = {"x": x, "a": x, "b": b, "zx": 3, "za": 3, "zb": -7, "zy": 5, "low": -128, "high": 127}
    names |= {"sx": np.float32(0.0371), "sa": np.float32(0.0371), "sb": np.float32(0.21), "sy": np.float32(0.0912)}
    expected = compute(unit, kernel.variant)
    assert_same(run(kernel, names, text), expected.reshape(200, 3) if kind == "global_average_pool" else expected)


def test_a_fused_multiply_add_is_rounded_once():
    given = {"np": np}
    exec(kernel_functions.HELPERS["fma"], given)  # noqa: S102  the text that is tested
    generator = np.random.default_rng(2)
    a, b, c = (np.ldexp(generator.normal(0, 1, 100_000), generator.integers(-30, 30, 100_000)) for _ in range(3))
    # A product just below a tie of float32, by less than float64 holds: rounded twice it would go to even.
    near = np.array([2.0**23 + 1]), np.array([(2.0**23 - 1) * 2.0**-70])
    ties = np.concatenate([1 + np.arange(64) * 2.0**-23, -1 - np.arange(64) * 2.0**-23])
    for factors in ((a, b, c), (*near, ties), (near[0], -near[1], ties)):
        singles = [each.astype(np.float32) for each in factors]
        assert np.array_equal(given["fma"](*singles), fused_multiply_add(*singles))


def test_every_arithmetic_is_tried_and_has_a_title_of_its_own():
    groups = (LOADED, PAIRS, LOOKUPS, SQUASHED, SOFTMAXES, RESIZES, AVERAGES)
    tried = {id(each) for group in groups for each in group}
    assert {each.variant.form for each in KERNELS if id(each) not in tried} == {"fold"}
    titles = kernel_page.titles(KERNELS)
    assert len(set(titles)) == len(titles)
    assert all(kernel_page.formula(each) for each in KERNELS)


def test_rounding_twice_in_one_shift_is_rounding_twice():
    generator = np.random.default_rng(4)
    pairs = [(each, str(each.variant).replace("mul,shr.tosa", "shl,mulhi.up,shr.away")) for each in LOADED]
    pairs = [(each, parse_variant(other)) for each, other in pairs if other != str(each.variant)]
    assert pairs
    for kernel, other in pairs:
        for scales in POWERS + OTHERS + LARGE:
            check_sums(kernel, "conv", "int8", scales, 5, generator, other)


def test_what_a_preset_computes_some_nodes_by_is_said_so():
    stated = {(kind, preset.name) for preset in known_presets().values() for kind in preset.also}
    assert stated == {(use.kind, use.preset) for kernel in KERNELS for use in kernel.uses if use.some}
    kernel = next(each for each in KERNELS if str(each.variant) == "bias=float steps=scale,bias,inv,even,zp,sat")
    assert any("`fbgemm`, `onednn` (some nodes of conv, linear)" in line for line in kernel_page._users(kernel.uses))
    plain = next(each for each in KERNELS if not any(use.some for use in each.uses))
    assert not any("some nodes" in line for line in kernel_page._users(plain.uses))


def test_types_are_said_where_others_are_computed_otherwise():
    variants = known_presets()["tflite-opt-avx"].variants
    assert kernel_page._said("lookup.Tanh:int16,int16", variants) == "lookup.Tanh of int16/int16"
    assert kernel_page._said("lookup.LeakyRelu", variants) == "lookup.LeakyRelu"
    assert kernel_page._said("conv:uint8,int8,uint8", known_presets()["fbgemm-nonvnni"].variants) == "conv"


@pytest.mark.parametrize(
    ("value", "found"), [("a + b", True), ("(a + b) c", False), ("f(a (b + c)) d", False), ("a (b) + c", True)]
)
def test_a_formula_that_adds_outside_of_parentheses_is_a_sum(value, found):
    assert kernel_page._is_sum(value) is found
