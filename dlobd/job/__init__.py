"""Code of the submitted job: on the driver, in Spark's Python workers, and in the trainers.

All of this code travels to nodes without dlobd installed. So it does not depend on the submission of a job, or on the
analysis of its records; modules that Python workers import early need the standard library only.
"""
