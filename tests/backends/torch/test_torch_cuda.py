"""Tensors of a GPU: copied behind what makes them, and never seen while a CUDA graph is captured.

Without a GPU the pieces that need one are doubles; with one, the last tests run on it.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.backends import torch_cuda
from qdebug.backends.torch import record
from qdebug.errors import UsageError
from qdebug.model import Fidelity

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
    monkeypatch.setattr(torch_cuda, "_held", SimpleNamespace())
    return noted


def test_a_copy_waits_for_the_stream_and_uses_one_buffer_again(calls):
    one, other = torch.randn(3, 5), torch.randint(-9, 9, (4, 2), dtype=torch.int16)
    assert torch.equal(torch_cuda.on_host(OnGpu(one)).plain, one)
    copy = ["copy, non_blocking=True", "record on the stream in use", "synchronize"]
    assert calls == ["allocate 64, pinned=True", *copy]
    assert torch.equal(torch_cuda.on_host(OnGpu(other)).plain, other)
    assert calls[4:] == copy


def test_what_is_larger_than_the_buffer_may_be_is_copied_by_itself(calls, monkeypatch):
    monkeypatch.setattr(torch_cuda, "_MOST_BYTES", 16)
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


@GPU
def test_narrow_and_turned_tensors_of_a_gpu_are_copied_bit_for_bit():
    for dtype in (torch.bfloat16, torch.float16, torch.int8, torch.bool):
        tensor = (torch.randn(7, 5, device="cuda") * 3).to(dtype).t()
        assert torch.equal(torch_cuda.on_host(tensor), tensor.cpu())
