"""Every error qdebug raises on purpose.

QdebugError                 anything below; carries a message and a hint
├── UsageError              the call or the command line asks for something that does not exist
│   ├── InputError          a model input has a wrong name, shape or dtype
│   └── LimitsError         a limits file cannot be read, or has an invalid entry
├── MissingExtraError       an optional package is not installed (also an ImportError)
├── RecordingError          a recording cannot be read or written
│   ├── NotARecordingError  the file is not a recording
│   ├── FormatVersionError  written by a newer qdebug
│   ├── NotRecordedError    the recording lacks some or all values of a tensor
│   ├── PayloadMismatchError  values that do not match their recorded hash
│   └── OutputExistsError   the target exists and may not be overwritten (also a FileExistsError)
├── GraphError              nodes that do not form a graph: a cycle, a tensor produced twice
├── KernelError             a node cannot be replayed
│   ├── NoKernelError       the operator does not have a kernel
│   ├── NoInputError        a node was recorded without an input that its operator requires
│   ├── NoScaleError        a node computes with codes whose scale was not recorded
│   └── RefusedSizeError    a node would take more memory or work than the recorded tensors account for
├── AlignmentError          two recordings have nothing in common
├── BackendError            the framework that runs the model failed
└── WorkerError             workers cannot be reached, or were lost with their work
"""

from __future__ import annotations

from functools import partial
from typing import Any


class QdebugError(Exception):
    """Base of all errors that qdebug raises on purpose.

    Args:
        message: One sentence that states what was found and what was expected.
        hint: One imperative sentence, with a command if there is one; empty if nothing helps.

    Examples:
        >>> try:
        ...     qdebug.open_recording("missing.h5")
        ... except qdebug.QdebugError as error:
        ...     print(error.hint != "")
        True
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def name_subject(self, subject: str) -> None:
        """Put the subject of the error in front of its message, unless the message already names it.

        Args:
            subject: For example the path of one of several models.
        """
        if subject not in self.message:
            self.message = f"{subject}: {self.message}"


class UsageError(QdebugError):
    """The caller asked for something that does not exist, or gave arguments that do not match each other."""


class InputError(UsageError):
    """A model input has a wrong name, shape or dtype."""


class LimitsError(UsageError):
    """A limits file cannot be read or written, or an entry in it is invalid."""


class MissingExtraError(QdebugError, ImportError):
    """An optional package is required but not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed.",
            hint=f"Install it: pip install 'qdebug[{extra}]' (in a clone: pip install '.[{extra}]').",
        )
        self.package = package
        self.extra = extra
        self.purpose = purpose

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle as their class and `args`, which would lose the keywords between processes.
        return partial(MissingExtraError, self.package, extra=self.extra, purpose=self.purpose), ()


class RecordingError(QdebugError):
    """A recording cannot be read or written."""


class NotARecordingError(RecordingError):
    """The file is not a qdebug recording."""


class FormatVersionError(RecordingError):
    """The recording was written in a newer format than this version of qdebug can read."""


class NotRecordedError(RecordingError):
    """The recording is readable, but lacks some or all values of a tensor for a sample and step."""


class PayloadMismatchError(RecordingError):
    """The values of a tensor do not match their recorded hash."""


class OutputExistsError(RecordingError, FileExistsError):
    """The target file exists, and overwriting was not requested."""


class GraphError(QdebugError):
    """The given nodes do not form a valid graph."""


class KernelError(QdebugError):
    """A node cannot be replayed with its inputs and attributes."""


class NoKernelError(KernelError):
    """An operator does not have a kernel."""


class NoInputError(KernelError):
    """A node was recorded without an input that its operator requires."""


class NoScaleError(KernelError):
    """A node computes with codes whose scale was not recorded."""


class RefusedSizeError(KernelError):
    """A node would take more memory or work than the recorded tensors account for, or ran out of memory."""


class AlignmentError(QdebugError):
    """Two recordings have no tensor in common."""


class BackendError(QdebugError):
    """The framework that runs the model reported a failure."""


class WorkerError(QdebugError):
    """The workers that share a computation cannot be reached, or were lost with their work."""
