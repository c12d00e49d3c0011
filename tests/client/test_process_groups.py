"""The group of one process: what programs that always make a group do with it, as with PyTorch's gloo."""

from __future__ import annotations

import threading
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from telegrad._programs.torch_modules import _origins

from .twins import assert_same, evaluate

MADE = """
d = t.distributed
d.init_process_group("gloo", world_size=1, rank=0, store=d.HashStore())
"""
x = "x = t.arange(4.0) + 1"
CALLS = {
    "get_rank": "(d.is_available(), d.is_initialized(), d.get_rank(), d.get_world_size(), d.get_backend())",
    "all_reduce": "(d.all_reduce(x), x)",
    "all_reduce of another kind": "(d.all_reduce(x, op=d.ReduceOp.MAX), x)",
    "all_reduce later": "(d.all_reduce(x, async_op=True).wait(), x)",
    "all_gather": "(d.all_gather(others := [t.zeros(4)], x), others)",
    "all_gather_into_tensor": "(d.all_gather_into_tensor(other := t.zeros(4), x), other)",
    "all_gather_object": "(d.all_gather_object(others := [None], {'a': [1]}), others)",
    "all_to_all_single": "(d.all_to_all_single(other := t.zeros(4), x), other)",
    "barrier": "d.barrier()",
    "broadcast": "(d.broadcast(x, 0), x)",
    "broadcast_object_list": "(d.broadcast_object_list(objects := [1, 'a'], src=0), objects)",
    "gather": "(d.gather(x, others := [t.zeros(4)], dst=0), others)",
    "gather_object": "(d.gather_object(('a', 1), others := [None]), others)",
    "monitored_barrier": "d.monitored_barrier()",
    "reduce": "(d.reduce(x, 0), x)",
    "scatter": "(d.scatter(other := t.zeros(4), [x], src=0), other)",
    "scatter_object_list": "(d.scatter_object_list(others := [None], [{'b': 2}]), others)",
    "ranks": "(d.get_process_group_ranks(d.group.WORLD), d.get_global_rank(d.group.WORLD, 0))",
    "new_group": "(g := d.new_group([0]), d.get_rank(g), d.get_world_size(g), d.all_reduce(x, group=g), x)[1:]",
    "twice": "d.init_process_group('gloo', world_size=1, rank=0)",
    "destroy": "(d.destroy_process_group(), d.is_initialized())",
    "all_reduce_coalesced": "(d.all_reduce_coalesced([x, other := t.ones(2)]), x, other)",
    "all_gather_coalesced": "(d.all_gather_coalesced([[other := t.zeros(4)]], [x]), other)",
    "under old names": "(d._all_gather_base(a := t.zeros(4), x), d._reduce_scatter_base(b := t.zeros(4), x), a, b)",
    "new_subgroups": "[d.get_world_size(d.new_subgroups(1)[0]), len(d.new_subgroups_by_enumeration([[0]])[1])]",
    "too large subgroups": "d.new_subgroups(2)",
    "surroundings": "(d.supports_complex(d.ReduceOp.MAX), d.get_node_local_rank(3), d.get_debug_level().name)",
    "average": "(d.reduce_scatter_tensor(other := t.zeros(4), x), other)",
}


@pytest.fixture(autouse=True)
def groups_are_left(tg: Any) -> Any:
    """Neither library keeps a group after a test."""
    import torch

    yield
    for library in (tg, torch):
        if library.distributed.is_initialized():
            library.distributed.destroy_process_group()


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_communication_among_one_is_pytorchs(call: str, tg: Any) -> None:
    assert_same(*evaluate(f"{MADE}\n{x}\n{call}", tg))


WRAPPED = """
nn = t.nn
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
with t.no_grad():
    for number, parameter in enumerate(net.parameters()):
        parameter.copy_(t.linspace(-1, 1, parameter.numel()).reshape(parameter.shape) + number / 8)
model = nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
optimizer = t.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(3):
    with model.no_sync():
        model(t.ones(2, 3) * step).square().mean().backward()
    loss = model(t.ones(2, 3)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())
"""


def test_a_model_is_trained_in_a_group_of_one(tg: Any) -> None:
    seen = "(losses, list(model.state_dict().values()), list(model.state_dict()), model.module is net)"
    assert_same(*evaluate(f"{MADE}\n{WRAPPED}\n{seen}", tg))


@pytest.mark.parametrize(
    "use",
    [
        "t.distributed.get_rank()", "t.distributed.all_reduce(t.ones(1))", "t.distributed.init_process_group('gloo')",
        "t.nn.parallel.DistributedDataParallel(t.nn.Linear(1, 1))",
    ],
)  # fmt: skip
def test_what_needs_a_group_says_so(use: str, tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    ours, theirs = evaluate(use, tg)
    assert isinstance(theirs, ValueError) and isinstance(ours, ValueError)
    known = "has not been initialized" if "init_" not in use else "expected, but not set"
    assert known in str(ours) and known in str(theirs)


def test_sizes_are_those_of_the_launcher(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    tg.distributed.init_process_group("nccl", init_method="env://")
    assert (tg.distributed.get_backend(), tg.distributed.get_world_size()) == ("nccl", 1)
    tg.distributed.destroy_process_group()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(tg.errors.NotSupportedError, match=r"not 2; start the program once: .*nn\.DataParallel"):
        tg.distributed.init_process_group("nccl")


STORES = """
made = {"hash": d.HashStore(), "prefix": d.PrefixStore("p", d.HashStore()), "file": d.FileStore(path, 1)}
s = made[kind]
s.set("a", "1")
seen = [s.get("a"), s.add("n", 3), s.add("n", -1), s.get("n"), s.check(["a", "z"]), s.check(["a"])]
seen += [s.compare_set("c", "", "x"), s.compare_set("c", "y", "z"), s.compare_set("c", "x", "z")]
seen += [s.compare_set("q", "y", "z"), s.check(["q"]), s.delete_key("a"), s.check(["a"])]
s.set("b", b"\\x00\\xff")
s.append("a", "bc")
s.append("a", b"d")
s.multi_set(["k", "l"], ["1", b"2"])
s.wait(["k", "l"])
s.set_timeout(timedelta(milliseconds=30))
"""


@pytest.mark.parametrize("kind", ["hash", "prefix", "file"])
def test_stores_keep_bytes_by_keys(kind: str, tg: Any, tmp_path: Path) -> None:
    made = f"d = t.distributed\n{STORES}"
    given = {"kind": kind, "path": str(tmp_path / "store"), "timedelta": timedelta}
    assert_same(*evaluate(f"{made}\n(seen, s.multi_get(['a', 'b', 'k', 'l']), str(s.timeout))", tg, **given))
    ours, theirs = evaluate(f"{made}\ns.get('never')", tg, **given)
    assert isinstance(ours, tg.distributed.DistStoreError) and isinstance(theirs, RuntimeError)


def test_stores_of_one_name_are_shared_and_groups_begin_with_them(tg: Any, tmp_path: Path) -> None:
    distributed, path = tg.distributed, str(tmp_path / "store")
    first, second = distributed.FileStore(path, 1), distributed.FileStore(path)
    setting = threading.Timer(0, first.set, ("later", "there"))
    setting.start()
    assert second.get("later") == b"there"
    setting.join()
    inner = distributed.PrefixStore("in", distributed.TCPStore("127.0.0.1", 0, 1, True))
    inner.set("a", "b")
    assert (inner.underlying_store.get("in/a"), inner.num_keys()) == (b"b", 1)
    with pytest.raises(tg.errors.NotSupportedError, match=r"FileStore: a group has one process, not 2; .*DataParallel"):
        distributed.FileStore(path, 2)


def test_another_process_is_refused(tg: Any) -> None:
    distributed = tg.distributed
    distributed.init_process_group("gloo", world_size=1, rank=0)
    with pytest.raises(NotImplementedError, match="no other process"):
        distributed.send(tg.ones(1), 1)
    with pytest.raises(ValueError, match="no rank 1 in a group of one"):
        distributed.broadcast(tg.ones(1), src=1)
    with pytest.raises(ValueError, match="a list of one is wanted"):
        distributed.all_gather([tg.ones(1), tg.ones(1)], tg.ones(1))


def test_gradients_flow_through_communication(tg: Any) -> None:
    from telegrad.distributed import nn

    tg.distributed.init_process_group("gloo", world_size=1, rank=0)
    x = tg.ones(3, requires_grad=True)
    (nn.all_reduce(x * 2).sum() + nn.all_gather(x)[0].sum()).backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
    assert [import_module(name) for name in _origins("torch.distributed.nn.functional")] == [nn]


def test_blocks_that_wait_for_others_change_nothing(tg: Any) -> None:
    joining = import_module("telegrad.distributed.joining")
    tg.distributed.init_process_group("gloo", world_size=1, rank=0)
    model = tg.nn.parallel.DistributedDataParallel(tg.nn.Linear(2, 1))
    with joining.Join([model], throw_on_early_termination=True):
        assert model(tg.ones(3, 2)).shape == (3, 1)
    with pytest.raises(ValueError, match="at least one joinable"):
        joining.Join([])
