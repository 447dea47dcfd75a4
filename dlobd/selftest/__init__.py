"""Self-test: `dlobd.faults` injects delays of known size into real runs; the breakdown must blame the right layers."""
