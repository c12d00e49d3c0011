"""State dictionaries: the parameters and buffers of a module and of all below it, by path, saved and loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, StateDictError

from .parameter import Parameter

_EXTRA = "_extra_state"


class LoadResult(NamedTuple):
    """The keys that a loaded dictionary lacks, and those that it has and the module lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class StateDictMixin:
    """The part of ``Module`` that gives and takes state dictionaries."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _transient: set[str]

    def named_modules(self, *, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        """Yield this module and all below it with their paths; ``Module`` does it."""
        raise NotImplementedError

    def state_dict(
        self, *, destination: OrderedDict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> OrderedDict[str, Any]:
        """Return parameters and persistent buffers by path, detached unless ``keep_vars``."""
        state = OrderedDict() if destination is None else destination
        for name, tensor in _own(self).items():
            if tensor is not None:
                state[prefix + name] = tensor if keep_vars else tensor.detach()
        if _has_extra(self):
            state[prefix + _EXTRA] = self.get_extra_state()
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> LoadResult:
        """Copy the tensors of ``state_dict``, or take them over with ``assign``; with ``strict``, keys must match."""
        return _load_all(self, state_dict, strict, assign)

    def get_extra_state(self) -> Any:
        """Return further state to be saved; a subclass that has such state overrides this."""
        raise NotImplementedError("get_extra_state: this module has none")

    def set_extra_state(self, state: Any) -> None:
        """Take back what ``get_extra_state`` returned."""
        raise NotImplementedError("set_extra_state: this module has none")


def _own(module: StateDictMixin) -> dict[str, Tensor | None]:
    buffers = {name: b for name, b in module._buffers.items() if name not in module._transient}
    return {**module._parameters, **buffers}


def _has_extra(module: StateDictMixin) -> bool:
    return type(module).get_extra_state is not StateDictMixin.get_extra_state


def _load_all(module: StateDictMixin, state: Mapping[str, Any], strict: bool, assign: bool) -> LoadResult:
    """Give a module and all below it the tensors of ``state``; one error tells of all that is wrong."""
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(f"expected state_dict to be dict-like, got {type(state).__name__}")
    missing: list[str] = []
    wrong: list[str] = []
    known: set[str] = set()
    with no_grad():
        for path, part in module.named_modules(remove_duplicate=False):
            _load(part, f"{path}." if path else "", state, assign, missing, known, wrong)
    unexpected = [key for key in state if key not in known]
    problems = _key_errors(missing, unexpected) + wrong if strict else wrong
    if problems:
        listed = "\n\t".join(problems)
        raise StateDictError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{listed}")
    return LoadResult(missing, unexpected)


def _key_errors(missing: list[str], unexpected: list[str]) -> list[str]:
    messages: list[str] = []
    for what, keys in (("Unexpected", unexpected), ("Missing", missing)):
        if keys:
            listed = ", ".join(f'"{key}"' for key in keys)
            messages.insert(0, f"{what} key(s) in state_dict: {listed}. ")
    return messages


def _load(
    module: StateDictMixin,
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


def _assign(module: StateDictMixin, name: str, current: Tensor, given: Tensor) -> None:
    if not isinstance(current, Parameter):
        module._buffers[name] = given
        return
    module._parameters[name] = given if isinstance(given, Parameter) else Parameter(given, current.requires_grad)
