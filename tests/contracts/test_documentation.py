"""Every public name of the package is documented where it is defined."""

import ast

import pytest

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
INHERIT = {"override", "overload", "setter"}


def decorators(node):
    return {d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "") for d in node.decorator_list}


def undocumented(source):
    """List public modules, classes, functions and methods without docstring, and bare names in `__all__`."""
    found = [] if ast.get_docstring(source.tree) else [f"{source.path}: module"]
    found += _undocumented_in(source, source.tree.body, "")
    return found + _bare_constants(source)


def _bare_constants(source):
    """List exported constants in a block of assignments that has neither a text in it nor a comment above it."""
    lines = source.text.splitlines()
    exported = _exported(source.tree) - {"__version__"}
    blocks = [[]]
    for node in source.tree.body:
        if not (_assigned(node) or _is_text(node)):
            blocks.append([])
            continue
        if blocks[-1] and node.lineno != blocks[-1][-1].end_lineno + 1:
            blocks.append([])
        blocks[-1].append(node)
    return [
        f"{source.path}:{node.lineno} {name}"
        for block in blocks
        if block and not any(map(_is_text, block)) and not lines[block[0].lineno - 2].lstrip().startswith("#")
        for node in block
        for name in _assigned(node)
        if name in exported
    ]


def _undocumented_in(source, body, prefix):
    found = []
    for node in body:
        if not isinstance(node, (ast.ClassDef, *FUNCTIONS)) or node.name.startswith("_"):
            continue
        if not ast.get_docstring(node) and not decorators(node) & INHERIT:
            found.append(f"{source.path}:{node.lineno} {prefix}{node.name}")
        if isinstance(node, ast.ClassDef):
            found += _undocumented_in(source, node.body, f"{prefix}{node.name}.")
    return found


def _exported(tree):
    for node in tree.body:
        if isinstance(node, ast.Assign) and _assigned(node) == ["__all__"] and isinstance(node.value, ast.List):
            return {e.value for e in node.value.elts if isinstance(e, ast.Constant)}
    return set()


def _assigned(node):
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_every_public_name_is_documented(package):
    assert not [line for source in package for line in undocumented(source)]


def test_the_check_can_fail(example):
    bad = example(
        '__all__ = ["A", "B"]\nA = 1\n"""Said."""\n\nB = 2\nclass C:\n    def f(self): ...\n    def _g(self): ...\n'
    )
    assert undocumented(bad) == [
        "qdebug/example.py: module",
        "qdebug/example.py:6 C",
        "qdebug/example.py:7 C.f",
        "qdebug/example.py:5 B",
    ]


@pytest.mark.parametrize("text", ['A = 1\nB = 2\n"""Both."""\n', "# Both.\nA = 1\nB = 2\n"])
def test_a_block_of_constants_may_share_its_words(text, example):
    assert undocumented(example(f'"""Module."""\n__all__ = ["A", "B"]\n\n{text}')) == []
