"""CUDA's virtual-memory calls: addresses reserved apart from the memory that is put behind them, page by page.

Knows one device and raw addresses; nothing of segments or blocks.
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from telegrad_protocol.errors import DeviceError

_OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
_SUCCESS = driver.CUresult.CUDA_SUCCESS


_DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE


def _access_of(device: int) -> Any:
    """The right of a device to read and write."""
    access = driver.CUmemAccessDesc()
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    access.location.type, access.location.id = _DEVICE, device
    return access


def _peers_of(index: int) -> list[int]:
    """The other devices of this process that can access the memory of one."""
    status, count = driver.cuDeviceGetCount()
    _check("cuDeviceGetCount", status)
    return [peer for peer in range(count) if peer != index and _can_access(peer, index)]


def _can_access(device: int, peer: int) -> bool:
    status, is_possible = driver.cuDeviceCanAccessPeer(device, peer)
    _check("cuDeviceCanAccessPeer", status)
    return bool(is_possible)


class VirtualMemory:
    """Reservations of addresses on one device, and pages of memory that are mapped there."""

    def __init__(self, index: int) -> None:
        self._properties = driver.CUmemAllocationProp()
        self._properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._properties.location.type = _DEVICE
        self._properties.location.id = index
        # Copies between GPUs are direct only where both may access the memory.
        self._access = [_access_of(device) for device in (index, *_peers_of(index))]

    def reserve(self, nbytes: int) -> int | None:
        """Reserve ``nbytes`` addresses and return the first; None where there are not as many."""
        status, pointer = driver.cuMemAddressReserve(nbytes, 0, 0, 0)
        return None if _is_short("cuMemAddressReserve", status) else int(pointer)

    def release(self, pointer: int, nbytes: int) -> None:
        """Give back a reservation of which nothing is mapped."""
        _check("cuMemAddressFree", driver.cuMemAddressFree(pointer, nbytes)[0])

    def map(self, pointer: int, nbytes: int, page: int) -> bool:
        """Map memory to all of the addresses; return False, and map none, where the device has no room."""
        pages = range(pointer, pointer + nbytes, page)
        for at in pages:
            if not self._map_page(at, page):
                self.unmap(pointer, at - pointer, page)
                return False
        if _is_short("cuMemSetAccess", driver.cuMemSetAccess(pointer, nbytes, self._access, len(self._access))[0]):
            self.unmap(pointer, nbytes, page)
            return False
        return True

    def _map_page(self, pointer: int, page: int) -> bool:
        status, handle = driver.cuMemCreate(page, self._properties, 0)
        if _is_short("cuMemCreate", status):
            return False
        try:
            _check("cuMemMap", driver.cuMemMap(pointer, page, 0, handle, 0)[0])
        finally:
            # The mapping keeps the memory.
            driver.cuMemRelease(handle)
        return True

    def unmap(self, pointer: int, nbytes: int, page: int) -> None:
        """Take the memory away from addresses; all work that uses it must be done."""
        for at in range(pointer, pointer + nbytes, page):
            _check("cuMemUnmap", driver.cuMemUnmap(at, page)[0])


def _is_short(call: str, status: Any) -> bool:
    if status == _OUT_OF_MEMORY:
        return True
    _check(call, status)
    return False


def _check(call: str, status: Any) -> None:
    if status != _SUCCESS:
        raise DeviceError(f"{call}: {driver.CUresult(status).name}")
