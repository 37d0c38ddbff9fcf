"""Whatever can change a result stands in the table of thresholds, with unit, reason and source."""

import ast
import dataclasses
import re

import pytest

from qdebug.model.thresholds import TABLE
from qdebug.model.thresholds.table import ThresholdGroup

HOME = "qdebug/model/thresholds/"
PACKAGES = ("qdebug/compare/", "qdebug/arithmetic/", "qdebug/replay/")
"""Where a number of its own needs a reason."""
CONSTANTS = {
    "budget.py LEAST_SHARE": "display: what has a row of its own",
    "budget.py _PRUNING_FRACTION": "speed: what is replayed one by one; the rest is replayed together",
    "attribute/band.py _FLOAT32_CHECK_SHARE": "speed: up to which float32 is sure; beyond, float64 decides",
    "mistakes/edits.py _SAME": "method: up to which a definition and its kernel agree, else nothing is edited",
    "explaining/node_samples.py _FAR_OFF_MIN_ERROR": "speed: up to which no mistake inside a layer is searched",
    "mistakes/fits.py _SLOPE_DISTANCE": "method: over which a slope is measured",
    "mistakes/fits.py _MAX_ERROR_RATIO_PER_STEP": "speed: by how much a step has to help for another one",
    "measure/inputs.py _HALF_STEP": "definition: half a step",
    "kernels/activation.py _SELU_ALPHA": "operator: its default",
    "kernels/activation.py _SELU_GAMMA": "operator: its default",
    "kernels/experts.py _LEAST_SHARE": "operator: the share up to which ONNX Runtime leaves an expert out",
    "kernels/sampling.py _CUBIC": "operator: the coefficient of GridSample's cubic filter",
}
COMPARED = {
    "candidates.py 2.0 ** (-8)": "operator: the output scale of a softmax in fixed point",
    "patterns/wrong_values.py 0.001": "display: digits of a factor",
    "patterns/wrong_values.py 1 << 17": "speed: up to which a table beats sorting",
    "kernels/quantize.py 4194304": "format: half a unit of a mantissa",
    "kernels/quantize.py 6291456": "format: three quarters of a mantissa",
    "qsum.py 2.0 ** 24": "format: up to which float32 holds all integers",
    "qsum.py 2.0 ** 53": "format: up to which float64 holds all integers",
}
FACTORS = {
    "explaining/code_cause.py 2 * np.count_nonzero(np.isin(array, ends)) > array.size": "definition: most of them",
    "code_table.py total < 2 * codes.size": "definition: most occur once",
    "evidence.py total < 2 * code_counts.size": "definition: most occur once",
    "patterns/wrong_places.py total >= 2 * block": "definition: a block occurs twice",
    "patterns/wrong_places.py is_wrong.shape[axis] <= 2 * width": "definition: a border has two sides",
    "search.py np.abs(codes[places].astype(np.int64) * 2 - low - high) < (high - low) * UNSATURATED_RANGE_SHARE": (
        "definition: twice the distance from the middle"
    ),
    "suspects.py np.abs(reals - (code - out_zero) * out_step) < step + out_step / 2": "definition: half a step",
    "align/by_data.py 1 - 2 * best.shifts[at] < DATA_PAIR_MIN_CONFIDENCE": "definition of the confidence",
    "align/by_data.py 1 - 2 * candidates[0].shifts[at] < PAIR_SURE_MIN_CONFIDENCE": "definition of the confidence",
    "align/clamps.py span[0] >= bounds[0] - step / 2": "definition: half a step",
    "align/clamps.py span[1] <= bounds[1] + step / 2": "definition: half a step",
    "attribute/reference_replay.py error > (1 + LSB_SLACK) * half + 2 * float32_slack(reference_weight)": (
        "rounding: two operands"
    ),
    "explaining/explanation.py 2 * missed < len(asked)": "definition: the majority",
    "explaining/neighbours.py 2 * len(wrong) > len(answers)": "definition: the majority",
    "graph_checks/constants.py size > short_format.subnormal / 2": "definition: half a step",
    "graph_checks/quant_mismatch.py differences >= written_scale / 2": "definition: half a step",
    "windows.py buffer.nbytes <= 2 * _BLOCK_BYTES": "size of a cache",
}
"""Comparisons that multiply or divide by a bare number."""
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
TOLERANCES = {"isclose": ({"rtol", "atol"}, {"rel_tol", "abs_tol"}), "allclose": ({"rtol", "atol"},)}
"""What tolerates differences, and the keywords that say how large ones; their defaults are of no unit."""
NEUTRAL = {0.0, 0.5, 1.0, 2.0}
SMALL = 1000
"""Integers below this are indices, ranks and extents where they are compared."""
FORM = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
SOURCE = re.compile(r"(measured|derived|cited|chosen): \S")


def number(node):
    """Evaluate an expression of literals; None if there is anything else in it."""
    allowed = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
    if not all(isinstance(part, allowed) for part in ast.walk(node)):
        return None
    constants = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    if not constants or not all(type(value) in (int, float) for value in constants):
        return None
    return eval(ast.unparse(node))  # noqa: S307  # literals and operators alone


def inside(source):
    """Return the path of a module below the package that is looked at; None if it is in none."""
    return next((source.path.removeprefix(start) for start in PACKAGES if source.path.startswith(start)), None)


def constants(source):
    """List the names of a module that stand for fractions: whole numbers are sizes, seeds and formats."""
    found = []
    for node in source.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = number(node.value) if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None else 0
        if isinstance(value, float) and value % 1:
            names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            found += [f"{inside(source)} {name}" for name in names]
    return found


def compared(source):
    """List the bare numbers that something is compared with, or that are a tolerance."""
    found = []

    def collect(node):
        value = number(node)
        if value is None:
            for child in ast.iter_child_nodes(node):
                collect(child)
        elif not isinstance(value, tuple) and (abs(value) >= SMALL or (value % 1 and abs(value) not in NEUTRAL)):
            found.append(f"{inside(source)} {ast.unparse(node)}")

    for node in ast.walk(source.tree):
        if isinstance(node, ast.Compare) or (isinstance(node, ast.keyword) and node.arg in ("rtol", "atol")):
            collect(node)
    return list(dict.fromkeys(found))


def factors(source):
    """List the comparisons in which something that is no number is multiplied or divided by a bare number."""
    found = []
    for node in ast.walk(source.tree):
        ordered = isinstance(node, ast.Compare) and all(
            isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops
        )
        for part in ast.walk(node) if ordered else ():
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult | ast.Div) and number(part) is None:
                bare = [value for side in (part.left, part.right) if (value := number(side)) is not None]
                found += [f"{inside(source)} {ast.unparse(node)}"] * any(abs(value) not in (0, 1) for value in bare)
    return list(dict.fromkeys(found))


def untold(source):
    """List the calls that leave a tolerance to its default."""
    found = []
    for node in ast.walk(source.tree):
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        said = {keyword.arg for keyword in node.keywords} if name in TOLERANCES else set()
        if name in TOLERANCES and not any(wanted <= said for wanted in TOLERANCES[name]):
            found.append(f"{inside(source)} {ast.unparse(node)}")
    return found


def defined(sources):
    """Return the constants of the table, by the modules that define them."""
    return [
        node.targets[0].id
        for source in sources
        if source.path.startswith(HOME)
        for node in source.tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "threshold"
    ]


def unused(names, sources):
    """List the thresholds that no module outside the table reads."""
    used = {
        node.id
        for source in sources
        if not source.path.startswith(HOME)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name)
    }
    return sorted(set(names) - used)


def faults(row):
    """Say what a row lacks."""
    texts = {name: getattr(row, name) for name in ("unit", "why", "source", "group")}
    found = [f"{row.name}: no {name}" for name, text in texts.items() if not text.strip()]
    found += [f"{row.name}: {row.source}"] * (not SOURCE.match(row.source))
    found += [f"{row.name}: not a name of several words"] * (not FORM.fullmatch(row.name))
    return found + [f"{row.name}: no sentence"] * (not row.why.endswith("."))


def test_every_row_has_a_unit_a_reason_and_a_source():
    assert [fault for row in TABLE for fault in faults(row)] == []
    assert all(text.isascii() for row in TABLE for text in (row.unit, row.why, row.source, row.group))


def test_every_row_is_the_constant_of_its_name(package):
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert sorted(defined(package)) == sorted(names)


def test_every_threshold_is_used(package):
    assert unused([row.name for row in TABLE], package) == []


def test_no_other_module_names_a_number_without_reason(package):
    found = {name for source in package if inside(source) is not None for name in constants(source)}
    assert found == set(CONSTANTS)


def test_nothing_is_compared_with_a_bare_number_without_reason(package):
    found = {text for source in package if inside(source) is not None for text in compared(source)}
    assert found == set(COMPARED)


def test_no_comparison_has_a_bare_factor_without_reason(package):
    found = {text for source in package if inside(source) is not None for text in factors(source)}
    assert found == set(FACTORS)


def test_every_tolerance_is_said(package):
    assert [text for source in package if inside(source) is not None for text in untold(source)] == []


def test_a_row_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TABLE[0].value = 2.0


def test_the_checks_can_fail(example):
    start = PACKAGES[0]
    bad = example(
        "_FEW = 64\n_PART: float = 2.0**-3\n_SHARE = 0.3\n_OF = len('x')\n_WORD = 'a'\n", f"{start}example.py"
    )
    assert constants(bad) == ["example.py _PART", "example.py _SHARE"]
    code = "a > 0.3\nb <= 2.0**-7 * c\nc > 1 << 20\nisclose(a, b, rtol=0.01)\nd < 0.5 * e\nf == 3\ng > -1.0\n"
    assert [text.partition(" ")[2] for text in compared(example(code, f"{start}example.py"))] == [
        "0.3",
        "2.0 ** (-7)",
        "1 << 20",
        "0.01",
    ]
    code = "2 * a <= b\n1 - a < (1 - b) / 2\na * LIMIT < b\na == 2 * b\n3 * 4 < a\n1.0 * a < b\n"
    found = [text.partition(" ")[2] for text in factors(example(code, f"{start}example.py"))]
    assert found == ["2 * a <= b", "1 - a < (1 - b) / 2"]
    code = "np.isclose(a, b)\nnp.allclose(a, b, rtol=R)\nisclose(a, b, rtol=R, atol=0)\nmath.isclose(a, b, rel_tol=R)\n"
    found = [text.partition(" ")[2] for text in untold(example(code, f"{start}example.py"))]
    assert found == ["np.isclose(a, b)", "np.allclose(a, b, rtol=R)", "math.isclose(a, b, rel_tol=R)"]
    group = ThresholdGroup("ThresholdGroup", decides="status")
    value = group("LAST_WORD", 3, unit="", decides="status", why="A reason", source="somebody")
    assert (value, type(value)) == (3, int)
    assert faults(group.rows[0]) == ["LAST_WORD: no unit", "LAST_WORD: somebody", "LAST_WORD: no sentence"]
    made = example('LAST_WORD = threshold("LAST_WORD", 3)\n', f"{HOME}example.py")
    assert defined([made, example("FIRST_WORD = threshold(1)\n")]) == ["LAST_WORD"]
    assert unused(["LAST_WORD"], [made, example("x = LASTING\n")]) == ["LAST_WORD"]
    assert unused(["LAST_WORD"], [example("x = LAST_WORD\n")]) == []
