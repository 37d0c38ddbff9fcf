"""The page in a browser: it fits a phone, and what needs no script works without; skipped where there is no Chromium.

The page is opened inside another one, which measures it from outside: the page's own policy stays in force.
"""

import json
import re
import shutil
import subprocess
from html import escape, unescape

import numpy as np
import pytest

from qdebug.compare.result.result import Status
from qdebug.numerics.profile import profile_tensor
from qdebug.present.detail import NodeDetail
from qdebug.present.reports.html import diff_html, worth_detail
from qdebug.present.surroundings import Neighbour, NeighbourEdge, Surroundings

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")

DRIVER = """
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const seen = (page) => [...page.querySelectorAll("table.sortable tbody tr")].filter((row) => row.offsetHeight > 0);
const measure = (page) => [page.documentElement.scrollWidth, page.documentElement.clientWidth];
addEventListener("load", async () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument;
    const facts = (found[frame.id] = { width: measure(page), before: seen(page).length });
    const boxes = [".beside > section", ".pane"].map((name) => page.querySelector(name).getBoundingClientRect());
    facts.beside = boxes[1].left >= boxes[0].right;
    page.querySelector(".only").click();
    facts.only = seen(page).map((row) => row.id);
    page.querySelector(".only").click();
    // A click would leave a page that has no address of its own.
    frame.contentWindow.location.hash = page.querySelector('a[href="#b0-d8"]').hash;
    await wait(200);
    facts.open = [...page.querySelectorAll(".pane details")].filter((each) => each.open).map((each) => each.innerText);
    const search = page.querySelector('input[type="search"]');
    facts.search = search !== null;
    if (search) {
      search.value = "CONV1 within";
      search.dispatchEvent(new Event("input"));
      facts.filtered = seen(page).map((row) => row.id);
      search.value = "";
      search.dispatchEvent(new Event("input"));
      page.querySelector("thead button").click();
      facts.sorted = seen(page).map((row) => row.id);
    }
  }
  document.body.textContent = JSON.stringify(found);
});
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Return what the driver saw of the page: on a phone, on a wide screen, on a wide screen without script."""
    from tests.unit import conftest as made

    rng = np.random.default_rng(0)
    nodes = [made.node(i, node=f"conv{i}/{'a' * 120}<script>document.title=1</script>") for i in range(14)]
    for wrong in (8, 5):
        nodes[wrong] = made.node(wrong, Status.DIVERGED, reason="its weight differs " * 20, op="O" * 90)
    result = made.result(nodes, sentence="It diverges at 'x" + "y" * 300 + "'.")
    reference = rng.normal(size=(1, 40, 9)).astype(np.float32)
    around = Surroundings(
        nodes=tuple(Neighbour(name=name * 90, op="Conv", level=level, result=None) for level, name in enumerate("abc")),
        edges=(NeighbourEdge(source=0, target=1, tensor="t", error=0.1),),
        left_out=(0, 0),
    )
    profile = profile_tensor(reference, reference + 1, axis=1)
    details = [
        NodeDetail(result=node, profile=profile, worst=profile.worst, around=around) for node in worth_detail(result)
    ]
    page = escape(diff_html({"a" * 100 + ".h5": result}, {"a" * 100 + ".h5": details}))
    frames = [
        f'<iframe id="{name}" style="width:{width}px;height:800px" {more} srcdoc="{page}"></iframe>'
        for name, width, more in (
            ("phone", 360, ""),
            ("wide", 1400, ""),
            ("plain", 1400, 'sandbox="allow-same-origin"'),
        )
    ]
    path = tmp_path_factory.mktemp("page") / "driver.html"
    path.write_text(f"<!DOCTYPE html><body>{''.join(frames)}<script>{DRIVER}</script>", encoding="utf-8")
    profile_folder = tmp_path_factory.mktemp("profile")
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile_folder}"),
            *("--virtual-time-budget=20000", "--dump-dom", path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(unescape(re.search(r"<body>(\{.*\})</body>", done.stdout, re.DOTALL)[1]))


def test_nothing_is_wider_than_the_screen(opened):
    for facts in opened.values():
        assert facts["width"][0] <= facts["width"][1]


def test_the_node_stands_beside_the_table_where_there_is_room(opened):
    assert [opened[name]["beside"] for name in ("phone", "wide", "plain")] == [False, True, True]


def test_what_fails_alone_and_a_node_in_full_need_no_script(opened):
    assert [facts["search"] for facts in opened.values()] == [True, True, False]
    for facts in opened.values():
        assert facts["before"] == 14
        assert facts["only"] == ["b0-5", "b0-8"]
        (shown,) = facts["open"]
        assert shown.startswith("#8 ")


def test_words_filter_and_headings_sort(opened):
    for name in ("phone", "wide"):
        assert opened[name]["filtered"] == ["b0-1", "b0-10", "b0-11", "b0-12", "b0-13"]
        assert opened[name]["sorted"] == [f"b0-{at}" for at in range(14)]
