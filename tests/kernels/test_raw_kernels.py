"""``RawKernel`` and ``RawModule`` up to the driver: what is compiled, checked, sent and launched, and what is freed."""

from __future__ import annotations

import ctypes
import gc
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.engine.user_kernels import modules
from server.engine.user_kernels.text_rules import check_includes, check_options
from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    CompilationError,
    DeviceError,
    NotAllowedError,
    NotComputedError,
    NotSupportedError,
    OutOfMemoryError,
    WorkerCrashedError,
)
from telegrad_protocol.kernel_messages import LoadModule
from telegrad_protocol.messages import Free
from tests.session.driver import Talk, fails
from tests.support.kernel_driver import NotedDriver
from tests.support.node import SimulatedHost

ADD = r"""
extern "C" __global__ void add(const float* a, const float* b, float* c, int n, float alpha, long long big) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + alpha * b[i] + big;
}
"""
GRID = (3, 2), (64,)


def _addresses(*tensors: Any) -> list[bytes]:
    return [struct.pack("=Q", tensor.data_ptr()) for tensor in tensors]


def test_a_launch_brings_addresses_and_numbers_of_the_parameters_types(tg: Any, driver: NotedDriver) -> None:
    a, b, c = tg.arange(12.0, device="cuda"), tg.ones(30, device="cuda")[5:17], tg.empty(12, device="cuda")
    kernel = tg.cuda.RawKernel(ADD, "add")
    numbers = [struct.pack("=i", 12), struct.pack("=f", 2.5), struct.pack("=q", -(2**40))]
    for given in (
        (a, b, c, 12, 2.5, -(2**40)),
        (a, b, c, np.int32(12), np.float32(2.5), np.int64(-(2**40))),
        (a, b, c, ctypes.c_int(12), ctypes.c_float(2.5), ctypes.c_longlong(-(2**40))),
    ):
        kernel(*GRID, given, shared_mem=100)
        tg.cuda.synchronize()
        launched = driver.launched.pop()
        assert launched.arguments == [*_addresses(a, b, c), *numbers]
        assert (launched.name, launched.geometry[:3]) == ("add", ((3, 2, 1), (64, 1, 1), 100))
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[None, b, c, True, 3, 7])
    tg.cuda.synchronize()
    integers = struct.pack("=i", 1), struct.pack("=f", 3), struct.pack("=q", 7)
    assert driver.launched[-1].arguments == [bytes(8), *_addresses(b, c), *integers]
    stream = tg.cuda.Stream()
    kernel((1,), (1,), (a, b, c, 1, 1.0, 1), stream=stream)
    kernel((1,), (1,), (a, b, c, 1, 1.0, 1))
    tg.cuda.synchronize()
    on, default = [launch.stream for launch in driver.launched[-2:]]
    assert on != default


def test_versions_rise_of_what_is_written_and_saved_values_are_protected(tg: Any) -> None:
    a, b = (tg.ones(12, device="cuda", requires_grad=True) for _ in range(2))
    c = tg.zeros(12, device="cuda")
    saves_a, saves_c = (a * a).sum(), (b * c).sum()
    kernel = tg.cuda.RawKernel(ADD, "add")
    kernel(*GRID, (a, b, c, 12, 1.0, 0))
    assert (a._version, b._version, c._version) == (0, 0, 1)
    saves_a.backward()
    with pytest.raises(RuntimeError, match="modified"):
        saves_c.backward()
        tg.cuda.synchronize()
    indirect = 'extern "C" __global__ void far(const float* a, float** b, float* c) { b[0][1] = a[0]; }'
    tg.cuda.RawKernel(indirect, "far", read_only=[0])((1,), (1,), (a, c, b.detach()))
    assert (a._version, b._version, c._version) == (0, 1, 2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: a[:3], ArgumentTypeError, "the kernel has 6 parameters, not 3"),
        (lambda a: (*a[:3], 1.5, *a[4:]), ArgumentTypeError, "argument 4 is a floating-point number"),
        (lambda a: (*a[:3], np.int64(3), *a[4:]), ArgumentTypeError, "argument 4 has 8 bytes.* parameter has 4"),
        (lambda a: (*a[:3], a[0], *a[4:]), ArgumentTypeError, "argument 4 is a tensor, .* 4 bytes"),
        (lambda a: (*a[:3], 2**33, *a[4:]), ArgumentError, "argument 4: 8589934592 does not fit"),
        (lambda a: (a[0].cpu(), *a[1:]), DeviceError, r"argument 1 is float32\[12\] on cpu.*to\('cuda:0'\)"),
        (lambda a: (a[0].to("cuda:1"), *a[1:]), DeviceError, "kernel"),
        (lambda a: (np.ones(3), *a[1:]), ArgumentTypeError, "argument 1 is an array on this machine"),
        (lambda a: ("text", *a[1:]), ArgumentTypeError, "argument 1 is str"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(tg: Any, change: Any, error: type, message: str) -> None:
    fitting = (*(tg.ones(12, device="cuda:0") for _ in range(3)), 12, 1.0, 5)
    with pytest.raises(error, match=message):
        tg.cuda.RawKernel(ADD, "add")(*GRID, change(fitting))
        tg.cuda.synchronize()


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        ((0,), (1,), 0, "grid"), ((1, 65536), (1,), 0, "grid"), ((1,), (1025,), 0, "block"),
        ((1,), (64, 64), 0, "4096 threads"), ((1,), (1,), 227 << 10, "dynamic shared memory"),
        ((1,), (1,), -1, "dynamic shared memory"),
    ],
)  # fmt: skip
def test_geometries_beyond_the_device_are_refused(
    tg: Any, driver: NotedDriver, grid: Any, block: Any, shared: int, message: str
) -> None:
    kernel = tg.cuda.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    with pytest.raises(ArgumentError, match=message):
        kernel(grid, block, shared_mem=shared)
        tg.cuda.synchronize()
    assert not driver.launched
    kernel((1,), (1,), shared_mem=100 << 10)
    tg.cuda.synchronize()
    assert driver.launched[-1].geometry.shared == 100 << 10


def test_compile_errors_tell_the_line_of_the_program_and_the_session_goes_on(tg: Any) -> None:
    broken = r"""
extern "C" __global__ void broken(float* x) {
    x[0] = undefined_name;
}
"""
    first = next(
        n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "= undefined_" + "name" in line
    )
    with pytest.raises(CompilationError, match=rf"{Path(__file__).name}\({first}\): error: .*undefined_name") as raised:
        tg.cuda.RawKernel(broken, "broken")((1,), (1,), (tg.ones(1, device="cuda"),))
    assert Path(__file__).name in raised.value.site
    with pytest.raises(ArgumentError, match="no kernel 'absent'"):
        tg.cuda.RawModule(ADD, name_expressions=["add"]).absent((1,), (1,))
    with pytest.raises((ArgumentError, CompilationError), match="absent"):
        tg.cuda._compile_kernel(ADD, "absent")
    assert tg.ones(2, device="cuda").sum().item() == 2


def test_templates_are_found_by_their_expressions_and_headers_travel_along(
    tg: Any, driver: NotedDriver, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/inner.h").write_text("#define TIMES 3\n")
    (tmp_path / "scale.h").write_text('#include "own/inner.h"\n#define FACTOR TIMES\n')
    text = '#include "scale.h"\ntemplate <class T> __global__ void scale(T* x, T by) { x[0] *= by * FACTOR + EXTRA; }'
    options = ("--std=c++14", f"-I{tmp_path}", "-DEXTRA=1")
    module = tg.cuda.RawModule(code=text, options=options, name_expressions=["scale<float>", "scale<double>"])
    x = tg.ones(3, device="cuda", dtype=tg.float64)
    module.get_function("scale<double>")((1,), (1,), (x, 2.0))
    tg.cuda.synchronize()
    assert driver.launched[-1].arguments == [*_addresses(x), struct.pack("=d", 2.0)]
    assert module.scale.name == "scale"


def test_ptx_and_cubins_are_loaded_from_files(tg: Any, driver: NotedDriver, tmp_path: Path) -> None:
    from server.engine.cuda.runtime.user_text import compile_text
    from server.engine.user_kernels.interface import Text

    compiled = compile_text(Text(ADD, "add.cu", 1, (), {}, ()), "sm_90")
    (tmp_path / "add.ptx").write_text(compiled.ptx)
    (tmp_path / "add.cubin").write_bytes(compiled.code)
    a, b, c = (tg.ones(12, device="cuda") for _ in range(3))
    for name, versions in (("add.ptx", (0, 0, 1)), ("add.cubin", (1, 1, 2))):
        kernel = tg.cuda.RawModule(path=str(tmp_path / name)).get_function("add")
        kernel(*GRID, (a, b, c, 12, 2.5, 7))
        tg.cuda.synchronize()
        assert driver.launched[-1].arguments[3:] == [
            struct.pack("=i", 12),
            struct.pack("=f", 2.5),
            struct.pack("=q", 7),
        ]
        assert (a._version, b._version, c._version) == versions, "of a cubin it is not known what is written"
    with pytest.raises(ArgumentTypeError, match="either"):
        tg.cuda.RawModule()
    with pytest.raises(NotSupportedError, match="NVRTC"):
        tg.cuda.RawModule(ADD, backend="nvcc")


def test_modules_are_counted_and_freed(simulated: SimulatedHost, driver: NotedDriver, monkeypatch: Any) -> None:
    import telegrad as tg

    monkeypatch.setattr(modules, "MAX_MODULES", 3)
    loaded, unloaded = len(driver.loaded), driver.unloaded
    texts = [f'extern "C" __global__ void k(int* x) {{ x[0] = {number}; }}' for number in range(8)]
    with tg.connect(in_process=simulated) as connection:
        for text in texts:
            tg.cuda.RawKernel(text, "k").compile()
            gc.collect()
        kernels = [tg.cuda.RawKernel(text, "k") for text in texts]
        with pytest.raises(OutOfMemoryError, match="3 modules"):
            for kernel in kernels:
                kernel.compile()
        with pytest.raises(OutOfMemoryError, match="3 modules"):
            kernels[-1]((1,), (1,), (tg.ones(1, dtype=tg.int32, device="cuda"),))
        kernels[0]((1,), (1,), (tg.ones(1, dtype=tg.int32, device="cuda"),))
        connection.session.synchronize()
    assert len(driver.loaded) - loaded == driver.unloaded - unloaded > 8


def test_the_code_of_modules_is_charged_to_the_memory_of_the_host(
    simulated: SimulatedHost, driver: NotedDriver, rng: np.random.Generator
) -> None:
    talk = Talk(simulated, kernels=True, host_quota_bytes=4 << 20)
    loaded, unloaded = len(driver.loaded), driver.unloaded
    try:
        code = [b"\x7fELF" + rng.bytes(900_000) for _ in range(5)]
        load = [LoadModule(number, 0, "cuda:0", "cubin", text) for number, text in enumerate(code, 1)]
        assert talk.send(*load[:4]) == []
        failure = fails(talk, load[4])
        assert failure.code == "OutOfMemoryError" and "TELEGRAD_HOST_QUOTA_BYTES" in failure.message
        talk.resume()
        assert talk.send(Free([2, 3]), load[4]) == [], "what was freed is unloaded where the room is needed"
        assert (len(driver.loaded) - loaded, driver.unloaded - unloaded) == (5, 2)
        refused = fails(talk, *[LoadModule(100 + number, 0, "cuda:0", "cubin", b"\x7fELF") for number in range(200)])
        assert "and 3.9 MiB of lines" in refused.message, "each module takes something, however small its code is"
    finally:
        talk.session.close()
    assert len(driver.loaded) - loaded == driver.unloaded - unloaded


def test_what_breaks_a_device_is_told_by_the_kernels_launched_last(
    tg: Any, simulated: SimulatedHost, monkeypatch: Any
) -> None:
    kernel = tg.cuda.RawKernel('extern "C" __global__ void wild(int* x) { x[1 << 30] = 1; }', "wild")
    kernel((1,), (1,), (tg.ones(1, dtype=tg.int32, device="cuda"),))
    tg.cuda.synchronize()
    upstream = simulated.backends[simulated.default_device].allocator.upstream
    monkeypatch.setattr(upstream, "fault", lambda: "an illegal memory access")
    with pytest.raises(WorkerCrashedError, match=rf"illegal memory access.*wild at .*{Path(__file__).name}:\d+"):
        simulated.check_devices(RuntimeError("launch failed"))


def test_tensors_are_no_arrays_of_this_machines_gpu(tg: Any) -> None:
    x = tg.ones(3, device="cuda")
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="RawKernel take the tensor itself"):
        _ = x.__cuda_array_interface__


def test_only_sessions_that_may_load_code(simulated: SimulatedHost) -> None:
    import telegrad as tg

    with (
        tg.connect(in_process=simulated, kernels=False),
        pytest.raises(NotAllowedError, match=r"connect\(kernels=True\)"),
    ):
        tg.cuda.RawKernel(ADD, "add").compile()
    with tg.connect(in_process=simulated) as connection:
        from telegrad_protocol.messages import LaunchKernel, LoadModule

        session = connection.session
        session.submit(LaunchKernel(4000, 0, (1, 1, 1), (1, 1, 1), "", []))
        with pytest.raises(ConnectionError, match="4000"):
            session.synchronize()
        session.submit(LoadModule(4001, 0, "cuda:0", "cubin", b"no elf"))
        session.submit(LaunchKernel(4001, 0, (1, 1, 1), (1, 1, 1), "", []))
        with pytest.raises(ArgumentError, match="no cubin"):
            session.synchronize()
        session.submit(LaunchKernel(4001, 0, (1, 1, 1), (1, 1, 1), "", []))
        with pytest.raises(NotComputedError, match="never loaded"):
            session.synchronize()
        session.submit(LoadModule(4002, 0, "cpu", "ptx", b".version"))
        with pytest.raises(NotSupportedError, match="cpu runs no CUDA kernels"):
            session.synchronize()


@pytest.mark.parametrize(
    "text",
    [
        '#include "/etc/passwd"', "#include </etc/passwd>", '#include "../../etc/passwd"', "#include FILE",
        '#inc\\\nlude "/etc/passwd"', '#/* */include "/etc/passwd"', '#/*\n*/include "/etc/passwd"',
        '%:include "/etc/passwd"', '??=include "/etc/passwd"', '#if __has_include("/etc/shadow")',
        '# include_next "/x"', '#import "/x"', "#embed </etc/passwd>", '#include "a.h" "/etc/passwd"',
        '/*\n// */ #include "/etc/passwd"',
        '/* */ #include "/etc/passwd"', '#include\\\n"/etc/passwd"', '#include /* */ "/etc/passwd"',
    ],
)  # fmt: skip
def test_files_of_the_server_are_not_included(text: str) -> None:
    with pytest.raises(CompilationError, match="include"):
        check_includes("kernel.cu", f"int x;\n{text}\n")


def test_headers_and_prose_are_included() -> None:
    check_includes(
        "kernel.cu",
        '#include <cuda_fp16.h>\n  #  include "own/a-b.h" // the include of a.h\n/* include\n * them */\n// #include\n'
        "#if __has_include(<cuda_bf16.h>)\n#endif\nint include_count; // may include x\n",
    )


@pytest.mark.parametrize(
    "option",
    [
        "-I/etc", "--include-path=/etc", "-include=x", "--pre-include=/etc/passwd", "--time=/tmp/x", "-pch",
        "--gpu-architecture=sm_20", "--create-pch=/tmp/x", "-DX\n-I/etc", "x",
    ],
)  # fmt: skip
def test_options_about_files_are_refused(option: str) -> None:
    with pytest.raises(ArgumentError, match="options"):
        check_options([option])
    usual = ["-DX=1", "--use_fast_math", "-std=c++14", "--maxrregcount=32", "-lineinfo", "--fmad=false", "-UX", "-DY"]
    assert check_options(usual) == tuple(usual)


def test_a_launch_that_is_captured_is_made_again_with_the_same_addresses(tg: Any, driver: NotedDriver) -> None:
    a, c = tg.ones(12, device="cuda"), tg.zeros(12, device="cuda")
    kernel = tg.cuda.RawKernel(ADD, "add")
    graph = tg.cuda.CUDAGraph()
    with tg.cuda.graph(graph):
        b = a * 2
        kernel(*GRID, (a, b, c, 12, 2.5, 7))
    first = driver.launched[-1].arguments
    assert first[:3] == _addresses(a, b, c)
    del b, kernel
    driver.launched.clear()
    for _ in range(3):
        graph.replay()
    tg.cuda.synchronize()
    assert [launch.arguments for launch in driver.launched] == [first] * 3
