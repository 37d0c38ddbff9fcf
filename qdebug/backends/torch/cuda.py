"""Copy tensors of a GPU to the host, on the stream of their producer.

The copy goes to page-locked ("pinned") memory, which a GPU writes without help from the host. An event of the stream
signals completion: https://docs.pytorch.org/docs/stable/notes/cuda.html, "Use pinned memory buffers". One buffer is
reused, which bounds the memory in use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from qdebug.errors import UsageError

__all__ = ["check_not_captured", "gpu_facts", "on_host", "random_states", "restore_random_states"]

_MAX_BUFFER_BYTES = 256 * 2**20
"""Maximum size of the buffer. Larger tensors are copied to separate memory."""
_thread_local = threading.local()


def on_host(tensor: Any) -> Any:
    """Return a tensor with its elements on the host.

    Args:
        tensor: A tensor of any device.

    Returns:
        The tensor itself if it is on the host, else a copy that is valid until the thread's next call.
    """
    import torch

    size = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cuda" or not 0 < size <= _MAX_BUFFER_BYTES:
        return tensor.cpu()
    with torch.cuda.device(tensor.device):
        host_copy = _get_pinned_buffer(size)[:size].view(tensor.dtype).view(tensor.shape)
        host_copy.copy_(tensor, non_blocking=True)  # queued after its producer kernel
        copied_event = torch.cuda.Event()
        copied_event.record(torch.cuda.current_stream())
        copied_event.synchronize()
    return host_copy


def _get_pinned_buffer(size: int) -> Any:
    """Return the thread's page-locked buffer, with at least the given number of bytes."""
    import torch

    buffer = getattr(_thread_local, "buffer", None)
    if buffer is None or buffer.numel() < size:
        with torch.inference_mode(mode=False):  # a buffer created in inference mode cannot be written outside of it
            buffer = _thread_local.buffer = torch.empty(
                1 << (size - 1).bit_length(), dtype=torch.uint8, pin_memory=True
            )
    return buffer


def check_not_captured() -> None:
    """Raise an error if the call is being captured into a CUDA graph: nothing runs, so tensors have no values.

    Raises:
        UsageError: The call is captured.
    """
    import torch

    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise UsageError(
            "The call is being captured into a CUDA graph, so its tensors have no values yet.",
            hint="Record the model before it is captured; the replay of a CUDA graph cannot be observed.",
        )


def gpu_facts(devices: Iterable[Any]) -> dict[str, Any]:
    """Return the GPUs among the devices, their libraries, and the switches that affect their arithmetic.

    The switches: https://docs.pytorch.org/docs/stable/notes/cuda.html, "TensorFloat-32" and "Reduced precision".

    Args:
        devices: Devices of tensors.

    Returns:
        The facts; empty without a GPU. Facts that PyTorch does not report are left out.
    """
    import torch

    gpu_devices = sorted({device for device in devices if device.type == "cuda"}, key=str)
    if not gpu_devices:
        return {}
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    facts = {
        "gpu": lambda: ", ".join(dict.fromkeys(map(torch.cuda.get_device_name, gpu_devices))),
        "compute_capability": lambda: ".".join(map(str, torch.cuda.get_device_capability(gpu_devices[0]))),
        "cuda": lambda: str(torch.version.cuda),
        "cudnn": lambda: cudnn.version() or 0,
        "conv_tf32": lambda: _allows_tf32(cudnn, cudnn.conv),
        "matmul_tf32": lambda: _allows_tf32(matmul, matmul),
        "fp16_reduced_sums": lambda: bool(matmul.allow_fp16_reduced_precision_reduction),
        "bf16_reduced_sums": lambda: bool(matmul.allow_bf16_reduced_precision_reduction),
        "deterministic": lambda: bool(torch.are_deterministic_algorithms_enabled() or cudnn.deterministic),
    }
    return {name: value for name, read_fact in facts.items() if (value := _fact_or_none(read_fact)) is not None}


def _allows_tf32(switches: Any, newer_switches: Any) -> bool:
    """Return whether TF32 is allowed. PyTorch refuses to read the older switch after the newer one was set."""
    try:
        return bool(switches.allow_tf32)
    except RuntimeError:
        return bool(newer_switches.fp32_precision == "tf32")


def _fact_or_none(read_fact: Callable[[], Any]) -> Any:
    """Return a fact; None if PyTorch does not report it, since this must not abort a recording."""
    try:
        return read_fact()
    except (RuntimeError, AttributeError):
        return None


def random_states() -> list[Any]:
    """Return the states of the GPUs' random number generators; empty if no GPU is in use."""
    import torch

    return list(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else []


def restore_random_states(states: list[Any]) -> None:
    """Restore the states from `random_states`."""
    import torch

    if states:
        torch.cuda.set_rng_state_all(states)
