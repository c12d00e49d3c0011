"""Signatures of calls in C where that is compiled: the same as ``signature`` makes.

Knows no operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from server.engine.in_c.values import module
from server.engine.keys import DOMAIN_SHIFT
from server.engine.operators import Operator
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

SignatureOf = Callable[[Operator, tuple[Any, ...]], tuple[int, tuple[Any, ...]]]
MetasOf = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def prepared(signature_of: SignatureOf, metas_of: MetasOf) -> tuple[SignatureOf, MetasOf] | None:
    """Return the two functions of C, which leave to those of Python what is unusual; None where there is no C."""
    if module is None:
        return None
    module.prepare_signatures({
        "Operator": Operator, "DType": DType, "signature_of": signature_of, "metas_of": metas_of,
        "dtypes": vars(dtypes), "domain_shift": DOMAIN_SHIFT,
    })  # fmt: skip
    return module.signature_of, module.metas_of
