"""Who may import whom, beyond the layers that import-linter checks: frameworks, private names, cycles."""

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

FRAMEWORKS = {
    "onnx",
    "onnxruntime",
    "torch",
    "tensorflow",
    "openvino",
    "ai_edge_litert",
    "tflite_micro",
    "executorch",
    "torchao",
    "dask",
}
TERMINAL = {"rich", "textual"}
TERMINAL_HOMES = ("qdebug.api", "qdebug.present", "qdebug.tui", "qdebug.cli")
ACCEPTED_PRIVATE = {
    "argparse._SubParsersAction",  # the type that add_subparsers returns; it has no public name
    "os._exit",  # documented, and not private
    "torch.utils._python_dispatch",  # the only home of dispatch modes, which PyTorch documents
    "torch._inductor",  # the only home of the settings of its compiler, which PyTorch documents: freezing for one
    "executorch.exir._serialize._program",  # what reads a program file has no public name
}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "base", "util", "helper"}


def imports(source):
    """Return (line, module, names, inside a function) of each import statement that runs."""
    found = []

    def visit(node, inside):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child, inside)
            return
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name, (), inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, node.module or "", tuple(a.name for a in node.names), inside))
        deeper = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, deeper)

    visit(source.tree, False)
    return found


def top(module):
    return module.partition(".")[0]


def misplaced(source):
    """List imports of h5py, of terminal libraries and of frameworks outside the places that own them."""
    found = []
    for line, module, _, inside in imports(source):
        package = top(module)
        home = (
            (package != "h5py" or source.module.startswith("qdebug.recording"))
            and (package not in TERMINAL or source.module.startswith(TERMINAL_HOMES))
            and (package not in FRAMEWORKS or (inside and source.module.startswith("qdebug.backends")))
        )
        if not home:
            found.append(f"{source.path}:{line} {module}")
    return found


def private(source):
    """List underscore names taken from another module, ours or somebody else's."""
    found = []
    for line, module, names, _ in imports(source):
        if module == "__future__" or top(module) == "_typeshed" or module in ACCEPTED_PRIVATE:
            continue
        if module in ACCEPTED_PRIVATE:
            continue
        hidden = [part for part in (*module.split("."), *names) if part.startswith("_") and not part.startswith("__")]
        found += [f"{source.path}:{line} {module}: {part}" for part in hidden]
    modules = {name.partition(".")[0] for _, name, names, _ in imports(source) if not names}
    found += [
        f"{source.path}:{node.lineno} {ast.unparse(node)}"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
        and ast.unparse(node) not in ACCEPTED_PRIVATE
    ]
    return found


def graph_of(sources):
    """Return the modules that each module of ours imports, function-level imports included."""
    known = {source.module for source in sources}
    edges = {}
    for source in sources:
        targets = set()
        for _, module, names, _ in imports(source):
            if top(module) != "qdebug":
                continue
            submodules = {f"{module}.{name}" for name in names} & known
            targets |= submodules or {module}
            if submodules and len(submodules) < len(names):
                targets.add(module)
        edges[source.module] = (targets & known) - {source.module}
    return edges


def forbidden_names(sources):
    return [s.path for s in sources if set(s.module.split(".")) & FORBIDDEN_NAMES]


def test_libraries_are_imported_only_where_they_belong(package):
    assert not [line for source in package for line in misplaced(source)]


def test_nobody_reaches_into_private_parts(package):
    assert not [line for source in package for line in private(source)]


def test_no_import_cycle(package):
    order = list(TopologicalSorter(graph_of(package)).static_order())
    assert set(order) >= {source.module for source in package}


def test_modules_are_named_after_what_they_hold(everything):
    assert not forbidden_names(everything)


def test_relative_imports_are_not_used(everything):
    assert not [
        f"{source.path}:{node.lineno}"
        for source in everything
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def test_the_checks_can_fail(example):
    bad = example(
        "import h5py\nimport onnx\nfrom rich.text import Text\nfrom textual._loop import loop_last\n"
        "from qdebug.model.quant import _frozen\nimport numpy\nnumpy._globals\n"
    )
    assert [line.split()[-1] for line in misplaced(bad)] == ["h5py", "onnx", "rich.text", "textual._loop"]
    assert [line.split()[-1] for line in private(bad)] == ["_loop", "_frozen", "numpy._globals"]
    assert misplaced(example("import onnx\n", "qdebug/backends/onnx_model.py"))
    assert not misplaced(example("def f():\n    import onnx\n", "qdebug/backends/onnx_model.py"))
    assert forbidden_names([example("", "qdebug/model/utils.py")])
    first, second = example("from qdebug import b\n", "qdebug/a.py"), example("import qdebug.a\n", "qdebug/b.py")
    with pytest.raises(CycleError):
        list(TopologicalSorter(graph_of([first, second])).static_order())


def public_classes(sources):
    """Return the modules that define each public class, by its name."""
    found = {}
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(source.module)
    return found


def test_no_two_public_classes_have_one_name(package):
    assert not {name: modules for name, modules in public_classes(package).items() if len(modules) > 1}


def test_a_second_class_of_a_name_is_noticed(example):
    one, other = (example("class Place:\n    pass\n", f"qdebug/{name}.py") for name in ("a", "b"))
    assert public_classes([one, other]) == {"Place": ["qdebug.a", "qdebug.b"]}
