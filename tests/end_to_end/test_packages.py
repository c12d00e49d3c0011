"""What published packages use of PyTorch beside tensors: the same program prints the same under both libraries."""

from __future__ import annotations

from pathlib import Path

from tests.support.pytorch_process import PyTorchProcess

from .both_libraries import apart, on_telegrad
from .server_process import ServerProcess

PROGRAM = """
import collections, copy, hashlib, os, pathlib, sys
from unittest import mock
from pytest import MonkeyPatch
import torch, torch.fx, torch.hub
import torch.utils._pytree as pytree
from torch import Tensor
from torch.distributions.constraints import __all__ as constraints
from torch.distributions.utils import _standard_normal, _sum_rightmost
from torch.jit.annotations import BroadcastingList2, List
from torch.serialization import MAP_LOCATION
from torch.utils.checkpoint import get_device_states, set_device_states
from torch.utils.model_zoo import load_url

@torch.library.custom_op("ours::scale_add", mutates_args=())
def scale_add(x: Tensor, y: Tensor, by: float = 2.0) -> Tensor:
    return x * by + y

@scale_add.register_fake
def _(x, y, by=2.0):
    return torch.empty_like(x)

def setup(ctx, inputs, output):
    ctx.by = inputs[2]

scale_add.register_autograd(lambda ctx, g: (g * ctx.by, g, None), setup_context=setup)
x, y = torch.arange(3.0, requires_grad=True), torch.ones(3)
for result in (scale_add(x, y, by=3.0), torch.ops.ours.scale_add(x, y), torch.ops.ours.scale_add.default(x, y, 4.0)):
    result.sum().backward()
    print(result.tolist(), x.grad.tolist())
lib = torch.library.Library("theirs", "DEF")
lib.define("twice(Tensor x) -> Tensor")
lib.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
print(torch.ops.theirs.twice(y).tolist())
try:
    torch.ops.load_library("/nowhere/at/all.so")
except OSError:
    print("no such library")

Pair = collections.namedtuple("Pair", "a b")
tree = {"b": [1, (2, None)], "a": Pair(3, collections.OrderedDict(z=4)), "d": collections.deque([5], maxlen=3),
        "e": collections.defaultdict(list, q=6)}
leaves, spec = pytree.tree_flatten(tree)
print(leaves, spec.num_leaves, spec.num_nodes, pytree.tree_unflatten(leaves, spec) == tree)
print(pytree.tree_unflatten(leaves, spec)["d"].maxlen, spec == pytree.tree_structure(tree))
print(pytree.tree_map(lambda a, b: (a, b), [1, [2]], [3, [4]]), pytree.tree_map_only(int, lambda v: v + 1, [1, "a"]))
print([pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(tree)[0]])
print(pytree.tree_leaves([[1], 2], is_leaf=lambda v: v == [1]), pytree.tree_any(lambda v: v == 6, tree))
for wrong in (lambda: pytree.tree_map(lambda a, b: a, [1, [2]], [1, 2]), lambda: spec.unflatten([1])):
    try:
        wrong()
    except ValueError:
        print("another structure")

class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

pytree.register_pytree_node(Point, lambda p: ([p.x, p.y], None), lambda children, _: Point(*children))
moved = pytree.tree_map(lambda v: v + 1, [Point(1, 2)])[0]
print(moved.x, moved.y)

torch.hub.set_dir("hub")
torch.save({"w": torch.ones(2)}, "weights.pth")
digits = hashlib.sha256(open("weights.pth", "rb").read()).hexdigest()[:8]
os.rename("weights.pth", f"w-{digits}.pth")
url = pathlib.Path(f"w-{digits}.pth").absolute().as_uri()
print(torch.hub.load_state_dict_from_url(url, progress=False, check_hash=True)["w"].tolist())
os.remove(f"w-{digits}.pth")
kept = os.listdir(os.path.join(torch.hub.get_dir(), "checkpoints"))
print(load_url(url, progress=False)["w"].tolist(), kept == [f"w-{digits}.pth"])
pathlib.Path("w-00000000.pth").write_bytes(b"other")
try:
    load_url(pathlib.Path("w-00000000.pth").absolute().as_uri(), progress=False, check_hash=True)
except RuntimeError:
    print("another file", len(os.listdir("hub/checkpoints")))

print(torch.fx.wrap(len) is len, isinstance(x, torch.fx.Proxy), isinstance(x, torch.UntypedStorage))
print(torch.float8_e4m3fn, torch.finfo(torch.float8_e5m2).max, torch.float8_e5m2.itemsize, x.dtype == torch.float8_e5m2)
print(get_device_states(x)[0], set_device_states([], []), torch.torch is torch, "positive" in constraints)
print(_standard_normal((2,), torch.float64, "cpu").dtype, _sum_rightmost(torch.ones(2, 3), 1).tolist())
families = {name for name, value in torch.distributions.__dict__.items()
            if isinstance(value, type) and issubclass(value, torch.distributions.Distribution)}
optimizers = {name for name, value in torch.optim.__dict__.items()
              if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)}
print(len(families), sorted(optimizers))
relu = torch.nn.functional.relu
torch.nn.functional.relu = lambda x, inplace=False: x + 1
print(torch.nn.ReLU()(y).tolist())
torch.nn.functional.relu = relu
print(torch.nn.ReLU()(y).tolist())

matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
with MonkeyPatch.context() as patch:
    patch.setattr(torch.backends.cuda, "matmul", 1)
    patch.setattr(torch.backends.cuda, "matmul", 2)
    patch.setattr(torch.backends, "cudnn", 3)
    patch.setattr(torch.cuda, "invented", 4, raising=False)
    patch.setattr(torch.backends.mps, "is_available", lambda: True)
    print(torch.backends.cuda.matmul, torch.backends.cudnn, torch.cuda.invented, torch.backends.mps.is_available())
print(torch.backends.cuda.matmul is matmul, torch.backends.cudnn is cudnn, hasattr(torch.cuda, "invented"))
with mock.patch.object(torch.backends.cuda, "matmul", 1):
    with mock.patch("torch.backends.cuda.matmul", 2), mock.patch("torch.cuda.invented", 4, create=True):
        print(torch.backends.cuda.matmul, torch.cuda.invented)
    print(torch.backends.cuda.matmul, hasattr(torch.cuda, "invented"))
print(torch.backends.cuda.matmul is matmul, torch.backends.mps.is_available())

def numbers():
    return [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])]

for results in (
    torch._foreach_mul(numbers(), scalar=2.0), torch._foreach_add(numbers(), other=numbers(), alpha=3),
    torch._foreach_sub(numbers(), scalars=[1, 2]), torch._foreach_pow(numbers(), exponent=[2, 3]),
    torch._foreach_lerp(numbers(), tensors1=torch._foreach_neg(numbers()), weight=0.25),
    torch._foreach_lerp(numbers(), numbers(), weights=numbers()), torch._foreach_addcmul(*[numbers()] * 3, 3),
    torch._foreach_addcdiv(numbers(), numbers(), tensor2=numbers(), scalars=[3, 4]),
    torch._foreach_addcmul(numbers(), numbers(), numbers(), torch.tensor([3, 4])),
    torch._foreach_maximum(numbers(), scalar=2.5),
):
    print([result.tolist() for result in results])

class Kept(torch.nn.Linear):
    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica.own = None
        return replica

layer = torch.nn.Sequential(Kept(1, 1), torch.nn.BatchNorm1d(1))
replica, inner = layer._replicate_for_data_parallel(), layer[0]._replicate_for_data_parallel()
print([*replica._modules], replica[1] is layer[1], replica._modules is layer._modules, inner.own, inner._parameters)
compiled = torch.compile(layer)
compiled._orig_mod = replica
print(compiled._orig_mod is replica, "_orig_mod" in layer._modules)
loader = torch.utils.data.DataLoader(range(4), num_workers=1, persistent_workers=True)
print(loader._iterator, [batch.tolist() for batch in loader], loader._iterator is None)
loader._iterator._shutdown_workers()
print(torch.distributions.Wishart(torch.tensor(5.0), torch.eye(3))._bartlett_sampling(torch.Size([2])).shape)
optimizer = torch.optim.SGD([{"params": layer[0].parameters()}, {"params": layer[1].parameters()}], lr=0.1)
optimizer.step()
print([k for k in vars(optimizer).keys() - vars(copy.deepcopy(optimizer)).keys() if k[0] != "_"])
optimizer.param_groups.extend(optimizer.param_groups)
print([group["params"] for group in optimizer.state_dict()["param_groups"]])
print(torch.utils.data.DataLoader(int).dataset is int)  # what it is, is seen when something is read
"""


def test_what_packages_use_beside_tensors_is_pytorchs(
    server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path
) -> None:
    """PyTorch has a process of its own, in which bars of progress leave a thread."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ours = on_telegrad(program, tmp_path / "a", server.url)
    assert ours == apart(pytorch, program, tmp_path / "b")
