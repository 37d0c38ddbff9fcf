"""Definitions of metrics are printed from the table that defines them."""

import io

from rich.console import Console

from qdebug.numerics.metric_table import METRICS
from qdebug.present.reports.definitions import definitions_document, definitions_json
from qdebug.present.reports.markdown import markdown
from qdebug.present.reports.terminal import terminal


def test_every_metric_is_defined_in_every_form():
    console = Console(file=io.StringIO(), width=300)
    console.print(terminal(definitions_document()))
    table = console.file.getvalue()
    written = markdown(definitions_document())
    named = {entry["name"]: entry for entry in definitions_json()["metrics"]}
    for spec in METRICS:
        assert spec.name in table
        assert spec.definition in table
        assert f"| `{spec.name}` |" in written
        assert named[spec.name]["definition"] == spec.definition
    assert "values of the reference that the codes cannot represent, and that are clipped at qmin or qmax" in table
