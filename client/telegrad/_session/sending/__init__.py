"""What a session sends: the queue of its instructions, where batches end, and the elements of tensors."""
