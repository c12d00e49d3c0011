"""Namespaces beside the top level: an operation that users call ``linalg.det`` is named ``linalg_det`` in the table."""

from __future__ import annotations

NAMESPACES = ("fft", "linalg", "signal.windows", "special")
_PREFIXES = {f"{namespace.replace('.', '_')}_": namespace for namespace in NAMESPACES}
_ALL_PREFIXES = tuple(_PREFIXES)


def place_of(public: str) -> tuple[str, str]:
    """Return the namespace and the name in it by which users call an operation; ``""`` is the top level."""
    if public.startswith(_ALL_PREFIXES):
        for prefix, namespace in _PREFIXES.items():
            if public.startswith(prefix):
                return namespace, public.removeprefix(prefix)
    return "", public


def public_of(called: str) -> str:
    """Return the public name of what users call by a dotted name, such as ``linalg_det`` of ``linalg.det``."""
    namespace, _, name = called.rpartition(".")
    return f"{namespace.replace('.', '_')}_{name}" if namespace in NAMESPACES else called
