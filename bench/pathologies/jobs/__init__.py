"""Scripts of the user's own job, which spark-submit receives."""
