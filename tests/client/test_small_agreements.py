"""Small things that programs see: kinds of tuples, texts of structures, memory that nothing was written to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import assert_same, evaluate

UTILS = "P = __import__('importlib').import_module(t.__name__ + '.utils._pytree')"
LOG = """
D = __import__('importlib').import_module(t.__name__ + ".utils._python_dispatch")
class Log(D.TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))
"""


@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
def test_variances_with_means_are_plain_tuples(name: str, tg: Any) -> None:
    assert type(getattr(tg, name)(tg.ones(3))) is tuple
    assert_same(*evaluate(f"t.{name}(t.arange(12.0).reshape(3, 4), 1)", tg))


@pytest.mark.parametrize(
    "tree",
    [
        "[1, (2, 3)]", "{'a': [1, (2, 3)], 'b': None, 'c': {'d': 4}}", "1", "[[], {}, ()]",
        "__import__('collections').defaultdict(list, a=[1, 2])", "__import__('collections').OrderedDict(a=1, b=(2,))",
    ],
)  # fmt: skip
def test_structures_are_printed_as_by_pytorch(tree: str, tg: Any) -> None:
    assert_same(*evaluate(f"{UTILS}\nrepr(P.tree_structure({tree}))", tg))


CREATED = [
    "t.empty(3)", "t.empty(3, dtype=t.int64)", "t.empty(2, 2, dtype=t.uint8)", "t.empty(2, dtype=t.bool)",
    "t.empty(2, dtype=t.complex64).real", "t.empty_like(t.ones(2, 2))", "t.empty_strided((2, 3), (1, 2))",
    "t.ones(1).new_empty(2)", "t.ones(1).new_empty_strided((2,), (1,))", "t.empty_permuted((2, 3), (1, 0))",
    "t.tensor([1.0, 2.0]).resize_(4)", "t.empty(3, dtype=t.float16)",
]  # fmt: skip


@pytest.mark.parametrize("call", CREATED)
def test_deterministic_mode_fills_what_nothing_was_written_to(call: str, tg: Any) -> None:
    program = f"""
    {call}
    t.use_deterministic_algorithms(True)
    made = {call}
    t.use_deterministic_algorithms(False)
    made
    """
    assert_same(*evaluate(program, tg))


def test_filling_memory_can_be_switched_off(tg: Any) -> None:
    flags = tg.utils.deterministic
    assert flags.fill_uninitialized_memory is True
    try:
        flags.fill_uninitialized_memory = False
        tg.use_deterministic_algorithms(True)
        tg.full((4096,), 3.0)
        assert not tg.empty(4096).isnan().all().item()
        with pytest.raises(tg.errors.ArgumentError, match="expected a bool"):
            flags.fill_uninitialized_memory = 1
    finally:
        tg.use_deterministic_algorithms(False)
        flags.fill_uninitialized_memory = True


@pytest.mark.parametrize(
    "call",
    [
        "t.tensor([1.0, 2.0])", "t.as_tensor([1, 2])", "t.ones(2) + t.tensor(1.0)", "t.from_numpy(values)",
        "t.ones(2)[t.tensor([0, 1])]", "t.ones(2).new_tensor([1.0])",
    ],
)  # fmt: skip
def test_modes_are_shown_data_of_the_program_as_it_is_lifted(call: str, tg: Any, rng: np.random.Generator) -> None:
    program = f"{LOG}\nwith Log() as log:\n    result = {call}\nlog.names, result"
    assert_same(*evaluate(program, tg, values=rng.normal(size=3)))


def test_a_fake_of_an_operator_that_does_not_exist_is_refused(tg: Any) -> None:
    with pytest.raises(RuntimeError, match="operator telegrad_tests::absent does not exist"):
        tg.library.register_fake("telegrad_tests::absent", lambda x: x)


def test_a_histogram_has_a_hundred_bins_by_default(tg: Any, rng: np.random.Generator) -> None:
    assert_same(*evaluate("tuple(t.histogram(t.from_numpy(values)))", tg, values=rng.normal(size=50)))
