"""Programs whose graphs are made by tracing: those that read elements, and those without writes."""
