"""Faults of known size in real runs on the embedded cluster: delays, stops, and shortages.

The callers judge the effect: `selftest/` that on the breakdown, `bench/pathologies` that on the findings.

injection_log  the ground truth: each fault with its measured interval, kept outside of the run's bundle
observed_run   a run seen from outside: its logs while they grow, its containers, its recorded spans
triggers       the moment of a fault: a log line, a recorded instant, a file; and the thread that waits for it
targets        the processes of a run that a fault can stop
sigstop        stops processes by SIGSTOP for a known time
queue_filler   fills YARN's queue with another application
slow_disk      limits the disk reads of some processes
hooks          delays inside the job's own Python processes
"""
