"""Which sources a run must have, which of them are not there, and what is unknown without each. Pure.

`kinds` is the table: what each file of a bundle tells, and which spans hide what it would have told. `spans`, `logs`
and `records` look for what must be there in this way of running, by what the other sources say: a log names the
containers, a process those that it started, the job its ranks. `missing` puts them together, and marks the spans of a
trace.
"""
