"""Pairs the output of a module with the tensor that an exported graph places in the scope of that module.

PyTorch names a node after the modules in which it is called: `/a/a.1/b/b.2/Relu_output_0` belongs to module `a.1.b.2`.
A harness that hooks modules records their names but not a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.compare.align.indexed_recording import IndexedRecording, has_same_shape
from qdebug.compare.align.pairs import Match, Pair
from qdebug.model import Graph, operators
from qdebug.model.thresholds.alignment import NORMALIZATION_LOOKAHEAD_TENSORS

__all__ = ["modules_of", "pair_by_scopes"]


def pair_by_scopes(context: Context) -> Iterator[Pair]:
    """Pair tensors known only by a module name, using the scopes in the other side's names."""
    ref, be, pairs = context.ref, context.be, context.pair_map
    for scoped, hooked in ((ref, be), (be, ref)) if context.uses_values else ():
        names = [name for name in hooked.recording.names if _is_bare_module_name(hooked, name)]
        if not names:
            continue
        results, siblings = _outputs_by_module(scoped), _group_submodules(names)
        for position, name in enumerate(names):
            result = _only_output_of(name, results, names)
            if result is None:
                continue
            reference, backend = (result, name) if scoped is ref else (name, result)
            if backend in pairs or reference in pairs.taken or not has_same_shape(ref, reference, be, backend):
                continue
            maker = scoped.graph.producer(scoped.root(result))
            if maker is not None and operators.plain(maker).product:
                next_names = names[position + 1 : position + 1 + NORMALIZATION_LOOKAHEAD_TENSORS]
                nearby_names = {*next_names, *siblings[name.rpartition(".")[0]]} - {name}
                nearby_names -= {
                    candidate for candidate in nearby_names if candidate in (pairs if scoped is ref else pairs.taken)
                }
                if any(
                    candidate not in results and has_same_shape(scoped, result, hooked, candidate)
                    for candidate in nearby_names
                ):
                    continue  # a module without tensors of its own may be fused into this node
            reason = f"the scope of {result!r} is that of module {name!r}"
            yield make_pair(backend, reference, Match.ORIGIN, reason)


def _is_bare_module_name(run: IndexedRecording, name: str) -> bool:
    """Return whether only the name of a tensor was recorded, and the name is not a path."""
    node = run.graph.producer(name)
    return name in run.recorded and not name.startswith("/") and node is not None and has_unknown_inputs(node)


def _group_submodules(names: list[str]) -> Mapping[str, list[str]]:
    """Return the submodules of each module."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    return parts


def _outputs_by_module(run: IndexedRecording) -> dict[str, list[str]]:
    """Return, by module, the tensors that a module or its submodules compute and that are read outside it."""
    graph, results = run.graph, dict[str, list[str]]()
    for node in graph.nodes:
        for tensor in filter(None, node.outputs):
            own_modules = _modules_of_tensor(graph, tensor)
            if not own_modules or tensor not in run.recorded or run.depends_on_shapes(tensor):
                continue
            readers = [_modules_of_tensor(graph, reader.outputs[0]) for reader in graph.consumers(tensor)]
            for module in own_modules:
                outputs = results.setdefault(module, [])
                if not readers or tensor in graph.outputs or any(module not in modules for modules in readers):
                    outputs.append(tensor)
    return results


def _only_output_of(module: str, results: Mapping[str, list[str]], names: Sequence[str]) -> str | None:
    """Return the only output of a module, or None if it has several or is called several times.

    Args:
        module: The module.
        results: The outputs of each module.
        names: All modules with a known name.
    """
    outputs, start = results.get(module, ()), f"{module}_"
    numbered_modules = [
        module_name for module_name in results if module_name.startswith(start) and module_name[len(start) :].isdigit()
    ]
    return outputs[0] if len(outputs) == 1 and all(module_name in names for module_name in numbered_modules) else None


def _modules_of_tensor(graph: Graph, tensor: str) -> tuple[str, ...]:
    """Return the modules in which a tensor is computed, or () for a name that a runtime generated."""
    return modules_of(graph.tensors[tensor].stands_for or tensor) if tensor else ()


def modules_of(name: str) -> tuple[str, ...]:
    """Return the modules in the scope of an exported name, outermost first: a, a.1, a.1.b, a.1.b.2.

    An element of a list or sequence repeats the name of its container: `/a/a.1`.
    """
    parts = name.split("/")[1:-1] if name.startswith("/") else []
    modules: list[str] = []
    before = ""
    for part in parts:
        inner = part.removeprefix(f"{before}.") if before else part
        modules.append(f"{modules[-1]}.{inner}" if modules else inner)
        before = part
    return tuple(modules)
