"""Arguments and session of `qdebug budget` and `qdebug repair`, which first compare one backend with a reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from qdebug.cli.models import add_models, record_models
from qdebug.cli.output import progress
from qdebug.cli.parser import Parser, add_common, add_format, add_output, add_untrusted, add_workers, suffix_format
from qdebug.cli.sources import open_source

if TYPE_CHECKING:
    from qdebug.cli.record import BackendChoice
    from qdebug.session import DiffSession

__all__ = ["PairOptions", "add_files", "add_pair_options", "open_pair_session"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """Arguments for both runs and for the result."""

    reference: Path
    backend: Path
    format: str | None
    output: Path | None
    force: bool
    inputs: Path | None
    samples: int | None
    seed: int | None
    shape: Sequence[tuple[str, tuple[int, ...]]]
    runs_limit: int | None
    ref_backend: BackendChoice | None
    run_on: Sequence[BackendChoice]
    jobs: int
    scheduler: str | None
    untrusted: bool

    @property
    def backends(self) -> Sequence[Path]:
        """The backend, in the form that `record_models` expects."""
        return (self.backend,)

    @property
    def is_table(self) -> bool:
        """Whether the result is shown as a table in the terminal."""
        return self.output is None and suffix_format(self.format, self.output) == "table"

    def as_recordings(self) -> Self:
        """Return the options with models recorded and replaced by their recordings.

        Raises:
            UsageError: There are options for models without a model, or the numbers of backends and models do not
                match.
            QdebugError: A model cannot be recorded.
        """
        reference, (backend,) = record_models(self)
        return replace(self, reference=reference, backend=backend)


def add_files(parser: Parser, reference: str, backend: str) -> None:
    """Add the two files.

    Args:
        parser: The verb's parser.
        reference: Noun for the reference, for the help text.
        backend: Noun for the backend.
    """
    parser.add_argument("reference", type=Path, metavar="REF", help=f"recording or model file of the {reference}")
    parser.add_argument("backend", type=Path, metavar="BACKEND", help=f"recording or model file of the {backend}")


def add_pair_options(parser: Parser) -> None:
    """Add the other arguments for both runs."""
    add_models(parser.add_argument_group("model files instead of recordings (recorded into qdebug-runs/ first)"))
    add_format(parser)
    add_output(parser, what="the result")
    add_workers(parser.add_mutually_exclusive_group())
    add_untrusted(parser, "reference", "backend")
    add_common(parser)


@contextmanager
def open_pair_session(options: PairOptions) -> Iterator[DiffSession]:
    """Yield a session that has compared both recordings. Its workers end with the block."""
    from qdebug.running.workers import open_workers
    from qdebug.session import DiffSession

    session = DiffSession(open_source(options.reference), open_source(options.backend), cache=True)
    with open_workers(jobs=options.jobs, scheduler=options.scheduler) as executor:
        if executor is not None:
            session.compare_in(executor, options.reference, options.backend)
        with progress("comparing") as note:
            for count, _ in enumerate(session.results(), 1):
                note(count, session.total)
        yield session
