"""An experiment in, a bundle out. `runner` is the page to begin with.

    runner        the steps of a run, in order
    deploy/       where its job runs
    schedulers/   the command that submits it
    submit        runs that command, and observes its window
    collect/      evidence into the bundle

Here belongs what needs a machine or a cluster. Steps hand each other files in the bundle and nothing else.
"""
