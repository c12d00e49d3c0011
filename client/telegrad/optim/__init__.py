"""Optimizers: one instruction per step."""
