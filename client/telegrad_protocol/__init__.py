"""What client and server must agree on: types, shapes, operations, messages, errors.

Imports neither NumPy nor CuPy nor either end.
"""
