"""Programs as modules again: those that were called, as in PyTorch, which may be replaced."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch


def _made(lib: Any) -> Any:
    class Scaled(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.act = lib.nn.Linear(4, 4), lib.nn.ReLU()
            self.register_buffer("shift", lib.ones(4), persistent=False)

        def forward(self, x: Any, scale: float = 1.0) -> Any:
            return self.act(self.layer(x)) * scale + self.shift

    class Whole(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.twice, self.once, self.weight = Scaled(), Scaled(), lib.nn.Parameter(lib.ones(4))
            self.last = lib.nn.Sequential(lib.nn.Linear(4, 2), lib.nn.Tanh())

        def forward(self, x: Any, *, more: Any) -> Any:
            y = self.twice(x) + self.weight
            return {"out": self.last(self.twice(self.once(y, scale=2.0))) + more, "y": y, "count": 3}

    lib.manual_seed(0)
    return Whole()


def _exported(lib: Any) -> Any:
    return lib.export.export(_made(lib), (lib.ones(3, 4),), {"more": lib.ones(1)})


def _told(module: Any) -> list[Any]:
    """Return which modules there are, and what is called in them; PyTorch reads tensors first."""
    parts = [(name, one) for name, one in module.named_modules() if hasattr(one, "graph")]
    nodes = [[(n.op, str(n.target)) for n in one.graph.nodes if n.op != "get_attr"] for _, one in parts]
    return [[name for name, _ in parts], nodes, sorted(module.state_dict())]


@pytest.mark.filterwarnings("ignore:.*LeafSpec")
def test_modules_are_those_that_were_called(tg: Any) -> None:
    ours, theirs = _exported(tg), _exported(torch)
    stacks = [[n.meta.get("nn_module_stack") for n in e.graph.nodes if n.op == "call_function"] for e in (ours, theirs)]
    assert [[*stack] for stack in stacks[0]] == [[*stack] for stack in stacks[1]]
    assert _told(tg.export.unflatten(ours)) == _told(torch.export.unflatten(theirs))
    calls = [[(entry.fqn, entry.signature is None) for entry in one.module_call_graph] for one in (ours, theirs)]
    assert calls[0] == calls[1] and ours.module_call_graph[0].signature.out_spec == ours.call_spec.out_spec


def test_modules_compute_what_the_program_does_and_may_be_replaced(tg: Any) -> None:
    program, x, more = _exported(tg), tg.randn(3, 4), tg.randn(1)
    saved = io.BytesIO()
    tg.export.save(program, saved)
    saved.seek(0)
    wanted = program.module()(x, more=more)
    for one in (program, tg.export.load(saved)):
        module = tg.export.unflatten(one)
        made = module(x, more=more)
        assert isinstance(module, tg.export.UnflattenedModule)
        assert tg.equal(made["out"], wanted["out"]) and tg.equal(made["y"], wanted["y"]) and made["count"] == 3
        assert tg.equal(module.twice(x), module.twice.act(module.twice.layer(x)) + 1)
        module.last = tg.nn.Identity()
        assert module(x, more=more)["out"].shape == (3, 4)
        module.twice = tg.nn.Identity()
        assert tg.equal(module(x, more=more)["y"], x + 1)
        with pytest.raises(RuntimeError, match="input 'x': dimension 1 must be 4"):
            module(tg.ones(3, 5), more=more)
        with pytest.raises(ValueError, match="takes arguments of the structure"):
            module(x)


def test_tensors_of_a_module_may_be_read_around_it(tg: Any) -> None:
    class Shifting(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", tg.full((2,), 3.0))
            self.register_buffer("unread", tg.full((2,), 5.0))

        def forward(self, x: Any) -> Any:
            return x - self.shift

    class Around(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Shifting()

        def forward(self, x: Any) -> Any:
            return self.inner(x * self.inner.shift) + self.inner.unread

    x = tg.ones(2)
    module = tg.export.unflatten(tg.export.export(Around(), (x,)))
    assert module(x).tolist() == [5.0, 5.0] and module.inner(x).tolist() == [-2.0, -2.0]


def test_a_tensor_of_another_module_is_told(tg: Any) -> None:
    class Tied(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.other = tg.nn.Linear(2, 2), tg.nn.Linear(2, 2)
            self.other.weight = self.inner.weight

        def forward(self, x: Any) -> Any:
            return self.other(self.inner(x))

    program = tg.export.export(Tied(), (tg.ones(1, 2),))
    x = tg.randn(1, 2)
    assert tg.equal(tg.export.unflatten(program)(x), program.module()(x))
    with pytest.raises(NotImplementedError, match="preserve_module_call_signature"):
        tg.export.export(Tied(), (x,), preserve_module_call_signature=("inner",))
