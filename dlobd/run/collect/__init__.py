"""Copies the evidence of an application into its bundle while the cluster has it; one module per source of access."""
