"""Programs: sequences of instructions that are sent once and named from then on; and graphs that clients capture."""
