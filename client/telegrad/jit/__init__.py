"""TorchScript's names. ``script``, ``trace`` and their like leave functions and modules as they are, which run eagerly.

What needs a recorded program (``save``, ``load``) refuses and says what to use instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from telegrad._session.own_code import note_once
from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import NotSupportedError

__all__ = [
    "Attribute", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "annotate",
    "export", "fork", "freeze", "fuser", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load",
    "optimize_for_inference", "optimized_execution", "save", "script", "script_method", "set_fusion_strategy", "trace",
    "trace_module", "unused", "wait",
]  # fmt: skip
_isinstance = isinstance


class Error(RuntimeError):
    """TorchScript's error, which is never raised here."""


class TracerWarning(Warning):
    """The warning of a tracer, which is never given here."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Do nothing."""


class ScriptModule(Module):
    """A module as any other; programs derive from it."""


RecursiveScriptModule = ScriptModule


class ScriptFunction:
    """The type of compiled functions, of which there are none."""


def script(obj: Any, optimize: None = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """Return a function, class or module as it is; a warning says so once."""
    note_once("jit.script: nothing is compiled, the function or module runs eagerly")
    return obj


def script_method(fn: Any) -> Any:
    """Return the method as it is."""
    return fn


export = unused = interface = script_method
_overload = _overload_method = _script_if_tracing = script_if_tracing = script_method


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Return the function as it is, as a decorator with or without arguments."""
    return drop if callable(drop) else script_method


def is_scripting() -> bool:
    """Whether the code that asks is compiled: it never is."""
    return False


is_tracing = is_scripting


def annotate(the_type: Any, the_value: Any) -> Any:
    """Return the value."""
    return the_value


def Attribute(value: Any, type: Any) -> Any:
    """Return the value: a module keeps it as an attribute."""
    return value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type, or of one in a tuple of them; of generic types the container alone counts."""
    types = target_type if _isinstance(target_type, (tuple, list)) else (target_type,)
    return _isinstance(obj, tuple([getattr(kind, "__origin__", kind) for kind in types]))


def freeze(mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True) -> Any:
    """Return the module as it is."""
    return mod


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """Return the module as it is."""
    return mod


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Do nothing; return the strategy."""
    return strategy


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Do nothing."""
    yield


@contextmanager
def fuser(name: str) -> Iterator[None]:
    """Do nothing."""
    yield


class Future:
    """What ``fork`` returns: a result that is there already."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def wait(self) -> Any:
        """Return the result."""
        return self._value

    value = wait


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Call the function now, and return its result in a ``Future``: operations only queue work."""
    return Future(func(*args, **kwargs))


def wait(future: Future) -> Any:
    """Return the result."""
    return future.wait()


def _refuse(name: str, instead: str) -> NoReturn:
    raise NotSupportedError(f"jit.{name}: telegrad records no programs of TorchScript; {instead}")


def trace(
    func: Any, example_inputs: Any = None, optimize: None = None, check_trace: bool = True, check_inputs: Any = None,
    check_tolerance: float = 1e-05, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
    _compilation_unit: Any = None, example_kwarg_inputs: dict[str, Any] | None = None, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """Call a function or module with its examples, and return it as it is; a warning says so once."""
    note_once("jit.trace: nothing is recorded, the function or module runs eagerly")
    if example_kwarg_inputs is not None:
        func(**example_kwarg_inputs)
    else:
        _call_with(func, example_inputs)
    return func


def trace_module(
    mod: Any, inputs: dict[str, Any], optimize: None = None, check_trace: bool = True, check_inputs: Any = None,
    check_tolerance: float = 1e-05, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
    _compilation_unit: Any = None, example_inputs_is_kwarg: bool = False, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """Call methods of a module with their examples, and return the module as it is; a warning says so once."""
    note_once("jit.trace_module: nothing is recorded, the module runs eagerly")
    for name, examples in inputs.items():
        called = mod if name == "forward" else getattr(mod, name)
        if example_inputs_is_kwarg:
            called(**examples)
        else:
            _call_with(called, examples)
    return mod


def _call_with(called: Callable[..., Any], examples: Any) -> None:
    """Call with a tuple or list of arguments, or with a single argument."""
    called(*examples) if _isinstance(examples, (tuple, list)) else called(examples)


def _get_trace_graph(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse: torch.utils.flop_counter.FlopCounterMode counts operations as they run."""
    _refuse("_get_trace_graph", "torch.utils.flop_counter.FlopCounterMode counts the operations of a module as it runs")


def save(m: Any, f: Any, _extra_files: Any = None) -> NoReturn:
    """Refuse: save a ``state_dict``."""
    _refuse("save", "torch.save(module.state_dict(), file) keeps its state")


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> NoReturn:
    """Refuse: a file of TorchScript holds a program."""
    _refuse("load", "make the module from its source, and load a state_dict that PyTorch has saved")
