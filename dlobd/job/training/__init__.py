"""The training job that dlobd measures: `driver` on Spark's driver, `trainer` in each rank, and their parts."""
