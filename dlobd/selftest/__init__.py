"""Proof that the breakdown is right: delays of known size are put into real runs, and looked for in the report.

points   where a delay can be put, and the layer that has to be blamed
plans    which points are delayed in which run, by how much
hooks    delays inside the job's Python processes
freezer  delays from outside: a process is stopped for a known time; a queue is taken
truth    what was really injected, measured by the injector itself, kept outside of the run's bundle
runs     the runs, one after the other, on one embedded cluster
score    truth against attribution: pure
overhead what the recorder costs: runs with it on against off
"""
