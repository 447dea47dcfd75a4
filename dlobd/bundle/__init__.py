"""Run bundles on disk: files, schema, hashes, and redaction. `dlobd.attribution` interprets their evidence."""
