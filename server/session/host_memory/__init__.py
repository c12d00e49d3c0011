"""What a session makes the host hold besides the elements of its tensors: how it is counted, and its limits."""
