"""dlobd's own training job: `driver` runs on Spark's driver, `trainer` in each rank."""
