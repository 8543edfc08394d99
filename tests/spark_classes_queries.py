"""What most tests do with Spark: tables, files, Python in tasks, a streaming query with a checkpoint."""

from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql import SparkSession


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with TemporaryDirectory() as folder:
        spark.sparkContext.parallelize(range(4), 2).map(str).collect()
        numbers = f"{folder}/numbers"
        spark.range(10).mapInArrow(_same, "id long").write.parquet(numbers)
        spark.read.parquet(numbers).groupBy("id").count().collect()
        stream = spark.readStream.schema("id long").parquet(numbers).mapInArrow(_same, "id long")
        query = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
