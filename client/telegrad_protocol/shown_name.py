"""The package's name in what is shown: telegrad, or ``torch`` in programs that import it under PyTorch's name."""

from __future__ import annotations

_package = "telegrad"


def shown_name(name: str) -> str:
    """Return a public name with the package before it, such as ``telegrad.float32``."""
    return f"{_package}.{name}"


def show_as(package: str) -> None:
    """Show types, sizes and formats as names of this package from here on, in the whole process."""
    global _package
    _package = package
