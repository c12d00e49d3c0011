"""States of models and optimizers by names without wrappers' prefixes, as torch.distributed.checkpoint.state_dict."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed.checkpoint.state_dict as theirs

from telegrad._programs import state_dicts
from telegrad_protocol.errors import ArgumentError

from .twins import assert_same, evaluate

MODEL = """
s = ours if t.__name__ == "telegrad" else theirs
def module(wrap=True):
    layers = [t.nn.Linear(2, 3), t.nn.BatchNorm1d(3), t.nn.Linear(3, 1, bias=False)]
    layers[2].weight.requires_grad = False
    if wrap:
        layers[0] = t.compile(layers[0], backend="eager")
    net = t.nn.Sequential(*layers)
    with t.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.copy_(t.linspace(-1, 1, parameter.numel()).reshape(parameter.shape) + number / 8)
    return t.compile(net, backend="eager") if wrap else net
def optimizer(net, kind="AdamW"):
    net = getattr(net, "_orig_mod", net)
    return getattr(t.optim, kind)([
        {"params": net[0].parameters(), "lr": 0.1}, {"params": net[1].parameters()}], lr=0.01)
def sorted_entries(state):
    return [(name, sorted_entries(v) if isinstance(v, dict) else v) for name, v in sorted(state.items())]
net = module()
o = optimizer(net)
options = s.StateDictOptions
"""
CALLS = {
    "model": "sorted_entries(s.get_model_state_dict(net))",
    "trained": "s.get_model_state_dict(net, options=options(ignore_frozen_params=True, cpu_offload=True))",
    "submodule": "s.get_model_state_dict(net, submodules={net._orig_mod[1]}, "
    "options=options(keep_submodule_prefixes=False))",
    "optimizer": "s.get_optimizer_state_dict(net, o)",
    "flat": "sorted_entries(s.get_optimizer_state_dict(net, o, options=options(flatten_optimizer_state_dict=True)))",
    "both": "(s.get_state_dict(net, [o])[0], [p.detach() for p in net.parameters()])",
    "without state": "s.get_optimizer_state_dict(net, optimizer(net, 'SGD'))",
    "broadcast": "s.get_model_state_dict(net, options=options(broadcast_from_rank0=True))",
}
TRAINED = """
o.zero_grad(); net(t.ones(2, 2) * t.tensor([[1.0], [2.0]])).sum().backward(); o.step()
"""
LOADED = {
    "model": "(s.set_model_state_dict(other, s.get_model_state_dict(net)), other.state_dict())",
    "part": "(s.set_model_state_dict(other, {'0.bias': t.ones(3)}, options=options(strict=False)), other[0].bias)",
    "full part": "(s.set_model_state_dict(other, {'0.bias': t.ones(3)}, options=options(full_state_dict=True)), "
    "other.state_dict())",
    "unexpected": "s.set_model_state_dict(other, {'new': t.ones(3)}, options=options(full_state_dict=True))",
    "missing": "s.set_model_state_dict(other, {'0.bias': t.ones(3)})",
    "optimizer": "(s.set_optimizer_state_dict(other, p, s.get_optimizer_state_dict(net, o)), p.state_dict())",
    "flat": "(s.set_optimizer_state_dict(other, p, s.get_optimizer_state_dict(net, o, "
    "options=options(flatten_optimizer_state_dict=True)), options=options(flatten_optimizer_state_dict=True)), "
    "p.state_dict())",
    "both": "(s.set_state_dict(other, p, model_state_dict=s.get_model_state_dict(net), "
    "optim_state_dict=s.get_optimizer_state_dict(net, o)), other.state_dict(), p.state_dict())",
}


def _compare(text: str, tg: Any) -> None:
    ours, expected = evaluate(text, tg, ours=state_dicts, theirs=theirs)
    assert_same(_lists(ours), _lists(expected))


def _lists(value: Any) -> Any:
    """Dictionaries as lists of their entries, which are compared in order."""
    if isinstance(value, dict):
        return [(key, _lists(entry)) for key, entry in value.items()]
    return [_lists(entry) for entry in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_states_have_plain_names(call: str, tg: Any) -> None:
    _compare(f"{MODEL}\n{call}", tg)


@pytest.mark.parametrize("call", LOADED.values(), ids=list(LOADED))
def test_states_are_loaded_by_plain_names(call: str, tg: Any) -> None:
    _compare(f"{MODEL}\n{TRAINED}\nother = module(False)\np = optimizer(other)\n{call}", tg)


def test_a_full_state_replaces_parameters_without_elements(tg: Any) -> None:
    made = "m = t.nn.Sequential(t.nn.Linear(2, 1, device='meta'), t.nn.Linear(1, 1, bias=False))"
    state = "{'0.weight': t.ones(1, 2), '0.bias': t.ones(1), '1.weight': t.ones(1, 1)}"
    load = f"s.set_model_state_dict(m, {state}, options=options(full_state_dict=True))"
    _compare(f"{MODEL}\n{made}\n{load}\n[p.detach() for p in m.parameters()]", tg)


def test_states_of_what_is_not_the_models_are_refused(tg: Any) -> None:
    model, other = tg.nn.Linear(2, 1), tg.nn.Linear(2, 1)
    optimizer = tg.optim.Adam([{"params": model.parameters()}, {"params": [tg.nn.Parameter(tg.ones(3, 2))]}])
    of_optimizer = r"parameter 0 of group 1 of Adam, of shape \(3, 2\), is none of the model's; give the model"
    with pytest.raises(ArgumentError, match=of_optimizer):
        state_dicts.get_optimizer_state_dict(model, optimizer)
    with pytest.raises(ArgumentError, match=of_optimizer):
        state_dicts.set_optimizer_state_dict(model, optimizer, {})
    assert not optimizer.state
    with pytest.raises(ArgumentError, match="a state is given for a Linear that is none of the model's modules"):
        state_dicts.set_model_state_dict(model, {other: other.state_dict()})
