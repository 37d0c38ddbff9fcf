"""Modules recorded while they are called: by torch.export or by a dispatch mode, without a change to what they do."""

import warnings

import numpy as np
import pytest

import qdebug
from qdebug.backends.torch import record
from qdebug.errors import BackendError, UsageError
from qdebug.model import Fidelity

torch = pytest.importorskip("torch", reason="needs the extra torch")
nn = torch.nn

WAYS = pytest.mark.parametrize("way", ["export", "dispatch"])


def recorded(model, *args, times=1, **options):
    with record(model, None, **options) as run:
        for _ in range(times):
            model(*args)
    return run.recording


@WAYS
def test_no_tensor_changes_after_it_was_recorded(way, overwriting):
    model, plain, x = overwriting
    ours, theirs = recorded(model, x, way=way), recorded(plain, x, way=way)
    assert ours.info.fidelity is Fidelity.BIT_EQUAL
    names = [f"{kind}.{at}" for kind in ("convs", "norms") for at in range(3)] + [f"relu_{at}" for at in range(1, 6)]
    for name in names:
        np.testing.assert_array_equal(ours.load(name), theirs.load(name), err_msg=name)


def test_what_is_read_through_a_view_after_it_was_written_is_recorded_anew(overwriting):
    model, _, x = overwriting
    ours = recorded(model, x, way="dispatch")
    assert {node.placement for node in ours.graph.nodes} == {"cpu"}
    changed = ours.graph.producer("relu_5.changed")
    assert (changed.op, changed.inputs) == ("changed in place", ("relu_5", "mul"))
    before, after = ours.load("relu_5"), ours.load("relu_5.changed")
    np.testing.assert_array_equal(after[:, 0], before[:, 0] * 2)
    np.testing.assert_array_equal(after[:, 1:], before[:, 1:])
    assert ours.graph.consumers("relu_5.changed")


@WAYS
def test_the_module_is_left_as_its_call_leaves_it(way):
    torch.manual_seed(3)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), torch.randn(8, 4)
    twin = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    twin.load_state_dict(model.state_dict())
    torch.manual_seed(4)
    wanted = [twin(x), twin(x), torch.rand(1)]
    torch.manual_seed(4)
    with record(model, None, way=way) as run:
        found = [model(x), model(x)]
    found.append(torch.rand(1))
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert all(torch.equal(held, twin.state_dict()[name]) for name, held in model.state_dict().items())
    assert (run.recording.info.fidelity, run.recording.samples) == (Fidelity.BIT_EQUAL, 2)
    assert not model._forward_hooks


@WAYS
def test_calls_are_samples_or_steps(way, overwriting):
    model, _, x = overwriting
    assert recorded(model, x, way=way, times=2).samples == 2
    ours = recorded(model, x, way=way, times=2, steps=True)
    assert (ours.samples, ours.steps) == (1, 2)
    assert [ours.load("calls", 0, step).item() for step in range(2)] == [2, 3]


def test_both_ways_record_the_same(transformer):
    model, words = transformer
    result = qdebug.diff(recorded(model(), words), recorded(model(), words, way="dispatch"))
    assert (result.status, len(result.nodes)) == ("identical", 39)
    assert all(node.arithmetic is not None for node in result.nodes[1:])


class Branching(nn.Module):
    """Control flow that depends on data, in Python."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


def test_what_does_not_export_is_dispatched_and_the_recording_says_why(capfd):
    ours = recorded(Branching(), torch.ones(2, 4))
    assert "torch.export refused it" in ours.info.options["way"]
    assert ours.info.fidelity is Fidelity.BIT_EQUAL
    assert ours.graph.producer("layer").inputs == ("x", "layer.weight", "layer.bias")
    assert capfd.readouterr() == ("", "")
    with pytest.raises(BackendError, match=r"torch\.export refused the model"):
        recorded(Branching(), torch.ones(2, 4), way="export")


class Choosing(nn.Module):
    """Control flow of PyTorch's own."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)) + 1


def test_bodies_of_control_flow_are_listed():
    ours = recorded(Choosing(), torch.ones(2))
    assert ours.graph.producer("cond").inputs == ("gt", "x")
    assert dict(ours.info.skipped) == {"cond:body": "what runs inside 'cond' is not recorded"}


def test_casts_of_autocast_are_seen():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).eval()
    with torch.autocast("cpu", torch.bfloat16):
        ours = recorded(model, torch.ones(2, 4))
    assert "autocast is on" in ours.info.options["way"]
    assert ours.info.fidelity is Fidelity.BIT_EQUAL
    assert [ours.load(name).dtype.name for name in ("0", "1")] == ["bfloat16", "bfloat16"]
    data, weight, _ = ours.graph.producer("0").inputs
    assert [ours.load(name).dtype.name for name in (data, weight)] == ["bfloat16"] * 2


@WAYS
def test_arguments_of_all_kinds(way):
    class Kinds(nn.Module):
        def forward(self, parts, *, scale=1.0, named=None):
            return {"y": parts[0] * scale + parts[1], "z": named["k"] + 1, "none": None, "number": 3, "x": parts[0]}

    model, x = Kinds(), torch.ones(2, 2)
    with record(model, None, way=way) as run:
        model([x, x + 1], named={"k": x}, scale=2.0)
    assert run.recording.graph.inputs == ("parts_0", "parts_1", "named_k") or way == "dispatch"
    assert run.recording.graph.outputs == ("add", "add_1", "parts_0")
    assert run.recording.info.fidelity is Fidelity.BIT_EQUAL


def test_a_compiled_module_is_refused_but_for_what_it_exposes():
    plain, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
    held = nn.Sequential(torch.compile(plain, backend="eager"))
    own = nn.Linear(4, 4)
    own.compile(backend="eager")
    for model, title in (
        (torch.compile(plain, backend="eager"), "The model"),
        (held, "Module '0'"),
        (own, "The model"),
    ):
        with pytest.raises(UsageError, match=f"{title} is compiled") as error:
            recorded(model, x)
        assert "_orig_mod" in error.value.hint
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecations inside PyTorch
        ours = recorded(torch.compile(plain, backend="eager"), x, taps="outputs")
    assert ours.names == ("input_0", "output_0")
    assert ours.info.fidelity is Fidelity.BIT_EQUAL
    assert ours.info.options["note"] == "nothing inside the kernels that torch.compile made is recorded"


def test_blocks_that_cannot_be_recorded_say_why():
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    with pytest.raises(UsageError, match="was not called"), record(model, None):
        pass
    with pytest.raises(UsageError, match=r"expected a torch\.nn\.Module"):
        record(torch.relu, None)
    with pytest.raises(UsageError, match="way is 'fast'"):
        record(model, None, way="fast")
    with record(model, None):
        model(x)
        with pytest.raises(BackendError, match=r"has shape \[3, 4\]; the first call had \[2, 4\]"):
            model(torch.ones(3, 4))
    with record(model, None):
        model(x)
        with torch.no_grad():
            model.weight.add_(1)
        with pytest.raises(BackendError, match="weights of the model changed"):
            model(x)
    with pytest.raises(RuntimeError, match="mat1 and mat2"), record(model, None):
        model(torch.ones(2, 5))


def test_what_numpy_has_no_elements_for_is_listed(tmp_path):
    class Sparse(nn.Module):
        def forward(self, x):
            return torch.sparse.mm(x.to_sparse(), x)

    model = Sparse()
    with record(model, tmp_path / "run.h5", way="dispatch"):
        model(torch.eye(2))
    ours = qdebug.open_recording(tmp_path / "run.h5")
    assert dict(ours.info.skipped)["to_sparse"] == "its layout is sparse_coo"
