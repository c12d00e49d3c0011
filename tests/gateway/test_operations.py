"""POST ops and backward."""

from __future__ import annotations

import pytest

from telegrad_protocol.messages import SERVER_IDS

from .conftest import Client

A = {"op": "tensor", "data": [[1, 2], [3, 4]], "dtype": "float32", "out": 1}


def test_one_operation_answers_the_description_of_its_result(client: Client) -> None:
    client.ops(A)
    answer = client.ops({"op": "add", "args": [{"tensor": 1}, 2], "kwargs": {"alpha": 3}, "out": 2})
    assert answer.status_code == 200
    assert answer.json() == {
        "results": [
            {
                "op": "add",
                "tensors": [
                    {
                        "id": 2, "dtype": "float32", "shape": [2, 2], "strides": [2, 1], "offset": 0, "device": "cpu",
                        "requires_grad": False,
                    }
                ],
            }
        ]
    }  # fmt: skip


def test_values_are_those_right_after_their_step(client: Client) -> None:
    answer = client.ops(
        A | {"values": True},
        {"op": "add_", "args": [{"tensor": 1}, 1]},
        {"op": "add_", "args": [{"tensor": 1}, 1], "values": True},
    )
    tensors = [result["tensors"][0] for result in answer.json()["results"]]
    assert tensors[0]["values"] == [[1, 2], [3, 4]]
    assert "values" not in tensors[1]
    assert tensors[2]["values"] == [[3, 4], [5, 6]]


def test_a_list_without_values_is_one_request_to_the_worker(client: Client) -> None:
    client.registry.asked.clear()
    client.ops(A, *[{"op": "add_", "args": [{"tensor": 1}, 1]}] * 20)
    assert client.registry.asked == ["run_ops"]


def test_results_without_a_name_are_named_above_those_of_clients(client: Client) -> None:
    answer = client.ops(A, {"op": "unbind", "args": [{"tensor": 1}]})
    ids = [tensor["id"] for tensor in answer.json()["results"][1]["tensors"]]
    assert len(set(ids)) == 2
    assert all(SERVER_IDS <= id < 2**53 for id in ids)


def test_lists_of_tensors_and_several_outs(client: Client) -> None:
    pair = [{"tensor": 1}, {"tensor": 1}]
    answer = client.ops(
        A, {"op": "cat", "args": [pair], "kwargs": {"dim": 0}, "out": 2},
        {"op": "unbind", "args": [{"tensor": 1}], "out": [5, 6], "values": True},
    )  # fmt: skip
    assert answer.json()["results"][1]["tensors"][0]["shape"] == [4, 2]
    assert [(t["id"], t["values"]) for t in answer.json()["results"][2]["tensors"]] == [(5, [1, 2]), (6, [3, 4])]


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (3, "int64", []),
        (3.5, "float32", []),
        (True, "bool", []),
        ([], "float32", [0]),
        ([[], []], "float32", [2, 0]),
        ([1, 2.5], "float32", [2]),
        ([True, 2], "int64", [2]),
        ([[1.0, "NaN"], ["Infinity", "-Infinity"]], "float32", [2, 2]),
        ([{"complex": [1, -2]}, 3], "complex64", [2]),
    ],
)
def test_dtype_and_shape_of_data_are_inferred_as_torch_does(
    client: Client, data: object, dtype: str, shape: list[int]
) -> None:
    answer = client.ops({"op": "tensor", "data": data, "values": True})
    tensor = answer.json()["results"][0]["tensors"][0]
    assert (tensor["dtype"], tensor["shape"]) == (dtype, shape)
    if dtype == "complex64":
        assert tensor["values"] == [{"complex": [1.0, -2.0]}, {"complex": [3.0, 0.0]}]
    else:
        assert tensor["values"] == data


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "half", "uint8", "int", "bool", "complex128"])
def test_data_takes_every_dtype(client: Client, dtype: str) -> None:
    answer = client.ops({"op": "tensor", "data": [0, 1], "dtype": dtype, "values": True})
    values = answer.json()["results"][0]["tensors"][0]["values"]
    assert values == ([{"complex": [0, 0]}, {"complex": [1, 0]}] if dtype == "complex128" else [0, 1])


def test_a_complex_argument_reaches_the_operation(client: Client) -> None:
    step = {"op": "mul", "args": [{"tensor": 1}, {"complex": [0, 1]}], "values": True}
    answer = client.ops({"op": "tensor", "data": [{"complex": [1, 1]}], "out": 1}, step)
    assert answer.json()["results"][1]["tensors"][0]["values"] == [{"complex": [-1, 1]}]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"op": "tensor", "data": [[1, 2], [3]]}, "not nested evenly"),
        ({"op": "tensor", "data": [[1, 2], 3]}, "not nested evenly"),
        ({"op": "tensor", "data": [1, [2]]}, "not nested evenly"),
        ({"op": "tensor", "data": "five"}, "expected numbers"),
        ({"op": "tensor", "data": None}, "expected numbers"),
        ({"op": "tensor", "data": [300], "dtype": "uint8"}, "does not fit into uint8"),
        ({"op": "tensor", "data": [1 << 70]}, "does not fit into int64"),
        ({"op": "tensor", "data": ["NaN"], "dtype": "int32"}, "does not fit into int32"),
        ({"op": "tensor", "data": [{"complex": [1, 2]}], "dtype": "float32"}, "do not fit"),
        ({"op": "tensor", "data": [1], "dtype": "float31"}, "unknown dtype 'float31'"),
        ({"op": "tensor", "data": [0] * 200_000}, "PUT"),
        ({"op": "tensor"}, "data: Field required"),
        ({"op": "add", "args": [{"tensr": 1}]}, '{"tensor": id}'),
        ({"op": "add", "args": [{"tensor": -1}]}, '{"tensor": id}'),
        ({"op": "add", "args": [{"tensor": True}]}, '{"tensor": id}'),
        ({"op": "add", "arguments": []}, "arguments"),
        ({"op": "add", "out": -1}, "out"),
        ({"op": "add", "out": "x"}, "out"),
        ({}, "op"),
        ({"op": ""}, "op"),
    ],
)
def test_a_malformed_step_is_refused_by_name_and_runs_nothing(
    client: Client, step: dict[str, object], text: str
) -> None:
    client.registry.asked.clear()
    answer = client.ops(A, step)
    assert answer.status_code == 422
    assert text in answer.json()["detail"]
    assert client.registry.asked == []


def test_an_error_says_which_step_failed_and_what_it_worked_on(client: Client) -> None:
    answer = client.ops(
        A | {"values": True},
        {"op": "add", "args": [{"tensor": 1}, 1], "out": 2},
        {"op": "select", "args": [{"tensor": 1}, 0, 9], "out": 3},
        {"op": "add", "args": [{"tensor": 1}, 1], "out": 4},
    )
    problem = answer.json()
    assert answer.status_code == 422
    assert (problem["code"], problem["site"]) == ("IndexOutOfRangeError", "ops[2]")
    assert (problem["operation"], problem["operands"]) == ("select", "float32[2,2]")
    assert set(client.session.engine.tensors) == {1, 2}


def test_an_unknown_tensor_is_not_found(client: Client) -> None:
    answer = client.ops({"op": "add", "args": [{"tensor": 77}, 1]})
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownIdError")


def test_values_of_a_large_tensor_are_refused_with_the_way_to_get_them(client: Client) -> None:
    answer = client.ops({"op": "zeros", "args": [[600, 600]], "out": 1, "values": True})
    assert answer.status_code == 422
    assert "GET tensors/1" in answer.json()["detail"]
    assert client.session.engine.reads == {}


def test_backward_lists_leaves_and_gradients(client: Client) -> None:
    client.ops(A | {"requires_grad": True}, {"op": "add", "args": [{"tensor": 1}, 1], "out": 2})
    answer = client.call("POST", "/backward", json={"roots": 2, "gradients": [1], "values": True})
    assert answer.status_code == 200
    (entry,) = answer.json()["gradients"]
    assert entry["leaf"] == 1
    assert entry["gradient"]["values"] == [[1, 1], [1, 1]]


def test_backward_wants_a_gradient_per_root(client: Client) -> None:
    answer = client.call("POST", "/backward", json={"roots": [1, 2], "gradients": [3]})
    assert (answer.status_code, answer.json()["detail"]) == (422, "backward: 2 roots and 1 gradients")
