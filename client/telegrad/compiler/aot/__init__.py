"""Compilers of a program's own that are given forward and backward passes as graphs: ``functorch.compile``.

Knows nothing of programs of the server: what such compilers return queues operations as any function does.
"""
