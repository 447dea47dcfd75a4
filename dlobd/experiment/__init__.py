"""What is to be run: TOML files and command lines to an Experiment or an OwnJob, every value checked.

Here belongs what decides whether an experiment makes sense before anything is started; `shipped/` holds those that come
with dlobd.
"""
