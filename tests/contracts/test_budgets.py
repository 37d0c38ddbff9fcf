"""No file and no function grows beyond what one reading can hold; soft limits are reported by tests/conftest.py."""

import ast

MODULE_LINES = 700
FUNCTION_LINES = 80
FUNCTION_LINES_P95 = 50


def module_overruns(sources, limit):
    return [f"{s.path}: {len(s.text.splitlines())}" for s in sources if len(s.text.splitlines()) > limit]


def function_lengths(sources):
    return {
        f"{source.path}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def function_overruns(sources, limit):
    return {name: lines for name, lines in function_lengths(sources).items() if lines > limit}


def percentile_95(lengths):
    ordered = sorted(lengths)
    return ordered[-(-len(ordered) * 95 // 100) - 1]


def test_no_module_is_too_long(everything):
    assert not module_overruns(everything, MODULE_LINES)


def test_no_function_is_too_long(everything):
    assert not function_overruns(everything, FUNCTION_LINES)


def test_nearly_all_functions_of_the_package_are_short(package):
    assert percentile_95(function_lengths(package).values()) <= FUNCTION_LINES_P95


def test_the_checks_can_fail(example):
    long = example("def f():\n" + "    x = 1\n" * 101)
    assert function_overruns([long], FUNCTION_LINES) == {"qdebug/example.py:1 f": 102}
    assert module_overruns([long], 100) == ["qdebug/example.py: 102"]
    assert percentile_95(range(1, 101)) == 95
    assert percentile_95([7]) == 7
