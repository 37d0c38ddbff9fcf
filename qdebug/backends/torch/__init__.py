"""PyTorch: exported programs, compiled programs, and modules recorded while they are called."""

from __future__ import annotations

from qdebug.backends.torch.eager import record

__all__ = ["record"]
