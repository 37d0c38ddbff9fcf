"""Where a NaN or an infinity is born: the element, the rule, and the inputs that select it."""

import math

import numpy as np
import pytest

from qdebug.compare.attribute.birth import BirthRule
from qdebug.compare.attribute.birth_search import is_one_sided_nonfinite
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession

INF, NAN = np.float32(np.inf), np.float32(np.nan)


def recorded(nodes, arrays, *, constants=(), output="y"):
    """Return a recording of nodes that are given as (op, inputs, output) or with attributes too."""
    made = [
        Node(name=out, op=op, inputs=tuple(inputs.split()), outputs=(out,), attrs=dict(*attrs))
        for op, inputs, out, *attrs in nodes
    ]
    roles = dict.fromkeys(constants, Role.CONSTANT) | {"x": Role.INPUT}
    names = {name for node in made for name in (*node.inputs, *node.outputs)}
    tensors = [
        TensorInfo(
            name=name,
            role=roles.get(name, Role.ACTIVATION),
            dtype=str(np.asarray(arrays[name]).dtype) if name in arrays else None,
            shape=np.shape(arrays[name]) if name in arrays else None,
        )
        for name in sorted(names)
    ]
    graph = Graph(made, tensors=tensors, inputs=("x",), outputs=(output,), opset={"": 17})
    return MemoryRecording.single(graph, {name: np.asarray(array) for name, array in arrays.items()})


def born(nodes, theirs, ours, *, tensor="y", constants=()):
    result = DiffSession(
        recorded(nodes, theirs, constants=constants), recorded(nodes, theirs | ours, constants=constants)
    ).result()
    return next(each for each in result.nodes if each.tensor == tensor).born


def row(*values):
    return np.array([values], np.float32)


def test_a_sum_whose_terms_overflow_on_the_way_is_told_from_one_that_is_too_large():
    nodes = [("MatMul", "x w", "y")]
    w = np.array([[3e38], [3e38], [-3e38]], np.float32)
    known = {"x": row(1, 1, 1), "w": w, "y": row(3e38)}
    found = born(nodes, known, {"y": row(INF)}, constants=("w",))
    assert (found.rule, found.format, found.exact) == (BirthRule.SUM_OVERFLOW, "float32", pytest.approx(3e38))
    known = {"x": row(1, 1, 1), "w": np.abs(w), "y": row(3e38)}
    assert born(nodes, known, {"y": row(INF)}, constants=("w",)).rule is BirthRule.OVERFLOW


def test_half_precision_is_known_though_its_values_are_kept_in_float32():
    x = np.linspace(-3, 3, 64, dtype=np.float32).astype(np.float16).astype(np.float32)[None]
    x[0, 7] = 300
    right = x * x
    with np.errstate(over="ignore"):
        half = right.astype(np.float16).astype(np.float32)
    found = born([("Mul", "x x", "y")], {"x": x, "y": right}, {"y": half})
    assert (found.rule, found.format, found.largest, found.exact) == (BirthRule.OVERFLOW, "float16", 65504, 90000)
    assert found.index == (0, 7)
    assert found.sentence == (
        "element [0, 7] is Infinity because its exact result 90000 is beyond 65504, the largest float16 value"
    )


def test_an_exponential_that_overflows_on_the_way_to_a_small_result_is_named():
    x = np.linspace(-9, 9, 64, dtype=np.float32).astype(np.float16).astype(np.float32)[None]
    x[0, 7] = 20
    with np.errstate(over="ignore"):
        half = np.log1p(np.exp(x.astype(np.float16))).astype(np.float32)
    arrays = {"x": x, "y": np.logaddexp(0, x)}
    found = born([("Softplus", "x", "y")], arrays, {"y": half})
    assert (found.rule, found.format, found.selected) == (BirthRule.INSIDE_OVERFLOW, "float16", ())
    assert found.sentence.endswith("exp of 'x' = 20 is beyond 65504, the largest float16 value; the exact result is 20")
    half[0, 9] = INF  # where nothing overflows
    assert born([("Softplus", "x", "y")], arrays, {"y": half}).rule is BirthRule.ARITHMETIC


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda x: x > 6, "its node fails for all 'x' from 6.14286 on; the exact result is 0.9999"),
        (lambda x: x < -6, "its node fails for all 'x' from -6.14286 down; the exact result is -"),
        (lambda x: abs(x) > 6, "its node fails for all 'x' of magnitude from 6.14286 on; the exact result is "),
    ],
)
def test_a_function_that_fails_for_all_large_inputs_is_named_with_the_threshold(bad, said):
    x = np.linspace(-9, 9, 64, dtype=np.float32)[None]
    nodes, arrays = [("Tanh", "x", "y")], {"x": x, "y": np.tanh(x)}
    made = np.where(bad(x), NAN, arrays["y"])
    found = born(nodes, arrays, {"y": made})
    assert found.rule is BirthRule.LARGE_INPUTS
    assert said in found.sentence
    made[0, 30] = np.nan
    assert born(nodes, arrays, {"y": made}).rule is BirthRule.ARITHMETIC


def test_the_element_of_a_row_whose_exponential_overflows_is_named_and_no_larger_one_elsewhere():
    x = np.linspace(-9, 9, 64, dtype=np.float32).reshape(4, 16)
    x[1, 3], x[2, 5] = -218, 95
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    right = np.exp(x - x.max(-1, keepdims=True))
    right /= right.sum(-1, keepdims=True)
    found = born([("Softmax", "x", "y")], {"x": x, "y": right}, {"y": made})
    assert found.index == (2, 5)
    assert (found.rule, found.operands[0].value) == (BirthRule.INSIDE_OVERFLOW, 95)


def test_few_values_do_not_tell_that_they_were_rounded_to_half_precision():
    found = born([("Mul", "x x", "y")], {"x": row(2, 300), "y": row(4, 90000)}, {"y": row(4, INF)})
    assert (found.rule, found.exact) == (BirthRule.ARITHMETIC, 90000)


def test_what_fits_the_format_is_no_overflow():
    x = row(2, 3)
    found = born([("Mul", "x x", "y")], {"x": x, "y": x * x}, {"y": row(4, INF)})
    assert (found.rule, found.exact, found.format) == (BirthRule.ARITHMETIC, 9, "")


def test_of_an_operator_without_kernel_the_element_is_named_and_no_rule():
    nodes = [("Strange", "x", "h"), ("Neg", "h", "y")]
    x = row(2, 3)
    found = born(nodes, {"x": x, "h": x, "y": -x}, {"h": row(2, NAN), "y": -row(2, NAN)}, tensor="h")
    assert (found.rule, found.index, math.isnan(found.value)) == (BirthRule.UNKNOWN, (0, 1), True)
    nodes = [("Neg", "x", "h"), ("Strange", "h", "y")]
    assert born(nodes, {"x": x, "h": -x, "y": x}, {"h": row(-2, NAN), "y": row(2, NAN)}) is None


def test_a_row_that_a_mask_leaves_nothing_of_is_born_in_the_softmax_though_its_infinities_are_alike():
    masked = row(-INF, -INF)
    found = born([("Softmax", "x", "y")], {"x": masked, "y": row(0.5, 0.5)}, {"y": row(NAN, NAN)})
    assert (found.rule, found.selected) == (BirthRule.INFINITIES, ())
    other = born([("Softmax", "x", "y")], {"x": row(1, 2), "y": row(0.25, 0.75)}, {"x": masked, "y": row(NAN, NAN)})
    assert other is None  # it came with the input of the network


def test_a_birth_between_compared_tensors_is_found_where_it_is():
    x = row(2, 3)
    theirs = recorded([("Neg", "x", "y")], {"x": x, "y": -x})
    nodes = [("Reciprocal", "x", "inverse"), ("Reciprocal", "inverse", "back"), ("Neg", "back", "y")]
    ours = {"x": x, "inverse": row(0.5, INF), "back": row(2, 0), "y": row(-2, NAN)}
    result = DiffSession(theirs, recorded(nodes, ours)).result()
    entry = result.nodes[-1]
    assert (entry.tensor, entry.born.tensor, entry.born.node) == ("y", "inverse", "inverse")
    assert "in Reciprocal 'inverse', which has no partner, element [0, 1] is Infinity" in result.verdict.sentence


def test_an_infinity_without_a_partner_that_belongs_there_is_no_birth():
    """The mask has no partner, and the reference's values make the same of it."""
    x, mask = row(2, 3), row(-INF, 0)
    theirs = recorded([("Neg", "x", "y")], {"x": x, "y": row(NAN, -3)})
    nodes = [("Log", "zero", "mask"), ("Add", "x mask", "sum"), ("Exp", "sum", "kept"), ("Neg", "kept", "y")]
    ours = {"x": x, "zero": row(0, 1), "mask": mask, "sum": x + mask, "kept": row(NAN, 3), "y": row(INF, -3)}
    entry = DiffSession(theirs, recorded(nodes, ours, constants=("zero",))).result().nodes[-1]
    assert entry.tensor == "y"
    assert entry.born is None or entry.born.tensor not in ("mask", "sum")


def test_the_same_infinity_or_nan_on_both_sides_is_not_one_sided():
    ours = np.array([INF, -INF, NAN, INF, 1, NAN])
    theirs = np.array([INF, INF, NAN, 1, INF, -INF])
    assert is_one_sided_nonfinite(ours, theirs).tolist() == [False, True, False, True, False, True]


def test_the_first_sample_in_which_it_is_born_is_named():
    graph = recorded([("Log", "x", "y")], {"x": row(1), "y": row(0)}).graph
    right = {("x", 0, 0): row(1), ("x", 1, 0): row(2), ("y", 0, 0): row(0), ("y", 1, 0): np.log(row(2))}
    wrong = right | {("x", 1, 0): row(-2), ("y", 1, 0): row(NAN)}
    (_, entry) = DiffSession(MemoryRecording(graph, right), MemoryRecording(graph, wrong)).result().nodes
    assert (entry.born.sample, entry.born.rule, entry.born.function) == (1, BirthRule.DOMAIN, "logarithm")
    assert [(each.tensor, each.difference) for each in entry.born.selected] == [("x", 4)]


@pytest.mark.parametrize(
    ("op", "x", "c", "rule", "said"),
    [
        ("Div", 1, 0, BirthRule.BY_ZERO, "1 is divided by 'c' = 0"),
        ("Div", 0, 0, BirthRule.ZERO_BY_ZERO, "0 is divided by 'c' = 0"),
        ("Div", INF, INF, BirthRule.INFINITY_BY_INFINITY, "infinity is divided by infinity"),
        ("Div", INF, 1, BirthRule.UNDEFINED, "its exact result is not finite either"),
        ("Div", 1, 1, BirthRule.ARITHMETIC, "its node computes it wrongly; the exact result is 1"),
        ("Reciprocal", 0, None, BirthRule.BY_ZERO, "1 is divided by 'x' = 0"),
        ("Log", 0, None, BirthRule.DOMAIN, "the logarithm of 'x' = 0 is not finite"),
        ("Log", 1, None, BirthRule.ARITHMETIC, "its node computes it wrongly; the exact result is 0"),
        ("Sqrt", -0.5, None, BirthRule.DOMAIN, "the root of 'x' = -0.5 is not finite"),
        ("Sqrt", 0, None, BirthRule.ARITHMETIC, "its node computes it wrongly; the exact result is 0"),
        ("Acos", 1.5, None, BirthRule.DOMAIN, "the inverse cosine of 'x' = 1.5 is not finite"),
        ("Atanh", 1, None, BirthRule.DOMAIN, "the inverse hyperbolic tangent of 'x' = 1 is not finite"),
        ("Exp", 1000, None, BirthRule.OVERFLOW, "its exact result is beyond 3.40282e+38, the largest float32"),
        ("Exp", 100, None, BirthRule.OVERFLOW, "its exact result 2.68812e+43 is beyond 3.40282e+38"),
        ("Exp", INF, None, BirthRule.UNDEFINED, "its exact result is not finite either"),
        ("Pow", -2, 0.5, BirthRule.POWER, "'x' = -2 to the power of 0.5 is undefined"),
        ("Pow", 0, -1, BirthRule.POWER, "'x' = 0 to the power of -1 is undefined"),
        ("Pow", -2, 2, BirthRule.ARITHMETIC, "its node computes it wrongly; the exact result is 4"),
        ("Pow", 0.5, -2000.5, BirthRule.OVERFLOW, "its exact result is beyond 3.40282e+38, the largest float32"),
        ("Pow", -2, 2001, BirthRule.OVERFLOW, "its exact result is beyond 3.40282e+38, the largest float32"),
        ("Add", INF, -INF, BirthRule.INFINITIES, "infinity is subtracted from infinity"),
        ("Add", INF, 1, BirthRule.UNDEFINED, "its exact result is not finite either"),
        ("Add", 3e38, 3e38, BirthRule.OVERFLOW, "its exact result 6e+38 is beyond 3.40282e+38, the largest float32"),
        ("Mul", 0, INF, BirthRule.ZERO_TIMES_INFINITY, "0 is multiplied by infinity"),
        ("Mul", 1, INF, BirthRule.UNDEFINED, "its exact result is not finite either"),
    ],
)
def test_the_operands_of_an_element_tell_the_rule(op, x, c, rule, said):
    """The reference had a number there, of the same operands: it may not have computed what its graph says."""
    known = {"x": row(2, x), "y": row(1, 1)} | ({} if c is None else {"c": row(2, c)})
    found = born([(op, "x" if c is None else "x c", "y")], known, {"y": row(1, NAN)}, constants=("c",))
    assert (found.rule, found.index, found.elements) == (rule, (0, 1), 1)
    assert found.sentence.startswith(f"element [0, 1] is NaN because {said}")
    given = [("x", x)] + ([] if c is None else [("c", c)])
    assert [(each.tensor, each.value) for each in found.operands] == [(name, np.float32(v)) for name, v in given]


@pytest.mark.parametrize(
    ("op", "x", "w", "rule"),
    [
        ("MatMul", (0, 1), (INF, 1), BirthRule.ZERO_TIMES_INFINITY),
        ("MatMul", (1, 1), (INF, -INF), BirthRule.INFINITIES),
        ("MatMul", (1, 1), (INF, 1), BirthRule.UNDEFINED),
        ("MatMul", (1, 1), (NAN, 1), BirthRule.UNDEFINED),
        ("ReduceSum", (INF, -INF), None, BirthRule.INFINITIES),
        ("ReduceSum", (INF, 1), None, BirthRule.UNDEFINED),
    ],
)
def test_the_terms_of_a_sum_tell_the_rule(op, x, w, rule):
    known = {"x": row(*x), "y": row(1)} | ({} if w is None else {"w": row(*w).T})
    found = born([(op, "x" if w is None else "x w", "y")], known, {"y": row(NAN)}, constants=("w",))
    assert (found.rule, found.selected) == (rule, ())


def test_a_constant_that_is_no_number_on_one_side_is_the_birth():
    known = {"x": row(1, 2), "c": row(3, 4), "y": row(4, 6)}
    found = born([("Add", "x c", "y")], known, {"c": row(3, NAN), "y": row(4, NAN)}, constants=("c",))
    assert (found.rule, [each.tensor for each in found.operands]) == (BirthRule.CONSTANT, ["c"])
    assert "its constant 'c' contains NaN; the reference's does not" in found.sentence


def test_a_wrong_index_takes_an_infinity_that_is_alike_on_both_sides():
    nodes = [("ArgMax", "x", "i", {"axis": 1}), ("GatherElements", "x i", "y", {"axis": 1})]
    known = {"x": row(1, -INF, -INF), "i": np.array([[0]]), "y": row(1)}
    found = born(nodes, known, {"i": np.array([[2]]), "y": row(-INF)})
    assert (found.rule, [each.tensor for each in found.operands]) == (BirthRule.TAKEN, ["x"])
    assert [(each.tensor, each.difference) for each in found.selected] == [("i", 2)]
    assert "it is copied from 'x'; the reference copies a different value" in found.sentence


def test_what_changes_with_an_infinity_that_arrives_is_accounted_for_and_nothing_else_is():
    """In the second element an infinity arrives; in the third one is born."""
    nodes = [("Neg", "x", "h"), ("Mul", "h k", "y")]
    right = {"x": row(2, 3, 4), "h": row(-2, -3, -4), "k": row(1, 1, 3e38), "y": row(-2, -3, -3e38)}
    wrong = {"h": row(-2, -INF, -4), "y": row(-2, -INF, -INF)}
    found = born(nodes, right, wrong, constants=("k",))
    assert (found.rule, found.index, found.elements) == (BirthRule.OVERFLOW, (0, 2), 1)
    assert born(nodes, right, wrong, constants=("k",), tensor="h").index == (0, 1)


def test_what_is_just_the_largest_number_of_the_format_is_no_overflow():
    most = np.finfo(np.float32).max
    for nodes, other in (([("Add", "x c", "y")], row(1, 0)), ([("MatMul", "x c", "y")], np.eye(2, dtype=np.float32))):
        known = {"x": row(1, most), "c": other, "y": row(1, 3e38)}
        found = born(nodes, known, {"y": row(1, INF)}, constants=("c",))
        assert (found.rule, found.exact) == (BirthRule.ARITHMETIC, most)
