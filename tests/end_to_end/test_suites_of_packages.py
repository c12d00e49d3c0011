"""What own tests of published packages use: the same program prints the same under PyTorch and on telegrad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.pytorch_process import PyTorchProcess

from .programs import run
from .server_process import ServerProcess

TREES = """
import torch.utils._pytree as pytree
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

Pair = namedtuple("Pair", "a b")
examples = {
    "list": [1, 2], "tuple": (1, 2), "dict": {"a": 1}, "ordereddict": OrderedDict(a=1), "deque": deque([1], 3),
    "defaultdict": defaultdict(list, a=1), "namedtuple": Pair(1, 2),
}
for name, value in examples.items():
    flatten, flatten_with_keys, unflatten = (
        getattr(pytree, f"_{name}_{suffix}") for suffix in ("flatten", "flatten_with_keys", "unflatten")
    )
    print(name, flatten(value), flatten_with_keys(value), unflatten(*flatten(value)) == value)

@dataclass
class Record:
    x: int
    y: object = None
    z: int = 3

@dataclass(frozen=True)
class Setting:
    name: str

class Plain:
    pass

pytree.register_dataclass(Record)
tree = [Record(1), Record(2, (4, 5))]
leaves, spec = pytree.tree_flatten(tree)
print(leaves, pytree.tree_unflatten(leaves, spec) == tree)
print([pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(tree)[0]])
pytree.register_constant(Setting)
leaves, spec = pytree.tree_flatten([Setting("a"), 1])
print(leaves, pytree.tree_unflatten(leaves, spec), pytree.is_constant_class(Setting))
print([spec == pytree.tree_structure([Setting(name), 3]) for name in "ab"])
pytree.register_pytree_node(Plain, lambda tree: ([1], None), lambda children, _: Plain())
for wrong in (
    lambda: pytree.register_constant(Plain), lambda: pytree.register_dataclass(int),
    lambda: pytree.register_pytree_node(Plain, None, None), lambda: pytree.tree_flatten_with_path(Plain()),
    lambda: pytree.register_dataclass(Record, field_names=["x"]),
):
    try:
        print("accepted", wrong())
    except (ValueError, TypeError) as error:
        print(isinstance(error, ValueError), str(error).partition(".")[0][:60])
wide = pytree.tree_structure(((1, 2), [3, (4, 5)]))
print(pytree._broadcast_to_and_flatten((1, [2, 3]), wide), pytree._broadcast_to_and_flatten((1, 2, 3), wide))
nested = {"a": [1, Pair(2, 3)]}
print([pytree.key_get(nested, path) for path, _ in pytree.tree_flatten_with_path(nested)[0]])
print(pytree.arg_tree_leaves(1, [2], a=3), pytree.treespec_pprint(pytree.tree_structure(nested)))
"""
PER_SAMPLE = """
import sys
import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

rng = np.random.default_rng(int(sys.argv[1]))

def drawn(*shape):
    return torch.tensor(rng.standard_normal(shape))

image = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))
models = [
    (nn.Linear(4, 3), (5, 4)), (image, (5, 2, 4, 4)),
    (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Tanh()), (5, 7, 4)),
    (nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.InstanceNorm1d(4, affine=True)), (5, 2, 6)),
]
for model, shape in models:
    model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(drawn(*parameter.shape))
    for reduction in ("sum", "mean"):
        out = call_for_per_sample_grads(model, loss_reduction=reduction)(drawn(*shape))
        losses = (out * drawn(*out.shape)).flatten(1).sum(1)
        getattr(losses, reduction)().backward()
        for name, parameter in model.named_parameters():
            gradients, parameter.grad_sample = parameter.grad_sample, None
            print(name, tuple(gradients.shape), parameter.grad, "%.5f" % gradients.abs().sum().item())
table = nn.Embedding(6, 3).double()
with torch.no_grad():
    table.weight.copy_(drawn(6, 3))
call_for_per_sample_grads(table)(torch.tensor([[0, 1], [1, 5], [2, 2]])).pow(2).sum().backward()
print("%.5f" % table.weight.grad_sample.abs().sum().item())
for wrong in (
    lambda: call_for_per_sample_grads(image, loss_reduction="max"), lambda: call_for_per_sample_grads(3),
    lambda: call_for_per_sample_grads(image, batch_size=0), lambda: call_for_per_sample_grads(table),
    lambda: call_for_per_sample_grads(image)(),
):
    try:
        print("accepted", wrong())
    except RuntimeError:
        print("refused")
"""
NAMES = """
import sys
from collections import OrderedDict
import torch
from torch.autograd import forward_ad
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record

class Factors:  # which no function has seen yet
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__

print(torch.is_complex(Factors()), torch.numel(Factors()), torch.is_floating_point(Factors()))

@record
def main(end):
    if end == "fails":
        raise KeyError(end)
    sys.exit(int(end))

print(main("0"), main.__name__, issubclass(ChildFailedError, Exception))
for end in ("1", "fails"):
    try:
        main(end)
    except (SystemExit, KeyError) as error:
        print(repr(error))

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print(ctx.saved_for_forward)
        ctx.save_for_forward(x)
        return x * x
    @staticmethod
    def jvp(ctx, tangent):
        x, = ctx.saved_for_forward
        return 2 * x * tangent

with forward_ad.dual_level():
    x = forward_ad.make_dual(torch.arange(3.0), torch.full((3,), 2.0))
    print(forward_ad.unpack_dual(Square.apply(x)).tangent.tolist())

class Around(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner = inner
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
        self.param_groups, self.state, self.defaults = inner.param_groups, inner.state, inner.defaults
        self._patch_step_function()
    def step(self, closure=None):
        return self.inner.step(closure)

weight = torch.nn.Parameter(torch.ones(2))
around = Around(torch.optim.SGD([weight], lr=0.5))
calls = []
around.register_step_pre_hook(lambda *arguments: calls.append("before"))
around.register_step_post_hook(lambda *arguments: calls.append("after"))
weight.sum().backward()
around.step()
around.zero_grad()
print(weight.tolist(), weight.grad, calls, Around.step.hooked, around._zero_grad_profile_name)
print(torch.backends.cuda.is_built(), torch.has_cuda, torch.has_cudnn, torch.has_mps)
"""
TRANSFORMS = """
import torch
import torch.autograd.forward_ad as forward_ad
from torch import func

seen = set()

def noting(x):
    seen.add(torch._C._are_functorch_transforms_active())
    return x.sin()

x = torch.ones(3)
calls = {
    "plain": lambda: noting(x), "grad": lambda: func.grad(lambda x: noting(x).sum())(x),
    "vjp": lambda: func.vjp(noting, x), "jvp": lambda: func.jvp(noting, (x,), (x,)),
    "vmap": lambda: func.vmap(noting)(x), "jacrev": lambda: func.jacrev(noting)(x),
    "jacfwd": lambda: func.jacfwd(noting)(x), "linearize": lambda: func.linearize(noting, x),
    "backward": lambda: torch.autograd.functional.jvp(noting, x, x),
    "compiled": lambda: torch.compile(lambda x: func.jvp(noting, (x,), (x,)), backend="eager")(x),
}
for name, call in calls.items():
    seen.clear()
    call()
    print(name, seen)
seen.clear()
with forward_ad.dual_level():
    noting(forward_ad.make_dual(x, x))
    print("a level of the program", seen)
    func.grad(lambda x: noting(x).sum())(x)
    print("with a gradient in it", sorted(seen))
print("behind", noting(x).shape, sorted(seen))
"""
CONTAINERS = """
import torch
import torch._functorch.vmap as steps
import torch.utils._pytree as pytree
from torch._C._functorch import (
    _add_batch_dim, _remove_batch_dim, _vmap_decrement_nesting, _vmap_increment_nesting, get_unwrapped,
    is_batchedtensor, maybe_get_bdim, maybe_get_level,
)
from torch.func import vmap

class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second

pytree.register_pytree_node(Pair, lambda pair: ([pair.first, pair.second], None), lambda parts, _: Pair(*parts))
x = torch.arange(12.0).reshape(3, 4)
mapped = vmap(lambda pair: Pair(pair.first * 2, pair.second.sum()))(Pair(x, x.T.reshape(3, 2, 2)))
print("registered", mapped.first.tolist(), mapped.second.tolist())
several = vmap(lambda pair: Pair(pair.first.sum(), pair.second), out_dims=-1, chunk_size=2)(Pair(x, x + 1))
print("in parts", several.first.tolist(), several.second.tolist())

level = _vmap_increment_nesting(4, "error")
element = _add_batch_dim(x, 1, level)
print(tuple(element.shape), is_batchedtensor(element), is_batchedtensor(x), maybe_get_level(element) == level)
print(tuple(get_unwrapped(element).movedim(maybe_get_bdim(element), -1).shape))
print("result", _remove_batch_dim(element.cumsum(0) * 2, level, 4, 0).tolist())
print("of a constant", _remove_batch_dim(x.sum(), level, 4, 0).tolist(), _vmap_decrement_nesting() == level)

class Box:
    def __init__(self, held):
        self.held = held

kept = steps._process_batched_inputs, steps._create_batched_inputs, steps._unwrap_batched

def process(in_dims, args, func):
    flat, spec = steps.tree_flatten(args)
    return len(flat[0].held), steps._broadcast_to_and_flatten(in_dims, spec), flat, spec

def create(flat_in_dims, flat_args, vmap_level, args_spec):
    boxes = [Box(_add_batch_dim(box.held, dim, vmap_level)) for box, dim in zip(flat_args, flat_in_dims)]
    return steps.tree_unflatten(boxes, args_spec)

def unwrap(result, out_dims, vmap_level, batch_size, func):
    return Box(steps._maybe_remove_batch_dim(steps._get_name(func), result.held, vmap_level, batch_size, out_dims))

steps._process_batched_inputs, steps._create_batched_inputs, steps._unwrap_batched = process, create, unwrap
print("own steps", vmap(lambda a, b: Box(a.held @ b.held))(Box(x), Box(x - 1)).held.tolist())
steps._process_batched_inputs, steps._create_batched_inputs, steps._unwrap_batched = kept
print("again", vmap(torch.sum)(x).tolist(), vmap(vmap(torch.neg), in_dims=1, out_dims=1)(x).tolist())
for call in (lambda: vmap(torch.sum, in_dims="0")(x), lambda: vmap(torch.sum)(Box(x)), lambda: vmap(Box)(x)):
    try:
        call()
    except ValueError as error:
        print("ValueError")
"""
FILES = """
import collections, enum, fractions, io
import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

class Own:
    pass

class Colour(enum.Enum):
    RED = 1

def written(content):
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return file

parameter = torch.nn.Parameter(torch.ones(2))
for content in ({"weight": parameter}, Own(), [Colour.RED, fractions.Fraction(1, 2)], torch.nn.Linear(2, 2)):
    print(sorted(get_unsafe_globals_in_checkpoint(written(content))))
with safe_globals([Own]):
    print(get_unsafe_globals_in_checkpoint(written([Own(), collections.OrderedDict(a=Colour.RED)])))
try:
    get_unsafe_globals_in_checkpoint(io.BytesIO(bytes(100)))
except ValueError:
    print("not a file of torch.save")
"""
SMALL_NAMES = """
import torch

small = [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)]
for name in (*small, "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "float4_e2m1fn_x2"):
    kind = getattr(torch, name)
    print(kind, kind.itemsize, kind.is_floating_point, kind.is_complex, kind.is_signed if name in small else None)
x = torch.ones(1, 2, 3, 4)
params = torch.backends.cuda.SDPAParams(x, x, x, None, 0.5, False, True)
print(params.dropout, params.is_causal, params.enable_gqa, params.attn_mask, params.query.shape)
for name in ("flash", "efficient", "cudnn"):
    print(name, getattr(torch.backends.cuda, f"can_use_{name}_attention")(params, False))
if not torch.cuda.is_available():
    print(torch.cuda.default_generators)
storage = x.untyped_storage()
print(x.untyped_storage() is storage, x.view(-1).untyped_storage() is storage, x[0, 1].untyped_storage() is storage)
print(x.clone().untyped_storage() is storage)
"""
STEPS = """
import warnings
import torch
from torch._vmap_internals import _vmap, vmap
from torch.autograd.functional import (
    _construct_standard_basis_for, _grad_postprocess, _grad_preprocess, _tuple_postprocess,
)
from torch.optim.lbfgs import _cubic_interpolate, _strong_wolfe

x = torch.arange(6.0).reshape(2, 3)
print(_vmap(lambda a: (a * 2, a.sum()))(x), _vmap(lambda a: a * 2, 1, 1)(x))
print(_vmap(lambda a: (a, None), allow_none_pass_through=True)(x))
p = torch.ones(3, requires_grad=True)
y = p**2
print(_vmap(lambda v: torch.autograd.grad(y, (p, x.requires_grad_()), v, True, allow_unused=True), 0, 0, True)(
    torch.eye(3)
))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    print(vmap(torch.sum)(x.detach()), [warning.category for warning in told])
for wrong in (
    lambda: _vmap(lambda a: [a])(x), lambda: _vmap(lambda a: (a, None))(x), lambda: _vmap(lambda a: a, 0, (0, 0))(x),
    lambda: _vmap(lambda a: a, 0, [0])(x), lambda: torch.solve(x, x), lambda: torch.symeig(x), lambda: torch.eig(x),
    lambda: torch.lstsq(x, x), lambda: torch.matrix_rank(x),
):
    try:
        print(wrong())
    except (ValueError, RuntimeError) as error:
        print(isinstance(error, ValueError), "removed" in str(error))
print(_construct_standard_basis_for((x.detach(), p.detach().double()), (6, 3)))
print(_tuple_postprocess(((1, 2), (3, 4)), (True, False)), _tuple_postprocess((1, 2), False))
print(_tuple_postprocess(((1, 2),), (False, True)), _tuple_postprocess((1, 2), True))
prepared = _grad_preprocess((p, torch.ones(1)), True, True)
print([one.grad_fn is None for one in prepared], [one.requires_grad for one in prepared])
print(_grad_postprocess(((y, y), (y,)), False), _grad_postprocess((y,), True)[0] is y)
number = torch.tensor
print(_cubic_interpolate(number(0.0), number(1.0), number(-1.0), number(2.0), number(2.0), number(1.0)))
print(_cubic_interpolate(2.0, number(2.0), number(1.5), 0.0, number(1.0), number(-1.0), bounds=(0.1, 0.2)))

def evaluate(x, t, d):
    at = x + t * d
    return float((at**4).sum()), 4 * at**3

start = p.detach()
print(_strong_wolfe(evaluate, start, 0.9, -4 * start, 3.0, 4 * start, -16 * start.sum(), max_ls=5))
"""


@pytest.mark.parametrize(
    "program", ["TREES", "PER_SAMPLE", "NAMES", "TRANSFORMS", "CONTAINERS", "FILES", "SMALL_NAMES", "STEPS"]
)
def test_what_suites_use_is_pytorchs(
    program: str, server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path, rng: np.random.Generator
) -> None:
    """PyTorch has a process of its own, in which the program registers classes."""
    seed = int(rng.integers(2**32))
    (tmp_path / "program.py").write_text(globals()[program])
    expected = pytorch.run("program.py", seed, folder=tmp_path)
    found = run("-m", "telegrad", "program.py", seed, folder=tmp_path, url=server.url)
    assert (expected.returncode, found.returncode) == (0, 0), found.stderr + expected.stderr
    assert found.stdout.splitlines() == expected.stdout.splitlines()


def test_modules_are_sent_to_processes_by_their_names(server: ServerProcess, tmp_path: Path) -> None:
    """What ray and joblib pickle functions with looks for a module that is a global of theirs in its own table."""
    program = "import pickle, torch\nfor module in (torch, torch.nn.functional):\n    "
    program += "print(pickle.loads(pickle.dumps(module)) is module)"
    (tmp_path / "program.py").write_text(program)
    found = run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert found.stdout.split() == ["True", "True"], found.stderr
