"""Every function of the package says what it takes and gives."""

import ast


def unannotated(source):
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        spec = node.args
        positional = [*spec.posonlyargs, *spec.args]
        if positional and positional[0].arg in ("self", "cls"):
            positional = positional[1:]
        arguments = [*positional, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
        missing = [a.arg for a in arguments if a.annotation is None]
        if node.returns is None:
            missing.append("return")
        if missing:
            found.append(f"{source.path}:{node.lineno} {node.name}: {', '.join(missing)}")
    return found


def test_every_function_is_annotated(package):
    assert not [line for source in package for line in unannotated(source)]


def test_the_check_can_fail(example):
    bad = example("class C:\n    async def f(self, a, *b, c: int = 1, **d) -> None: ...\n\ndef g(x: int): ...\n")
    assert sorted(unannotated(bad)) == ["qdebug/example.py:2 f: a, b, d", "qdebug/example.py:4 g: return"]
