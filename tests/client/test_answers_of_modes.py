"""What modes and classes may answer, who is asked how, and the texts of refusals; compared with PyTorch's."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from telegrad._programs import device_mode
from telegrad.utils import _python_dispatch, _pytree

from .twins import assert_same, evaluate

PROGRAMS = {
    "plain methods are asked with their object": """
        class Asked:
            def __torch_function__(self, func, types, args=(), kwargs=None):
                return (self is args[0] or self is args[1], func.__name__, len(args), sorted(kwargs or {}))
        d = Asked()
        [t.add(d, 1), t.mean(d, dim=0), t.ones(1) + d, t.add(t.ones(1), d)]
    """,
    "a wrapped function asks plain methods": """
        import importlib
        overrides = importlib.import_module(t.__name__ + ".overrides")
        class Asked:
            def __torch_function__(self, func, types, args=(), kwargs=None): return ("asked", func.__name__)
        scaled = overrides.wrap_torch_function(lambda a: (a,))(lambda a: a + 0)
        [scaled(t.ones(1)), scaled(Asked())]
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_do_what_they_do_in_pytorch(tg: Any, program: str) -> None:
    assert_same(*evaluate(program, tg))


def _text(work: Any) -> tuple[type, str]:
    with pytest.raises((TypeError, RuntimeError, ValueError)) as caught:
        work()
    kind = next(k for k in (TypeError, ValueError, RuntimeError) if isinstance(caught.value, k))
    return kind, re.sub(r"0x[0-9a-f]+|(?<=<class ').*\.", "", str(caught.value)).partition("\n  caused by")[0].rstrip()


def _answering(base: Any, value: Any) -> Any:
    class Answering(base):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return value

    return Answering()


def test_functions_that_nobody_answers_are_refused_in_pytorchs_words(tg: Any) -> None:
    def asks(t: Any) -> Any:
        def function(a: Any) -> Any:
            return t.overrides.handle_torch_function(function, (a,), a)

        return function(t.ones(1))

    assert _text(lambda: asks(tg)) == _text(lambda: asks(torch))


@pytest.mark.parametrize("answer", [3, 2.5, "text", NotImplemented], ids=repr)
def test_operators_are_answered_by_tensors(tg: Any, answer: Any) -> None:
    import torch.utils._python_dispatch as torchs

    def made(t: Any, base: Any) -> Any:
        with _answering(base, answer):
            return t.ones(2)

    ours = _text(lambda: made(tg, _python_dispatch.TorchDispatchMode))
    theirs = _text(lambda: made(torch, torchs.TorchDispatchMode))
    if answer is NotImplemented:
        ours, theirs = ((kind, re.sub(r"<.*", "", text)) for kind, text in (ours, theirs))  # what a mode is shown as
    assert (ours[0], ours[1].splitlines()[0]) == (theirs[0], theirs[1].splitlines()[0])


def test_a_device_context_is_the_default_device(tg: Any) -> None:
    with device_mode.DeviceContext("meta") as context:
        made = tg.ones(2), tg.ones(2, device="cpu")
    assert [one.device.type for one in made] == ["meta", "cpu"] and context.device == tg.device("meta")
    assert device_mode.set_device("meta")(tg.zeros)(3).is_meta and not tg.zeros(3).is_meta


def test_trees_that_do_not_fit_are_refused_in_pytorchs_words() -> None:
    import torch.utils._pytree as torchs

    def texts(t: Any) -> list[Any]:
        spec = t.tree_structure([1, (2, 3)])
        wrong = (
            lambda: t.tree_unflatten([1], spec),
            lambda: t.tree_map(lambda a, b: a, [1, 2], [3]),
            lambda: spec.flatten_up_to([4, 5]),
        )
        return [_text(one) for one in wrong]

    assert texts(_pytree) == texts(torchs)
    assert _pytree.BUILTIN_TYPES == torchs.BUILTIN_TYPES
    assert _pytree.STANDARD_DICT_TYPES == torchs.STANDARD_DICT_TYPES
