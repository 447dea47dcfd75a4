"""What runs inside the submitted job: on the driver, in Spark's Python workers, and in the trainers.

All of it travels to nodes without dlobd installed. So nothing here knows how a job is submitted, or what is made of
its records; what Python workers import early needs the standard library only.
"""
