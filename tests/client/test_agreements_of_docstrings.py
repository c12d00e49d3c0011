"""What the examples in PyTorch's docstrings show."""

from __future__ import annotations

import gc
import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode as TheirFakeTensorMode
from torch.nn.attention.flex_attention import FlexKernelOptions as TheirFlexKernelOptions

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._programs.absent import reason
from telegrad.nn.attention.flex_attention import FlexKernelOptions

from .twins import assert_same, evaluate

OPERANDS = """
plain = t.tensor(values)
leaf = t.tensor(values, requires_grad=True)
node = t.tensor(values, requires_grad=True) * 2
"""
ARRAYS = [
    f"t.asarray({operand}{options})"
    for operand in ("plain", "leaf", "node")
    for options in ("", ", requires_grad=True", ", requires_grad=False", ", copy=True", ", dtype=t.float64")
]


@pytest.mark.parametrize("call", ARRAYS)
def test_asarray_keeps_the_history_of_a_tensor(call: str, tg: Any, rng: np.random.Generator) -> None:
    values = rng.normal(size=3).astype(np.float32)
    assert_same(*evaluate(f"{OPERANDS}made = {call}\nmade, made is leaf, plain, leaf, node", tg, values=values))


SHAPES = [(2, 3, 4, 5), (1, 2, 3, 4), (2, 1, 3, 4), (5, 1, 3), (2, 0, 1), ()]
CHECKS = ["False", "True", "[]", "[t.contiguous_format, t.channels_last]", "3"]


@pytest.mark.parametrize("shape", SHAPES)
def test_orders_of_dimensions_are_refused_where_sizes_leave_them_open(
    shape: tuple[int, ...], tg: Any, rng: np.random.Generator
) -> None:
    order = tuple(map(int, rng.permutation(len(shape))))
    for check in CHECKS:
        assert_same(*evaluate(f"t.empty({shape}).permute({order}).dim_order(ambiguity_check={check})", tg))


@pytest.mark.parametrize("check", [False, True])
def test_repeated_elements_leave_orders_of_dimensions_open(check: bool, tg: Any) -> None:
    for made in ("t.empty(2, 4).expand(3, 2, 4)", "t.empty(2, 1, 3).expand(2, 4, 3)", "t.empty(()).expand(2)"):
        assert_same(*evaluate(f"{made}.dim_order(ambiguity_check={check})", tg))


def test_unpadded_sequences_are_copies(tg: Any, rng: np.random.Generator) -> None:
    padded = rng.normal(size=(4, 3, 2)).astype(np.float32)
    program = "x = t.tensor(padded)\nmade = t.nn.utils.rnn.unpad_sequence(x, t.tensor([4, 1, 3]))\nx.zero_()\nmade"
    assert_same(*evaluate(program, tg, padded=padded))


CALLS = [
    "t.dot(input=x, tensor=y)", "t.dot(tensor=y, input=x)", "x.dot(tensor=y)", "t.vdot(input=x, other=y)",
    "t.norm(x, 'fro', None, False, None, None)", "t.norm(x, 2, 0, True, None)", "t.norm(x, 1, 0, False, t.empty(()))",
    "x.norm(2, 0, True, t.float64)", "t.norm(x, 2, 0, False, None, t.float64)", "t.poisson(x * 0, None)",
    "t.poisson(x * 0, t.Generator())", "x.hash_tensor()", "x.hash_tensor(0, keepdim=True)",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_arguments_have_pytorchs_names_and_places(call: str, tg: Any, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 4)).astype(np.float32)
    assert_same(*evaluate(f"x, y = t.tensor(x), t.tensor(y)\n{call}", tg, x=x, y=y))


SIZES = [((1, 3, 3), (2, 3, 3)), ((5, 1, 4, 3), (1, 2, 4, 2)), ((1, 4, 3), (2, 4)), ((2, 4, 3), (1, 4, 2))]


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd"])
@pytest.mark.parametrize(("matrices", "sides"), SIZES)
def test_ranks_of_least_squares_are_those_of_the_matrices(
    matrices: tuple[int, ...], sides: tuple[int, ...], driver: str, tg: Any, rng: np.random.Generator
) -> None:
    a, b = rng.normal(size=matrices), rng.normal(size=sides)
    assert_same(*evaluate(f"tuple(t.linalg.lstsq(t.tensor(a), t.tensor(b), driver='{driver}'))", tg, a=a, b=b))


NODES = [
    "t.deg2rad(x)", "t.rad2deg(x)", "t.msort(x)", "t.kron(x, x)", "t.special.softmax(x, 0)", "t.copysign(x, 1)",
    "t.copysign(x, x)", "t.special.log_softmax(x, 0)", "t.linalg.cholesky(x @ x.mT + 9 * t.eye(2))",
    "t.linalg.solve(x, x)",
]  # fmt: skip


@pytest.mark.parametrize("call", NODES)
def test_results_name_the_functions_that_they_are_differentiated_by(
    call: str, tg: Any, rng: np.random.Generator
) -> None:
    values = rng.normal(size=(2, 2)).astype(np.float32)
    ours, theirs = evaluate(f"x = t.tensor(values, requires_grad=True)\n({call}).grad_fn.name()", tg, values=values)
    assert ours == theirs


@pytest.mark.parametrize("data", [2.0, [1, 2.0], np.ones(3), np.ones(3, np.int32)])
def test_data_of_the_program_are_fake_in_a_fake_mode(data: Any, tg: Any) -> None:
    modes = {tg: FakeTensorMode, torch: TheirFakeTensorMode}

    def shown(framework: Any) -> str:
        with modes[framework]():
            return repr((framework.tensor(data), framework.as_tensor(data).to(framework.float64)))

    assert shown(tg) == shown(torch)


def test_kernels_of_a_library_end_with_its_last_reference(tg: Any) -> None:
    library = tg.library.Library("ended", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    assert tg.ops.ended.double(tg.ones(1)).item() == 2
    gc.disable()
    try:
        del library
        with pytest.raises(AttributeError):
            tg.ops.ended.double(tg.ones(1))
    finally:
        gc.enable()


def test_rules_for_batches_are_registered_without_a_result(tg: Any) -> None:
    cube = tg.library.custom_op("batched::cube", lambda x: x**3, mutates_args=(), schema="(Tensor x) -> Tensor")
    assert cube.register_vmap(lambda info, dims, x: (x**3, dims[0])) is None


def test_overrides_for_tests_have_bare_parameters(tg: Any) -> None:
    override = tg.overrides.get_testing_overrides()[tg.add]
    assert "->" not in str(inspect.signature(override)) and ":" not in str(inspect.signature(override))
    assert override(1, 2) == -1
    assert tg.Tensor.as_subclass in tg.overrides.get_ignored_functions()


@pytest.mark.parametrize("reduce", ["max", "min", "amax", "prod"])
def test_products_of_rows_reduce_by_both_names(reduce: str, tg: Any, rng: np.random.Generator) -> None:
    left, right = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    program = f"t.sparse.mm(t.tensor(left).to_sparse_csr(), t.tensor(right), {reduce!r})"
    assert_same(*evaluate(program, tg, left=left, right=right))


def test_leaf_functions_are_called_as_they_are(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from telegrad.compiler.dynamo import leaf_function
    from telegrad.compiler.dynamo_parts import debug_log

    seen: list[Any] = []
    logged: list[str] = []
    monkeypatch.setattr(debug_log._log, "info", lambda text, *given: logged.append(text % given))

    @leaf_function(mutates_args=set())
    def doubled(x: Any) -> Any:
        seen.append(x.tolist())
        return (x * 2,)

    with pytest.raises(ValueError, match="requires a fake implementation"):
        doubled(tg.ones(2))
    doubled.register_fake(lambda x: (x.new_empty(x.shape),))
    doubled.register_multi_grad_hook(lambda *gradients: seen.append([gradient.tolist() for gradient in gradients]))
    x = tg.ones(2, requires_grad=True)
    result = tg.compile(lambda x: doubled(x * 3)[0] + 1, fullgraph=True)(x)
    debug_log.debug_grad_log(x, tg.ones(1))
    result.sum().backward()
    assert result.tolist() == [7, 7] and x.grad.tolist() == [6, 6] and seen == [[3, 3], [[2, 2]]]
    assert logged == ["[rank 0][bwd] t0_grad_norm=8.4853"]


def test_names_of_docstrings_are_there(tg: Any) -> None:
    assert tg.random.thread_safe_generator() is torch.random.thread_safe_generator() is None
    assert FlexKernelOptions(BLOCK_M=64) == TheirFlexKernelOptions(BLOCK_M=64)


def test_what_docstrings_have_of_quantisation_is_told_what_to_use_instead() -> None:
    for name in ("quantize_per_tensor", "quantized_max_pool1d", "Tensor.quantize_per_channel"):
        assert "half precision" in reason(name, ["native_batch_norm"])
    assert "map_location" in reason("serialization.skip_data")


GRADIENTS = [
    (of, given) for of in ("float32", "float64", "bfloat16", "complex64") for given in ("float32", "int64", "bool")
]


@pytest.mark.parametrize(
    "way", ["t.autograd.grad(y, x, g)[0].clone()", "t.autograd.grad(y, y, g)", "y.backward(g), x.grad.clone()"]
)
@pytest.mark.parametrize(("of", "given"), [*GRADIENTS, ("float32", "complex64"), ("complex64", "complex128")])
def test_passes_begin_with_gradients_of_the_type_of_the_result(
    of: str, given: str, way: str, tg: Any, rng: np.random.Generator
) -> None:
    values, gradient = rng.normal(size=2).astype(np.float32), rng.normal(size=2) * 3
    program = (
        f"x = t.tensor(values, requires_grad=True)\ny = x.to(t.{of}) * 2\ng = t.tensor(gradient).to(t.{given})\n{way}"
    )
    assert_same(*evaluate(program, tg, values=values, gradient=gradient))


def test_convolutions_under_autocast_begin_with_gradients_of_another_type(tg: Any, rng: np.random.Generator) -> None:
    x, weight = rng.normal(size=(1, 1, 5)).astype(np.float32), rng.normal(size=(1, 1, 3)).astype(np.float32)
    program = """
x, weight = t.tensor(x, requires_grad=True), t.tensor(weight)
with t.autocast("cpu", dtype=t.bfloat16):
    y = t.nn.functional.conv1d(x, weight)
t.autograd.grad(y, x, t.ones(1, 1, 3))
"""
    assert_same(*evaluate(program, tg, x=x, weight=weight))


@pytest.mark.parametrize("layer", ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"])
@pytest.mark.parametrize("given", ["x", "x.bfloat16()"])
def test_recurrent_layers_under_autocast_have_results_of_pytorchs_types(
    layer: str, given: str, tg: Any, rng: np.random.Generator
) -> None:
    x = rng.normal(size=(2, 5) if layer.endswith("Cell") else (3, 2, 5)).astype(np.float32)
    program = f"""
x, layer = t.tensor(x), t.nn.{layer}(5, 4)
with t.autocast("cpu", dtype=t.bfloat16):
    made = layer({given})
parts = t.utils._pytree.tree_leaves(made)
[str(part.dtype).replace(t.__name__, "") for part in parts], [part.shape for part in parts]
"""
    ours, theirs = evaluate(program, tg, x=x)
    assert_same(ours, theirs)
