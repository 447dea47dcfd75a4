"""Start of trainers on Spark's executors, or without Spark. `base` is the contract; each launcher has a file."""
