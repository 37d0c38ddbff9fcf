"""The error that a short float format causes by itself: the reference's network, converted to that format.

A tensor whose node cannot be replayed is judged by its whole error, which includes the roundings of all nodes before
it. How much these cost depends on the network: on its depth, and on where it subtracts numbers of equal size. So the
reference's nodes are computed once more, as an ideal backend of the format does: every input, constant and result is
rounded once, to nearest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.backend_replay import load_input, real_values
from qdebug.compare.attribute.band import difference, finite_norm
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, Recording
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.short_formats import ShortFormat, is_exact_in
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.run import run_nodes
from qdebug.replay.segment import run_real

__all__ = ["FormatLoss", "losses_by_rounding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatLoss:
    """The error that rounding every result to a format causes in a tensor.

    Args:
        short: Name of the format.
        error: Norm of the error.
        signal: Norm of the reference's tensor.
    """

    short: str
    error: float
    signal: float

    @property
    def sqnr_db(self) -> float:
        """SQNR of the rounded reference's tensor in dB."""
        if not self.error:
            return math.inf
        return 20 * math.log10(self.signal / self.error) if self.signal else -math.inf

    def excess_db(self, error: float) -> float:
        """Return by how many dB an error of the tensor, given as its norm, is larger than this one."""
        return 20 * math.log10(error / self.error) if error and self.error else math.inf


def losses_by_rounding(
    reference: Recording, backend: Recording, pairs: Mapping[str, Pair], short: ShortFormat, place: tuple[int, int]
) -> Mapping[str, FormatLoss]:
    """Return the error of each reference tensor if everything before it is rounded to a format.

    A result that the backend recorded with more digits than the format has stays unrounded. For a node that cannot be
    replayed, the recorded result is used.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs, by backend tensor.
        short: The format.
        place: Sample and step.

    Returns:
        The errors of the computed real tensors, by name.
    """
    graph, losses = reference.graph, dict[str, FormatLoss]()
    partners = {pair.reference: pair.backend for pair in pairs.values()}

    def is_rounded(name: str) -> bool:
        partner = partners.get(name)
        if partner is None or not backend.has(partner, *place):
            return True
        values = backend.load(partner, *place)
        return values.dtype.kind not in "fV" or is_exact_in(values.astype(np.float32), short)

    def run(node: Node, results: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        checkpoint()
        form, opset = real_form(node, graph.opset)
        try:
            inputs = {}
            for name in dict.fromkeys(filter(None, form.inputs)):
                values = results.get(name)
                if values is None:
                    values = load_input(reference, place, form, name)
                    values = short.rounded(values) if values.dtype.kind == "f" else values
                inputs[name] = values
            outputs = dict(run_real(node, form, opset, inputs))
        except (KernelError, NotRecordedError):
            return {}
        for name, values in outputs.items():
            if values.dtype.kind != "f" or graph.tensors[name].quant is not None:
                continue
            outputs[name] = short.rounded(values).astype(values.dtype) if is_rounded(name) else values
            if reference.has(name, *place):
                recorded = real_values(reference, name, place)
                error, signal = finite_norm(difference(outputs[name], recorded)), finite_norm(recorded)
                losses[name] = FormatLoss(short=short.name, error=error, signal=signal)
        return outputs

    with recorded_limits(reference, place):
        run_nodes(graph.nodes, (), run)
    return losses
