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


@pytest.mark.parametrize("call", ["reversed(t.arange(6).reshape(3, 2))", "reversed(t.tensor(2.0))"])
def test_tensors_are_reversed_along_their_first_dimension(call: str, tg: Any) -> None:
    assert_same(*evaluate(call, tg))


SCHEDULES = [
    "LinearLR(o, 0.1, 1.0, 3)", "LinearLR(o, 1 / 3, 0.7, 7)", "LinearLR(o, 0.25, 0.5, 5)", "PolynomialLR(o, 7, 1.7)",
    "CyclicLR(o, 0.01, 0.3, 3, mode='exp_range', gamma=0.97)", "CyclicLR(o, 0.01, 0.3, 3, 4, mode='triangular2')",
    "OneCycleLR(o, 0.5, total_steps=15)", "OneCycleLR(o, 0.5, total_steps=15, three_phase=True)",
    "CosineAnnealingWarmRestarts(o, 3, 2, 0.01)", "ExponentialLR(o, 0.93)",
]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_round_as_pytorch_does_and_have_its_state(schedule: str, tg: Any) -> None:
    program = f"""
    o = t.optim.SGD([t.nn.Parameter(t.ones(2))], lr=0.1, momentum=0.9)
    schedule = t.optim.lr_scheduler.{schedule}
    seen = []
    for step in range(12):
        o.step()
        schedule.step()
        seen.append((schedule.get_last_lr()[0], o.param_groups[0]["momentum"]))
    repr(seen), repr(sorted(schedule.state_dict().items()))
    """
    assert_same(*evaluate(program, tg))


def test_iterators_of_loaders_have_the_length_of_the_loader(tg: Any) -> None:
    program = """
    D = __import__("importlib").import_module(t.__name__ + ".utils.data")
    batches = iter(D.DataLoader(D.TensorDataset(t.arange(5)), 2))
    len(batches), [batch[0] for batch in batches], type(batches).__name__
    """
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": [0], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified"),
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
    ],
)
def test_loaders_refuse_options_in_words_that_programs_look_for(options: Any, words: str, tg: Any) -> None:
    with pytest.raises(ValueError, match=words):
        tg.utils.data.DataLoader([1, 2], **options)


def test_distributions_check_no_parameter_once_they_are_told_so(tg: Any) -> None:
    normal, before = tg.distributions.Normal, tg.distributions.Distribution._validate_args
    try:
        tg.distributions.Distribution.set_default_validate_args(False)
        assert normal(0.0, -1.0).scale.item() == -1.0
        with pytest.raises(ValueError, match="GreaterThan"):
            normal(0.0, -1.0, validate_args=True)
    finally:
        tg.distributions.Distribution._validate_args = before
    with pytest.raises(ValueError, match="GreaterThan"):
        normal(0.0, -1.0)


def test_a_module_names_the_type_of_the_tensor_that_it_refuses(tg: Any) -> None:
    program = """
    layer = t.nn.Linear(1, 1)
    try:
        layer.weight = t.ones(1, dtype=t.float64)
    except TypeError as error:
        text = str(error)
    text.split(" as ")[0].replace("telegrad", "torch")
    """
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_the_state_of_a_schedule_of_averaged_weights_can_be_saved(strategy: str, tg: Any) -> None:
    program = f"""
    U = __import__("importlib").import_module(t.__name__ + ".optim.swa_utils")
    o = t.optim.SGD([t.nn.Parameter(t.ones(2))], lr=0.1)
    schedule = U.SWALR(o, 0.03, 5, "{strategy}")
    o.step()
    schedule.step()
    file = __import__("io").BytesIO()
    t.save(schedule.state_dict(), file)
    file.seek(0)
    repr(sorted(t.load(file, weights_only=True).items()))
    """
    assert_same(*evaluate(program, tg))


def test_a_class_makes_its_elements_in_new_and_keeps_what_its_init_is_given(tg: Any) -> None:
    program = """
    class Tagged(t.Tensor):
        @staticmethod
        def __new__(cls, elements, tag=""):
            return super().__new__(cls, elements)
        def __init__(self, elements, tag=""):
            self.tag = tag
    tagged = Tagged([1.0, 2.0], "seen")
    plain = tagged.as_subclass(t.Tensor)
    type(tagged).__name__, tagged.tag, plain, type(tagged + 1).__name__, type(tagged.clone()[0]).__name__
    """
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area", "bilinear", "bicubic"])
def test_an_image_of_the_same_size_is_a_copy(tg: Any, rng: np.random.Generator, mode: str) -> None:
    pixels = rng.standard_normal((1, 2, 5, 6))
    image = tg.tensor(pixels)
    same = tg.nn.functional.interpolate(image, scale_factor=1, mode=mode)
    image.zero_()
    np.testing.assert_allclose(same.numpy(), pixels, rtol=1e-12)


@pytest.mark.parametrize("count", ["2**70", "2**31", "-1", "0", "'a'", "1.0", "True"])
@pytest.mark.parametrize("name", ["set_num_threads", "set_num_interop_threads"])
def test_numbers_of_threads_are_refused_at_once(tg: Any, name: str, count: str) -> None:
    ours, theirs = evaluate(f"t.{name}({count})", tg)
    assert isinstance(theirs, (RuntimeError, ValueError))
    assert isinstance(ours, ValueError)
    assert tg.ones(2).sum().item() == 2


REFUSED = [
    ("t.is_nonzero(t.ones(0))", "Boolean value of Tensor with no values is ambiguous"),
    ("t.is_nonzero(t.ones(2))", "Boolean value of Tensor with more than one value is ambiguous"),
    ("t.use_deterministic_algorithms(1)", "argument 'mode' (position 1) must be bool, not int"),
    ("t.use_deterministic_algorithms(True, warn_only=1)", "argument 'warn_only' must be bool, not int"),
    ("t.ones(2).as_subclass(dict)", "Creating a Tensor subclass from a class that does not inherit from Tensor is not"),
]


@pytest.mark.parametrize(("program", "words"), REFUSED)
def test_small_mistakes_are_refused_in_pytorchs_words(tg: Any, program: str, words: str) -> None:
    ours, theirs = evaluate(program, tg)
    assert words in str(theirs)
    assert words.replace(" (position 1)", "") in str(ours)
    assert isinstance(ours, TypeError) == isinstance(theirs, TypeError)


def test_the_class_of_tensors_names_the_default_type(tg: Any) -> None:
    assert_same(*evaluate("t.ones(2, dtype=t.float64).type(t.Tensor)", tg))


def test_a_new_tensor_takes_its_size_by_name(tg: Any) -> None:
    assert_same(*evaluate("tuple(t.ones(2, dtype=t.float64).new(size=(3, 4)).shape)", tg))


ZERO = "s, i = __import__('numpy').array(2), __import__('numpy').int64(3)\n"
SIZES = [
    "t.Size([1.5])", "t.Size([2.0])", "t.Size(['a'])", "t.Size([None])", "t.Size([True])", "t.Size([3, s])",
    "t.Size([t.tensor(2)])", "t.Size([t.tensor(2.0)])", "t.Size([1]) + (2.5,)", "(2, 3) + t.Size([1])", "t.Size() * 2",
    "t.zeros(s, 2).shape", "t.ones(6).view(s, -1).shape", "t.ones(6).view(-1, s).shape", "t.ones(1).expand(s, i).shape",
    "t.ones(6).resize_(s).shape", "t.ones(6).resize_(i, s).shape", "t.ones(6).resize_(i).shape",
    "t.ones(6).resize_(t.tensor(2)).shape", "t.ones(6).resize_(2.5)", "t.ones(2, 3).permute(s - 1, 0).shape",
]  # fmt: skip


@pytest.mark.parametrize("program", SIZES)
def test_sizes_are_integers_of_any_kind_and_nothing_else(program: str, tg: Any) -> None:
    assert_same(*evaluate(ZERO + program, tg))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float16"])
def test_bernoulli_draws_into_targets_of_any_type(dtype: str, tg: Any) -> None:
    assert_same(*evaluate(f"t.bernoulli(t.tensor([0.0, 1.0, 1.0]), out=t.empty(3, dtype=t.{dtype}))", tg))


@pytest.mark.parametrize("run", ["(p * p).sum().backward()", "(p * p).sum().backward(inputs=[p])"])
def test_hooks_of_a_node_that_accumulates_come_after_those_of_its_tensor(run: str, tg: Any) -> None:
    program = f"""
    p = t.tensor([1.0, 2.0], requires_grad=True)
    log = []
    node = p.expand_as(p).grad_fn.next_functions[0][0]
    node.register_prehook(lambda g: (log.append(["node", g[0].tolist()]), (g[0] * 3,))[1])
    p.register_hook(lambda g: (log.append(["tensor", g.tolist()]), g + 1)[1])
    p.register_post_accumulate_grad_hook(lambda q: log.append(["after", q.grad.tolist()]))
    {run}
    (log, p.grad)
    """
    assert_same(*evaluate(program, tg))


@pytest.mark.parametrize("divided", ["x % {}", "x // {}", "x.fmod({})", "t.div(x, {}, rounding_mode='trunc')"])
@pytest.mark.parametrize("divisor", ["0", "t.tensor(0)", "t.zeros(1, 0, dtype=int)", "t.zeros(2, 1, dtype=int)"])
@pytest.mark.parametrize("size", [0, 3])
def test_integers_are_divided_by_zero_where_there_are_none(divided: str, divisor: str, size: int, tg: Any) -> None:
    if size and "zeros(1, 0" in divisor:
        divisor = "t.arange(3)"
    program = f"""
    x = t.ones(2, {size}, dtype=t.int64)
    try:
        result = {divided.format(divisor)}.tolist()
    except RuntimeError:
        result = "refused"
    result
    """
    assert_same(*evaluate(program, tg))
