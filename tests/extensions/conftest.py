"""The extension that these tests call, compiled once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.kernel_cache import kernels_directory

FOLDER = Path(__file__).parent


@pytest.fixture(scope="package")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A directory for what is compiled; this process may run code of clients.

    The loops of the CPU backend, which take half a minute to compile, are those that other tests have.
    """
    directory = str(tmp_path_factory.mktemp("extensions"))
    loops = kernels_directory() / "host"
    loops.mkdir(parents=True, exist_ok=True)
    Path(directory, "host").symlink_to(loops)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TELEGRAD_KERNEL_CACHE", directory)
        patch.setenv("TELEGRAD_ALLOW_HOST_CODE", "shared")
        yield directory


def load_functions() -> Any:
    """Load the extension of ``functions.cpp`` into the current session; it takes seconds once."""
    from telegrad.utils.cpp_extension import load

    return load("test_functions", [FOLDER / "functions.cpp"], extra_cflags=["-O0"])


@pytest.fixture
def extension(kernel_cache: str, tg: Any) -> Any:
    """The extension, in the session of ``tg``."""
    return load_functions()
