"""CUDA graphs that clients capture: operations that are noted while memory is left as it was, and executed again."""
