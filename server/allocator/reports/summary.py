"""The table of ``torch.cuda.memory_summary``, from the statistics alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

WIDTH = 75
_SIZE_UNITS = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = (" ", "K", "M")
_PARTS = ("current", "peak", "allocated", "freed")
_POOLS = (("large_pool", "      from large pool"), ("small_pool", "      from small pool"))


def summarize(stats: dict[str, int], device: str, owner: int | None, abbreviated: bool) -> str:
    """Lay the statistics of a device, or of one session on it, out as text."""
    lines = [*_head(stats, device, owner)]
    for statistic, label, form in _ROWS:
        lines.append("-" * WIDTH)
        lines.extend(_rows(stats, statistic, label, form, abbreviated))
    lines.append("=" * WIDTH)
    return "".join(f"|{line}|\n" for line in lines)


def _head(stats: dict[str, int], device: str, owner: int | None) -> Iterator[str]:
    whose = "" if owner is None else f", session {owner}"
    yield "=" * WIDTH
    yield f"{'telegrad memory summary, device ' + device + whose:^{WIDTH}}"
    yield "-" * WIDTH
    yield f"{'':12}CUDA OOMs: {stats['num_ooms']:<12d} | {'':6} cudaMalloc retries: {stats['num_alloc_retries']:<8d}  "
    yield "=" * WIDTH
    yield "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "


def _rows(stats: dict[str, int], statistic: str, label: str, form: Form, abbreviated: bool) -> Iterator[str]:
    if f"{statistic}.current" in stats:
        amounts = _amounts(stats, statistic)
        yield _row(label, amounts, amounts, form)
        return
    amounts = _amounts(stats, f"{statistic}.all")
    yield _row(label, amounts, amounts, form)
    for pool, pool_label in () if abbreviated else _POOLS:
        yield _row(pool_label, _amounts(stats, f"{statistic}.{pool}"), amounts, form)


def _amounts(stats: dict[str, int], prefix: str) -> list[int]:
    return [stats[f"{prefix}.{part}"] for part in _PARTS]


def _row(label: str, amounts: list[int], scales: list[int], form: Form) -> str:
    cells = " | ".join(form(amount, scale) for amount, scale in zip(amounts, scales))
    return f" {label:<21} | {cells} "


def _size(nbytes: int, scale: float) -> str:
    """Bytes in the unit that suits ``scale``, so that the rows of a group share one."""
    nbytes, unit = _scaled(nbytes, scale, 1024, 768 * 1024, _SIZE_UNITS)
    return f"{nbytes:6d} {unit}"


def _count(count: int, scale: float) -> str:
    count, unit = _scaled(count, scale, 1000, 750 * 1000, _COUNT_UNITS)
    return f"{count:7d} {unit} "


def _scaled(amount: int, scale: float, step: int, limit: int, units: tuple[str, ...]) -> tuple[int, str]:
    unit = units[0]
    for larger in units[1:]:
        if scale < limit:
            break
        amount, scale, unit = amount // step, scale / step, larger
    return amount, unit


Form = Callable[[int, float], str]
_ROWS: tuple[tuple[str, str, Form], ...] = (
    ("allocated_bytes", "Allocated memory", _size),
    ("active_bytes", "Active memory", _size),
    ("requested_bytes", "Requested memory", _size),
    ("reserved_bytes", "GPU reserved memory", _size),
    ("inactive_split_bytes", "Non-releasable memory", _size),
    ("allocation", "Allocations", _count),
    ("active", "Active allocs", _count),
    ("segment", "GPU reserved segments", _count),
    ("inactive_split", "Non-releasable allocs", _count),
    ("oversize_allocations", "Oversize allocations", _count),
    ("oversize_segments", "Oversize GPU segments", _count),
)
