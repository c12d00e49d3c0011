"""What the host knows of integers that a device holds: whether indices are in range before they are used."""
