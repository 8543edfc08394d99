"""For those who prefer to say that they use ``format("kinesis")``."""

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.processes.executor_python import unfit_python
from kinesis_spout.structured.data_source import KinesisDataSource


def register(spark: SparkSession) -> None:
    """Register ``format("kinesis")`` with a session, classic or Spark Connect.

    Not needed where this package is installed on the driver: Spark finds ``pyspark_kinesis`` by itself. It helps
    where Spark does not look: a package from ``spark.submit.pyFiles`` or a folder added to ``sys.path`` later.
    And it says what to set where the Python that Spark starts lacks this package: Spark itself only says that it
    finds no data source.

    Raises:
        InvalidConfig: the Python that Spark starts does not fit.
    """
    try:
        spark.dataSource.register(KinesisDataSource)
    except AnalysisException as error:
        # Spark Connect before 4.1 refuses a name that the server has found by itself: then all is well already.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    _check_python(spark)


def _check_python(spark: SparkSession) -> None:
    """Have Spark make a data source, which it does in the Python that it starts; Kinesis is not asked."""
    try:
        spark.read.format(KinesisDataSource.name()).option("streamName", "any").load()
    except (PySparkException, Py4JJavaError) as error:
        unfit = unfit_python(str(error))
        if unfit is None:
            raise
        raise InvalidConfig(unfit) from error
