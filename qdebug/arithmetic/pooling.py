"""Pools the evidence of nodes that a backend may compute with one kernel: equal kind, function and types.

If several variants reproduce a node, its siblings narrow them down. The search is for the smallest number of classes
that cover all nodes, because a backend with several kernels for a kind (such as depthwise and dense) uses each for many
nodes. Begin at `pool`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from qdebug.arithmetic.fitted import PRODUCTS
from qdebug.arithmetic.functions import same_functions
from qdebug.arithmetic.presets import KnownRuntime, is_known, names_of
from qdebug.arithmetic.search import SearchResult, reproduces, shared_variants
from qdebug.model.thresholds.explanation import (
    FREE_MULTIPLIER_BITS,
    UNKNOWN_PROGRAM_MAX_SIBLINGS,
    UNKNOWN_PROGRAM_MIN_ELEMENTS,
)
from qdebug.plural import plural
from qdebug.replay.variant import Variant, variant_keys

__all__ = ["Pooled", "pool", "standing_for"]

_APART = ("lookup", "resize")
"""Kinds whose branches are different functions."""
_CHANCE = "a step program of no known runtime fits ({}), but on too few elements to rule out chance"
_LONE = "an arithmetic of no known backend fits ({}), and no other node of the same kind and types confirms it"
_FEW = "only {}, next to ties, tell this multiplier from known ones; another one of nearly the same value may fit too"
_ALIEN = "a step program of no known runtime fits ({}), but a known arithmetic reproduces its siblings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The variants of a node after considering its siblings.

    Args:
        variants: Variants that reproduce all nodes of its class, simplest first, one for each function of these nodes.
            Empty if none reproduces the node itself.
        members: All such variants, including other names of one function.
        siblings: Number of nodes in the class, including this one. For an unexplained node, all nodes of its kind and
            types.
        usual: The variant that reproduces most siblings, or None if nothing reproduces any.
        reason: How the siblings contradict the answer, or None.
        doubt: Why the variant is doubtful: no known backend uses it. None for a known variant, or if the evidence
            suffices.
        fits: The doubtful variant, if it fits too many elements for chance.
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
        findings: Search results of the nodes, by any number.
        measured: The runtime's known arithmetic, which is preferred among variants that reproduce the same number of
            nodes.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, finding in findings.items():
        groups.setdefault(_group_key(finding), []).append(number)
    pooled: dict[int, Pooled] = {}
    # A kernel is one program for all nodes of a kind and types, so siblings decide between variants that fit a single
    # node. Products with other types often share the requantizer, and confirm each other afterwards.
    for members in groups.values():
        first_finding = findings[members[0]]
        kernel = first_finding.kind, first_finding.dtypes, first_finding.branch
        runtime_variants = measured.variants(*kernel) if measured else frozenset[Variant]()
        runtime_variant = measured.variant(*kernel) if measured else None
        pooled |= _pool_group({number: findings[number] for number in members}, runtime_variants, runtime_variant)
    for members in groups.values():
        is_open = any(pooled[number].doubt or not pooled[number].variants for number in members)
        if findings[members[0]].kind in PRODUCTS and is_open:
            pooled |= _confirm_by_other_products(
                {number: findings[number] for number in members}, _novel_of_products(findings, pooled)
            )
    return pooled


def _novel_of_products(findings: Mapping[int, SearchResult], pooled: Mapping[int, Pooled]) -> tuple[Variant, ...]:
    """Return programs of no known backend that explain several products of codes, without doubt."""
    return tuple(
        dict.fromkeys(
            variant
            for number, answer in pooled.items()
            if findings[number].kind in PRODUCTS and findings[number].novel is not None
            if answer.doubt is None and answer.siblings > 1
            for variant in answer.members
        )
    )


def _confirm_by_other_products(findings: Mapping[int, SearchResult], novel: Sequence[Variant]) -> dict[int, Pooled]:
    """Explain nodes by the program of other products, since a chip has one requantizer for both kinds.

    Args:
        findings: Results of the nodes of one group, of which some program is doubtful, or some node is unexplained.
        novel: Programs that explain several nodes of other groups.
    """
    explained = [number for number, finding in findings.items() if finding.matching]
    if not novel or len(explained) > UNKNOWN_PROGRAM_MAX_SIBLINGS:
        return {}
    members = shared_variants([findings[number].source for number in explained or findings], novel)
    if not members:
        return {}
    covered = [
        number for number in findings if number in explained or shared_variants([findings[number].source], members)
    ]
    variants = _distinct_functions(members, [findings[number] for number in covered])
    answer = Pooled(variants=variants, members=members, siblings=len(covered), usual=members[0])
    rest = {number: Pooled(variants=(), siblings=len(findings), usual=members[0]) for number in findings}
    return rest | dict.fromkeys(covered, answer)


def _group_key(finding: SearchResult) -> tuple[object, ...]:
    """Return the key shared by nodes that one kernel may compute."""
    branch = finding.branch if finding.kind in _APART else ""
    return finding.kind, branch, finding.dtypes, finding.per_channel


def _pool_group(
    findings: Mapping[int, SearchResult], runtime_variants: Collection[Variant], stated: Variant | None
) -> dict[int, Pooled]:
    """Cover the nodes greedily with few variants, and give each node the class of its variant.

    Args:
        findings: Search results of the nodes, by any number.
        runtime_variants: The runtime's known variants, which are preferred among variants that reproduce the same
            number of nodes.
        stated: The variant from the runtime's own fingerprint, expected for nodes that nothing reproduces.
    """
    pooled: dict[int, Pooled] = {}
    usual: Variant | None = None
    known_findings = [finding for finding in findings.values() if finding.matching and finding.novel is None]
    uncovered = _with_novel(
        _with_limits({number: finding for number, finding in findings.items() if finding.matching}), known_findings
    )
    while uncovered:
        votes: dict[Variant, int] = {}
        for finding in uncovered.values():
            for variant in finding.matching:
                votes[variant] = votes.get(variant, 0) + 1
        first_finding = next(iter(uncovered.values()))
        most_votes = max(votes.values())
        leading_variants = [variant for variant, vote_count in votes.items() if vote_count == most_votes]
        # Of variants that cover most nodes: one without limited sums, then the runtime's own, then another
        # backend's, then the simplest.
        chosen_variant = max(
            leading_variants,
            key=lambda variant: (
                variant.limited_sums is None,
                variant in runtime_variants,
                _is_stated([variant], first_finding),
            ),
        )
        covered_numbers = [number for number, finding in uncovered.items() if chosen_variant in finding.matching]
        common = set.intersection(*(set(uncovered[number].matching) for number in covered_numbers))
        members = tuple(variant for variant in uncovered[covered_numbers[0]].matching if variant in common)
        variants = _distinct_functions(members, [uncovered[number] for number in covered_numbers])
        reason = None if usual is None else "its siblings of the same kind and types use another arithmetic"
        covered = [uncovered[number] for number in covered_numbers]
        chosen_variant, doubt = _in_best_order(chosen_variant, members, covered, known_findings)
        if len(covered_numbers) == 1 and not any(map(is_known, members)):
            doubt = doubt or _LONE.format(chosen_variant)
        telling = sum(max(finding.novel, 1) for finding in covered if finding.novel is not None)
        if doubt is None and telling < UNKNOWN_PROGRAM_MIN_ELEMENTS and not any(map(is_known, members)):
            reason = reason or _FEW.format(plural(telling, "element"))
        usual = usual or (chosen_variant if doubt is None else None)
        fitting = (
            None
            if doubt is None or _may_be_chance([uncovered[number] for number in covered_numbers], chosen_variant)
            else chosen_variant
        )
        for number in covered_numbers:
            pooled[number] = Pooled(
                variants=variants,
                siblings=len(covered_numbers),
                members=members,
                usual=usual,
                reason=reason,
                doubt=doubt,
                fits=fitting,
            )
            del uncovered[number]
    usual = usual or stated
    unexplained = [number for number, finding in findings.items() if not finding.matching]
    unexplained_result = Pooled(variants=(), siblings=len(findings), usual=usual)
    agreeing = [answer for answer in pooled.values() if usual in answer.members and answer.doubt is None]
    if usual is not None and not is_known(usual) and len(agreeing) > 1:
        # nodes that were too small to be searched for it, or not searched, or that fit something else by chance
        doubtful = [number for number, answer in pooled.items() if answer.doubt is not None]
        for number in (*unexplained, *doubtful):
            members = shared_variants([findings[number].source], agreeing[0].members)
            if members:
                pooled[number] = replace(agreeing[0], variants=members, members=members)
    return pooled | {number: unexplained_result for number in unexplained if number not in pooled}


def _is_stated(members: Sequence[Variant], finding: SearchResult) -> bool:
    """Return whether a preset states one of the given variants for a node's kind and types."""
    return any(names_of(variant, finding.kind, finding.dtypes, finding.branch) for variant in members)


def _with_novel(findings: dict[int, SearchResult], known_findings: Sequence[SearchResult]) -> dict[int, SearchResult]:
    """Add a program of no known backend to all siblings if it reproduces them all: one kernel is likelier than two.

    Known variants may be so similar that they reproduce some of the nodes.
    """
    novel = [finding for finding in findings.values() if finding.novel is not None]
    limit = max(UNKNOWN_PROGRAM_MAX_SIBLINGS, len(novel))  # many nodes of one program weigh more than known siblings
    if not novel or not known_findings:
        return findings
    added: list[Variant] = []
    votes = Counter(variant for finding in known_findings for variant in finding.matching)
    usual = votes.most_common(1)[0][0]
    outsiders = [finding for finding in known_findings if usual not in finding.matching]  # ruled out `usual`
    for variant in _common_programs(novel):
        if len(known_findings) > limit and variant.multiplier.bits is None:
            continue  # of a multiplier, the width alone is one for all nodes
        if added and variant.multiplier != added[0].multiplier:
            continue  # these are only other names of the same program
        doubt = _reason_for_doubt(variant, novel, known_findings, len(outsiders))
        if doubt is None and all(reproduces(f.source, variant) for f in known_findings[UNKNOWN_PROGRAM_MAX_SIBLINGS:]):
            added.append(variant)
    return {
        number: replace(finding, matching=tuple(dict.fromkeys((*finding.matching, *added))))
        for number, finding in findings.items()
    }


def _common_programs(findings: Sequence[SearchResult]) -> list[Variant]:
    """Return the programs that reproduce all nodes which no known variant does.

    A node that few elements tell apart may have been explained by another program first. Then the widths that the
    other nodes have in their multiplier are tried on it.
    """
    common_variants = set.intersection(*(set(finding.matching) for finding in findings))
    if common_variants:
        return [variant for variant in findings[0].matching if variant in common_variants]
    widths = [variant for finding in findings for variant in finding.matching if variant.multiplier.bits is not None]
    return [
        variant
        for variant in dict.fromkeys(widths)
        if all(variant in finding.matching or reproduces(finding.source, variant) for finding in findings)
    ]


def _with_limits(findings: dict[int, SearchResult]) -> dict[int, SearchResult]:
    """Add multipliers with a limited shift to the siblings that they reproduce, where the limit changes nothing."""
    limited = dict.fromkeys(
        variant for finding in findings.values() for variant in finding.matching if variant.multiplier.shifts
    )
    if not limited:
        return findings
    return {
        number: finding
        if finding.novel is None
        else replace(
            finding,
            matching=(
                *finding.matching,
                *(
                    variant
                    for variant in limited
                    if variant not in finding.matching and reproduces(finding.source, variant)
                ),
            ),
        )
        for number, finding in findings.items()
    }


def _in_best_order(
    variant: Variant,
    members: Sequence[Variant],
    findings: Sequence[SearchResult],
    known_findings: Sequence[SearchResult],
) -> tuple[Variant, str | None]:
    """Return a program and why it is doubtful, with its multiplier computed in an order without doubt if there is one.

    Args:
        variant: The program.
        members: All programs that reproduce the nodes.
        findings: Results of the nodes.
        known_findings: Results of siblings that known variants reproduce.
    """
    doubt = _reason_for_doubt(variant, findings, known_findings)
    for member in members if doubt is not None else ():
        multiplier = replace(variant.multiplier, expression=member.multiplier.expression)
        is_other_order = member != variant and replace(variant, multiplier=multiplier) == member
        if is_other_order and _reason_for_doubt(member, findings, known_findings) is None:
            return member, None
    return variant, doubt


def _distinct_functions(members: Sequence[Variant], findings: Sequence[SearchResult]) -> tuple[Variant, ...]:
    """Return the first variant of each function of the given nodes."""
    shapes = [finding.shape for finding in findings if finding.shape is not None]
    if len(shapes) < len(findings):
        return tuple(members)
    first: dict[int, Variant] = {}
    for variant, number in zip(members, same_functions(members, shapes), strict=True):
        first.setdefault(number, variant)
    return tuple(first.values())


def _reason_for_doubt(
    variant: Variant, findings: Sequence[SearchResult], known_findings: Sequence[SearchResult], outsiders: int = 0
) -> str | None:
    """Return why a program of no known backend is doubtful, or None if it is not.

    Thousands of programs were tried. One of them may compensate for a wrong scale, but then fails on the siblings.

    Args:
        variant: The program.
        findings: Results of the nodes that it reproduces.
        known_findings: Results of siblings that known variants reproduce.
        outsiders: How many of these siblings the usual known variant does not reproduce.
    """
    if any(finding.novel is None for finding in findings):
        return None
    if _may_be_chance(findings, variant, outsiders):
        return _CHANCE.format(variant)
    return (
        None
        if all(reproduces(finding.source, variant) for finding in known_findings[:UNKNOWN_PROGRAM_MAX_SIBLINGS])
        else _ALIEN.format(variant)
    )


def _may_be_chance(findings: Sequence[SearchResult], variant: Variant, outsiders: int = 0) -> bool:
    """Return whether only novel programs reproduce some nodes, with few deciding elements.

    A multiplier of many bits differs from those of known arithmetics only next to ties. Anything but another rounding
    of the multiplier makes errors elsewhere, so a few elements suffice.
    """
    bits = None if variant.multiplier.shifts else variant.multiplier.bits
    weight = 1 if bits is None else max(bits - FREE_MULTIPLIER_BITS, 1)
    novel = [max(finding.novel, 1) for finding in findings if finding.novel is not None]  # at least one element differs
    return len(novel) == len(findings) and (sum(novel) + outsiders) * weight < UNKNOWN_PROGRAM_MIN_ELEMENTS


def standing_for(explained: Sequence[tuple[SearchResult, Sequence[str]]]) -> tuple[dict[str, str], dict[str, str]]:
    """Choose one variant for all nodes of a kind and types, or one for each branch if one does not suffice.

    Args:
        explained: Results of the explained nodes, with the texts of their class, simplest first.

    Returns:
        The text of the chosen variant by key of `Arithmetic.variants`, and by the same keys, a clause with the number
            of nodes that it does not reproduce, if any.
    """
    kinds: dict[tuple[str, tuple[str, ...]], dict[str, list[Sequence[str]]]] = {}
    for finding, members in explained:
        kinds.setdefault((finding.kind, finding.dtypes), {}).setdefault(finding.branch, []).append(members)
    chosen_variants: dict[str, str] = {}
    exceptions: dict[str, str] = {}
    for (kind, dtypes), branches in kinds.items():
        all_nodes = [members for nodes in branches.values() for members in nodes]
        common = _most_common_variant(all_nodes)
        parts = {"": all_nodes} if all(common in members for members in all_nodes) else dict(sorted(branches.items()))
        for branch, nodes in parts.items():
            variant, key = _most_common_variant(nodes), variant_keys(kind, branch, dtypes)[0]
            if branch and chosen_variants.get(variant_keys(kind, "", dtypes)[0]) == variant:
                continue
            chosen_variants[key] = variant
            exception_count = sum(variant not in members for members in nodes)
            if exception_count:
                exceptions[key] = f"{exception_count} of {len(nodes)} such nodes use another arithmetic"
    return chosen_variants, exceptions


def _most_common_variant(nodes: Sequence[Sequence[str]]) -> str:
    """Return the variant that is in the class of most nodes, or the simplest of several."""
    votes: dict[str, int] = {}
    for members in nodes:
        for text in members:
            votes[text] = votes.get(text, 0) + 1
    return max(votes, key=votes.__getitem__)
