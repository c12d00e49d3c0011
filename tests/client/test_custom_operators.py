"""Operators that programs define, override and check, under telegrad and under PyTorch: both give the same."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import pytest

import telegrad

from .twins import assert_same, evaluate

_spaces = (f"space{number}" for number in itertools.count())
PROLOGUE = """
def attempt(run):
    try:
        return run()
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        return kinds[0], str(error).splitlines()[0]
custom_op, Tensor = t.library.custom_op, t.Tensor
lib = t.library.Library(ns, "DEF")
ops = getattr(t.ops, ns)
x = t.arange(4.0)
g = t.arange(4.0, requires_grad=True)
calls = []
"""
PROGRAMS = [
    # schemas, arguments and overloads
    """
    lib.define("f(Tensor x, int y=3, *, float s=1.0, str? m=None) -> Tensor")
    lib.impl("f", lambda *a, **k: (calls.append((a[1:], k)), a[0] * 2)[1], "CPU")
    results = [ops.f(x), ops.f(x, 3), ops.f(x, y=4), ops.f(x, 4, s=2), ops.f(x=x, s=1.0), ops.f.default(x, m="a")]
    wrong = [lambda: ops.f(x, 2.5), lambda: ops.f(1), lambda: ops.f(), lambda: ops.f(x, 3, 4), lambda: ops.f(x, q=3),
             lambda: ops.f.default("a"), lambda: ops.f(x, m=4), lambda: ops.f.bar, lambda: ops.nothing,
             lambda: lib.define("f(Tensor x) -> Tensor"), lambda: t.library.Library(ns, "XX"),
             lambda: t.library.Library(ns, "IMPL", "Nowhere"), lambda: lib.impl("f", 3, "CPU"),
             lambda: lib.impl("f", max, "Nowhere"), lambda: lib.impl("f", max, "CPU", allow_override=False)]
    (results, calls, [attempt(one) for one in wrong], ops.f.overloads(),
     str(ops.f.default), repr(ops.f), repr(ops.f.default))
    """,
    """
    lib.define("g(Tensor x) -> Tensor"); lib.define("g.two(Tensor x, Tensor y) -> Tensor")
    lib.define("g.list(Tensor[] x) -> Tensor[]"); lib.define("make(int n, *, Device? device=None) -> Tensor")
    lib.impl("g", lambda a: a + 1); lib.impl("g.two", lambda a, b: a + b, "CompositeExplicitAutograd")
    lib.impl("g.list", lambda xs: [a * 2 for a in xs], "CPU")
    lib.impl("make", lambda n, device=None: t.ones(n), "CompositeExplicitAutograd")
    lib.define("none(Tensor x) -> Tensor")
    (ops.g.overloads(), ops.g(x), ops.g(x, x), ops.g([x, x]), ops.g.list([x]), ops.make(3), ops.make(2, device="cpu"),
     ops.g(g), ops.g(g, g), attempt(lambda: ops.g(3))[0], attempt(lambda: ops.g.list(x)),
     attempt(lambda: ops.none(x))[0], attempt(lambda: ops.g.default(x, x)), str(ops.g.two._schema),
     ops.g.two.overloadpacket is ops.g)
    """,
    """
    lib.define("nothing(Tensor(a!) x) -> ()"); lib.impl("nothing", lambda a: a.add_(1), "CompositeExplicitAutograd")
    lib.define("fine(Tensor(a!) x) -> ()"); lib.impl("fine", lambda a: [a.add_(1), None][1], "CPU")
    (attempt(lambda: ops.nothing(x))[0], ops.fine(x), x)
    """,
    """
    import numpy as np
    lib.define("b(Tensor x, bool b) -> Tensor"); lib.define("i(Tensor x, int i) -> Tensor")
    lib.define("s(Tensor x, bool[] b, int[] i) -> Tensor")
    for name in ("b", "i"):
        lib.impl(name, lambda x, v: (calls.append(v), x)[1], "CPU")
    lib.impl("s", lambda x, b, i: (calls.append((b, i)), x)[1], "CPU")
    values = [0, 2, 1.5, None, True, t.tensor(True), t.tensor(0), np.bool_(True), np.float64(0), "a", [1], t.ones(2)]
    wrong = ["l(int n=1, Tensor x) -> Tensor", "l(Tensor x, int[] n=1) -> Tensor"]
    ([attempt(lambda: f(x, v))[0] for f in (ops.b, ops.i) for v in values], ops.s(x, [0, 2.5], np.array([3, 4])), calls,
     [attempt(lambda: lib.define(text))[0] for text in wrong])
    """,
    """
    def everything(a: "t.Tensor | None", b: list[int], c: list[Tensor], d: float = 2.5, e: bool = True, h: str = "x",
                   *, k: t.dtype = t.float32) -> tuple[Tensor, int, list[Tensor]]: pass
    def function(x: Tensor) -> Tensor: return x
    def untyped(x): return x
    def unknown(x: dict) -> Tensor: return x
    def starred(x: Tensor, *rest) -> Tensor: return x
    infer = t.library.infer_schema
    (infer(function, mutates_args=(), op_name="f"), infer(function, mutates_args="unknown"),
     attempt(lambda: infer(everything, mutates_args=())), infer(function, mutates_args=("x",)),
     [attempt(lambda: infer(one, mutates_args=()))[0] for one in (untyped, unknown, starred)],
     attempt(lambda: infer(function, mutates_args=("z",)))[1].split(" Got")[0],
     attempt(lambda: custom_op("nameless", function, mutates_args=()))[0])
    """,
    # derivatives
    """
    @custom_op(f"{ns}::cube", mutates_args=())
    def cube(x: Tensor) -> Tensor: return x ** 3
    def setup(ctx, inputs, output): ctx.save_for_backward(inputs[0])
    none = attempt(lambda: cube(g).sum().backward())
    cube.register_autograd(lambda ctx, grad: 3 * grad * ctx.saved_tensors[0] ** 2, setup_context=setup)
    y = cube(g)
    (first,) = t.autograd.grad(y.sum(), g, create_graph=True)
    (second,) = t.autograd.grad(first.sum(), g)
    checkpointed = t.utils.checkpoint.checkpoint(cube, g, use_reentrant=False)
    with t.no_grad():
        quiet = cube(g)
    with t.inference_mode():
        inferred = cube(g).is_inference()
    (none, y, y.grad_fn.name(), first, second, t.autograd.grad(checkpointed.sum(), g), quiet, inferred, ops.cube(g))
    """,
    """
    @custom_op(f"{ns}::weighted", mutates_args=())
    def weighted(xs: list[Tensor], weights: list[float]) -> Tensor: return sum(a * b for a, b in zip(xs, weights))
    def setup(ctx, inputs, output): ctx.weights = inputs[1]
    weighted.register_autograd(lambda ctx, grad: ([grad * w for w in ctx.weights], None), setup_context=setup)
    @custom_op(f"{ns}::scaled", mutates_args=())
    def scaled(x: Tensor, *, by: float = 2.0) -> Tensor: return x * by
    def setup(ctx, inputs, keyword_only_inputs, output): ctx.by = keyword_only_inputs["by"]
    scaled.register_autograd(lambda ctx, grad: grad * ctx.by, setup_context=setup)
    @custom_op(f"{ns}::two", mutates_args=())
    def two(x: Tensor) -> tuple[Tensor, Tensor]: return x * 2, x * 3
    two.register_autograd(lambda ctx, a, b: a * 2 + b * 3)
    @custom_op(f"{ns}::several", mutates_args=())
    def several(x: Tensor, n: int) -> list[Tensor]: return [x * (i + 1) for i in range(n)]
    several.register_autograd(lambda ctx, grads: (sum((i + 1) * v for i, v in enumerate(grads)), None))
    h = t.ones(4, requires_grad=True)
    weighted([g, h], [2.0, 3.0]).sum().backward()
    (scaled(g).sum() + scaled(g, by=5.0).sum() + sum(two(g)).sum() + sum(several(g, 3)).sum()).backward()
    (g.grad, h.grad, type(several(g, 2)).__name__, type(two(g)).__name__)
    """,
    """
    def setup(ctx, inputs, output): ctx.y = inputs[1]
    t.library.define(f"{ns}::mul", "(Tensor x, Tensor y) -> Tensor", lib=lib)
    @t.library.impl(f"{ns}::mul", "cpu", lib=lib)
    def mul(x, y): return t.from_numpy(x.detach().numpy() * y.detach().numpy())
    t.library.register_autograd(f"{ns}::mul", lambda ctx, grad: (grad * ctx.y, None), setup_context=setup, lib=lib)
    ops.mul(g, x).sum().backward()
    lib.define("view(Tensor(a) x) -> Tensor(a)")
    wrong = [lambda: t.library.register_autograd(f"{ns}::view", max),
             lambda: t.library.register_autograd(f"{ns}::no", max),
             lambda: t.library.define(f"{ns}::h", "h(Tensor x) -> Tensor"),
             lambda: t.library.define("h", "(Tensor x) -> Tensor"),
             lambda: lib.define("o(Tensor x) -> Tensor", tags=t.Tag.out), lambda: lib.define("bad(Tensor x")]
    (g.grad, [attempt(one) for one in wrong])
    """,
    # what may be returned and written
    """
    def make(name, run, **options):
        def function(x: Tensor) -> Tensor: return run(x)
        return custom_op(f"{ns}::{name}", function, mutates_args=(), **options)
    same, view = make("same", lambda x: x), make("view", lambda x: x.view(-1))
    @custom_op(f"{ns}::twice", mutates_args=())
    def twice(x: Tensor) -> list[Tensor]: return [y := x + 1, y]
    @custom_op(f"{ns}::sin_", mutates_args={"x"}, tags=t.Tag.inplace)
    def sin_(x: Tensor) -> Tensor: x.sin_(); return x
    @custom_op(f"{ns}::out", mutates_args={"out"}, tags=t.Tag.out)
    def out(x: Tensor, *, out: Tensor) -> Tensor: out.copy_(x.sin()); return out
    @custom_op(f"{ns}::none", mutates_args={"x"})
    def none(x: Tensor) -> None: x.add_(1)
    o, z = t.empty(4), x.clone()
    ([attempt(lambda: one(x))[0] for one in (same, view, twice)], "is_in_place", sin_(z) is z, z, out(x, out=o) is o, o,
     none(z), z, attempt(lambda: out(g, out=o)), attempt(lambda: none.register_autograd(max))[1].split(" <")[0],
     str(none._opoverload._schema), str(sin_._opoverload._schema),
     attempt(lambda: make("cuda", abs, device_types="cuda")(x))[0])
    """,
    """
    @custom_op(f"{ns}::f", mutates_args=())
    def f(x: Tensor) -> Tensor: return x * 0
    @f.register_kernel("cpu")
    def _(x): return x + 1
    on = f(x)
    with f.set_kernel_enabled("cpu", enabled=False):
        off = f(x)
    class Mode(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            calls.append(str(func)); return func(*args, **(kwargs or {}))
    with Mode():
        f(x)
    class Own(Tensor): pass
    (on, off, f(x), calls, type(f(x.as_subclass(Own))).__name__, repr(f), len(f._opoverload.tags))
    """,
    # arrays of NumPy, as the documentation of torch.library has them
    """
    @custom_op(f"{ns}::inplace", mutates_args={"x"}, device_types="cpu")
    def inplace(x: Tensor) -> None:
        array = x.numpy()
        np.sin(array, out=array)
    @custom_op(f"{ns}::sin_", mutates_args={"x"}, device_types="cpu", tags=t.Tag.inplace)
    def sin_(x: Tensor) -> Tensor: array = x.detach().numpy(); np.sin(array, out=array); return x
    @custom_op(f"{ns}::out", mutates_args={"out"}, device_types="cpu", tags=t.Tag.out)
    def out(x: Tensor, *, out: Tensor) -> Tensor: np.sin(x.numpy(), out=out.numpy()); return out
    @custom_op(f"{ns}::detached", mutates_args=())
    def detached(x: Tensor) -> Tensor: return x.detach()[1:]
    @custom_op(f"{ns}::copied", mutates_args=())
    def copied(x: Tensor) -> Tensor: return x.detach().clone()
    y, z, o = x.clone(), x.clone(), t.empty(4)
    (inplace(y), y, sin_(z) is z, z, out(x, out=o) is o, o, attempt(lambda: detached(x))[0], copied(x))
    """,
    # shapes alone
    """
    @custom_op(f"{ns}::twice", mutates_args=())
    def twice(x: Tensor, n: int = 2) -> Tensor: return t.cat([x] * n)
    m = t.ones(2, 3, device="meta", requires_grad=True)
    none = attempt(lambda: twice(m))[0]
    twice.register_fake(lambda x, n=2: x.new_empty(x.shape[0] * n, *x.shape[1:]))
    twice.register_autograd(lambda ctx, grad: (grad[:2], None))
    lib.define("h(Tensor x) -> Tensor"); lib.impl("h", lambda x: x * 2, "CPU")
    nothing = attempt(lambda: ops.h(m))[0]
    t.library.register_fake(f"{ns}::h", lambda x: t.empty_like(x), lib=lib)
    @custom_op(f"{ns}::places", mutates_args=())
    def places(x: Tensor) -> Tensor: return x.nonzero()
    @places.register_fake
    def _(x): return x.new_empty([t.library.get_ctx().new_dynamic_size(), x.dim()], dtype=t.int64)
    @custom_op(f"{ns}::reads", mutates_args=())
    def reads(x: Tensor) -> Tensor: return x + 1
    reads.register_fake(lambda x: x.new_empty(int(x.sum().item())))
    y = twice(m)
    (none, nothing, tuple(y.shape), y.device.type, y.requires_grad, ops.h(m).device.type,
     t.library.opcheck(places, (x,))["test_faketensor"], attempt(lambda: t.library.opcheck(reads, (x,)))[0])
    """,
    # modes below autograd
    """
    from importlib import import_module
    dispatch = import_module(f"{t.__name__}.utils._python_dispatch")
    @custom_op(f"{ns}::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor: return x + x
    twice.register_autograd(lambda ctx, grad: grad * 2)
    class Mode(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == ns: calls.append(str(func))
            return func(*args, **(kwargs or {}))
    class Other(Mode): pass
    with Mode():
        y = twice(g)
        y.sum().backward()
    twice.register_torch_dispatch(Other, lambda mode, func, types, args, kwargs: t.zeros(1))
    with Other():
        z = twice(x)
    (y, g.grad, calls, z)
    """,
    # vmap and autocast
    """
    @custom_op(f"{ns}::mul", mutates_args=())
    def mul(x: Tensor, by: float, y: Tensor) -> Tensor: return x * by * y
    plain = t.func.vmap(mul, in_dims=(0, None, None))(t.ones(2, 4), 2.0, x)
    @mul.register_vmap
    def _(info, in_dims, x, by, y):
        calls.append(info.randomness)
        move = lambda a, dim: a.unsqueeze(-1) if dim is None else a.movedim(dim, -1)
        result = mul(move(x, in_dims[0]), by, move(y, in_dims[2]))
        return result, result.dim() - 1
    ruled = t.func.vmap(mul, in_dims=(0, None, None))(t.ones(2, 4), 2.0, x)
    (plain, ruled, set(calls))
    """,
    """
    @custom_op(f"{ns}::same", mutates_args=())
    def same(x: Tensor, n: int = 1) -> Tensor: return x.clone() @ x.clone()
    same.register_autocast("cpu", t.bfloat16)
    square = t.ones(2, 2)
    with t.autocast("cpu", dtype=t.bfloat16):
        inside = same(square).dtype
    t.library.define(f"{ns}::other", "(Tensor x) -> Tensor", lib=lib)
    lib.impl("other", lambda x: x.clone(), "CPU")
    t.library.register_autocast(f"{ns}::other", "cpu", t.float16, lib=lib)
    with t.autocast("cpu", dtype=t.bfloat16):
        other = ops.other(square).dtype, ops.other(square.double()).dtype
    (inside, same(square).dtype, other, attempt(lambda: same.register_autocast("nowhere", t.float16))[0])
    """,
    # built-in operators
    """
    y, own = t.full((4,), 2.0), t.library.Library("aten", "IMPL")
    own.impl("mul.Tensor", lambda a, b: a + b, "CPU")
    replaced = x * y, t.mul(x, y), x.mul(3), t.ops.aten.mul(x, y), t.ops.aten.mul.Tensor(x, y), (g * y).requires_grad
    own._destroy()
    (replaced, x * y, t.ops.aten.mul.Tensor(x, y))
    """,
    """
    before = t.library.get_kernel("aten::relu", "CPU")
    with t.library._scoped_library("aten", "IMPL", "CPU") as own:
        own.impl("relu", lambda a: before.call_boxed(t.DispatchKeySet(t.DispatchKey.CPU), a) + 1)
        inside = t.relu(-x), x.relu(), t.nn.functional.relu(x), t.nn.ReLU()(x)
        own.impl("add_.Tensor", lambda a, b, alpha=1: a.sub_(b), "CPU")
        z = t.ones(2)
        z += t.ones(2)
    (inside, t.relu(x), z, z.add_(1))
    """,
    """
    overloads = t.ops.aten.add.overloads()
    schemas = [str(s._schema) for s in (t.ops.aten.mul.Tensor, t.ops.aten.add_.Tensor, t.ops.aten.sum.dim_IntList,
               t.ops.aten.conv2d.default, t.ops.aten.max_pool2d_with_indices.default,
               t.ops.aten.convolution_backward.default)]
    (overloads, schemas, t.ops.aten.view.default.is_view, t.ops.aten.add_.Tensor._schema.is_mutable,
     t.ops.aten.sum.dim_IntList(x, [0], True), t.ops.aten.add.Tensor(x, x, alpha=2), t.ops.aten.add.Tensor(x, 1),
     t.ops.aten.t.default(t.ones(2, 3)), t.ops.aten.mul(self=x, other=x), str(t.ops.aten.mul.Tensor),
     t.ops.aten.sum.dim_IntList._schema.arguments[1].name, attempt(lambda: t.ops.aten.mul.nothing),
     attempt(lambda: t.ops.aten.mul.Tensor("a", 3)), attempt(lambda: t.ops.load_library("/no/such.so"))[0])
    """,
    # checks
    """
    @custom_op(f"{ns}::fine", mutates_args=())
    def fine(x: Tensor) -> Tensor: return x ** 3
    fine.register_fake(lambda x: t.empty_like(x))
    fine.register_autograd(lambda ctx, grad: 3 * grad * ctx.saved_tensors[0] ** 2,
                           setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    @custom_op(f"{ns}::writes", mutates_args=())
    def writes(x: Tensor) -> Tensor: x.add_(1); return x + 1
    @custom_op(f"{ns}::lacks", mutates_args=())
    def lacks(x: Tensor) -> Tensor: return x + 1
    @custom_op(f"{ns}::shape", mutates_args=())
    def shape(x: Tensor) -> Tensor: return x + 1
    shape.register_fake(lambda x: x.new_empty(7))
    class Twice(t.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x * 2
        @staticmethod
        def backward(ctx, grad): return grad * 2
    lib.define("wrong(Tensor x) -> Tensor")
    lib.impl("wrong", lambda x: Twice.apply(x), "CPU"); lib.impl("wrong", lambda x: t.empty_like(x), "Meta")
    check = t.library.opcheck
    (check(fine, (g,)), check(fine, (x,), test_utils="test_schema"), check(t.ops.aten.sin.default, (g,)),
     [attempt(lambda: check(one, (y,))) for one, y in ((writes, x), (lacks, x), (ops.wrong, g))],
     attempt(lambda: check(shape, (x,)))[1].split(" (")[0], attempt(lambda: check(fine, (x,), test_utils="no"))[0],
     sorted(check(lacks, (x,), raise_exception=False)))
    """,
    # calls that come again, and what is changed between them
    """
    @custom_op(f"{ns}::twice", mutates_args=())
    def twice(x: Tensor, by: float = 2.0, n: int = 1, name: str = "a", more: "t.Tensor | None" = None) -> Tensor:
        calls.append((by, type(by).__name__, n, name, more is None, t.is_grad_enabled(), x.requires_grad))
        return x * by if more is None else x * more
    def some():
        return [twice(x), twice(x, 3.0), twice(x, by=3), twice(by=4.0, x=x), twice(x, 2.0, 1, "b", x),
                twice(x[1:], 2.5), attempt(lambda: twice(x, n=2.5)), attempt(lambda: twice(x, 3.0, x=x)),
                attempt(lambda: twice(x, no=1)),
                attempt(lambda: twice())]
    results = [some(), some()]
    with t.no_grad(): results.append(twice(g))
    with t.inference_mode(): results.append(twice(t.ones(2)).is_inference())
    results.append(attempt(lambda: twice(g).sum().backward()))
    def setup(ctx, inputs, output):
        ctx.by = inputs[1]; ctx.save_for_backward(inputs[0])
        calls.append((len(inputs), ctx.needs_input_grad, output.requires_grad, t.is_grad_enabled()))
    twice.register_autograd(lambda ctx, grad: (grad * ctx.by + ctx.saved_tensors[0] * 0, None, None, None, None),
                            setup_context=setup)
    twice(g, 5.0).sum().backward(); twice(g * 2).sum().backward(); twice(x).sum()
    results += [g.grad, type(twice(g).grad_fn).__name__.split("_")[0], twice(g.detach()).requires_grad]
    twice.register_kernel("cpu")(lambda x, by=2.0, n=1, name="a", more=None: x + 100)
    results += [twice(x), twice(g)]
    with twice.set_kernel_enabled("cpu", False): results.append(twice(x))
    extra = t.library.Library(ns, "IMPL"); extra.impl("twice", lambda x, *rest: x + 7, "AutogradCPU")
    results.append(twice(x)); extra._destroy(); results.append(twice(x))
    (results, calls)
    """,
    """
    @custom_op(f"{ns}::same", mutates_args=())
    def same(x: Tensor, how: int) -> Tensor:
        if how == 3: raise ValueError("three")
        return [x, x[1:], x.detach(), None, x.view(2, 2), 5, [x.clone()]][how]
    results = [[attempt(lambda: same(y, how))[0] for how in (0, 1, 2, 3, 4, 5, 6)] for y in (x, g[:], x.view(4))]
    results += [t.is_grad_enabled(), (g * 2).requires_grad]
    @custom_op(f"{ns}::fill", mutates_args={"out"})
    def fill(x: Tensor, out: Tensor, by: float) -> None: out.copy_(x * by)
    out = t.zeros(4)
    for by in (1.0, 2.0): fill(x, out, by); results.append((out.clone(), out._version))
    @custom_op(f"{ns}::two", mutates_args=())
    def two(x: Tensor, y: Tensor) -> "tuple[t.Tensor, t.Tensor]": return x * 2, y * 3
    two.register_autograd(lambda ctx, a, b: (a * 10, b * 100))
    first, second = two(g, x); results += [first, second, attempt(lambda: two(x, x)[1]), second.requires_grad]
    (first.sum() + second.sum()).backward()
    (results, g.grad)
    """,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_operators_of_programs_are_pytorchs(tg: Any, program: str) -> None:
    lines = "\n".join(line.removeprefix("    ") for line in program.strip("\n").splitlines())
    assert_same(*evaluate(PROLOGUE + lines, tg, ns=next(_spaces)))
    gc.collect()  # libraries end with the program


def test_calls_of_custom_operators_wait_for_nothing(tg: Any) -> None:
    @tg.library.custom_op(f"{next(_spaces)}::scale", mutates_args=())
    def scale(x: telegrad.Tensor, by: float) -> telegrad.Tensor:
        return x * by

    scale.register_autograd(lambda ctx, grad: (grad * 3, None))
    x = tg.ones(3, requires_grad=True)
    waited = x._session.round_trips
    scale(scale(x, 2.0), 5.0).sum().backward()
    assert x._session.round_trips == waited
    assert x.grad.tolist() == [9, 9, 9]


def test_a_library_that_nobody_holds_takes_its_kernels_back(tg: Any) -> None:
    x = tg.ones(2)
    library = tg.library.Library("aten", "IMPL")
    library.impl("sin", lambda a: a * 7, "CPU")
    assert (x.sin().tolist(), tg.sin(x).tolist()) == ([7, 7], [7, 7])
    del library
    gc.collect()
    assert tg.sin(x).tolist() == pytest.approx([0.8414710, 0.8414710])
