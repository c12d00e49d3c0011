"""Data pipes give under both libraries the same, of the same program."""

from __future__ import annotations

from pathlib import Path

from tests.support.pytorch_process import PyTorchProcess

from .both_libraries import apart, on_telegrad
from .server_process import ServerProcess

PROGRAM = """
import torch
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe, functional_datapipe
from torch.utils.data.datapipes import iter as streams, map as sequences
from torch.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe

def is_odd(x):
    return x % 2 == 1

def next_one(x):
    return x + 1

def total(x, y):
    return x + y

S, M = streams.IterableWrapper, sequences.SequenceWrapper
print(list(S(range(10)).map(next_one).filter(is_odd).batch(2)), list(S(range(7)).batch(3, drop_last=True)))
nested = [[[1], [2]], [[3]]]
print([list(S(nested).unbatch(level)) for level in (1, 2, -1)], list(S(iter([1, 2]))))
print(list(S(range(3)).zip(S("abc"))), list(S([1]).concat(S([2, 3]))), list(S(range(4)).sharding_filter()))
print(len(S(range(5)).batch(2)), len(S("abc").map(ord)), len(S("abc").concat(S("ab"))), len(S("abc").zip(S("ab"))))
shuffled = S(range(20)).shuffle(buffer_size=8)
print(sorted(shuffled), isinstance(shuffled, ShufflerIterDataPipe), len(shuffled), list(shuffled.set_shuffle(False)))
torch.manual_seed(5)
passes = [list(shuffled.set_shuffle(True)) for _ in range(2)]
torch.manual_seed(5)
print(passes[0] != passes[1], list(shuffled) == passes[0], list(shuffled.set_seed(3)) == list(shuffled.set_seed(3)))
pairs = [(1, 2), (3, 4)]
print(list(S(pairs).map(next_one, input_col=0)), list(S(pairs).map(total, input_col=[0, 1], output_col=-1)))
print(list(S(pairs).map(total, input_col=[0, 1])), list(S([{"a": 1}]).map(next_one, input_col="a", output_col="b")))
print(list(S(pairs).filter(is_odd, input_col=1)), [x.tolist() for x in S(pairs).collate()])
sharded = S(range(7)).sharding_filter()
sharded.apply_sharding(3, 1)
print(list(sharded), len(sharded))
pipe = M(range(5)).map(next_one)
print(pipe[2], len(pipe), list(pipe), M([1]).concat(M([2]))[1], M([1, 2]).zip(M([3, 4]))[1], sorted(pipe.shuffle()))
print(M(range(5)).batch(2)[2], len(M(range(5)).batch(2)), [x.tolist() for x in DataLoader(pipe, batch_size=2)])

@functional_datapipe("twice")
class Twice(IterDataPipe):
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        for x in self.source:
            yield x
            yield x

print(list(S([1, 2]).twice()), [x.tolist() for x in DataLoader(S(range(5)).twice(), batch_size=4)], Twice([1]))
for use in (
    lambda: S([1]).concat([1]), lambda: S([1]).nothing, lambda: len(S([1]).filter(is_odd)), lambda: S([1]).batch(0),
    lambda: list(S([1]).unbatch()), lambda: M([1]).batch(1)[1], lambda: S([1]).map(is_odd, output_col=1),
    lambda: functional_datapipe("twice")(Twice), lambda: S([1]).shuffle(buffer_size=0),
):
    try:
        print(use())
    except Exception as error:
        print([kind.__name__ for kind in (TypeError, AttributeError, AssertionError, IndexError, ValueError)
               if isinstance(error, kind)])
print(issubclass(IterDataPipe, IterableDataset), issubclass(MapDataPipe, torch.utils.data.Dataset))
"""


def test_data_pipes_are_joined_by_calls(server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ours = on_telegrad(program, tmp_path / "a", server.url)
    assert ours == apart(pytorch, program, tmp_path / "b") and len(ours[0]) > 20
