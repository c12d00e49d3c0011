"""A module of PyTorch and the same of telegrad: made alike, given one state, called alike, compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from telegrad_protocol import dtypes

OURS = {getattr(torch, d.name): d for d in dtypes.ALL}


class Arguments:
    """Translates arguments of PyTorch to telegrad's, and remembers the tensors that require a gradient."""

    def __init__(self, tg: Any) -> None:
        self.tg = tg
        self.leaves: list[tuple[torch.Tensor, Any]] = []
        self._made: dict[int, Any] = {}

    def translated(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.dtype):
            return OURS[value]
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, torch.nn.Module):
            return twin_of(self.tg, value)
        if callable(value) and hasattr(torch.nn.functional, getattr(value, "__name__", "")):
            return getattr(self.tg.nn.functional, value.__name__)
        if isinstance(value, PackedSequence):
            return self._packed(value)
        if isinstance(value, torch.Size):
            return tuple(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.translated, value))
        if isinstance(value, dict):
            return {key: self.translated(part) for key, part in value.items()}
        return value

    def _tensor(self, value: torch.Tensor) -> Any:
        if id(value) in self._made:
            return self._made[id(value)]
        ours = self._made[id(value)] = self.tg.tensor(value.detach().numpy())
        if value.requires_grad:
            ours.requires_grad_()
            if not value.is_leaf:
                value.retain_grad()
            self.leaves.append((value, ours))
        return ours

    def _packed(self, value: PackedSequence) -> Any:
        rest = [None if part is None else self.tg.tensor(part.numpy()) for part in value[1:]]
        return self.tg.nn.utils.rnn.PackedSequence(self._tensor(value.data), *rest)


def twin_of(tg: Any, module: torch.nn.Module) -> Any:
    """The module that is an argument: an encoder layer, or one without settings."""
    if not isinstance(module, torch.nn.TransformerEncoderLayer):
        return getattr(tg.nn, type(module).__name__)()
    attention = module.self_attn
    twin = tg.nn.TransformerEncoderLayer(
        attention.embed_dim, attention.num_heads, module.linear1.out_features, module.dropout.p,
        activation=module.activation.__name__, layer_norm_eps=module.norm1.eps, batch_first=attention.batch_first,
        norm_first=module.norm_first, bias=module.linear1.bias is not None, dtype=OURS[module.linear1.weight.dtype],
    )  # fmt: skip
    give_state(tg, module, twin)
    return twin


def give_state(tg: Any, theirs: torch.nn.Module, ours: Any) -> None:
    """Give our module the state of theirs; all keys must match, in their order."""
    assert list(ours.state_dict()) == list(theirs.state_dict())
    state = theirs.state_dict()
    result = ours.load_state_dict({key: tg.tensor(tensor.numpy()) for key, tensor in state.items()})
    assert repr(result) == "<All keys matched successfully>"


def flat(result: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if isinstance(result, (list, tuple)):
        return [tensor for part in result for tensor in flat(part)]
    return [] if result is None else [result]


def assert_close(ours: Any, theirs: torch.Tensor, what: str) -> None:
    """Same shape, type and, within the rounding of the type, elements."""
    assert OURS[theirs.dtype] is ours.dtype, f"{what}: {ours.dtype} is not {theirs.dtype}"
    tolerance = {torch.float64: 1e-9, torch.float32: 2e-5}.get(theirs.dtype, 0)
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance, err_msg=what, strict=True
    )


class Pair(NamedTuple):
    """A module of PyTorch and its twin."""

    theirs: Any
    ours: Any

    @classmethod
    def of(cls, tg: Any, theirs: Any, ours: Any) -> Pair:
        """Give our module the state of theirs."""
        give_state(tg, theirs, ours)
        return cls(theirs, ours)

    def compare(self, tg: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> None:
        """Call both with the same arguments: the outputs, buffers and all gradients must be equal."""
        given = Arguments(tg)
        ours = flat(self.ours(*given.translated(list(args)), **given.translated(kwargs or {})))
        theirs = flat(self.theirs(*args, **(kwargs or {})))
        assert len(ours) == len(theirs)
        for mine, reference in zip(ours, theirs, strict=True):
            assert_close(mine, reference, "output")
            assert mine.requires_grad == reference.requires_grad
        for (name, reference), mine in zip(self.theirs.named_buffers(), self.ours.buffers(), strict=True):
            assert_close(mine, reference, name)
        self._compare_gradients(tg, ours, theirs, given.leaves)

    def _compare_gradients(self, tg: Any, ours: list[Any], theirs: list[Any], leaves: list[Any]) -> None:
        outputs = [(m, t) for m, t in zip(ours, theirs, strict=True) if t.requires_grad]
        if not outputs:
            return
        weights = [torch.randn_like(t) for _, t in outputs]
        sum((t * w).sum() for (_, t), w in zip(outputs, weights, strict=True)).backward()
        total = [(m * tg.tensor(w.numpy())).sum() for (m, _), w in zip(outputs, weights, strict=True)]
        sum(total[1:], total[0]).backward()
        named = [(n, t, m) for (n, t), m in zip(self.theirs.named_parameters(), self.ours.parameters(), strict=True)]
        for name, reference, mine in [*named, *(("input", t, m) for t, m in leaves)]:
            if reference.grad is None:
                assert mine.grad is None or not mine.grad.any().item(), f"{name}: PyTorch has no gradient"
            else:
                assert_close(mine.grad, reference.grad, f"gradient of {name}")
