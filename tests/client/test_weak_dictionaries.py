"""``utils.weak`` and ``utils.module_tracker``: dictionaries by identity, and names of modules."""

from __future__ import annotations

import copy
import gc
from typing import Any

import torch
from torch.utils.module_tracker import ModuleTracker
from torch.utils.weak import WeakTensorKeyDictionary

from telegrad.utils.module_tracker import ModuleTracker as OurTracker
from telegrad.utils.weak import WeakTensorKeyDictionary as OurDictionary


def _told(t: Any, kind: Any) -> list[Any]:
    a, b, value = t.ones(1), t.zeros(1), [1]
    made = kind({a: value})
    joined = made | {b: 2}
    reversed_ = {b: 2} | made
    deep = copy.deepcopy(made)
    told = [
        len(joined),
        len(reversed_),
        made.copy()[a] is value,
        copy.copy(made)[a] is value,
        deep[a] is value,
        deep[a],
    ]
    made |= {b: 3}
    told += [made[b], [reference() is a for reference in made.keyrefs()]]
    del a
    gc.collect()
    return [*told, len(made), len(deep), len(joined)]


def test_dictionaries_of_weak_keys_are_copied_and_joined(tg: Any) -> None:
    assert _told(tg, OurDictionary) == _told(torch, WeakTensorKeyDictionary)


def test_names_go_through_modules_that_are_not_called(tg: Any) -> None:
    names = []
    for t, kind in ((torch, ModuleTracker), (tg, OurTracker)):

        class Model(t.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self, layers: Any) -> None:
                super().__init__()
                self.layers = layers

            def forward(self, x: Any) -> Any:
                return self.layers[0]["first"](x)

        inner = t.nn.Linear(2, 2)
        with kind() as tracker:
            inner.register_forward_pre_hook(lambda *_, tracker=tracker: names.append(sorted(tracker.parents)))
            Model(t.nn.ModuleList([t.nn.ModuleDict({"first": inner})]))(t.ones(1, 2))
    assert names[0] == names[1] == ["Global", "Model", "Model.layers.0.first"]
