"""Numbers, types and devices in the forms that programs give them: tensors of one number, Python's types, NumPy's."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

NUMBERS = """
t.add(x, 1, alpha=n(2.0))
t.full((2,), n(3.0))
t.linspace(n(0.0), n(1.0), 3)
t.arange(n(1.0), n(4.0))
t.nn.functional.leaky_relu(x - 3, n(0.1))
t.nn.functional.elu(x - 3, n(0.5))
t.nn.functional.threshold(x, n(2.0), n(7.0))
t.nn.functional.layer_norm(x, (3,), eps=n(0.1))
t.nn.functional.dropout(x, n(0.0))
x.addcmul(x, x, value=n(2.0))
x.std(correction=n(1))
t.norm(x, n(3.0))
t.addmm(x @ x.T, x, x.T, beta=n(0.5))
t.zeros_like(x).uniform_(n(2.0), n(2.0))
[x.new_zeros(size).shape for size in ((2, 3), (2, n(4)), (n(1), 2))]
t.add(1, 2)
t.div(7, 2, rounding_mode="floor")
t.mul(2.0, 3)
t.sub(2.5, 3)
t.true_divide(1, 2)
t.zeros(np.int64(2), 3).shape
t.zeros(2, dtype=int)
t.tensor([1, 0], dtype=bool)
t.tensor(1, dtype=complex)
x.to(float)
x.to(dtype=int)
x.sum(dtype=float)
t.nn.Linear(2, 2, dtype=float).weight.dtype == t.float64
t.nn.Linear(2, 2).to(float).weight.dtype == t.float64
t.as_tensor([1, 2], dtype=float)
[str(t.device(name)) for name in ("mps", "xpu:1", "hpu")]
t.device("mps") == x.device
"""


def test_numbers_types_and_devices_are_taken_in_every_form(tg: Any) -> None:
    for text in NUMBERS.strip().splitlines():
        program = f"n, x = t.tensor, t.arange(6.0).reshape(2, 3)\n{text}"
        ours, theirs = evaluate(program, tg)
        assert not isinstance(theirs, Exception), (text, theirs)
        assert_same(ours, theirs, text)


@pytest.mark.parametrize(
    "text",
    [
        "t.add(t.ones(2), 1, alpha=t.tensor(2.0, requires_grad=True))",
        "t.add(t.ones(2), 1, alpha=t.ones(2))",
        "t.maximum(1, 2)",
        "t.zeros(2, dtype=str)",
        "t.device('gpu')",
    ],
)
def test_other_forms_are_refused_as_pytorch_refuses_them(tg: Any, text: str) -> None:
    ours, theirs = evaluate(text, tg)
    assert isinstance(theirs, Exception) and isinstance(ours, (TypeError, RuntimeError, ValueError)), ours


def test_devices_that_no_server_has_hold_no_tensors(tg: Any) -> None:
    for text in ("t.zeros(1, device='mps')", "t.ones(2).to('xpu')", "t.tensor([1.0], device='mps')"):
        with pytest.raises(tg.errors.DeviceError, match="is not there; the server has"):
            eval(text, {"t": tg})  # noqa: S307 - the test's own programs


def test_arrays_are_read_from_parameters_where_no_gradient_is_recorded(tg: Any) -> None:
    weight = tg.nn.Parameter(tg.ones(2))
    with tg.no_grad():
        assert weight.numpy().tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="requires grad"):
        weight.numpy()
