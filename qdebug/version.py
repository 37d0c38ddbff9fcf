"""The version of qdebug, where everything below the package itself can read it."""

__all__ = ["__version__"]

__version__ = "0.2.0"
