"""Modules: registration, state, moving, printing, hooks, containers, and what is done to their gradients."""

from __future__ import annotations

import copy
import math
import typing
from typing import Any

import numpy as np
import pytest
import torch

from .twins import mlp


def test_assignment_registers_by_kind(tg: Any) -> None:
    module = tg.nn.Module()
    module.weight = tg.nn.Parameter(tg.ones(2))
    module.child = tg.nn.Linear(2, 2)
    module.register_buffer("running", tg.zeros(3))
    module.register_buffer("scratch", tg.zeros(1), persistent=False)
    module.plain = tg.ones(1)
    assert [n for n, _ in module.named_parameters()] == ["weight", "child.weight", "child.bias"]
    assert [n for n, _ in module.named_buffers()] == ["running", "scratch"]
    assert list(module.state_dict()) == ["weight", "running", "child.weight", "child.bias"]
    assert "running" in dir(module)
    module.weight = None
    assert module.weight is None
    del module.running
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'running'"):
        _ = module.running


def test_a_parameter_takes_the_place_of_what_had_its_name(tg: Any) -> None:
    module = tg.nn.Module()
    module.bias = None
    module.register_buffer("table", tg.ones(1), persistent=False)
    module.child = tg.nn.Identity()
    for name in ("bias", "table", "child"):
        setattr(module, name, tg.nn.Parameter(tg.ones(2)))
    assert [name for name, _ in module.named_parameters()] == ["bias", "table", "child"]
    assert "bias" not in vars(module)
    assert not [*module.buffers(), *module.children()]
    assert list(module.state_dict()) == ["bias", "table", "child"]


def test_new_alone_makes_a_parameter_of_a_subclass(tg: Any) -> None:
    class Flat(tg.nn.Parameter):  # type: ignore[misc]
        def __new__(cls, parts: list[Any], requires_grad: bool = True) -> Any:
            return super().__new__(cls, tg.cat([part.flatten() for part in parts]), requires_grad)

        def __init__(self, parts: list[Any], requires_grad: bool = True) -> None:
            self.sizes = [part.numel() for part in parts]
            assert self.numel() == sum(self.sizes)

    flat = Flat([tg.ones(2, 2), tg.ones(3)], False)
    assert (type(flat), flat.shape, flat.sizes, flat.requires_grad) == (Flat, (7,), [4, 3], False)
    assert isinstance(flat, tg.nn.Parameter)


@pytest.mark.parametrize("ending", ["Loss", "Pool1d", "Pool2d", "Pool3d", "Pad1d", "Pad2d", "Pad3d", "LU"])
def test_annotations_of_layers_without_parameters_can_be_evaluated_elsewhere(tg: Any, ending: str) -> None:
    layers = [kind for name, kind in vars(tg.nn).items() if name.endswith(ending) and name != "PReLU"]
    assert layers
    for kind in layers:
        typing.get_type_hints(kind.__new__(kind), globalns={}, localns={})


def test_wrong_assignments_are_refused(tg: Any) -> None:
    module = tg.nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"cannot assign 'telegrad.FloatTensor' as parameter 'weight'"):
        module.weight = tg.ones(2, 2)
    with pytest.raises(KeyError, match="attribute 'forward' already exists"):
        module.register_buffer("forward", tg.ones(1))
    with pytest.raises(KeyError, match="t contain"):
        module.register_parameter("a.b", None)
    with pytest.raises(TypeError, match="int is not a Module subclass"):
        module.add_module("x", 3)
    computed = tg.nn.Parameter._wrap(tg.ones(2))
    computed._requires_grad, computed._node = True, (tg.ones(2, requires_grad=True) * 2)._node
    with pytest.raises(ValueError, match="cannot assign non-leaf"):
        module.register_parameter("made", computed)

    class Early(tg.nn.Module):
        def __init__(self) -> None:
            self.child = tg.nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Early()


def test_shared_parameters_count_once(tg: Any) -> None:
    first, second = tg.nn.Linear(3, 3), tg.nn.Linear(3, 3)
    second.weight = first.weight
    both = tg.nn.Sequential(first, second, first)
    assert len(list(both.parameters())) == 3
    assert len(list(both.modules())) == 3
    assert len(both.state_dict()) == 6


def test_parameter_shares_memory_with_its_data(tg: Any) -> None:
    data = tg.zeros(3)
    parameter = tg.nn.Parameter(data)
    assert isinstance(parameter, tg.Tensor)
    assert parameter.requires_grad
    assert parameter.is_leaf
    data.fill_(2.0)
    assert parameter.tolist() == [2.0, 2.0, 2.0]
    assert repr(parameter) == "Parameter containing:\ntensor([2., 2., 2.], requires_grad=True)"
    assert not tg.nn.Parameter(data, requires_grad=False).requires_grad


def test_modes_and_requires_grad_reach_every_module(tg: Any) -> None:
    model = mlp(tg.nn)
    assert not any(m.training for m in model.eval().modules())
    assert all(m.training for m in model.train().modules())
    assert not any(p.requires_grad for p in model.requires_grad_(False).parameters())


def test_apply_goes_from_the_deepest_up(tg: Any) -> None:
    seen: list[str] = []
    mlp(tg.nn).apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "LayerNorm", "ReLU", "Linear", "GELU", "Sequential", "Sequential"]


def test_hooks_see_and_replace(tg: Any) -> None:
    layer = tg.nn.Identity()
    with layer.register_forward_pre_hook(lambda module, args: args[0] + 1):
        handle = layer.register_forward_hook(lambda module, args, output: output * args[0])
        assert layer(tg.tensor(2.0)).item() == 9.0
        handle.remove()
        assert layer(tg.tensor(2.0)).item() == 3.0
    assert layer(tg.tensor(2.0)).item() == 2.0


def test_load_state_dict_reports_every_problem_at_once(tg: Any) -> None:
    model = tg.nn.Sequential(tg.nn.Linear(2, 3))
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict({"0.weight": tg.ones(2, 2), "1.weight": tg.ones(1)})
    assert str(caught.value) == (
        'Error(s) in loading state_dict for Sequential:\n\tMissing key(s) in state_dict: "0.bias". \n\t'
        'Unexpected key(s) in state_dict: "1.weight". \n\tsize mismatch for 0.weight: copying a param with shape '
        "telegrad.Size([2, 2]) from checkpoint, the shape in current model is telegrad.Size([3, 2])."
    )
    result = model.load_state_dict({"0.bias": tg.ones(3), "x": tg.ones(1)}, strict=False)
    assert (result.missing_keys, result.unexpected_keys) == (["0.weight"], ["x"])
    assert model[0].bias.tolist() == [1.0, 1.0, 1.0]


def test_loading_keeps_the_parameters_themselves(tg: Any) -> None:
    model = tg.nn.Linear(2, 2)
    weight = model.weight
    model.load_state_dict({"weight": tg.ones(2, 2), "bias": tg.ones(2)})
    assert model.weight is weight
    assert weight.requires_grad
    state = model.state_dict()
    weight.data.fill_(5.0)
    assert state["weight"].tolist() == [[5.0, 5.0], [5.0, 5.0]], "a state dict shares the memory"
    model.load_state_dict({"weight": tg.zeros(2, 2), "bias": tg.ones(2)}, assign=True)
    assert model.weight.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert isinstance(model.weight, tg.nn.Parameter)


def test_to_casts_parameters_and_gradients_in_place(tg: Any) -> None:
    model = tg.nn.Linear(3, 2)
    model.register_buffer("count", tg.zeros(1, dtype=tg.int64))
    weight = model.weight
    model(tg.ones(1, 3)).sum().backward()
    assert model.to(tg.float64) is model
    assert model.weight is weight
    assert (weight.dtype, weight.grad.dtype, model.count.dtype) == (tg.float64, tg.float64, tg.int64)
    assert weight.is_leaf
    assert weight.requires_grad
    assert weight.grad.tolist() == [[1.0] * 3] * 2
    model(tg.ones(1, 3, dtype=tg.float64)).sum().backward()
    assert weight.grad.tolist() == [[2.0] * 3] * 2
    assert model.half().weight.dtype is tg.float16
    assert model.float().cpu().to("cpu", tg.float32).weight.dtype is tg.float32
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes, not int64"):
        model.to(tg.int64)


def test_deepcopy_makes_an_independent_model(tg: Any) -> None:
    model = mlp(tg.nn)
    twin = copy.deepcopy(model)
    before = model[0].weight.tolist()
    with tg.no_grad():
        twin[0].weight.zero_()
    assert model[0].weight.tolist() == before
    assert isinstance(twin[0].weight, tg.nn.Parameter)
    assert twin[0].weight.requires_grad


PRINTED: dict[str, Any] = {
    "mlp": mlp,
    "list": lambda nn: nn.ModuleList([nn.Linear(2, 2) for _ in range(3)] + [nn.ReLU(inplace=True)]),
    "dict": lambda nn: nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ModuleList()}),
    "embedding": lambda nn: nn.Embedding(3, 4, padding_idx=1, max_norm=2.0),
    "norms": lambda nn: nn.Sequential(nn.LayerNorm(3), nn.RMSNorm(3), nn.GroupNorm(1, 3)),
    "activations": lambda nn: nn.Sequential(
        nn.ReLU(True), nn.LeakyReLU(0.1, True), nn.ELU(), nn.GELU(), nn.Softplus(), nn.Softmax(1),
        nn.LogSoftmax(dim=-1),
        nn.Hardtanh(), nn.ReLU6(), nn.PReLU(), nn.GLU(), nn.Threshold(0.1, 2), nn.Softshrink(), nn.SiLU(), nn.Tanh(),
    ),
    "others": lambda nn: nn.Sequential(
        nn.Dropout(0.1), nn.Flatten(), nn.Unflatten(1, (2, 3)), nn.Identity(), nn.Bilinear(2, 3, 4), nn.MSELoss(),
        nn.CrossEntropyLoss(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_repr_is_pytorchs(tg: Any, name: str) -> None:
    assert repr(PRINTED[name](tg.nn)) == repr(PRINTED[name](torch.nn))


def test_sequential_is_sliced_changed_and_named(tg: Any) -> None:
    nn = tg.nn
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3))
    assert [type(m).__name__ for m in model[1:]] == ["ReLU", "Linear"]
    assert model[-1].out_features == 3
    model[1] = nn.Tanh()
    del model[0]
    assert list(dict(model.named_children())) == ["0", "1"]
    assert len(model.append(nn.ReLU()).insert(0, nn.Identity())) == 4
    named = nn.Sequential({"first": nn.Linear(1, 1), "second": nn.ReLU()})
    assert isinstance(named.second, nn.ReLU)
    assert list(named.state_dict()) == ["first.weight", "first.bias"]
    with pytest.raises(IndexError, match="index 9 is out of range"):
        _ = model[9]


def test_parameter_containers_register_their_parameters(tg: Any) -> None:
    listed = tg.nn.ParameterList([tg.ones(2), tg.nn.Parameter(tg.zeros(3))])
    listed.append(tg.ones(1))
    assert [tuple(p.shape) for p in listed.parameters()] == [(2,), (3,), (1,)]
    named = tg.nn.ParameterDict({"a": tg.ones(2)})
    named["b"] = tg.nn.Parameter(tg.zeros(1))
    assert [n for n, _ in named.named_parameters()] == ["a", "b"]
    assert "a" in named
    assert len(named) == 2


@pytest.mark.parametrize("max_norm", [0.1, 1e9])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
def test_clip_grad_norm_is_pytorchs_and_waits_for_nothing(tg: Any, max_norm: float, norm_type: float) -> None:
    torch.manual_seed(0)
    theirs = [torch.zeros(3, 4), torch.zeros(5)]
    ours = [tg.zeros(3, 4), tg.zeros(5)]
    for a, b in zip(ours, theirs, strict=True):
        b.grad = torch.randn(b.shape)
        a.grad = tg.tensor(b.grad.numpy())
    before = tg.wire_stats().round_trips
    found = tg.nn.utils.clip_grad_norm_(ours, max_norm, norm_type)
    assert tg.wire_stats().round_trips == before
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize(("name", "arguments"), [
    ("clip_grad_norm_", ("a",)), ("clip_grad_norm_", (1.0, "b")), ("clip_grad_value_", ("c",)),
])  # fmt: skip
def test_clipping_by_what_is_no_number_is_refused_though_nothing_is_to_be_clipped(
    tg: Any, name: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(ValueError, match=r"must be a number, not '[abc]'"):
        getattr(tg.nn.utils, name)([], *arguments)
    with pytest.raises(TypeError, match="must be a number, not None"):
        getattr(tg.nn.utils, name)([], None)


def test_clip_grad_norm_refuses_infinities_if_asked(tg: Any) -> None:
    weight = tg.zeros(2)
    weight.grad = tg.tensor([1.0, math.inf])
    with pytest.raises(RuntimeError, match=r"total norm of order 2.0 for gradients from `parameters` is non-finite"):
        tg.nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)


def test_clip_grad_value_limits_each_element(tg: Any) -> None:
    weight = tg.zeros(3)
    weight.grad = tg.tensor([-5.0, 0.5, 5.0])
    tg.nn.utils.clip_grad_value_(weight, 1.0)
    assert weight.grad.tolist() == [-1.0, 0.5, 1.0]


def test_parameters_become_a_vector_and_back(tg: Any) -> None:
    model = tg.nn.Linear(2, 2)
    vector = tg.nn.utils.parameters_to_vector(model.parameters())
    assert vector.shape == (6,)
    tg.nn.utils.vector_to_parameters(tg.arange(6.0), model.parameters())
    assert model.weight.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert model.bias.tolist() == [4.0, 5.0]
    assert model.weight.requires_grad
