"""Signatures of calls in C where that is compiled: the same as ``signature`` makes.

Knows no operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.engine.in_c.values import module
from server.engine.keys import DOMAIN_SHIFT
from server.engine.operators import Operator
from server.engine.replay.remembered import Tables
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

SignatureOf = Callable[[Operator, tuple[Any, ...]], tuple[int, tuple[Any, ...]]]
MetasOf = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def prepared(signature_of: SignatureOf, metas_of: MetasOf) -> tuple[SignatureOf, MetasOf] | None:
    """Return the two functions of C, which leave to those of Python what is unusual; None where there is no C."""
    if module is None:
        return None
    module.prepare_signatures({
        "Operator": Operator, "DType": DType, "Tables": Tables, "signature_of": signature_of, "metas_of": metas_of,
        "dtypes": vars(dtypes), "domain_shift": DOMAIN_SHIFT,
    })  # fmt: skip
    return module.signature_of, module.metas_of


def dispatching(first: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return ``dispatch``, which leaves calls that have no lookup to ``first``; None where it is Python's."""
    return None if module is None else module.bound_to_dispatch(first)


new_lookup: Final[Callable[..., Any] | None] = None if module is None else module.lookup
"""Returns what ``lookup.make_lookup`` does; None where that is Python's.

It takes the operator, the positions of a ``Layout`` (tensors, signed, decoded, scalars, lists), what calls that cannot
be read and those that are not cached go to, and how long lists of tensors may be.
"""
