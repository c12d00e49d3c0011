"""Parts of the queue: stretches of instructions that are sent as runs of programs, or captured as graphs."""
