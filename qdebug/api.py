"""What `import qdebug` offers of comparing and explaining: results that know how to print themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
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
from qdebug.session import DiffSession, opened_recording

if TYPE_CHECKING:
    from rich.console import RenderableType

    from qdebug.running.fitted_inputs import GivenInputs
    from qdebug.running.model_runs import ModelRun

__all__ = ["DiffResult", "Explanation", "diff", "explain"]

_WIDTH = 100


class DiffResult(RunComparison):
    """The comparison of a backend recording with a reference recording.

    `print` shows the report that fits a screen. `result["conv1"]` is the result of a node. Iterating yields all of
    them in the backend's topological order.

    Example:
        >>> result = qdebug.diff("float.h5", "int8.h5")
        >>> print(str(result).split(":")[0])
        FAIL  diverged
        >>> result["pwconv_quant"].reason
        'the error of its arithmetic is 211.3 LSB, and rounding explains 1.5 at most'
        >>> [node.node for node in result if node.status == "diverged"]
        ['pwconv_quant']
    """

    __slots__ = ("_by_name",)
    _by_name: NamedEntries[NodeResult]

    @classmethod
    def made_of(cls, found: RunComparison) -> DiffResult:
        """Return a comparison as a public result."""
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    def __enter__(self) -> Self:
        """Return the result: `with qdebug.diff(a, b) as result` says how long it is needed."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the index by name; `diff` closed its files when it returned."""
        if hasattr(self, "_by_name"):
            object.__delattr__(self, "_by_name")

    def node(self, name: str) -> NodeResult:
        """Return the result of a node or tensor.

        Args:
            name: A whole name of a backend node, a backend tensor or a reference tensor; else a part of a name or a
                pattern (`*`, `?`) that fits those of one node alone.

        Raises:
            UsageError: Nothing that was compared has this name, or the pattern fits several nodes.
        """
        return self._named.find(name)

    @property
    def _named(self) -> NamedEntries[NodeResult]:
        """The results by name, which are put in order at the first look-up."""
        if not hasattr(self, "_by_name"):
            object.__setattr__(self, "_by_name", NamedEntries(self.nodes))
        return self._by_name

    def __getitem__(self, name: str) -> NodeResult:
        """Return the result of a node or tensor, as `node` does."""
        return self.node(name)

    def __contains__(self, name: object) -> bool:
        """Tell whether a backend node, a backend tensor or a reference tensor of this whole name was compared."""
        return isinstance(name, str) and self._named.exact(name) is not None

    def __iter__(self) -> Iterator[NodeResult]:
        """Yield the results, in the backend's topological order."""
        return iter(self.nodes)

    def __str__(self) -> str:
        """Return the report that `qdebug diff` prints."""
        from qdebug.present.reports.short import short_document
        from qdebug.present.reports.terminal import terminal

        return _printed(terminal(short_document(self), width=_WIDTH))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from qdebug.present.reports.html import diff_fragment

        return diff_fragment(self)


class Explanation(ExplainedRun):
    """Which arithmetic reproduces each node of a recording; `print` shows its report.

    Example:
        >>> explanation = qdebug.explain("int8.h5")
        >>> explanation.summary["unexplained"]
        1
    """

    __slots__ = ()

    @classmethod
    def made_of(cls, found: ExplainedRun) -> Explanation:
        """Return an explanation as a public result."""
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    def __str__(self) -> str:
        """Return the report that `qdebug explain` prints."""
        from qdebug.present.reports.explain import explain_document
        from qdebug.present.reports.terminal import terminal

        return _printed(terminal(explain_document(self)))


def _printed(report: RenderableType) -> str:
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
    inputs: str | Path | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
    quick: bool = False,
    thorough: bool = False,
) -> DiffResult:
    """Compare a backend recording with a reference recording.

    What was found out of two files is kept, in `BACKEND.qdebug-cache` or the user's cache folder, for the next time. A
    model file is recorded first, as `qdebug diff` does: into `qdebug-runs/` in the current folder, or not at all if the
    very same run is there.

    Args:
        reference: A path of a recording or of a model file, or an open recording.
        backend: The same.
        limits: What counts as divergence and what may be missing; derived limits if None.
        min_sqnr: Least SQNR of a tensor in dB; this and those below go before the same fields of `limits`.
        max_lsb: Largest difference in steps of the backend's scale.
        atol: Largest absolute difference.
        rtol: Relative part of that, of the reference's value.
        min_output_sqnr: Least SQNR of an output of the network in dB.
        map: Pairs of your own, which go before all that is found: a file, see `qdebug.limits.map_file`, or a list.
        inputs: An .npz file with the inputs of a reference that is a model file, or further ones of a recorded one.
            Random values if None, with a warning: they hide what real ones show.
        executor: Compares tensors in its workers; both sides must then be paths. The result is the same.
        progress: Called with the number of tensors compared and their total.
        quick: Leave out what takes longer than the comparison: shares of the outputs' error, and what to try.
        thorough: Replay all nodes for their shares, and try edits on all that are named, in all samples.

    Raises:
        RecordingError: A file cannot be read.
        AlignmentError: The two record different networks.
        UsageError: The map cannot be read, or names a tensor of which there are no values; a limit means nothing; a
            model that no installed backend runs; inputs without a model.
        BackendError: A model cannot be run.
        InputError: The inputs are no .npz file of plain arrays, or do not fit.

    Example:
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
    own: dict[str, Any] = {name: value for name, value in bounds.items() if value is not None}
    limits = replace(limits or Limits(), **own) if own else limits
    reference, backend = _recorded(reference, backend, inputs)
    given = load_map(map) if isinstance(map, str | Path) else map
    with opened_recording(reference) as ref, opened_recording(backend) as other:
        session = DiffSession(ref, other, limits=limits, cache=True, given=given)
        if executor is not None:
            session.compare_in(executor, _path(reference), _path(backend))
        result = session.result(progress=progress, contributors=not quick, thorough=thorough)
        return DiffResult.made_of(result if quick else with_remedies(session, result, thorough=thorough))


def _recorded(
    reference: str | Path | Recording, backend: str | Path | Recording, inputs: str | Path | None
) -> tuple[str | Path | Recording, str | Path | Recording]:
    """Return both sides with model files recorded.

    Raises:
        UsageError: There are inputs and no model, or no installed backend runs a model.
        QdebugError: A model cannot be recorded.
    """
    first, second = (
        None if isinstance(side, Recording) or not is_model(Path(side)) else Path(side) for side in (reference, backend)
    )
    if first is None and second is None:
        if inputs is not None:
            raise UsageError("inputs is for model files, and both of these are recordings.", hint="Leave it out.")
        return reference, backend
    from qdebug.running.model_runs import choose_backend, record_model

    random: list[str] = []

    def record(run: ModelRun, given: GivenInputs, *, adapt: bool) -> Path:
        done = record_model(run, given, adapt=adapt)
        random.extend([done.random] if done.random is not None and not adapt else [])
        return done.path

    source: AbstractContextManager[ModelRun | Recording] = (
        nullcontext(choose_backend(first, reference=True)) if first is not None else opened_recording(reference)
    )
    with source as given_reference:
        made, others = record_runs(
            given_reference,
            [choose_backend(second, reference=False)] if second is not None else [],
            record,
            title=str(reference) if isinstance(reference, str | Path) else "The reference",
            inputs=inputs,
        )
    for said in random:
        warnings.warn(f"The inputs are random ({said}); give inputs=FILE.npz.", stacklevel=3)
    return made or reference, others[0] if others else backend


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
        node: Name of one node or tensor to answer for; all if None. Its siblings are looked at too, for their evidence.
        limits: Acknowledged nodes, and the largest error in steps that need not be explained; nothing if None.
        executor: Looks at nodes in its workers; the backend must then be a path. The result is the same.
        progress: Called with the number of outputs looked at, their total and the name of the next node.

    Raises:
        RecordingError: The file cannot be read.
        UsageError: There is no such node.

    Example:
        >>> qdebug.explain("int8.h5", node="conv1_quant").nodes[0].status
        <ExplainStatus.EXPLAINED: 'explained'>
    """
    shared = None if executor is None else explained_by(executor, _path(backend))
    return Explanation.made_of(explain_run(backend, node=node, limits=limits, progress=progress, shared=shared))


def budget(
    reference: str | Path | Recording,
    backend: str | Path | Recording,
    *,
    least: float = LEAST_SHARE,
    progress: Callable[[int, int], None] | None = None,
) -> ErrorBudget:
    """Tell how much of each output's error the own error of every node makes.

    Args:
        reference: A path or an open recording.
        backend: A path or an open recording.
        least: Smallest share of an output's error that a node has an entry of its own for.
        progress: Called with the number of replays made and their total, output by output.

    Raises:
        RecordingError: A file cannot be read.
        AlignmentError: The two record different networks.

    Example:
        >>> qdebug.budget("float.h5", "int8.h5").outputs[0].nodes[0].node
        'pwconv_quant'
    """
    with opened_recording(reference) as ref, opened_recording(backend) as other:
        return DiffSession(ref, other, cache=True).budget(least=least, progress=progress)


def _path(given: str | Path | Recording) -> Path:
    """Return the path that workers open.

    Raises:
        UsageError: It is an open recording.
    """
    if isinstance(given, Recording):
        raise UsageError("An executor needs paths, not open recordings.", hint="Pass paths.")
    return Path(given)
