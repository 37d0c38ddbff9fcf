"""The findings of lint as a document: each rewrite with its nodes, ranges, and an input that reveals it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qdebug.lint.chip_rules import RuleBreach
from qdebug.lint.finding import KINDS, LintFinding
from qdebug.lint.rewrites import LintReport
from qdebug.plural import plural
from qdebug.present import numbers
from qdebug.present.reports.document import Block, Document, Fact, FactList, Grid, Items, Section, Title
from qdebug.present.text import safe_text

__all__ = ["lint_document"]

_NAME_LIMIT = 60
_NODES_SHOWN = 2
_REASONS_SHOWN = 3
_BREACHES_SHOWN = 5


def lint_document(report: LintReport, *, everything: bool = False) -> Document:
    """Return the report on rewrites.

    Args:
        report: The findings.
        everything: List every undecided part.
    """
    blocks: list[Block] = [_lint_title(report)]
    for number, finding in enumerate(report.findings):
        allowed = ", allowed by --allow-param-changes" if finding.allowed else ""
        blocks.append(Section(f"{number}  {KINDS[finding.kind]}{allowed}"))
        blocks.append(FactList(list(_finding_facts(finding, is_single_model=report.after is None))))
    blocks += _breach_blocks(report, everything=everything)
    blocks += _fix_blocks(report)
    blocks.append(Items.of(_undecided_lines(report, everything=everything)))
    return blocks


def _lint_title(report: LintReport) -> Title:
    scope_text = f"{numbers.grouped(report.parts)} {'part' if report.parts == 1 else 'parts'} examined"
    if report.undecided:
        scope_text += f", {numbers.grouped(len(report.undecided))} not decided"
    if report.breaches:
        rules = safe_text(report.rules, limit=_NAME_LIMIT)
        broken = f"the rules of {rules} are broken in {plural(len(report.breaches), 'place')}"
        if report.bad:
            broken = f"{_rewrites_text(report)}, and {broken}"
        return Title("FOUND", f"{broken}; {scope_text}", "bold red")
    if report.bad and len(report.fixes) == len(report.bad):
        return Title("FIXED", f"{_rewrites_text(report)}, but not in the written copy; {scope_text}", "bold green")
    if report.bad:
        return Title("FOUND", f"{_rewrites_text(report)}; {scope_text}", "bold red")
    if report.exit_code:
        return Title("NOT DECIDED", scope_text, "bold yellow")
    if report.findings:
        return Title("ALLOWED", f"{len(report.findings)} rewrites change only rounding; {scope_text}", "bold green")
    if not report.parts and report.after is None and not report.rules:
        return Title("CLEAN", "it has no integer codes, so there is nothing to check", "bold green")
    rules_clause = f" and the rules of {safe_text(report.rules, limit=_NAME_LIMIT)} are kept" if report.rules else ""
    return Title("CLEAN", f"nothing was found{rules_clause}; {scope_text}", "bold green")


def _rewrites_text(report: LintReport) -> str:
    count = "1 rewrite changes" if len(report.bad) == 1 else f"{len(report.bad)} rewrites change"
    return f"{count} what the network computes"


def _breach_blocks(report: LintReport, *, everything: bool) -> Iterator[Block]:
    """Yield a table for each broken rule, with the first places where it is broken."""
    by_rule: dict[str, list[RuleBreach]] = {}
    for breach in report.breaches:
        by_rule.setdefault(breach.rule, []).append(breach)
    for rule, breaches in by_rule.items():
        shown = breaches if everything else breaches[:_BREACHES_SHOWN]
        yield Section(f"{rule} of {safe_text(report.rules, limit=_NAME_LIMIT)}: {plural(len(breaches), 'place')}")
        rows = [
            tuple(
                safe_text(text, limit=_NAME_LIMIT)
                for text in (breach.node, breach.op, breach.tensor, breach.value, breach.allowed)
            )
            for breach in shown
        ]
        yield Grid(titles=("node", "op", "tensor", "has", "allowed"), rows=rows, names=frozenset({0, 2}))
        if len(shown) < len(breaches):
            yield Items.of([f"and {len(breaches) - len(shown)} more: --all lists them"])


def _fix_blocks(report: LintReport) -> Iterator[Block]:
    """Yield the rewrites that the written copy of the model no longer has, and those that could not be fixed."""
    if report.fixes or report.unfixed:
        yield Section(f"fixed: {len(report.fixes)} of {plural(len(report.bad), 'finding')}")
    rows = [
        (
            safe_text(fix.tensor, limit=_NAME_LIMIT),
            _names_text(fix.added),
            _names_text(fix.removed),
            _number_text(fix.before),
            _number_text(fix.after),
        )
        for fix in report.fixes
    ]
    yield Grid(titles=("tensor", "added", "removed", "witness before", "fixed"), rows=rows, right=frozenset({3, 4}))
    reasons = report.unfixed.items()
    yield Items.of(
        f"not fixed: {safe_text(repr(name), limit=_NAME_LIMIT)}: {safe_text(text, limit=200)}" for name, text in reasons
    )


def _names_text(nodes: Sequence[str]) -> str:
    text = ", ".join(safe_text(name, limit=_NAME_LIMIT) for name in nodes[:_NODES_SHOWN]) or "nothing"
    return text + (f" and {len(nodes) - _NODES_SHOWN} more" if len(nodes) > _NODES_SHOWN else "")


def _finding_facts(finding: LintFinding, *, is_single_model: bool) -> Iterator[Fact]:
    witness = finding.witness
    yield Fact("kind", finding.kind)
    yield Fact("tensor", safe_text(f"{finding.tensor!r} of {finding.model}", limit=200))
    if finding.detail:
        yield Fact("detail", safe_text(finding.detail, limit=200))
    yield Fact("meant" if is_single_model else "before", _side_text(finding.before, finding.span_before))
    yield Fact("actual" if is_single_model else "after", _side_text(finding.after, finding.span_after))
    index_text = ", ".join(map(str, witness.index))
    before, after = _number_text(witness.before), _number_text(witness.after)
    change = f"{after} and should be {before}" if is_single_model else f"{before} before and {after} after"
    sentence = f"element ({index_text}) is {change}"
    yield Fact("witness", sentence)
    for operand in witness.tensors:
        value_text = "" if operand.value is None else f", there {_number_text(operand.value)}"
        yield Fact(
            "", f"with {safe_text(repr(operand.tensor), limit=_NAME_LIMIT)} {numbers.shape(operand.shape)}{value_text}"
        )
    steps = f", {numbers.number(witness.largest / finding.step)} steps" if finding.step else ""
    yield Fact("largest", f"difference {_number_text(witness.largest)}{steps}")
    if not witness.reached:
        yield Fact("", "does not occur with the inputs that the network was run with", "dim")


def _number_text(value: float) -> str:
    return numbers.number(value, digits=4)


def _side_text(nodes: tuple[str, ...], span: tuple[float, float]) -> str:
    low, high = map(_number_text, span)
    return f"{_names_text(nodes)}: values in [{low}, {high}]"


def _undecided_lines(report: LintReport, *, everything: bool) -> Iterator[str]:
    reasons = list(report.undecided.items())
    for tensor, reason in reasons if everything else reasons[:_REASONS_SHOWN]:
        yield f"not decided: {safe_text(repr(tensor), limit=_NAME_LIMIT)}: {safe_text(reason, limit=200)}"
    if not everything and len(reasons) > _REASONS_SHOWN:
        yield f"and {len(reasons) - _REASONS_SHOWN} more: --all lists them"
