"""Changes a quantized model as a repair says, and runs it: the promise of a replay against what really comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from qdebug.backends import edit_model, load_backend
from qdebug.backends.protocol import NodeEdit
from qdebug.numerics.affine import dequantize
from qdebug.session import DiffSession
from qdebug.workflow.repair_edits import Edit, EditCatalog
from qdebug.workflow.repair_search import EditTrials, Score

__all__ = ["run_score", "write_repaired"]


def write_repaired(model: Path, catalog: EditCatalog, edits: Sequence[Edit], out: Path) -> None:
    """Write a copy of a quantized model with edits.

    Args:
        model: The model that the backend ran.
        catalog: What the edits are of.
        edits: The edits.
        out: The file to write.

    Raises:
        UsageError: Nothing changes models of this kind.
        BackendError: The model cannot be changed like this.
    """
    edit_model(model, list(_node_edits(catalog, edits)), out)


def _node_edits(catalog: EditCatalog, edits: Sequence[Edit]) -> Iterator[NodeEdit]:
    floats = catalog.change(edits).floats
    for edit in edits:
        constants = edit.constants()
        tensor = edit.unit.tensor or edit.unit.node.outputs[0]
        yield NodeEdit(
            tensor=tensor,
            weight=constants[0] if constants else None,
            bias=constants[1] if len(constants) > 1 else None,
            scales=edit.scales,
            axis=edit.axis,
            quant=edit.change.quants.get(tensor),
            shift=edit.change.shifts.get(edit.unit.node.name),
            keep_float=tensor in floats and edit.kind == "float",
            clamp=floats.get(tensor, (None, None)),
        )
        if (tensor in floats and edit.kind == "float") or edit.change.quants:
            for other in sorted(edit.unit.tensors - {tensor}):
                yield NodeEdit(tensor=other, quant=edit.change.quants.get(other), keep_float=other in floats)


def run_score(session: DiffSession, trials: EditTrials, model: Path, places: Sequence[tuple[int, int]]) -> Score:
    """Run a changed model on the recorded inputs, by the backend that was recorded, and measure it.

    Args:
        session: The two runs.
        trials: Measures.
        model: The changed model.
        places: Samples and steps.

    Raises:
        BackendError: It does not run.
    """
    run, info = session.backend, session.backend.info
    backend = load_backend(info.backend)
    known = {option.name for option in backend.options}
    options = {name: str(value) for name, value in info.options.items() if name in known}
    made = []
    with closing(backend.open(model, options=options)) as opened:
        for place in places:
            outputs = opened.plain({name: run.load(name, *place) for name in run.graph.inputs})
            quants = run.graph.tensors
            real = {name: dequantize(outputs[name], quants[name].quant) for name in run.graph.outputs}
            made.append(trials.named(real, place))
    return trials.of_outputs(made, places)
