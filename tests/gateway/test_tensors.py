"""Tensors as files over HTTP, and the formats themselves."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

from server.gateway.http import tensor_files as payloads
from server.gateway.http.tensor_streams import Body
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import TelegradError

from .conftest import Client

NPY, SAFETENSORS, RAW = "application/x-npy", "application/vnd.safetensors", "application/octet-stream"
DTYPES = [name for name in BY_NAME if name not in ("bfloat16", "complex32")]


def array_of(dtype: str, shape: tuple[int, ...], seed: int = 5) -> Any:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return (np.random.default_rng(seed).standard_normal(shape) * 50).astype(kind)


def npy_bytes(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def put(client: Client, content: Any, kind: str = NPY, id: int = 1, **params: Any) -> Any:
    return client.call("PUT", f"/tensors/{id}", content=content, headers={"Content-Type": kind}, params=params)


def get(client: Client, accept: str = "*/*", id: int = 1) -> Any:
    return client.call("GET", f"/tensors/{id}", headers={"Accept": accept})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_npy_goes_in_and_comes_out_as_numpy_writes_it(client: Client, dtype: str, shape: tuple[int, ...]) -> None:
    array = array_of(dtype, shape)
    answer = put(client, npy_bytes(array))
    assert answer.status_code == 201
    assert (answer.json()["dtype"], answer.json()["shape"], answer.json()["id"]) == (dtype, list(shape), 1)
    back = get(client)
    assert back.headers["content-type"] == NPY
    assert back.headers["telegrad-dtype"] == dtype
    loaded = np.load(io.BytesIO(back.content))
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_safetensors_goes_in_and_comes_out_as_the_library_writes_it(client: Client, dtype: str) -> None:
    array = array_of(dtype, (4, 3))
    assert put(client, safetensors.numpy.save({"any": array}), SAFETENSORS).status_code == 201
    back = get(client, SAFETENSORS)
    ((name, entry),) = safetensors.deserialize(back.content)
    assert (name, entry["shape"], bytes(entry["data"])) == ("tensor", [4, 3], array.tobytes())


def test_one_of_several_safetensors_is_chosen_by_name(client: Client) -> None:
    arrays = {name: array_of("float32", (n,)) for name, n in (("a", 3), ("b", 300_000), ("c", 5))}
    content = safetensors.numpy.save(arrays)
    for name, array in arrays.items():
        assert put(client, content, SAFETENSORS, name=name).status_code == 201
        np.testing.assert_array_equal(np.load(io.BytesIO(get(client).content)), array)
    for params in ({}, {"name": "d"}):
        answer = put(client, content, SAFETENSORS, **params)
        assert answer.status_code == 422
        assert "the body holds" in answer.json()["detail"]


def test_raw_bytes_need_dtype_and_shape(client: Client) -> None:
    array = array_of("float32", (2, 3))
    assert put(client, array.tobytes(), RAW, dtype="float32", shape="2,3").status_code == 201
    back = get(client, RAW)
    assert back.content == array.tobytes()
    assert (back.headers["telegrad-dtype"], back.headers["telegrad-shape"]) == ("float32", "2,3")
    assert put(client, b"\0" * 8, RAW, dtype="double", shape="").status_code == 201
    for params in ({}, {"dtype": "float32"}, {"dtype": "float32", "shape": "2,-3"}, {"dtype": "x", "shape": "2"}):
        assert put(client, array.tobytes(), RAW, **params).status_code == 422


@pytest.mark.parametrize("length", [0, 7, 9, 3 << 20])
def test_a_body_of_another_length_than_announced_leaves_nothing(client: Client, length: int) -> None:
    answer = put(client, b"\0" * length, RAW, dtype="float32", shape="2")
    assert (answer.status_code, answer.json()["code"]) == (422, "ArgumentError")
    assert client.session.engine.uploads == client.session.engine.tensors == {}


def test_large_tensors_pass_in_chunks(client: Client) -> None:
    array = array_of("float64", (401, 1001))
    client.registry.asked.clear()
    put(client, npy_bytes(array))
    assert client.registry.asked == ["upload_begin", *["upload_chunk"] * 4, "upload_end"]
    back = get(client)
    assert int(back.headers["content-length"]) == len(back.content)
    np.testing.assert_array_equal(np.load(io.BytesIO(back.content)), array)
    assert client.session.engine.reads == {}


def test_a_tensor_that_does_not_fit_is_refused_before_it_is_sent(client: Client) -> None:
    answer = put(client, b"", RAW, dtype="float64", shape="1000000,1000000")
    assert (answer.status_code, answer.json()["code"]) == (507, "OutOfMemoryError")
    for shape in ("9" * 19, "1" + ",1" * 64, "4294967296,4294967296"):
        assert put(client, b"", RAW, dtype="float64", shape=shape).status_code == 422


def test_json_describes_a_small_tensor_with_its_elements(client: Client) -> None:
    put(client, npy_bytes(np.array([[1.5, np.nan]], np.float32)))
    answer = get(client, "application/json")
    assert answer.json()["values"] == [[1.5, "NaN"]]
    assert answer.json()["shape"] == [1, 2]


def test_head_describes_without_elements(client: Client) -> None:
    put(client, npy_bytes(array_of("int16", (3, 2))))
    answer = client.call("HEAD", "/tensors/1")
    assert (answer.headers["telegrad-dtype"], answer.headers["telegrad-shape"]) == ("int16", "3,2")
    assert (answer.headers["content-length"], answer.content) == ("12", b"")


def test_a_freed_tensor_is_gone(client: Client) -> None:
    put(client, npy_bytes(np.ones(3)))
    assert client.call("DELETE", "/tensors/1").status_code == 204
    for method in ("GET", "DELETE"):
        answer = client.call(method, "/tensors/1")
        assert (answer.status_code, answer.json()["code"]) == (404, "UnknownIdError")


@pytest.mark.parametrize("id", [-1, 2**53, "x"])
def test_ids_are_small_whole_numbers(client: Client, id: Any) -> None:
    assert client.call("GET", f"/tensors/{id}").status_code == 422


@pytest.mark.parametrize(
    ("accept", "dtype", "kind"),
    [
        ("*/*", "float32", NPY), ("*/*", "bfloat16", SAFETENSORS), ("", "float32", NPY),
        ("application/*", "bfloat16", SAFETENSORS), ("application/npy", "float32", NPY),
        ("application/safetensors;q=0.5, application/octet-stream;q=0.9", "float32", RAW),
        ("text/html, application/octet-stream", "float32", RAW), ("text/html", "float32", None),
        ("application/x-npy;q=0", "float32", None), ("application/json", "float32", "application/json"),
    ],
)  # fmt: skip
def test_the_accept_header_chooses_the_format(accept: str, dtype: str, kind: str | None) -> None:
    assert payloads.negotiate(accept, dtype) == kind


def test_formats_that_cannot_hold_the_type_or_are_unknown_are_refused(client: Client) -> None:
    put(client, array_of("bfloat16", (2,)).tobytes(), RAW, dtype="bfloat16", shape="2")
    assert (get(client, NPY).status_code, get(client, NPY).json()["code"]) == (501, "NotSupportedError")
    assert (get(client, "text/html").status_code, get(client, "text/html").json()["code"]) == (406, "NotSupportedError")
    answer = put(client, b"", "text/csv")
    assert (answer.status_code, answer.json()["code"]) == (415, "NotSupportedError")
    assert client.session.engine.reads == {}


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.ones(3, ">f4"), "'>f4'"),
        (np.array(["a", "b"]), "'<U1'"),
        (np.ones(3, "<M8[s]"), "'<M8"),
        (np.ones(3, [("a", "f4")]), "not supported"),
    ],
)
def test_arrays_we_cannot_hold_are_refused_with_the_reason(client: Client, array: Any, text: str) -> None:
    answer = put(client, npy_bytes(array))
    assert answer.status_code in (422, 501)
    assert text in answer.json()["detail"]


def test_all_versions_of_npy_are_read(client: Client) -> None:
    array = array_of("float32", (3,))
    for version in ((1, 0), (2, 0), (3, 0)):
        file = io.BytesIO()
        npy.write_array(file, array, version=version)
        assert put(client, file.getvalue()).status_code == 201


def _safetensors(entry: dict[str, Any]) -> bytes:
    text = json.dumps({"t": entry}).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * 8


@pytest.mark.parametrize(
    "content",
    [
        _safetensors({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}),
        _safetensors({"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]}),
        _safetensors({"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}),
        _safetensors({"dtype": "F8", "shape": [8], "data_offsets": [0, 8]}),
        _safetensors({"dtype": "F32", "shape": [2], "data_offsets": [0]}),
        _safetensors({"shape": [2]}),
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        b"\x93NUMPY\x01\x00\x05\x00hello",
        b"\x93NUMPY\x09\x00",
        b"",
    ],
)
def test_malformed_headers_are_refused(client: Client, content: bytes) -> None:
    for kind in (NPY, SAFETENSORS):
        answer = put(client, content, kind)
        assert answer.status_code == 422, answer.text
    assert client.session.engine.tensors == client.session.engine.uploads == {}


async def _pieces(data: bytes, size: int) -> Any:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


def _run(step: Any) -> Any:
    try:
        while True:
            step.send(None)
    except StopIteration as result:
        return result.value


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\x93NUMPY\x01\x00\x76\x00", struct.pack("<Q", 60)]),
    st.sampled_from([payloads.read_npy_header, payloads.read_safetensors_header]), st.integers(1, 64),
)  # fmt: skip
def test_no_bytes_make_a_header_reader_fail_but_with_a_known_error(
    data: bytes, prefix: bytes, read: Any, size: int
) -> None:
    try:
        header = _run(read(Body(_pieces(prefix + data, size))))
    except TelegradError:
        return
    assert header.nbytes >= 0


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 2**40), max_size=4).map(tuple))
def test_a_header_that_is_written_is_read_the_same(dtype: str, shape: tuple[int, ...]) -> None:
    if np.prod([float(n) for n in shape]) * 16 >= payloads.MAX_NBYTES:
        return
    for write, read in (
        (payloads.npy_header, payloads.read_npy_header),
        (payloads.safetensors_header, payloads.read_safetensors_header),
    ):
        if write is payloads.safetensors_header and dtype == "complex128":
            continue
        text = write(dtype, shape)
        assert len(text) % 8 == 0
        header = _run(read(Body(_pieces(text, 7))))
        assert (header.dtype, header.shape) == (dtype, shape)
