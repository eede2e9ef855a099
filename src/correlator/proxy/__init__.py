"""The proxy: events are taken at once, kept on local disk, and forwarded in order, however long a backend is away."""
