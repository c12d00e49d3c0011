"""An execution that was captured on memory of its own, for loops that keep something new in each step.

All that it allocates lies in one block, which belongs to the capture. Inputs that lay elsewhere in executions before
are copied into that block before a launch; the others must lie where they lay. Results are copied out after it, to
memory that is allocated for them: whoever keeps them keeps ordinary memory, and the next launch may come at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from weakref import ref

from server.allocator import Block
from server.allocator.cache.shadow_blocks import Arena, ShadowBlock
from server.engine import context
from server.engine.context import Held
from server.engine.device.interface import Capture, Counter, Relocatable
from server.engine.operators import OPERATORS, Operator, Run
from server.engine.plan import plan_of
from server.engine.random import PlacedGenerator
from server.engine.replay.captures import drawing_from, succeeds
from server.engine.replay.shadows import REPLAYED
from server.engine.signature import signature_of
from server.engine.value import Backend, Storage, Value
from telegrad_protocol.dtypes import float32, uint8
from telegrad_protocol.errors import OutOfMemoryError
from telegrad_protocol.meta import Meta

from .described import Description, Inputs, Output, Versions, block_of, memory_in, modifications, versions_of
from .executable import Executable
from .shared_memory import Memory, SharedMemory

_ATTEMPTS: Final = 5
_SPARE_BYTES: Final = 1 << 20
_WASTE: Final = 1.25
"""From so many times the needed bytes on, memory is taken once more as large as it was used."""
_LARGEST_EXTENT: Final = 4
"""An input is not copied where its elements lie in memory of so many times their size."""


class _Moved(NamedTuple):
    """Memory of an input that lies elsewhere each time: its number, how many bytes are copied, and to which block."""

    number: int
    nbytes: int
    block: Block


class _Made(NamedTuple):
    """Memory that an execution leaves: its place in the capture's memory, its size, and how often it was modified."""

    block: Block
    nbytes: int
    version: int


class Copies:
    """Copies between memory that stays and memory that is another one each time: words by one kernel for all.

    All have the same sizes each time, so how they are made is looked up once, and their arguments stay: only the blocks
    of those that move are others.
    """

    def __init__(self, backend: Backend, fixed: Sequence[tuple[Block, int]]) -> None:
        self._backend = backend
        dtypes = [uint8 if nbytes % float32.itemsize else float32 for _, nbytes in fixed]
        metas = [
            Meta.of((nbytes // dtype.itemsize,), dtype, backend.device) for (_, nbytes), dtype in zip(fixed, dtypes)
        ]
        staying, moving = ([Value(Storage(backend, *one, REPLAYED), meta, backend) for one, meta in zip(fixed, metas)]
                           for _ in range(2))  # fmt: skip
        self._moving = moving
        words = [n for n, (_, nbytes) in enumerate(fixed) if nbytes and dtypes[n] is float32]
        groups = [group for group in (*[[n] for n, dtype in enumerate(dtypes) if dtype is uint8], words) if group]
        self._calls = [
            [_copy_call(tuple([to[n] for n in group]), tuple([of[n] for n in group])) for group in groups]
            for to, of in ((staying, moving), (moving, staying))
        ]
        self._runs: list[Run] = []

    def copy_in(self, blocks: Sequence[Block]) -> None:
        """Copy from these blocks to those that stay."""
        self._make(self._calls[0], blocks)

    def copy_out(self, blocks: Sequence[Block]) -> None:
        """Copy to these blocks from those that stay."""
        self._make(self._calls[1], blocks)

    def _make(self, calls: Sequence[tuple[Operator, tuple[Any, ...]]], blocks: Sequence[Block]) -> None:
        for value, block in zip(self._moving, blocks):
            value.storage.block, value._array = block, None
        if not self._runs:
            self._runs = [plan_of(one, args, signature_of(one, args)[1]).run for one, args in calls]
        for run, (_, args) in zip(self._runs, calls):
            run(args)


def _copy_call(targets: tuple[Value, ...], sources: tuple[Value, ...]) -> tuple[Operator, tuple[Any, ...]]:
    """Return an operation that copies between values of the same metas, and what it is called with."""
    if len(targets) == 1:
        return OPERATORS["copy_"], (targets[0], sources[0], False)
    return OPERATORS["_foreach_apply_"], (targets, "copy_", sources, (), (), (0.0,) * len(targets))


class RunOnOwnMemory:
    """An execution on memory which stays as long as there is this; ``graph`` is what a device launches.

    ``memory`` is what the block of the run is a part of.
    """

    def __init__(self, backend: Backend, graph: Capture | Relocatable, memory: Memory) -> None:
        self._backend, self._memory, self._graph = backend, memory, graph
        memory.enter()
        self._held = Held(context.current.host_memory, graph.nbytes)
        self.is_dropped = False
        backend.graph_memory.add(self, graph.nbytes, context.current.owner, _Drop(self))

    def __del__(self) -> None:
        if not self.__dict__.get("is_dropped", True):
            self._backend.graph_memory.forget(self)
            self._memory.leave()

    def drop(self) -> None:
        """Give its memory back at once, also in the middle of a call of the allocator, which is short of it."""
        self.is_dropped = True
        self._memory.leave_at_once()
        self._graph = self._held = None  # type: ignore[assignment]


class CapturedRun(RunOnOwnMemory):
    """An execution that was captured on memory which stays, with copies of the inputs that move."""

    _graph: Capture

    def __init__(self, run: PrivateRun, graph: Capture, memory: Memory) -> None:
        super().__init__(run.backend, graph, memory)
        self._inward = Copies(run.backend, [(one.block, one.nbytes) for one in run.moved])

    def launch_on(self, blocks: Sequence[Block]) -> bool:
        """Copy the inputs that move from these blocks, and launch; False if the device refuses to launch."""
        self._inward.copy_in(blocks)
        self._backend.flush()
        if not self._graph.launch():
            return False
        self._backend.graph_memory.note_launch(self)
        return True


class Results:
    """What an execution leaves each time: ``outputs``, over memory that is allocated for them.

    ``words`` are those that it draws of the device's generator, ``modified`` says how often it modifies inputs.
    """

    def __init__(self, run: PrivateRun) -> None:
        self.words, self.outputs, self.modified = run.generator.words, run.outputs, run.modified
        self._backend = run.backend
        self._metas = [Meta.of((one.nbytes,), uint8, run.backend.device) for one in run.made]
        self._versions = [one.version for one in run.made]

    def new_storages(self) -> list[Storage]:
        """Allocate memory for the results, which may have captures dropped."""
        made = []
        for meta, version in zip(self._metas, self._versions):
            storage = self._backend.empty(meta).storage
            storage.version = version
            made.append(storage)
        return made


class PrivateCapture(CapturedRun):
    """Such an execution whose results are copied out.

    ``fixed`` are numbers of the inputs' memory that must lie where it lay, with the addresses.
    """

    def __init__(self, run: PrivateRun, graph: Capture, memory: Memory, fixed: Sequence[tuple[int, int]]) -> None:
        super().__init__(run, graph, memory)
        self.results = Results(run)
        self._fixed, self._moved = tuple(fixed), tuple([one.number for one in run.moved])
        self._outward = Copies(run.backend, [(one.block, one.nbytes) for one in run.made])
        self._numbers, self._place = run.numbers, run.backend.place()
        self.copied_bytes = sum([one.nbytes for one in run.moved]) + sum([one.nbytes for one in run.made])
        """What a launch copies."""

    def fits(self, values: Sequence[Any], numbers: tuple[Any, ...], place: tuple[Any, ...]) -> bool:
        """Whether it does what an execution on these values would do."""
        if self.is_dropped or numbers != self._numbers or place != self._place:
            return False
        return all([block_of(values[number]).pointer == pointer for number, pointer in self._fixed])

    def launch(self, values: Sequence[Any], made: Sequence[Storage]) -> bool:
        """Copy inputs in, launch, and copy results out to the storages; False if the device refuses to launch."""
        if not self.launch_on([block_of(values[number]) for number in self._moved]):
            return False
        versions = [storage.version for storage in made]
        self._outward.copy_out([storage.block for storage in made])
        for storage, version in zip(made, versions):
            storage.version = version
        return True


class _Drop:
    """Has a capture drop its memory, as long as there is the capture."""

    __slots__ = ("_capture",)

    def __init__(self, capture: RunOnOwnMemory) -> None:
        self._capture = ref(capture)

    def __call__(self) -> None:
        capture = self._capture()
        if capture is not None:
            capture.drop()


class PrivateRun:
    """Goes through an execution on memory of its own, as often as a device wants."""

    def __init__(
        self, executable: Executable, backend: Backend, values: Sequence[Any], extents: dict[Block, int],
        generator: PlacedGenerator, block: Block, counter: Counter | None = None, apart: Collection[int] = (),
        behind: int = 0,
    ) -> None:  # fmt: skip
        self.backend, self.generator = backend, generator
        self._counter = counter
        self._apart, self._behind = apart, behind
        self.numbers_of_made: list[int] = []
        """As how-manieth the memory of results was taken."""
        self._block = block
        self.numbers = tuple([value for value in values if value.__class__ is not Value])
        self._executable, self._inputs, self._extents = executable, Inputs(values), extents
        self._lying = {block: ShadowBlock(block) for block in [one.block for one in memory_in(values)] if block.size}
        """Where memory of inputs is now: a block of the allocator's may become another part of it once it is free."""
        self._numbers_of = {storage.block: number for storage, number in reversed(memory_in(values).items())}
        self.moved: list[_Moved] = []
        self.made: list[_Made] = []
        self.outputs: tuple[Output, ...] = ()
        self.modified: Versions = ()
        self.most = 0
        self.is_too_small = False

    def __call__(self) -> bool:
        """Make the run; returns whether all that it has taken, and not given back, are its results."""
        with (
            drawing_from(self.backend.device, self.generator),
            self.backend.allocator.run_in(self._block, self._apart, self._behind) as arena,
        ):
            is_whole = succeeds(self._run, arena)
            self.most, self.is_too_small = arena.most, arena.is_too_small
            self.numbers_of_made = [arena.numbers[one.block] for one in self.made if one.block in arena.numbers]
            kept = {one.block for one in self.moved} | {one.block for one in self.made if one.nbytes}
            return is_whole and arena.taken == kept

    def _run(self, arena: Arena) -> None:
        copies = {block: arena.take(nbytes) for block, nbytes in self._extents.items()}
        self.moved = [_Moved(self._numbers_of[block], self._extents[block], copy) for block, copy in copies.items()]
        values = self._inputs.shadows(
            lambda block: copies.get(block) or arena.shadow(self._lying.get(block, block)), self.backend
        )
        versions = versions_of(values)
        execution = self._executable.begin_counted(values, self._counter or self.backend.captured_work())
        execution.advance()
        outputs = execution.outputs()
        described = Description(values, outputs)
        self.made, self.outputs = [_Made(*one) for one in described.made], described.outputs
        self.modified = modifications(values, versions)
        for output in outputs:
            if output.__class__ is Value:
                output.storage.keeper = REPLAYED


def captured_on_memory_of_its_own(
    executable: Executable, backend: Backend, values: Sequence[Any], moving: set[Block], generator: PlacedGenerator,
    outputs: Sequence[Any], shared: SharedMemory | None = None,
) -> PrivateCapture | None:  # fmt: skip
    """Capture an execution that was just made on these values, with these results.

    With ``shared`` memory on that, which other such executions use in their turn. None where it modifies memory that
    moves, does what a graph cannot repeat, or there is too little memory.
    """
    extents = extents_of(values, moving)
    if extents is None:
        return None
    nbytes = nbytes_of(executable, outputs) + sum(extents.values())
    for _ in range(_ATTEMPTS):
        try:
            memory = Memory(backend, nbytes) if shared is None else shared.of(nbytes)
            if memory is None:
                return None
            run = PrivateRun(executable, backend, values, extents, generator, memory.block)
            generator.words = 0
            graph = backend.capture(run)
            is_fitting = shared is not None or nbytes <= max(_WASTE * run.most, run.most + _SPARE_BYTES)
            if graph is not None and is_fitting:
                return _kept(run, graph, values, memory)
        except OutOfMemoryError:
            return None
        if graph is None and not run.is_too_small:
            return None
        nbytes = run.most if graph is not None else 2 * max(nbytes, memory.nbytes)
        del memory, run, graph
    return None


def nbytes_of(executable: Executable, outputs: Sequence[Any]) -> int:
    """Return about how much memory an execution takes that has left these results."""
    results = sum({id(v.storage): v.storage.nbytes for v in outputs if v.__class__ is Value}.values())
    return executable.describe().temporary_bytes_after + results + _SPARE_BYTES


def _kept(run: PrivateRun, graph: Capture, values: Sequence[Any], memory: Memory) -> PrivateCapture | None:
    moved = {one.number for one in run.moved}
    if moved & {number for number, _ in run.modified}:
        return None
    fixed = [(number, one.block.pointer) for one, number in memory_in(values).items() if number not in moved]
    return PrivateCapture(run, graph, memory, fixed)


def extents_of(values: Sequence[Any], moving: set[Block]) -> dict[Block, int] | None:
    """Return how many bytes of each block that moves inputs reach to.

    None where most of these are no elements, or an input has its memory from somebody else.
    """
    extents: dict[Block, int] = {}
    for value in values:
        if value.__class__ is not Value:
            continue
        storage, meta = value.storage, value.meta
        if storage.keeper is not None:
            return None
        if storage.block in moving and storage.nbytes:
            end = (meta.offset + meta.extent) * meta.dtype.itemsize
            if end > _LARGEST_EXTENT * meta.numel * meta.dtype.itemsize + _SPARE_BYTES:
                return None
            extents[storage.block] = max(extents.get(storage.block, 0), end)
    return extents
