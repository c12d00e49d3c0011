"""``torch.distributed.checkpoint.state_dict``: states of models and optimizers by names that wrappers do not change.

``DistributedDataParallel`` and ``torch.compile`` put a prefix before names of parameters, and optimizers number them.
Here a parameter has the name that it has in the plain model, so that files fit however a program wraps it. Nothing is
spread over processes: whether a state is a full one makes no difference, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad.compiler.optimized_module import OptimizedModule
from telegrad.nn import Module
from telegrad.nn.modules.module import _IncompatibleKeys
from telegrad.nn.parallel import DistributedDataParallel
from telegrad.optim import Optimizer
from telegrad.utils._pytree import tree_map_only
from telegrad_protocol.errors import ArgumentError

_STATE: Final = "state"
_GROUPS: Final = "param_groups"
_PARAMS: Final = "params"
_zeros_like: Final = function("zeros_like")


@dataclass(frozen=True)
class StateDictOptions:
    """What a state has in it. ``full_state_dict`` and ``broadcast_from_rank0`` concern processes, of which one is."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """Return the state of a model by plain names; with ``submodules``, what is below those."""
    options = _checked(options)
    state = {_plain(model, name): value for name, value in model.state_dict().items()}
    if submodules:
        state = dict(_below(state, model, submodules, options.keep_submodule_prefixes))
    if options.ignore_frozen_params:
        frozen = {name for name, parameter in _parameters(model) if not parameter.requires_grad}
        state = {name: value for name, value in state.items() if name not in frozen}
    return _placed(state, options)


def get_optimizer_state_dict(
    model: Module, optimizers: Optimizer | Iterable[Optimizer], *, submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the state of optimizers, with parameters by their names in the model in place of numbers.

    An optimizer that has made no step makes one that changes nothing, so that its state has all entries.
    """
    options = _checked(options)
    states: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _listed(optimizers):
        numbered = [name for group in _names(model, optimizer) for name in group]
        _begin(optimizer)
        own = optimizer.state_dict()
        states.update((numbered[number], entries) for number, entries in own[_STATE].items())
        groups.extend({**group, _PARAMS: [numbered[number] for number in group[_PARAMS]]} for group in own[_GROUPS])
    state: dict[str, Any] = {_STATE: states, _GROUPS: groups}
    return _placed(_flat(state) if options.flatten_optimizer_state_dict else state, options)


def get_state_dict(
    model: Module, optimizers: Optimizer | Iterable[Optimizer], *, submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Return the state of a model and of its optimizers."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_model_state_dict(
    model: Module, model_state_dict: Mapping[Any, Any], *, options: StateDictOptions | None = None
) -> _IncompatibleKeys:
    """Load a state by plain names, or states by submodule; a full state may lack entries, which stay as they are.

    Parameters on the meta device are replaced. RuntimeError names what is missing or unexpected with ``strict``.
    """
    options = _checked(options)
    given = dict(_of_whole(model, model_state_dict))
    if not given:
        return _IncompatibleKeys([], [])
    present = model.state_dict()
    state = {name: given.pop(_plain(model, name)) for name in present if _plain(model, name) in given}
    if options.full_state_dict:
        state = {**present, **state}
    on_meta = any(isinstance(value, Tensor) and value.is_meta for value in present.values())
    assign = on_meta and options.full_state_dict
    keys: _IncompatibleKeys = model.load_state_dict({**state, **given}, strict=options.strict, assign=assign)
    return keys


def set_optimizer_state_dict(
    model: Module, optimizers: Optimizer | Iterable[Optimizer], optim_state_dict: Mapping[str, Any], *,
    options: StateDictOptions | None = None,
) -> None:  # fmt: skip
    """Load a state that ``get_optimizer_state_dict`` returned, flat or not, each optimizer what its parameters have."""
    _checked(options)
    for optimizer in _listed(optimizers):
        own = _names(model, optimizer)
        _begin(optimizer)
        state = optim_state_dict if _STATE in optim_state_dict else _nested(optim_state_dict, own)
        if state:
            optimizer.load_state_dict(_numbered(state, own, optimizer.state_dict()[_GROUPS]))


def set_state_dict(
    model: Module, optimizers: Optimizer | Iterable[Optimizer], *, model_state_dict: Mapping[Any, Any],
    optim_state_dict: Mapping[str, Any], options: StateDictOptions | None = None,
) -> _IncompatibleKeys:  # fmt: skip
    """Load the state of a model and of its optimizers."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


def _checked(options: StateDictOptions | None) -> StateDictOptions:
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


def _plain(model: Module, name: str) -> str:
    """Return a name without the parts that wrappers around modules put into it."""
    parts, module = [], model
    for part in name.split("."):
        is_wrapper = isinstance(module, OptimizedModule) and part == "_orig_mod"
        is_wrapper = is_wrapper or (isinstance(module, DistributedDataParallel) and part == "module")
        if not is_wrapper:
            parts.append(part)
        module = module._modules.get(part) if isinstance(module, Module) else None  # type: ignore[assignment]
    return ".".join(parts)


def _parameters(model: Module) -> Iterator[tuple[str, Tensor]]:
    return ((_plain(model, name), parameter) for name, parameter in model.named_parameters())


def _names(model: Module, optimizer: Optimizer) -> list[list[str]]:
    """Return the names of an optimizer's parameters in a model, by group; ArgumentError if one is not the model's."""
    names = {id(parameter): name for name, parameter in _parameters(model)}
    for number, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group[_PARAMS]):
            if id(parameter) not in names:
                raise ArgumentError(
                    f"parameter {place} of group {number} of {type(optimizer).__name__}, of shape "
                    f"{tuple(parameter.shape)}, is none of the model's; give the model that has all that the optimizer "
                    "changes"
                )
    return [[names[id(parameter)] for parameter in group[_PARAMS]] for group in optimizer.param_groups]


def _below(
    state: Mapping[str, Any], model: Module, submodules: set[Module], keep_prefixes: bool
) -> Iterator[tuple[str, Any]]:
    prefixes = [f"{_plain(model, name)}." for name, module in model.named_modules() if module in submodules]
    for name, value in state.items():
        for prefix in prefixes:
            if name.startswith(prefix):
                yield name if keep_prefixes else name[len(prefix) :], value


def _of_whole(model: Module, state: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Return the entries of a state whose keys are names, or submodules with states of their own."""
    for key, value in state.items():
        if not isinstance(key, Module):
            yield key, value
            continue
        prefix = next((f"{_plain(model, name)}." for name, module in model.named_modules() if module is key), None)
        if prefix is None:
            raise ArgumentError(f"a state is given for a {type(key).__name__} that is none of the model's modules")
        yield from ((prefix.removeprefix(".") + name, entry) for name, entry in value.items())


def _placed(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    if not options.cpu_offload:
        return state
    moved: dict[str, Any] = tree_map_only(Tensor, lambda tensor: tensor.cpu(), state)
    return moved


def _listed(optimizers: Optimizer | Iterable[Optimizer]) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _begin(optimizer: Optimizer) -> None:
    """Make a step that changes no parameter where none was made, since optimizers make their state in the first one."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group[_PARAMS]]
    if optimizer.state or any(parameter.grad is not None for parameter in parameters):
        return
    for parameter in parameters:
        parameter.grad = _zeros_like(parameter) if parameter.requires_grad else None
    rates = [(group, group["lr"]) for group in optimizer.param_groups if "lr" in group]
    for group, rate in rates:
        group["lr"] = _zeros_like(rate) if isinstance(rate, Tensor) else 0.0
    optimizer.step()
    for group, rate in rates:
        group["lr"] = rate
    optimizer.zero_grad()


def _flat(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state in one dictionary, with keys such as ``state.weight.exp_avg`` and ``param_groups.weight.lr``."""
    flat = {f"{_STATE}.{name}.{key}": v for name, entries in state[_STATE].items() for key, v in entries.items()}
    for group in state[_GROUPS]:
        settings = {key: value for key, value in group.items() if key != _PARAMS}
        flat.update((f"{_GROUPS}.{name}.{key}", v) for name in group[_PARAMS] for key, v in settings.items())
    return flat


def _nested(flat: Mapping[str, Any], own: list[list[str]]) -> dict[str, Any]:
    """Return a flat state as it was, for groups of parameters."""
    names = [name for group in own for name in group]
    settings = [_entries(flat, f"{_GROUPS}.{group[0]}.") if group else {} for group in own]
    groups = [{**entries, _PARAMS: group} for entries, group in zip(settings, own, strict=True)]
    return {_STATE: {name: _entries(flat, f"{_STATE}.{name}.") for name in names}, _GROUPS: groups} if flat else {}


def _entries(flat: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {key[len(prefix) :]: value for key, value in flat.items() if key.startswith(prefix)}


def _numbered(state: Mapping[str, Any], own: list[list[str]], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a state with the numbers of an optimizer's parameters in place of their names."""
    names = [name for group in own for name in group]
    for index, group_names in enumerate(own):
        loaded = [group for group in state[_GROUPS] if {*group[_PARAMS]} & {*group_names}]
        groups[index] = {**groups[index], **(loaded[0] if loaded else {}), _PARAMS: groups[index][_PARAMS]}
    entries = {number: state[_STATE][name] for number, name in enumerate(names) if state[_STATE].get(name)}
    return {_STATE: entries, _GROUPS: groups}
