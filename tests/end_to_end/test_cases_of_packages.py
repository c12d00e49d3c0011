"""Test cases of packages, of PyTorch's own base class, compare what they compare under PyTorch."""

from __future__ import annotations

from pathlib import Path

from tests.support.pytorch_process import PyTorchProcess

from .both_libraries import apart, on_telegrad
from .server_process import ServerProcess

PROGRAM = """
import unittest
import numpy as np
import torch
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, subtest

case = TestCase()
ones, close = torch.ones(2), torch.ones(2) + 1e-6
equal = [
    (ones, close), (ones, np.ones(2, np.float32)), (ones, [1.0, 1.0]), (torch.tensor(3), 3), (torch.tensor([3.5]), 3.5),
    (1, 1.0), (1.0, 1.0 + 1e-8), ("a", "a"), (None, None), ({"a": [ones]}, {"a": [close]}), ((1, ones), [1, ones]),
    (torch.float32, torch.float32), ({1, 2}, {2, 1}), (np.float64(2), 2.0), (torch.tensor(float("nan")), float("nan")),
    (True, True), ([], []), (torch.empty(0), torch.empty(0)), (int, int), (torch.Size([2]), (2,)),
]
different = [
    (ones, ones + 0.1), (ones, ones.double()), (ones, torch.ones(3)), (ones, [1.0, 2.0]), (torch.tensor(3), 4), (1, 2),
    ("a", "b"), (None, 0), ({"a": 1}, {"b": 1}), ([1], [1, 2]), ({"a": [ones]}, {"a": [-ones]}), (ones, None), (1, "1"),
    (torch.float32, torch.float64), (ones, "a"),
]
print([case.assertEqual(x, y) for x, y in equal])
for x, y in different:
    try:
        case.assertEqual(x, y)
        print("equal", x, y)
    except (AssertionError, TypeError) as error:
        print("different")
case.assertNotEqual(ones, -ones)
case.assertEqual(ones, ones + 0.1, atol=0.2, rtol=0)
case.assertEqual(ones, ones.double(), exact_dtype=False)
for wrong in (lambda: case.assertNotEqual(ones, close), lambda: case.assertEqual(ones, ones + 0.1, atol=0.01, rtol=0)):
    try:
        print("passes", wrong())
    except AssertionError:
        print("fails")

class Tests(TestCase):
    precision = 0.5

    def test_own_tolerance(self):
        self.assertEqual(ones, ones + 0.4)
        self.assertEqual(1.0, 1.25)

    @parametrize("x", [1, 2.5, "a"])
    @parametrize("f,y", [(abs, 1), subtest((len, 2), name="length")])
    def test_each(self, x, f, y):
        self.assertTrue(callable(f) and y in (1, 2) and x in (1, 2.5, "a"))

    def test_fails(self):
        self.assertEqual(ones, ones + 0.6)

instantiate_parametrized_tests(Tests)
result = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(result)
print(sorted(name for name in dir(Tests) if name.startswith("test_")), result.testsRun)
print([test._testMethodName for test, _ in result.failures], result.errors)
"""


def test_cases_of_packages_compare_tensors(server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ours = on_telegrad(program, tmp_path / "a", server.url)
    assert ours == apart(pytorch, program, tmp_path / "b") and len(ours[0]) > 15
