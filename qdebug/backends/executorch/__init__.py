"""ExecuTorch: program files and exported programs, on its delegates or its portable kernels."""

from __future__ import annotations

from qdebug.backends.executorch.adapter import record

__all__ = ["record"]
