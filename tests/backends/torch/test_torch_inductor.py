"""Programs compiled by inductor: integer operators of oneDNN and fused kernels, seen by the codes between them."""

import platform
import shutil

import numpy as np
import pytest
from ml_dtypes import bfloat16

import qdebug
from qdebug.backends import load_backend, write_model
from qdebug.errors import BackendError, UsageError
from qdebug.probe.dialects import translate_to_pt2e
from qdebug.probe.models import probe_models
from qdebug.probe.run import run_probe
from qdebug.running.record import record_run

torch = pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("torchao", reason="needs the extra torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of PyTorch, while it is imported and while it exports
    pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="these integer operators are of x86"),
]
COMPILED = {"compile": "inductor"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Quantize a small net for x86, as torchao does it, and save it."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        *(torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(2)),
        *(torch.nn.Conv2d(8, 8, 1), torch.nn.Flatten(), torch.nn.Linear(128, 10)),
    ).eval()
    x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(net, (x,)).module(), quantizer)
    prepared(x)
    path = tmp_path_factory.mktemp("inductor") / "net.pt2"
    torch.export.save(torch.export.export(convert_pt2e(prepared), (x,)), path)
    return path, x.numpy()


def test_codes_between_kernels_are_recorded_and_explained(program, tmp_path):
    path, x = program
    summary = record_run(path, backend="torch", options=COMPILED, inputs={"input": x}, out=tmp_path / "run.h5")
    assert summary.fidelity == "bit_equal"
    recording = qdebug.open_recording(tmp_path / "run.h5")
    assert recording.info.options["compile"] == "inductor"
    nodes = {node.op.split(".")[1]: node for node in recording.graph.nodes}
    assert set(nodes) >= {"quantize_per_tensor", "conv2d", "avg_pool2d", "linear"}
    first = nodes["conv2d"]
    assert {recording.load(name).dtype.name for name in first.inputs[:2]} == {"uint8", "int8"}
    assert {node.placement for node in recording.graph.nodes} == {"inductor"}
    found = [node for node in qdebug.explain(recording).nodes if node.on_codes]
    assert len(found) >= 5
    assert {node.status for node in found} == {"explained"}


def test_an_operator_that_onednn_does_not_take_is_one_sentence(tmp_path):
    """Its convolutions read uint8 alone; PyTorch's compiler reports that as an error of its own."""
    said = translate_to_pt2e(next(model for model in probe_models(["conv"]) if model.title == "conv int8 x int8"))
    write_model(said.graph, said.constants, tmp_path / "int8.pt2")
    run = load_backend("torch").open(tmp_path / "int8.pt2", options=COMPILED)
    with pytest.raises(BackendError, match="should have uint8"):
        run.plain(dict(zip(run.graph.inputs, said.feed.values(), strict=True)))


def test_programs_with_states_are_refused(tmp_path):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    torch.export.save(torch.export.export(Counting(), (torch.zeros(2),)), tmp_path / "net.pt2")
    with pytest.raises(BackendError, match="changes tensors in place"):
        load_backend("torch").open(tmp_path / "net.pt2", options=COMPILED)
    with pytest.raises(UsageError, match="'compile'"):
        load_backend("torch").open(tmp_path / "net.pt2", options={"compile": "gcc"})


def test_casts_between_fused_operators_are_kept_on_request(tmp_path):
    class Gate(torch.nn.Module):
        def forward(self, a, b):
            return a * b + a

    arguments = tuple(torch.randn(64, 128, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
    feed = {name: values.to(torch.bfloat16) for name, values in zip("ab", arguments, strict=True)}
    torch.export.save(torch.export.export(Gate(), tuple(feed.values())), tmp_path / "net.pt2")
    sums = {}
    for name, options in (
        ("eager", {}),
        ("fused", COMPILED),
        ("emulated", {**COMPILED, "enable": "emulate_precision_casts"}),
    ):
        path = tmp_path / f"{name}.h5"
        arrays = {name: values.view(torch.uint16).numpy().view(bfloat16) for name, values in feed.items()}
        assert record_run(tmp_path / "net.pt2", backend="torch", options=options, inputs=arrays, out=path)
        recording = qdebug.open_recording(path)
        assert recording.info.options.get("enable") == options.get("enable")
        (explanation,) = (node for node in qdebug.explain(recording).nodes if node.op.startswith("aten.add"))
        assert ("read before its rounding" in explanation.words) is (name == "fused")
        sums[name] = recording.load(recording.graph.outputs[0])
    assert np.array_equal(sums["emulated"], sums["eager"])
    assert not np.array_equal(sums["fused"], sums["eager"])


def test_the_probe_names_what_a_fused_kernel_computes():
    (entry,) = (each for each in run_probe("torch", options=COMPILED, kinds=["quantize"]).entries[1:])
    assert entry.status == "explained"
    assert entry.variants == ("steps=inv,even,zp,sat",)
