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

_NAME = 60
_NODES = 2
_REASONS = 3
_PLACES = 5


def lint_document(report: LintReport, *, everything: bool = False) -> Document:
    """Return the report on rewrites.

    Args:
        report: The findings.
        everything: List every undecided part.
    """
    blocks: list[Block] = [_title(report)]
    for number, finding in enumerate(report.findings):
        allowed = ", allowed by --allow-param-changes" if finding.allowed else ""
        blocks.append(Section(f"{number}  {KINDS[finding.kind]}{allowed}"))
        blocks.append(FactList(list(_facts(finding, alone=report.after is None))))
    blocks += _breaches(report, everything=everything)
    blocks += _fixes(report)
    blocks.append(Items.of(_undecided(report, everything=everything)))
    return blocks


def _title(report: LintReport) -> Title:
    scope_text = f"{numbers.grouped(report.parts)} {'part' if report.parts == 1 else 'parts'} examined"
    if report.undecided:
        scope_text += f", {numbers.grouped(len(report.undecided))} not decided"
    if report.breaches:
        rules = safe_text(report.rules, limit=_NAME)
        broken = f"the rules of {rules} are broken in {plural(len(report.breaches), 'place')}"
        if report.bad:
            broken = f"{_rewrites(report)}, and {broken}"
        return Title("FOUND", f"{broken}; {scope_text}", "bold red")
    if report.bad and len(report.fixes) == len(report.bad):
        return Title("FIXED", f"{_rewrites(report)}, but not in the written copy; {scope_text}", "bold green")
    if report.bad:
        return Title("FOUND", f"{_rewrites(report)}; {scope_text}", "bold red")
    if report.exit_code:
        return Title("NOT DECIDED", scope_text, "bold yellow")
    if report.findings:
        return Title("ALLOWED", f"{len(report.findings)} rewrites change only rounding; {scope_text}", "bold green")
    if not report.parts and report.after is None and not report.rules:
        return Title("CLEAN", "it has no integer codes, so there is nothing to check", "bold green")
    rules_clause = f" and the rules of {safe_text(report.rules, limit=_NAME)} are kept" if report.rules else ""
    return Title("CLEAN", f"nothing was found{rules_clause}; {scope_text}", "bold green")


def _rewrites(report: LintReport) -> str:
    count = "1 rewrite changes" if len(report.bad) == 1 else f"{len(report.bad)} rewrites change"
    return f"{count} what the network computes"


def _breaches(report: LintReport, *, everything: bool) -> Iterator[Block]:
    """Yield the broken rules: a table for each rule, with the first places."""
    by_rule: dict[str, list[RuleBreach]] = {}
    for breach in report.breaches:
        by_rule.setdefault(breach.rule, []).append(breach)
    for rule, breaches in by_rule.items():
        shown = breaches if everything else breaches[:_PLACES]
        yield Section(f"{rule} of {safe_text(report.rules, limit=_NAME)}: {plural(len(breaches), 'place')}")
        rows = [
            tuple(
                safe_text(text, limit=_NAME)
                for text in (breach.node, breach.op, breach.tensor, breach.value, breach.allowed)
            )
            for breach in shown
        ]
        yield Grid(titles=("node", "op", "tensor", "has", "allowed"), rows=rows, names=frozenset({0, 2}))
        if len(shown) < len(breaches):
            yield Items.of([f"and {len(breaches) - len(shown)} more: --all lists them"])


def _fixes(report: LintReport) -> Iterator[Block]:
    """Yield what a changed copy of the model no longer has, and what could not be fixed."""
    if report.fixes or report.unfixed:
        yield Section(f"fixed: {len(report.fixes)} of {plural(len(report.bad), 'finding')}")
    rows = [
        (
            safe_text(fix.tensor, limit=_NAME),
            _names(fix.added),
            _names(fix.removed),
            _number(fix.before),
            _number(fix.after),
        )
        for fix in report.fixes
    ]
    yield Grid(titles=("tensor", "added", "removed", "witness before", "fixed"), rows=rows, right=frozenset({3, 4}))
    reasons = report.unfixed.items()
    yield Items.of(
        f"not fixed: {safe_text(repr(name), limit=_NAME)}: {safe_text(text, limit=200)}" for name, text in reasons
    )


def _names(nodes: Sequence[str]) -> str:
    text = ", ".join(safe_text(name, limit=_NAME) for name in nodes[:_NODES]) or "nothing"
    return text + (f" and {len(nodes) - _NODES} more" if len(nodes) > _NODES else "")


def _facts(finding: LintFinding, *, alone: bool) -> Iterator[Fact]:
    witness = finding.witness
    yield Fact("kind", finding.kind)
    yield Fact("tensor", safe_text(f"{finding.tensor!r} of {finding.model}", limit=200))
    if finding.detail:
        yield Fact("detail", safe_text(finding.detail, limit=200))
    yield Fact("meant" if alone else "before", _side(finding.before, finding.span_before))
    yield Fact("actual" if alone else "after", _side(finding.after, finding.span_after))
    index_text = ", ".join(map(str, witness.index))
    before, after = _number(witness.before), _number(witness.after)
    change = f"{after} and should be {before}" if alone else f"{before} before and {after} after"
    sentence = f"element ({index_text}) is {change}"
    yield Fact("witness", sentence)
    for operand in witness.tensors:
        at = "" if operand.value is None else f", there {_number(operand.value)}"
        yield Fact("", f"with {safe_text(repr(operand.tensor), limit=_NAME)} {numbers.shape(operand.shape)}{at}")
    steps = f", {numbers.number(witness.largest / finding.step)} steps" if finding.step else ""
    yield Fact("largest", f"difference {_number(witness.largest)}{steps}")
    if not witness.reached:
        yield Fact("", "does not occur with the inputs that the network was run with", "dim")


def _number(value: float) -> str:
    return numbers.number(value, digits=4)


def _side(nodes: tuple[str, ...], span: tuple[float, float]) -> str:
    low, high = map(_number, span)
    return f"{_names(nodes)}: values in [{low}, {high}]"


def _undecided(report: LintReport, *, everything: bool) -> Iterator[str]:
    reasons = list(report.undecided.items())
    for tensor, reason in reasons if everything else reasons[:_REASONS]:
        yield f"not decided: {safe_text(repr(tensor), limit=_NAME)}: {safe_text(reason, limit=200)}"
    if not everything and len(reasons) > _REASONS:
        yield f"and {len(reasons) - _REASONS} more: --all lists them"
