"""For those who prefer to say that they use ``format("kinesis")``."""

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from kinesis_spout.structured.data_source import KinesisDataSource


def register(spark: SparkSession) -> None:
    """Register ``format("kinesis")`` with a session, classic or Spark Connect.

    Not needed where this package is installed on the driver: Spark finds ``pyspark_kinesis`` by itself. It helps
    where Spark does not look: a package from ``spark.submit.pyFiles`` or a folder added to ``sys.path`` later.
    """
    try:
        spark.dataSource.register(KinesisDataSource)
    except AnalysisException as error:
        # Spark Connect before 4.1 refuses a name that the server has found by itself: then all is well already.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
