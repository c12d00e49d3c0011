"""Sizes that may differ between calls of a graph: formulas found by comparing, and the nodes that compute them."""
