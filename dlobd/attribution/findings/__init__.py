"""What would lower the overhead of a run: each cause with its evidence, the setting, and a bound of what it saves."""
