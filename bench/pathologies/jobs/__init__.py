"""Scripts of the user's own job, as spark-submit gets them."""
