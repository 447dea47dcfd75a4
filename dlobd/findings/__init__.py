"""Findings: causes of overhead with their evidence, the setting to change, and an upper bound of the saving."""
