"""Exported programs compiled by inductor: the codes between its kernels, recorded without changing the kernels.

Inductor compiles a program quantized by PT2E for x86 into integer operators of oneDNN, and fuses the rest into its own
kernels, with codes between them. A second program has these codes as additional outputs. It must be compiled to the
same operators and give bit-identical outputs. Tensors that prevent this are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.protocol import Feeds, OnProgress, RunFacts, split_into_harmless_taps
from qdebug.backends.torch.delegated import DelegatedGraph
from qdebug.backends.torch.exported import without_logging
from qdebug.backends.torch.ops import array_of, tensor_of, torch_errors
from qdebug.errors import BackendError, UsageError
from qdebug.model import TensorInfo

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = ["INDUCTOR", "PASSES", "CompiledRun", "check_settings"]

INDUCTOR = "inductor"
"""Placement of the nodes of a compiled program."""
PASSES = (
    "freezing",
    "joint_graph_constant_folding",
    "pattern_matcher",
    "layout_optimization",
    "cpp.weight_prepack",
    "split_reductions",
    "epilogue_fusion",
    "loop_ordering_after_fusion",
    "reorder_for_locality",
    "comprehensive_padding",
    "cpp.enable_loop_tail_vec",
)
"""Settings of `torch._inductor.config` that are on and may change results, in the order of compilation."""
_COMPILE_HINT = "Check that torch.compile(torch.export.load(FILE).module()) runs here. It needs a C++ compiler."
_OUTPUT_ORDER_OP = "inductor_force_stride_order.default"
"""Operator that inductor adds for each output."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _CompiledProgram:
    """A compiled program.

    Args:
        call: Takes a tensor for each input, and returns the outputs and the taps.
        operators: Number of calls to each operator after all of inductor's rewrites.
    """

    call: Callable[..., Sequence[Any]]
    operators: Counter[str]


class CompiledRun:
    """An exported program, ready to run as compiled by inductor, and to be recorded.

    Args:
        program: The program, a `torch.export.ExportedProgram`.
        facts: Facts of the run.
        weights: Whether constants are recorded.
        settings: Settings of inductor to turn on (True) or off.

    Raises:
        BackendError: The program changes tensors in place, has control flow, or has an input that is not a tensor.
    """

    def __init__(self, program: Any, facts: RunFacts, *, weights: bool, settings: Mapping[str, bool]) -> None:
        placement = {node.name: INDUCTOR for node in program.graph.nodes if node.op == "call_function"}
        taps_everything = facts.taps == "all"
        self._exported = DelegatedGraph(
            program, placement, taps_everything=taps_everything, readers_dequantize=not taps_everything
        )
        if self._exported.program is not program or self._exported.states:
            raise BackendError(
                "The program changes tensors in place, which cannot be recorded in compiled programs.",
                hint="Record it operator by operator: --backend torch.",
            )
        self._exported.drop_dequantized_taps()
        self.facts = replace(facts, extent_names=self._exported.extent_names)
        self.graph = self._exported.graph
        self.inputs: tuple[TensorInfo, ...] = tuple(self._exported.inputs)
        self.outputs: tuple[str, ...] = self.graph.outputs
        self._weights, self._settings = weights, dict(settings)
        self._plain: _CompiledProgram | None = None

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""
        if self._weights:
            yield from self._exported.constants.items()

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the untapped program as in production and return its outputs.

        Raises:
            BackendError: PyTorch failed.
        """
        return self._run(self._plain_program(feed), feed)

    def restart(self) -> None:
        """Do nothing, since a compiled program does not have state."""

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and record inputs, outputs and the tensors between kernels.

        Raises:
            BackendError: PyTorch failed.
        """
        taps = [] if self.facts.taps == "outputs" else list(self._exported.taps)
        for name, reason in self._exported.skipped.items() if self.facts.taps != "outputs" else ():
            recorder.skip(name, reason)
        first_feed = feeds.feed(0)
        plain_program = self._plain_program(first_feed)
        plain_outputs = self._run(plain_program, first_feed)

        def try_taps(names: Sequence[str]) -> _CompiledProgram | None:
            tapped_program = self._compile(first_feed, names)
            arrays = self._run(tapped_program, first_feed, names)
            has_same_outputs = all(
                np.array_equal(arrays[name], array, equal_nan=True) for name, array in plain_outputs.items()
            )
            return (
                tapped_program
                if (has_same_outputs and tapped_program.operators == plain_program.operators)
                or self.facts.taps == "all"
                else None
            )

        def skip_tap(name: str) -> None:
            recorder.skip(self._exported.taps[name], "a tap on it changes the outputs or the operators")

        parts = [((), plain_program), *(split_into_harmless_taps(taps, try_taps, skip_tap) if taps else ())]
        places = [(sample, step) for sample in range(feeds.samples) for step in range(feeds.steps)]
        for runs_done, (sample, step) in enumerate(places, start=1):
            recorder.at(sample, step)
            feed = feeds.feed(sample, step)
            arrays = dict(feed)
            for names, tapped_program in parts:
                arrays |= self._run(tapped_program, feed, names)
            for name, array in arrays.items():
                if not self.graph.is_constant(name):
                    recorder.put(name, array)
            if on_progress is not None:
                on_progress(runs_done, len(places), f"sample {sample}")

    def _run(
        self, program: _CompiledProgram, feed: Mapping[str, np.ndarray], taps: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Run a program, and return its outputs and taps by the names of their tensors."""
        import torch

        with torch_errors("PyTorch failed", _COMPILE_HINT), torch.no_grad():
            leaves = _call_raising_root_cause(lambda: program.call(*self._inputs(feed)))
        names = (*self._exported.output_names, *(self._exported.taps[name] for name in taps))
        return {name: array_of(leaf).copy() for name, leaf in zip(names, leaves, strict=True) if name}

    def _inputs(self, feed: Mapping[str, np.ndarray]) -> list[Any]:
        return self._exported.input_leaves({info.name: tensor_of(feed[info.name]) for info in self.inputs})

    def _plain_program(self, feed: Mapping[str, np.ndarray]) -> _CompiledProgram:
        if self._plain is None:
            self._plain = self._compile(feed, ())
        return self._plain

    def _compile(self, feed: Mapping[str, np.ndarray], taps: Sequence[str]) -> _CompiledProgram:
        """Compile the program with additional outputs, for the input shapes of a feed.

        Args:
            feed: The feed.
            taps: Names of fx nodes.
        """
        import torch
        from torch._inductor import config

        operators: Counter[str] = Counter()

        def count_operators(graph: Any) -> None:
            call_targets = [node.target for node in graph.nodes if node.op == "call_function"]
            operators.update(str(getattr(target, "__name__", target)) for target in call_targets)

        config_patch: dict[str, Any] = {
            "freezing": True,
            "fx_graph_cache": False,
            "post_grad_custom_post_pass": count_operators,
        }
        config_patch |= self._settings
        with torch_errors("PyTorch cannot compile the program", _COMPILE_HINT), without_logging(), torch.no_grad():
            compiled_call = torch.compile(self._tapped_module(taps), fullgraph=True, dynamic=False)
            with config.patch(config_patch):
                _call_raising_root_cause(lambda: compiled_call(*self._inputs(feed)))
        operators.pop(_OUTPUT_ORDER_OP, None)
        return _CompiledProgram(call=compiled_call, operators=operators)

    def _tapped_module(self, taps: Sequence[str]) -> Any:
        """Return a module that returns a flat list: the program's outputs, then the results of the given fx nodes."""
        from torch import fx
        from torch.export import pytree

        module = self._exported.program.module(check_guards=False)
        nodes = {node.name: node for node in module.graph.nodes}
        output_node = next(node for node in module.graph.nodes if node.op == "output")
        output_node.args = ((*pytree.tree_leaves(output_node.args[0]), *(nodes[name] for name in taps)),)
        module.graph.set_codegen(fx.graph.CodeGen())
        return fx.GraphModule(module, module.graph)

    def close(self) -> None:
        """Free the compiled program. Safe to call twice."""
        self._plain = None


def check_settings(names: Iterable[str]) -> None:
    """Check that inductor has settings of these names to turn on or off.

    Raises:
        UsageError: This version of PyTorch has no such setting, or it is not a switch.
    """
    from torch._inductor import config

    settings = config.get_config_copy()
    for name in names:
        if not isinstance(settings.get(name), bool):
            raise UsageError(
                f"Inductor has no setting {name!r} in this version of PyTorch.",
                hint=f"Name settings of torch._inductor.config, such as --backend torch:compile=inductor,"
                f"disable={PASSES[0]}+{PASSES[2]}.",
            )


def _call_raising_root_cause(work: Callable[[], Any]) -> Any:
    """Call a function. If it fails, raise the root cause, which PyTorch's compiler wraps in its own exceptions."""
    try:
        return work()
    except Exception as error:
        root_cause: BaseException = error
        while root_cause.__cause__ or root_cause.__context__:
            root_cause = root_cause.__cause__ or root_cause.__context__ or root_cause
        raise RuntimeError(f"{type(root_cause).__name__}: {root_cause}") from error
