"""PyTorch's own operators by their names in the dispatcher: schemas, calls of overloads, and decompositions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conformance import aten_schemas
from conformance.aten_schemas import TABLE
from telegrad._library import aten
from telegrad._library.compiled import decompositions
from telegrad._library.schemas.text import parse_schema

from .twins import assert_same, evaluate


def test_schemas_are_read_and_written_as_pytorch_does() -> None:
    schemas = aten_schemas.schemas()
    assert TABLE.read_text().splitlines() == schemas, "python -m conformance.aten_schemas writes the table"
    plain = [f"aten::{schema}" for schema in schemas if "b|a" not in schema]  # letters are sorted
    assert [schema for schema in plain if str(parse_schema(schema)) != schema] == []


def test_marks_of_memory_without_letters_are_read_as_pytorch_does() -> None:
    given = ("Tensor! x", "Tensor!? x=None", "int! x", "Tensor[]! x", "Tensor! x, Tensor(a!) y, Tensor ! z")
    for schema in [f"f({arguments}) -> ()" for arguments in given] + ["f(Tensor(a!) x) -> Tensor!"]:
        assert str(parse_schema(schema)) == str(torch._C.parse_schema(schema))
    for schema in ("f(Tensor(!) x) -> ()", "f(Tensor?! x) -> ()"):
        with pytest.raises(RuntimeError, match="expected ident but found '!'"):
            parse_schema(schema)


CALLS = """
aten.native_layer_norm_backward(Y, X, [4], M, R, Y[0], Y[1], [True, True, True])
aten._softmax(X, 1, False)
aten._log_softmax.default(X, 0, False)
aten._softmax_backward_data(X, Y, 1, t.float64)
aten._log_softmax_backward_data(X, Y, 1, t.float64)
aten.gelu_backward(X, Y, approximate="tanh")
aten.elu_backward(Y, 1.0, 1.0, 1.0, False, X)
aten.glu_backward(X[:, :2], Y, 1)
aten.hardtanh_backward(Y, X, -1.0, 1.0)
aten.log_sigmoid_forward(X)
aten.logit_backward(X, Y, None)
aten.softplus_backward(Y, X, 1.0, 20.0)
aten.huber_loss(X, Y, 1, 0.5)
aten.huber_loss_backward(Y.mean(), X, Y, 1, 0.5)
aten.mse_loss_backward.default(X, X, Y, 0)
aten.binary_cross_entropy_backward(Y, Y, Y, None, 0)
aten.nll_loss_backward(Y.sum(), X, t.tensor([0, 1, 2]), None, 1, -100, t.tensor(3.0, dtype=t.float64))
aten.select_backward(Y[0], [3, 4], 0, 1)
aten.slice_backward(Y[:2], [3, 4], 0, 0, 2, 1)
aten.diagonal_backward(Y[0, :3], [3, 4], 0, 0, 1)
aten.unfold_backward(Y[:, None, :2], [3, 2], 1, 2, 1)
aten.reflection_pad1d_backward(t.ones(1, 3, 6, dtype=t.float64), Y[None], [1, 1])
aten.avg_pool2d_backward(t.ones(1, 1, 2, dtype=t.float64), Y[None], [2, 2], [], [0, 0], False, True, None)
aten._adaptive_avg_pool2d_backward(t.ones(1, 2, 2, dtype=t.float64), Y[None])
aten.adaptive_max_pool2d(Y[None], [2, 2])
aten.upsample_bilinear2d(Y[None, None], [6, 8], False)
aten.upsample_bilinear2d_backward(t.ones(1, 1, 6, 8, dtype=t.float64), [6, 8], [1, 1, 3, 4], False)
aten.upsample_nearest2d.vec(Y[None, None], None, [2.0, 2.0])
aten.replication_pad2d(Y[None], [1, 1, 0, 2])
aten._to_copy(X, dtype=t.float32)
aten.clone(X.t(), memory_format=t.contiguous_format)
aten._unique2(t.tensor([2, 1, 2]), True, True, True)
aten._unsafe_view(X, [4, 3])
aten.mul.Tensor(X, 2)
aten.sum.dim_IntList(X, [1], True)
aten.var.correction(X, [1], correction=1)
aten.max.dim(X, 1)
aten.index.Tensor(X, [None, t.tensor([0, 2])])
aten.arange.start_step(1, 7, 2)
aten.full([2, 2], 3.0, dtype=t.float32)
aten.masked_fill.Scalar(X, X > 0, 0.5)
aten.where.self(X > 0, X, Y)
aten.expand(X[:1], [3, 4])
aten.slice.Tensor(X, 1, 0, 3, 2)
aten.native_dropout_backward(X, X > 0, 2.0)
aten.__and__.Tensor(t.tensor([6, 5]), t.tensor([3, 1]))
aten.__lshift__.Scalar(t.tensor([6, 5]), 2)
aten.__ior__.Tensor(t.tensor([6, 5]), t.tensor([1, 2]))
aten._cast_Float(X)
aten._cast_Int(X * 5)
aten.zero(X)
aten.uniform(X, 2.0, 2.5).floor()
aten._convolution(Y[None], X[None, :, :2], None, [1], [1], [1], False, [0], 1, False, False, True, True)
aten._convolution(Y[None], X.reshape(3, 2, 2), X[0, :2], [2], [1], [1], True, [1], 1, False, False, True, True)
aten.thnn_conv2d(Y[None, None], t.ones(2, 1, 2, 2, dtype=t.float64), [2, 2], None, [1, 1], [1, 0])
aten.lstm_cell(X, [X[:, :2], Y[:, :2]], X.repeat(3, 1)[:8], Y.repeat(3, 1)[:8, :2])
aten.gru_cell(X, Y[:, :2], X.repeat(2, 1), Y.repeat(2, 1)[:, :2], X.flatten()[:6], Y.flatten()[:6])
aten.rnn_tanh_cell(X, Y[:, :2], t.ones(2, 4, dtype=t.float64) / 3, t.ones(2, 2, dtype=t.float64))
aten.rnn_relu_cell(X, Y[:, :2], t.ones(2, 4, dtype=t.float64) / 3, t.ones(2, 2, dtype=t.float64), X[0, :2], X[1, :2])
aten.cross_entropy_loss(X, t.tensor([0, 1, 3]), None, 2, 3, 0.1)
aten.nll_loss_nd(X, t.tensor([0, 1, 3]), Y[0].abs(), 0)
aten.log_sigmoid(X)
aten.affine_grid_generator(t.ones(1, 2, 3), [1, 1, 2, 2], False)
aten.norm_except_dim(X, 2, 1)
aten.norm_except_dim(X)
aten._aminmax(X)
aten._aminmax.dim(X, 1, True)
aten._stack([X, Y], 1)
aten._unsafe_index.Tensor(X, [None, t.tensor([0, 2])])
aten._unsafe_index_put(X, [t.tensor([0, 2])], Y[:2], True)
aten._index_put_impl_(X.clone(), [t.tensor([0, 2])], Y[:2], True)
aten._int_mm(t.arange(512).view(32, 16).to(t.int8), t.arange(256).view(16, 16).to(t.int8))
aten._pad_circular(Y[None], [1, 2])
aten.copy(X, t.tensor([1, 2, 3, 4]))
aten._prelu_kernel_backward(Y, X, Y[0])
aten.linalg_inv_ex(X @ X.t() + t.eye(3, dtype=t.float64))
""".strip().splitlines()


SETTING = """
aten = t.ops.aten
M, R = X.mean(1, keepdim=True), 1 / (X.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
result = CALL
[None if part is None else part.contiguous() for part in (result if isinstance(result, (tuple, list)) else [result])]
"""


def test_operators_of_pytorchs_library_take_and_give_what_pytorchs_do(tg: Any) -> None:
    for call in CALLS:
        assert_same(*evaluate(f"X, Y = {_X}, {_Y}\n{SETTING.strip().replace('CALL', call)}", tg), call)


_X = "t.linspace(-4, 4, 12, dtype=t.float64).reshape(3, 4)"
_Y = "t.linspace(0.1, 0.9, 12, dtype=t.float64).reshape(3, 4)"
DECOMPOSED = {
    "addcdiv": f"{_X}, {_X}, {_Y}", "addcmul": f"{_X}, {_X}, {_Y}", "addr": f"{_X}, {_X}[:, 0], {_Y}[0]",
    "baddbmm": f"{_X}[None], {_X}[None], t.ones(1, 4, 4, dtype=t.float64)", "binary_cross_entropy": f"{_Y}, {_Y}",
    "count_nonzero": f"{_X}, 0", "dot": f"{_X}[0], {_Y}[0]", "fill": f"{_X}, 2.0", "gelu_backward": f"{_X}, {_Y}",
    "hardsigmoid_backward": f"{_Y}, {_X}", "hardswish_backward": f"{_Y}, {_X}", "huber_loss": f"{_X}, {_Y}",
    "leaky_relu_backward": f"{_Y}, {_X}, 0.1, False", "lerp": f"{_X}, {_Y}, 0.3", "logaddexp": f"{_X}, {_Y}",
    "logit": _Y, "mse_loss": f"{_X}, {_Y}", "mse_loss_backward": f"{_X}, {_X}, {_Y}, 1", "mv": f"{_X}, {_Y}[0]",
    "new_full": f"{_X}, [2, 3], 4.0", "rsub": f"{_X}, {_Y}", "sigmoid_backward": f"{_X}, {_Y}",
    "silu_backward": f"{_X}, {_Y}", "smooth_l1_loss": f"{_X}, {_Y}", "soft_margin_loss": f"{_X}, {_Y}",
    "t": _X, "tanh_backward": f"{_X}, {_Y}", "threshold": f"{_X}, 0.5, 2.0", "threshold_backward": f"{_X}, {_Y}, 0.5",
    "vdot": f"{_X}[0], {_Y}[0]", "xlogy": f"{_Y}, {_Y}",
}  # fmt: skip
"""Arguments of the operators that are decomposed; ``_X`` alone for all others."""


def test_decompositions_compute_what_pytorchs_operators_do(tg: Any) -> None:
    table = decompositions.core_aten_decompositions()
    checked = 0
    for overload, function in table.items():
        name = overload._opname
        if name.endswith("_") or "out" in overload._overloadname:
            continue
        given = DECOMPOSED.get(name, _X)
        theirs = getattr(getattr(torch.ops.aten, name), overload._overloadname)
        expected = eval(f"run({given})", {"t": torch, "run": theirs})  # noqa: S307 - the expressions above
        assert_same(eval(f"run({given})", {"t": tg, "run": function}), expected, name)  # noqa: S307
        checked += 1
    assert checked > 50
    assert {overload._opname for overload in table} >= set(DECOMPOSED)


UNMARKED = {"complex", "floor_divide", "hardswish", "isclose", "polar", "special_ndtr"}
"""Operators on each element of which PyTorch marks no overload."""


def _marks(overload: Any) -> set[str]:
    return {tag.name for tag in overload.tags}


def test_operators_have_pytorchs_marks(tg: Any) -> None:
    """More overloads are marked as pointwise here: PyTorch leaves many that write into tensors out."""
    exact = {"pt2_compliant_tag", "out", "inplace", "inplace_view", "nondeterministic_seeded", "data_dependent_output"}
    pairs = []
    for name in aten.names():
        for overload in getattr(tg.ops.aten, name).overloads() if aten.function_of(name) is not None else ():
            theirs = getattr(getattr(torch.ops.aten, name), overload, None)
            ours = getattr(getattr(tg.ops.aten, name), overload)
            takes_tensors = any(str(argument.type).find("Tensor") >= 0 for argument in ours._schema.arguments)
            if theirs is not None and takes_tensors and "hacked_twin" not in overload:
                pairs.append((name, overload, _marks(ours), _marks(theirs)))
    assert len(pairs) > 2000
    of_numbers = {("copy_", "Tensor"), ("copy_", "int"), ("copy_", "float")}
    assert [p for p in pairs if p[2] & exact != p[3] & exact and p[:2] not in of_numbers] == []
    shaped = [p[:2] for p in pairs if ("dynamic_output_shape" in p[2]) != ("dynamic_output_shape" in p[3])]
    assert [(name, overload) for name, overload in shaped if "out" not in overload] == [
        ("index", "list_Tensor"), ("repeat_interleave", "self_Tensor"), ("repeat_interleave", "self_int"),
    ]  # fmt: skip
    for mark in ("pointwise", "reduction"):
        known = {p[0].removesuffix("_") for p in pairs if mark in p[3]}
        assert {p[0] for p in pairs if mark in p[3] and mark not in p[2]} <= {"equal", "linalg__powsum"}
        assert {p[0].removesuffix("_") for p in pairs if mark in p[2]} - known <= UNMARKED
