"""Parametrizations: a parameter of a module becomes the result of a module, computed at every access.

The module gets a class of its own with a property for each parametrized name; what the parameter was is
``module.parametrizations.<name>.original``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

from telegrad._session.grad_mode import no_grad
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.container import ModuleDict, ModuleList
from telegrad.nn.modules.module import Module
from telegrad.nn.parameter import Parameter
from telegrad_protocol.meta import Meta

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

_cached = 0
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once within the ``with`` block."""
    global _cached
    _cached += 1
    try:
        yield
    finally:
        _cached -= 1
        if not _cached:
            _cache.clear()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied one after the other, and what they are applied to.

    That is ``original``, or ``original0``, ``original1``, ... where the first parametrization takes several tensors.
    """

    original: Tensor

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            new: Any = _inverted(self, original.detach(), must_invert=False)
        is_known: bool = isinstance(new, (Tensor, Sequence))
        if not is_known:
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        before = original._meta
        if self.is_tensor:
            _require_alike(original, new)
            original.data = new
            _register(self, "original", original)
        else:
            self._register_parts(new, original)
        if not unsafe:
            _check(self(), before)

    def _register_parts(self, parts: Sequence[Any], original: Tensor) -> None:
        """Keep the tensors that the first parametrization takes; those of a parameter are parameters."""
        for number, part in enumerate(parts):
            if not isinstance(part, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                    f"{number} of the sequence with type {type(part).__name__}."
                )
            kept = Parameter(part, original.requires_grad) if isinstance(original, Parameter) else part
            _register(self, f"original{number}", kept.requires_grad_(original.requires_grad))

    def right_inverse(self, value: Tensor) -> None:
        """Make the originals what gives ``value``."""
        with no_grad():
            new: Any = _inverted(self, value.detach(), must_invert=True)
            if self.is_tensor:
                _require_type(new, "`right_inverse` should return a tensor", "The tensor", "original", self.original)
                self.original.data = new
                return
            if not isinstance(new, Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(new).__name__}.")
            if len(new) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of "
                    f"length {len(new)}."
                )
            for number, part in enumerate(new):
                kept = getattr(self, f"original{number}")
                words = f"'right_inverse' must return a sequence of tensors, of which element {number} is none"
                _require_type(part, words, f"Tensor {number}", f"original{number}", kept)
                kept.data = part

    def forward(self) -> Tensor:
        first, *others = self._modules.values()
        if self.is_tensor:
            value = first(self.original)
        else:
            value = first(*(getattr(self, f"original{number}") for number in range(self.ntensors)))
        for module in others:
            value = module(value)
        return value  # type: ignore[no-any-return]


def _inverted(modules: ParametrizationList, value: Any, must_invert: bool) -> Any:
    """Apply the right inverses, the last module's first."""
    for module in reversed(list(modules._modules.values())):
        if hasattr(module, "right_inverse"):
            try:
                value = module.right_inverse(value)
            except NotImplementedError:
                if must_invert:
                    raise
        elif must_invert:
            raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
    return value


def _require_alike(original: Tensor, new: Tensor) -> None:
    """Refuse a right inverse that is of another type, or elsewhere."""
    for what in ("dtype", "device"):
        if getattr(original, what) != getattr(new, what):
            raise ValueError(
                f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                f"original.{what}: {getattr(original, what)}\n"
                f"right_inverse(original).{what}: {getattr(new, what)}"
            )


def _require_type(value: Any, words: str, what: str, name: str, original: Tensor) -> None:
    """Refuse what is no tensor, and a tensor of another type than what it is assigned to."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{words}. Got {type(value).__name__}")
    if value.dtype is not original.dtype:
        raise ValueError(
            f"{what} returned by `right_inverse` has dtype {value.dtype} while `{name}` has dtype {original.dtype}"
        )


def _check(value: Any, original: Meta) -> None:
    """Refuse the value of a parametrization that has another shape or type than what it stands for."""
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    for what, before, now in (
        ("dtype", original.dtype, value.dtype),
        ("shape", Size(original.shape), value.shape),
    ):
        if before != now:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag is "
                f"enabled.\nunparametrized {what}: {before}\nparametrized {what}: {now}"
            )


def _check_addition(parametrization: Any, current: Tensor, name: str) -> None:
    """Refuse a further parametrization that, or whose right inverse, changes shape or type."""
    value = parametrization(current)
    _check(value, current._meta)
    if not hasattr(parametrization, "right_inverse"):
        return
    with suppress(NotImplementedError):
        back = parametrization.right_inverse(value)
        if not isinstance(back, Tensor):
            raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
        for what in ("dtype", "shape"):
            if getattr(back, what) != getattr(current, what):
                raise ValueError(
                    f"The tensor returned by parametrization.right_inverse must have the same {what} as module.{name}, "
                    f"unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: {getattr(current, what)}\n"
                    f"returned {what}: {getattr(back, what)}"
                )


def _refuse_pickling(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _copied(self: Any, memo: dict[int, Any]) -> Any:
    """Copy all that a module has, since what would be pickled is refused."""
    copy = memo[id(self)] = self.__new__(self.__class__)
    copy.__dict__.update(deepcopy(self.__dict__, memo))
    return copy


def _give_class(module: Module) -> None:
    """Give the module a class of its own, which is copied and not pickled: no module has it by its name."""
    base = type(module)
    names: dict[str, Any] = {"__module__": base.__module__, "__getstate__": _refuse_pickling}
    if not hasattr(base, "__deepcopy__"):
        names["__deepcopy__"] = _copied
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), names)


def _give_property(module: Module, name: str) -> None:
    def read(self: Any) -> Any:
        lists = self.parametrizations[name]
        if not _cached:
            return lists()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = lists()
        return _cache[key]

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let ``parametrization`` of what ``module.<tensor_name>`` is now, or of its ``right_inverse``, take its place.

    Several are applied one after the other. Unless ``unsafe``, they may change neither shape nor type.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        lists = module.parametrizations[tensor_name]
        if not unsafe:
            _check_addition(parametrization, getattr(module, tensor_name), tensor_name)
        lists.append(parametrization)
        lists.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        lists = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_class(module)
            module.parametrizations = ModuleDict()
        _give_property(module, tensor_name)
        module.parametrizations[tensor_name] = lists
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Tell whether a module has parametrizations, or one of this name."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parametrized tensor a parameter or buffer again: what it is now, or the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    lists = module.parametrizations[tensor_name]
    if not lists.is_tensor and not leave_parametrized:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    current = getattr(module, tensor_name)
    if lists.is_tensor:
        original = lists.original
        if leave_parametrized:
            original.data = current.detach()
    else:
        original = Parameter(current.detach()) if current.requires_grad else current
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Return the class that a module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrize ``to_module`` as ``from_module`` is, with the same tensors."""
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        given = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            _register(to_module, name, getattr(from_module, name).detach())
        for parametrization in given:
            register_parametrization(to_module, name, parametrization, unsafe=True)
        own = to_module.parametrizations[name]
        for key in ["original"] if given.is_tensor else [f"original{number}" for number in range(given.ntensors)]:
            setattr(own, key, getattr(given, key))
    return to_module
