"""Leads what a module gives to the tensor that an exported graph says is of that module's scope.

PyTorch names a node after the modules that it is called in: `/a/a.1/b/b.2/Relu_output_0` is of module `a.1.b.2`. A
harness that hooks modules has their names and says nothing of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qdebug.compare.align.context import Context, paired
from qdebug.compare.align.expand import says_nothing
from qdebug.compare.align.indexed_recording import IndexedRecording, same_kind
from qdebug.compare.align.pairs import Match, Pair
from qdebug.model import Graph, operators
from qdebug.model.thresholds.alignment import NORMALIZATION_LOOKAHEAD_TENSORS

__all__ = ["by_scopes", "modules_of"]


def by_scopes(context: Context) -> Iterator[Pair]:
    """Pair tensors of either side of which only a module's name is known, by the scopes in the other's names."""
    ref, be, found = context.ref, context.be, context.found
    for scoped, hooked in ((ref, be), (be, ref)) if context.loose else ():
        names = [name for name in hooked.recording.names if _hooked(hooked, name)]
        if not names:
            continue
        results, siblings = _results(scoped), _siblings(names)
        for place, name in enumerate(names):
            result = _result_of(name, results, names)
            if result is None:
                continue
            reference, backend = (result, name) if scoped is ref else (name, result)
            if backend in found or reference in found.taken or not same_kind(ref, reference, be, backend):
                continue
            maker = scoped.graph.producer(scoped.root(result))
            if maker is not None and operators.plain(maker).product:
                after = names[place + 1 : place + 1 + NORMALIZATION_LOOKAHEAD_TENSORS]
                near = {*after, *siblings[name.rpartition(".")[0]]} - {name}
                near -= {other for other in near if other in (found if scoped is ref else found.taken)}
                if any(other not in results and same_kind(scoped, result, hooked, other) for other in near):
                    continue  # of a module of which nothing is left the result may be folded into this one
            reason = f"the scope of {result!r} is that of module {name!r}"
            yield paired(backend, reference, Match.ORIGIN, reason)


def _hooked(run: IndexedRecording, name: str) -> bool:
    """Tell whether a recording knows nothing of a tensor but its name, which is no path."""
    node = run.graph.producer(name)
    return name in run.recorded and not name.startswith("/") and node is not None and says_nothing(node)


def _siblings(names: list[str]) -> Mapping[str, list[str]]:
    """Return the modules that are parts of each."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    return parts


def _results(run: IndexedRecording) -> dict[str, list[str]]:
    """Return what is made in each module of a graph's scopes, or in one within it, and read elsewhere."""
    graph, results = run.graph, dict[str, list[str]]()
    for node in graph.nodes:
        for tensor in filter(None, node.outputs):
            own = _modules(graph, tensor)
            if not own or tensor not in run.recorded or run.of_shape(tensor):
                continue
            readers = [_modules(graph, reader.outputs[0]) for reader in graph.consumers(tensor)]
            for module in own:
                given = results.setdefault(module, [])
                if not readers or tensor in graph.outputs or any(module not in modules for modules in readers):
                    given.append(tensor)
    return results


def _result_of(module: str, results: Mapping[str, list[str]], names: Sequence[str]) -> str | None:
    """Return the one tensor that a module gives; None if it gives several, or is called several times.

    Args:
        module: The module.
        results: What each module gives.
        names: All modules that are known by their names.
    """
    given, start = results.get(module, ()), f"{module}_"
    again = [other for other in results if other.startswith(start) and other[len(start) :].isdigit()]
    return given[0] if len(given) == 1 and all(other in names for other in again) else None


def _modules(graph: Graph, tensor: str) -> tuple[str, ...]:
    """Return the modules that a tensor is made in: a runtime's own names say nothing, nor do those of what it fused."""
    return modules_of(graph.tensors[tensor].stands_for or tensor) if tensor else ()


def modules_of(name: str) -> tuple[str, ...]:
    """Return the modules that the scope in an exported name says, the outermost first: a, a.1, a.1.b, a.1.b.2.

    A part of a list or sequence repeats the name of that: `/a/a.1`.
    """
    parts = name.split("/")[1:-1] if name.startswith("/") else []
    modules: list[str] = []
    before = ""
    for part in parts:
        inner = part.removeprefix(f"{before}.") if before else part
        modules.append(f"{modules[-1]}.{inner}" if modules else inner)
        before = part
    return tuple(modules)
