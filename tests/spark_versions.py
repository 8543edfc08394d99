"""What older Sparks lack."""

import pytest
from pyspark.sql.datasource import DataSourceStreamReader

since_4_2 = pytest.mark.skipif(
    not hasattr(DataSourceStreamReader, "reportLatestOffset"),
    reason="Spark before 4.2 knows neither AvailableNow nor reports of Python sources",
)
