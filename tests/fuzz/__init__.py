"""Millions of mutated frames, against a session in this process and against a server: ``make fuzz``."""
