"""With ``fullgraph=True`` a function that reads elements is permitted what PyTorch has in one graph, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Function = Callable[[Any, Any], Any]

PERMITTED: dict[str, Function] = {
    "integers in a list": lambda tg, x: [number + 1 for number in (x * 4).long().tolist()],
    "sizes in a list": lambda tg, x: [one.sum() for one in tg.arange(6.0).split((x * 0 + 1).long().tolist())],
    "max": lambda tg, x: max(x[0], x[1]),
    "max of more": lambda tg, x: max(x[0] * 2, x[1], x[2], 0.5),
    "min of all": lambda tg, x: min(x),
    "in": lambda tg, x: 1.0 in x,
    "a tensor in": lambda tg, x: x[0] in x,
    "a tensor of tensors": lambda tg, x: tg.tensor([x[0], x[1] * 2]),
    "a histogram": lambda tg, x: tg.histc(x, 4),
    "places in a tensor": lambda tg, x: tg.tensor_split(x, (x[:1] * 0 + 2).long()),
    "a version": lambda tg, x: x.clone().mul_(2)._version,
    "a distribution": lambda tg, x: tg.distributions.Normal(x[0], 1.0).log_prob(x),
    "classes": lambda tg, x: tg.distributions.Categorical(logits=x).entropy(),
}
REFUSED: dict[str, Function] = {
    "floats in a list": lambda tg, x: x.tolist(),
    "truths in a list": lambda tg, x: (x > 0).tolist(),
    "a truth": lambda tg, x: x if bool(x.sum() > 0) else -x,
    "not": lambda tg, x: not x.sum(),
    "any": lambda tg, x: any([one > 0 for one in x]),
    "sorted": lambda tg, x: sorted(x),
    "equal": lambda tg, x: tg.equal(x, x),
    "text": lambda tg, x: str(x),
}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.parametrize("function", PERMITTED.values(), ids=PERMITTED)
def test_what_pytorch_has_in_one_graph_is_permitted(tg: Any, rng: np.random.Generator, function: Function) -> None:
    compiled = tg.compile(lambda x: function(tg, x), fullgraph=True)
    for _ in range(4):
        x = tg.from_numpy(rng.standard_normal(6).astype("f"))
        assert _plain(compiled(x)) == _plain(function(tg, x))


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_other_reads_are_refused(tg: Any, function: Function) -> None:
    from telegrad.compiler.dynamo import Unsupported

    with pytest.raises(Unsupported, match=r"test_full_graphs\.py"):
        tg.compile(lambda x: function(tg, x), fullgraph=True)(tg.ones(3))


def test_a_distribution_of_a_tensor_and_a_number_reads_nothing(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> str:
        raise AssertionError("a tensor has become text")

    monkeypatch.setattr(tg.Tensor, "__format__", refuse)
    assert tg.distributions.Normal(tg.tensor(2.0), 1.0).mean.item() == 2.0
    with pytest.raises(AssertionError, match="become text"):  # what the error shows
        tg.distributions.Normal(tg.tensor(2.0), -1.0, validate_args=True)
