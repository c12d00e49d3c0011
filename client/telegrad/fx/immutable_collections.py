"""Lists and dictionaries that refuse to be modified, as the arguments of nodes are kept."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from telegrad.utils._pytree_nodes import register_pytree_node
from telegrad_protocol.errors import ArgumentTypeError

__all__ = ["immutable_dict", "immutable_list"]

Item = TypeVar("Item")
Key = TypeVar("Key")
Value = TypeVar("Value")


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise ArgumentTypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or args "
        "of a torch.fx.Node object,\ninstead create a new copy of it and assign the copy to the node:\n"
        "    new_args = ... # copy and mutate args\n    node.args = new_args"
    )


class immutable_list(list[Item]):
    """A list that cannot be modified."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = append = clear = extend = insert = _refuse
    pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self),)


class immutable_dict(dict[Key, Value]):
    """A dictionary that cannot be modified."""

    __delitem__ = __ior__ = __setitem__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self.items()),)


register_pytree_node(immutable_list, lambda tree: (list(tree), None), lambda children, _: immutable_list(children))
register_pytree_node(
    immutable_dict,
    lambda tree: (list(tree.values()), list(tree)),
    lambda children, keys: immutable_dict(zip(keys, children, strict=True)),
)
