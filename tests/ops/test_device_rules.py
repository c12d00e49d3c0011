"""Where operands may be, for every operation of the table: on one device, but for what a GPU may read from the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from telegrad_protocol.dtypes import float32, int64
from telegrad_protocol.errors import DeviceError, TelegradError
from telegrad_protocol.meta import CPU, Device, Meta
from telegrad_protocol.ops import BY_INDEX, TABLE, Op
from telegrad_protocol.ops.devices import device_beside_host

FIRST, SECOND = Device("cuda:0"), Device("cuda:1")
ANYWHERE = {"copy_", "fill_", "view_as", "reshape_as", "expand_as"}
"""Operations whose operands may be on different devices, as in PyTorch; those of ``_foreach_`` row by row."""
INDEXED = {"index", "index_put", "index_put_"}
"""Operations that take indices from the host."""


def _tensors(op: Op) -> int:
    """How many tensors ``_bound`` gives the operation: a list holds two."""
    return sum(2 if op.params[p].kind.name.startswith("tensors") else 1 for p in op.tensor_positions)


def _bound(op: Op, metas: Iterator[Meta]) -> tuple[Any, ...]:
    """Arguments with a tensor in every place that takes one, and defaults or None in all others."""
    bound: list[Any] = [None if p.required else p.default for p in op.params]
    for position in op.tensor_positions:
        is_list = op.params[position].kind.name.startswith("tensors")
        bound[position] = (next(metas), next(metas)) if is_list else next(metas)
    return tuple(bound)


def _owner(op: Op, number: int) -> int:
    """The position of the parameter that takes the tensor of this number."""
    owners = []
    for p in op.tensor_positions:
        owners += [p] * (2 if op.params[p].kind.name.startswith("tensors") else 1)
    return owners[number]


def _failure(op: Op, metas: list[Meta]) -> str:
    """What the operation says of these operands' devices; it may find something else wrong with them, or nothing."""
    try:
        op.infer(_bound(op, iter(metas)))
    except DeviceError as error:
        return error.message
    except (TelegradError, TypeError, ValueError, AttributeError, IndexError, KeyError, AssertionError):
        return ""  # the rule came to look at shapes and attributes, which are made up
    return ""


def _mixing() -> list[Op]:
    return [op for op in BY_INDEX if _tensors(op) > 1]


def _is_checked(op: Op) -> bool:
    return op.public not in ANYWHERE and not op.public.startswith("_foreach_")


@pytest.mark.parametrize("op", [op for op in _mixing() if _is_checked(op)], ids=lambda op: op.name)
def test_every_tensor_must_be_where_the_others_are(op: Op) -> None:
    here = Meta.of((2, 2), float32, FIRST)
    for number in range(_tensors(op)):
        metas = [here] * _tensors(op)
        metas[number] = Meta.of((2, 2), float32, SECOND)
        pair = r"cuda:1 and cuda:0" if number == 0 else r"cuda:0 and cuda:1"
        wanted = rf"{re.escape(op.public)}: Expected all tensors to be on the same device, .* devices, {pair}!"
        assert re.fullmatch(wanted, _failure(op, metas)), f"tensor {number} on another GPU"
        metas[number] = Meta.of((2, 2), float32, CPU)
        is_index = op.public in INDEXED and op.params[_owner(op, number)].name == "indices"
        assert bool(_failure(op, metas)) is not is_index, f"tensor {number} on the CPU"


@pytest.mark.parametrize("op", [op for op in _mixing() if op.promotion], ids=lambda op: op.name)
def test_numbers_on_the_host_go_along_unless_they_are_written(op: Op) -> None:
    here, number_on_host = Meta.of((2, 2), float32, FIRST), Meta.of((), float32, CPU)
    for number in range(_tensors(op)):
        metas = [here] * _tensors(op)
        metas[number] = number_on_host
        assert bool(_failure(op, metas)) is (_owner(op, number) in op.mutates), f"tensor {number}"


def test_a_number_on_the_host_does_not_draw_the_result_there() -> None:
    """PyTorch refuses such operands; they are no operands of an element-wise operation, which would go to the GPU."""
    indices = Meta.of((2,), int64, FIRST)
    with pytest.raises(DeviceError, match="found at least two devices, cuda:0 and cpu"):
        TABLE["gather"].infer((Meta.of((), float32, CPU), 0, indices.view((), ()), False))


@pytest.mark.parametrize("name", sorted(ANYWHERE))
def test_some_operations_take_operands_from_anywhere(name: str) -> None:
    for op in _mixing():
        if op.public == name:
            metas = [Meta.of((2, 2), float32, FIRST), *[Meta.of((2, 2), float32, SECOND)] * (_tensors(op) - 1)]
            assert not _failure(op, metas)
            assert op.mixed_devices, f"{op} is one of these by accident"


@pytest.mark.parametrize("device", [CPU, FIRST], ids=str)
def test_lists_on_one_device_stand_beside_nothing(device: Device) -> None:
    """Results of operations whose operands are all in one place need no look at theirs."""
    listed = tuple([Meta.of((2, 3), float32, device)] * 2)
    assert device_beside_host(TABLE["cat"], (listed, 0)) is None
    with pytest.raises(DeviceError, match="cuda:1"):
        device_beside_host(TABLE["cat"], ((*listed, Meta.of((2, 3), float32, SECOND)), 0))
