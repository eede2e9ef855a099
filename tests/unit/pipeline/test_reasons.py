"""What the log says of a batch that failed: one line, and the one that matters."""

import pytest

from correlator.pipeline.driver import reason


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("An error occurred.\n: org.apache.spark.SparkException: aborted\nValueError: no\n", "ValueError: no"),
        ("An error occurred.\n: org.apache.spark.SparkException: Job 3 cancelled\n\tat x", "Job 3 cancelled"),
        ("An error occurred.\n: org.a.B: c\nCaused by: java.lang.OutOfMemoryError: heap", "OutOfMemoryError: heap"),
        ("just this", "just this"),
    ],
)
def test_the_line_that_tells_why_is_told(page: str, told: str) -> None:
    assert reason(Exception(page)).endswith(told)
