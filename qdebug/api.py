"""The functions of `import qdebug` that compare and explain, and their printable results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from qdebug.compare.align.pairs import PairList
from qdebug.compare.attribute.plan import NamedEntries
from qdebug.compare.budget import LEAST_SHARE, ErrorBudget
from qdebug.compare.explaining.explanation import ExplainedRun
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import NodeResult, RunComparison
from qdebug.errors import UsageError
from qdebug.limits.map_file import load_map
from qdebug.model import Recording
from qdebug.present.numbers import plain_digits
from qdebug.repair.remedies import with_remedies
from qdebug.running.explain_file import explain as explain_run
from qdebug.running.explain_file import explained_by
from qdebug.running.model_files import is_model, record_runs
from qdebug.running.tokens_file import load_tokens
from qdebug.session import DiffSession, opened_recording

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qdebug.running.fitted_inputs import GivenInputs
    from qdebug.running.model_runs import ModelRun

__all__ = ["DiffResult", "Explanation", "diff", "explain"]

_WIDTH = 100


class DiffResult(RunComparison):
    """The comparison of a backend recording with a reference recording.

    `print` shows a report that fits on a screen. `result["conv1"]` is the result of one node. Iterating yields the
    results of all nodes in the backend's topological order.

    Examples:
        >>> result = qdebug.diff("float.h5", "int8.h5")
        >>> print(str(result).split(":")[0])
        FAIL  diverged
        >>> result["pwconv_quant"].reason
        'its arithmetic error is 211.3 LSB; rounding explains at most 1.5 LSB'
        >>> [node.node for node in result if node.status == "diverged"]
        ['pwconv_quant']
    """

    __slots__ = ("_by_name",)
    _by_name: NamedEntries[NodeResult]

    @classmethod
    def made_of(cls, comparison: RunComparison) -> DiffResult:
        """Return a comparison as an instance of this class."""
        return cls(**{field.name: getattr(comparison, field.name) for field in fields(comparison)})

    def __enter__(self) -> Self:
        """Return the result itself, for `with qdebug.diff(a, b) as result`."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the name index. `diff` has already closed the files."""
        if hasattr(self, "_by_name"):
            object.__delattr__(self, "_by_name")

    def node(self, name: str) -> NodeResult:
        """Return the result of a node or tensor.

        Args:
            name: The name of a backend node, a backend tensor or a reference tensor; or a part of a name or a pattern
                (`*`, `?`) that matches a single node.

        Raises:
            UsageError: Nothing with this name was compared, or the pattern matches several nodes.
        """
        return self._nodes_by_name.find(name)

    @property
    def _nodes_by_name(self) -> NamedEntries[NodeResult]:
        """The results by name, indexed on first access."""
        if not hasattr(self, "_by_name"):
            object.__setattr__(self, "_by_name", NamedEntries(self.nodes))
        return self._by_name

    def __getitem__(self, name: str) -> NodeResult:
        """Return the result of a node or tensor, like `node`."""
        return self.node(name)

    def __contains__(self, name: object) -> bool:
        """Return whether a backend node, a backend tensor or a reference tensor with this name was compared."""
        return isinstance(name, str) and self._nodes_by_name.exact(name) is not None

    def __iter__(self) -> Iterator[NodeResult]:
        """Yield the results, in the backend's topological order."""
        return iter(self.nodes)

    def __str__(self) -> str:
        """Return the report that `qdebug diff` prints."""
        from qdebug.present.reports.short import short_document
        from qdebug.present.reports.terminal import terminal

        return _render_text(terminal(short_document(self), width=_WIDTH))

    def _repr_html_(self) -> str:
        """Return the report as HTML, for a notebook."""
        from qdebug.present.reports.html import diff_fragment

        return diff_fragment(self)


class Explanation(ExplainedRun):
    """The arithmetic that reproduces each node of a recording. `print` shows the report.

    Examples:
        >>> explanation = qdebug.explain("int8.h5")
        >>> explanation.summary["unexplained"]
        1
    """

    __slots__ = ()

    @classmethod
    def made_of(cls, explanation: ExplainedRun) -> Explanation:
        """Return an explanation as an instance of this class."""
        return cls(**{field.name: getattr(explanation, field.name) for field in fields(explanation)})

    def __str__(self) -> str:
        """Return the report that `qdebug explain` prints."""
        from qdebug.present.reports.explain import explain_document
        from qdebug.present.reports.terminal import terminal

        return _render_text(terminal(explain_document(self)))


def _render_text(report: RenderableType) -> str:
    from io import StringIO

    from rich.console import Console

    file = StringIO()
    Console(file=file, width=_WIDTH, color_system=None, force_terminal=False, highlight=False).print(report)
    return plain_digits("\n".join(map(str.rstrip, file.getvalue().splitlines())))


def diff(
    reference: str | Path | Recording,
    backend: str | Path | Recording,
    *,
    limits: Limits | None = None,
    min_sqnr: float | None = None,
    max_lsb: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    min_output_sqnr: float | None = None,
    map: str | Path | PairList | None = None,  # noqa: A002  as on the command line
    tokens: Mapping[str, str | Path] | str | Path | None = None,
    inputs: str | Path | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    quick: bool = False,
    thorough: bool = False,
) -> DiffResult:
    """Compare a backend recording with a reference recording.

    Results are cached in `BACKEND.qdebug-cache` or the user's cache folder if both runs are in files. A model file is
    recorded first, as by `qdebug diff`, to `qdebug-runs/` in the current folder, unless the same run already exists
    there.

    Args:
        reference: Path of a recording or of a model file, or an open recording.
        backend: Path of a recording or of a model file, or an open recording.
        limits: Limits on errors, and the data that may be missing; None for derived limits.
        min_sqnr: Minimum SQNR of a tensor in dB; this and the next four override the same fields of `limits`.
        max_lsb: Maximum difference in LSB of the backend's scale.
        atol: Maximum absolute difference.
        rtol: Maximum difference relative to the reference's value, added to `atol`.
        min_output_sqnr: Minimum SQNR of a network output in dB.
        map: Pairs of tensors that override automatic ones: a file, see `qdebug.limits.map_file`, or a list.
        tokens: An .npz file with the token of each row of both runs, or files by "reference" and "backend", see
            `qdebug.running.tokens_file`. Rows are then paired by tokens.
        inputs: An .npz file with the inputs. If the reference is a recording, its recorded inputs are used, and the
            file adds those that it lacks. If the reference is a model file and `inputs` is None, random values are
            used, with a warning, because they can hide errors that real inputs show.
        executor: Compares tensors in its workers, with the same result; both sides must be paths.
        progress: Called with the number of compared tensors and their total.
        quick: Skip the steps that take longer than the comparison itself: shares of the outputs' error, and remedies.
        thorough: Replay every node to measure its share, and try edits on every diagnosed node, with all samples.

    Raises:
        RecordingError: A file cannot be read.
        AlignmentError: The recordings are of different networks.
        UsageError: The map cannot be read or names a tensor without values, a limit is invalid, no installed backend
            runs a model, or `inputs` was given although both sides are recordings.
        BackendError: A model cannot be run.
        InputError: The inputs are not an .npz file of plain arrays, or do not match the model.

    Examples:
        >>> result = qdebug.diff("float.h5", "int8.h5", max_lsb=100)
        >>> result.status, result.first_divergence
        (<Status.DIVERGED: 'diverged'>, 'pwconv_quant')
    """
    bounds = {
        "min_sqnr": min_sqnr,
        "max_lsb": max_lsb,
        "atol": atol,
        "rtol": rtol,
        "min_output_sqnr": min_output_sqnr,
    }
    given_bounds: dict[str, Any] = {name: value for name, value in bounds.items() if value is not None}
    limits = replace(limits or Limits(), **given_bounds) if given_bounds else limits
    reference, backend = _record_models(reference, backend, inputs)
    user_pairs = load_map(map) if isinstance(map, str | Path) else map
    with opened_recording(reference) as reference_recording, opened_recording(backend) as backend_recording:
        session = DiffSession(
            reference_recording,
            backend_recording,
            limits=limits,
            cache=True,
            user_pairs=user_pairs,
            tokens=load_tokens(tokens),
        )
        if executor is not None:
            session.compare_in(executor, _path_for_workers(reference), _path_for_workers(backend))
        result = session.result(progress=progress, contributors=not quick, thorough=thorough)
        return DiffResult.made_of(result if quick else with_remedies(session, result, thorough=thorough))


def _record_models(
    reference: str | Path | Recording, backend: str | Path | Recording, inputs: str | Path | None
) -> tuple[str | Path | Recording, str | Path | Recording]:
    """Return both sides, with model files replaced by their recordings.

    Raises:
        UsageError: `inputs` was given although neither side is a model file, or no installed backend runs a model.
        QdebugError: A model cannot be recorded.
    """
    reference_model, backend_model = (
        None if isinstance(side, Recording) or not is_model(Path(side)) else Path(side) for side in (reference, backend)
    )
    if reference_model is None and backend_model is None:
        if inputs is not None:
            raise UsageError("inputs= needs a model file; both sides are recordings.", hint="Leave it out.")
        return reference, backend
    from qdebug.running.model_runs import choose_backend, record_model

    random_notes: list[str] = []

    def record(run: ModelRun, given: GivenInputs, *, may_adapt: bool) -> Path:
        recorded = record_model(run, given, may_adapt=may_adapt)
        random_notes.extend([recorded.random] if recorded.random is not None and not may_adapt else [])
        return recorded.path

    source: AbstractContextManager[ModelRun | Recording] = (
        nullcontext(choose_backend(reference_model, reference=True))
        if reference_model is not None
        else opened_recording(reference)
    )
    with source as given_reference:
        recorded_reference, recorded_backends = record_runs(
            given_reference,
            [choose_backend(backend_model, reference=False)] if backend_model is not None else [],
            record,
            title=str(reference) if isinstance(reference, str | Path) else "The reference",
            inputs=inputs,
        )
    for note in random_notes:
        warnings.warn(f"The inputs are random ({note}); give inputs=FILE.npz.", stacklevel=3)
    return recorded_reference or reference, recorded_backends[0] if recorded_backends else backend


def explain(
    backend: str | Path | Recording,
    *,
    node: str | None = None,
    limits: Limits | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Explanation:
    """Find the arithmetic that reproduces each node of a recording bit for bit.

    Args:
        backend: A path or an open recording.
        node: Name of a node or tensor; None for all. Its siblings are also examined, as evidence.
        limits: Acknowledged nodes, and the maximum error in steps that needs no explanation; None for neither.
        executor: Examines nodes in its workers, with the same result; the backend must be a path.
        progress: Called with the number of examined outputs, their total and the name of the next node.

    Raises:
        RecordingError: The file cannot be read.
        UsageError: The node does not exist.

    Examples:
        >>> qdebug.explain("int8.h5", node="conv1_quant").nodes[0].status
        <ExplainStatus.EXPLAINED: 'explained'>
    """
    shared = None if executor is None else explained_by(executor, _path_for_workers(backend))
    return Explanation.made_of(explain_run(backend, node=node, limits=limits, progress=progress, shared=shared))


def budget(
    reference: str | Path | Recording,
    backend: str | Path | Recording,
    *,
    least: float = LEAST_SHARE,
    progress: Callable[[int, int], None] | None = None,
) -> ErrorBudget:
    """Return the share of every node's own error in the error of each output.

    Args:
        reference: A path or an open recording.
        backend: A path or an open recording.
        least: Minimum share of an output's error for which a node gets its own entry.
        progress: Called with the number of finished replays and their total, output by output.

    Raises:
        RecordingError: A file cannot be read.
        AlignmentError: The recordings are of different networks.

    Examples:
        >>> qdebug.budget("float.h5", "int8.h5").outputs[0].nodes[0].node
        'pwconv_quant'
    """
    with opened_recording(reference) as reference_recording, opened_recording(backend) as backend_recording:
        return DiffSession(reference_recording, backend_recording, cache=True).budget(least=least, progress=progress)


def _path_for_workers(run: str | Path | Recording) -> Path:
    """Return the path of a run that workers are to open.

    Raises:
        UsageError: The run is an open recording, which cannot be passed to another process.
    """
    if isinstance(run, Recording):
        raise UsageError("An executor needs paths, not open recordings.", hint="Pass paths.")
    return Path(run)
