"""Executes an experiment and produces a bundle. Start reading at `runner`.

    runner              the steps of a run, in order
    preflight/          checks before a run
    place/              the place where its job runs
    schedulers/         the command that submits the job
    submitted_process   runs that command and observes its window
    collect/            copies evidence into the bundle

Code of this package needs a machine or a cluster. Its steps exchange only files in the bundle.
"""
