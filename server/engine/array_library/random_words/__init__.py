"""Random words and what is made of them on bare arrays. Knows no generators."""
