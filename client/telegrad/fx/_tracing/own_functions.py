"""Functions of telegrad's own that are written in Python: while proxies are about, they ask these first.

Those made from contracts ask their operands in any case. The others do not, so that calls of them cost nothing for it;
they get other code meanwhile, which all programs that hold them run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any, Final

from telegrad._ops.operand_classes import HANDLERS, OVERRIDING, overrides
from telegrad._programs.private import checks
from telegrad.nn import functional

from .._code.call_forms import originals
from .._mapping import leaves

_NOT_ASKING: Final = (
    "as_tensor as_torch asarray broadcast_shapes can_cast check_probability compile cond finfo from_dlpack from_file "
    "from_numpy frombuffer function handle_torch_function has_torch_function has_torch_function_unary "
    "has_torch_function_variadic iinfo is_number is_tensor lazy load manual_seed names_in printoptions promote_types "
    "publish save set_printoptions sigmoid tanh tensor typename upsample upsample_bilinear upsample_nearest vmap "
    "while_loop"
)
"""Functions that PyTorch does not let operands answer, or that are traced through there."""
_names_not_asking: Final = frozenset(_NOT_ASKING.split())
_OF_CONTRACTS: Final = ("_ops/functions.py", "_ops\\functions.py")
"""Where the code of functions is that were made from contracts."""
_proxies: Final[set[type]] = set()
_replaced: Final[list[tuple[FunctionType, CodeType]]] = []
_users: Final[set[int]] = set()


def answer_functions(kind: type) -> None:
    """Let instances of a class, one of proxies, be asked for what functions give."""
    _proxies.add(kind)
    if overrides.class_handler is not None:
        HANDLERS[kind] = overrides.class_handler
        OVERRIDING.add(kind)


def ask_for(user: int) -> None:
    """Let telegrad's functions in Python ask proxies until ``stop_asking_for`` was called with the same number."""
    _users.add(user)
    if not _replaced:
        for func in _functions():
            _replaced.append((func, func.__code__))
            func.__code__ = _asking(func)


def stop_asking_for(user: int) -> None:
    """Give the functions their own code again, unless there are others who need them to ask."""
    _users.discard(user)
    while _replaced and not _users:
        func, code = _replaced.pop()
        func.__code__ = code


def _functions() -> Iterator[FunctionType]:
    """Give the functions that do not ask their operands."""
    yield checks._assert  # type: ignore[misc]  # it is a function
    seen: set[int] = set()
    for module in (import_module("telegrad"), functional):
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and name[0] != "_" and name not in _names_not_asking:
                if id(value) not in seen and not value.__code__.co_filename.endswith(_OF_CONTRACTS):
                    yield value
                seen.add(id(value))


def _asking(func: FunctionType) -> CodeType:
    """Return code for a function that asks proxies among its arguments, and else runs what it runs now."""
    original = FunctionType(func.__code__, func.__globals__, func.__name__, func.__defaults__, func.__closure__)
    original.__kwdefaults__ = func.__kwdefaults__
    originals[func] = original

    def run(*args: Any, **kwargs: Any) -> Any:
        kind: Any = next((type(leaf) for leaf in leaves((args, kwargs)) if type(leaf) in _proxies), None)
        return original(*args, **kwargs) if kind is None else kind.__torch_function__(func, (kind,), args, kwargs)

    code = _code_with_cells(len(func.__code__.co_freevars))
    return code.replace(co_consts=tuple([run if value == _STAND_IN else value for value in code.co_consts]))


_STAND_IN: Final = "what the code calls"


@cache
def _code_with_cells(cells: int) -> CodeType:
    """Return code that calls a constant with all arguments; a function that runs it has this many free variables."""
    names = [f"cell_{place}" for place in range(cells)]
    outer = "".join([f"    {name} = None\n" for name in names])
    inner = "".join([f"        {name}\n" for name in names])
    text = (
        f"def outer():\n{outer}    def inner(*args, **kwargs):\n        run = {_STAND_IN!r}\n"
        f"        return run(*args, **kwargs)\n{inner}    return inner\n"
    )
    made: dict[str, Any] = {}
    exec(compile(text, __file__, "exec", dont_inherit=True), made)  # noqa: S102 - the text is this module's own
    code: CodeType = made["outer"]().__code__
    return code
