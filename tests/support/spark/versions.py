"""What older Sparks lack."""

import pytest
from pyspark.sql.datasource import DataSourceStreamReader

IS_4_2 = hasattr(DataSourceStreamReader, "reportLatestOffset")

since_4_2 = pytest.mark.skipif(
    not IS_4_2,
    reason="Spark before 4.2 knows neither AvailableNow nor reports of Python sources",
)
