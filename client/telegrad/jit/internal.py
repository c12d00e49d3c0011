"""``torch._jit_internal``: what libraries mark functions and types with for TorchScript; nothing is compiled here."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from . import _overload as _overload
from . import _overload_method as _overload_method
from . import export as export
from . import ignore as ignore
from . import is_scripting as is_scripting
from . import unused as unused
from .annotations import BroadcastingList1 as BroadcastingList1
from .annotations import BroadcastingList2 as BroadcastingList2
from .annotations import BroadcastingList3 as BroadcastingList3
from .annotations import Dict as Dict
from .annotations import List as List
from .annotations import Optional as Optional
from .annotations import Tuple as Tuple

_copy_to_script_wrapper = export


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Callable[..., Any], if_false: Callable[..., Any],
    module_name: str | None, func_name: str | None,
) -> Callable[..., Any]:  # fmt: skip
    """Return a function that calls ``if_true`` or ``if_false``, as one of its arguments is.

    The argument is passed on. It is the one of the name ``arg_name``, else that at ``arg_index``, else ``default``. The
    function has the documentation of the one that has any, which the other one gets, too; RuntimeError unless exactly
    one has. ``module_name`` and ``func_name`` are what it is called, unless they are None.
    """

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        positional = args[arg_index] if arg_index < len(args) else default
        return (if_true if kwargs.get(arg_name, positional) else if_false)(*args, **kwargs)

    _share_documentation(dispatch, if_true, if_false)
    dispatch.__module__ = module_name or dispatch.__module__
    dispatch.__name__ = func_name or dispatch.__name__
    return dispatch


def _share_documentation(dispatch: Any, *functions: Any) -> None:
    texts = [function.__doc__ for function in functions if function.__doc__ is not None]
    if len(texts) != 1:
        raise RuntimeError(f"boolean_dispatch: one of the two functions must have a docstring, and {len(texts)} have")
    for function in (dispatch, *functions):
        function.__doc__ = texts[0]


def is_tuple(ann: Any) -> bool:
    """Whether an annotation is a tuple of stated types; RuntimeError for ``Tuple`` alone."""
    return _is_of(Tuple, tuple, ann)


def is_list(ann: Any) -> bool:
    """Whether an annotation is a list of a stated type; RuntimeError for ``List`` alone."""
    return _is_of(List, list, ann)


def is_dict(ann: Any) -> bool:
    """Whether an annotation is a dictionary of stated types; RuntimeError for ``Dict`` alone."""
    return _is_of(Dict, dict, ann)


def _is_of(alone: Any, container: type, ann: Any) -> bool:
    _require_contents(alone, ann)
    return get_origin(ann) is container


def _require_contents(alone: Any, ann: Any) -> None:
    if ann is alone:
        name = str(alone).removeprefix("typing.")
        raise RuntimeError(f"{name} as an annotation must say what it contains, as List[int] does")


def is_union(ann: Any) -> bool:
    """Whether an annotation is one of several types."""
    return get_origin(ann) in (Union, UnionType)


def is_optional(ann: Any) -> bool:
    """Whether an annotation is one type or None; RuntimeError for ``Optional`` alone."""
    _require_contents(Optional, ann)
    return is_union(ann) and len(get_args(ann)) == 2 and type(None) in get_args(ann)


def is_final(ann: Any) -> bool:
    """Whether an annotation is ``Final``, of a stated type or alone."""
    return ann is Final or get_origin(ann) is Final
