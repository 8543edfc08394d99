"""As much of a ``SparkContext`` as jobs of topologies need, in this process: for tests of what the driver does.

The stages' own code runs, and what is between them: packs, blocks, partitions. Partitions run one after the other.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

from pyspark import SparkContext, TaskContext, cloudpickle

Part = list[Any]


class _Java:
    """The side of Java, of which nothing is here: whatever is set there changes nothing."""

    def __getattr__(self, name: str) -> "_Java":
        return self

    def __call__(self, *_: object) -> "_Java":
        return self


class SparkHere(SparkContext):
    """Mutable; runs one job at a time."""

    _jvm: ClassVar[Any] = _Java()
    defaultParallelism = 2  # noqa: N815 - Spark's
    applicationId = "application-here"  # noqa: N815

    def __init__(self, conf: Mapping[str, str] = MappingProxyType({})) -> None:
        # Nothing of a real one is begun.
        self._jsc = _Java()
        self._given = conf
        self.jobs: list[str] = []
        """The tags of those that were run."""
        self._one_job = threading.Lock()
        self._tag = ""

    @property
    def session(self) -> Any:
        """What a topology is run on."""
        return SimpleNamespace(_sc=self)

    def getConf(self) -> Any:  # noqa: N802
        return SimpleNamespace(contains=self._given.__contains__)

    def setJobGroup(self, groupId: str, *_: Any, **__: Any) -> None:  # noqa: N802, N803 - Spark's
        self._tag = groupId

    def addJobTag(self, tag: str) -> None:  # noqa: N802
        """Jobs here cannot be cancelled."""

    def removeJobTag(self, tag: str) -> None:  # noqa: N802
        """See ``addJobTag``."""

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        """See ``addJobTag``."""

    def statusTracker(self) -> Any:  # noqa: N802
        return SimpleNamespace(getJobIdsForGroup=lambda _: [])

    def parallelize(self, c: Iterable[Any], numSlices: int | None = None) -> Any:  # noqa: N803
        items = cloudpickle.loads(cloudpickle.dumps(list(c)))  # type: ignore[no-untyped-call]
        assert numSlices == len(items) > 0, "a task for each pack, and one at least"
        return RowsHere(self, lambda _: [[item] for item in items])

    def runJob(  # noqa: N802
        self,
        rdd: Any,
        partitionFunc: Callable[[Iterator[Any]], Iterable[Any]],  # noqa: N803 - Spark's
        partitions: Sequence[int] | None = None,
        allowLocal: bool = False,  # noqa: FBT001, FBT002, N803 - Spark's
    ) -> list[Any]:
        del allowLocal
        return self.run(rdd.mapPartitions(partitionFunc), partitions)

    def run(self, rows: "RowsHere", partitions: Sequence[int] | None = None) -> list[Any]:
        with self._one_job:
            self.jobs.append(self._tag)
            return [row for part in rows.parts(partitions) for row in part]


class RowsHere:
    """As much of an ``RDD``. ``parts`` gives the partitions; those that are not asked for are empty."""

    def __init__(self, context: SparkHere, parts: Callable[[Sequence[int] | None], list[Part]]) -> None:
        self._jrdd = _Java()
        self._context = context
        self.parts = parts

    def mapPartitions(self, function: Callable[[Iterator[Any]], Iterable[Any]]) -> "RowsHere":  # noqa: N802
        def mapped(asked: Sequence[int] | None) -> list[Part]:
            return [
                _run(function, at, part) if asked is None or at in asked else []
                for at, part in enumerate(self.parts(asked))
            ]

        return RowsHere(self._context, mapped)

    def partitionBy(self, count: int, partition: Callable[[int], int]) -> "RowsHere":  # noqa: N802
        written: list[Part] = []

        def exchanged(_: Sequence[int] | None) -> list[Part]:
            if not written:  # Spark keeps it for later jobs, too.
                found: dict[int, Part] = defaultdict(list)
                for key, value in (row for part in self.parts(None) for row in part):
                    found[partition(key) % count].append((key, value))
                written.extend(found[at] for at in range(count))
            return written

        return RowsHere(self._context, exchanged)

    def values(self) -> "RowsHere":
        return RowsHere(
            self._context, lambda asked: [[value for _, value in part] for part in self.parts(asked)]
        )

    def collect(self) -> list[Any]:
        return self._context.run(self)


def _run(function: Callable[[Iterator[Any]], Iterable[Any]], partition: int, part: Sequence[Any]) -> Part:
    """Run a task."""
    context = TaskContext._getOrCreate()
    context._partitionId = partition
    try:
        return list(function(iter(part)))
    finally:
        TaskContext._taskContext = None
