"""Tensors of a GPU: copied behind what makes them, and never seen while a CUDA graph is captured.

Without a GPU the pieces that need one are doubles; with one, the last tests run on it.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.backends.torch import cuda as torch_cuda
from qdebug.backends.torch import record
from qdebug.errors import UsageError
from qdebug.model import Fidelity
from qdebug.running.record import record_run
from qdebug.session import open_recording

torch = pytest.importorskip("torch", reason="needs the extra torch")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch can use")


class OnGpu:
    """A tensor that says that it is on a GPU, and notes what is asked of it."""

    def __init__(self, tensor):
        self.tensor, self.dtype, self.shape = tensor, tensor.dtype, tensor.shape
        self.device = SimpleNamespace(type="cuda")

    def numel(self):
        return self.tensor.numel()

    def element_size(self):
        return self.tensor.element_size()

    def cpu(self):
        return self.tensor.clone()


@pytest.fixture
def calls(monkeypatch):
    """Let a GPU's calls be noted, in order; memory that should be page-locked is plain."""
    noted, empty = [], torch.empty

    class Buffer:
        def __init__(self, plain):
            self.plain = plain

        def numel(self):
            return self.plain.numel()

        def __getitem__(self, part):
            return Buffer(self.plain[part])

        def view(self, *as_what):
            return Buffer(self.plain.view(*as_what))

        def copy_(self, source, *, non_blocking):
            noted.append(f"copy, non_blocking={non_blocking}")
            self.plain.copy_(source.tensor)

    class Event:
        def record(self, stream):
            noted.append(f"record on {stream}")

        def synchronize(self):
            noted.append("synchronize")

    def allocated(size, *, dtype, pin_memory):
        noted.append(f"allocate {size}, pinned={pin_memory}")
        return Buffer(empty(size, dtype=dtype))

    monkeypatch.setattr(torch, "empty", allocated)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the stream in use")
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch_cuda, "_thread_local", SimpleNamespace())
    return noted


def test_a_copy_waits_for_the_stream_and_uses_one_buffer_again(calls):
    one, other = torch.randn(3, 5), torch.randint(-9, 9, (4, 2), dtype=torch.int16)
    assert torch.equal(torch_cuda.on_host(OnGpu(one)).plain, one)
    copy = ["copy, non_blocking=True", "record on the stream in use", "synchronize"]
    assert calls == ["allocate 64, pinned=True", *copy]
    assert torch.equal(torch_cuda.on_host(OnGpu(other)).plain, other)
    assert calls[4:] == copy


def test_what_is_larger_than_the_buffer_may_be_is_copied_by_itself(calls, monkeypatch):
    monkeypatch.setattr(torch_cuda, "_MAX_BUFFER_BYTES", 16)
    large = torch.randn(5)
    assert torch.equal(torch_cuda.on_host(OnGpu(large)), large)
    assert calls == []


def test_a_tensor_on_the_host_is_handed_on_as_it_is():
    tensor = torch.randn(3)
    assert torch_cuda.on_host(tensor) is tensor


def test_a_call_that_is_captured_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    model = torch.nn.ReLU()
    with pytest.raises(UsageError, match="captured into a CUDA graph"), record(model, None):
        model(torch.ones(1))


@pytest.mark.parametrize("newer", [False, True])
def test_a_gpu_and_its_switches_are_told_and_what_pytorch_refuses_is_left_out(monkeypatch, newer):
    """Where the newer switches of precision were set, PyTorch raises for the older ones, and for what it cannot say."""

    class Switches(SimpleNamespace):
        @property
        def allow_tf32(self):
            if newer:
                raise RuntimeError("mix of the legacy and new APIs")
            return True

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU of {device}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    conv = SimpleNamespace(fp32_precision="ieee")
    monkeypatch.setattr(torch.backends, "cudnn", Switches(conv=conv, version=lambda: 91900, deterministic=True))
    monkeypatch.setattr(torch.backends.cuda, "matmul", Switches(fp32_precision="tf32"))
    devices = [torch.device("cpu"), torch.device("cuda", 1)]
    facts = torch_cuda.gpu_facts(devices)
    assert facts["gpu"] == "GPU of cuda:1"
    assert (facts["conv_tf32"], facts["matmul_tf32"]) == ((False, True) if newer else (True, True))
    assert facts["deterministic"] is True
    assert "fp16_reduced_sums" not in facts
    assert torch_cuda.gpu_facts(devices[:1]) == {}


@GPU
@pytest.mark.parametrize("way", ["export", "dispatch"])
def test_a_net_on_a_gpu_is_recorded_as_it_ran(way):
    torch.manual_seed(1)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.5), torch.nn.Conv2d(8, 4, 3)
    model, x = torch.nn.Sequential(*layers).cuda(), torch.randn(2, 3, 32, 32).cuda()
    with record(model, None, way=way) as run, torch.cuda.stream(torch.cuda.Stream()):
        y = model(x)
    recording = run.recording
    assert recording.info.fidelity is Fidelity.BIT_EQUAL
    np.testing.assert_array_equal(recording.load(recording.graph.outputs[0]), y.detach().cpu().numpy())
    assert {node.placement for node in recording.graph.nodes} == {"cuda:0"}
    facts = recording.info.options
    assert facts["gpu"] == torch.cuda.get_device_name()
    assert facts["conv_tf32"] is torch.backends.cudnn.allow_tf32


@GPU
def test_narrow_and_turned_tensors_of_a_gpu_are_copied_bit_for_bit():
    for dtype in (torch.bfloat16, torch.float16, torch.int8, torch.bool):
        tensor = (torch.randn(7, 5, device="cuda") * 3).to(dtype).t()
        assert torch.equal(torch_cuda.on_host(tensor), tensor.cpu())


@GPU
def test_a_copy_waits_for_long_work_on_a_stream_of_its_own():
    large = torch.full((4096, 4096), 1 / 4096, device="cuda")
    one = torch.full((4096, 4096), 3.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        made = one
        for _ in range(200):
            made = made @ large
        assert not torch.cuda.current_stream().query(), "the work is over before it is copied: nothing is tested"
        assert torch.equal(torch_cuda.on_host(made), torch.full((4096, 4096), 3.0))


@GPU
def test_a_program_that_was_exported_on_a_gpu_is_recorded_there(modules, export, tmp_path):
    torch.manual_seed(1)
    x = torch.randn(2, 1, 8, 8)
    path = export(modules.Digits().eval().cuda(), x.cuda(), name="gpu")
    result = record_run(path, backend="torch", inputs={"x": x.numpy()}, out=tmp_path / "gpu.h5")
    recording = open_recording(result.path)
    assert recording.info.fidelity is Fidelity.BIT_EQUAL
    assert {node.placement for node in recording.graph.nodes} == {"cuda:0"}


@GPU
@pytest.mark.slow
def test_a_program_on_a_gpu_is_compiled_by_inductor(modules, export, tmp_path):
    torch.manual_seed(1)
    x = torch.randn(2, 1, 8, 8)
    path = export(modules.Digits().eval().cuda(), x.cuda(), name="gpu")
    options = {"compile": "inductor"}
    result = record_run(path, backend="torch", options=options, inputs={"x": x.numpy()}, out=tmp_path / "gpu.h5")
    recording = open_recording(result.path)
    assert recording.info.fidelity is Fidelity.BIT_EQUAL
    assert recording.info.options["gpu"] == torch.cuda.get_device_name()


@GPU
def test_a_real_capture_is_refused_and_the_gpu_goes_on():
    model, x = torch.nn.Linear(8, 8).cuda(), torch.ones(2, 8, device="cuda")
    plain = model(x)
    graph = torch.cuda.graph(torch.cuda.CUDAGraph())
    with pytest.raises(UsageError, match="captured into a CUDA graph"), record(model, None), graph:
        model(x)
    with record(model, None) as run:
        assert torch.equal(model(x), plain)
    assert run.recording.info.fidelity is Fidelity.BIT_EQUAL


@GPU
def test_what_a_cuda_graph_replays_is_no_empty_success():
    model, x, graph = torch.nn.Linear(8, 8).cuda(), torch.ones(2, 8, device="cuda"), torch.cuda.CUDAGraph()
    model(x)
    with torch.cuda.graph(graph):
        model(x)
    with pytest.raises(UsageError, match="Nothing was recorded"), record(model, None):
        graph.replay()


@GPU
def test_autocast_on_a_gpu_is_recorded_in_its_narrow_type():
    torch.manual_seed(1)
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).cuda(), torch.randn(4, 64).cuda()
    with record(model, None) as run, torch.autocast("cuda", dtype=torch.bfloat16):
        model(x)
    recording = run.recording
    assert recording.info.fidelity is Fidelity.BIT_EQUAL
    assert recording.load(recording.graph.outputs[0]).dtype.name == "bfloat16"
