"""The state that operations run under: modes, generators, streams and owner of the session whose turn it is.

The engine has one thread; ``current`` is set by the session before it runs instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from telegrad_protocol.autocast import Autocast
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device

from . import keys
from .autograd.apart import DroppedGradients
from .checks import Checks
from .device import threads
from .device.streams import Streams
from .random import Generator
from .switches import DEFAULT
from .tuning import Tuner
from .value import Backend, Value


class CastCache(Protocol):
    """Casts of parameters that autocast has made: see ``autocast.WeightCasts``."""

    def cast(self, value: Value, dtype: DType) -> Value:
        """``value`` as ``dtype``, from the cache if it is there."""

    def clear(self) -> None:
        """Forget all casts."""

    def __len__(self) -> int:
        """How many casts are kept."""


class HostMemory(Protocol):
    """The account of what the session makes the host hold besides the elements of its tensors."""

    noted: int
    """Bytes that are held and noted one by one."""

    def note(self, nbytes: int) -> None:
        """Add what is held from now on; OutOfMemoryError where it is too much."""

    def check_room(self, nbytes: int) -> None:
        """Raise OutOfMemoryError if so many bytes more would be beyond the quota."""


class Held:
    """Bytes that are noted for as long as this object lives."""

    __slots__ = ("_account", "_nbytes")

    def __init__(self, account: HostMemory, nbytes: int) -> None:
        self._nbytes = 0
        self._account = account
        account.note(nbytes)
        self._nbytes = nbytes

    def __del__(self) -> None:
        self._account.noted -= self._nbytes


class Trace(Protocol):
    """What is told of each step of the dispatcher."""

    def append(self, text: str, /) -> None:
        """Take the text about a step."""


class Recorder(Protocol):
    """What notes the operations that backends execute.

    ``lets_spend``: results may be written over operands meanwhile, as what is noted is not executed by the same plans.
    """

    lets_spend: bool

    def note_beginning(self, operator: Any, args: tuple[Any, ...]) -> None:
        """Note that an operation is about to be executed."""

    def note_operation(self, operator: Any, args: tuple[Any, ...], signature: Any, result: Any) -> None:
        """Note an operation that a backend has executed by the plan of this signature."""

    def note_other(self, name: str) -> None:
        """Note that an operation has done something else than have backends execute operations."""

    def note_upload(self, value: Value) -> None:
        """Note a value whose elements have come from outside."""

    def note_elements_read(self, name: str) -> None:
        """Note that an operation looks at elements on the host."""


class CudnnModes(NamedTuple):
    """A session's settings of cuDNN, under PyTorch's names.

    ``allow_tf32``: convolutions in float32 may use TensorFloat-32. ``deterministic``: sums are made in a fixed order.
    ``benchmark``: several plans are tried for a shape, and the fastest is kept. ``enabled``: cuDNN is used at all for
    convolutions and recurrent layers.
    """

    allow_tf32: bool = True
    deterministic: bool = False
    benchmark: bool = False
    enabled: bool = True


class Context:
    """Modes and resources of one session."""

    __slots__ = (
        "_grad_enabled", "autocast", "backends", "before_replay", "casts", "checks", "cudnn", "dropped", "excluded",
        "generators", "host_memory", "included", "inference", "own_streams", "owner", "profiler", "programs",
        "recorder", "remade_nodes", "spent", "streams", "switches", "threads", "trace", "tuner", "warn",
    )  # fmt: skip

    def __init__(self, backends: dict[Device, Backend], owner: int = 0) -> None:
        self.backends = backends
        self.owner = owner
        self._grad_enabled = True
        self.inference = False
        self.autocast: Autocast | None = None
        self.casts: CastCache | None = None
        self.cudnn = CudnnModes()
        self.included = 0
        self.excluded = 0
        self.generators: dict[Device, Generator] = {device: Generator() for device in backends}
        self.streams: dict[Device, int] = {}
        """The raw stream that is current, by device."""
        self.own_streams = Streams()
        self.checks = Checks()
        self.switches = DEFAULT
        self.threads = math.inf
        """The most threads of the host that an operation uses, of those that there are."""
        self.tuner = Tuner()
        self.programs: dict[Any, Any] = {}
        """Backward passes that were recorded, by how they begin; see ``server.engine.backward``."""
        self.dropped = DroppedGradients()
        """Says which gradients lie apart from other memory."""
        self.remade_nodes = 0, 0
        """Sequence numbers of the first and the last node that the last run of a compiled function has made anew."""
        self.spent: Value | None = None
        """A value that nothing needs after the next operation on it, which may write its result over it."""
        self.trace: Trace | None = None
        self.profiler: Any = None
        """The ``profiling.recorder.Recorder`` that notes what is executed; None where nobody asked for it."""
        self.recorder: Recorder | None = None
        """Is told of operations while the Record key is included."""
        self.host_memory: HostMemory = _NoAccount()
        self.warn: Callable[[str], None] = _ignore
        """Called with the text of a warning of host code, of which the client then warns the program."""
        self.before_replay: Callable[[Callable[[], bool]], None] | None = None
        """Called before a pass is replayed, with a function that says whether it can fail for lack of memory alone."""

    @property
    def domain(self) -> int:
        """A number for those who share what is worked out for their calls: the sessions of one tenant."""
        return self.included >> keys.DOMAIN_SHIFT

    @domain.setter
    def domain(self, number: int) -> None:
        self.included = self.included & keys.ALL | number << keys.DOMAIN_SHIFT

    @property
    def is_recording(self) -> bool:
        """Whether operations are recorded now: gradients are enabled, and this is not inference."""
        return self._grad_enabled and not self.inference

    @property
    def grad_enabled(self) -> bool:
        """Whether operations are recorded; where not, the Autograd key is left out of every dispatch."""
        return self._grad_enabled

    @grad_enabled.setter
    def grad_enabled(self, enabled: bool) -> None:
        self._grad_enabled = enabled
        self._exclude_autograd()

    def set_inference(self, enabled: bool) -> None:
        """Enter or leave inference mode, in which nothing is recorded, whatever the grad mode is."""
        self.inference = enabled
        self._exclude_autograd()

    @contextmanager
    def below_autocast(self) -> Iterator[None]:
        """Compute in this block what is called, without autograd and in the types that operands have."""
        excluded = self.excluded
        self.excluded = excluded | keys.BELOW_AUTOCAST
        try:
            yield
        finally:
            self.excluded = excluded

    def _exclude_autograd(self) -> None:
        self.excluded = self.excluded & ~keys.AUTOGRAD if self.is_recording else self.excluded | keys.AUTOGRAD


def _ignore(text: str) -> None:
    """Tell nobody of a warning, where no session is."""


class _NoAccount:
    """Stands for the account where no session is."""

    noted = 0

    def note(self, nbytes: int) -> None:
        """Let everything be held."""

    def check_room(self, nbytes: int) -> None:
        """Let everything be held."""


current: Context = Context({})


def activate(context: Context) -> None:
    """Make ``context`` the one that operations run under."""
    global current
    current = context
    if threads.most != context.threads:
        threads.bound(context.threads)


def note_elements_read(name: str) -> None:
    """Tell a recorder that an operation looks at elements on the host: what it does with others is not known."""
    if current.recorder is not None:
        current.recorder.note_elements_read(name)


class grad_mode:
    """Record operations for differentiation, or do not, within the block."""

    __slots__ = ("_context", "_enabled", "_previous")

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def __enter__(self) -> None:
        self._context = current
        self._previous = current.grad_enabled
        current.grad_enabled = self._enabled

    def __exit__(self, *raised: object) -> None:
        self._context.grad_enabled = self._previous
