"""A handler for ``foreach_batch``: Spark's own operators and sinks, and an outcome for each row."""

from pyspark.sql import DataFrame

from kinesis_spout import Collector


def load(df: DataFrame, collector: Collector) -> None:
    """Append the orders to a Parquet folder; fail those without an amount."""
    amount = "get_json_object(cast(data as string), '$.amount') a"
    orders = df.selectExpr("shardId", "sequenceNumber", "subSequenceNumber", amount)
    orders.where("a is not null").write.mode("append").parquet("orders.parquet")
    collector.fail(orders.where("a is null"), "no amount")  # only these rows are tried again
