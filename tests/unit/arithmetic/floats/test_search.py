"""The rounding that was planted in a kernel is named, and no other one."""

import numpy as np
import pytest

from qdebug.arithmetic.floats.recipes import RECIPES
from qdebug.arithmetic.floats.search import Observation, Placement, parse_placement, search_placements
from qdebug.arithmetic.floats.steps import source
from qdebug.model import Node
from qdebug.numerics.float_rounding import round_float
from qdebug.numerics.short_formats import SHORT_FORMATS

SHORT = {short.name: short for short in SHORT_FORMATS}
RNG = np.random.default_rng(0)
ROWS, LENGTH = 64, 512


def rounded(values, word="even", short="bfloat16"):
    return values if word is None else round_float(values, SHORT[short], word).astype(np.float32)


def numbers(*shape, short="bfloat16"):
    return rounded(RNG.standard_normal(shape), short=short)


def found(op, inputs, result, *, short="bfloat16", by_rows=True, domain="", **attrs):
    node = Node(
        name="n", op=op, domain=domain, inputs=tuple(f"i{at}" for at in range(len(inputs))), outputs=("y",), attrs=attrs
    )

    def build(rows):
        taken = [each if rows is None or len(each) != len(result) else each[rows] for each in inputs]
        return RECIPES[op].steps(node, [source(each) for each in taken], [each.shape for each in taken])[0]

    return search_placements([Observation(build=build, recorded=result, by_rows=by_rows)], SHORT[short])


def root_mean_square(x, scale, squares=None, mean=None, inverse=None, normalized=None, result="even"):
    power = rounded(
        (x * x).mean(-1, keepdims=True) if squares is None else rounded(x * x, squares).mean(-1, keepdims=True), mean
    )
    factor = rounded(1 / np.sqrt(power + np.float32(1e-5)), inverse)
    return rounded(rounded(x * factor, normalized) * scale, result)


def softmax(x, powers=None, total=None, result="even"):
    made = rounded(np.exp(x - x.max(-1, keepdims=True)), powers)
    return rounded(made / rounded(made.sum(-1, keepdims=True, dtype=np.float32), total), result)


@pytest.mark.parametrize("short", ["bfloat16", "float16", "float8_e5m2"])
@pytest.mark.parametrize("rounding", ["even", "away", "zero", "out", "down", "up"])
def test_an_addition_has_one_rounding(rounding, short):
    a, b = numbers(ROWS, LENGTH, short=short), numbers(ROWS, LENGTH, short=short)
    finding = found("Add", [a, b], rounded(a.astype(np.float64) + b, rounding, short), short=short)
    assert [placement.rounding for placement in finding.fitting] == [rounding]
    assert finding.named is not None
    assert finding.witnesses > 100


NORMALIZED = {
    "once": ({}, ()),
    "inverse": ({"inverse": "even"}, ("the inverse root",)),
    "normalized": ({"normalized": "even"}, ("the normalized values",)),
    "mean": ({"mean": "even"}, ("the mean of squares",)),
    "both": ({"inverse": "even", "normalized": "zero"}, ("the inverse root", "the normalized values")),
    "truncated": ({"result": "zero"}, ()),
}


@pytest.mark.parametrize("planted", NORMALIZED.values(), ids=NORMALIZED)
def test_roundings_inside_a_normalization(planted):
    options, edges = planted
    x, scale = numbers(ROWS, LENGTH), numbers(LENGTH)
    finding = found("RMSNormalization", [x, scale], root_mean_square(x, scale, **options), axis=-1, epsilon=1e-5)
    assert finding.named is not None
    assert {edge for edge, _ in finding.named.edges} == set(edges)
    assert all(edge in finding.words for edge in edges)
    assert finding.named.rounding == options.get("result", "even")


@pytest.mark.parametrize("planted", [{}, {"powers": "even"}, {"total": "even"}], ids=str)
def test_roundings_inside_a_softmax(planted):
    x = rounded(numbers(ROWS, 96) * 3)
    finding = found("Softmax", [x], softmax(x, **planted), axis=-1)
    edges = {"powers": "the exponentials", "total": "the sum of exponentials"}
    assert finding.named is not None
    assert [edge for edge, _ in finding.named.edges] == [edges[name] for name in planted]


def attend(q, k, v, *, scores=None, factors=None, weights=None, causal=False):
    sums = rounded((q @ k.swapaxes(-1, -2) * 0.25).astype(np.float32), scores)
    hidden = np.arange(k.shape[2]) > np.arange(q.shape[2])[:, None]
    powers = np.exp(sums - np.where(hidden & causal, -np.inf, sums).max(-1, keepdims=True)) * ~(hidden & causal)
    total = powers.sum(-1, keepdims=True)
    if factors:  # as an online softmax, which divides last
        return rounded(rounded(powers, factors) @ v / total)
    return rounded(rounded(powers / total, weights) @ v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("planted", "edges"),
    [
        ({}, ()),
        ({"scores": "even"}, (("the scores", "even"),)),
        ({"factors": "even"}, (("the exponentials that multiply the values", "even"),)),
        ({"weights": "zero"}, (("the attention weights", "zero"),)),
    ],
)
def test_roundings_inside_an_attention(planted, edges, causal):
    q, k, v = (numbers(2, 4, 24, 16) for _ in range(3))
    finding = found("Attention", [q, k, v], attend(q, k, v, causal=causal, **planted), by_rows=False, is_causal=causal)
    assert finding.named.edges == edges


@pytest.mark.parametrize("words", [(None, None), ("even", "even"), ("even", None), ("zero", "zero")])
def test_roundings_inside_a_rotary_embedding(words):
    x, cos, sin = numbers(2, 24, 64), numbers(30, 8), numbers(30, 8)
    first, second = x.reshape(2, 24, 4, 2, 8).transpose(3, 0, 1, 2, 4)
    c, s = cos[:24, None], sin[:24, None]

    def turned(a, b, sign):
        return rounded(a * c, words[0]) + sign * rounded(b * s, words[1])

    y = rounded(np.concatenate([turned(first, second, -1), turned(second, first, 1)], -1).reshape(x.shape))
    attrs = {"domain": "com.microsoft", "num_heads": 4, "by_rows": False}
    named = found("RotaryEmbedding", [x, np.arange(24)[None].repeat(2, 0), cos, sin], y, **attrs).named
    edges = zip(("the products with cosines", "the products with sines"), words, strict=True)
    assert named.edges == tuple((edge, word) for edge, word in edges if word)


def test_a_product_reads_a_sum_before_its_rounding():
    a, b, weight = numbers(64, 32), numbers(64, 32), numbers(32, 48)
    total = a + b
    step = (source(a) + source(b)).or_recorded("its input 'total'", rounded(total))
    node = Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",))

    def build(_):
        return RECIPES["MatMul"].steps(node, [step, source(weight)], [total.shape, weight.shape])[0]

    for read, edges in ((rounded(total), ()), (total, (("its input 'total'", "float32"),))):
        recorded = rounded(read.astype(np.float64) @ weight)
        finding = search_placements([Observation(build=build, recorded=recorded, by_rows=False)], SHORT["bfloat16"])
        assert finding.named.edges == edges


def test_partial_sums_of_several_operands():
    parts = [numbers(ROWS, LENGTH) for _ in range(4)]
    in_order = parts[0]
    for part in parts[1:]:
        in_order = rounded(in_order.astype(np.float64) + part)
    finding = found("Sum", parts, in_order)
    assert [word for _, word in finding.named.edges] == ["even", "even"]
    assert not found("Sum", parts, rounded(sum(part.astype(np.float64) for part in parts))).named.edges


def skip_normalization(a, b, scale, measured=None, read=None):
    total = a + b
    x, power = rounded(total, read), rounded(total, measured)
    inverse = 1 / np.sqrt((power * power).mean(-1, keepdims=True) + np.float32(1e-5))
    return rounded(x * inverse * scale)


@pytest.mark.parametrize(
    ("planted", "edges"),
    [
        ({}, ()),
        ({"measured": "even"}, ("the sum in the mean of squares",)),
        ({"measured": "even", "read": "even"}, ("the sum in the mean of squares", "the sum that is normalized")),
    ],
    ids=["kept", "before the variance", "before both"],
)
def test_the_residual_sum_of_a_fused_normalization(planted, edges):
    """The second is a bug of a CUDA kernel of vLLM (issue 52104)."""
    a, b, scale = numbers(256, LENGTH), numbers(256, LENGTH), numbers(LENGTH)
    made = skip_normalization(a, b, scale, **planted)
    finding = found("SkipSimplifiedLayerNormalization", [a, b, scale], made, epsilon=1e-5)
    assert finding.named is not None
    assert {edge for edge, _ in finding.named.edges} == set(edges)


def test_a_rounding_that_is_in_no_placement_is_not_named():
    x, scale = numbers(ROWS, LENGTH), numbers(LENGTH)
    coarse = rounded(rounded(x, "even", "float8_e5m2") * scale)
    assert found("Mul", [x, scale], coarse).named is None
    biased = root_mean_square(x, scale, inverse="up")
    assert found("RMSNormalization", [x, scale], biased, axis=-1, epsilon=1e-5).named is None
    stochastic = np.where(RNG.random(x.shape) < 0.5, rounded(x * scale, "down"), rounded(x * scale, "up"))
    assert found("Mul", [x, scale], stochastic).named is None


def test_few_rows_do_not_name_a_rounding_of_their_factors():
    x, scale = numbers(8, LENGTH), numbers(LENGTH)
    finding = found("RMSNormalization", [x, scale], root_mean_square(x, scale, inverse="even"), axis=-1, epsilon=1e-5)
    assert finding.fitting
    assert finding.named is None
    assert found("RMSNormalization", [x, scale], root_mean_square(x, scale), axis=-1, epsilon=1e-5).named


def test_narrow_rows_need_to_be_more_than_wide_ones():
    for rows, length, is_named in ((16, LENGTH, True), (16, 4, False), (64, 4, True)):
        x, scale = numbers(rows, length), np.float32([1.5])
        made = root_mean_square(x, scale, inverse="even")
        finding = found("RMSNormalization", [x, scale], made, axis=-1, epsilon=1e-5)
        assert Placement(rounding="even", edges=(("the inverse root", "even"),)) in finding.fitting
        assert (finding.named is not None) is is_named


@pytest.mark.parametrize("planted", ["up", "out"])
def test_an_inverse_root_rounded_up_is_not_called_rounded_to_nearest(planted):
    """On this data, most inverse roots are rounded up to nearest as well."""
    scale, named = numbers(LENGTH), []
    for seed in range(40):
        x = rounded(np.random.default_rng(seed).standard_normal((400, LENGTH)))
        inverse = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))
        x = x[(rounded(inverse) == rounded(inverse, "up"))[:, 0]][:24]
        made = root_mean_square(x, scale, inverse=planted)
        named.append(found("RMSNormalization", [x, scale], made, axis=-1, epsilon=1e-5).named)
    assert named == [None] * 40


def test_data_that_no_rounding_changes_names_none():
    small = RNG.integers(-8, 8, (ROWS, LENGTH)).astype(np.float32)
    finding = found("Add", [small, small], small + small)
    assert len(finding.fitting) > 1
    assert finding.named is None


def test_the_ends_of_the_range_are_part_of_the_name():
    a, b = (rounded(numbers(ROWS, LENGTH, short="float16") * 2e4, short="float16") for _ in range(2))
    exact = a.astype(np.float64) + b
    saturated = round_float(exact, SHORT["float16"], "even", overflow="sat").astype(np.float32)
    assert np.any(saturated == 65504)
    assert found("Add", [a, b], saturated, short="float16").named.overflow == "sat"
    infinite = found("Add", [a, b], rounded(exact, short="float16"), short="float16")
    assert infinite.named.overflow == "inf"
    tiny = rounded(numbers(ROWS, LENGTH, short="float16") * 2e-4, short="float16")
    product = tiny.astype(np.float64) * 0.75
    flushed = round_float(product, SHORT["float16"], "even", flush=True).astype(np.float32)
    assert found("Mul", [tiny, np.float32([0.75])], flushed, short="float16").named.flush


def test_rows_in_another_order_keep_the_name():
    x, scale = numbers(ROWS, LENGTH), numbers(LENGTH)
    made, order = root_mean_square(x, scale, inverse="even"), RNG.permutation(ROWS)
    names = [
        found("RMSNormalization", [data, scale], result, axis=-1, epsilon=1e-5).named
        for data, result in ((x, made), (x[order], made[order]))
    ]
    assert names[0] == names[1]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [16, ROWS])
def test_a_thousand_random_placements_are_never_misnamed(rows):
    """Half of them have a rounding that no placement has."""
    words, inside, outside = (None, "even", "zero"), 0, 0
    for trial in range(1000):
        x, scale = numbers(rows, 128), numbers(128)
        known = trial % 2 == 0
        planted = {name: words[RNG.integers(3)] for name in ("mean", "inverse", "normalized")}
        planted["result"] = ("even", "zero", "up", "down", "out")[RNG.integers(5)]
        if not known:
            edge = ("inverse", "normalized")[RNG.integers(2)]  # an inverse root is above 0: down is toward zero
            planted[edge] = ("up", "out", "down")[RNG.integers(2 if edge == "inverse" else 3)]
        finding = found("RMSNormalization", [x, scale], root_mean_square(x, scale, **planted), axis=-1, epsilon=1e-5)
        edges = {"the mean of squares": "mean", "the inverse root": "inverse", "the normalized values": "normalized"}
        if known:
            expected = tuple((edge, planted[name]) for edge, name in edges.items() if planted[name])
            inside += any(p.edges == expected and p.rounding == planted["result"] for p in finding.fitting)
        else:
            outside += finding.named is not None
    assert outside == 0
    assert inside >= 475


@pytest.mark.parametrize(
    "placement",
    [
        Placement(rounding="zero"),
        Placement(rounding="even", edges=(("the inverse root", "even"), ("its input 'a;b=c'", "float32")), flush=True),
        Placement(rounding="up", edges=(("'x=y; z\n;flush'", "zero"),), overflow="sat"),
    ],
    ids=["plain", "names with marks", "lines"],
)
def test_a_text_is_read_back(placement):
    assert parse_placement(str(placement)) == placement


def test_a_long_chain_has_no_more_placements_than_the_limit():
    parts = [numbers(ROWS, 32) for _ in range(30)]
    total = parts[0]
    for part in parts[1:]:
        total = rounded(total.astype(np.float64) + part)
    finding = found("Sum", parts, total)
    assert finding.tried <= 500
