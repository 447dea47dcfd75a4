"""Rendezvous of ranks through the driver: a key-value store, and a PMI server for MPI."""
