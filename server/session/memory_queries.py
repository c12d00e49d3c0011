"""Questions about memory that travel in the stream of instructions. A session is told of its own, and changes its own.

What it learns of others is sums and the places of their blocks, never whose they are or which line made them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from telegrad_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from server.allocator import CachingAllocator

    from .session import Session


class Question(NamedTuple):
    """Who answers, the types of the arguments, and how many of them there must be."""

    answer: Callable[..., Any]
    types: tuple[type, ...] = ()
    required: int = 0

    def check(self, what: str, args: list[Any]) -> None:
        """Refuse arguments that are too many, too few, or of other types."""
        if not self.required <= len(args) <= len(self.types):
            raise ProtocolError(f"{what}: {len(args)} arguments, expected {self.required} to {len(self.types)}")
        for arg, kind in zip(args, self.types):
            if not isinstance(arg, kind):
                raise ProtocolError(f"{what}: expected {kind.__name__}, not {type(arg).__name__}")


Asked = Callable[..., Any]


def _of_device(answer: Asked) -> Asked:
    """A question about one device: ``answer(allocator, session, ...)``, while nothing else touches the allocator."""

    def ask(session: Session, device: str = "", *args: Any) -> Any:
        with session.host.backend(device).exclusive_allocator() as allocator:
            return answer(allocator, session, *args)

    return ask


def _memory_stats(allocator: CachingAllocator, session: Session, mine: bool = True) -> dict[str, int]:
    return allocator.memory_stats(session.number if mine else None)


def _memory_summary(allocator: CachingAllocator, session: Session, abbreviated: bool = False, mine: bool = True) -> str:
    return allocator.memory_summary(session.number if mine else None, abbreviated)


def _memory_snapshot(allocator: CachingAllocator, session: Session, with_traces: bool = True) -> dict[str, Any]:
    return allocator.memory_snapshot(session.number, with_traces)


def _record_memory_history(
    allocator: CachingAllocator, session: Session, enabled: str, max_entries: int, context: str, clear: bool,
    skipped: list[Any],
) -> None:  # fmt: skip
    if not all(isinstance(action, str) for action in skipped):
        raise ProtocolError("record_memory_history: skip_actions must be names")
    allocator.record_memory_history(
        enabled or None, max_entries, session.number, context=context or None, clear_history=clear, skip_actions=skipped
    )


def _reset_peak(allocator: CachingAllocator, session: Session) -> None:
    allocator.reset_peak(session.number)


def _reset_accumulated(allocator: CachingAllocator, session: Session) -> None:
    allocator.reset_accumulated(session.number)


def _set_memory_fraction(allocator: CachingAllocator, session: Session, fraction: float) -> None:
    allocator.set_session_fraction(fraction, session.number)


def _memory_fraction(allocator: CachingAllocator, session: Session) -> float:
    return allocator.session_fraction(session.number)


def _delete(allocator: CachingAllocator, session: Session, pointer: int) -> None:
    allocator.caching_allocator_delete(pointer, session.number)


def _new_mem_pool(allocator: CachingAllocator, session: Session) -> tuple[int, int]:
    return allocator.new_mem_pool(session.number).id


def _use_mem_pool(allocator: CachingAllocator, session: Session, first: int, second: int) -> None:
    allocator.begin_allocate_to_pool(allocator.mem_pool((first, second), session.number), session.number)


def _leave_mem_pool(allocator: CachingAllocator, session: Session) -> None:
    allocator.end_allocate_to_pool(session.number)


def _release_mem_pool(allocator: CachingAllocator, session: Session, first: int, second: int) -> None:
    allocator.release_mem_pool(allocator.mem_pool((first, second), session.number))


def _mem_pool_uses(allocator: CachingAllocator, session: Session, first: int, second: int) -> int:
    return allocator.mem_pool((first, second), session.number).uses


def _empty_cache(session: Session, device: str = "") -> None:
    backend = session.host.backend(device)
    current, others = session.context.streams.get(backend.device, 0), session.context.own_streams.opened
    with backend.exclusive_allocator() as allocator:
        for stream in {current, *others.get(backend.device, {}).values()}:
            allocator.empty_own_cache(session.number, stream)


def _alloc(session: Session, device: str, nbytes: int) -> int:
    backend = session.host.backend(device)
    with backend.exclusive_allocator() as allocator:
        stream = session.context.streams.get(backend.device, 0)
        return allocator.caching_allocator_alloc(nbytes, stream, session.number)


def _host_memory_stats(session: Session, device: str = "") -> dict[str, int]:
    return session.host.backend(device).host_memory_stats()


QUESTIONS: dict[str, Question] = {
    "memory_stats": Question(_of_device(_memory_stats), (str, bool)),
    "memory_summary": Question(_of_device(_memory_summary), (str, bool, bool)),
    "memory_snapshot": Question(_of_device(_memory_snapshot), (str, bool)),
    "host_memory_stats": Question(_host_memory_stats, (str,)),
    "record_memory_history": Question(_of_device(_record_memory_history), (str, str, int, str, bool, list), 6),
    "reset_peak": Question(_of_device(_reset_peak), (str,)),
    "reset_accumulated": Question(_of_device(_reset_accumulated), (str,)),
    "empty_cache": Question(_empty_cache, (str,)),
    "set_memory_fraction": Question(_of_device(_set_memory_fraction), (str, float), 2),
    "memory_fraction": Question(_of_device(_memory_fraction), (str,)),
    "caching_allocator_alloc": Question(_alloc, (str, int), 2),
    "caching_allocator_delete": Question(_of_device(_delete), (str, int), 2),
    "new_mem_pool": Question(_of_device(_new_mem_pool), (str,)),
    "use_mem_pool": Question(_of_device(_use_mem_pool), (str, int, int), 3),
    "leave_mem_pool": Question(_of_device(_leave_mem_pool), (str,)),
    "release_mem_pool": Question(_of_device(_release_mem_pool), (str, int, int), 3),
    "mem_pool_uses": Question(_of_device(_mem_pool_uses), (str, int, int), 3),
}
