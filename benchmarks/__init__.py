"""Benchmarks: each runs its baseline side by side in the same run, and reports median and spread."""
