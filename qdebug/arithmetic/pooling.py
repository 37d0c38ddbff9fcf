"""Pools the evidence of sibling nodes, which a backend may compute with one kernel: equal kind, function and types.

If several variants reproduce a node, its siblings narrow them down. Nodes are divided into as few classes as possible,
each with variants in common, because a backend with several kernels for a kind (such as depthwise and dense) uses each
for many nodes. Begin at `pool`.
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

__all__ = ["Pooled", "choose_variants_by_kind", "pool"]

_KINDS_WITH_SEPARATE_BRANCHES = ("lookup", "resize")
"""Kinds whose branches are different functions, and so are not pooled."""
_DOUBT_BY_CHANCE = "a step program that no known runtime uses fits ({}), but on too few elements to rule out chance"
_DOUBT_WITHOUT_SIBLINGS = (
    "an arithmetic that no known backend uses fits ({}), and no other node of the same kind and types confirms it"
)
_FEW_DECIDING_ELEMENTS = (
    "only {}, next to ties, distinguish this multiplier from known ones; another of nearly the same value may fit too"
)
_DOUBT_BY_SIBLINGS = (
    "a step program that no known runtime uses fits ({}), but a known arithmetic reproduces its siblings"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The variants of a node after considering its siblings.

    Args:
        variants: Variants that reproduce all nodes of its class, simplest first, one for each function of these nodes.
            Empty if none reproduces the node itself.
        members: All such variants, including other names of one function.
        siblings: Number of nodes in the class, including this one. For an unexplained node, all nodes of its kind and
            types.
        usual: The variant that reproduces most siblings, or None if no variant reproduces any.
        reason: A remark on siblings that contradict the answer, or on scarce evidence, or None.
        doubt: Why the variant is doubtful, although it fits, if no known backend uses it. None if it is not.
        fits: The doubtful variant, if it fits too many elements to be due to chance.
    """

    variants: tuple[Variant, ...]
    siblings: int
    members: tuple[Variant, ...] = ()
    usual: Variant | None = None
    reason: str | None = None
    doubt: str | None = None
    fits: Variant | None = None


def pool(findings: Mapping[int, SearchResult], measured: KnownRuntime | None = None) -> dict[int, Pooled]:
    """Narrow down the variants of each node by its siblings.

    Args:
        findings: Search results of the nodes, by an arbitrary number.
        measured: The runtime's known arithmetic, which is preferred among variants that reproduce the same number of
            nodes.

    Returns:
        The pooled evidence of each node, by the same numbers.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, finding in findings.items():
        groups.setdefault(_group_key(finding), []).append(number)
    pooled: dict[int, Pooled] = {}
    # A kernel runs one program for all nodes of a kind and types, so siblings decide between the variants that fit a
    # node. Products of other types often share the requantizer, so they may confirm each other afterwards.
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
                {number: findings[number] for number in members}, _confirmed_product_programs(findings, pooled)
            )
    return pooled


def _confirmed_product_programs(
    findings: Mapping[int, SearchResult], pooled: Mapping[int, Pooled]
) -> tuple[Variant, ...]:
    """Return programs of no known backend that explain several products of codes beyond doubt."""
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
    """Explain nodes by the program of other products, since a chip has one requantizer for all of them.

    Args:
        findings: Results of a group of siblings, of which some are unexplained or explained by a doubtful program.
        novel: Programs that explain several nodes of other groups.

    Returns:
        The pooled evidence of all nodes of the group, or an empty dict if no program fits.
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
    """Return a key that is equal for nodes that one kernel may compute."""
    branch = finding.branch if finding.kind in _KINDS_WITH_SEPARATE_BRANCHES else ""
    return finding.kind, branch, finding.dtypes, finding.per_channel


def _pool_group(
    findings: Mapping[int, SearchResult], runtime_variants: Collection[Variant], stated: Variant | None
) -> dict[int, Pooled]:
    """Divide siblings into few classes with variants in common, greedily, largest class first.

    Args:
        findings: Search results of the nodes, by an arbitrary number.
        runtime_variants: The runtime's known variants, which are preferred among variants that reproduce the same
            number of nodes.
        stated: The variant from the runtime's own fingerprint, which is expected of unexplained nodes.
    """
    pooled: dict[int, Pooled] = {}
    usual: Variant | None = None
    known_findings = [finding for finding in findings.values() if finding.matching and finding.novel is None]
    uncovered = _with_novel_for_siblings(
        _with_limited_for_siblings({number: finding for number, finding in findings.items() if finding.matching}),
        known_findings,
    )
    while uncovered:
        votes: dict[Variant, int] = {}
        for finding in uncovered.values():
            for variant in finding.matching:
                votes[variant] = votes.get(variant, 0) + 1
        first_finding = next(iter(uncovered.values()))
        most_votes = max(votes.values())
        leading_variants = [variant for variant, vote_count in votes.items() if vote_count == most_votes]
        # Among the variants that cover most nodes, prefer those without limited sums, then the runtime's own, then
        # those of other backends, then the simplest.
        chosen_variant = max(
            leading_variants,
            key=lambda variant: (
                variant.limited_sums is None,
                variant in runtime_variants,
                _has_stated_variant([variant], first_finding),
            ),
        )
        covered_numbers = [number for number, finding in uncovered.items() if chosen_variant in finding.matching]
        common = set.intersection(*(set(uncovered[number].matching) for number in covered_numbers))
        members = tuple(variant for variant in uncovered[covered_numbers[0]].matching if variant in common)
        variants = _distinct_functions(members, [uncovered[number] for number in covered_numbers])
        reason = None if usual is None else "its siblings of the same kind and types use a different arithmetic"
        covered = [uncovered[number] for number in covered_numbers]
        chosen_variant, doubt = _with_undoubted_order(chosen_variant, members, covered, known_findings)
        if len(covered_numbers) == 1 and not any(map(is_known, members)):
            doubt = doubt or _DOUBT_WITHOUT_SIBLINGS.format(chosen_variant)
        deciding_count = sum(max(finding.novel, 1) for finding in covered if finding.novel is not None)
        if doubt is None and deciding_count < UNKNOWN_PROGRAM_MIN_ELEMENTS and not any(map(is_known, members)):
            reason = reason or _FEW_DECIDING_ELEMENTS.format(plural(deciding_count, "element"))
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
        # Nodes that were too small to be searched for this variant, were not searched, or fit another one by chance.
        doubtful = [number for number, answer in pooled.items() if answer.doubt is not None]
        for number in (*unexplained, *doubtful):
            members = shared_variants([findings[number].source], agreeing[0].members)
            if members:
                pooled[number] = replace(agreeing[0], variants=members, members=members)
    return pooled | {number: unexplained_result for number in unexplained if number not in pooled}


def _has_stated_variant(members: Sequence[Variant], finding: SearchResult) -> bool:
    """Return whether any preset states one of the given variants for a node's kind and types."""
    return any(names_of(variant, finding.kind, finding.dtypes, finding.branch) for variant in members)


def _with_novel_for_siblings(
    findings: dict[int, SearchResult], known_findings: Sequence[SearchResult]
) -> dict[int, SearchResult]:
    """Add a program of no known backend to all siblings if it reproduces them all.

    One kernel for all siblings is likelier than two. A known variant may be so similar to its program that it
    reproduces some of the nodes as well.

    Args:
        findings: Search results of the explained siblings.
        known_findings: Those that known variants reproduce.
    """
    novel = [finding for finding in findings.values() if finding.novel is not None]
    # With more siblings than this that known variants reproduce, the program is likelier that of a second kernel. The
    # more nodes the program explains, the higher the limit.
    limit = max(UNKNOWN_PROGRAM_MAX_SIBLINGS, len(novel))
    if not novel or not known_findings:
        return findings
    added: list[Variant] = []
    votes = Counter(variant for finding in known_findings for variant in finding.matching)
    usual = votes.most_common(1)[0][0]
    outsiders = [finding for finding in known_findings if usual not in finding.matching]
    for variant in _common_programs(novel):
        if len(known_findings) > limit and variant.multiplier.bits is None:
            continue  # with so many siblings, only a multiplier width is credible, because a device has one
        if added and variant.multiplier != added[0].multiplier:
            continue  # programs with the first multiplier are other names of the first program; others are not needed
        doubt = _reason_for_doubt(variant, novel, known_findings, len(outsiders))
        if doubt is None and all(reproduces(f.source, variant) for f in known_findings[UNKNOWN_PROGRAM_MAX_SIBLINGS:]):
            added.append(variant)
    return {
        number: replace(finding, matching=tuple(dict.fromkeys((*finding.matching, *added))))
        for number, finding in findings.items()
    }


def _common_programs(findings: Sequence[SearchResult]) -> list[Variant]:
    """Return the programs that reproduce all nodes that no known variant reproduces.

    If the search found no common program, the multiplier widths found for any node are tried on all, because a node
    with few deciding elements may have been explained by another program first.
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


def _with_limited_for_siblings(findings: dict[int, SearchResult]) -> dict[int, SearchResult]:
    """Add variants with a limited shift to siblings that they reproduce because the limit has no effect there."""
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


def _with_undoubted_order(
    variant: Variant,
    members: Sequence[Variant],
    findings: Sequence[SearchResult],
    known_findings: Sequence[SearchResult],
) -> tuple[Variant, str | None]:
    """Return a variant, with the reason why it is doubtful, or None if it is not.

    If the variant with another order of operations in its multiplier is beyond doubt, that one is returned instead.

    Args:
        variant: The variant.
        members: All variants that reproduce the nodes.
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
        return _DOUBT_BY_CHANCE.format(variant)
    return (
        None
        if all(reproduces(finding.source, variant) for finding in known_findings[:UNKNOWN_PROGRAM_MAX_SIBLINGS])
        else _DOUBT_BY_SIBLINGS.format(variant)
    )


def _may_be_chance(findings: Sequence[SearchResult], variant: Variant, outsiders: int = 0) -> bool:
    """Return whether a program of no known backend may fit some nodes by chance, because few elements decide.

    Elements count more for multipliers of many bits. Such a multiplier differs from those of known arithmetics only
    next to ties, and any other deviation causes errors elsewhere, so a few elements suffice.
    """
    bits = None if variant.multiplier.shifts else variant.multiplier.bits
    weight = 1 if bits is None else max(bits - FREE_MULTIPLIER_BITS, 1)
    novel = [max(finding.novel, 1) for finding in findings if finding.novel is not None]  # at least one element differs
    return len(novel) == len(findings) and (sum(novel) + outsiders) * weight < UNKNOWN_PROGRAM_MIN_ELEMENTS


def choose_variants_by_kind(
    explained: Sequence[tuple[SearchResult, Sequence[str]]],
) -> tuple[dict[str, str], dict[str, str]]:
    """Choose one variant for all nodes of a kind and types, or one for each branch if no variant fits all nodes.

    Args:
        explained: Results of the explained nodes, with the texts of the variants in their class, simplest first.

    Returns:
        The text of the chosen variant by key of `Arithmetic.variants`. By the same keys, a clause with the number of
            nodes that it does not reproduce, if there are any.
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
                exceptions[key] = f"{exception_count} of {len(nodes)} such nodes use a different arithmetic"
    return chosen_variants, exceptions


def _most_common_variant(nodes: Sequence[Sequence[str]]) -> str:
    """Return the variant that occurs in the classes of most nodes. Ties go to the simplest."""
    votes: dict[str, int] = {}
    for members in nodes:
        for text in members:
            votes[text] = votes.get(text, 0) + 1
    return max(votes, key=votes.__getitem__)
