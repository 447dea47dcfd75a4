"""Command `python analysis STUDY`: studies of finished runs, computed by the package `studies`."""
