"""Metas in C where that is compiled: the same objects as ``Meta.of`` returns.

Knows no operations.
"""

from __future__ import annotations

from typing import Final
from weakref import KeyedRef

from server.engine.in_c.values import module
from telegrad_protocol import meta
from telegrad_protocol.meta import CPU, Device, Meta

meta_in_python: Final = Meta.of
"""Returns metas where nothing is in C, and where something is about them that is unusual."""


def install() -> None:
    """Have metas looked up, and made where there are none, in C; called once."""
    if module is not None:
        module.prepare_metas({
            "Meta": Meta, "Device": Device, "KeyedRef": KeyedRef, "meta_of": meta_in_python, "metas": vars(meta),
            "host": CPU,
        })  # fmt: skip
        Meta.of = staticmethod(module.meta_of)  # type: ignore[method-assign]
