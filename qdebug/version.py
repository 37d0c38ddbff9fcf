"""The version of qdebug, defined where every other module of the package can import it."""

__all__ = ["__version__"]

__version__ = "0.2.0"
