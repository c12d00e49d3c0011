"""Messages, warnings and printed forms that programs compare: PyTorch's words are in telegrad's."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from .twins import evaluate

FAILING = [
    ("t.ones(2, 3) @ t.ones(2, 3)", "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
    ("t.nn.Linear(2, 4)(t.ones(5, 3))", "mat1 and mat2 shapes cannot be multiplied (5x3 and 2x4)"),
    (
        "t.nn.Conv2d(3, 4, 3)(t.ones(1, 2, 5, 5))",
        "Given groups=1, weight of size [4, 3, 3, 3], expected input[1, 2, 5, 5] to have 3 channels, but got 2",
    ),
    (
        "t.nn.CrossEntropyLoss()(t.ones(2, 3), t.ones(3, dtype=t.int64))",
        "Expected input batch_size (2) to match target batch_size (3)",
    ),
    ("t.nn.BatchNorm1d(3)(t.ones(1, 3))", "Expected more than 1 value per channel when training, got"),
    ("t.nn.functional.group_norm(t.ones(1, 3), 3)", "Expected more than 1 value per channel when training, got"),
    ("t.bmm(t.ones(2, 3), t.ones(2, 3, 4))", "batch1 must be a 3D tensor"),
    ("t.bmm(t.ones(2, 3, 4), t.ones(2, 3))", "batch2 must be a 3D tensor"),
    ("t.nn.Embedding(3, 2)(t.tensor([5])).tolist()", "index out of range in self"),
    ("t.tensor([[1], [1, 2]])", "expected sequence of length 1 at dim 1 (got 2)"),
    ("t.tensor([[[1, 2]], [[1]]])", "expected sequence of length 2 at dim 2 (got 1)"),
    ("t.ones(2, 3) + t.ones(4)", "The size of tensor a (3) must match the size of tensor b (4) at non-singleton"),
    ("t.ones(2, 3)[5]", "index 5 is out of bounds for dimension 0 with size 2"),
    ("t.ones(2, 3)[:, [7]]", "index 7 is out of bounds for dimension"),
    ("t.ones(2, 3).view(4)", "shape '[4]' is invalid for input of size 6"),
    ("t.ones(2, 3).sum(3)", "Dimension out of range (expected to be in range of [-2, 1], but got 3)"),
    ("t.ones(2, 3).expand(4, 3)", "The expanded size of the tensor (4) must match the existing size (2)"),
    ("t.cat([t.ones(2, 3), t.ones(3, 3)], 1)", "Sizes of tensors must match except in dimension 1. Expected size 2"),
    ("t.cat([t.ones(2, 3), t.ones(3)])", "Tensors must have same number of dimensions: got 2 and 1"),
    ("t.stack([t.ones(2), t.ones(3)])", "stack expects each tensor to be equal size, but got [2] at entry 0"),
    ("t.ones(2).item()", "a Tensor with 2 elements cannot be converted to Scalar"),
    ("bool(t.ones(2))", "Boolean value of Tensor with more than one value is ambiguous"),
    ("bool(t.ones(0))", "Boolean value of Tensor with no value"),
    ("t.ones(2).sum().backward()", "element 0 of tensors does not require grad and does not have a grad_fn"),
    ("t.ones(2, requires_grad=True).backward()", "grad can be implicitly created only for scalar outputs"),
    ("t.ones(2, requires_grad=True).numpy()", "Can't call numpy() on Tensor that requires grad. Use tensor.detach()"),
    (
        "t.ones(4).reshape(2, 2).requires_grad_()[0].add_(1)",
        "a view of a leaf Variable that requires grad is being used",
    ),
    ("t.ones(4).view(2, 2).requires_grad_().zero_()", "a view of a leaf Variable that requires grad is being used"),
    ("t.ones(2, requires_grad=True).add_(1)", "a leaf Variable that requires grad is being used in an in-place"),
    (
        "a, b = (t.ones(2, requires_grad=True) for _ in range(2))\nt.autograd.grad(a.sum(), [a, b])",
        "appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior",
    ),
    ("t.func.jacrev(lambda a: a.long())(t.ones(2))", "All outputs of f must be floating-point or complex Tensors"),
    ("t.func.functional_call(t.nn.Linear(1, 1), {'z': 1}, (), strict=True)", "Error(s) in reparametrizing for Linear:"),
    (
        "p, q = (t.nn.Parameter(t.ones(1)) for _ in range(2))\nt.optim.SGD([('p', p), q], lr=0.1)",
        "all optimizer params should be with/without names. Some param names are missing",
    ),
    ("t.ones(2, dtype=t.int64, requires_grad=True)", "Only Tensors of floating point and complex dtype can require"),
    ("(t.ones(2, requires_grad=True) * 2).requires_grad_(False)", "you can only change requires_grad flags of leaf"),
    ("with t.inference_mode(): x = t.ones(2)\nx._version", "Inference tensors do not track version counter"),
    ("with t.inference_mode(): x = t.ones(2)\nx.requires_grad_()", "Setting requires_grad=True on inference tensor"),
    ("'a' in t.ones(1)", "Tensor.__contains__ only supports Tensor or scalar, but you passed in a <class 'str'>"),
    ("t.tensor([1, None])", "Could not infer dtype of NoneType"),
    ("t.ones(2, 3).index_select(0, t.tensor([[0]]))", "Index is supposed to be a vector"),
    ("t.finfo(t.int8)", "torch.finfo() requires a floating point input type"),
    ("t.iinfo(t.float32)", "torch.iinfo() requires an integer input type"),
    ("t.ones(3, 3).t().add_(t.ones(3, 3).expand(3, 3)).expand(2, 3, 3).add_(1)", "more than one element of the"),
    ("x = t.ones(3, 3)\nx.add_(x.t())", "some elements of the input tensor and the written-to tensor refer to"),
    (
        "x = t.ones(2, requires_grad=True) * 2\nwith t.no_grad(): v = x[:1]\nv.add_(1)",
        "A view was created in no_grad mode and is being modified inplace with grad mode enabled",
    ),
]


@pytest.mark.parametrize(("program", "words"), FAILING)
def test_errors_have_pytorchs_words_in_them(tg: Any, program: str, words: str) -> None:
    ours, theirs = evaluate(program, tg)
    assert words in str(theirs)
    assert words in str(ours)
    assert isinstance(ours, type(theirs)) or issubclass(type(theirs), RuntimeError)


WARNED = [
    ("t.nn.functional.mse_loss(t.ones(7), t.ones(7, 1))", "Using a target size (torch.Size([7, 1])) that is different"),
    ("t.nn.SmoothL1Loss()(t.ones(3, 5), t.ones(5))", "Using a target size (torch.Size([5])) that is different"),
    ("(t.ones(2, requires_grad=True) * 2).grad", "The .grad attribute of a Tensor that is not a leaf Tensor is being"),
    ("t.tensor(t.ones(2))", "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone()"),
    ("t.ones(9, 1).std(1)", "std(): degrees of freedom is <= 0"),
    ("t.var_mean(t.ones(2, 1, 4), 1)", "var_mean(): degrees of freedom is <= 0"),
    ("t.ones(1, 2, 3).T", "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated"),
    ("t.tensor(1.0).mT", "Tensor.mT is deprecated on 0-D tensors"),
    ("t.meshgrid(t.ones(2), t.ones(3))", "torch.meshgrid: in an upcoming release, it will be required to pass the"),
    ("t.cross(t.ones(4, 3), t.ones(4, 3))", "Using torch.cross without specifying the dim arg is deprecated"),
    ("t.ones(3, 3)[[[0, 1], [1, 0]]]", "Using a non-tuple sequence for multidimensional indexing is deprecated"),
    ("t.ones(2)[t.tensor([0, 1], dtype=t.uint8)]", "indexing with dtype torch.uint8 is now deprecated"),
]


@pytest.mark.parametrize(("program", "words"), WARNED)
def test_mistakes_are_warned_of_as_by_pytorch(tg: Any, program: str, words: str) -> None:
    """PyTorch gives some of these once in a process, so that its own words are looked at only where it says any."""
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        eval(program, {"t": torch})  # noqa: S307 - the test's own programs
    with pytest.warns(UserWarning) as ours:
        eval(program, {"t": tg})  # noqa: S307
    assert [str(warning.message)[: len(words)] for warning in ours] == [words]
    assert all(str(warning.message).startswith(words) for warning in theirs)


def test_what_is_no_mistake_is_not_warned_of(tg: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tg.ones(2, requires_grad=True) * 2
        result.retain_grad()
        assert result.grad is None and tg.ones(2).grad is None
        tg.nn.functional.mse_loss(tg.ones(6, 2), tg.ones(6, 2))
        assert tg.ones(11, 1).std(1, correction=0).tolist() == [0.0] * 11 and tg.ones(0, 1).std(1).shape == (0,)
        assert tg.ones(4, 2).T.shape == (2, 4)


def _scheduled(t: Any, steps_first: bool) -> tuple[list[str], dict[str, Any]]:
    optimizer = t.optim.SGD([t.nn.Parameter(t.ones(1))], lr=0.1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        scheduler = t.optim.lr_scheduler.StepLR(optimizer, 1)
        if steps_first:
            optimizer.step()
        scheduler.step()
        scheduler.step()
        t.optim.lr_scheduler.SequentialLR(
            optimizer, [t.optim.lr_scheduler.ConstantLR(optimizer), t.optim.lr_scheduler.StepLR(optimizer, 1)], [2]
        )
    return [str(warning.message)[:62] for warning in told if "step()" in str(warning.message)], scheduler.state_dict()


@pytest.mark.parametrize("steps_first", [True, False])
def test_a_scheduler_warns_where_it_is_stepped_before_its_optimizer(tg: Any, steps_first: bool) -> None:
    ours, theirs = _scheduled(tg, steps_first), _scheduled(torch, steps_first)
    assert ours[0] == theirs[0] and bool(ours[0]) is not steps_first
    assert list(ours[1]) == list(theirs[1])
    assert ours[1]["_step_count"] == theirs[1]["_step_count"] == 3


def test_nodes_are_printed_by_class_and_address(tg: Any) -> None:
    told = []
    for t in (torch, tg):
        x = t.ones(2, requires_grad=True)
        written = x * 1
        written[0] = 5
        nodes = [(x * 2).grad_fn, written.grad_fn, x.round(decimals=2).grad_fn, x.round().grad_fn]
        told.append([(type(node).__name__, repr(node).partition(" at 0x")[0]) for node in nodes])
    assert told[0] == told[1]


def test_a_parameter_of_data_of_a_class_of_the_program_is_of_that_class(tg: Any) -> None:
    told = []
    for t in (torch, tg):

        class Tagged(t.Tensor):  # type: ignore[name-defined, misc]
            pass

        layer = t.nn.Linear(2, 2)
        layer.weight = t.nn.Parameter(t.ones(2, 2).as_subclass(Tagged))
        layer(t.ones(1, 2)).sum().backward()
        t.optim.SGD(layer.parameters(), lr=0.5).step()
        kinds = [type(parameter).__name__ for parameter in layer.parameters()]
        is_one = isinstance(layer.weight, t.nn.Parameter), layer.weight.requires_grad, layer.weight.is_leaf
        told.append((kinds, is_one, list(layer.state_dict()), layer.weight.tolist()))
    assert told[0] == told[1]
