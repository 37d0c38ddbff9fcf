"""Leads what a module gives to the tensor that an exported graph says is of that module's scope.

PyTorch names a node after the modules that it is called in: `/a/a.1/b/b.2/Relu_output_0` is of module `a.1.b.2`. A
harness that hooks modules has their names and says nothing of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qdebug.compare.align.expand import says_nothing
from qdebug.compare.align.found import PairMap
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.node_match import NodeMatcher
from qdebug.model import Graph, operators
from qdebug.model.thresholds.alignment import NORMALIZATION_LOOKAHEAD_TENSORS

__all__ = ["found_by_scopes", "modules_of"]


def found_by_scopes(found: PairMap, ref: IndexedRecording, be: IndexedRecording) -> Iterator[tuple[str, str, str]]:
    """Find partners, by the modules' names, of tensors of which nothing but those is known.

    Args:
        found: The pairs found so far.
        ref: The reference run.
        be: The backend run.

    Yields:
        Backend tensor, reference tensor, and a clause.
    """
    matcher = NodeMatcher(ref, be)
    for scoped, hooked in ((ref, be), (be, ref)):
        names = [name for name in hooked.recording.names if _hooked(hooked, name)]
        if not names:
            continue
        scopes, siblings, among = _Scopes(scoped), _siblings(names), NodeMatcher(scoped, hooked)
        for place, name in enumerate(names):
            result = scopes.of(name, names)
            if result is None:
                continue
            reference, backend = (result, name) if scoped is ref else (name, result)
            if backend in found or reference in found.taken or not matcher.same_kind(reference, backend):
                continue
            maker = scoped.graph.producer(scoped.root(result))
            if maker is not None and operators.plain(maker).product:
                near = {
                    *names[place + 1 : place + 1 + NORMALIZATION_LOOKAHEAD_TENSORS],
                    *siblings[name.rpartition(".")[0]],
                } - {name}
                near -= {other for other in near if other in (found if scoped is ref else found.taken)}
                if any(other not in scopes.results and among.same_kind(result, other) for other in near):
                    continue  # of a module of which nothing is left the result may be folded into this one
            yield backend, reference, f"the scope of {result!r} is that of module {name!r}"


def _hooked(run: IndexedRecording, name: str) -> bool:
    """Tell whether a recording knows nothing of a tensor but its name, which is no path."""
    node = run.graph.producer(name)
    return name in run.recorded and not name.startswith("/") and node is not None and says_nothing(node)


def _siblings(names: list[str]) -> Mapping[str, list[str]]:
    """Give the modules that are parts of each."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    return parts


class _Scopes:
    """What each module gives by the scopes in a graph's names.

    Args:
        run: The run.

    Attributes:
        results: Tensors that are made in a module, or one within it, and read elsewhere.
    """

    def __init__(self, run: IndexedRecording) -> None:
        graph = run.graph
        self.results: dict[str, list[str]] = {}
        for node in graph.nodes:
            for tensor in filter(None, node.outputs):
                own = _modules(graph, tensor)
                if not own or tensor not in run.recorded or run.of_shape(tensor):
                    continue
                readers = [_modules(graph, reader.outputs[0]) for reader in graph.consumers(tensor)]
                for module in own:
                    given = self.results.setdefault(module, [])
                    if not readers or tensor in graph.outputs or any(module not in modules for modules in readers):
                        given.append(tensor)

    def of(self, module: str, names: list[str]) -> str | None:
        """Give the one tensor that a module gives; None if it gives several, or is called several times.

        Args:
            module: The module.
            names: All modules that are known by their names.
        """
        given = self.results.get(module, ())
        start = f"{module}_"
        again = [other for other in self.results if other.startswith(start) and other[len(start) :].isdigit()]
        return given[0] if len(given) == 1 and all(other in names for other in again) else None


def _modules(graph: Graph, tensor: str) -> tuple[str, ...]:
    """Give the modules that a tensor is made in: a runtime's own names say nothing, nor do those of what it fused."""
    return modules_of(graph.tensors[tensor].stands_for or tensor) if tensor else ()


def modules_of(name: str) -> tuple[str, ...]:
    """Give the modules that the scope in an exported name says, the outermost first: a, a.1, a.1.b, a.1.b.2.

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
