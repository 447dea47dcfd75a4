"""Launchers, which start trainers on Spark's executors or without Spark. `base` has their contract."""
