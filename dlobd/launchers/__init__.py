"""Launchers: what turns Spark executors into TensorFlow ranks. `base` is the contract, one file a member."""
