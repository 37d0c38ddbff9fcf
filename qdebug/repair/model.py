"""Apply a repair to a quantized model and run it, to confirm the replayed outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from qdebug.backends import edit_model, load_backend
from qdebug.backends.protocol import NodeEdit
from qdebug.model import QuantParams
from qdebug.numerics.affine import dequantize
from qdebug.repair.edits import Edit, EditCatalog
from qdebug.repair.search import EditTrials, Score
from qdebug.session import DiffSession

__all__ = ["score_model_run", "write_repaired_model"]


def write_repaired_model(model: Path, catalog: EditCatalog, edits: Sequence[Edit], out: Path) -> None:
    """Write a copy of a quantized model with edits.

    Args:
        model: The backend's model.
        catalog: The catalog of the edits.
        edits: The edits.
        out: The file to write.

    Raises:
        UsageError: There is no editor for models of this kind.
        BackendError: The model cannot be changed like this.
    """
    edit_model(model, list(_node_edits(catalog, edits)), out)


def _node_edits(catalog: EditCatalog, edits: Sequence[Edit]) -> Iterator[NodeEdit]:
    change = catalog.change(edits)
    for edit in edits:
        main_tensor = edit.unit.tensor or edit.unit.node.outputs[0]
        stays_float = edit.kind == "float" and edit.unit.tensor in change.floats
        for name in dict.fromkeys((edit.unit.node.name, *(node for node, _ in edit.change.constants))):
            unit = catalog.units[name]
            key = name, catalog.nodes.weight(unit.node)
            tensor = unit.tensor or unit.node.outputs[0]
            yield NodeEdit(
                tensor=tensor,
                weight=edit.change.constants.get(key),
                codes=edit.codes.get(key),
                quant=edit.change.quants.get(tensor),
                bias=change.shifts.get(name) if name in edit.change.shifts else None,
                wide_sum=edit.exact == "wide-sum" and tensor == main_tensor,
                keep_float=stays_float and tensor == main_tensor,
                clamp=change.floats.get(tensor, (None, None)),
            )
        float_aliases = {name: None for name in sorted(edit.unit.tensors - {main_tensor}) if stays_float}
        for tensor, quant in (float_aliases | _requantized_tensors(catalog, edit, main_tensor)).items():
            yield NodeEdit(tensor=tensor, quant=quant, keep_float=tensor in float_aliases)
    for (name, _), bias in catalog.biases(edits).items():  # last, since their scales depend on all other changes
        unit = catalog.units[name]
        yield NodeEdit(tensor=unit.tensor or unit.node.outputs[0], bias=bias.values, bias_codes=bias.codes)


def _requantized_tensors(catalog: EditCatalog, edit: Edit, main_tensor: str) -> dict[str, QuantParams | None]:
    """Return the new codes of further tensors, to which other nodes pass an edit's result without computing."""
    codes: dict[str, QuantParams | None] = {}
    for tensor, quant in edit.change.quants.items():
        unit_tensors = next(
            (unit.tensors for unit in catalog.units.values() if unit.tensor == tensor), frozenset({tensor})
        )
        codes |= dict.fromkeys(sorted(unit_tensors - {main_tensor}), quant)
    return codes


def score_model_run(
    session: DiffSession,
    trials: EditTrials,
    model: Path,
    places: Sequence[tuple[int, int]],
    changed_quants: Mapping[str, QuantParams],
) -> Score:
    """Run a changed model on the recorded inputs with the recorded backend, and measure its outputs.

    Args:
        session: The two runs.
        trials: Measures the outputs.
        model: The changed model.
        places: Samples and steps.
        changed_quants: New codes of the outputs whose codes changed.

    Raises:
        BackendError: The model does not run.
    """
    run, info = session.backend, session.backend.info
    backend = load_backend(info.backend)
    option_names = {option.name for option in backend.options}
    options = {name: str(value) for name, value in info.options.items() if name in option_names}
    run_outputs, quants = (
        [],
        {name: changed_quants.get(name, run.graph.tensors[name].quant) for name in run.graph.outputs},
    )
    with closing(backend.open(model, options=options)) as model_run:
        for place in places:
            outputs = model_run.plain({name: run.load(name, *place) for name in run.graph.inputs})
            real_outputs = {name: dequantize(outputs[name], quants[name]) for name in run.graph.outputs}
            run_outputs.append(trials.under_reference_names(real_outputs, place))
    return trials.score_outputs(run_outputs, places)
