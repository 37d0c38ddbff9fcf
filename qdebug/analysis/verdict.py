"""Sums up a comparison: one status, one place, one sentence, and whether it can be relied on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qdebug.analysis.alignment import Kind, Side, Unmatched
from qdebug.analysis.limits import Limits
from qdebug.analysis.origin import breaks_limit, is_beyond, is_excused
from qdebug.analysis.result import Compounding, Coverage, NodeResult, SampleResult, Status, Verdict
from qdebug.model import Fidelity, RunInfo

__all__ = ["shortcomings", "verdict"]


def shortcomings(
    reference: RunInfo, backend: RunInfo, coverage: Coverage, nodes: Sequence[NodeResult], *, limits: Limits
) -> tuple[str, ...]:
    """Give a clause for everything that is missing from a comparison and not accepted by the limits."""
    found: list[str] = []
    for side, info in (("reference", reference), ("backend", backend)):
        if not info.complete and not limits.allow_partial:
            found.append(f"the {side} recording is incomplete")
        if info.fidelity is Fidelity.DIFFERS and not limits.allow_unfaithful:
            found.append(f"recording changed the result of the {side} run")
    lost = tuple(entry for entry in coverage.unmatched if entry.kind is Kind.LOST)
    missed = limits.not_allowed(lost)
    if missed:
        first = missed[0]
        count = "1 tensor was" if len(missed) == 1 else f"{len(missed)} tensors were"
        found.append(f"{count} lost to the comparison (the first: {first.side} tensor {first.tensor!r})")
    unheld = [node for node in nodes if node.status is Status.INCOMPARABLE and not is_excused(node)]
    incomparable = limits.not_allowed(tuple(map(_as_lost, unheld)))
    if incomparable:
        first = incomparable[0]
        count = "1 tensor" if len(incomparable) == 1 else f"{len(incomparable)} tensors"
        found.append(f"{count} could not be compared (the first: {first.tensor!r}: {first.reason})")
    partial = [node for node in nodes if node.note and (node.basis == "full" or node.lacking)]
    if partial and not limits.allow_partial:
        more = f" and {len(partial) - 1} more" if len(partial) > 1 else ""
        found.append(f"{partial[0].note} (tensor {partial[0].tensor!r}{more})")
    return tuple(found)


def _partly(nodes: Sequence[NodeResult]) -> str:
    """Say how many tensors were judged by a part of them."""
    some = sum(node.basis == "elements" for node in nodes)
    proved = sum(node.basis == "stats" and node.status is not Status.INCOMPARABLE for node in nodes)
    text = f" {some} {_was(some)} compared by the elements that both kept, not by all." if some else ""
    return text + (f" {proved} {_was(proved)} judged by hashes or statistics alone." if proved else "")


def _was(many: int) -> str:
    return "was" if many == 1 else "were"


def _as_lost(node: NodeResult) -> Unmatched:
    return Unmatched(side=Side.BACKEND, tensor=node.tensor, kind=Kind.LOST, reason=node.reason or "")


def verdict(
    nodes: Sequence[NodeResult],
    missing: Sequence[str],
    *,
    origin: NodeResult | None = None,
    output: NodeResult | None = None,
    compounding: Sequence[Compounding] = (),
    accepted: Sequence[str] = (),
) -> Verdict:
    """Sum up compared tensors.

    Args:
        nodes: Every compared tensor, in the backend's topological order.
        missing: What `shortcomings` found.
        origin: The node whose own error feeds the worst output error, if there is one.
        output: The network output that carries most error, if one was compared.
        compounding: Nodes that enlarge error far more than others of their kind.
        accepted: What is missing too and was accepted by the limits: it is said all the same.
    """
    beyond = [node for node in nodes if is_beyond(node)]
    first = beyond[0] if beyond else None
    status = _status(nodes, incomplete=bool(missing))
    sample = None if output is None else _worst_sample(output)
    sentence = _sentence(nodes, beyond, origin)
    if beyond and output is not None and len(output.samples) > 1:
        sentence += f" Of {len(output.samples)} samples, sample {sample} comes out worst at {output.tensor!r}."
    sentence += _partly(nodes) + _compounded(compounding) + _acknowledged(nodes)
    if missing:
        sentence += " Incomplete: " + "; ".join(missing) + "."
    if accepted:
        sentence += " Accepted as it is: " + "; ".join(accepted) + "."
    return Verdict(
        status=status,
        first_divergence=first.node if first else None,
        origin=origin.node if origin else None,
        sentence=sentence,
        worst_sample=sample,
        compounding=tuple(compounding),
    )


def _worst_sample(output: NodeResult) -> int | None:
    """Give the sample with the lowest SQNR, of equals the first; one that is not finite is lower than any number."""
    if not output.samples:
        return None

    def level(sample: SampleResult) -> float:
        if sample.sqnr_db is None:
            return math.inf
        return -math.inf if math.isnan(sample.sqnr_db) else sample.sqnr_db

    return min(output.samples, key=level).sample


def _compounded(compounding: Sequence[Compounding]) -> str:
    if not compounding:
        return ""
    first = compounding[0]
    more = f", and at {len(compounding) - 1} more" if len(compounding) > 1 else ""
    usual = f"{first.gain:.3g} times; {first.usual:.3g} times is usual for {first.op}"
    return f" Error compounds at {first.op} {first.node!r} ({usual}){more}."


def _status(nodes: Sequence[NodeResult], *, incomplete: bool) -> Status:
    present = {node.status for node in nodes if not is_excused(node)}
    for status in (Status.NONFINITE, Status.DIVERGED):
        if status in present:
            return status
    if any(is_beyond(node) for node in nodes):
        return Status.DIVERGED
    if incomplete:
        return Status.INCOMPLETE
    return Status.IDENTICAL if all(node.status is Status.IDENTICAL for node in nodes) else Status.WITHIN


def _acknowledged(nodes: Sequence[NodeResult]) -> str:
    """Say how many tensors count for nothing because somebody accepted them, and for which that is over."""
    excused = [node for node in nodes if breaks_limit(node) and is_excused(node)]
    expired = [node for node in nodes if is_beyond(node) and node.acknowledged is not None]
    text = ""
    if excused:
        count = "1 tensor" if len(excused) == 1 else f"{len(excused)} tensors"
        text += f" {count} beyond the limit {'is' if len(excused) == 1 else 'are'} acknowledged"
        text += f" (the first: {excused[0].tensor!r})."
    for node in expired[:1]:
        also = f", and {len(expired) - 1} more" if len(expired) > 1 else ""
        expires = node.acknowledged.expires if node.acknowledged else None
        text += f" The acknowledgement of {node.tensor!r} expired on {expires}{also}."
    return text


def _sentence(nodes: Sequence[NodeResult], beyond: Sequence[NodeResult], origin: NodeResult | None) -> str:
    incomparable = sum(node.status is Status.INCOMPARABLE for node in nodes)
    count = len(nodes) - incomparable
    every = "The one compared tensor is" if count == 1 else f"All {count} compared tensors are"
    if beyond:
        first = origin if origin is not None and origin.tensor == beyond[0].tensor else beyond[0]
        place = "the input" if first.op == "Input" else f"{first.op} {first.node!r}"
        text = f"The backend diverges first at {place} (tensor {first.tensor!r}): {first.reason}. "
        over = sum(node.status is not Status.INCOMPARABLE for node in beyond)
        text += f"{over} of {count} compared tensors {'is' if over == 1 else 'are'} beyond the limit."
        if origin is not None and origin.node != first.node:
            text += f" What is wrong at the output comes from {origin.op} {origin.node!r}."
    elif not count:
        text = "No tensor was compared."
    elif all(node.status is Status.IDENTICAL for node in nodes):
        text = f"{every} identical."
    else:
        excused = sum(breaks_limit(node) and node.status is not Status.INCOMPARABLE for node in nodes)
        within = count - excused
        said = f"{within} of {count} compared tensors {'is' if within == 1 else 'are'}"
        text = f"{said if excused else every} within the limit."
    if incomparable:
        text += f" {incomparable} could not be compared."
    return text
