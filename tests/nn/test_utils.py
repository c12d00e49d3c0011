"""``nn.utils`` and ``nn.init``: parametrizations, norms, pruning, fusion, stateless calls, initial values."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import fusion as _fusion
from torch.nn.utils import parametrizations as _parametrizations
from torch.nn.utils import prune as _prune
from torch.nn.utils import stateless as _stateless

from .pairs import Pair, assert_close, give_state

assert _fusion and _parametrizations and _prune and _stateless  # torch.nn.utils has them now


NORMALIZED: dict[str, Any] = {
    "weight_norm": lambda u, m: u.parametrizations.weight_norm(m),
    "weight_norm of all": lambda u, m: u.parametrizations.weight_norm(m, dim=None),
    "weight_norm, the former": lambda u, m: u.weight_norm(m, dim=1),
    "spectral_norm": lambda u, m: u.parametrizations.spectral_norm(m, n_power_iterations=2),
    "spectral_norm, the former": lambda u, m: u.spectral_norm(m),
}  # fmt: skip
LAYERS: dict[str, Any] = {
    "Linear": (lambda nn: nn.Linear(5, 4), (3, 5)), "Conv2d": (lambda nn: nn.Conv2d(2, 3, 2), (2, 2, 4, 5)),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(2, 3, 2), (2, 2, 4)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", NORMALIZED)
def test_normalized_weights(tg: Any, name: str, layer: str, seed: int) -> None:
    torch.manual_seed(seed)
    make, shape = LAYERS[layer]
    theirs = NORMALIZED[name](torch.nn.utils, make(torch.nn))
    ours = NORMALIZED[name](tg.nn.utils, make(tg.nn))
    pair = Pair.of(tg, theirs, ours)
    for _ in range(2):
        pair.theirs.zero_grad()
        pair.ours.zero_grad()
        pair.compare(tg, [torch.randn(shape, requires_grad=True)])
    if "former" in name:  # the weight is a result, which PyTorch does not copy either
        return
    twin = copy.deepcopy(ours)
    x = tg.randn(shape)
    assert np.array_equal(twin.eval()(x).tolist(), ours.eval()(x).tolist())


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_norms_are_removed(tg: Any) -> None:
    layer, utils = tg.nn.Linear(3, 2), tg.nn.utils
    weight = layer.weight.detach().numpy().copy()
    utils.remove_weight_norm(utils.weight_norm(layer))
    np.testing.assert_allclose(layer.weight.detach().numpy(), weight, rtol=1e-6)
    assert [n for n, _ in layer.named_parameters()] == ["bias", "weight"]
    utils.parametrizations.weight_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", *(f"parametrizations.weight.original{i}" for i in (0, 1))]
    utils.parametrize.remove_parametrizations(layer, "weight")
    np.testing.assert_allclose(layer.weight.detach().numpy(), weight, rtol=1e-6)
    assert type(layer) is tg.nn.Linear
    utils.remove_spectral_norm(utils.spectral_norm(layer))
    assert [n for n, _ in layer.named_parameters()] == ["bias", "weight"]


def test_state_of_the_former_weight_norm_is_accepted(tg: Any) -> None:
    with pytest.warns(FutureWarning, match="deprecated"):
        old = tg.nn.utils.weight_norm(tg.nn.Linear(3, 2))
    new = tg.nn.utils.parametrizations.weight_norm(tg.nn.Linear(3, 2))
    new.load_state_dict(old.state_dict())
    x = tg.randn(4, 3)
    np.testing.assert_allclose(new(x).tolist(), old(x).tolist(), rtol=1e-6)


def test_parametrizations_are_chained_assigned_cached_and_left(tg: Any) -> None:
    calls: list[int] = []

    def classes(nn: Any) -> Any:
        class Symmetric(nn.Module):
            def forward(self, x: Any) -> Any:
                calls.append(1)
                return x.triu() + x.triu(1).transpose(-1, -2)

            def right_inverse(self, x: Any) -> Any:
                return x.triu()

        class Doubled(nn.Module):
            def forward(self, x: Any) -> Any:
                return x * 2

            def right_inverse(self, x: Any) -> Any:
                return x / 2

        return Symmetric, Doubled

    made = []
    for t in (torch, tg):
        parametrize = t.nn.utils.parametrize
        layer = t.nn.Linear(3, 3)
        for kind in classes(t.nn):
            parametrize.register_parametrization(layer, "weight", kind())
        layer.weight = t.arange(9.0).reshape(3, 3) + t.arange(9.0).reshape(3, 3).t()
        made.append(layer)
        assert parametrize.is_parametrized(layer, "weight") and not parametrize.is_parametrized(layer, "bias")
        assert parametrize.type_before_parametrizations(layer) is t.nn.Linear
    theirs, ours = made
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert ours.weight.tolist() == theirs.weight.tolist()
    del calls[:]
    with tg.nn.utils.parametrize.cached():
        assert ours.weight is ours.weight
    assert len(calls) == 1
    with pytest.raises(ValueError, match="may not change the shape"):
        tg.nn.utils.parametrize.register_parametrization(tg.nn.Linear(2, 3), "weight", tg.nn.Flatten(0))
    with pytest.raises(ValueError, match="does not have a parameter"):
        tg.nn.utils.parametrize.register_parametrization(ours, "missing", tg.nn.Identity())
    tg.nn.utils.parametrize.remove_parametrizations(ours, "weight", leave_parametrized=False)
    assert ours.weight.tolist() == (theirs.parametrizations.weight.original).tolist()


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)], ids=str)
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal_weights(tg: Any, kind: str, shape: tuple[int, int], trivial: bool, seed: int) -> None:
    torch.manual_seed(seed)
    options: dict[str, Any] = {"orthogonal_map": kind, "use_trivialization": trivial}
    theirs, ours = (
        t.nn.utils.parametrizations.orthogonal(t.nn.Linear(*shape[::-1], False, dtype=t.float64), **options)
        for t in (torch, tg)
    )
    small = ours.weight.mT if shape[0] < shape[1] else ours.weight
    np.testing.assert_allclose((small.mT @ small).tolist(), np.eye(min(shape)), atol=1e-10)
    x = torch.randn(2, shape[1], dtype=torch.float64)
    if trivial or kind == "householder":
        Pair.of(tg, theirs, ours).compare(tg, [x])
        target = torch.nn.init.orthogonal_(torch.empty(shape, dtype=torch.float64))
        theirs.weight, ours.weight = target, tg.tensor(target.numpy())
        np.testing.assert_allclose(ours.weight.tolist(), target.tolist(), atol=1e-10)


PRUNED: dict[str, Any] = {
    "l1": lambda p, t, m: p.l1_unstructured(m, "weight", 0.3),
    "ln": lambda p, t, m: p.ln_structured(m, "weight", 1, 2, 0),
    "twice": lambda p, t, m: p.ln_structured(p.l1_unstructured(m, "weight", 5), "weight", 0.5, float("inf"), 1),
    "scores": lambda p, t, m: p.l1_unstructured(m, "bias", 2, t.arange(4.0)),
    "mask": lambda p, t, m: p.custom_from_mask(m, "bias", t.tensor([1, 0, 0, 1])),
    "identity": lambda p, t, m: p.identity(m, "weight"),
    "l1 after l1": lambda p, t, m: p.l1_unstructured(p.l1_unstructured(m, "weight", 3), "weight", 0.25),
}  # fmt: skip


@pytest.mark.parametrize("name", PRUNED)
def test_pruning(tg: Any, name: str, seed: int) -> None:
    torch.manual_seed(seed)
    theirs, ours = torch.nn.Linear(6, 4), tg.nn.Linear(6, 4)
    give_state(tg, theirs, ours)
    for t, layer in ((torch, theirs), (tg, ours)):
        PRUNED[name](t.nn.utils.prune, t, layer)
        assert t.nn.utils.prune.is_pruned(layer)
    for key, value in theirs.state_dict().items():
        assert_close(ours.state_dict()[key], value, key)
    Pair(theirs, ours).compare(tg, [torch.randn(3, 6)])
    which = "bias" if name in ("scores", "mask") else "weight"
    for t, layer in ((torch, theirs), (tg, ours)):
        t.nn.utils.prune.remove(layer, which)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert_close(ours.weight, theirs.weight, "weight")


def test_pruning_at_random_and_globally(tg: Any, seed: int) -> None:
    torch.manual_seed(seed)
    prune, layer = tg.nn.utils.prune, tg.nn.Linear(10, 8)
    prune.random_unstructured(layer, "weight", 20)
    assert (layer.weight == 0).sum().item() == 20
    prune.random_structured(layer, "weight", 2, 0)
    assert ((layer.weight == 0).all(1).sum() >= 2).item()
    theirs, ours = (nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)) for nn in (torch.nn, tg.nn))
    give_state(tg, theirs, ours)
    for t, model in ((torch, theirs), (tg, ours)):
        pairs, prune = [(model[0], "weight"), (model[1], "weight")], t.nn.utils.prune
        prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.4)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a.weight, b.weight, "weight")
    with pytest.raises(ValueError, match="should either be a float in the range"):
        prune.l1_unstructured(layer, "bias", 1.5)


@pytest.mark.parametrize(("make", "bn", "shape"), [
    (lambda nn: nn.Conv2d(2, 3, 2, bias=False), "BatchNorm2d", (2, 2, 4, 4)),
    (lambda nn: nn.ConvTranspose2d(2, 3, 2), "BatchNorm2d", (2, 2, 4, 4)),
    (lambda nn: nn.Linear(4, 3), "BatchNorm1d", (5, 4)),
], ids=["conv", "transposed", "linear"])  # fmt: skip
def test_fusion_of_batch_norm(tg: Any, make: Any, bn: str, shape: tuple[int, ...]) -> None:
    layer, norm = make(tg.nn), getattr(tg.nn, bn)(3)
    norm(tg.randn(8, 3, 4, 4) if bn == "BatchNorm2d" else tg.randn(8, 3))
    model = tg.nn.Sequential(layer, norm).eval()
    fuse = tg.nn.utils.fuse_linear_bn_eval if bn == "BatchNorm1d" else tg.nn.utils.fuse_conv_bn_eval
    fused = fuse(layer, norm, True) if "Transpose" in repr(layer) else fuse(layer, norm)
    x = tg.randn(shape)
    np.testing.assert_allclose(fused(x).tolist(), model(x).tolist(), atol=1e-5)


def test_functional_call(tg: Any) -> None:
    call, model = tg.func.functional_call, tg.nn.Sequential(tg.nn.Linear(2, 2), tg.nn.BatchNorm1d(2))
    weight, x = tg.ones(2, 2, requires_grad=True), tg.randn(4, 2)
    own = model[0].weight
    out = call(model, {"0.weight": weight * 2}, x)
    assert model[0].weight is own
    out.pow(3).sum().backward()
    assert weight.grad is not None and own.grad is None
    model[0].bias = model[1].bias
    tied = call(model, {"1.bias": tg.full((2,), 5.0)}, (tg.zeros(3, 2),))
    assert tied.tolist() == [[5.0, 5.0]] * 3, "the bias of the first layer is normalized away"
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'x'"):
        call(model, {"x": weight}, x, strict=True)


def test_functional_call_takes_tensors_that_are_no_parameters(tg: Any) -> None:
    class Scaled(tg.nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.factor, self.name = tg.ones(1), "scaled"

        def forward(self, x: Any) -> Any:
            return super().forward(x) * self.factor + getattr(self, "shift", 0)

    call, model, x = tg.func.functional_call, Scaled(), tg.ones(1, 2)
    expected = (model(x) * 3 + 1).tolist()
    given = {"factor": tg.full((1,), 3.0), "shift": tg.ones(1)}
    assert call(model, given, (x,)).tolist() == expected
    assert model.factor.tolist() == [1.0] and not hasattr(model, "shift")
    with pytest.raises(AttributeError, match="Scaled has no attribute `inner`"):
        call(model, {"inner.weight": x}, (x,))
    with pytest.raises(TypeError, match=r"name is not an instance of torch\.Tensor"):
        call(model, {"name": x}, (x,))


def test_initial_values(tg: Any, seed: int) -> None:
    init = tg.nn.init
    for shape, groups in (((4, 2, 3), 1), ((4, 2, 3, 3), 2), ((3, 5, 2, 3, 4), 1)):
        expected = torch.nn.init.dirac_(torch.empty(shape), groups)
        assert init.dirac_(tg.empty(shape), groups).tolist() == expected.tolist()
    for shape in ((6, 4), (4, 6), (5, 2, 3)):
        matrix = init.orthogonal_(tg.empty(shape, dtype=tg.float64), gain=2.0).reshape(shape[0], -1).numpy()
        product = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
        np.testing.assert_allclose(product, 4 * np.eye(min(matrix.shape)), atol=1e-9)
    sparse = init.sparse_(tg.empty(10, 6), 0.25, std=1.0)
    assert (sparse == 0).sum(0).tolist() == [3] * 6
    with pytest.warns(FutureWarning, match=r"`nn.init.constant` is now deprecated"):
        assert init.constant(tg.empty(2), 3.0).tolist() == [3.0, 3.0]


def test_skip_init_makes_parameters(tg: Any) -> None:
    layer = tg.nn.utils.skip_init(tg.nn.Linear, 3, 2, device="cpu", dtype=tg.float64)
    assert layer.weight.shape == (2, 3) and layer.weight.dtype is tg.float64 and layer.weight.requires_grad
    with pytest.raises(RuntimeError, match="Module must support a 'device' arg"):
        tg.nn.utils.skip_init(tg.nn.ReLU)


def test_weights_of_convolutions_change_their_memory_format(tg: Any) -> None:
    model = tg.nn.Sequential(tg.nn.Conv2d(4, 4, 3), tg.nn.Linear(2, 2))
    tg.nn.utils.convert_conv2d_weight_memory_format(model, tg.channels_last)
    assert model[0].weight.is_contiguous(memory_format=tg.channels_last)


@pytest.mark.parametrize("dim", [0, 1, -1, -2, None, 2])
def test_weight_norm_keeps_the_dimension_that_it_is_given(tg: Any, dim: int | None) -> None:
    weight = torch.randn(3, 2)
    found = []
    for t in (torch, tg):
        layer = t.nn.Linear(2, 3)
        layer.load_state_dict({"weight": t.tensor(weight.tolist()), "bias": t.zeros(3)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found.append(torch.tensor(t.nn.utils.weight_norm(layer, dim=dim).weight_g.tolist()))
            except IndexError:
                found.append(torch.empty(0))
    torch.testing.assert_close(found[1], found[0])


def test_clipping_warns_of_a_generator_that_has_been_read(tg: Any) -> None:
    for t in (torch, tg):
        with pytest.warns(UserWarning, match="empty generator"):
            assert t.nn.utils.clip_grad_norm_((one for one in ()), 1.0).item() == 0


def test_a_functional_call_gives_back_what_the_module_has_put_in_the_place_of_a_buffer(tg: Any) -> None:
    for t in (torch, tg):

        class Counting(t.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self, zero: Any) -> None:
                super().__init__()
                self.register_buffer("count", zero)

            def forward(self, x: Any) -> Any:
                self.count = self.count + 1
                return x

        model, state = Counting(t.zeros(1)), {"count": t.tensor([5.0])}
        t.func.functional_call(model, state, t.ones(1))
        assert (state["count"].item(), model.count.item()) == (6.0, 0.0)
        with pytest.warns(FutureWarning, match="deprecated"):
            t.nn.utils.stateless.functional_call(model, state, t.ones(1))
        assert state["count"].item() == 7.0


def test_a_functional_call_refuses_a_name_that_a_parametrization_computes(tg: Any) -> None:
    for t in (torch, tg):
        layer = t.nn.Linear(1, 1, bias=False)
        t.nn.utils.parametrize.register_parametrization(layer, "weight", t.nn.Tanh())
        with pytest.raises(RuntimeError):
            t.func.functional_call(layer, {"weight": t.ones(1, 1)}, t.ones(1, 1))
        given = {"parametrizations.weight.original": t.full((1, 1), 40.0)}
        assert t.func.functional_call(layer, given, t.ones(1, 1)).item() == pytest.approx(1.0)


def test_scores_of_global_pruning_are_a_dictionary(tg: Any) -> None:
    for t in (torch, tg):
        prune = t.nn.utils.prune
        pairs = [(t.nn.Linear(2, 2), "weight")]
        with pytest.raises(TypeError, match="must be of type dict"):
            prune.global_unstructured(pairs, prune.L1Unstructured, importance_scores=[1], amount=1)
        prune.l1_unstructured(*pairs[0], amount=1)
        prune.l1_unstructured(*pairs[0], amount=1)
        next(iter(pairs[0][0]._forward_pre_hooks.values())).add_pruning_method(None)


def test_truncated_normal_numbers_far_from_their_mean_warn(tg: Any) -> None:
    for t in (torch, tg):
        with pytest.warns(UserWarning, match="mean is more than 2 std"):
            t.nn.init.trunc_normal_(t.empty(1), 5.0)
