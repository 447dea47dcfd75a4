"""Proof that the breakdown is right: delays of known size are put into real runs, and looked for in the report.

points   where a delay can be put, by what, and the layer that has to be blamed
plans    which points are delayed in which run, by how much, and the controls
triggers what is stopped by a signal, and at which line of which log
freezer  makes these delays; log_tail is how it hears of the lines
queue_holder  another application, which holds the queue
slow_disk a disk that is slow for some processes alone
hooks    delays inside the job's Python processes
truth    what was really injected, measured by the injector itself, kept outside of the run's bundle
runs     the runs, one after the other, on one embedded cluster
score    truth against attribution; totals against controls; coverage of the wall: pure
report   all of it as tables and as one document
overhead what the recorder costs: runs with it on against off
"""
