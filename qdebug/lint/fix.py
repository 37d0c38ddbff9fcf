"""Undo wrong rewrites in a copy of a model: the correct nodes compute the tensors of the findings again.

Each change is proved: the copy is read, and its nodes are run on the witness of the finding, which must no longer show
a difference. A change without this proof is left out of the copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from qdebug.backends import replace_model_parts
from qdebug.backends.protocol import NewPart
from qdebug.errors import KernelError, QdebugError, UsageError
from qdebug.lint.finding import LintFinding, LintFix
from qdebug.lint.replay import LintModel, difference_beyond_rounding, nodes_between
from qdebug.lint.rewrites import LintReport, lint, open_model
from qdebug.lint.search import LintPart
from qdebug.recording.target import replacing_file

__all__ = ["fix_findings"]


def fix_findings(
    report: LintReport, model: Path, out: Path, *, before: LintModel | None, inputs: Mapping[str, np.ndarray] | None
) -> LintReport:
    """Write a copy of a model without the findings that can be fixed.

    Args:
        report: The findings.
        model: The model that has them, an ONNX file.
        out: The file to write. Nothing is written without a proved change.
        before: The form before the rewrite, or None if the model was checked by itself.
        inputs: Inputs of the model, the same as for `lint`.

    Returns:
        The report, with the proved changes, and with the reason why each other finding was not fixed.

    Raises:
        UsageError: The model is not an ONNX file.
    """
    fixable = [finding for finding in report.bad if finding.right is not None and finding.actual is not None]
    unfixed = {
        finding.tensor: "only quantizing the model differently repairs it"
        for finding in report.bad
        if finding.right is None
    }
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "fixed.onnx"
        chosen = list[LintFinding]()
        for finding in fixable:
            try:
                _write_copy([*chosen, finding], model, copy)
                _prove(finding, copy)
            except UsageError:
                raise
            except QdebugError as error:
                unfixed[finding.tensor] = error.message
                continue
            chosen.append(finding)
        if not chosen:
            return replace(report, unfixed=unfixed)
        _write_copy(chosen, model, copy)
        fixes = [_prove(finding, copy) for finding in chosen]
        fixed_model = open_model(copy)
        new_report = lint(fixed_model, inputs=inputs) if before is None else lint(before, fixed_model, inputs=inputs)
        earlier_findings = {(finding.kind, finding.tensor) for finding in report.bad}
        for finding in new_report.bad:
            if (finding.kind, finding.tensor) not in earlier_findings:
                unfixed[finding.tensor] = f"the fixed model has a finding of the kind {finding.kind!r} here"
        with replacing_file(out) as temporary_file:
            shutil.copyfile(copy, temporary_file)
    return replace(report, fixes=tuple(fixes), unfixed=unfixed)


def _write_copy(findings: Sequence[LintFinding], model: Path, out: Path) -> None:
    replace_model_parts(model, [_make_new_part(finding) for finding in findings], out)


def _make_new_part(finding: LintFinding) -> NewPart:
    right, actual = _right_and_actual_parts(finding)
    if not right.model.raw:
        raise UsageError(
            f"{right.model.title!r} is not an ONNX model, so its nodes cannot be restored.",
            hint="Give both forms as ONNX files: qdebug lint before.onnx after.onnx --fix fixed.onnx.",
        )
    graph = right.model.graph
    names = dict.fromkeys(name for node in right.nodes for name in node.inputs if name)
    constants = {name: array for name in names if (array := right.model.constant(name)) is not None}
    domains = {node.domain for node in right.nodes}
    return NewPart(
        tensor=finding.tensor,
        nodes=right.nodes,
        result=right.output,
        leaves=dict(zip(right.leaves, actual.leaves, strict=True)),
        constants=constants,
        opset={domain: version for domain, version in graph.opset.items() if domain in domains},
    )


def _right_and_actual_parts(finding: LintFinding) -> tuple[LintPart, LintPart]:
    if finding.right is None or finding.actual is None:
        raise KernelError("It is not known which nodes to restore.")
    return finding.right, finding.actual


def _prove(finding: LintFinding, copy: Path) -> LintFix:
    """Run the copy's nodes on the witness, to prove that the difference is gone.

    Raises:
        KernelError: The difference is still there, or the nodes cannot be run.
    """
    right, actual = _right_and_actual_parts(finding)
    model = open_model(copy)
    part = nodes_between(model.graph, finding.tensor, set(actual.leaves), len(model.graph.nodes))
    if part is None or not part[1] <= set(actual.leaves):
        raise KernelError("The tensor depends on other inputs in the changed model.")
    fixed = LintPart(model=model, nodes=part[0], output=finding.tensor, leaves=actual.leaves)
    witness = finding.witness
    difference = difference_beyond_rounding(right.exact_results(witness.values), fixed.exact_results(witness.values))
    replayed = right.replay(witness.values), fixed.replay(witness.values)
    is_same_result = np.array_equal(replayed[0], replayed[1].reshape(replayed[0].shape), equal_nan=True)
    if difference is None or difference.max(initial=0) > 0 or not is_same_result:
        raise KernelError("The difference remains in the changed model.")
    before, after = {node.name for node in actual.nodes}, {node.name for node in model.graph.nodes}
    return LintFix(
        kind=finding.kind,
        tensor=finding.tensor,
        added=tuple(node.name for node in right.nodes),
        removed=tuple(node.name for node in actual.nodes if node.name in before - after),
        before=witness.after,
        after=float(replayed[1].reshape(replayed[0].shape)[witness.index]),
    )
