"""Open two recordings, compare them, and collect the details of one node."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.sources import open_source
from qdebug.errors import UsageError

if TYPE_CHECKING:
    from qdebug.cli.output import OnProgress
    from qdebug.compare.align.pairs import PairList
    from qdebug.compare.result.limits import Limits
    from qdebug.compare.result.result import RunComparison
    from qdebug.model import Recording, TensorInfo
    from qdebug.present.detail import NodeDetail
    from qdebug.session import DiffSession, Tokens

__all__ = ["compare", "node_detail", "open_session"]


def open_session(
    reference: Path,
    backend: Path,
    *,
    limits: Limits | None = None,
    sample: int | None = None,
    user_pairs: PairList | None = None,
    tokens: Tokens = (None, None),
) -> DiffSession:
    """Open two recordings and align them.

    Args:
        reference: The reference's file.
        backend: The backend's file.
        limits: The limits; None for derived ones.
        sample: The only sample to compare; None for all.
        user_pairs: Pairs of tensors that the user specified.
        tokens: The token of each row of both sides, as far as the user states it.

    Raises:
        RecordingError: A file cannot be read.
        AlignmentError: The recordings are of different networks.
        UsageError: The sample does not exist, or a tensor of the given pairs does not have values.
    """
    from qdebug.cli.output import show_stages
    from qdebug.compare.measure.recordings import OneSample
    from qdebug.session import DiffSession

    sides = (open_source(reference), open_source(backend))
    with show_stages("aligning") as on_stage:
        open_with = partial(DiffSession, limits=limits, on_stage=on_stage, user_pairs=user_pairs, tokens=tokens)
        if sample is not None:
            return open_with(*(OneSample(side, sample) for side in sides))
        return open_with(*sides, cache=True)


def compare(
    session: DiffSession,
    *,
    pair: str = "REF BACKEND",
    sample: int | None = None,
    quick: bool = False,
    thorough: bool = False,
    on_progress: OnProgress,
) -> RunComparison:
    """Compare everything.

    Args:
        session: The two recordings.
        pair: The two files, as they appear in suggested commands.
        sample: The only sample of the session; None for all.
        quick: Whether to skip what costs more than the comparison: shares of the outputs' error, and remedies.
        thorough: Whether to compute shares and remedies for all nodes.
        on_progress: Called after each tensor.
    """
    result = session.result(progress=on_progress, contributors=not quick, thorough=thorough)
    if not quick:
        from qdebug.repair.remedies import with_remedies

        result = with_remedies(session, result, pair=pair, thorough=thorough)
    if sample is None:
        return result
    from qdebug.compare.measure.recordings import renumber_sample

    return renumber_sample(result, sample)


def node_detail(session: DiffSession, result: RunComparison, name: str, *, sample: int | None = None) -> NodeDetail:
    """Collect the details of one compared node.

    Args:
        session: The two recordings.
        result: Their comparison.
        name: A backend node, a backend tensor or a reference tensor. For a node that is not compared itself, the part
            of the network around it is used.
        sample: The only sample of the session; None for all.

    Raises:
        UsageError: Nothing with this name is compared.
    """
    from qdebug.compare.result.node_result import compares_values
    from qdebug.present.detail import NodeDetail
    from qdebug.present.surroundings import surroundings

    try:
        part = session.part(name)
    except UsageError as error:
        hint = error.hint or "List the names: qdebug diff REF BACKEND --all."
        raise UsageError(error.message, hint=hint) from error
    by_tensor = {node.tensor: node for node in result.nodes}
    node_result = by_tensor[part.tensor]
    graph = session.backend.graph
    producer = graph.producer(part.tensor)
    input_names = (
        [] if producer is None else [tensor for tensor in producer.inputs if tensor and not graph.is_constant(tensor)]
    )
    profile = session.profile(part.tensor) if compares_values(node_result) else None
    worst_elements = () if profile is None else profile.worst
    if sample is not None:
        worst_elements = tuple(replace(element, sample=sample) for element in worst_elements)
    return NodeDetail(
        result=node_result,
        reference=_tensor_facts(session.reference, part.reference_tensor),
        backend=_tensor_facts(session.backend, part.tensor),
        inputs=[(tensor, by_tensor.get(tensor)) for tensor in input_names],
        worst=worst_elements,
        sample=sample,
        profile=profile,
        around=surroundings(graph, by_tensor, part.tensor),
    )


def _tensor_facts(recording: Recording, tensor: str) -> TensorInfo:
    """Return the graph's facts about a tensor, with the shape of its stored values if the graph leaves it open."""
    from qdebug.present.contents import stored_shape

    info = recording.graph.tensors[tensor]
    return replace(info, shape=stored_shape(recording, info))
