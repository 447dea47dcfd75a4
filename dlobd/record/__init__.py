"""run.json as dataclasses: JSON Schema and docs/metrics.md are derived from them. Only declarations may enter."""
