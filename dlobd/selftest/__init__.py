"""The self-test: `dlobd.faults` puts delays of known size into real runs; the breakdown must blame the right layers.

injection_points  the places of delays, their means, and the layer that must be blamed
plans             the delays of each run, their lengths, and the controls
runs              the runs on one embedded cluster, and bounded repetitions
score             each delay against the breakdown
paired_controls   layer totals against those of the controls
coverage          the share of the wall time that the delays prove
report            all results as tables and as one document
overhead          the cost of the recorder: runs with recording on and off
step_loop         the cost of the recorder in one step, in one process
"""
