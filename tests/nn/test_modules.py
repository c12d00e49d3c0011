"""Every module of PyTorch's module database: the same state, outputs, gradients, buffers and text as PyTorch's.

The database says how a module is made and called; the same arguments go to PyTorch's module and to ours.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db

from .pairs import Arguments, Pair

MOST_SAMPLES = 16
"""So many of a module's samples are run, evenly chosen."""
INFOS: dict[str, ModuleInfo] = {info.name.removeprefix("nn."): info for info in module_db}
CASES = [
    (name, training)
    for name, info in INFOS.items()
    for training in ((True, False) if info.train_and_eval_differ else (True,))
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "training"), CASES)
def test_module_is_pytorchs(tg: Any, name: str, training: bool, seed: int) -> None:
    torch.manual_seed(seed)
    info = INFOS[name]
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training)
    samples = [sample for sample in samples if sample.forward_input is not None]
    for sample in samples[:: -(-len(samples) // MOST_SAMPLES)]:
        _compare(tg, info, name, sample.constructor_input, sample.forward_input, training)


def _compare(tg: Any, info: ModuleInfo, name: str, made: Any, called: Any, training: bool) -> None:
    arguments = Arguments(tg)
    kwargs = made.kwargs if _takes_no_dtype(info, made) else {**made.kwargs, "dtype": torch.float64}
    theirs = _ready(getattr(torch.nn, name)(*made.args, **kwargs).train(training), called)
    ours = getattr(tg.nn, name)(*arguments.translated(list(made.args)), **arguments.translated(kwargs)).train(training)
    if not name.startswith("Lazy"):
        assert repr(ours) == repr(theirs)
    pair = Pair.of(tg, theirs, ours)
    pair.compare(tg, called.args, called.kwargs)
    assert repr(ours) == repr(theirs)


def _ready(module: Any, called: Any) -> Any:
    """Let a lazy module see its input, so that it has a state."""
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        module(*called.args, **called.kwargs)
    return module


def _takes_no_dtype(info: ModuleInfo, made: Any) -> bool:
    try:
        info.module_cls(*made.args, **{**made.kwargs, "dtype": torch.float64})
    except TypeError:
        return True
    return False
