"""What programs of other people met: the same statements give the same under telegrad and PyTorch."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from .twins import assert_same, evaluate

PROLOGUE = """
from importlib import import_module
data = import_module(t.__name__ + ".utils.data")
overrides = import_module(t.__name__ + ".overrides")
distributions = import_module(t.__name__ + ".distributions")
calls = []
def message(run):
    try:
        run()
    except Exception as error:
        return str(error).replace("telegrad.", "torch.").splitlines()[0]
"""
PROGRAMS = {
    "elements of a subclass": """
        class Tagged(t.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                calls.append(function.__name__)
                return super().__torch_function__(function, types, args, kwargs or {})
        tagged = t.arange(6.0).reshape(2, 3).as_subclass(Tagged)
        part = tagged[0, 1:]
        tagged[1] = 7
        plain = t.zeros(3)
        plain[:] = tagged[1]
        (calls, type(part) is Tagged, part.as_subclass(t.Tensor), type(plain) is t.Tensor, plain)
    """,
    "elements under a mode": """
        class Noting(overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                calls.append(function.__name__)
                return function(*args, **(kwargs or {}))
        x = t.arange(4.0)
        with Noting():
            y = x[1:]
            x[0] = 9
        (calls, x, y)
    """,
    "samples without batches": """
        loader = data.DataLoader(data.TensorDataset(t.arange(4).reshape(2, 2), t.arange(2)), batch_size=None)
        list(loader)
    """,
    "settings of optimizers": """
        weight = t.ones(1, requires_grad=True)
        optimizer = t.optim.SGD([weight], lr=1.0)
        plateau = t.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        messages = [message(lambda: t.optim.SGD([weight], lr=-1)), message(lambda: t.optim.Adam([weight], eps=-1))]
        (sorted(plateau.state_dict()), messages)
    """,
    "distributions as text": """
        shown = [repr(distributions.Normal(t.zeros(3, 2), 1.0)), repr(distributions.Normal(0.0, 1.0).expand((2, 3)))]
        ([text.replace("telegrad.", "torch.") for text in shown], message(lambda: distributions.Normal(0.0, -1.0)))
    """,
    "parameters of lazy layers": "message(lambda: t.nn.LazyLinear(2).weight.numel())[:46]",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_pytorch_gives(tg: Any, name: str) -> None:
    assert_same(*evaluate(f"{PROLOGUE}\n{dedent(PROGRAMS[name]).strip()}", tg))
