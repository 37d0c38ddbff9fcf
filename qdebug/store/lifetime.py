"""What is opened and has to be closed again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closable"]


class Closable(ABC):
    """A thing that is closed at the end of the block that opens it, however that ends."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held. Again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
