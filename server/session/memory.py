"""Answers about memory that a session asks for in its stream. It is told of its own memory, and changes its own.

What it learns of other sessions is sums and the places of their blocks, never whose they are or which line made them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from server.allocator import CachingAllocator
from server.allocator.reports.history import most_entries
from telegrad_protocol import queries

from .requests import answers
from .state import SessionState

Query = TypeVar("Query", bound=msgspec.Struct)
_Answer = Callable[[CachingAllocator, SessionState, Query], Any]


def _of_allocator(query: type[Query]) -> Callable[[_Answer[Query]], _Answer[Query]]:
    """Enter a function that answers about the allocator of ``query.device``, while nothing else touches it."""

    def enter(function: _Answer[Query]) -> _Answer[Query]:
        @answers(query)
        def ask(state: SessionState, asked: Any) -> Any:
            with state.backend(asked.device).exclusive_allocator() as allocator:
                return function(allocator, state, asked)

        return function

    return enter


@_of_allocator(queries.MemoryStats)
def _memory_stats(allocator: CachingAllocator, state: SessionState, query: queries.MemoryStats) -> dict[str, int]:
    return allocator.memory_stats(state.number if query.mine else None)


@_of_allocator(queries.MemorySummary)
def _memory_summary(allocator: CachingAllocator, state: SessionState, query: queries.MemorySummary) -> str:
    return allocator.memory_summary(state.number if query.mine else None, query.abbreviated)


@_of_allocator(queries.MemorySnapshot)
def _memory_snapshot(allocator: CachingAllocator, state: SessionState, query: queries.MemorySnapshot) -> dict[str, Any]:
    return allocator.memory_snapshot(state.number, query.with_traces)


@_of_allocator(queries.RecordMemoryHistory)
def _record_memory_history(
    allocator: CachingAllocator, state: SessionState, query: queries.RecordMemoryHistory
) -> None:
    enabled = query.enabled or None
    state.histories.pop(id(allocator), None)
    if enabled is not None:
        state.histories[id(allocator)] = most_entries(enabled, query.max_entries, state.number)
    allocator.record_memory_history(
        enabled, query.max_entries, state.number, context=query.context or None,
        clear_history=query.clear, skip_actions=query.skip_actions,
    )  # fmt: skip


@_of_allocator(queries.ResetPeak)
def _reset_peak(allocator: CachingAllocator, state: SessionState, query: queries.ResetPeak) -> None:
    allocator.reset_peak(state.number)


@_of_allocator(queries.ResetAccumulated)
def _reset_accumulated(allocator: CachingAllocator, state: SessionState, query: queries.ResetAccumulated) -> None:
    allocator.reset_accumulated(state.number)


@_of_allocator(queries.SetMemoryFraction)
def _set_memory_fraction(allocator: CachingAllocator, state: SessionState, query: queries.SetMemoryFraction) -> None:
    allocator.set_session_fraction(query.fraction, state.number)


@_of_allocator(queries.MemoryFraction)
def _memory_fraction(allocator: CachingAllocator, state: SessionState, query: queries.MemoryFraction) -> float:
    return allocator.session_fraction(state.number)


@_of_allocator(queries.CachingAllocatorAlloc)
def _alloc(allocator: CachingAllocator, state: SessionState, query: queries.CachingAllocatorAlloc) -> int:
    stream = state.context.streams.get(state.backend(query.device).device, 0)
    return allocator.caching_allocator_alloc(query.nbytes, stream, state.number)


@_of_allocator(queries.CachingAllocatorDelete)
def _delete(allocator: CachingAllocator, state: SessionState, query: queries.CachingAllocatorDelete) -> None:
    allocator.caching_allocator_delete(query.pointer, state.number)


@_of_allocator(queries.NewMemPool)
def _new_mem_pool(allocator: CachingAllocator, state: SessionState, query: queries.NewMemPool) -> tuple[int, int]:
    return allocator.new_mem_pool(state.number).id


@_of_allocator(queries.UseMemPool)
def _use_mem_pool(allocator: CachingAllocator, state: SessionState, query: queries.UseMemPool) -> None:
    pool = allocator.mem_pool((query.first, query.second), state.number)
    allocator.begin_allocate_to_pool(pool, state.number)


@_of_allocator(queries.LeaveMemPool)
def _leave_mem_pool(allocator: CachingAllocator, state: SessionState, query: queries.LeaveMemPool) -> None:
    allocator.end_allocate_to_pool(state.number)


@_of_allocator(queries.ReleaseMemPool)
def _release_mem_pool(allocator: CachingAllocator, state: SessionState, query: queries.ReleaseMemPool) -> None:
    allocator.release_mem_pool(allocator.mem_pool((query.first, query.second), state.number))


@_of_allocator(queries.MemPoolUses)
def _mem_pool_uses(allocator: CachingAllocator, state: SessionState, query: queries.MemPoolUses) -> int:
    return allocator.mem_pool((query.first, query.second), state.number).uses


@_of_allocator(queries.EmptyCache)
def _empty_cache(allocator: CachingAllocator, state: SessionState, query: queries.EmptyCache) -> None:
    device = state.backend(query.device).device
    current, others = state.context.streams.get(device, 0), state.context.own_streams.opened
    for stream in {current, *others.get(device, {}).values()}:
        allocator.empty_own_cache(state.number, stream)


@answers(queries.HostMemoryStats)
def _host_memory_stats(state: SessionState, query: queries.HostMemoryStats) -> dict[str, int]:
    return state.backend(query.device).host_memory_stats()


@answers(queries.ResetHostMemory)
def _reset_host_memory(state: SessionState, query: queries.ResetHostMemory) -> None:
    state.backend(query.device).reset_host_memory_stats(query.is_peak)
