"""Passes over graphs of any set of operators."""
