"""Headers that g++ has read once: when they are prepared, what begins with them, and what fits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.engine.extensions import commands, prepared_headers
from server.engine.extensions.builds import Build
from telegrad_protocol.extension_messages import BuildExtension

BINDING = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", [](int64_t n) { return n + NUMBER; }); }\n'
USUAL = "#include <torch/extension.h>\n" + BINDING


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, kernel_cache: str) -> Iterator[Path]:
    """The directory of builds; telegrad's own source is there as other tests have compiled it."""
    directory = tmp_path_factory.mktemp("prepared")
    (directory / "extensions").mkdir()
    for runtime in Path(kernel_cache, "extensions").glob("runtime.*.o"):
        shutil.copy(runtime, directory / "extensions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TELEGRAD_KERNEL_CACHE", str(directory))
        yield directory / "extensions"


def request(text: str, number: int = 0, headers: dict[str, str] | None = None, flags: tuple[str, ...] = ()) -> Any:
    return BuildExtension(
        name=f"prepared_{number}", sources=[("main.cpp", text)], headers=list((headers or {}).items()),
        include_paths=["include"], cflags=["-O0", f"-DNUMBER={number}", *flags], cuda_cflags=[], ldflags=[],
        with_cuda=False, architectures="",
    )  # fmt: skip


def log_of(asked: Any) -> str:
    is_built, log = Build(asked, "").finish()
    assert is_built, log
    return log


def prepared(cache: Path) -> list[Path]:
    return sorted(path.parent for path in cache.glob("headers.*/prefix.h.gch"))


def test_headers_are_prepared_when_flags_come_again(cache: Path) -> None:
    """The names and the program's own macros are others each time; g++ warns of prepared headers that do not fit."""
    assert "-include" not in log_of(request(USUAL, 1)) and not prepared(cache)
    assert "-include" in log_of(request(USUAL, 2))
    (kept,) = prepared(cache)
    assert "-include prefix.h" in log_of(request(USUAL, 3, flags=("-Winvalid-pch", "-Werror")))
    assert "-include" not in log_of(request(USUAL, 4, flags=("-fno-math-errno",)))
    assert prepared(cache) == [kept]
    assert all(path.name.startswith(("headers.", "runtime.")) for path in cache.iterdir() if path.suffix)

    (kept / "prefix.h.gch").write_bytes(b"nothing that g++ knows")
    assert "-include prefix.h" in log_of(request(USUAL, 5))


def test_builders_that_prepare_the_same_keep_one(tmp_path: Path) -> None:
    for builder in ("first", "second"):
        made = tmp_path / builder
        made.mkdir()
        (made / "prefix.h.gch").write_text(builder)
        prepared_headers.keep(made, tmp_path / "headers.same")
    assert (tmp_path / "headers.same" / "prefix.h.gch").read_text() == "first"


def test_headers_that_nobody_used_for_longest_are_forgotten(tmp_path: Path) -> None:
    for age in range(prepared_headers.MOST_KEPT + 1):
        made = tmp_path / "made"
        made.mkdir()
        (made / "prefix.h.gch").write_bytes(b"")
        os.utime(made / "prefix.h.gch", (1000 + age, 1000 + age))
        prepared_headers.keep(made, tmp_path / f"headers.{age}")
    assert [path.name for path in prepared(tmp_path)] == [f"headers.{age}" for age in range(1, age + 1)]


@pytest.mark.parametrize(
    ("text", "does_begin"),
    [
        (USUAL, True),
        ("// a comment\n/* #define X 1 */\n#include <vector>\n#pragma once\n#include <ATen/ATen.h>\n", True),
        ('#include "own.h"\nint f();\n', True),
        ('#include "other.h"\n#include <torch/extension.h>\n', False),
        ("#define _USE_MATH_DEFINES\n#include <torch/extension.h>\n", False),
        ("int f();\n#include <torch/extension.h>\n", False),
        ("#include <vector>\nint f();\n", False),
        ('#include "missing.h"\n#include <torch/extension.h>\n', False),
        ('#include "circle.h"\n#include <torch/extension.h>\n', False),
    ],
)
def test_sources_begin_with_the_headers_where_nothing_comes_before(text: str, does_begin: bool) -> None:
    headers = {
        "include/own.h": "#ifndef OWN_H_\n#define OWN_H_\n#include <map>\n#include <torch/extension.h>\n#endif\n",
        "other.h": "#pragma once\n#define assert(x)\n",
        "circle.h": '#include "circle.h"\n',
    }
    assert prepared_headers.beginning(request(text, headers=headers)) == ({"main.cpp"} if does_begin else set())


def test_flags_that_a_source_begins_with_prepare_nothing() -> None:
    for flags in (("-include", "vector"), ("-imacros", "x.h"), ("-I", "include"), ("@file",)):
        assert prepared_headers.flags_of(request(USUAL, flags=flags)) is None
    asked = request(USUAL, flags=("-DNDEBUG", "-D_OPTION=1", "-Wall", "-Iinclude", "-march=native"))
    assert prepared_headers.flags_of(asked) == ["-O0", "-DNDEBUG", "-D_OPTION=1", "-march=native"]
    assert commands.abi_flags(asked) == ["-D_OPTION=1"]


def test_types_of_the_standard_library_have_one_layout() -> None:
    """Telegrad's own source takes and returns texts and lists as the extension has them."""
    asked = request(USUAL, flags=("-D_GLIBCXX_USE_CXX11_ABI=0", "-O3"))
    own = commands.steps(asked, Path("work"), "", None)[0][0]
    assert own[-1] == "runtime.o" and "-D_GLIBCXX_USE_CXX11_ABI=0" in own and "-O3" not in own
