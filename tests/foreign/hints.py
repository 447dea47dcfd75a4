"""PySpark that uses its annotations while it runs: the type of a field is a type."""

import sys
from dataclasses import dataclass, fields

from pyspark.sql import SparkSession


@dataclass
class Settings:
    rows: int = 2000
    rate: float = 0.25


types = {field.name: field.type for field in fields(Settings)}
settings = Settings(**{key: types[key](text) for key, text in (word.split("=") for word in sys.argv[1:])})
spark = SparkSession.builder.appName("hints").getOrCreate()
total = spark.sparkContext.parallelize(range(settings.rows), 2).map(lambda n: n * settings.rate).sum()
assert total == settings.rate * settings.rows * (settings.rows - 1) / 2, total
spark.stop()
