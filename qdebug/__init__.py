"""A per-layer numerics debugger for neural networks: record two runs, compare them node by node."""

from __future__ import annotations

from qdebug.version import __version__

# Not imported from `typing`, which takes so long to load that Ctrl-C meanwhile would print a traceback.
TYPE_CHECKING = False


_MODULE_OF_NAME = {
    "budget": "qdebug.api",
    "diff": "qdebug.api",
    "explain": "qdebug.api",
    "Limits": "qdebug.compare.result.limits",
    "load_limits": "qdebug.limits.limits_file",
    "Explanation": "qdebug.api",
    "open_recording": "qdebug.recording.reading.opening",
    "Recorder": "qdebug.recording.recorder",
    "ProfileRecorder": "qdebug.recording.profile_recorder",
    "DiffResult": "qdebug.api",
    "NodeResult": "qdebug.compare.result.result",
    "QdebugError": "qdebug.errors",
    **dict.fromkeys(
        ("Fidelity", "Graph", "MemoryRecording", "Node", "QuantParams", "Recording", "Role", "RunInfo", "TensorInfo"),
        "qdebug.model",
    ),
}

__all__ = ["__version__", *sorted(_MODULE_OF_NAME)]  # noqa: PLE0604  the names live in the table above

if TYPE_CHECKING:
    from typing import Any

    from qdebug.api import DiffResult as DiffResult
    from qdebug.api import Explanation as Explanation
    from qdebug.api import budget as budget
    from qdebug.api import diff as diff
    from qdebug.api import explain as explain
    from qdebug.compare.result.limits import Limits as Limits
    from qdebug.compare.result.result import NodeResult as NodeResult
    from qdebug.errors import QdebugError as QdebugError
    from qdebug.limits.limits_file import load_limits as load_limits
    from qdebug.model import Fidelity as Fidelity
    from qdebug.model import Graph as Graph
    from qdebug.model import MemoryRecording as MemoryRecording
    from qdebug.model import Node as Node
    from qdebug.model import QuantParams as QuantParams
    from qdebug.model import Recording as Recording
    from qdebug.model import Role as Role
    from qdebug.model import RunInfo as RunInfo
    from qdebug.model import TensorInfo as TensorInfo
    from qdebug.recording.profile_recorder import ProfileRecorder as ProfileRecorder
    from qdebug.recording.reading.opening import open_recording as open_recording
    from qdebug.recording.recorder import Recorder as Recorder


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562), so that `import qdebug` stays light."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_MODULE_OF_NAME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
