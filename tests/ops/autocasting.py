"""One call under autocast on both sides, through the client: what the client foresees and what the server has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import telegrad
from telegrad._ops.functions import function

from .adapters import OURS_TO_TORCH, TORCH_TO_OURS, to_numpy
from .harness import flatten, tree_map


class Refused:
    """Stands for the exception that a side raised."""


def upload(tensor: torch.Tensor, device: str = "cpu") -> Any:
    """A torch tensor on the current session."""
    if tensor.dtype is torch.bfloat16:
        mine = telegrad.tensor(tensor.detach().float().numpy(), device=device).to(telegrad.bfloat16)
    else:
        mine = telegrad.tensor(to_numpy(tensor).copy(), device=device)
    return mine.requires_grad_() if tensor.requires_grad else mine


def download(tensor: Any) -> torch.Tensor:
    """What the server has, in the type that it has it."""
    dtype, shape, data = tensor._session.read(tensor._id)
    kind = OURS_TO_TORCH[dtype]
    flat = torch.frombuffer(bytearray(data), dtype=kind) if len(data) else torch.empty(0, dtype=kind)
    return flat.reshape(shape)


def run_both(
    theirs: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any], lower: torch.dtype
) -> tuple[Any, Any, list[tuple[torch.Tensor, Any]]]:
    """Results of both sides, or ``Refused``, and the pairs of tensors that went in."""
    pairs: list[tuple[torch.Tensor, Any]] = []

    def paired(tensor: torch.Tensor) -> Any:
        pairs.append((tensor, upload(tensor)))
        return pairs[-1][1]

    mine = tree_map(paired, _attribute, [list(args), kwargs])
    expected = _attempt(lambda: theirs(*args, **kwargs), torch.autocast("cpu", lower))
    found = _attempt(lambda: function(name)(*mine[0], **mine[1]), telegrad.autocast("cpu", TORCH_TO_OURS[lower]))
    return expected, found, pairs


def run_here(name: str, args: Sequence[Any], kwargs: dict[str, Any], lower: torch.dtype, device: str) -> list[Any]:
    """Tensors among telegrad's results on a device; none where it refuses."""
    mine = tree_map(lambda t: upload(t, device), _attribute, [list(args), kwargs])
    region = telegrad.autocast(device.split(":")[0], TORCH_TO_OURS[lower])
    found = _attempt(lambda: function(name)(*mine[0], **mine[1]), region)
    return [] if found is Refused else [each for each in found if isinstance(each, telegrad.Tensor)]


def _attribute(thing: Any) -> Any:
    return TORCH_TO_OURS.get(thing, thing) if isinstance(thing, torch.dtype) else thing


def _attempt(run: Callable[[], Any], region: Any) -> Any:
    try:
        with region:
            return flatten(run())
    except (RuntimeError, ValueError, TypeError, IndexError):
        return Refused


def differences_on_cuda(
    info: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], lower: torch.dtype, device: str
) -> list[str]:
    """What differs in types between PyTorch on a GPU and what the client foresees for ``device``."""
    label = f"{info.name} {[a.dtype for a in args if isinstance(a, torch.Tensor)]} in {lower}"
    theirs = tree_map(lambda t: t.cuda(), lambda other: other, [list(args), kwargs])
    expected = _attempt(lambda: info.op(*theirs[0], **theirs[1]), torch.autocast("cuda", lower))
    found = run_here(name, args, kwargs, lower, device)
    if expected is Refused or not found:
        return [] if expected is Refused and not found else [f"{label}: only one side refuses"]
    kinds = [each.dtype for each in expected if isinstance(each, torch.Tensor)]
    foreseen = [OURS_TO_TORCH[each.dtype] for each in found]
    return [] if kinds == foreseen else [f"{label}: PyTorch {kinds}, client {foreseen}"]
