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
    "texts of mixtures": """
        of = distributions.MixtureSameFamily(
            distributions.Categorical(logits=t.ones(2)), distributions.Normal(t.zeros(2), 1.0)
        )
        repr(of)
    """,
    "texts of subclasses": """
        class Own(t.Tensor):
            pass
        class Weight(t.nn.Parameter):
            pass
        (repr(t.ones(2, 2).as_subclass(Own)), repr(Weight(t.ones(2, 2))), repr(t.arange(2000.0).as_subclass(Own) + 1))
    """,
    "numbers of several kinds in lists": """
        kinds = [np.float32(1), np.float64(1), np.float16(1), np.int32(1), np.uint8(1), 2, 2.5, True, 1j]
        kinds += [t.tensor(1.0), t.tensor(1.0, dtype=t.float64), t.tensor(1, dtype=t.int32)]
        pairs = [(a, b) for a in kinds for b in kinds if not {type(a), type(b)} == {bool, np.bool_}]
        [t.tensor(list(pair)) for pair in pairs] + [t.tensor([[pair[0]], [pair[1]]]).dtype for pair in pairs]
    """,
    "tensors of one element in lists": """
        parts = [t.tensor(1.5), t.tensor([2]), t.tensor([[True]])]
        (t.tensor(parts), t.tensor([parts, [0, parts[0], 1.0]]), t.tensor([t.ones(1, 1), t.zeros(1)]))
    """,
    "targets of another length": """
        caught = []
        for loss in (t.nn.functional.cross_entropy, t.nn.functional.nll_loss):
            try:
                loss(t.ones(2, 3), t.tensor([1, 2, 0]))
            except ValueError:
                caught.append(loss.__name__)
        caught
    """,
    "weights that cannot be drawn by": """
        caught = []
        for draw in (lambda: t.multinomial(t.tensor([-1.0, 2.0]), 1), lambda: t.multinomial(t.zeros(2), 1)):
            try:
                draw().tolist()
            except RuntimeError:
                caught.append("caught")
        caught
    """,
    "older names of autocast": """
        with t.cpu.amp.autocast():
            lower = (t.ones(2, 2) @ t.ones(2, 2)).dtype
        with t.cpu.amp.autocast(enabled=False):
            same = (t.ones(2, 2) @ t.ones(2, 2)).dtype
        (lower, same, t.cpu.amp.GradScaler().get_scale())
    """,
    "projections that programs' own attention imports": """
        F = t.nn.functional
        q = t.arange(12.0, dtype=t.float64).reshape(3, 1, 4)
        w, b = t.linspace(-1, 1, 48, dtype=t.float64).reshape(12, 4), t.arange(12.0, dtype=t.float64)
        packed = [F._in_projection_packed(*given, w, b) for given in ((q, q, q), (q, q + 1, q + 2))]
        packed = [(part + 0, part.is_contiguous()) for parts in packed for part in parts]
        mask = t.tensor([[True, False]])
        masks = [F._canonical_mask(given, "mask", None, "", t.float32) for given in (mask, None, t.zeros(2))]
        projected = list(F._in_projection(q, q, q, *w.chunk(3)))
        (packed, projected, masks, F._none_or_dtype(q), message(lambda: F._verify_batch_size([1, 3, 1])))
    """,
    "samples put together by functions of their types": """
        place = ".utils.data.collate" if t.__name__ == "telegrad" else ".utils.data._utils.collate"
        collate = import_module(t.__name__ + place)
        def padded(batch, *, collate_fn_map=None):
            return t.nn.utils.rnn.pad_sequence(batch, batch_first=True)
        samples = [(t.ones(2), {"a": 1}), (t.ones(3), {"a": 2})]
        by_type = {t.Tensor: padded, int: lambda batch, *, collate_fn_map=None: sum(batch)}
        tensors, numbers = collate.collate(samples, collate_fn_map=by_type)
        (tensors, list(numbers.items()))
    """,
    "parameters of lazy layers": "message(lambda: t.nn.LazyLinear(2).weight.numel())[:46]",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_pytorch_gives(tg: Any, name: str) -> None:
    assert_same(*evaluate(f"{PROLOGUE}\n{dedent(PROGRAMS[name]).strip()}", tg))


def test_tensors_in_lists_are_read_in_one_round_trip(tg: Any) -> None:
    rewards = [tg.ones(()) * number for number in range(20)]
    before = tg.wire_stats().round_trips
    assert tg.tensor([rewards, rewards]).tolist() == [list(map(float, range(20)))] * 2
    assert tg.wire_stats().round_trips == before + 2  # the second is of tolist
