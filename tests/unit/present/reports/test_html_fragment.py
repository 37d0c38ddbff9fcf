"""What a notebook shows of a comparison."""

from html.parser import HTMLParser

from qdebug.compare.result.result import Status
from qdebug.present.reports.html import diff_fragment


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.names, self.data = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)

    def handle_data(self, data):
        self.data += data


def test_a_notebook_shows_verdict_and_rows(made):
    result = made.result([made.node(0), made.node(1, Status.DIVERGED)], sentence="It diverges.")
    shown = Tags(diff_fragment(result))
    assert shown.names.count("tr") == 3
    assert "DIVERGED It diverges." in shown.data
    assert "conv1" in shown.data


def test_of_a_long_net_the_rows_worth_a_look_are_shown(made):
    nodes = [made.node(i) for i in range(500)]
    nodes[200] = made.node(200, Status.DIVERGED)
    shown = Tags(diff_fragment(made.result(nodes)))
    assert shown.names.count("tr") < 60
    assert "conv200" in shown.data
    assert "hidden" in shown.data


def test_no_name_is_markup(made):
    text = diff_fragment(made.result([made.node(0, node="<script>alert(1)</script>")], sentence="<b>"))
    assert "<script" not in text
    assert set(Tags(text).names) <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}


def test_the_first_divergence_is_in_bold_and_limits_are_said_as_python_takes_them(made):
    nodes = [made.node(0), made.node(1, Status.DIVERGED), made.node(2, Status.DIVERGED)]
    text = diff_fragment(made.result(nodes))
    assert "<td><b>conv1</b></td>" in text
    assert "<td><b>conv2</b></td>" not in text
    assert "--min-sqnr" not in text
