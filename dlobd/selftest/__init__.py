"""The self-test: `dlobd.faults` puts delays of known size into real runs; the breakdown must blame the right layers."""
