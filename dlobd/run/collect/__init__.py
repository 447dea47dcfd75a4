"""Copies the evidence of an application into its bundle while the cluster has it. One module per way of access."""
