"""What ``Module`` itself does: hooks, registration, state, lazy modules; programs run on PyTorch and on telegrad."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
import torch.nn.utils.parametrizations
import torch.nn.utils.prune
import torch.nn.utils.stateless

from .pairs import give_state


def _on_both(tg: Any, program: Any) -> None:
    """The program gives the same on both."""
    assert program(tg) == program(torch)


def test_hooks_around_forward_run_in_order_and_replace(tg: Any) -> None:
    def program(t: Any) -> Any:
        seen: list[Any] = []

        class Scaled(t.nn.Module):
            def forward(self, x: Any, factor: float = 1.0) -> Any:
                seen.append("forward")
                return x * factor

        def pre(module: Any, args: Any, kwargs: Any) -> Any:
            seen.append(("pre", sorted(kwargs)))
            return args, {"factor": kwargs["factor"] + 1}

        layer = Scaled()
        layer.register_forward_pre_hook(lambda m, args: seen.append("plain"))
        layer.register_forward_pre_hook(pre, with_kwargs=True, prepend=True)
        layer.register_forward_hook(lambda m, args, out: out + 1)
        handle = layer.register_forward_hook(lambda m, args, kwargs, out: seen.append(sorted(kwargs)), with_kwargs=True)
        first = layer(t.tensor(2.0), factor=2.0).item()
        handle.remove()
        return first, layer(t.tensor(2.0), factor=2.0).item(), seen

    _on_both(tg, program)


def test_a_hook_is_called_though_forward_fails(tg: Any) -> None:
    def program(t: Any) -> Any:
        seen: list[str] = []

        class Failing(t.nn.Module):
            def forward(self, x: Any) -> Any:
                raise ZeroDivisionError

        layer = Failing()
        layer.register_forward_hook(lambda m, args, out: seen.append(f"always {out}"), always_call=True)
        layer.register_forward_hook(lambda m, args, out: seen.append("never"))
        try:
            layer(1)
        except ZeroDivisionError:
            seen.append("raised")
        return seen

    _on_both(tg, program)


def test_global_hooks_see_every_module(tg: Any) -> None:
    def program(t: Any) -> Any:
        module, seen = t.nn.modules.module, []
        handles = [
            module.register_module_forward_pre_hook(lambda m, args: seen.append(type(m).__name__)),
            module.register_module_forward_hook(lambda m, args, out: out + 1),
            module.register_module_parameter_registration_hook(lambda m, n, p: seen.append(n)),
            module.register_module_buffer_registration_hook(lambda m, n, b: seen.append(n)),
            module.register_module_module_registration_hook(lambda m, n, c: seen.append(n)),
        ]
        try:
            model = t.nn.Sequential(t.nn.Identity(), t.nn.BatchNorm1d(2))
            result = model[0](t.zeros(1)).item()
        finally:
            for handle in handles:
                handle.remove()
        return result, seen, t.nn.Identity()(t.zeros(1)).item()

    _on_both(tg, program)


def test_state_hooks(tg: Any) -> None:
    def program(t: Any) -> Any:
        seen: list[Any] = []
        model = t.nn.Sequential(t.nn.Linear(1, 1, bias=False))
        model.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("pre", prefix, keep)))
        model.register_state_dict_post_hook(lambda m, state, prefix, local: seen.append(sorted(state)))
        model[0].register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: seen.append((prefix, sorted(state))))
        model[0].register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
        state = model.state_dict()
        model.load_state_dict({})
        return seen, list(state), state._metadata[""], list(state._metadata)

    _on_both(tg, program)


def test_a_module_has_state_of_its_own_kind(tg: Any) -> None:
    def program(t: Any) -> Any:
        class Counting(t.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.count = 3
                self.buffer = t.nn.Buffer(t.zeros(1))
                self.scratch = t.nn.Buffer(t.zeros(1), persistent=False)

            def get_extra_state(self) -> int:
                return self.count

            def set_extra_state(self, state: int) -> None:
                self.count = state + 1

        first, second = Counting(), Counting()
        result = second.load_state_dict(first.state_dict())
        missing = Counting().load_state_dict({}, strict=False)
        return (
            second.count,
            list(first.state_dict()),
            repr(result),
            missing.missing_keys,
            dict(first.named_buffers()).keys(),
        )

    _on_both(tg, program)


def test_overridden_loading_of_one_module_is_used(tg: Any) -> None:
    def program(t: Any) -> Any:
        class Renamed(t.nn.Linear):
            def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "old")
                super()._load_from_state_dict(state_dict, prefix, *args)

        model = t.nn.Sequential(Renamed(1, 1, False))
        model.load_state_dict({"0.old": t.full((1, 1), 7.0)})
        return model[0].weight.item()

    _on_both(tg, program)


def test_submodules_are_set_by_path(tg: Any) -> None:
    def program(t: Any) -> Any:
        model = t.nn.Sequential(t.nn.Sequential(t.nn.Linear(1, 1)), t.nn.ReLU())
        model.set_submodule("0.0", t.nn.Tanh())
        texts = [repr(model)]
        for call in (
            lambda: model.get_submodule("0.1"),
            lambda: model.get_parameter("0"),
            lambda: model.get_buffer("1.x"),
        ):
            try:
                call()
            except AttributeError as error:
                texts.append(str(error))
        return texts

    _on_both(tg, program)


def test_lazy_modules_take_sizes_from_their_input(tg: Any) -> None:
    def program(t: Any) -> Any:
        model = t.nn.Sequential(t.nn.LazyLinear(3), t.nn.LazyBatchNorm1d(), t.nn.LazyInstanceNorm1d(affine=True))
        before = [repr(model), model[0].has_uninitialized_params(), t.nn.parameter.is_lazy(model[0].weight)]
        try:
            _ = model[0].weight.shape
        except RuntimeError as error:
            before.append(str(error)[:40])
        out = model[0](t.ones(2, 5))
        model[1](out)
        model[2](t.ones(2, 3, 4))
        loaded = t.nn.LazyLinear(3)
        loaded.load_state_dict(model[0].state_dict())
        kinds = [type(part).__name__ for part in model]
        return before, kinds, repr(model), [tuple(p.shape) for p in model.parameters()], tuple(loaded.weight.shape)

    _on_both(tg, program)


def test_to_empty_keeps_sizes_and_types(tg: Any) -> None:
    layer = tg.nn.Linear(2, 3, dtype=tg.float64).to_empty(device="cpu")
    assert (tuple(layer.weight.shape), layer.weight.dtype, layer.weight.requires_grad) == ((3, 2), tg.float64, True)


def test_hooks_of_the_backward_pass_are_called_until_removed(tg: Any) -> None:
    layer = tg.nn.Linear(2, 2)
    calls, x = [], tg.ones(1, 2, requires_grad=True)
    handle = layer.register_full_backward_hook(lambda m, grad_input, grad_output: calls.append(m))
    with tg.no_grad():
        assert layer(x).shape == (1, 2)
    layer(x).sum().backward()
    assert calls == [layer]
    handle.remove()
    layer(x).sum().backward()
    assert calls == [layer]
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        layer.register_backward_hook(lambda m, grad_input, grad_output: None)


def test_containers_are_pytorchs(tg: Any) -> None:
    def program(t: Any) -> Any:
        nn = t.nn
        chain = nn.Sequential(nn.ReLU(), nn.Tanh())
        popped = (chain * 2).pop(0)
        chain += nn.Sequential(nn.Sigmoid())
        chain *= 2
        listed = nn.ModuleList([nn.ReLU()]) + [nn.Tanh()]
        listed.insert(1, nn.GELU())
        last = listed.pop(-1)
        named = nn.ParameterDict({"a": t.ones(2), "b": nn.Parameter(t.zeros(3, 1)), "c": 5})
        named.setdefault("d", t.ones(1))
        other = named | nn.ParameterDict({"e": t.ones(1)})
        texts = [repr(m) for m in (chain, popped, listed, last, 2 * nn.Sequential(nn.ReLU()))]
        keys = [list(other), list(reversed(named)), named.popitem()[0], named.get("zz", 1), list(named.copy())]
        modules = nn.ModuleDict({"x": nn.ReLU()})
        modules.update([("y", nn.Tanh())])
        return (
            texts,
            keys,
            repr(modules),
            repr(nn.ParameterList([t.ones(2), 3]))[:20],
            len(listed),
            modules.pop("x")._get_name(),
        )

    _on_both(tg, program)


def test_sync_batch_norm_takes_the_place_of_batch_norm(tg: Any) -> None:
    model = tg.nn.Sequential(tg.nn.Conv2d(1, 2, 1), tg.nn.Sequential(tg.nn.BatchNorm2d(2))).eval()
    state = model.state_dict()
    converted = tg.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert isinstance(converted[1][0], tg.nn.SyncBatchNorm) and not converted[1][0].training
    assert list(converted.state_dict()) == list(state)
    assert converted(tg.randn(1, 1, 2, 2)).shape == (1, 2, 2, 2)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_tracks_statistics_and_waits_for_nothing(tg: Any, momentum: float | None, seed: int) -> None:
    torch.manual_seed(seed)
    theirs, ours = (nn.BatchNorm1d(3, momentum=momentum) for nn in (torch.nn, tg.nn))
    give_state(tg, theirs, ours)
    batches = [torch.randn(4, 3) for _ in range(3)]
    mine = [tg.tensor(batch.numpy()) for batch in batches]
    before = tg.wire_stats().round_trips
    for a, b in zip(mine, batches, strict=True):
        ours(a)
        theirs(b)
    assert tg.wire_stats().round_trips == before
    for name, value in theirs.named_buffers():
        assert getattr(ours, name).tolist() == pytest.approx(value.tolist(), rel=1e-5)


def test_modules_without_tensors_are_pickled_and_copied(tg: Any) -> None:
    layer = tg.nn.Sequential(tg.nn.ReLU(), tg.nn.Flatten())
    assert repr(pickle.loads(pickle.dumps(layer))) == repr(layer)
    hooked = tg.nn.Identity()
    hooked.register_forward_hook(lambda m, args, out: out + 1)
    assert copy.deepcopy(hooked)(tg.zeros(1)).item() == 1.0


UNLIKE = {"Module", "Parameter", "Buffer", "UninitializedBuffer", "UninitializedParameter", "NLLLoss2d", "Container"}
"""Classes whose constructors PyTorch does not describe, or describes by those of their bases."""


def test_constructors_and_forwards_have_pytorchs_signatures(tg: Any) -> None:
    different = []
    for name in dir(torch.nn):
        theirs, ours = getattr(torch.nn, name), getattr(tg.nn, name, None)
        if not inspect.isclass(theirs) or not issubclass(theirs, torch.nn.Module) or name in UNLIKE or ours is None:
            continue
        for method in ("__init__", "forward"):
            if getattr(theirs, method) is torch.nn.Module.forward:  # it takes anything
                continue
            pair = [_signature(getattr(kind, method)) for kind in (theirs, ours)]
            if pair[0] != pair[1]:
                different.append((name, method, *pair))
    assert not different, "\n".join(map(str, different))


def _signature(function: Any) -> list[Any]:
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default if not callable(p.default) else p.default.__name__) for p in parameters]


SPACES = [
    "optim", "optim.lr_scheduler", "optim.swa_utils", "nn.init", "nn.utils", "nn.utils.rnn",
    "nn.utils.parametrizations", "nn.utils.parametrize", "nn.utils.prune", "nn.utils.stateless",
]  # fmt: skip


@pytest.mark.parametrize("space", SPACES)
def test_names_and_signatures_of_a_namespace_are_pytorchs(tg: Any, space: str) -> None:
    theirs, ours = torch, tg
    for part in space.split("."):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    names = [n for n in getattr(theirs, "__all__", dir(theirs)) if not n.startswith("_") and hasattr(theirs, n)]
    of_torch = [n for n in names if getattr(getattr(theirs, n), "__module__", "").startswith("torch")]
    names = [n for n in of_torch if n != "Tensor"]
    missing = [n for n in names if not hasattr(ours, n) and n not in OUT_OF_SCOPE]
    assert not missing
    different = []
    for name in names:
        value = getattr(theirs, name)
        if not callable(value) or name in OUT_OF_SCOPE or name in ("Optimizer", "LRScheduler"):
            continue
        pair = [[(n, k, d) for n, k, d in _signature(f) if n != "self"] for f in (value, getattr(ours, name))]
        if pair[0] != pair[1]:
            different.append((name, *pair))
    assert not different


OUT_OF_SCOPE = {
    "swap_in_optimizer_params_and_state", "NamedMemberAccessor", "OptState", "PARAM_LIST", "Module", "ModuleDict",
    "ModuleList", "Parameter", "OpaqueBase", "get_swap_module_params_on_conversion", "is_opaque_reference_type",
    "is_traceable_wrapper_subclass", "bind", "PackedSequence_", "copy_method_params",
}  # fmt: skip
"""What PyTorch's modules import, or mean for themselves."""


def test_what_other_peoples_layers_import_is_there(tg: Any) -> None:
    modules = tg.nn.modules
    from telegrad.nn.common_types import _size_2_t

    assert _size_2_t == int | tuple[int, int]
    assert modules._pair(3) == (3, 3) and modules._triple([1, 2, 3]) == (1, 2, 3)
    assert modules._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    assert issubclass(tg.nn.InstanceNorm1d, modules._InstanceNorm)
    assert issubclass(tg.nn.LazyLinear, modules.LazyModuleMixin)

    class Halved(tg.nn.Conv2d):
        def forward(self, input: Any) -> Any:
            return self._conv_forward(input, self.weight / 2, None)

    layer, x = Halved(1, 2, 3, padding=1, padding_mode="circular"), tg.randn(1, 1, 4, 4)
    plain = tg.nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular", bias=False)
    plain.load_state_dict({"weight": layer.weight.detach() / 2})
    assert layer(x).tolist() == plain(x).tolist()


def test_parameters_of_a_plain_dictionary_are_sorted_by_name(tg: Any) -> None:
    shown = []
    for library in (torch, tg):
        given = library.nn.ParameterDict({"q": library.ones(2), "a": library.nn.Parameter(library.ones(1))})
        pairs = library.nn.ParameterDict([("z", library.ones(1)), ("b", library.ones(1))])
        shown.append([list(given), list(given | {"k": library.ones(1)}), list(given.copy()), list(pairs)])
        with pytest.raises(TypeError, match="floating point or complex"):
            library.nn.Linear(1, 1).to(library.int32)
    assert shown[0] == shown[1]


def test_settings_are_checked_as_in_pytorch(tg: Any) -> None:
    """Each mistake raises the same built-in exception in both libraries."""
    for library in (torch, tg):
        nn, weight = library.nn, library.nn.Parameter(library.ones(1))
        mistakes: list[tuple[type[Exception], Any]] = [
            (TypeError, lambda nn=nn: nn.LSTM(3, 4, bias=1)),
            (TypeError, lambda nn=nn: nn.GRU(3, 4, batch_first="yes")),
            (ValueError, lambda nn=nn: nn.RNN(0, 4)),
            (ValueError, lambda nn=nn, library=library: nn.BatchNorm1d(2, eps=0.0)(library.ones(2, 2))),
            (RuntimeError, lambda nn=nn, library=library: nn.CrossEntropyLoss(ignore_index=1)(
                library.ones(2, 3), library.ones(2, 3))),
            (ValueError, lambda library=library, weight=weight: library.optim.SGD([weight], lr=library.ones(2))),
            (ValueError, lambda library=library, weight=weight: library.optim.Adam(
                [weight], betas=(0.9, library.tensor(0.9)))),
            (ValueError, lambda library=library, weight=weight: library.optim.SGD(
                [{"params": [weight]}, {"params": [("name", library.nn.Parameter(library.ones(1)))]}])),
        ]  # fmt: skip
        for number, (error, make) in enumerate(mistakes):
            with pytest.raises(error):
                make()
                pytest.fail(f"{library.__name__} accepted mistake {number}")


def test_modules_are_called_without_a_look_again_when_global_hooks_are_gone(tg: Any) -> None:
    from telegrad.nn._hooks import GLOBAL

    model, seen = tg.nn.Identity(), []
    with tg.nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(m)):
        model(tg.zeros(1))
        assert GLOBAL.any
    model(tg.zeros(1))
    assert not GLOBAL.any and len(seen) == 1


def test_functions_that_are_attributes_of_a_class_are_no_methods(tg: Any) -> None:
    """They are builtins in PyTorch; functions in Python of the program's own are methods, there and here."""
    told = []
    for library in (torch, tg):

        class Layer(library.nn.Module):  # type: ignore[name-defined, misc]
            convolution, activation, made = library.conv2d, library.nn.functional.gelu, library.zeros

            def own(self) -> Any:
                return self

        class Below(Layer):
            activation = library.relu

        layers = Layer(), Below()
        x = library.ones(1, 1, 3, 3)
        assert all(layer.own() is layer for layer in layers)
        told.append([layer.activation(layer.convolution(x, x) - 1 + layer.made(1)).tolist() for layer in layers])
    for ours, theirs in zip(*reversed(told), strict=True):
        assert ours[0][0][0] == pytest.approx(theirs[0][0][0], rel=1e-6)


def test_a_tensor_shows_the_class_of_its_node(tg: Any) -> None:
    shown = []
    for library in (torch, tg):
        x = library.ones(3, requires_grad=True) * 1
        x[0] = 2
        shown.append((str(x), x.grad_fn.name()))
    assert shown[0] == shown[1]
