"""``view_copy``, ``permute_copy`` and their like: each returns a copy of what a view operation shows."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.memory_format import contiguous_format

from ..into import into


def _viewed(*args: Any, **kwargs: Any) -> Any:
    """Show memory as elements of another type, or in another shape, also where no view has that."""
    is_of_type = "dtype" in kwargs or isinstance(args[1], DType)
    return function("view" if is_of_type else "reshape")(*args, **kwargs)


def _copying(view: str, shows: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return the copying form of a view; ``shows`` shows it where the view itself does not do."""
    name, show = f"{view}_copy", function(view)
    shows = shows or show

    def copy(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        shown = shows(*args, **kwargs)
        if isinstance(shown, Tensor):
            return into(name, shown.clone(memory_format=contiguous_format), out)
        return into(name, tuple([part.clone(memory_format=contiguous_format) for part in shown]), out)

    copy.__name__ = copy.__qualname__ = name
    copy.__doc__ = f"Copy what ``{view}`` shows of the tensor."
    signature = show.__signature__  # type: ignore[attr-defined]
    target = Parameter("out", Parameter.KEYWORD_ONLY, default=None)
    copy.__signature__ = signature.replace(parameters=[*signature.parameters.values(), target])  # type: ignore[attr-defined]
    return copy


alias_copy = _copying("alias")
as_strided_copy = _copying("as_strided")
detach_copy = _copying("detach")
diagonal_copy = _copying("diagonal")
expand_copy = _copying("expand")
narrow_copy = _copying("narrow")
permute_copy = _copying("permute")
select_copy = _copying("select")
slice_copy = _copying("slice")
split_copy = _copying("split")
split_with_sizes_copy = _copying("split_with_sizes")
squeeze_copy = _copying("squeeze")
t_copy = _copying("t")
transpose_copy = _copying("transpose")
unbind_copy = _copying("unbind")
unfold_copy = _copying("unfold")
unsqueeze_copy = _copying("unsqueeze")
view_copy = _copying("view", _viewed)
view_as_complex_copy = _copying("view_as_complex")
view_as_real_copy = _copying("view_as_real")

METHODS: dict[str, Any] = {"narrow_copy": narrow_copy}
