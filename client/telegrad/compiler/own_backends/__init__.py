"""Backends that are functions of the program: each is given graphs of ``torch.fx``, and what it returns computes.

The function that is compiled runs in Python in each call. What it computes up to a graph break is written down as a
graph, and then done by what the backend has made of that graph, in the place of what the function has queued.
"""
