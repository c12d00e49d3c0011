"""Functions of telegrad's own that are written in Python: classes and modes that answer functions are asked first.

Those made from contracts ask their operands in any case. The others do not, so that calls of them cost nothing for it;
they get other code as soon as a program has a class or a mode that answers, and all that hold them run that code.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any, Final

from telegrad._session import grad_mode
from telegrad._tensor.tensor import Tensor

from .operand_classes import modes_entered, overrides

_NOT_ASKING: Final = (
    "are_deterministic_algorithms_enabled as_torch autocast_decrement_nesting autocast_increment_nesting "
    "broadcast_shapes can_cast check_probability clear_autocast_cache compile cond connect disconnect finfo "
    "from_dlpack from_file from_numpy frombuffer function get_autocast_dtype get_default_device get_default_dtype "
    "get_deterministic_debug_mode get_float32_matmul_precision get_num_interop_threads get_num_threads "
    "get_rng_state handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic "
    "iinfo initial_seed is_autocast_cache_enabled is_autocast_enabled is_deterministic_algorithms_warn_only_enabled "
    "is_grad_enabled is_inference_mode_enabled is_number is_tensor lazy load manual_seed names_in printoptions "
    "promote_types publish save seed set_autocast_cache_enabled set_autocast_dtype set_autocast_enabled "
    "set_default_device set_default_dtype set_default_tensor_type set_deterministic_debug_mode "
    "set_float32_matmul_precision set_flush_denormal set_num_interop_threads set_num_threads set_printoptions "
    "set_rng_state sigmoid tanh typename upsample upsample_bilinear upsample_nearest use_deterministic_algorithms "
    "vmap while_loop wire_stats"
)
"""Functions that nobody is asked about: they tell of the program, or PyTorch runs them and asks for what they call."""
_ASKING_MODES: Final = "as_tensor asarray empty_permuted range tensor tril_indices triu_indices"
"""Functions that make tensors of what the program gives: modes are asked, and what they are given is not."""
_METHODS: Final = (
    "__array__ __bool__ __complex__ __contains__ __deepcopy__ __dlpack__ __dlpack_device__ __float__ __format__ "
    "__index__ __int__ __invert__ __len__ __reduce_ex__ __repr__ __reversed__ _dimI _dimV _indices _is_view _nnz "
    "_values adjoint allclose apply_ backward bfloat16 bool byte ccol_indices cdouble cfloat chalf char clone "
    "coalesce col_indices const_data_ptr contiguous corrcoef cov cpu crow_indices cuda data_ptr dense_dim detach_ "
    "diagflat dim double dsplit element_size equal fill_diagonal_ float float_power float_power_ get_device half "
    "histc histogram hsplit index_reduce index_reduce_ indices int is_coalesced is_complex is_conj is_contiguous "
    "is_floating_point is_inference is_neg is_nonzero is_pinned is_same_size is_set_to is_shared is_signed isreal "
    "item ldexp ldexp_ long lu map_ module_load new new_tensor nonzero nonzero_static numel numpy pin_memory "
    "polygamma polygamma_ register_hook register_post_accumulate_grad_hook renorm renorm_ requires_grad_ resize_ "
    "resize_as_ resolve_conj resolve_neg retain_grad row_indices share_memory_ short size sparse_dim sparse_mask "
    "squeeze_ storage storage_offset stride sum_to_size swapaxes_ swapdims_ t_ to to_dense to_padded_tensor "
    "to_sparse to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr tolist transpose_ type type_as unique "
    "unique_consecutive unsqueeze_ untyped_storage values vsplit where"
)
"""Methods of tensors that are written in Python, and that PyTorch asks classes and modes for."""
_PRIVATE: Final = frozenset(("_version",))
"""Attributes that programs know although their names begin so."""
_ACCESSORS: Final = ("__get__", "__set__", "__delete__")
"""What a property's functions are asked for, in the order in which it has them."""
_OF_ITS_TENSOR: Final = frozenset(("__deepcopy__",))
"""Methods that only their tensor is asked about: what else they are given may contain itself."""
_OF_PROGRAMS: Final = frozenset(("grad",))
"""Functions that a program's classes are asked about, and telegrad's own classes of tensors are not: they run them."""
_OF_CONTRACTS: Final = ("_ops/functions.py", "_ops\\functions.py")
"""Where the code of functions is that were made from contracts."""
originals: Final[dict[Any, Any]] = {}
"""Functions with the code that they have when nobody is asked, by those that have other code meanwhile."""
_plain: Final[set[type]] = set()
"""Classes of arguments that answer nothing and hold nothing that does: a quick test for most calls."""
_read: Final[set[type]] = set()
"""Classes whose tensors answer for no attribute, likewise."""
_MAX_PLAIN: Final = 256
_replaced: Final[list[tuple[FunctionType, CodeType]]] = []
_users: Final[set[int]] = set()
_asking_code: Final[dict[FunctionType, CodeType]] = {}


def ask_for(user: int) -> None:
    """Let telegrad's functions in Python ask until ``stop_asking_for`` was called with the same number."""
    _users.add(user)
    if not _replaced:
        for func in _functions():
            _replaced.append((func, func.__code__))
            if func not in _asking_code:
                _asking_code[func] = _asking(func)
            func.__code__ = _asking_code[func]
        for func, accessor in _accessors():
            _replaced.append((func, func.__code__))
            if func not in _asking_code:
                _asking_code[func] = _asking_accessor(func, accessor)
            func.__code__ = _asking_code[func]


def stop_asking_for(user: int) -> None:
    """Give the functions their own code again, unless there are others who need them to ask."""
    _users.discard(user)
    while _replaced and not _users:
        func, code = _replaced.pop()
        func.__code__ = code


def _functions() -> Iterator[FunctionType]:
    """Give the functions and methods that do not ask by themselves."""
    package = __package__.partition(".")[0]
    checks = import_module(f"{package}._programs.private.checks")
    functional = import_module(f"{package}.nn.functional")
    seen: set[int] = {id(checks._assert)}
    not_asking = frozenset(_NOT_ASKING.split())
    yield checks._assert
    recording: Any = grad_mode._set_grad_enabled
    yield recording
    yield import_module(f"{package}.autograd").grad
    for module in (import_module(package), functional):
        for name, value in list(vars(module).items()):
            if _is_own(value, package) and name[0] != "_" and name not in not_asking:
                if id(value) not in seen and not value.__code__.co_filename.endswith(_OF_CONTRACTS):
                    yield value
                seen.add(id(value))
    for name in _METHODS.split():
        method = vars(Tensor).get(name)
        if isinstance(method, FunctionType) and not method.__code__.co_filename.endswith(_OF_CONTRACTS):
            yield method


def _is_own(value: Any, package: str) -> bool:
    """Whether a value is a function of this package, and no method or function that a program has put there."""
    if not isinstance(value, FunctionType) or value.__qualname__.startswith("Tensor."):
        return False
    return str(value.__globals__.get("__name__")).partition(".")[0] == package


def _accessors() -> Iterator[tuple[FunctionType, Any]]:
    """Give the functions of the attributes of tensors, each with what is called for it from outside."""
    seen: set[Any] = set()
    for name, attribute in list(vars(Tensor).items()):
        if not isinstance(attribute, property) or (name[0] == "_" and name not in _PRIVATE) or attribute in seen:
            continue
        seen.add(attribute)
        for accessor, func in zip(_ACCESSORS, (attribute.fget, attribute.fset, attribute.fdel)):
            if isinstance(func, FunctionType):
                yield func, getattr(attribute, accessor)


def _asking_accessor(func: FunctionType, accessor: Any) -> CodeType:
    """Return code for an attribute's function that asks a tensor whose class answers, or a mode, for ``accessor``."""
    original = _original(func)
    dispatch = import_module(".overriding", __package__).dispatch
    answers = _answers_attributes

    def run(self: Any, *given: Any) -> Any:
        kind = self.__class__
        is_asked = not overrides.are_disabled and answers(kind)
        if is_asked or overrides.modes:
            return dispatch(accessor, (self,) if is_asked else (), (self, *given), {})
        if len(_read) < _MAX_PLAIN and not answers(kind):
            _read.add(kind)
        return original(self, *given)

    def read(self: Any) -> Any:
        return original(self) if self.__class__ in _read and not modes_entered else run(self)

    is_read = func.__code__.co_argcount == 1
    return _code_calling(read if is_read else run, func, "self" if is_read else "*args, **kwargs")


@cache
def _answers_attributes(kind: type) -> bool:
    """Whether a program's class has its own ``__torch_function__``; what it inherits leaves attributes as they are."""
    overriding = import_module(".overriding", __package__)
    is_own = kind.__module__.partition(".")[0] == __package__.partition(".")[0]
    return not is_own and overriding.overrides_operations(kind) and not overriding.has_inherited_function(kind)


def _original(func: FunctionType) -> FunctionType:
    """Return a function that goes on to run what this one runs now."""
    original = FunctionType(func.__code__, func.__globals__, func.__name__, func.__defaults__, func.__closure__)
    original.__kwdefaults__ = func.__kwdefaults__
    originals[func] = original
    return original


def _code_calling(run: Any, func: FunctionType, parameters: str = "*args, **kwargs") -> CodeType:
    """Return code with which a function calls ``run`` with what it is given."""
    code = _code_with_cells(len(func.__code__.co_freevars), parameters)
    return code.replace(co_consts=tuple([run if value == _STAND_IN else value for value in code.co_consts]))


def _asking(func: FunctionType) -> CodeType:
    """Return code for a function that asks who answers it, and else runs what it runs now."""
    original = _original(func)
    if not hasattr(func, "__signature__"):
        func.__dict__["__signature__"] = inspect.signature(func)
    asks_modes_only = func.__name__ in _ASKING_MODES.split() and not func.__qualname__.startswith("Tensor.")
    overriding = import_module(".overriding", __package__)
    dispatch, in_order, is_asked = overriding.dispatch, overriding.overriding_of, overriding.overrides_operations
    counts = _is_of_program if func.__name__ in _OF_PROGRAMS else None
    has_only_plain = _plain.issuperset
    counted = 1 if func.__name__ in _OF_ITS_TENSOR else None

    def run(*args: Any, **kwargs: Any) -> Any:
        asked: list[Any] = []
        is_answered = not (asks_modes_only or overrides.are_disabled)
        if is_answered and not (has_only_plain(map(type, args)) and has_only_plain(map(type, kwargs.values()))):
            found = _asked((args[:counted], kwargs), is_asked)
            asked.extend(found if counts is None else filter(counts, found))
        if asked or overrides.modes:
            return dispatch(func, in_order(asked), args, kwargs)
        return original(*args, **kwargs)

    return _code_calling(run, func)


def _is_of_program(value: Any) -> bool:
    """Whether an argument's class is not telegrad's own."""
    return type(value).__module__.partition(".")[0] not in ("torch", __package__.partition(".")[0])


def _asked(values: Iterable[Any], is_asked: Any) -> Iterator[Any]:
    """Give the arguments, and the items of lists and the like among them, whose classes answer functions."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _asked(value, is_asked)
        elif isinstance(value, dict):
            yield from _asked(value.values(), is_asked)
        elif isinstance(value, slice):
            yield from _asked((value.start, value.stop, value.step), is_asked)
        elif is_asked(value.__class__):
            yield value
        elif len(_plain) < _MAX_PLAIN:
            _plain.add(value.__class__)


_STAND_IN: Final = "what the code calls"


@cache
def _code_with_cells(cells: int, parameters: str) -> CodeType:
    """Return code that calls a constant with its arguments; a function that runs it has this many free variables."""
    names = [f"cell_{place}" for place in range(cells)]
    outer = "".join([f"    {name} = None\n" for name in names])
    inner = "".join([f"        {name}\n" for name in names])
    text = (
        f"def outer():\n{outer}    def inner({parameters}):\n        run = {_STAND_IN!r}\n"
        f"        return run({parameters})\n{inner}    return inner\n"
    )
    made: dict[str, Any] = {}
    exec(compile(text, __file__, "exec", dont_inherit=True), made)  # noqa: S102 - the text is this module's own
    code: CodeType = made["outer"]().__code__
    return code
