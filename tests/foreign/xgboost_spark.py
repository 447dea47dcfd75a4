"""xgboost.spark: a classifier of two workers, with its count of boosting rounds, and its predictions."""

from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from xgboost.spark import SparkXGBClassifier

spark = SparkSession.builder.getOrCreate()
rows = [(Vectors.dense(n % 7, n % 11, n % 5), int(n % 7 > 3)) for n in range(4000)]
frame = spark.createDataFrame(rows, ["features", "label"]).repartition(4)
model = SparkXGBClassifier(num_workers=2, n_estimators=12, max_depth=3).fit(frame)
assert model.get_booster().num_boosted_rounds() == 12
right = model.transform(frame).filter("prediction = label").count()
assert right > 3900, right
spark.stop()
