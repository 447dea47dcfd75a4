"""Copies an application's evidence into its bundle before the cluster deletes it; one module per kind of access."""
