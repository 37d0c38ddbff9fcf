"""The page: it parses, asks for nothing, lets no name in as markup, and stays small for a large net."""

import base64
import hashlib
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.limits import Acknowledgement
from qdebug.compare.result.result import SampleResult, Status
from qdebug.numerics.profile import profile_tensor
from qdebug.present.detail import NodeDetail
from qdebug.present.reports.html import DETAILS_SHOWN, diff_html, worth_detail

VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """A page taken apart: tags with their attributes, text by tag, and whether every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    def text(self, *tags):
        return "\n".join(data for tag, data in self.texts if tag in tags)


@pytest.fixture
def nodes(made):
    samples = tuple(SampleResult(sample=s, max_abs=0.1, sqnr_db=10.0 * s, status=Status.WITHIN) for s in range(3))
    return [
        made.node(0, Status.IDENTICAL, metrics=made.stats(sqnr_db=math.inf, mismatches=0)),
        made.node(1, introduced=made.stats(rel_l2=0.01), propagated=made.stats(rel_l2=0.02), samples=samples),
        made.node(2, Status.DIVERGED),
        made.node(3, Status.NONFINITE, metrics=made.stats(sqnr_db=math.nan, nonfinite=2)),
        made.node(4, Status.INCOMPARABLE, reason="another shape", samples=()),
        made.node(5, Status.DIVERGED, acknowledged=Acknowledgement(node="conv5", reason="known")),
    ]


def test_the_page_is_well_formed_and_says_what_the_result_says(nodes, made):
    left_out = [made.unmatched(), made.unmatched("gone", kind=UnmatchedKind.LOST, reason="nobody has it")]
    page = Page(diff_html({"int8.h5": made.result(nodes, left_out=left_out, sentence="It diverges.")}))
    assert page.open == []
    assert "It diverges." in page.text("p")
    assert "FAIL" in page.text("span")
    assert "LOST backend gone: nobody has it" in page.text("dd")
    assert "another shape" in page.text("small")
    assert "acknowledged: known" in page.text("small")
    assert len([a for a in page.named("tr") if a.get("id", "").startswith("b0-")]) == len(nodes)
    assert [a["id"] for a in page.named("tr") if "first" in a.get("class", "")] == ["b0-2"]


def test_nothing_is_asked_of_the_network_and_only_our_script_and_style_may_run(nodes, made):
    text = diff_html({"a": made.result(nodes)})
    page = Page(text)
    (policy,) = [a["content"] for a in page.named("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert not re.search(r"https?:|url\(|@import|fetch|XMLHttp|innerHTML|eval", inline)
    known = {name for _, attrs in page.tags for name in attrs}
    assert not {name for name in known if name.startswith("on") or name in {"style", "src", "srcset", "action"}}
    assert all(a["href"].startswith("#b0-") for a in page.named("a"))
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "form", "base"}


def test_every_link_leads_somewhere(nodes, made):
    result = made.result(nodes)
    details = [NodeDetail(result=node) for node in worth_detail(result)]
    page = Page(diff_html({"a": result, "b": result}, {"a": details, "b": details}))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for a in page.named("a")}
    assert targets
    assert targets <= set(ids)


def test_every_node_is_a_dot_whatever_its_number_and_its_row_sorts_by_the_unrounded_value(nodes, made):
    page = Page(diff_html({"a": made.result(nodes)}))
    dots = [a["class"] for a in page.named("circle")]
    assert dots == [
        "dot identical",
        "dot within",
        "dot diverged",
        "dot nonfinite",
        "dot incomparable",
        "dot diverged acknowledged",
    ]
    sorts = [a["data-sort"] for a in page.named("td") if "data-sort" in a]
    assert {"Infinity", "NaN", ""} <= set(sorts)
    assert any(value == "0.0316" for value in sorts)


def test_what_fails_comes_first_in_the_table_the_rest_in_topological_order(nodes, made):
    page = Page(diff_html({"a": made.result(nodes)}))
    rows = [(a["id"], "deciding" in a.get("class", "")) for a in page.named("tr") if "id" in a]
    about, rest = [row for row, wrong in rows if wrong], [row for row, wrong in rows if not wrong]
    assert about == ["b0-2", "b0-3", "b0-4"]
    assert rest == ["b0-0", "b0-1", "b0-5"]
    assert rows == [*((row, True) for row in about), *((row, False) for row in rest)]
    assert "only the 3 nodes that fail" in page.text("label")
    assert 'type="checkbox"' not in diff_html({"a": made.result(nodes[:2])})


def test_columns_that_say_nothing_are_left_out(made):
    plain = Page(diff_html({"a": made.result([made.node(0)])})).text("th")
    assert "introduced" not in plain
    known = Page(diff_html({"a": made.result([made.node(0, introduced=made.stats())])})).text("th")
    assert "introduced" in known


def test_nodes_in_full_are_what_the_verdict_is_about_then_the_worst(made):
    nodes = [made.node(i, metrics=made.stats(sqnr_db=100.0 - i)) for i in range(40)]
    nodes[3] = made.node(3, Status.DIVERGED, metrics=made.stats(sqnr_db=90.0))
    nodes[9] = made.node(9, Status.DIVERGED, metrics=made.stats(sqnr_db=5.0))
    nodes[11] = made.node(11, Status.IDENTICAL)
    chosen = worth_detail(made.result(nodes))
    assert [node.index for node in chosen[:3]] == [3, 9, 39]
    assert len(chosen) == DETAILS_SHOWN


def test_one_node_in_full_is_open_and_links_reach_the_inside_of_the_others(made):
    result = made.result([made.node(0, Status.DIVERGED), made.node(1, Status.DIVERGED)])
    page = Page(diff_html({"a": result}, {"a": [NodeDetail(result=node) for node in result.nodes]}))
    ours = [a for a in page.named("details") if "name" in a]
    assert [("open" in a, a["name"], "id" in a) for a in ours] == [(True, "b0-node", False), (False, "b0-node", False)]
    assert {"b0-d0", "b0-d1"} <= {a.get("id") for a in page.named("div")}


def test_a_node_in_full_has_histograms_channels_and_worst_elements(made):
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(1, 300, 4)).astype(np.float32)
    backend = reference.copy()
    backend[0, 7] += 1
    profile = profile_tensor(reference, backend, axis=1)
    detail = NodeDetail(result=made.node(2, Status.DIVERGED), profile=profile, worst=profile.worst)
    page = Page(diff_html({"a": made.result([made.node(2, Status.DIVERGED)])}, {"a": [detail]}))
    assert page.open == []
    titles = page.text("title")
    assert "SQNR by channel along axis 1, stronger is worse" in titles
    assert "the worst of channels 6 to 7: SQNR" in titles
    assert "Values: the reference as bars" in titles
    assert "Absolute differences by power of two" in titles
    assert "Worst elements" in page.text("h3")


def test_two_thousand_nodes_with_long_names_stay_below_two_megabytes(made):
    nodes = [
        made.node(i, node=f"model/layer{i}/" + "x" * 60, tensor=f"model/layer{i}/out/" + "y" * 60) for i in range(2000)
    ]
    nodes[1000] = made.node(1000, Status.DIVERGED)
    text = diff_html({"a": made.result(nodes)})
    assert len(text.encode()) < 2_000_000
    assert len(Page(text).named("tr")) > 2000


def test_the_same_result_gives_the_same_bytes(nodes, made):
    assert diff_html({"a": made.result(nodes)}) == diff_html({"a": made.result(nodes)})


def test_no_node_and_no_error_are_said_too(made):
    assert "No node was compared." in diff_html({"a": made.result([])})
    same = made.node(0, Status.IDENTICAL, metrics=made.stats(sqnr_db=math.inf, mismatches=0))
    assert "Every tensor is identical in every sample." in diff_html({"a": made.result([same])})


def test_of_many_samples_the_worst_are_drawn_and_that_is_said(made):
    samples = tuple(
        SampleResult(sample=s, max_abs=1.0, sqnr_db=5.0 if s == 77 else 50.0, status=Status.WITHIN) for s in range(200)
    )
    text = diff_html({"a": made.result([made.node(0, samples=samples)])})
    assert "64 of 200 samples (the worst)" in text
    assert "sample 77: SQNR 5.00 dB" in text


def test_the_page_of_several_backends_begins_with_their_verdicts_and_leads_to_each(made):
    bad = made.result([made.node(0), made.node(1, Status.DIVERGED)])
    text = diff_html({"good.h5": made.result([made.node(0)]), "bad.h5": bad})
    assert text.index('href="#b1-"') < text.index("SQNR in dB, backend beside backend")
    assert 'id="b0-"' in text
    assert 'id="b1-"' in text
    assert "first at conv1" in text
    assert 'href="#b1-1">Show its row.' in text
    assert 'href="#b0-0">Show its row.' not in text


def test_acknowledged_nodes_stand_at_the_top_too(made):
    known = Acknowledgement(node="conv0", reason="a table of 256 entries")
    text = diff_html({"a.h5": made.result([made.node(0, Status.DIVERGED, acknowledged=known)])})
    assert "<li>acknowledged #0 conv0: a table of 256 entries</li>" in text
    assert text.count("a table of 256 entries") == 2
