"""What PyTorch's traces say of a GPU, under their names."""

from __future__ import annotations

from typing import Any, Final

_NAMES: Final = {
    "totalGlobalMem": "totalGlobalMem", "computeMajor": "major", "computeMinor": "minor",
    "maxThreadsPerBlock": "maxThreadsPerBlock", "maxThreadsPerMultiprocessor": "maxThreadsPerMultiProcessor",
    "regsPerBlock": "regsPerBlock", "warpSize": "warpSize", "sharedMemPerBlock": "sharedMemPerBlock",
    "numSms": "multiProcessorCount", "regsPerMultiprocessor": "regsPerMultiprocessor",
    "sharedMemPerBlockOptin": "sharedMemPerBlockOptin", "sharedMemPerMultiprocessor": "sharedMemPerMultiprocessor",
}  # fmt: skip


def trace_properties(found: dict[str, Any]) -> dict[str, Any]:
    """Return CUDA's properties of a device as a trace names them; ``found`` is what CuPy has asked for."""
    name = found.get("name", b"")
    shown = name.decode() if isinstance(name, bytes) else str(name)
    return {"name": shown, **{ours: int(found[theirs]) for ours, theirs in _NAMES.items() if theirs in found}}
