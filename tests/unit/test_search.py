"""A search for a symptom finds its page: what a reader types is in the page that answers, best in a heading.

The site's search ranks the words of a heading far above those of a text, and finds a word by its beginning. So
pages are ranked here by how many of the typed words one heading has, then its section.
"""

import re
from functools import cache
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SEPARATOR = re.compile(r"[\s\-,:;!?=\[\]()\"'`/|*]+|\.(?!\d)")
"""Much like that of mkdocs.yml."""
LITTLE_WORD = re.compile("(a|be|by|did|does|for|in|is|not|of|on|or|the|to|was)?")
PAGES = [
    ("Python worker failed to connect back", "reference/errors"),
    ("Python worker exited unexpectedly (crashed)", "reference/errors"),
    ("SparkOutOfMemory", "reference/errors"),
    ("java.lang.OutOfMemoryError: Java heap space", "reference/errors"),
    ("ExecutorLostFailure", "reference/errors"),
    ("py4j.protocol.Py4JNetworkError", "reference/errors"),
    ("Py4JNetworkError: Answer from Java side is empty", "reference/errors"),
    ("MissingExtra", "reference/errors"),
    ("expected PySpark 4.0 or newer, found none", "reference/errors"),
    ("Java gateway process exited before sending its port number", "reference/errors"),
    ("JAVA_HOME is not set", "reference/errors"),
    ("UnsupportedClassVersionError", "reference/errors"),
    ("Failed to find the data source: kinesis", "reference/errors"),
    ("No module named kinesis_spout", "reference/errors"),
    ("PYTHON_VERSION_MISMATCH", "reference/errors"),
    ("the handler cannot run on the executors", "reference/errors"),
    ("Spark was stopped, or ended, under a running query", "reference/errors"),
    ("lease table", "how-to/migrate-from-kcl"),
    ("checkpointer", "how-to/migrate-from-kcl"),
    ("RecordProcessor", "how-to/migrate-from-kcl"),
    ("IRecordProcessor", "how-to/migrate-from-kcl"),
    ("ShutdownReason", "how-to/migrate-from-kcl"),
    ("worker id", "how-to/migrate-from-kcl"),
    ("failoverTimeMillis", "how-to/migrate-from-kcl"),
    ("MultiLangDaemon", "how-to/migrate-from-kcl"),
    ("ITERATOR_AGE", "how-to/monitor"),
    ("IteratorAgeMilliseconds", "how-to/monitor"),
    ("MillisBehindLatest", "how-to/monitor"),
    ("kinesis.executor.maxFetchTimeInMs", "reference/options"),
    ("docker stop", "how-to/operate"),
    ("SIGTERM", "how-to/operate"),
    ("graceful shutdown", "how-to/operate"),
    ("gzip", "how-to/cloudwatch-and-dynamodb"),
    ("decode gzip json", "how-to/cloudwatch-and-dynamodb"),
    ("CloudWatch Logs", "how-to/cloudwatch-and-dynamodb"),
    ("clock", "how-to/accounts"),
    ("InvalidSignatureException", "how-to/accounts"),
    ("ExpiredTokenException", "how-to/accounts"),
    ("ExpiredIteratorException", "reference/errors"),
    ("ProvisionedThroughputExceeded", "reference/runbooks"),
    ("Rate exceeded for shard", "reference/runbooks"),
    ("lag does not go down", "reference/runbooks"),
    ("slow handler", "reference/runbooks"),
    ("hot shard", "reference/runbooks"),
    ("handler hangs", "reference/runbooks"),
    ("stuck shard", "reference/runbooks"),
    ("data loss", "reference/runbooks"),
    ("retention", "reference/runbooks"),
    ("the connection to ZooKeeper was lost", "reference/runbooks"),
    ("ZooKeeper did not answer in time", "reference/runbooks"),
    ("the handler is at fault", "reference/runbooks"),
    ("duplicate records", "how-to/run-several-consumers"),
    ("records twice", "how-to/run-several-consumers"),
    ("rebalance", "how-to/run-several-consumers"),
    ("fenced: somebody else owns", "how-to/run-several-consumers"),
    ("exactly once", "how-to/effectively-once"),
    ("idempotent", "how-to/effectively-once"),
    ("dead letter", "how-to/dead-letters"),
    ("DLQ", "how-to/dead-letters"),
    ("IAM policy", "how-to/production"),
    ("AccessDeniedException", "how-to/production"),
    ("not authorized to perform kinesis:GetRecords", "how-to/production"),
    ("VPC endpoint", "how-to/accounts"),
    ("proxy", "how-to/accounts"),
    ("SSL certificate verify failed", "how-to/accounts"),
    ("CERTIFICATE_VERIFY_FAILED", "how-to/accounts"),
    ("Unable to locate credentials", "how-to/accounts"),
    ("KMSAccessDeniedException", "how-to/accounts"),
    ("this machine's clock says", "how-to/accounts"),
    ("expected a stream 'orders' in region", "how-to/accounts"),
    ("ZooKeeper does not accept the credentials", "how-to/secure-zookeeper"),
    ("replay", "how-to/upgrade"),
    ("reprocess records", "how-to/upgrade"),
    ("ConsumerAlive", "how-to/upgrade"),
    ("CrashLoopBackOff", "how-to/kubernetes"),
    ("liveness probe", "how-to/kubernetes"),
    ("async def", "how-to/concurrency"),
    ("SubscribeToShard", "how-to/fan-out"),
    ("batchItemFailures", "how-to/migrate-from-lambda"),
]


def words_of(text: str) -> str:
    """The words, one a line, each after a line end."""
    return "\n" + "\n".join(SEPARATOR.split(text.lower()))


@cache
def sections() -> list[tuple[str, str, str]]:
    """The page, the words of the heading, and all words of each section of the pages."""
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        text = re.sub(r"\{ #\w+ \}|\]\([^)]*\)", " ", page.read_text())
        text = re.sub(r"(?ms)^ *```.*?^ *```", lambda block: block[0].replace("\n#", "\n"), text)
        for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
            name = str(page.relative_to(DOCS).with_suffix(""))
            found.append((name, words_of(section.partition("\n")[0]), words_of(section)))
    return found


def typed_words(query: str) -> set[str]:
    return {f"\n{word}" for word in SEPARATOR.split(query.lower()) if not LITTLE_WORD.fullmatch(word)}


def rank(query: str, page: str) -> tuple[int, int]:
    """How many of the typed words the best heading of a page has, and its section."""
    typed = typed_words(query)
    return max(
        (sum(each in heading for each in typed), sum(each in text for each in typed))
        for name, heading, text in sections()
        if name == page
    )


@pytest.mark.parametrize(("query", "page"), PAGES)
def test_a_search_for_a_symptom_finds_its_page_among_the_first_three(query: str, page: str) -> None:
    typed = typed_words(query)
    texts = [text for name, _, text in sections() if name == page]
    assert any(all(each in text for each in typed) for text in texts), f"no section of {page} has {query!r}"
    pages = {name for name, _, _ in sections()}
    better = [each for each in pages if rank(query, each) > rank(query, page)]
    assert len(better) < 3, f"before {page} come {', '.join(sorted(better))}: name the symptom in a heading"
