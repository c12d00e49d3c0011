"""Calls of every operation with an argument that is of the wrong kind, or an extreme value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

from telegrad_protocol import dtypes
from telegrad_protocol.messages import Upload
from telegrad_protocol.ops import TABLE, Op
from telegrad_protocol.ops.params import Param

TENSORS: Final[dict[int, tuple[dtypes.DType, tuple[int, ...]]]] = {
    1: (dtypes.float32, (2, 3)), 2: (dtypes.float32, (3, 3)), 3: (dtypes.int64, (3,)), 4: (dtypes.bool_, (2, 3)),
    5: (dtypes.complex64, (3, 3)), 6: (dtypes.float32, ()), 7: (dtypes.float32, (0, 3)), 8: (dtypes.bfloat16, (2, 3)),
    9: (dtypes.float32, (1, 2, 4, 4)), 10: (dtypes.float64, (1,) * 20), 11: (dtypes.uint8, (5,)),
    12: (dtypes.float32, (2, 2, 3)), 13: (dtypes.complex32, (2,)), 14: (dtypes.int64, ()),
}  # fmt: skip
"""The tensors of a session by number: types and shapes that operations tell apart."""
UNKNOWN: Final = 999
NUMBERS: Final = (
    0, 1, -1, 2, 7, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, 2**31, -(2**31) - 1, 2**40, 0.5, -0.5, 1e308, 1e-320,
    math.inf, -math.inf, math.nan,
)  # fmt: skip
EXTREMES: Final[tuple[Any, ...]] = (
    *NUMBERS, None, True, False, "", "x", "mean", "cuda:99", "\0", "cpu:7", b"", b"\xff", [], [[]], [0], [-1], [1, 1],
    [2, 3], [0, 0], [2**62, 2**62], [2**63 - 1], [2**40], [-(2**63)], [math.nan], [None], [None, None], [1, 2, 3],
    [True], ["x"], [1.5], [1] * 65, [[1]], [[1, 2], [3]], {}, {"a": 1}, {1: [2]}, [UNKNOWN], [1, 2], [4, 3],
    [1.0, math.inf], [3, 3, 3, 3], [[0.0]], [[1.0, 2.0]], [[math.inf]], [[2**64 - 1]],
)  # fmt: skip
"""What stands in the place of one argument: whatever MessagePack can hold, and numbers at which types end."""
_USUAL: Final[dict[str, tuple[Any, ...]]] = {
    "tensor": (1, 2, 3, 9), "tensor|scalar": (1, [2.5], 2), "tensors": ([1, 1], [2]), "tensors?": ([1, None], [3]),
    "scalar": (1, 2.5), "int": (0, 1), "float": (0.5, 1), "bool": (False, True), "str": ("mean", "reflect", "ij"),
    "size": ([2, 3], [1], [2]), "sizes?": ([1, 1], [2]), "int|size": (1, [1, 2]), "scalars": ([1, 2], [1.0]),
    "dtype": (dtypes.float32.code, dtypes.int64.code), "device": ("cpu",),
}  # fmt: skip


class Attempt(NamedTuple):
    """A call of an operation, and the place of the argument that is unusual."""

    op: Op
    args: list[Any]
    place: int


def uploads() -> list[Upload]:
    """The instructions that make the tensors."""
    made = []
    for id, (dtype, shape) in TENSORS.items():
        count = math.prod(shape)
        data = bytes([index % 3 for index in range(count)] if dtype.itemsize == 1 else count * dtype.itemsize)
        made.append(Upload(id, 0, dtype.code, shape, "cpu", data))
    return made


def usual(param: Param, random: Random) -> Any:
    """Return an argument that a parameter takes."""
    name = param.kind.name
    if not param.required and random.random() < 0.6:
        return _encoded(param, param.default)
    known = _USUAL.get(name) or _USUAL.get(name.removesuffix("?"))
    return random.choice(known) if known else None


def _encoded(param: Param, default: Any) -> Any:
    if param.kind.holds_tensors and isinstance(default, (int, float)):
        return [default]
    encode = param.kind.encode
    return default if default is None or encode is None else encode(default)


def attempts(random: Random, of_each: int) -> Iterator[Attempt]:
    """Yield for each parameter of each operation so many calls in which it gets what it does not expect."""
    for op in TABLE.values():
        for place in range(len(op.params)):
            unusual = EXTREMES if of_each >= len(EXTREMES) else random.sample(EXTREMES, of_each)
            for value in unusual:
                args = [usual(param, random) for param in op.params]
                args[place] = value
                yield Attempt(op, args, place)
            tensors = random.sample(list(TENSORS), min(of_each, len(TENSORS)))
            for id in tensors if op.params[place].kind.holds_tensors else ():
                args = [usual(param, random) for param in op.params]
                args[place] = [id, random.choice(tensors)] if op.params[place].kind.name.startswith("tensors") else id
                yield Attempt(op, args, place)
        for _ in range(of_each):
            args = [random.choice(EXTREMES) if random.random() < 0.3 else usual(param, random) for param in op.params]
            yield Attempt(op, args, -1)
