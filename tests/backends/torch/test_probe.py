"""The probe on PyTorch: its nets compute what those in ONNX's words do, in floating point."""

import numpy as np
import pytest
from sweeps import sweep

from qdebug.backends import load_backend, write_model
from qdebug.probe.dialects import translate_to_pt2e
from qdebug.probe.models import probe_models
from qdebug.probe.run import run_probe
from qdebug.replay import run_graph

pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("torchao", reason="needs the extra torch")

KINDS = ("conv", "linear", "sub", "average_pool", "global_average_pool", "lookup", "softmax", "concat", "reduce_mean")


@pytest.mark.parametrize("model", sweep(probe_models(KINDS), 6), ids=lambda model: model.title)
def test_a_net_gives_the_same_codes_but_for_ties(model, tmp_path):
    said = translate_to_pt2e(model)
    write_model(said.graph, said.constants, tmp_path / "probe.pt2")
    run = load_backend("torch").open(tmp_path / "probe.pt2", options={})
    made = run.plain(dict(zip(run.graph.inputs, said.feed.values(), strict=True)))
    codes = run_graph(model.graph, model.feed, model.constants)
    makers = {node.outputs[0]: node for node in said.graph.nodes}
    assert len(made) == len(codes)
    for real, wanted, name in zip(made.values(), codes.values(), said.graph.outputs, strict=True):
        attrs = makers[name].attrs
        found = real / np.float32(attrs["scale"]) + attrs["zero_point"]
        assert np.abs(found - wanted.reshape(found.shape)).max() < 1.01, name


@pytest.mark.slow
def test_what_is_computed_in_floating_point_is_said_so():
    result = run_probe("torch", kinds=("linear", "quantize", "resize"))
    statuses = {entry.title: entry.status for entry in result.entries}
    assert {status for title, status in statuses.items() if title.startswith(("linear", "resize"))} == {"unfused"}
    assert "steps=inv,even,zp,sat" in next(entry for entry in result.entries if entry.kind == "quantize").variants
    assert result.exit_code == 0
