"""Code of the submitted job: on the driver, in Spark's Python workers, and in the trainers.

dlobd ships this code to nodes without dlobd. The code therefore imports neither the submission of jobs nor the analysis
of their records. Modules that Python workers import early use only the standard library.
"""
