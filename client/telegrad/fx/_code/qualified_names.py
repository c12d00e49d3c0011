"""Where users find functions and types: the names that printed graphs and generated code have for them."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from telegrad._tensor.tensor import Tensor

from .names import package_name
from .python_functions import IN_PYTHON

_DEFINED_IN: Final = {
    "_C._nn": "avg_pool2d avg_pool3d gelu linear log_sigmoid one_hot scaled_dot_product_attention softplus softshrink",
    "functional": (
        "atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist chain_matmul einsum lu "
        "meshgrid norm split stft tensordot unique unique_consecutive unravel_index"
    ),
    "_lobpcg": "lobpcg",
    "_lowrank": "pca_lowrank svd_lowrank",
}
_CORE: Final = {name: home for home, names in _DEFINED_IN.items() for name in names.split()}
"""Modules in which PyTorch defines functions that users find in ``torch`` or ``torch.nn.functional``."""
_PREFIXED: Final = ("linalg", "fft", "special")
"""Modules whose functions have the module in their own names in PyTorch."""
_TOP_LEVEL: Final = "telegrad._programs.private.top_level"
"""What has names that ``torch`` has beside telegrad's."""
_OWN_NAMES: Final = {"logsigmoid": "log_sigmoid"}


def function_name(func: Any) -> str:
    """Return the name that PyTorch's function of this kind has for itself, such as ``fft_fft``."""
    name: str = func.__name__
    home = home_of(func)
    if home in _PREFIXED and package_name() == "torch":
        return f"{home}_{name}"
    return _OWN_NAMES.get(name, name) if home == "nn.functional" else name


def is_own(obj: Any) -> bool:
    """Whether users find an object in telegrad, so that generated code can name it there."""
    return home_of(obj) is not None


def home_of(obj: Any) -> str | None:
    """Return the module, below the package, in which users find an object; None if it is no object of telegrad's."""
    package, _, path = (getattr(obj, "__module__", None) or "").partition(".")
    if package not in ("telegrad", "torch"):
        return None
    if path.startswith(("_ops.", "ops.")):
        return path.removeprefix("_")
    name = getattr(obj, "__qualname__", "")
    if name.startswith("Tensor."):
        return "Tensor"
    is_shown_as_torch = package_name() == "torch"
    places = ["nn.functional", path, ""] if name in IN_PYTHON else [path, "", "nn.functional"]
    if path.startswith("_"):  # PyTorch has private modules of other names
        places = ["", "nn.functional"] if is_shown_as_torch else ["", "nn.functional", path]
    for home in places:
        modules = [f"telegrad.{home}".rstrip("."), *([_TOP_LEVEL] if is_shown_as_torch and not home else [])]
        if name and any(getattr(sys.modules.get(module), name, None) is obj for module in modules):
            return home
    return None


def qualified_name(func: Callable[..., Any]) -> str:
    """Return the name of a function with that of its module. Raises RuntimeError for a lambda without a name."""
    name: str = func.__name__
    if getattr(builtins, name, None) is func:
        return name
    home = home_of(func)
    if home is not None:
        return _own_name(home, function_name(func))
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)) and func is getattr(
        Tensor, name, None
    ):
        return f"{package_name()}.Tensor.{name}"
    if name == "<lambda>":
        try:
            name = inspect.getsource(func).split("=")[0].strip()
        except (OSError, TypeError) as error:
            raise RuntimeError("Unable to represent lambda") from error
    if func.__module__ is None:
        raise RuntimeError(f"cannot find module for {func}")
    return f"{func.__module__}.{name}"


def _own_name(home: str, name: str) -> str:
    package = package_name()
    if package == "torch":
        if home in _PREFIXED:
            return f"torch._C._{home}.{name}"
        if home in ("", "nn.functional"):
            home = _CORE.get(name, home)
    return ".".join([package, home, name]) if home else f"{package}.{name}"


def type_name(obj: Any) -> str:
    """Return the name of a type with that of its module, or what an annotation looks like."""
    if isinstance(obj, type) and "[" not in repr(obj):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        return f"{obj.__module__}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    return obj.__name__ if isinstance(obj, types.FunctionType) else repr(obj)


def target_name(target: Any) -> str:
    """Return the target of a node as it is printed: ``builtins`` and ``operator`` are named too."""
    if isinstance(target, str):
        return target
    name = getattr(target, "__name__", None)
    module = getattr(target, "__module__", None)
    if name is not None and module in ("builtins", "_operator"):
        return f"{module.lstrip('_')}.{name}"
    return qualified_name(target)
