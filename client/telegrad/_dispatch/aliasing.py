"""What subclasses return for operators that give views, or write into their operands."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor


def _written(schema: Any) -> list[int]:
    return [place for place, argument in enumerate(schema.arguments) if _is_written(argument)]


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Return what an operator is to return: the operands themselves where it writes into them, else ``out``.

    To be called at the end of ``__torch_dispatch__`` of a class. A view of a wrapper becomes one of the wrapper too.
    """
    schema = getattr(func, "_schema", None)
    if schema is None:
        return out
    written = _written(schema)
    if written:
        names = [argument.name for argument in schema.arguments]
        targets = [args[p] if p < len(args) else (kwargs or {}).get(names[p]) for p in written]
        kept = [target for target in targets if target is not None]
        if not schema.returns:
            return out
        return kept[0] if len(schema.returns) == 1 and kept else tuple(kept) if kept else out
    if getattr(func, "is_view", False) and isinstance(out, Tensor) and args and isinstance(args[0], Tensor):
        source = args[0]
        if out is not source and out._session is source._session and out._base is None:
            out._base = source if source._base is None else source._base
    return out
