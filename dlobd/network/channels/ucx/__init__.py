"""UCX by a cffi binding. `library` finds it, `declarations` is its C interface, `worker` and `connection` carry
messages."""
