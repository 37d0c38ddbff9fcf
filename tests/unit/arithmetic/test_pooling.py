"""CodesOfTensor of sibling nodes narrows what reproduces each of them."""

from __future__ import annotations

import pytest

from qdebug.arithmetic.pooling import choose_variants_by_kind, pool
from qdebug.arithmetic.presets import KnownRuntime, known_presets
from qdebug.arithmetic.search import SearchResult
from qdebug.arithmetic.units import UnitSource
from qdebug.model import Node, RunInfo
from qdebug.replay.variant import parse_variant

A, B, C = (parse_variant(text) for text in ("", "steps=mul,away,zp,sat", "steps=mul,zp,even,sat"))


def finding(*matching, kind="conv", dtypes=("uint8", "int8", "uint8"), per_channel=False, novel=None, branch=""):
    node = Node(name="n", op="Conv")
    source = UnitSource(recording=None, node=node, computed=node, tensor="y", places=())
    return SearchResult(
        source=source,
        kind=kind,
        dtypes=dtypes,
        per_channel=per_channel,
        elements=9,
        matching=matching,
        novel=novel,
        branch=branch,
    )


def test_siblings_leave_what_they_share_in_the_order_of_simplicity():
    found = pool({0: finding(A, B, C), 1: finding(B, C), 2: finding(C, B)})
    assert [found[number].variants for number in range(3)] == [(B, C)] * 3
    assert found[0].siblings == 3
    assert found[0].reason is None


@pytest.mark.parametrize(
    "other", [{"kind": "linear"}, {"dtypes": ("int8", "int8", "int8")}, {"per_channel": True}], ids=str
)
def test_only_nodes_of_one_kind_and_types_are_siblings(other):
    found = pool({0: finding(A, B), 1: finding(B, **other)})
    assert found[0].variants == (A, B)
    assert found[0].siblings == 1


def test_two_kernels_for_one_kind_make_two_classes():
    found = pool({0: finding(A), 1: finding(A, B), 2: finding(C), 3: finding(A)})
    assert found[0].variants == found[1].variants == (A,)
    assert found[2].variants == (C,)
    assert found[2].siblings == 1
    assert "use a different arithmetic" in found[2].reason


FLOOR = parse_variant("steps=mul,floor,zp,sat")
"""What no known backend computes."""


def test_what_no_backend_computes_is_not_believed_of_one_node_alone():
    found = pool({0: finding(FLOOR), 1: finding(A), 2: finding(A)})
    assert found[0].doubt.startswith("an arithmetic that no known backend uses fits (steps=mul,floor,zp,sat)")
    assert found[0].fits == FLOOR
    assert found[0].usual == found[1].usual == A
    assert found[1].doubt is None
    twice = pool({0: finding(FLOOR), 1: finding(A), 2: finding(FLOOR)})
    assert twice[0].doubt is twice[1].doubt is None  # two nodes confirm each other, and the other one has a known way
    lone = pool({0: finding(FLOOR)})
    assert lone[0].doubt == found[0].doubt  # there is no sibling that could confirm it
    assert lone[0].fits == FLOOR
    assert pool({0: finding(FLOOR), 1: finding(B), 2: finding(B)})[0].usual == B


def test_of_as_many_nodes_what_a_backend_computes_comes_first_and_the_runtimes_own_before_that():
    assert pool({0: finding(FLOOR), 1: finding(A)})[0].doubt is not None
    both = finding(A, B), finding(A, B)
    measured = KnownRuntime(RunInfo(backend="made-up"))
    assert pool(dict(enumerate(both)), measured)[0].usual == A
    reference = known_presets()["litert-2.3.0-reference-avx2"]
    own = reference.variants["conv:int8,int8,int8"]
    run = RunInfo(
        backend="litert", versions={"ai-edge-litert": "2.3.0"}, options={"kernels": "reference"}, cpu_flags=("avx2",)
    )
    types = ("int8", "int8", "int8")
    found = pool({0: finding(A, own, dtypes=types), 1: finding(A, own, dtypes=types)}, KnownRuntime(run))
    assert found[0].usual == own
    assert pool({0: finding(dtypes=types)}, KnownRuntime(run))[0].usual == own  # nothing else is known of it


def test_an_unexplained_node_takes_no_part_and_is_told_the_usual_way():
    found = pool({0: finding(A, B), 1: finding()})
    assert found[1].variants == ()
    assert found[1].usual == A
    assert found[0].variants == (A, B)


def test_nothing_explained_leaves_nothing_usual():
    assert pool({0: finding(), 1: finding()})[0].usual is None
    assert pool({}) == {}


def test_a_program_that_nobody_is_known_to_use_needs_evidence():
    """One of thousands fits a few elements by chance; several nodes add up."""
    assert "too few elements" in pool({0: finding(A, novel=5)})[0].doubt
    assert pool({0: finding(A, novel=5)})[0].usual is None
    assert pool({0: finding(A, novel=50)})[0].doubt is None
    assert pool({number: finding(A, novel=5) for number in range(9)})[3].doubt is None
    assert pool({0: finding(A)})[0].doubt is None


@pytest.mark.parametrize("fits", [True, False])
def test_such_a_program_must_reproduce_what_known_ones_do(monkeypatch, fits):
    monkeypatch.setattr("qdebug.arithmetic.pooling.reproduces", lambda *_: fits)
    found = pool({0: finding(A), 1: finding(C, novel=500), 2: finding(C, novel=500), 3: finding(C, novel=500)})
    assert (found[1].doubt is None) == fits
    assert found[0].doubt is None
    if not fits:
        assert "a known arithmetic reproduces its siblings" in found[1].doubt
        assert (found[0].reason, found[1].usual or A) == (None, A)


def test_one_program_for_all_siblings_is_one_kernel_and_not_two(monkeypatch):
    """A known variant that happens to reproduce some of the nodes does not make them another kernel's."""
    monkeypatch.setattr("qdebug.arithmetic.pooling.reproduces", lambda *_: True)
    found = pool({0: finding(A), 1: finding(C, novel=500), 2: finding(A, B)})
    assert [found[number].variants for number in range(3)] == [(C,)] * 3
    assert {found[number].siblings for number in range(3)} == {3}
    assert {found[number].reason for number in range(3)} == {None}
    chance = pool({0: finding(A), 1: finding(C, novel=5), 2: finding(A, B)})
    assert chance[0].variants == (A,)
    assert "too few elements" in chance[1].doubt


def test_functions_are_no_siblings_and_branches_of_a_convolution_are():
    found = pool({0: finding(A, kind="lookup", branch="Sigmoid"), 1: finding(B, kind="lookup", branch="Tanh")})
    assert (found[0].siblings, found[1].siblings) == (1, 1)
    assert (found[0].reason, found[1].reason) == (None, None)
    found = pool({0: finding(A, B), 1: finding(B, branch="depthwise")})
    assert found[0].variants == found[1].variants == (B,)


TYPES = "uint8,int8,uint8"


def stands(*nodes):
    """Choose for nodes given as a branch and the class that was found."""
    return choose_variants_by_kind([(finding(branch=branch), members) for branch, *members in nodes])


def test_one_variant_stands_for_all_branches_that_it_reproduces():
    assert stands(("", "a", "b"), ("depthwise", "b", "c")) == ({f"conv:{TYPES}": "b"}, {})


def test_branches_that_share_none_have_one_each():
    chosen, exceptions = stands(("depthwise", "c"), ("", "a", "b"), ("", "b"), ("transposed", "b", "d"))
    assert chosen == {f"conv:{TYPES}": "b", f"conv.depthwise:{TYPES}": "c"}
    assert exceptions == {}


def test_what_the_chosen_variant_does_not_reproduce_is_counted():
    chosen, exceptions = stands(("", "a"), ("", "b", "a"), ("", "c"))
    assert chosen == {f"conv:{TYPES}": "a"}
    assert exceptions == {f"conv:{TYPES}": "1 of 3 such nodes use a different arithmetic"}


def test_what_another_processor_computes_by_is_not_what_a_wrong_node_is_held_against():
    """Sums of a processor without VNNI saturate; one with it, whose node is wrong, is not held against them."""

    def run(flag):
        options = {"opt": "all"}
        return RunInfo(backend="onnxruntime", versions={"onnxruntime": "1.32.0"}, options=options, cpu_flags=(flag,))

    own, other = (pool({0: finding()}, KnownRuntime(run(flag)))[0].usual for flag in ("avx2", "avx512_vnni"))
    assert "pairsat16" in str(own)
    assert other is None


def test_a_width_of_many_bits_that_fits_all_siblings_is_one_for_the_chip(monkeypatch):
    width = parse_variant("m=q21:xw/y steps=mul,shr.up,zp,sat")
    monkeypatch.setattr("qdebug.arithmetic.pooling.reproduces", lambda source, variant: variant == width)
    usual = {number: finding(A) for number in range(12)}
    odd = {20: finding(B), 21: finding(C)}  # which the usual variant does not reproduce
    found = pool({**usual, **odd, 30: finding(width, novel=1)})
    assert {answer.members for answer in found.values()} == {(width,)}
    assert all(answer.doubt is None for answer in found.values())
    alone = pool({**usual, 30: finding(width, novel=1)})  # one element in all may be chance
    assert "too few elements" in alone[30].doubt
    assert alone[0].members == (A,)
