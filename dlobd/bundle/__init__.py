"""Run bundles on disk: files, schema, hashes, and redaction. `dlobd.evidence` parses them."""
