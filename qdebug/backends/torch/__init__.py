"""PyTorch: programs that torch.export made, compiled ones, and modules while they are called."""

from __future__ import annotations

from qdebug.backends.torch.eager import record

__all__ = ["record"]
