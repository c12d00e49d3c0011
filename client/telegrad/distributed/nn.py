"""Communication that gradients flow through, under the names of ``torch.distributed.nn``, in a group of one process.

Every function returns what PyTorch's returns among one: the tensor, or the list of the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor

from .single import default_group


def _named(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    def communicate(*args: Any, **kwargs: Any) -> Any:
        default_group(f"nn.{name}")
        return answer(*args, **kwargs)

    communicate.__name__ = communicate.__qualname__ = name
    communicate.__doc__ = "Communicate within the group of one process; the gradient goes back to what was given."
    return communicate


def _same(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return tensor.clone()


def _listed(tensor: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor]:
    return (tensor.clone(),)


def _first(output: Any, input_list: Sequence[Tensor], *args: Any, **kwargs: Any) -> Tensor:
    return input_list[0].clone()


_ANSWERS: dict[str, Callable[..., Any]] = {
    "all_gather": _listed,
    "all_reduce": _same,
    "all_to_all": lambda output, input_list, *args, **kwargs: tuple(tensor.clone() for tensor in input_list),
    "all_to_all_single": lambda output, input, *args, **kwargs: input.clone(),
    "broadcast": _same,
    "gather": _listed,
    "reduce": _same,
    "reduce_scatter": _first,
    "scatter": lambda tensors, *args, **kwargs: tensors[0].clone(),
}
globals().update({name: _named(name, answer) for name, answer in _ANSWERS.items()})
