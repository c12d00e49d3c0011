"""``torch._prims_common`` and ``torch.utils._device``: their functions tell what PyTorch's do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import _prims_common as theirs

from telegrad._programs import device_mode, element_kinds, prims
from telegrad._programs.compiled_core import _current_graph_task_id

from .twins import OURS

KINDS = (
    "is_boolean_dtype", "is_integer_dtype", "is_float_dtype", "is_complex_dtype", "is_grad_dtype",
    "is_low_precision_dtype", "dtype_to_type", "get_computation_dtype",
)  # fmt: skip
OF_SHAPES: list[tuple[str, tuple[Any, ...]]] = [
    ("canonicalize_dim", (3, -1)), ("canonicalize_dim", (0, 0)), ("canonicalize_dims", (3, (-1, 0))),
    ("is_valid_permutation", (3, (0, 2, 1))), ("is_valid_permutation", (3, (0, 2, 2))),
    ("apply_perm", ([5, 6, 7], (2, 0, 1))), ("invert_perm", ((2, 0, 1),)), ("is_same_shape", ((1, 2), (1, 2))),
    ("is_expandable_to", ((1, 3), (4, 2, 3))), ("is_expandable_to", ((2, 3), (3, 3))),
    ("infer_size_shapes", ((2, 1), (3,))), ("reduction_dims", ((2, 3, 4), None)), ("reduction_dims", ((2, 3), (-1,))),
    ("compute_reduction_output_shape", ((2, 3, 4), (1,))), ("make_contiguous_strides_for", ((2, 3, 4),)),
    ("make_contiguous_strides_for", ((2, 3, 4), False)), ("make_contiguous_strides_for", ((2, 0, 4),)),
    ("make_channels_last_2d_strides_for", ((2, 3, 4, 5),)), ("extract_shape_from_varargs", ((2, 3),)),
    ("extract_shape_from_varargs", (((2, 3),),)), ("infer_size", ((2, -1, 3), 12)), ("prod", ((2, 3, 4),)),
]  # fmt: skip
OF_TENSORS = (
    "is_contiguous", "suggest_memory_format", "is_channels_last_contiguous", "is_non_overlapping_and_dense_or_false",
    "is_cpu_scalar_tensor",
)  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_types_are_told(name: str) -> None:
    for dtype in (torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64):
        expected = getattr(theirs, name)(dtype)
        told = getattr(element_kinds, name)(OURS[dtype])
        assert told is OURS.get(expected, expected), dtype


@pytest.mark.parametrize(("name", "arguments"), OF_SHAPES)
def test_shapes_and_strides_are_told(name: str, arguments: tuple[Any, ...]) -> None:
    expected = getattr(theirs, name)(*arguments)
    told = getattr(prims, name)(*arguments)
    assert told == (tuple(expected) if isinstance(expected, torch.Size) else expected)


@pytest.mark.parametrize("name", OF_TENSORS)
def test_layouts_of_tensors_are_told(name: str, tg: Any) -> None:
    for make in (
        lambda t: t.ones(2, 3, 4, 5), lambda t: t.ones(2, 3, 4, 5).to(memory_format=t.channels_last),
        lambda t: t.ones(2, 3, 4, 5).transpose(1, 2), lambda t: t.ones(2, 3, 4, 5)[:, :, ::2],
        lambda t: t.tensor(1.0, device="cpu"),
    ):  # fmt: skip
        told, expected = getattr(prims, name)(make(tg)), getattr(theirs, name)(make(torch))
        assert str(told).replace("telegrad.", "torch.") == str(expected)


def test_unequal_shapes_and_types_are_refused(tg: Any) -> None:
    x, one = tg.ones(2, 3), tg.tensor(1.0, device="cpu")
    prims.check_same_shape(x, one, 2, allow_cpu_scalar_tensors=True)
    prims.check_same_dtype(x, one, 2)
    for refused in (
        lambda: prims.check_same_shape(x, x[0], allow_cpu_scalar_tensors=True),
        lambda: prims.check_same_dtype(x, x.double()), lambda: prims.reduction_dims((2, 3), (0, -2)),
        lambda: prims.check(False, lambda: "no"), lambda: prims.extract_shape_from_varargs((2, -1)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            refused()


def test_a_mode_makes_tensors_on_its_device(tg: Any) -> None:
    with device_mode.DeviceContext("meta"):
        assert tg.ones(2).is_meta and tg.device("meta") == device_mode.CURRENT_DEVICE
    assert device_mode.set_device("meta")(lambda: tg.ones(2).is_meta)() and not tg.ones(2).is_meta
    assert device_mode.CURRENT_DEVICE is None


def test_hooks_are_told_which_pass_they_are_in(tg: Any) -> None:
    told: list[int] = []
    x = tg.ones(2, requires_grad=True)
    for _ in range(2):
        doubled = x * 2
        doubled.register_hook(lambda grad: told.append(_current_graph_task_id()))
        doubled.sum().backward()
    assert len(set(told)) == 2 and min(told) >= 0
    assert _current_graph_task_id() == -1


def test_functions_are_told_whether_a_pass_may_begin_in_theirs(tg: Any) -> None:
    told: list[bool] = []
    x = tg.ones(2, requires_grad=True)
    doubled = x * 2
    doubled.register_hook(lambda grad: told.append(tg.autograd._is_checkpoint_valid()))
    tg.autograd.grad(doubled.sum(), x, retain_graph=True)
    doubled.sum().backward()
    assert told == [False, True] and tg.autograd._is_checkpoint_valid()
