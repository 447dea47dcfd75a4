"""How trainers are started on Spark's executors, or without Spark. `base` is the contract, one file a launcher."""
