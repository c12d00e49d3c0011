"""``LazyModuleMixin`` under the name by which layers of other people import it."""

from __future__ import annotations

from telegrad.nn._lazy import LazyModuleMixin as LazyModuleMixin

__all__: list[str] = []
