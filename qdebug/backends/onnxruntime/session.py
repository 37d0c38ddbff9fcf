"""ONNX Runtime sessions: settings, errors in one sentence, and values of all element types.

Tensors are read out of a running graph in chunks, so that memory holds only a few. The saved graph is run without
further optimization, once per chunk of tensors. Making a tensor of an already optimized graph an output only changes
its storage. As a check, each run also returns the final outputs.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.backends.onnx.tensor import ELEMENT_TYPES, RUNTIME_TYPES, packed_bytes, unpack
from qdebug.errors import BackendError, UsageError
from qdebug.requirements import outdated_packages

__all__ = [
    "LEVELS",
    "PASSES",
    "Session",
    "SessionSettings",
    "TappedGraph",
    "add_outputs",
    "chunks",
    "repair_subgraphs",
    "unreadable_reason",
]

LEVELS: Mapping[str, str] = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""ONNX Runtime's name for each optimization level."""

PASSES = (
    *("EliminateIdentity", "EliminateSlice", "UnsqueezeElimination", "EliminateDropout", "ExpandElimination"),
    *("CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion"),
    *("FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion"),
    *(
        "ConvBNFusion",
        "Pad_Fusion",
        "MatMul_BatchNormalization_Fusion",
        "LabelEncoderFusion",
        "DoubleQDQPairsRemover",
        "ConstantSharing",
    ),
    *("CommonSubexpressionElimination", "ConstantFolding", "MatMulAddFusion", "ReshapeFusion", "GeluFusion"),
    *("LayerNormFusion", "QDQPropagationTransformer", "WeightBiasQuantization", "TransposeOptimizer"),
    *("ClipQuantRewrite", "ReluQuantRewrite", "QDQS8ToU8Transformer", "QDQSelectorActionTransformer"),
    *("GemmActivationFusion", "MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion", "ConvActivationFusion"),
    *("SimplifiedLayerNormFusion", "AttentionFusion", "EmbedLayerNormFusion", "GatherSliceToSplitFusion"),
    *("GatherToSliceFusion", "MatmulTransposeFusion", "BiasGeluFusion", "SkipLayerNormFusion", "FastGeluFusion"),
    *("QuickGeluFusion", "BiasSoftmaxFusion", "MatMulScaleFusion", "MatMulNBitsFusion", "QDQFinalCleanupTransformer"),
    *("NchwcTransformer", "NhwcTransformer", "ConvAddActivationFusion"),
)
"""Graph optimizers for the CPU in the order in which ONNX Runtime applies them first, from its source
(core/optimizer/graph_transformer_utils.cc). It ignores names that a version does not have."""

_SILENT_LEVEL = 4  # log severity "fatal": errors are raised as exceptions as well
_ELEMENT_NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The user's session settings.

    Args:
        level: One of `LEVELS`.
        threads: Threads within an operator; 0 leaves the choice to ONNX Runtime.
        provider: Execution provider.
        disabled: Names of graph optimizers that are left out.
    """

    level: str = "all"
    threads: int = 0
    provider: str = "CPUExecutionProvider"
    disabled: tuple[str, ...] = ()

    def make_options(self, level: str = "") -> Any:
        """Return session options as in production, at the given level or by default at the user's level."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = _SILENT_LEVEL
        options.intra_op_num_threads = self.threads
        options.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, LEVELS[level or self.level], None
        )
        return options

    def make_saving_options(self, target: Path) -> Any:
        """Return session options that also save the optimized graph, with its weights in a separate file."""
        options = self.make_options()
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.optimized_model_filepath = str(target)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{target.stem}.weights"
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        return options

    def make_lean_options(self) -> Any:
        """Return session options that run a graph unoptimized, free memory immediately and never spin threads.

        Recording the tensors takes most of the time, and spinning threads would slow it down.
        """
        options = self.make_options("none")
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        return options

    def check_provider(self) -> None:
        """Check that this build of ONNX Runtime has the provider.

        Raises:
            UsageError: The provider is missing.
        """
        import onnxruntime

        providers = onnxruntime.get_available_providers()
        if self.provider not in providers:
            raise UsageError(
                f"This ONNX Runtime has no provider {self.provider!r}; it has: {', '.join(providers)}.",
                hint="Choose one of these, or install an onnxruntime build that has it.",
            )


class Session:
    """One loaded model.

    Args:
        model: Path of a model file, or a serialized model.
        settings: The user's settings.
        options: Session options made from them.
        data_folder: Folder of external data, for a serialized model.

    Raises:
        BackendError: ONNX Runtime refused the model.
    """

    def __init__(
        self, model: Path | bytes, settings: SessionSettings, options: Any, *, data_folder: Path | None = None
    ) -> None:
        import onnxruntime

        if data_folder is not None:
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(data_folder.resolve())
            )
        with _session_errors("ONNX Runtime refused the model"):
            self._session = onnxruntime.InferenceSession(
                model if isinstance(model, bytes) else str(model),
                options,
                providers=[settings.provider],
                disabled_optimizers=settings.disabled or None,
            )
        self.types: Mapping[str, str] = {value.name: value.type for value in self._session.get_outputs()}

    def placements(self) -> dict[str, str]:
        """Return the provider of each node; empty if this version of ONNX Runtime does not report it."""
        get_assignments = getattr(self._session, "get_provider_graph_assignment_info", None)
        try:
            return {
                node.name: assignment.ep_name
                for assignment in (get_assignments() if get_assignments else ())
                for node in assignment.get_nodes()
            }
        except RuntimeError:  # the session was created without the option to record assignments
            return {}

    def run(self, feed: Mapping[str, np.ndarray], names: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Run once and yield the requested outputs, one at a time.

        Args:
            feed: One array per input.
            names: Outputs with numeric elements, see `types`.

        Yields:
            Name and elements; the array is valid until the next one is requested.

        Raises:
            BackendError: ONNX Runtime failed.
        """
        with _session_errors("ONNX Runtime failed to run the model"):
            values = self._session.run_with_ort_values(
                list(names), {name: _to_ort_value(array) for name, array in feed.items()}
            )
        values.reverse()
        for name in names:
            value = values.pop()
            yield name, _to_numpy(value)

    def profile(self) -> Path:
        """Stop profiling and return the file of the profile."""
        return Path(self._session.end_profiling())


def _to_ort_value(array: np.ndarray) -> Any:
    import onnxruntime

    array = np.asarray(array, order="C")
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    number = _ELEMENT_NUMBERS[array.dtype.name]
    bits = array.view(f"u{array.dtype.itemsize}")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)


def _to_numpy(value: Any) -> np.ndarray:
    """Return a view of an OrtValue's memory. Its own conversion to numpy lacks short float and packed types."""
    dtype = RUNTIME_TYPES[value.data_type()]
    shape = tuple(value.shape())
    size = packed_bytes(dtype, shape)  # OrtValue reports its size only since ONNX Runtime 1.23
    if size == 0:
        return unpack(b"", dtype, shape)
    buffer: Any = (ctypes.c_ubyte * size).from_address(value.data_ptr())
    buffer.owner = value  # keep the memory alive as long as the view
    return unpack(buffer, dtype, shape)


_EXCEPTION_MODULE = "onnxruntime.capi.onnxruntime_pybind11_state"


@contextmanager
def _session_errors(failure: str) -> Iterator[None]:
    """Raise ONNX Runtime's exceptions, which have no common base class, as a BackendError with a short message."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, RuntimeError | ValueError) and type(error).__module__ != _EXCEPTION_MODULE:
            raise
        text = " ".join(str(error).split())
        text = text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text
        text = text if len(text) <= 300 else f"{text[:297]}..."
        raise BackendError(f"{failure}: {text.rstrip('.')}.", hint=_failure_hint()) from error


def _failure_hint() -> str:
    for requirement, version in outdated_packages():
        if requirement.module == "onnxruntime":
            return f"Upgrade ONNX Runtime {version}: pip install --upgrade 'onnxruntime{requirement.bounds}'."
    return "Check that the model loads in ONNX Runtime itself."


CHUNK_BUDGET = 64 << 20
"""Maximum bytes of tapped tensors per run."""

_UNKNOWN_SIZE = CHUNK_BUDGET // 8


class TappedGraph:
    """A saved graph with readable tensors.

    Args:
        path: The graph, with external data next to it.
        proto: Its `onnx.ModelProto`, without external data; modified in place.
        settings: The user's settings.
        taps: Tensors to read, in topological order.

    Raises:
        BackendError: ONNX Runtime refused the graph.
    """

    def __init__(self, path: Path, proto: Any, settings: SessionSettings, taps: Sequence[str]) -> None:
        self._path = path
        repair_subgraphs(proto.graph)
        self._proto = proto
        self._settings = settings
        self._finals = [value.name for value in proto.graph.output]
        types = self._open_session(taps).types
        self.skipped: Mapping[str, str] = {
            name: reason for name in types if (reason := unreadable_reason(types[name])) is not None
        }
        self.dtypes: Mapping[str, str] = {
            name: RUNTIME_TYPES[types[name]] for name in types if name not in self.skipped
        }
        self.taps: Sequence[str] = tuple(name for name in taps if name not in self.skipped)
        self.finals: Sequence[str] = tuple(name for name in self._finals if name not in self.skipped)

    def _open_session(self, taps: Sequence[str], *, profile_path: Path | None = None) -> Session:
        del self._proto.graph.output[len(self._finals) :]
        add_outputs(self._proto, [name for name in taps if name not in self._finals])
        tapped_path = self._path.with_name("tapped.onnx")
        tapped_path.write_bytes(self._proto.SerializeToString())
        options = self._settings.make_lean_options()
        if profile_path is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile_path)
        return Session(tapped_path, self._settings, options)

    def plan(self, feed: Mapping[str, np.ndarray]) -> list[list[str]]:
        """Split the taps into chunks of bounded size, based on the sizes in a profiled run. Outputs come first."""
        output_taps = [name for name in self.finals if name in self.taps]
        return chunks(
            [*output_taps, *(name for name in self.taps if name not in output_taps)], self._measure_sizes(feed)
        )

    def _measure_sizes(self, feed: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Return the bytes of each tensor, from ONNX Runtime's profile of one run."""
        session = self._open_session((), profile_path=self._path.with_name("profile"))
        for _ in session.run(feed, self.finals[:1]):
            pass
        sizes: dict[str, int] = {}
        # Another version of ONNX Runtime may write another format of profiles: the sizes then stay unknown.
        with suppress(ValueError, KeyError, IndexError, OSError):
            for event in json.loads(session.profile().read_text(encoding="utf-8", errors="replace")):
                details = event.get("args", {})
                if "output_type_shape" in details:
                    node = self._proto.graph.node[int(details["node_index"])]
                    outputs = [name for name in node.output if name]
                    total = int(details["output_size"])
                    # The total is an upper bound for each output, and exact for a single one. Nodes of subgraphs have
                    # indices of their own, which may equal those of other nodes: keep the largest total.
                    sizes.update({name: max(total, sizes.get(name, 0)) for name in outputs})
        return sizes

    def run(self, taps: Sequence[str]) -> TapRun:
        """Load the graph with these taps as outputs."""
        return TapRun(self._open_session(taps), tuple(dict.fromkeys((*taps, *self.finals))))


class TapRun:
    """A session that returns one chunk of tensors and the final outputs. Close it before creating the next one."""

    def __init__(self, session: Session, names: Sequence[str]) -> None:
        self._session: Session | None = session
        self._names = names

    def tensors(self, feed: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Run once and yield the tensors.

        Yields:
            Name and elements; the array is valid until the next one is requested.

        Raises:
            BackendError: ONNX Runtime failed.
        """
        if self._session is not None:
            yield from self._session.run(feed, self._names)
            _return_freed_memory()

    def close(self) -> None:
        """Free the session, and return its memory to the operating system."""
        self._session = None
        _return_freed_memory()


def _return_freed_memory() -> None:
    """Return freed memory to the operating system. glibc would keep large blocks, and more of them after each run."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def add_outputs(proto: Any, names: Sequence[str]) -> None:
    """Add tensors to the outputs of a model. The runtime infers their types."""
    for name in names:
        proto.graph.output.add().name = name


def repair_subgraphs(graph: Any, outer: frozenset[str] = frozenset()) -> None:
    """Repair subgraphs of a model that ONNX Runtime saved but refuses to load.

    If large constants go to a separate file, ONNX Runtime stores the result of an inner Constant node a second time, as
    an initializer. It also names the result of a Cast that it inserts into a subgraph like one in the outer graph.

    Args:
        graph: A `GraphProto`, changed in place.
        outer: Names that the enclosing graphs define.
    """
    outer_names = outer | {value.name for value in graph.input} | {constant.name for constant in graph.initializer}
    outer_names |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                inner_outputs = {name for inner_node in subgraph.node for name in inner_node.output if name}
                kept_constants = [constant for constant in subgraph.initializer if constant.name not in inner_outputs]
                if len(kept_constants) < len(subgraph.initializer):
                    del subgraph.initializer[:]
                    subgraph.initializer.extend(kept_constants)
                for name in sorted(inner_outputs & outer_names):
                    _rename(subgraph, name, f"{subgraph.name}/{name}")
                repair_subgraphs(subgraph, outer_names)


def _rename(graph: Any, old_name: str, new_name: str) -> None:
    """Rename a tensor in a graph and its subgraphs."""
    for value in (*graph.output, *graph.value_info):
        if value.name == old_name:
            value.name = new_name
    for node in graph.node:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name == old_name:
                    names[position] = new_name
        for attribute in node.attribute:
            for subgraph in (attribute.g, *attribute.graphs):
                _rename(subgraph, old_name, new_name)


def unreadable_reason(kind: str) -> str | None:
    """Return why values of a runtime type cannot be recorded; None if they can."""
    if kind in RUNTIME_TYPES:
        return None
    return "its elements are text" if kind == "tensor(string)" else f"its values are {kind or 'of an unknown type'}"


def chunks(names: Sequence[str], sizes: Mapping[str, int], budget: int = CHUNK_BUDGET) -> list[list[str]]:
    """Split names into consecutive chunks within a budget. A name that exceeds the budget gets its own chunk."""
    result: list[list[str]] = []
    chunk_bytes = 0
    for name in names:
        size = sizes.get(name, _UNKNOWN_SIZE)
        if not result or chunk_bytes + size > budget:
            result.append([])
            chunk_bytes = 0
        result[-1].append(name)
        chunk_bytes += size
    return result
