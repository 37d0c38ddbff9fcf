"""Open two recordings, compare them, and collect the details of one node."""

from __future__ import annotations

from dataclasses import replace
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
    from qdebug.session import DiffSession

__all__ = ["compare", "node_detail", "open_session"]


def open_session(
    reference: Path,
    backend: Path,
    *,
    limits: Limits | None = None,
    sample: int | None = None,
    given: PairList | None = None,
) -> DiffSession:
    """Open two recordings and align them.

    Args:
        reference: The reference's file.
        backend: The backend's file.
        limits: The limits; None for derived ones.
        sample: The only sample to compare; None for all.
        given: Pairs of tensors that the user specified.

    Raises:
        RecordingError: A file cannot be read.
        AlignmentError: The recordings are of different networks.
        UsageError: The sample does not exist, or a tensor of the given pairs does not have values.
    """
    from qdebug.cli.output import stages
    from qdebug.compare.measure.recordings import OneSample
    from qdebug.session import DiffSession

    sides = (open_source(reference), open_source(backend))
    with stages("aligning") as on_stage:
        if sample is not None:
            reference_sample, backend_sample = (OneSample(side, sample) for side in sides)
            return DiffSession(reference_sample, backend_sample, limits=limits, told=on_stage, given=given)
        return DiffSession(*sides, limits=limits, cache=True, told=on_stage, given=given)


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
    from qdebug.compare.measure.recordings import renumbered

    return renumbered(result, sample)


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
    from qdebug.compare.result.result import Status
    from qdebug.present.detail import NodeDetail
    from qdebug.present.surroundings import surroundings

    try:
        entry = session.part(name)
    except UsageError as error:
        hint = error.hint or "List the names: qdebug diff REF BACKEND --all."
        raise UsageError(error.message, hint=hint) from error
    by_tensor = {node.tensor: node for node in result.nodes}
    node_result = by_tensor[entry.tensor]
    graph = session.backend.graph
    producer = graph.producer(entry.tensor)
    inputs = [] if producer is None else [t for t in producer.inputs if t and not graph.is_constant(t)]
    profile = None if node_result.status is Status.INCOMPARABLE else session.profile(entry.tensor)
    worst = () if profile is None else profile.worst
    if sample is not None:
        worst = tuple(replace(element, sample=sample) for element in worst)
    return NodeDetail(
        result=node_result,
        reference=_described_tensor(session.reference, entry.reference_tensor),
        backend=_described_tensor(session.backend, entry.tensor),
        inputs=[(tensor, by_tensor.get(tensor)) for tensor in inputs],
        worst=worst,
        sample=sample,
        profile=profile,
        around=surroundings(graph, by_tensor, entry.tensor),
    )


def _described_tensor(recording: Recording, tensor: str) -> TensorInfo:
    """Return the graph's facts about a tensor, with the shape of its stored values if the graph leaves it open."""
    from qdebug.present.contents import stored_shape

    info = recording.graph.tensors[tensor]
    return replace(info, shape=stored_shape(recording, info))
