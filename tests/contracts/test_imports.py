"""No module takes a private name of another one: import-linter and ruff look at modules and at attributes alone."""

import ast

ACCEPTED = {
    "torch.utils._python_dispatch",  # the only home of dispatch modes, which PyTorch documents
    "torch._inductor",  # the only home of the settings of its compiler, which PyTorch documents: freezing for one
    "executorch.exir._serialize._program",  # what reads a program file has no public name
}


def private(source):
    """List underscore names imported from another module, ours or somebody else's."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            hidden = any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
            if hidden and not name.startswith(("_typeshed.", *ACCEPTED)):
                found.append(f"{source.path}:{node.lineno} {name}")
    return found


def test_nobody_reaches_into_private_parts(package):
    assert not [line for source in package for line in private(source)]


def test_the_check_can_fail(example):
    bad = example(
        "from textual._loop import loop_last\nfrom qdebug.model.quant import _frozen\nimport numpy._globals\n"
    )
    assert [line.split()[-1] for line in private(bad)] == [
        "textual._loop.loop_last",
        "qdebug.model.quant._frozen",
        "numpy._globals",
    ]
    assert not private(example("from __future__ import annotations\nfrom torch._inductor import config\n"))
