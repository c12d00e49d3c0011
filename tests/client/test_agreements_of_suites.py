"""What PyTorch's own tests and the examples of its documentation ask for: values, and types of errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .twins import assert_same, evaluate

TESTED = [
    f"t.{name}({operand}, dim={dim}, keepdim={keepdim})"
    for name in ("any", "all")
    for operand in ("x", "x.to(t.uint8)", "x.to(t.complex64)", "x.T", "x > 0", "x[0, 0]", "x[:0]")
    for dim in ("()", "[]")
    for keepdim in (False, True)
]


@pytest.mark.parametrize("call", TESTED)
def test_each_element_is_tested_where_no_dimension_is_named(call: str, tg: Any, rng: np.random.Generator) -> None:
    values = rng.integers(0, 3, (3, 4)).astype(np.float32)
    assert_same(*evaluate(f"x = t.tensor(values)\n{call}", tg, values=values))


POSITIONS = [
    "t.repeat_interleave(counts)", "t.repeat_interleave(repeats=counts)", "t.repeat_interleave(counts.to(t.int32))",
    "t.repeat_interleave(counts, output_size=int(counts.sum()))", "t.repeat_interleave(counts, output_size=1000)",
    "t.repeat_interleave(counts - 4)", "t.repeat_interleave(counts[0])", "t.repeat_interleave(counts[:, None])",
    "t.repeat_interleave(counts.float())", "t.arange(5).repeat_interleave(counts)",
    "t.vmap(lambda x: x.repeat_interleave(counts))(t.arange(10.0).reshape(2, 5))",
    "t.vmap(lambda x: x.repeat_interleave(2))(t.arange(10.0).reshape(2, 5))",
    "t.arange(5).repeat_interleave(counts, output_size=1000)",
]  # fmt: skip


@pytest.mark.parametrize("call", POSITIONS)
def test_counts_alone_repeat_their_positions(call: str, tg: Any, rng: np.random.Generator) -> None:
    counts = rng.integers(0, 4, 5)
    assert_same(*evaluate(f"counts = t.tensor(counts)\n{call}.clone()", tg, counts=counts))


HOOKED = """
x = t.tensor([1.0, 2.0], requires_grad=True)
x.{register}({hook})
(x * 3).sum().backward()
(x, x.grad)
"""
HOOKS = [
    ("register_post_accumulate_grad_hook", "lambda p: p.data and None if 0 else p"),
    ("register_post_accumulate_grad_hook", "lambda p: p.add_(p.grad, alpha=-0.5)"),
    ("register_post_accumulate_grad_hook", "lambda p: p.grad"),
    ("register_post_accumulate_grad_hook", "lambda p: 3"),
    ("register_hook", "lambda g: g.double()"), ("register_hook", "lambda g: g[:1]"),
    ("register_hook", "lambda g: g + 1"),
]  # fmt: skip


@pytest.mark.parametrize(("register", "hook"), HOOKS)
def test_hooks_return_what_pytorch_takes(register: str, hook: str, tg: Any) -> None:
    assert_same(*evaluate(HOOKED.format(register=register, hook=hook), tg))


@pytest.mark.parametrize("hook", ["lambda g: g.double()", "lambda g: g[:1]"])
def test_a_hook_that_changes_a_gradients_kind_is_named(hook: str, tg: Any) -> None:
    program = f"named = {hook}\nnamed.__name__ = 'halves'\n{HOOKED.format(register='register_hook', hook='named')}"
    ours, theirs = evaluate(program, tg)
    assert str(theirs) in str(ours).replace("telegrad.", "torch.")


LOOKED_FOR = [
    "t.is_anomaly_check_nan_enabled()", "[t.autograd.set_detect_anomaly(False), t.is_anomaly_check_nan_enabled()][1]",
    "[t.autograd.set_detect_anomaly(False, False), t.is_anomaly_check_nan_enabled()][1]",
]  # fmt: skip


@pytest.mark.parametrize("call", LOOKED_FOR)
def test_anomaly_mode_says_whether_it_would_look_for_nan(call: str, tg: Any) -> None:
    assert_same(*evaluate(f"result = {call}\nt.autograd.set_detect_anomaly(False)\nresult", tg))


CUMULATIVE = [
    "Normal(0.0, 1.0)", "Uniform(0.0, 1.0)", "Exponential(1.0)", "Laplace(0.0, 1.0)", "Cauchy(0.0, 1.0)",
    "Gamma(1.0, 1.0)", "Chi2(2.0)", "HalfNormal(1.0)", "HalfCauchy(1.0)", "ContinuousBernoulli(0.3)",
    "Weibull(1.0, 2.0)", "Pareto(1.0, 2.0)", "LogNormal(0.0, 1.0)", "GeneralizedPareto(0.0, 1.0, 0.1)",
]  # fmt: skip


CAUGHT = """
try:
    result = {call}
except ValueError:
    result = "refused"
result
"""


@pytest.mark.parametrize("value", ["-1.0", "0.5", "math.nan"])
@pytest.mark.parametrize("distribution", CUMULATIVE)
def test_cumulative_probabilities_are_those_of_values_that_can_be(distribution: str, value: str, tg: Any) -> None:
    program = CAUGHT.format(call=f"t.distributions.{distribution}.cdf(t.tensor({value})).item()")
    ours, theirs = evaluate(program, tg)
    assert ours == (theirs if theirs == "refused" else pytest.approx(theirs, rel=1e-5))


@pytest.mark.parametrize("variance", ["-1.0", "t.tensor([1.0, -1.0])", "0.0", "2.0", "t.tensor([0.0, 2.0])"])
def test_variances_that_are_negative_are_refused_where_that_is_caught(variance: str, tg: Any) -> None:
    call = f"t.nn.functional.gaussian_nll_loss(t.ones(2), t.zeros(2), {variance}).item()"
    ours, theirs = evaluate(CAUGHT.format(call=call), tg)
    assert ours == (theirs if theirs == "refused" else pytest.approx(theirs, rel=1e-5))


FUNCTIONAL = "F = t.nn.functional\nq = t.ones(2, 1, 4)\nM = t.nn.MultiheadAttention(4, 2)\n"
ASSERTED = [
    "t.nn.MultiheadAttention(5, 2)", "t.nn.Embedding(3, 2, 5)", "t.nn.Embedding(3, 2, -5)",
    "t.nn.EmbeddingBag(3, 2, padding_idx=7)", "t.nn.Embedding.from_pretrained(t.ones(3))",
    "t.nn.EmbeddingBag.from_pretrained(t.ones(3))", "t.nn.Embedding(2, 3, _weight=t.ones(3, 3))",
    "F.embedding(t.tensor([0]), t.ones(3, 2), 9)", "t.nn.Hardtanh(1, -1)", "M(q, q[0], q[0])",
    "M(q, q, t.ones(3, 1, 4))", "M(q, q, q, key_padding_mask=t.ones(2, 2))", "M(q[0], q[0], q[0], t.ones(2))",
    "F.multi_head_attention_forward(q, q, q, 3, 1, None, None, None, None, False, 0.0, None, None)",
    "t.nn.Sequential(t.nn.ReLU()).insert(0, 1)",
    "t.utils.data.TensorDataset(t.ones(2), t.ones(3))", "t.utils.data.ConcatDataset([])",
    "t.utils.data.ConcatDataset([t.utils.data.ChainDataset([])])",
]  # fmt: skip


@pytest.mark.parametrize("call", ASSERTED)
def test_what_pytorch_asserts_is_an_assertion_error(call: str, tg: Any) -> None:
    ours, theirs = evaluate(f"{FUNCTIONAL}{call}", tg)
    assert isinstance(theirs, AssertionError) and isinstance(ours, (tg.TelegradError, AssertionError))
    assert isinstance(ours, AssertionError)


@pytest.mark.parametrize("layout", ["(2, 3)", "(3, 2)"])
@pytest.mark.parametrize("is_batch_first", [True, False])
def test_a_mask_of_keys_has_a_row_for_each_sample(layout: str, is_batch_first: bool, tg: Any) -> None:
    program = f"""
    attention = t.nn.MultiheadAttention(4, 2, batch_first={is_batch_first})
    keys = t.ones(2, 3, 4) if {is_batch_first} else t.ones(3, 2, 4)
    attention(keys, keys, keys, key_padding_mask=t.zeros({layout}, dtype=t.bool))[0].shape
    """
    ours, theirs = evaluate(program, tg)
    assert isinstance(ours, AssertionError) if isinstance(theirs, Exception) else tuple(ours) == tuple(theirs)


REFUSED = {
    "t.tril_indices(-1, 2)": RuntimeError,
    "t.triu_indices(2, -2)": RuntimeError,
    "t.nn.Sequential(t.nn.ReLU()).insert(5, t.nn.ReLU())": IndexError,
    "t.nn.Unflatten(0, 3)": TypeError,
    "t.nn.Bilinear(0, 1, 1)": ValueError,
    "t.nn.init.eye_(t.ones(3))": ValueError,
    "t.nn.init.calculate_gain('leaky_relu', 'a')": ValueError,
    "t.nn.utils.vector_to_parameters([1], [t.ones(1)])": TypeError,
    "F.interpolate(t.ones(3, 5), 2)": NotImplementedError,
    "setattr(t.utils.data.DataLoader([1]), 'batch_size', 3)": ValueError,
    "setattr(t.utils.data.DataLoader([1]), 'sampler', [0])": ValueError,
    "(t.ones(1, requires_grad=True) * 2).grad_dtype": RuntimeError,
    "setattr(t.ones(1), 'grad_dtype', 3)": RuntimeError,
}


@pytest.mark.parametrize(("call", "kind"), REFUSED.items())
def test_mistakes_are_refused_with_pytorchs_types(call: str, kind: type[Exception], tg: Any) -> None:
    ours, theirs = evaluate(f"{FUNCTIONAL}{call}", tg)
    assert type(theirs) is kind
    assert isinstance(ours, kind), repr(ours)


def test_a_real_tensor_is_its_own_real_part(tg: Any) -> None:
    real, numbers = tg.ones(2, requires_grad=True), tg.ones(2, dtype=tg.complex64)
    assert real.real is real
    assert numbers.real is not numbers and numbers.real.dtype is tg.float32


def test_a_leaf_says_the_type_of_its_gradient(tg: Any) -> None:
    leaf = tg.ones(2, dtype=tg.float64, requires_grad=True)
    leaf.grad_dtype = tg.float64
    assert leaf.grad_dtype is tg.float64
    with pytest.raises(tg.errors.NotSupportedError, match=r"convert \.grad"):
        leaf.grad_dtype = tg.float16


@pytest.mark.parametrize("name", ["_foreach_copy", "_foreach_zero"])
def test_operators_without_a_function_are_no_names_of_torch(name: str) -> None:
    from telegrad._programs.private import top_level

    assert not hasattr(torch, name) and not hasattr(top_level, name)
    assert getattr(top_level, f"{name}_")


NUMBERS = [
    "t.ones(2, 3).copy_(1.5)", "t.ones(2, dtype=t.int32).copy_(-1.5)", "t.ones(2).copy_(True)",
    "t.ones(2).copy_(2 + 1j)",
    "t.ones(2, dtype=t.uint8).copy_(300)", "t.ones(2, dtype=t.complex64).copy_(1j)", "t.ones(3, 2).T.copy_(7)",
    "t.ones(2).copy_('a')", "t.ones(2).copy_([1, 2])", "t.ones(2, requires_grad=True).copy_(3)",
    "t.ones(2, dtype=t.bool).copy_(0.5)", "t.ones(2, dtype=t.bfloat16).copy_(0.1)", "t.ones(0).copy_(1)",
]  # fmt: skip


@pytest.mark.parametrize("call", NUMBERS)
def test_a_number_is_copied_into_all_elements(call: str, tg: Any) -> None:
    assert_same(*evaluate(call, tg))


def test_a_copied_number_ends_the_gradient(tg: Any) -> None:
    program = "x = t.ones(3, requires_grad=True)\ny = x * 2\ny[:2].copy_(5.0)\n(y * y).sum().backward()\n(y, x.grad)"
    assert_same(*evaluate(program, tg))


RANGES = [
    "t.zeros(9, dtype=t.uint8).random_(0, 256)", "t.zeros(9, dtype=t.uint8).random_(0, 257)",
    "t.zeros(9, dtype=t.uint8).random_(-1, 5)", "t.zeros(9, dtype=t.int8).random_(129)",
    "t.zeros(9, dtype=t.bool).random_(0, 3)", "t.zeros(9, dtype=t.bool).random_(0, 2)",
    "t.zeros(9, dtype=t.float16).random_(0, 70000)", "t.zeros(9, dtype=t.float16).random_(0, 2000)",
    "t.zeros(9, dtype=t.int16).random_(-(2**20), 2)", "t.zeros(9, dtype=t.int64).random_(-(2**63), 2**63 - 1)",
    "t.zeros(9).random_(2**20)",
]  # fmt: skip


@pytest.mark.parametrize("call", RANGES)
def test_integers_are_drawn_from_what_the_type_holds(call: str, tg: Any) -> None:
    ours, theirs = evaluate(call, tg)
    assert_same(*(x if isinstance(x, Exception) else x.dtype for x in (ours, theirs)))


MISTAKEN = {
    "t.ones(2).type_as(1)": TypeError, "t.set_rng_state(t.zeros(3))": TypeError,
    "t.ones(3).put_(t.tensor([0]), t.ones(2))": IndexError,
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind"), MISTAKEN.items())
def test_mistaken_operands_are_refused_with_pytorchs_types(call: str, kind: type[Exception], tg: Any) -> None:
    ours, theirs = evaluate(call, tg)
    assert type(theirs) is kind
    assert isinstance(ours, kind), repr(ours)


OF_FUNCTIONS = "f = __import__('importlib').import_module(t.__name__ + '.func')\nx = t.arange(3.0)\n"
TRANSFORMED = [
    "f.grad(lambda x: (x.sum(), x))(x)", "f.grad(lambda x: x.sum().item())(x)", "f.grad(lambda x: x.sum())(3.0)",
    "f.grad(lambda x: x.sum(), argnums='a')(x)", "f.grad(lambda x: x.sum(), argnums=())(x)",
    "f.grad(lambda x: x.sum(), argnums=(0, 'a'))(x)", "f.jacrev(lambda x: x, chunk_size=0)(x)",
    "f.jacrev(lambda x: 3)(x)", "f.jacrev(lambda x: x)(3.0)", "f.vjp(lambda x: 3, x)", "f.jvp(lambda x: 3, (x,), (x,))",
    "f.jvp(lambda x: x, (3.0,), (x,))", "f.jvp(lambda x: x, (x,), (3.0,))", "f.jacfwd(lambda x: 3)(x)",
    "f.hessian(lambda x: 3)(x)", "f.vmap(lambda x: x, out_dims=5)(x)", "f.functional_call(t.nn.ReLU(), 3, x)",
    "f.functional_call(t.nn.ReLU(), [3], x)", "f.functional_call(t.nn.ReLU(), x, x)",
]  # fmt: skip


@pytest.mark.parametrize("call", TRANSFORMED)
def test_transforms_refuse_with_pytorchs_types(call: str, tg: Any) -> None:
    ours, theirs = evaluate(f"{OF_FUNCTIONS}{call}", tg)
    assert isinstance(theirs, (RuntimeError, ValueError, IndexError))
    assert isinstance(ours, type(theirs)) and isinstance(ours, tg.TelegradError), repr(ours)


STATES = [
    ((1, 2), (2, 3)), ((2, 2), (1, 3)), ((2,), (1, 3)), ((1, 2), (3,)), ((1, 2), (1, 4)), ((2,), (4,)),
    ((2, 2), (2, 3)), ((2,), (3,)), ((1, 2), (1, 1, 3)),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
@pytest.mark.parametrize(("given", "state"), STATES)
def test_cells_take_a_state_for_each_sample(kind: str, given: tuple[int, ...], state: tuple[int, ...], tg: Any) -> None:
    states = f"(t.ones({state}), t.ones({state}))" if kind == "LSTMCell" else f"t.ones({state})"
    shape = "[0].shape" if kind == "LSTMCell" else ".shape"
    ours, theirs = evaluate(f"t.nn.{kind}(2, 3)(t.ones({given}), {states}){shape}", tg)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)) and isinstance(ours, tg.TelegradError), repr(ours)
    else:
        assert tuple(ours) == tuple(theirs)


@pytest.mark.parametrize("cell", ["(1, 3)", "(2, 4)", "(3,)"])
def test_both_states_of_a_cell_are_for_each_sample(cell: str, tg: Any) -> None:
    ours, theirs = evaluate(f"t.nn.LSTMCell(2, 3)(t.ones(2, 2), (t.ones(2, 3), t.ones({cell})))", tg)
    assert isinstance(theirs, RuntimeError) and isinstance(ours, RuntimeError)


MASKED = [
    "q, q, q, attn_mask=t.zeros(2, 3, 3)", "q, q, q, attn_mask=t.zeros(4, 3, 3)", "q, q, q, attn_mask=t.zeros(3)",
    "q, q, q, attn_mask=t.zeros(3, 1)", "q, q, q, attn_mask=t.zeros(1, 3)", "q, q, q, attn_mask=t.zeros(3, 3)",
    "q, q[:1], q[:1]", "q[0], q[0], q[0], attn_mask=t.zeros(1, 3, 3)", "q[0], q[0], q[0], attn_mask=t.zeros(2, 3, 3)",
    "q, q[:, :2], q[:, :2], attn_mask=t.zeros(3, 2)", "q, q[:, :2], q[:, :2], attn_mask=t.zeros(2, 3)",
]  # fmt: skip


@pytest.mark.parametrize("options", ["", ", add_zero_attn=True"])
@pytest.mark.parametrize("call", MASKED)
def test_masks_and_keys_of_attention_are_for_each_sample(call: str, options: str, tg: Any) -> None:
    attention = f"t.nn.MultiheadAttention(4, 2, batch_first=True{options})"
    ours, theirs = evaluate(f"q = t.ones(2, 3, 4)\n{attention}({call})[0].shape", tg)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)) and isinstance(ours, tg.TelegradError), repr(ours)
    else:
        assert tuple(ours) == tuple(theirs)


ROBUST = ["smooth_l1_loss(x, y, beta=d)", "huber_loss(x, y, delta=d)"]


@pytest.mark.parametrize("loss", ROBUST)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_second_derivatives_end_where_a_loss_becomes_linear(
    loss: str, dtype: str, tg: Any, rng: np.random.Generator
) -> None:
    program = f"""
    x = t.tensor(differences * d, dtype=t.{dtype}, requires_grad=True)
    y = t.zeros_like(x, requires_grad=True)
    once = t.autograd.grad((t.nn.functional.{loss} * x.detach().cos()).sum(), (x, y), create_graph=True)
    [once, [t.autograd.grad(g.sum(), (x, y), retain_graph=True) for g in once]]
    """.replace(", beta", ", reduction='none', beta").replace(", delta", ", reduction='none', delta")
    beyond = rng.normal(size=5)
    differences = np.array([-1.0, -0.5, 0.0, 0.5, 1.0, -2.0, 2.0, *beyond])
    assert_same(*evaluate(program, tg, differences=differences, d=float(rng.choice([0.25, 0.5, 1.0, 2.0]))))


KINDS = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sought", KINDS)
def test_rows_are_searched_in_the_type_that_both_have_in_common(
    sought: str, kind: str, tg: Any, rng: np.random.Generator
) -> None:
    ties = np.sort(rng.choice(60, 9, replace=False)) / 10.0  # some of which no type holds exactly
    program = f"""
    rows, x = t.tensor(ties, dtype=t.float64).to(t.{kind}), t.tensor(ties[2:]).to(t.{sought})
    both = [t.searchsorted(rows, x, right=right) for right in (False, True)]
    single = x if rows.dtype.itemsize > 2 or x.dtype is rows.dtype else x[:0]  # halves are compared as float32
    each = [t.searchsorted(rows, one, side="right").item() for one in single]
    wide = t.searchsorted(rows.expand(2, -1).contiguous(), x.expand(2, -1).contiguous())
    both, each, wide, [t.bucketize(one, rows, right=True).item() for one in single], t.bucketize(x, rows)
    """
    assert_same(*evaluate(program, tg, ties=ties))


KINDS = ("float", "complex", "int", "bool", "str", "object", "t.float32", "'float32'")
OF_KINDS = ["t.finfo({}).dtype", "t.iinfo({}).max", "t.promote_types(t.int8, {})", "t.promote_types({}, t.float16)"] + [
    "t.can_cast({}, t.int8)", "t.can_cast(t.float16, {})", "t.ones(2, 4).view({})", "t.ones(2, 3).view({}).dtype",
    "t.frombuffer(bytearray(16), dtype={})", "t.nn.Linear(2, 2).to(dtype={}).weight.dtype",
    "t.nn.Linear(2, 2).to({}).weight.dtype",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Complex modules")
@pytest.mark.parametrize("call", OF_KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_types_of_python_name_types_of_elements(call: str, kind: str, tg: Any) -> None:
    assert_same(*evaluate(call.format(kind), tg))
