"""State dictionaries: what a module is made of, by path, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from telegrad._session.modes import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, StateDictError

from .parameter import Parameter

if TYPE_CHECKING:
    from .module import Module

_EXTRA = "_extra_state"


class LoadResult(NamedTuple):
    """Keys that a module has and the dictionary lacks, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def save_from(
    module: Module, found: OrderedDict[str, Any] | None, prefix: str, keep_vars: bool
) -> OrderedDict[str, Any]:
    """Add a module's tensors to ``found``, those of its submodules after its own."""
    found = OrderedDict() if found is None else found
    for name, tensor in _own(module).items():
        if tensor is not None:
            found[prefix + name] = tensor if keep_vars else tensor.detach()
    if _has_extra(module):
        found[prefix + _EXTRA] = module.get_extra_state()
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    return found


def _own(module: Module) -> dict[str, Tensor | None]:
    buffers = {name: b for name, b in module._buffers.items() if name not in module._transient}
    return {**module._parameters, **buffers}


def _has_extra(module: Module) -> bool:
    from .module import Module as Base

    return type(module).get_extra_state is not Base.get_extra_state


def load_into(module: Module, state: Mapping[str, Any], strict: bool, assign: bool) -> LoadResult:
    """Give a module and all below it the tensors of ``state``; every problem is told in one error."""
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(f"expected state_dict to be dict-like, got {type(state).__name__}")
    missing: list[str] = []
    wrong: list[str] = []
    known: set[str] = set()
    with no_grad():
        for path, part in module.named_modules(remove_duplicate=False):
            _load(part, f"{path}." if path else "", state, assign, missing, known, wrong)
    unexpected = [key for key in state if key not in known]
    problems = _strictly(missing, unexpected) + wrong if strict else wrong
    if problems:
        listed = "\n\t".join(problems)
        raise StateDictError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{listed}")
    return LoadResult(missing, unexpected)


def _strictly(missing: list[str], unexpected: list[str]) -> list[str]:
    found: list[str] = []
    for what, keys in (("Unexpected", unexpected), ("Missing", missing)):
        if keys:
            listed = ", ".join(f'"{key}"' for key in keys)
            found.insert(0, f"{what} key(s) in state_dict: {listed}. ")
    return found


def _load(
    module: Module,
    prefix: str,
    state: Mapping[str, Any],
    assign: bool,
    missing: list[str],
    known: set[str],
    wrong: list[str],
) -> None:
    for name, current in _own(module).items():
        key = prefix + name
        if current is None:
            continue
        known.add(key)
        if key not in state:
            missing.append(key)
            continue
        problem = _mismatch(key, current, state[key])
        if problem:
            wrong.append(problem)
        elif assign:
            _assign(module, name, current, state[key])
        else:
            current.copy_(state[key])
    if _has_extra(module):
        known.add(prefix + _EXTRA)
        if prefix + _EXTRA in state:
            module.set_extra_state(state[prefix + _EXTRA])
        else:
            missing.append(prefix + _EXTRA)


def _mismatch(key: str, current: Tensor, given: Any) -> str:
    if not isinstance(given, Tensor):
        return (
            f'While copying the parameter named "{key}", expected telegrad.Tensor from checkpoint '
            f"but received {type(given)}"
        )
    if given.shape != current.shape:
        return (
            f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
            f"the shape in current model is {current.shape}."
        )
    return ""


def _assign(module: Module, name: str, current: Tensor, given: Tensor) -> None:
    if not isinstance(current, Parameter):
        module._buffers[name] = given
        return
    module._parameters[name] = given if isinstance(given, Parameter) else Parameter(given, current.requires_grad)
