"""UCX by a cffi binding: `library` finds libucp, `declarations` is its C interface, `worker` and `connection` send."""
