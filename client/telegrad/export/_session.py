"""The session in which a module runs while it is exported: it has shapes and no elements, and keeps every call."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, NoReturn

from telegrad._dispatch.programs import BY_INDEX, Operand, Template, decoded, filled
from telegrad._session.call_sites import CallSites
from telegrad._session.current import current_session, has_session
from telegrad._session.devices import default_device
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._session.thread_modes import DEFAULT, Modes, thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import messages
from telegrad_protocol.autocast import Autocast, recast
from telegrad_protocol.errors import ProgramError
from telegrad_protocol.meta import CPU, META, Device, Meta
from telegrad_protocol.ops import TABLE, Op
from telegrad_protocol.ops.contract import is_view

from ._module_calls import Calls, ModuleCalls

_PASSED_OVER: Final = (messages.Free, messages.Site, messages.Mode, messages.SetRequiresGrad)
"""Instructions that leave no trace in a program, which computes no gradients and frees what it needs no more."""
_REASONS: Final = {
    "read": "the module reads the elements of a tensor (item(), tolist(), print or `if tensor:`)",
    "describe": "the shape of a result depends on elements",
    "Backward": "the module computes gradients",
    "Gradient": "the module computes gradients",
    "Seed": "the module seeds the generator",
    "LaunchKernel": "the module launches a kernel of its own",
    "CallExtension": "the module calls an extension of its own",
}


class ReadsElementsError(ProgramError):
    """The module reads elements, or the length of a result depends on them."""


class RecordedStep(NamedTuple):
    """One operation, its canonical arguments with operands for tensors, its results' metas, and the line it is from.

    ``without_gradient`` says that the module has turned off for it what was on where it was called; ``calls`` are
    those of modules that it is in.
    """

    op: Op
    args: Template
    outs: tuple[int, ...]
    metas: tuple[Meta, ...]
    line: str
    without_gradient: bool
    calls: Calls = ()


class Upload(NamedTuple):
    """A tensor that the module makes of data of the program, and the line where."""

    meta: Meta
    data: bytes
    line: str


class RecordingSession(ShapeSession):
    """Keeps the calls of one run of a module; ``captured`` are tensors of the program by the number they have here."""

    is_for_all_sizes = True
    """What is called on tensors of some sizes is to hold for others."""

    def __init__(self) -> None:
        devices: tuple[Device, ...] = (CPU, META)
        first = CPU
        if has_session():
            real = current_session()
            first = default_device(real)
            devices = (first, *[device for device in (*real.devices, META) if device is not first])
        super().__init__(devices, self._refusal)
        self._lines: dict[int, str] = {}
        self.sites = CallSites(self._introduce)
        self.module_calls = ModuleCalls()
        self.steps: list[RecordedStep] = []
        self.uploads: dict[int, Upload] = {}
        self.metas: dict[int, Meta] = {}
        self.captured: dict[int, tuple[Tensor, Tensor]] = {}
        """By the identity of a tensor of the program: that tensor, and the one that stands for it here."""
        self.roots: dict[int, int] = {}
        """By the number of a view, that of the tensor whose memory it shows."""
        self.written: set[int] = set()
        """Tensors whose memory is written to."""
        self._casts: dict[tuple[int, Any], int] = {}
        self._records = thread.modes.records
        self._without_gradient = False

    def make(self, meta: Meta) -> Tensor:
        """Return a new tensor without elements."""
        number = self.new_id()
        self.metas[number] = meta
        return Tensor(self, number, meta)

    def stand_in(self, tensor: Tensor) -> Tensor:
        """Return what stands here for a tensor of the program, which becomes one of the exported program's own."""
        known = self.captured.get(id(tensor))
        if known is None:
            known = self.captured[id(tensor)] = tensor, self.make(_contiguous(tensor._meta))
        return known[1]

    def call(self, op: int, site: int, outs: tuple[int, ...], args: list[Any], modes: Modes) -> None:
        """Keep a call."""
        self._without_gradient = self._records and not modes.records
        self._keep(BY_INDEX[op], site, outs, args, modes.autocast)

    def queue(self, instruction: Any, modes: Modes) -> None:
        """Keep a call; raise ProgramError for what no program can do."""
        self.submit(instruction, modes)

    def submit(self, instruction: Any, modes: Modes = DEFAULT) -> None:
        """Keep a call; raise ProgramError for what no program can do."""
        if isinstance(instruction, messages.Call):
            self.call(instruction.op, instruction.site, instruction.outs, instruction.args, modes)
        elif not isinstance(instruction, _PASSED_OVER):
            raise self._refusal(type(instruction).__name__)

    def upload(self, meta: Meta, data: memoryview, site: int) -> int:
        """Keep a tensor that is made of data."""
        number = self.new_id()
        self.metas[number] = meta
        self.uploads[number] = Upload(meta, bytes(data), self._lines.get(site, ""))
        return number

    def root_of(self, number: int) -> int:
        """Return the tensor whose memory this one shows."""
        while number in self.roots:
            number = self.roots[number]
        return number

    def _keep(self, op: Op, site: int, outs: tuple[int, ...], raw: list[Any], autocast: Autocast | None) -> None:
        args = tuple([decoded(param.kind, item) for param, item in zip(op.params, raw, strict=True)])
        line = self._lines.get(site, "")
        if autocast is not None:
            op, args = self._cast(op, args, autocast, line)
        given = filled(args, self.metas)
        inferred = op.infer(given)
        if inferred is None and outs:
            raise self._refusal("describe", op.public)
        for position in op.mutates:
            self._note_written(args[position])
        made: tuple[Meta, ...] = ()
        if outs:
            made = inferred if isinstance(inferred, tuple) else (inferred,)  # type: ignore[assignment]
            self.metas.update(zip(outs, made, strict=True))
        if outs and is_view(op, given):
            source = args[op.view_of]  # type: ignore[index]
            self.roots.update(dict.fromkeys(outs, source.number))
        self.steps.append(self._step(op, args, outs, made, line))

    def _step(self, op: Op, args: Template, outs: tuple[int, ...], made: tuple[Meta, ...], line: str) -> RecordedStep:
        return RecordedStep(op, args, outs, made, line, self._without_gradient, self.module_calls.stack)

    def _note_written(self, target: Any) -> None:
        for item in target if target.__class__ is tuple else (target,):
            if item.__class__ is Operand:
                self.written.add(self.root_of(item.number))

    def _cast(self, op: Op, args: Template, autocast: Autocast, line: str) -> tuple[Op, Template]:
        """Return the operation and its arguments as autocast has them; the casts become steps of their own."""
        given = filled(args, self.metas)
        called, wanted = recast(op, given, autocast)
        return called, tuple([self._cast_to(*pair, line) for pair in zip(args, wanted, strict=True)])

    def _cast_to(self, item: Any, wanted: Any, line: str) -> Any:
        if item.__class__ is Operand:
            meta = self.metas[item.number]
            return item if meta.dtype is wanted.dtype else Operand(self._converted(item.number, wanted.dtype, line))
        if item.__class__ is tuple and wanted.__class__ is tuple and any([i.__class__ is Operand for i in item]):
            return tuple([self._cast_to(*pair, line) for pair in zip(item, wanted, strict=True)])
        return wanted

    def _converted(self, number: int, dtype: Any, line: str) -> int:
        is_kept = number not in self.written and self.root_of(number) == number
        known = self._casts.get((number, dtype)) if is_kept else None
        if known is not None:
            return known
        op, out = TABLE["_to_copy"], self.new_id()
        args = tuple(
            [Operand(number) if p.name == "input" else dtype if p.name == "dtype" else p.default for p in op.params]
        )
        self.metas[out] = op.infer(filled(args, self.metas))  # type: ignore[assignment]
        self.steps.append(self._step(op, args, (out,), (self.metas[out],), line))
        if is_kept:
            self._casts[number, dtype] = out
        return out

    def _introduce(self, site: messages.Site) -> None:
        self._lines[site.number] = f"{site.file}:{site.line} in {site.function}"

    def line(self) -> str:
        """Return the line of the user's program that is being executed."""
        return self._lines.get(self.sites.current(1), "an unknown line")

    def _refusal(self, what: str, operation: str = "") -> ProgramError:
        reason = _REASONS.get(what, f"the module asks the server ({what})")
        named = f" of {operation}" if operation else ""
        return (ReadsElementsError if what in ("read", "describe") else ProgramError)(
            f"export: {reason}{named} at {self.line()}, and a program is one list of operations; compute it outside "
            "and pass it as an argument, or select by tensors (torch.where, index_select)"
        )

    def synchronize(self, device: str = "") -> None:
        """Do nothing."""

    def request(self, make: Any) -> NoReturn:
        """Refuse: there is nobody to ask."""
        raise self._refusal(type(make(0)).__name__)


def _contiguous(meta: Meta) -> Meta:
    return Meta.of(meta.shape, meta.dtype, meta.device)
