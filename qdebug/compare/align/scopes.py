"""Pairs the output of a module with the tensor that an exported graph places in the scope of that module.

PyTorch names a node after the modules in which it is called: `/a/a.1/b/b.2/Relu_output_0` belongs to module `a.1.b.2`.
A harness that hooks modules records their names but not a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.expand import says_nothing
from qdebug.compare.align.indexed_recording import IndexedRecording, has_same_shape
from qdebug.compare.align.pairs import Match, Pair
from qdebug.model import Graph, operators
from qdebug.model.thresholds.alignment import NORMALIZATION_LOOKAHEAD_TENSORS

__all__ = ["by_scopes", "modules_of"]


def by_scopes(context: Context) -> Iterator[Pair]:
    """Pair tensors known only by a module name, using the scopes in the other side's names."""
    ref, be, pairs = context.ref, context.be, context.pair_map
    for scoped, hooked in ((ref, be), (be, ref)) if context.loose else ():
        names = [name for name in hooked.recording.names if _is_bare_module_name(hooked, name)]
        if not names:
            continue
        results, siblings = _results(scoped), _siblings(names)
        for position, name in enumerate(names):
            result = _result_of(name, results, names)
            if result is None:
                continue
            reference, backend = (result, name) if scoped is ref else (name, result)
            if backend in pairs or reference in pairs.taken or not has_same_shape(ref, reference, be, backend):
                continue
            maker = scoped.graph.producer(scoped.root(result))
            if maker is not None and operators.plain(maker).product:
                after = names[position + 1 : position + 1 + NORMALIZATION_LOOKAHEAD_TENSORS]
                near = {*after, *siblings[name.rpartition(".")[0]]} - {name}
                near -= {candidate for candidate in near if candidate in (pairs if scoped is ref else pairs.taken)}
                if any(
                    candidate not in results and has_same_shape(scoped, result, hooked, candidate) for candidate in near
                ):
                    continue  # a module without tensors of its own may be fused into this node
            reason = f"the scope of {result!r} is that of module {name!r}"
            yield make_pair(backend, reference, Match.ORIGIN, reason)


def _is_bare_module_name(run: IndexedRecording, name: str) -> bool:
    """Return whether only the name of a tensor was recorded, and the name is not a path."""
    node = run.graph.producer(name)
    return name in run.recorded and not name.startswith("/") and node is not None and says_nothing(node)


def _siblings(names: list[str]) -> Mapping[str, list[str]]:
    """Return the submodules of each module."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    return parts


def _results(run: IndexedRecording) -> dict[str, list[str]]:
    """Return the tensors computed in or below each module scope of a graph, and read elsewhere."""
    graph, results = run.graph, dict[str, list[str]]()
    for node in graph.nodes:
        for tensor in filter(None, node.outputs):
            own_modules = _modules(graph, tensor)
            if not own_modules or tensor not in run.recorded or run.depends_on_shapes(tensor):
                continue
            readers = [_modules(graph, reader.outputs[0]) for reader in graph.consumers(tensor)]
            for module in own_modules:
                outputs = results.setdefault(module, [])
                if not readers or tensor in graph.outputs or any(module not in modules for modules in readers):
                    outputs.append(tensor)
    return results


def _result_of(module: str, results: Mapping[str, list[str]], names: Sequence[str]) -> str | None:
    """Return the only output of a module, or None if it has several or is called several times.

    Args:
        module: The module.
        results: The outputs of each module.
        names: All modules with a known name.
    """
    outputs, start = results.get(module, ()), f"{module}_"
    again = [
        module_name for module_name in results if module_name.startswith(start) and module_name[len(start) :].isdigit()
    ]
    return outputs[0] if len(outputs) == 1 and all(module_name in names for module_name in again) else None


def _modules(graph: Graph, tensor: str) -> tuple[str, ...]:
    """Return the modules in which a tensor is computed. Runtime-generated and fused names do not reveal them."""
    return modules_of(graph.tensors[tensor].stands_for or tensor) if tensor else ()


def modules_of(name: str) -> tuple[str, ...]:
    """Return the modules in the scope of an exported name, outermost first: a, a.1, a.1.b, a.1.b.2.

    An element of a list or sequence repeats its name: `/a/a.1`.
    """
    parts = name.split("/")[1:-1] if name.startswith("/") else []
    modules: list[str] = []
    before = ""
    for part in parts:
        inner = part.removeprefix(f"{before}.") if before else part
        modules.append(f"{modules[-1]}.{inner}" if modules else inner)
        before = part
    return tuple(modules)
