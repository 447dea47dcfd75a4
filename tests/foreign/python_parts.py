"""Python workers of five kinds: a function that sleeps, rows that are long, and the script's own count of seconds.

Usage: python_parts.py [SECONDS [MB [ROWS]]]. The script prints one line of JSON: the seconds in its functions, by kind
of evaluation in PySpark. UDFs of batches need pandas and pyarrow.
"""

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, pandas_udf, udf

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
MB = int(sys.argv[2]) if len(sys.argv) > 2 else 40
ROWS = int(sys.argv[3]) if len(sys.argv) > 3 else 200


def main():
    spark = SparkSession.builder.appName("python parts").getOrCreate()
    sc = spark.sparkContext
    counted = {name: sc.accumulator(0.0) for name in ("NON_UDF", "SQL_BATCHED_UDF", "PANDAS", "MAP", "GROUP")}

    def slowly(name, value, share=ROWS):
        begin = time.perf_counter()
        time.sleep(SECONDS / share)
        counted[name].add(time.perf_counter() - begin)
        return value

    # RDD of functions for each row; whole partitions; long rows, for which serialisation dominates
    rows = sc.parallelize(range(ROWS), 2)
    assert rows.map(lambda n: slowly("NON_UDF", n)).filter(lambda n: n >= 0).count() == ROWS
    assert rows.mapPartitions(lambda part: [slowly("NON_UDF", len(list(part)), 2)]).sum() == ROWS
    size = MB * 10**6 // ROWS
    long = sc.parallelize(range(ROWS), 2).map(lambda n: [float(n + i) for i in range(size // 9)])
    assert long.map(lambda row: row).map(len).sum() == ROWS * (size // 9)
    assert long.repartition(2).map(len).sum() == ROWS * (size // 9)

    frame = spark.range(ROWS, numPartitions=2)
    plain = udf(lambda n: slowly("SQL_BATCHED_UDF", n), "long", useArrow=False)
    assert frame.select(plain(col("id")).alias("n")).agg({"n": "sum"}).collect()[0][0] == sum(range(ROWS))
    try:
        import pandas
    except ImportError:
        pandas = None
    if pandas is not None:
        batches = 2 * -(-ROWS // 2 // 50)
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")

        @pandas_udf("long")
        def same(numbers: pandas.Series) -> pandas.Series:
            return slowly("PANDAS", numbers, batches)

        def mapped(frames):
            for part in frames:
                yield slowly("MAP", part, batches)

        def grouped(part):
            return slowly("GROUP", part, 4)

        assert frame.select(same("id").alias("n")).agg({"n": "sum"}).collect()[0][0] == sum(range(ROWS))
        assert frame.mapInPandas(mapped, "id long").count() == ROWS
        by = frame.withColumn("key", col("id") % 4).groupBy("key")
        assert by.applyInPandas(grouped, "id long, key long").count() == ROWS
    names = {"PANDAS": "SQL_SCALAR_PANDAS_UDF", "MAP": "SQL_MAP_PANDAS_ITER_UDF", "GROUP": "SQL_GROUPED_MAP_PANDAS_UDF"}
    print(json.dumps({names.get(name, name): count.value for name, count in counted.items() if count.value}))
    spark.stop()


if __name__ == "__main__":
    main()
