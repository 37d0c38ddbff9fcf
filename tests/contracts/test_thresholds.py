"""Whatever can change a result stands in the table of thresholds, with unit, reason and source."""

import ast
import dataclasses
import re

import pytest

from qdebug.model.thresholds import TABLE
from qdebug.model.thresholds.table import ThresholdGroup

HOME = "qdebug/model/thresholds/"
PACKAGES = ("qdebug/compare/", "qdebug/arithmetic/")
"""Where a number of its own needs a reason."""
CONSTANTS = {
    "arithmetic_file.py _MOST_BYTES": "size of a file that is read",
    "workers.py _ATTEMPTS": "sharing: how often lost work is done again",
    "workers.py _IN_FLIGHT": "sharing: parts that are handed out at once",
    "workers.py _PARTS": "sharing: how finely work is cut",
    "canonical.py _INT32_END": "format: the span of int32",
    "budget.py LEAST_SHARE": "display: what has a row of its own",
    "budget.py _CHUNK": "speed: nodes of a task",
    "budget.py _PRUNED": "speed: what is replayed one by one; the rest is replayed together",
    "align/align.py _STAGES": "display: how often progress is told",
    "align/arrangements.py _KEPT_PAIRS_OF_SHAPES": "size of a cache",
    "align/layouts.py CHANNELS_SECOND": "operator: the order of dimensions",
    "align/indexed_recording.py _ENDLESS": "operator: the largest end of a Slice",
    "align/weights.py _SEED": "seed",
    "align/weights.py _SKETCHED_AT_ONCE": "size of a block",
    "attribute/reference_replay.py _SEED": "seed",
    "attribute/attribute.py _ALONG_ONE": "operator: version of the operator set",
    "checks/precision.py _DIGITS": "display: digits of a number",
    "measure/recordings.py _LARGEST": "size of a cache",
    "fingerprints.py _MOST_BYTES": "size of a file that is read",
    "measure/recordings.py _MOST_BYTES": "size of a cache",
    "graph_checks/dynamic_check.py _SEED": "seed",
    "graph_checks/graph_check.py _SEED": "seed",
    "graph_checks/constants.py _BIAS": "operator: position of an input",
    "node_comparer.py _AHEAD": "size of a batch",
    "explaining/float_band.py _SEED": "seed",
    "functions.py _ENDS": "format: the span of int32",
    "functions.py _NEAR": "speed: where a search begins that then goes on everywhere",
    "refit.py _TRIED": "speed: how finely a scale is looked for at once",
    "search.py _BATCH": "size of a batch",
    "units.py _BATCH_ELEMENTS": "size of a batch",
    "vector_tail.py _WIDTHS": "operator: elements that a vector holds",
    "units.py _TRIED": "definition: the first and the last",
    "search.py _WITNESSES": "size: up to which witnesses are counted",
    "selection.py _BLOCK": "size of a block",
    "selection.py _SEED": "seed",
    "selection.py _TABLE": "speed: up to which a table beats sorting",
    "search.py _CODES_AT_ONCE": "size of a batch",
    "patterns/residual.py _SHOWN": "display: elements that are listed",
    "patterns/wrong_evidence.py _STRETCH": "size of a block",
    "result/result.py NUMERICS_VERSION": "version",
    "result/scores.py _LEAST_ENTRIES": "definition: one score has no rank",
}
COMPARED = {
    "candidates.py 2.0 ** (-8)": "operator: the output scale of a softmax in fixed point",
    "explaining/float_band.py 1e-300": "keeps a bound above 0",
    "patterns/wrong_values.py 0.001": "display: digits of a factor",
    "patterns/wrong_values.py 1 << 17": "speed: up to which a table beats sorting",
}
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
    """List the names of a module that stand for numbers."""
    found = []
    for node in source.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and number(node.value) is not None:
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


def test_a_row_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TABLE[0].value = 2.0


def test_the_checks_can_fail(example):
    start = PACKAGES[0]
    bad = example("_FEW = 64\n_MANY, _ALL = 1 << 20, 2.0**-3\n_OF = len('x')\n_WORD = 'a'\n", f"{start}example.py")
    assert constants(bad) == ["example.py _FEW", "example.py _MANY", "example.py _ALL"]
    code = "a > 0.3\nb <= 2.0**-7 * c\nc > 1 << 20\nisclose(a, b, rtol=0.01)\nd < 0.5 * e\nf == 3\ng > -1.0\n"
    assert [text.partition(" ")[2] for text in compared(example(code, f"{start}example.py"))] == [
        "0.3",
        "2.0 ** (-7)",
        "1 << 20",
        "0.01",
    ]
    group = ThresholdGroup("ThresholdGroup", decides="status")
    value = group("LAST_WORD", 3, unit="", decides="status", why="A reason", source="somebody")
    assert (value, type(value)) == (3, int)
    assert faults(group.rows[0]) == ["LAST_WORD: no unit", "LAST_WORD: somebody", "LAST_WORD: no sentence"]
    made = example('LAST_WORD = threshold("LAST_WORD", 3)\n', f"{HOME}example.py")
    assert defined([made, example("FIRST_WORD = threshold(1)\n")]) == ["LAST_WORD"]
    assert unused(["LAST_WORD"], [made, example("x = LASTING\n")]) == ["LAST_WORD"]
    assert unused(["LAST_WORD"], [example("x = LAST_WORD\n")]) == []
