"""Modules beside PyTorch's: lazy parameters, hooks, loading onto the meta device, and parametrizations."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from collections import namedtuple
from typing import Any

import pytest
import torch

Pair = namedtuple("Pair", "a b")


def test_parameters_without_a_shape_are_moved_and_refuse_all_else(tg: Any) -> None:
    for t in (torch, tg):
        parameter = t.nn.parameter.UninitializedParameter()
        for call in (lambda p: p + p, lambda p, t=t: t.add(p, p), lambda p, t=t: t.empty_like(p)):
            with pytest.raises(ValueError, match="uninitialized parameter"):
                call(parameter)
        module = t.nn.LazyLinear(3)
        assert module.double().weight.dtype is t.float64
        assert module.to("cpu").has_uninitialized_params()
        with pytest.raises(RuntimeError, match="share memory on an uninitialized"):
            module.share_memory()
        for norm in (t.nn.utils.weight_norm, t.nn.utils.spectral_norm):
            with warnings.catch_warnings(), pytest.raises(ValueError, match="can't have uninitialized parameters"):
                warnings.simplefilter("ignore")
                norm(module)
        parameter.materialize(4)
        assert tuple(parameter.shape) == (4,)


def test_lazy_modules_are_pickled_and_their_state_is_lazy(tg: Any) -> None:
    for t in (torch, tg):
        module = pickle.loads(pickle.dumps(t.nn.LazyLinear(3)))
        assert module.has_uninitialized_params()
        state = module.state_dict()
        assert isinstance(state["weight"], t.nn.parameter.UninitializedParameter)
        module.load_state_dict(state)
        with pytest.raises(RuntimeError, match="shape of an uninitialized"):
            t.nn.Linear(2, 3).load_state_dict(state)
        assert tuple(module(t.ones(1, 2)).shape) == (1, 3)
        holder = t.nn.Module()
        holder.buffer = t.nn.parameter.UninitializedBuffer()
        assert list(dict(holder.named_buffers())) == ["buffer"]


def test_a_hook_before_loading_does_not_keep_its_module(tg: Any) -> None:
    seen = []
    module = tg.nn.Linear(1, 1)
    module.register_load_state_dict_pre_hook(lambda module, *rest: seen.append(module))
    other = copy.deepcopy(module)
    other.load_state_dict(module.state_dict())
    assert [one is other for one in seen] == [True]
    seen.clear()
    reference = weakref.ref(module)
    gc.disable()
    try:
        del module
        assert reference() is None
    finally:
        gc.enable()


def test_a_module_of_an_older_version_has_all_kinds_of_hooks(tg: Any) -> None:
    module = tg.nn.Linear(1, 1)
    state = {name: value for name, value in module.__dict__.items() if name != "_load_state_dict_post_hooks"}
    other = tg.nn.Linear.__new__(tg.nn.Linear)
    other.__setstate__(state)
    other.load_state_dict(module.state_dict())


class _Named:
    def forward(self, x: Any) -> Any:
        return Pair(x * 2, x * 3)


class _Dictionary:
    def forward(self, x: Any) -> Any:
        return {"a": x * 2}


def test_backward_hooks_leave_named_tuples_and_warn_of_dictionaries(tg: Any) -> None:
    for t in (torch, tg):
        named, other = (type("M", (kind, t.nn.Module), {})() for kind in (_Named, _Dictionary))
        for module in (named, other):
            module.register_full_backward_hook(lambda module, inputs, outputs: None)
        x = t.ones(2, requires_grad=True)
        assert isinstance(named(x), Pair)
        with pytest.warns(UserWarning, match="module output should be a Tensor or a tuple of Tensors but received"):
            other(x)


def test_copying_onto_the_meta_device_warns(tg: Any) -> None:
    for t in (torch, tg):
        module, state = t.nn.Linear(2, 1, False, device="meta"), t.nn.Linear(2, 1, False).state_dict()
        with pytest.warns(
            UserWarning, match="for weight: copying from a non-meta parameter in the checkpoint to a meta"
        ):
            module.load_state_dict(state)
        module.load_state_dict(state, assign=True)
        assert not module.weight.is_meta


def _parametrization(t: Any, forward: Any, right_inverse: Any = None) -> Any:
    names = {"forward": forward}
    if right_inverse is not None:
        names["right_inverse"] = right_inverse
    return type("P", (t.nn.Module,), names)()


@pytest.mark.parametrize(
    ("forward", "right_inverse", "words"),
    [
        (lambda s, x: x, lambda s, x: (x, x), "parametrization.right_inverse must return a tensor. Got: tuple"),
        (lambda s, x: x, lambda s, x: x.double(), "right_inverse must have the same dtype as module.weight"),
        (lambda s, x: x, lambda s, x: x[:1], "right_inverse must have the same shape as module.weight"),
        (lambda s, x: x.sum(), None, "may not change the shape of the tensor"),
    ],
)
def test_further_parametrizations_are_refused_in_pytorchs_words(
    tg: Any, forward: Any, right_inverse: Any, words: str
) -> None:
    for t in (torch, tg):
        module, register = t.nn.Linear(2, 3), t.nn.utils.parametrize.register_parametrization
        register(module, "weight", _parametrization(t, lambda s, x: x))
        with pytest.raises(ValueError, match=words):
            register(module, "weight", _parametrization(t, forward, right_inverse))
        assert len(module.parametrizations.weight) == 1


@pytest.mark.parametrize(
    ("forward", "right_inverse", "words"),
    [
        (lambda s, x, y: x, lambda s, x: (None, x), "Got element 0 of the sequence with type NoneType"),
        (lambda s, x: x, lambda s, x: x[:1], "may not change the shape of the tensor"),
        (lambda s, x: x, lambda s, x: x.double(), "it may not change the dtype"),
    ],
)
def test_first_parametrizations_are_refused_in_pytorchs_words(
    tg: Any, forward: Any, right_inverse: Any, words: str
) -> None:
    for t in (torch, tg):
        module, register = t.nn.Linear(2, 3), t.nn.utils.parametrize.register_parametrization
        with pytest.raises(ValueError, match=words):
            register(module, "weight", _parametrization(t, forward, right_inverse))


def test_a_further_right_inverse_takes_what_its_parametrization_gives(tg: Any) -> None:
    for t in (torch, tg):
        module, seen = t.nn.Linear(2, 2, bias=False), []
        register = t.nn.utils.parametrize.register_parametrization
        register(module, "weight", _parametrization(t, lambda s, x: x))
        register(
            module, "weight", _parametrization(t, lambda s, x: x + 1, lambda s, x, seen=seen: (seen.append(x), x)[1])
        )
        assert t.equal(seen[0], module.parametrizations.weight.original + 1)


def test_parametrized_modules_are_copied_and_not_pickled(tg: Any) -> None:
    for t in (torch, tg):
        module = t.nn.utils.parametrizations.weight_norm(t.nn.Linear(2, 2))
        assert t.equal(copy.deepcopy(module).weight, module.weight)
        with pytest.raises(RuntimeError, match=r"only supported through state_dict\(\)"):
            pickle.dumps(module)


def test_the_spectral_norm_of_complex_weights_is_one(tg: Any) -> None:
    for t in (torch, tg):
        t.manual_seed(0)
        module = t.nn.Linear(3, 3, dtype=t.complex64)
        with t.no_grad():
            module.weight.copy_(t.diag(t.tensor([2.0, 0.5j, 0.1])))
        weight = t.nn.utils.parametrizations.spectral_norm(module, n_power_iterations=20).weight
        assert t.allclose(weight, t.diag(t.tensor([1.0, 0.25j, 0.05])), atol=1e-4)


def test_handles_of_hooks_do_not_keep_what_they_remove_from(tg: Any) -> None:
    for t in (torch, tg):
        module = t.nn.Identity()
        handle = module.register_forward_hook(print, with_kwargs=True)
        assert handle.hooks_dict_ref() is module._forward_hooks
        assert handle.extra_dict_ref[0]() is module._forward_hooks_with_kwargs
        assert handle.id < type(handle).next_id
        loaded, read = pickle.loads(pickle.dumps((module, handle)))
        assert read.hooks_dict_ref() is loaded._forward_hooks
        read.remove()
        assert (len(loaded._forward_hooks), len(module._forward_hooks)) == (0, 1)
        alone = pickle.loads(pickle.dumps(handle))
        assert alone.id == handle.id
        alone.remove()
        del module
        gc.collect()
        assert handle.hooks_dict_ref() is None
        handle.remove()


def test_what_an_older_file_lacks_is_there_once_it_is_read(tg: Any) -> None:
    for t in (torch, tg):
        module = t.nn.BatchNorm1d(2)
        del module._non_persistent_buffers_set
        assert "running_mean" in pickle.loads(pickle.dumps(module)).state_dict()


def test_extra_state_is_saved_by_one_method_and_loaded_by_the_other(tg: Any) -> None:
    for t in (torch, tg):
        saves = type("Saves", (t.nn.Module,), {"get_extra_state": lambda self: 3})()
        loads = type("Loads", (t.nn.Module,), {"set_extra_state": lambda self, state: setattr(self, "got", state)})()
        assert saves.state_dict() == {"_extra_state": 3}
        with pytest.raises(RuntimeError, match=r"Unexpected key.*_extra_state"):
            saves.load_state_dict(saves.state_dict())
        with pytest.raises(RuntimeError, match=r"Missing key.*_extra_state"):
            loads.load_state_dict({})
        loads.load_state_dict(saves.state_dict())
        assert loads.got == 3
        assert loads.state_dict() == {}


def _outcome(call: Any) -> Any:
    try:
        return str(call())
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError) as error:
        kinds = (TypeError, ValueError, RuntimeError, KeyError, IndexError, AttributeError)
        return [kind for kind in kinds if isinstance(error, kind)]


def _results_of_containers(t: Any) -> list[Any]:
    def named(**entries: Any) -> Any:
        return t.nn.ParameterDict(entries)

    one, modules = t.ones(2), t.nn.Sequential(t.nn.Linear(1, 1), t.nn.ReLU())
    repeated = modules * 2
    calls = [
        lambda: repeated[2] is modules[0], lambda: len(list(repeated.parameters())),
        lambda: repeated.__imul__(2)[6] is modules[0],
        lambda: t.nn.ParameterList(t.nn.Parameter(one)), lambda: t.nn.ParameterList([one]).extend(one),
        lambda: t.nn.ParameterList().extend(3), lambda: named(a=one)["b"], lambda: named(a=one).pop("b"),
        lambda: named().popitem(), lambda: named(a=one).popitem()[0], lambda: named(a=one)(1),
        lambda: named().update([("a", one, 1)]), lambda: named().update([3]), lambda: named().update(3),
        lambda: named().__setitem__(3, one), lambda: named(a=one)[3],
        lambda: t.nn.ModuleDict([("a", t.nn.ReLU(), 1)]), lambda: t.nn.ModuleDict([3]), lambda: t.nn.ModuleDict(3),
    ]  # fmt: skip
    return [_outcome(call) for call in calls]


def test_containers_share_and_refuse_what_pytorchs_do(tg: Any) -> None:
    for ours, theirs in zip(_results_of_containers(tg), _results_of_containers(torch), strict=True):
        assert ours == theirs or set(theirs) <= set(ours)


def test_a_name_of_a_parameter_takes_no_module_and_no_buffer(tg: Any) -> None:
    for t in (torch, tg):
        layer = t.nn.Linear(1, 1)
        for value in (t.nn.ReLU(), t.nn.Buffer(t.ones(1)), t.ones(1)):
            with pytest.raises(TypeError, match="as parameter 'weight'"):
                layer.weight = value
        layer.weight = None
        assert list(layer._parameters) == ["weight", "bias"]


def test_a_buffer_is_a_tensor_of_the_class_of_its_data(tg: Any) -> None:
    for t in (torch, tg):
        buffer = t.nn.Buffer(t.ones(1), persistent=False)
        assert type(buffer) is t.Tensor
        for one in (buffer, copy.deepcopy(buffer), t.nn.Buffer(), t.nn.UninitializedBuffer()):
            assert isinstance(one, t.nn.Buffer)
        assert not isinstance(buffer + 1, t.nn.Buffer)
        assert not copy.deepcopy(buffer).persistent
