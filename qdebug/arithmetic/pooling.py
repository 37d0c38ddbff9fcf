"""Pool the evidence of nodes that a backend computes with the same kernel: one kind and function, the same types.

A node on which several variants agree leaves open which of them ran. Its siblings narrow that down: the smallest number
of classes is sought so that every node has one, since a backend that has several kernels for a kind (depthwise and
dense, say) still uses each for many nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from qdebug.arithmetic.functions import same_functions
from qdebug.arithmetic.presets import KnownRuntime, is_known, names_of
from qdebug.arithmetic.search import SearchResult, reproduces
from qdebug.model.thresholds.explanation import UNKNOWN_PROGRAM_MAX_SIBLINGS, UNKNOWN_PROGRAM_MIN_ELEMENTS
from qdebug.replay.variant import Variant, keys_of

__all__ = ["Pooled", "pool", "standing_for"]

_APART = ("lookup", "resize")
"""Kinds of which every branch is another function."""
_CHANCE = "a step program that nobody is known to use fits ({}), but on too few elements to tell it from chance"
_LONE = "an arithmetic that no backend is known to use fits ({}), and no other node of its kind and types confirms it"
_ALIEN = "a step program that nobody is known to use fits ({}), but a known arithmetic reproduces its siblings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """What the siblings of a node leave of the variants that reproduce it.

    Args:
        variants: Those that reproduce all nodes that it shares a class with, the simplest first, one for each function
            of these nodes; empty if none reproduces the node itself.
        members: All of them, equal functions by several names included.
        siblings: Number of these nodes, this one included; for an unexplained node all of its kind and types.
        usual: What reproduces most of the siblings, the simplest first; None if nothing reproduces any.
        reason: What the siblings say against the answer; None if nothing.
        doubt: Why what reproduces the node is not believed to be what was computed, since nobody is known to compute
            so; None if it is, or if a known variant reproduces the node.
        fits: That, if it fits on enough elements to be no chance.
    """

    variants: tuple[Variant, ...]
    siblings: int
    members: tuple[Variant, ...] = ()
    usual: Variant | None = None
    reason: str | None = None
    doubt: str | None = None
    fits: Variant | None = None


def pool(findings: Mapping[int, SearchResult], measured: KnownRuntime | None = None) -> dict[int, Pooled]:
    """Narrow the variants of each node by its siblings.

    Args:
        findings: What was found for each node, by any number.
        measured: What is known of the runtime: of variants that reproduce as many nodes its own is chosen.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, finding in findings.items():
        groups.setdefault(_shared(finding), []).append(number)
    found: dict[int, Pooled] = {}
    for members in groups.values():
        first = findings[members[0]]
        kernel = first.kind, first.dtypes, first.branch
        own = measured.variants(*kernel) if measured else frozenset[Variant]()
        stated = measured.variant(*kernel) if measured else None
        found |= _classes({number: findings[number] for number in members}, own, stated)
    return found


def _shared(finding: SearchResult) -> tuple[object, ...]:
    """Return what nodes have in common that may be computed by one kernel."""
    branch = finding.branch if finding.kind in _APART else ""
    return finding.kind, branch, finding.dtypes, finding.per_channel


def _classes(
    findings: Mapping[int, SearchResult], own: Collection[Variant], stated: Variant | None
) -> dict[int, Pooled]:
    """Cover the nodes by as few variants as a greedy choice finds, and give each node the class of its variant.

    Args:
        findings: What was found for each node, by any number.
        own: What the runtime may compute by: of variants that reproduce as many nodes, one of these is chosen.
        stated: What it does compute by, as its own fingerprint says: nodes that nothing reproduces are held against it.
    """
    found: dict[int, Pooled] = {}
    usual: Variant | None = None
    known = [finding for finding in findings.values() if finding.matching and finding.novel is None]
    left = _with_novel({number: finding for number, finding in findings.items() if finding.matching}, known)
    while left:
        votes: dict[Variant, int] = {}
        for finding in left.values():
            for variant in finding.matching:
                votes[variant] = votes.get(variant, 0) + 1
        first = next(iter(left.values()))
        best = max(votes.values())
        most = [variant for variant, many in votes.items() if many == best]
        # Of those with most nodes one without limited sums, since no limit showed; then the runtime's own, then another
        # backend's, then the simplest.
        chosen = max(most, key=lambda each: (each.limited_sums is None, each in own, _stated([each], first)))
        covered = [number for number, finding in left.items() if chosen in finding.matching]
        common = set.intersection(*(set(left[number].matching) for number in covered))
        members = tuple(variant for variant in left[covered[0]].matching if variant in common)
        variants = _one_of_each(members, [left[number] for number in covered])
        said = None if usual is None else "its siblings of the same kind and types are computed in another way"
        doubt = _doubt(chosen, [left[number] for number in covered], known)
        if len(covered) == 1 and not any(map(is_known, members)):
            doubt = doubt or _LONE.format(chosen)
        usual = usual or (chosen if doubt is None else None)
        fits = None if doubt is None or _by_chance([left[number] for number in covered]) else chosen
        for number in covered:
            found[number] = Pooled(
                variants=variants,
                siblings=len(covered),
                members=members,
                usual=usual,
                reason=said,
                doubt=doubt,
                fits=fits,
            )
            del left[number]
    usual = usual or stated
    unexplained = [number for number, finding in findings.items() if not finding.matching]
    return found | dict.fromkeys(unexplained, Pooled(variants=(), siblings=len(findings), usual=usual))


def _stated(members: Sequence[Variant], finding: SearchResult) -> bool:
    """Tell whether a known backend computes nodes of a kind by one of some variants."""
    return any(names_of(variant, finding.kind, finding.dtypes, finding.branch) for variant in members)


def _with_novel(findings: dict[int, SearchResult], known: Sequence[SearchResult]) -> dict[int, SearchResult]:
    """Let a program that nobody is known to use stand for all siblings where it reproduces all: one kernel, not two.

    Known variants may come so close to it that they reproduce some of the nodes.
    """
    novel = [finding for finding in findings.values() if finding.novel is not None]
    if not novel or not known or len(known) > UNKNOWN_PROGRAM_MAX_SIBLINGS:
        return findings
    shared = set.intersection(*(set(finding.matching) for finding in novel))
    for variant in (variant for variant in novel[0].matching if variant in shared):
        if _doubt(variant, novel, known) is None:
            return {
                number: finding
                if finding.novel is not None
                else replace(finding, matching=(*finding.matching, variant))
                for number, finding in findings.items()
            }
    return findings


def _one_of_each(members: Sequence[Variant], findings: Sequence[SearchResult]) -> tuple[Variant, ...]:
    """Return the first of the variants that are the same function of some nodes."""
    shapes = [finding.shape for finding in findings if finding.shape is not None]
    if len(shapes) < len(findings):
        return tuple(members)
    first: dict[int, Variant] = {}
    for variant, number in zip(members, same_functions(members, shapes), strict=True):
        first.setdefault(number, variant)
    return tuple(first.values())


def _doubt(variant: Variant, findings: Sequence[SearchResult], known: Sequence[SearchResult]) -> str | None:
    """Say why a program that nobody is known to use is hardly what computed some nodes; None if nothing says so.

    Thousands of programs were tried. One of them may make up for a wrong scale; it then fails on the siblings.

    Args:
        variant: The program.
        findings: What was found for the nodes that it reproduces.
        known: What was found for siblings that known variants reproduce.
    """
    if any(finding.novel is None for finding in findings):
        return None
    if _by_chance(findings):
        return _CHANCE.format(variant)
    return (
        None
        if all(reproduces(finding.source, variant) for finding in known[:UNKNOWN_PROGRAM_MAX_SIBLINGS])
        else _ALIEN.format(variant)
    )


def _by_chance(findings: Sequence[SearchResult]) -> bool:
    """Tell whether all that reproduces some nodes was found among thousands of programs, and few elements decide."""
    novel = [finding.novel for finding in findings if finding.novel is not None]
    return len(novel) == len(findings) and sum(novel) < UNKNOWN_PROGRAM_MIN_ELEMENTS


def standing_for(found: Sequence[tuple[SearchResult, Sequence[str]]]) -> tuple[dict[str, str], dict[str, str]]:
    """Choose one variant for all nodes of a kind and types, or one for each branch of it where one does not do.

    Args:
        found: What was found for each node that is explained, and the texts of its class, the simplest first.

    Returns:
        The text of the chosen variant by key of `Arithmetic.variants`, and by the same keys how many of the nodes it
        does not reproduce, in words, where there are such.
    """
    kinds: dict[tuple[str, tuple[str, ...]], dict[str, list[Sequence[str]]]] = {}
    for finding, members in found:
        kinds.setdefault((finding.kind, finding.dtypes), {}).setdefault(finding.branch, []).append(members)
    chosen: dict[str, str] = {}
    exceptions: dict[str, str] = {}
    for (kind, dtypes), branches in kinds.items():
        whole = [members for nodes in branches.values() for members in nodes]
        common = _commonest(whole)
        parts = {"": whole} if all(common in members for members in whole) else dict(sorted(branches.items()))
        for branch, nodes in parts.items():
            variant, key = _commonest(nodes), keys_of(kind, branch, dtypes)[0]
            if branch and chosen.get(keys_of(kind, "", dtypes)[0]) == variant:
                continue
            chosen[key] = variant
            others = sum(variant not in members for members in nodes)
            if others:
                exceptions[key] = f"{others} of {len(nodes)} such nodes are computed in another way"
    return chosen, exceptions


def _commonest(nodes: Sequence[Sequence[str]]) -> str:
    """Return the variant that most nodes have in their class, of equals the simplest."""
    votes: dict[str, int] = {}
    for members in nodes:
        for text in members:
            votes[text] = votes.get(text, 0) + 1
    return max(votes, key=votes.__getitem__)
