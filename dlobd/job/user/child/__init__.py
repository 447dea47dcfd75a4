"""Directory on the PYTHONPATH of a framework's subprocesses: its `sitecustomize` starts the recorder there."""
