"""Modules: registration, state, moving, printing, hooks, and layers that compute what PyTorch's compute."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch


def _copied(tg: Any, theirs: torch.nn.Module, ours: Any) -> None:
    """Give our module the values of theirs."""
    result = ours.load_state_dict({k: tg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    assert repr(result) == "<All keys matched successfully>"


def _mlp(nn: Any) -> Any:
    return nn.Sequential(
        nn.Linear(6, 5), nn.LayerNorm(5), nn.ReLU(), nn.Sequential(nn.Linear(5, 4, bias=False), nn.GELU())
    )


def _default(name: str) -> Any:
    return lambda nn: getattr(nn, name)()


# -- layers ---------------------------------------------------------------------------------------------------------

LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "Linear": (lambda nn: nn.Linear(4, 3), (5, 4)),
    "Linear-3d": (lambda nn: nn.Linear(4, 3, bias=False), (2, 5, 4)),
    "LayerNorm": (lambda nn: nn.LayerNorm(4), (3, 4)),
    "LayerNorm-2d": (lambda nn: nn.LayerNorm((3, 4), eps=1e-3, bias=False), (2, 3, 4)),
    "RMSNorm": (lambda nn: nn.RMSNorm(4), (3, 4)),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), (3, 4, 5)),
    "Flatten": (lambda nn: nn.Flatten(), (2, 3, 4)),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, 2)), (3, 4)),
    "Identity": (lambda nn: nn.Identity(3, unused=1), (2, 3)),
    "PReLU": (lambda nn: nn.PReLU(3), (2, 3, 4)),
    "Softmax": (lambda nn: nn.Softmax(dim=1), (2, 3)),
    "LogSoftmax": (lambda nn: nn.LogSoftmax(-1), (2, 3)),
    "Softmin": (lambda nn: nn.Softmin(-1), (2, 3)),
    "GLU": (lambda nn: nn.GLU(), (2, 4)),
    "GELU-tanh": (lambda nn: nn.GELU("tanh"), (2, 4)),
    "LeakyReLU": (lambda nn: nn.LeakyReLU(0.2), (2, 4)),
    "ELU": (lambda nn: nn.ELU(0.7), (2, 4)),
    "CELU": (lambda nn: nn.CELU(alpha=0.7), (2, 4)),
    "Hardtanh": (lambda nn: nn.Hardtanh(-0.5, 0.3), (2, 4)),
    "Softplus": (lambda nn: nn.Softplus(2.0), (2, 4)),
    "Threshold": (lambda nn: nn.Threshold(0.1, 20.0), (2, 4)),
    "Hardshrink": (lambda nn: nn.Hardshrink(), (2, 4)),
    "Softshrink": (lambda nn: nn.Softshrink(0.3), (2, 4)),
    "Dropout-eval": (lambda nn: nn.Dropout(0.9).eval(), (2, 4)),
    "Sequential": (_mlp, (3, 6)),
    "TransformerEncoderLayer": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation="gelu", batch_first=True), (2, 5, 8),
    ),
    "TransformerEncoder-norm-first": (
        lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, norm_first=True), 2,
        nn.LayerNorm(8)), (5, 2, 8),
    ),
    **{
        name: (_default(name), (3, 4))
        for name in ("ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Sigmoid", "Tanh", "LogSigmoid", "Softsign", "Tanhshrink",
                     "Hardsigmoid", "Hardswish", "GELU")
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", LAYERS)
def test_layer_computes_and_differentiates_as_pytorchs(tg: Any, name: str) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    theirs, ours = make(torch.nn), make(tg.nn)
    _copied(tg, theirs, ours)
    x = torch.randn(shape, requires_grad=True)
    mine = tg.tensor(x.detach().numpy(), requires_grad=True)
    expected, found = theirs(x), ours(mine)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=2e-6)
    weights = torch.randn(expected.shape)
    (expected * weights).sum().backward()
    (found * tg.tensor(weights.numpy())).sum().backward()
    pairs = [(mine, x), *zip(ours.parameters(), theirs.parameters(), strict=True)]
    for a, b in pairs:
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_embedding_looks_up_and_keeps_padding_zero(tg: Any) -> None:
    theirs, ours = torch.nn.Embedding(7, 3, padding_idx=-1), tg.nn.Embedding(7, 3, padding_idx=-1)
    assert ours.padding_idx == 6
    assert ours.weight[6].tolist() == [0.0, 0.0, 0.0]
    _copied(tg, theirs, ours)
    where = [[1, 6, 2], [1, 1, 0]]
    expected, found = theirs(torch.tensor(where)), ours(tg.tensor(where))
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    expected.sum().backward()
    found.sum().backward()
    np.testing.assert_array_equal(ours.weight.grad.numpy(), theirs.weight.grad.numpy())


def test_embedding_of_a_given_table_is_frozen(tg: Any) -> None:
    table = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    layer = tg.nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad
    assert layer(tg.tensor([1])).tolist() == [[3.0, 4.0]]


LOSSES: dict[str, tuple[Any, str]] = {
    "CrossEntropyLoss": (lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1), "classes"),
    "CrossEntropyLoss-ignore": (lambda nn: nn.CrossEntropyLoss(ignore_index=1, reduction="sum"), "classes"),
    "NLLLoss": (lambda nn: nn.NLLLoss(reduction="none"), "classes"),
    "MSELoss": (lambda nn: nn.MSELoss(), "values"), "L1Loss": (lambda nn: nn.L1Loss(reduction="sum"), "values"),
    "SmoothL1Loss": (lambda nn: nn.SmoothL1Loss(beta=0.5), "values"),
    "HuberLoss": (lambda nn: nn.HuberLoss(delta=0.7), "values"),
    "BCEWithLogitsLoss": (lambda nn: nn.BCEWithLogitsLoss(), "unit"),
    "KLDivLoss": (lambda nn: nn.KLDivLoss(reduction="batchmean"), "unit"),
    "MSELoss-old": (lambda nn: nn.MSELoss(size_average=False, reduce=True), "values"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("name", LOSSES)
def test_loss_computes_and_differentiates_as_pytorchs(tg: Any, name: str) -> None:
    torch.manual_seed(0)
    make, kind = LOSSES[name]
    target = {"classes": torch.randint(0, 3, (5,)), "values": torch.randn(5, 3), "unit": torch.rand(5, 3)}[kind]
    x = torch.randn(5, 3, requires_grad=True)
    mine = tg.tensor(x.detach().numpy(), requires_grad=True)
    expected, found = make(torch.nn)(x, target), make(tg.nn)(mine, tg.tensor(target.numpy()))
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    expected.sum().backward()
    found.sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), x.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multihead_attention_is_pytorchs(tg: Any, batch_first: bool, need_weights: bool, masked: bool) -> None:
    torch.manual_seed(0)
    theirs, ours = (nn.MultiheadAttention(8, 2, batch_first=batch_first) for nn in (torch.nn, tg.nn))
    _copied(tg, theirs, ours)
    shape, other = ((3, 4, 8), (3, 5, 8)) if batch_first else ((4, 3, 8), (5, 3, 8))
    q, k, v = torch.randn(shape), torch.randn(other), torch.randn(other)
    options: dict[str, Any] = {"need_weights": need_weights}
    mine = dict(options)
    if masked:
        padding, hidden = torch.zeros(3, 5, dtype=torch.bool), torch.ones(4, 5).triu(2).bool()
        padding[1, 3:] = True
        options |= {"key_padding_mask": padding, "attn_mask": hidden}
        mine |= {"key_padding_mask": tg.tensor(padding.numpy()), "attn_mask": tg.tensor(hidden.numpy())}
    expected = theirs(q, k, v, **options)
    found = ours(*(tg.tensor(t.numpy()) for t in (q, k, v)), **mine)
    np.testing.assert_allclose(found[0].detach().numpy(), expected[0].detach().numpy(), rtol=1e-5, atol=1e-6)
    assert (found[1] is None) == (expected[1] is None)
    if need_weights:
        np.testing.assert_allclose(found[1].detach().numpy(), expected[1].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_dropout_drops_and_scales_only_in_training(tg: Any) -> None:
    tg.manual_seed(1)
    layer, x = tg.nn.Dropout(0.25), tg.ones(10000)
    found = layer(x).numpy()
    assert set(np.unique(found).tolist()) == {0.0, np.float32(4 / 3)}
    assert abs((found == 0).mean() - 0.25) < 0.03
    tg.manual_seed(1)
    assert np.array_equal(layer(x).numpy(), found)
    assert layer.eval()(x) is x


@pytest.mark.parametrize(
    ("name", "shape", "channels"),
    [("Dropout2d", (5, 30, 2, 3), 150), ("Dropout1d", (30, 4), 30), ("Dropout3d", (4, 30, 2, 2, 2), 120)],
)
def test_dropout_of_channels_drops_whole_ones(tg: Any, name: str, shape: tuple[int, ...], channels: int) -> None:
    found = getattr(tg.nn, name)(0.5)(tg.ones(shape)).numpy().reshape(channels, -1)
    assert all(len(set(channel)) == 1 for channel in found.tolist())
    assert set(np.unique(found).tolist()) == {0.0, 2.0}


def test_dropout_gradient_has_the_same_mask(tg: Any) -> None:
    x = tg.ones(1000, requires_grad=True)
    y = tg.nn.functional.dropout(x, 0.5)
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), y.detach().numpy())


# -- registration ---------------------------------------------------------------------------------------------------


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


def test_wrong_assignments_are_refused(tg: Any) -> None:
    module = tg.nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"cannot assign 'telegrad._tensor.Tensor' as parameter 'weight'"):
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
    model = _mlp(tg.nn)
    assert not any(m.training for m in model.eval().modules())
    assert all(m.training for m in model.train().modules())
    assert not any(p.requires_grad for p in model.requires_grad_(False).parameters())


def test_apply_goes_from_the_deepest_up(tg: Any) -> None:
    seen: list[str] = []
    _mlp(tg.nn).apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "LayerNorm", "ReLU", "Linear", "GELU", "Sequential", "Sequential"]


def test_hooks_see_and_replace(tg: Any) -> None:
    layer = tg.nn.Identity()
    with layer.register_forward_pre_hook(lambda module, args: args[0] + 1):
        handle = layer.register_forward_hook(lambda module, args, output: output * args[0])
        assert layer(tg.tensor(2.0)).item() == 9.0
        handle.remove()
        assert layer(tg.tensor(2.0)).item() == 3.0
    assert layer(tg.tensor(2.0)).item() == 2.0


# -- state ----------------------------------------------------------------------------------------------------------


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
    with pytest.raises(RuntimeError, match="only floating-point and complex types are accepted, not int64"):
        model.to(tg.int64)


def test_deepcopy_makes_an_independent_model(tg: Any) -> None:
    model = _mlp(tg.nn)
    twin = copy.deepcopy(model)
    before = model[0].weight.tolist()
    with tg.no_grad():
        twin[0].weight.zero_()
    assert model[0].weight.tolist() == before
    assert isinstance(twin[0].weight, tg.nn.Parameter)
    assert twin[0].weight.requires_grad


# -- printing -------------------------------------------------------------------------------------------------------

PRINTED: dict[str, Any] = {
    "mlp": _mlp,
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


# -- containers -----------------------------------------------------------------------------------------------------


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


# -- initial values -------------------------------------------------------------------------------------------------


def _within(found: Any, low: float, high: float, deviation: float) -> None:
    array = found.detach().numpy()
    assert low <= array.min()
    assert array.max() <= high
    assert array.std() == pytest.approx(deviation, rel=0.05)


def test_default_initial_values_have_pytorchs_distributions(tg: Any) -> None:
    tg.manual_seed(3)
    linear = tg.nn.Linear(100, 200)
    bound = 0.1
    _within(linear.weight, -bound, bound, bound / math.sqrt(3))
    assert linear.weight.abs().max().item() > 0.099
    _within(linear.bias, -bound, bound, linear.bias.std().item())
    _within(tg.nn.Embedding(100, 100).weight, -9, 9, 1.0)
    norm = tg.nn.LayerNorm(5)
    assert (norm.weight.tolist(), norm.bias.tolist()) == ([1.0] * 5, [0.0] * 5)


def test_initializers_have_the_papers_spread(tg: Any) -> None:
    tg.manual_seed(4)
    init, weight = tg.nn.init, tg.empty(200, 100, requires_grad=True)
    glorot, he = math.sqrt(2 / 300), math.sqrt(2 / 100)
    _within(init.xavier_uniform_(weight), -math.sqrt(3) * glorot, math.sqrt(3) * glorot, glorot)
    _within(init.xavier_normal_(weight, gain=2.0), -9, 9, 2 * glorot)
    _within(init.kaiming_uniform_(weight, nonlinearity="relu"), -math.sqrt(3) * he, math.sqrt(3) * he, he)
    _within(init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu"), -9, 9, math.sqrt(2 / 200))
    _within(init.trunc_normal_(weight, 0.0, 1.0, -1.0, 1.0), -1, 1, 0.5396)
    assert init.constant_(weight, 3.0) is weight
    assert weight.mean().item() == 3.0
    assert init.eye_(weight).sum().item() == 100
    assert weight.is_leaf
    assert weight.requires_grad
    with pytest.raises(RuntimeError, match="fewer than 2 dimensions"):
        init.xavier_uniform_(tg.ones(3))


# -- gradients ------------------------------------------------------------------------------------------------------


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
