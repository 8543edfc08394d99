"""What processes print whose logging nobody configures; each test has one of its own."""

import re
import subprocess
import sys

LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def printed(script: str) -> str:
    """Run a script, and give what it wrote to standard error."""
    head = "import logging\nfrom kinesis_spout.processes.worker_log import print_log_lines\n"
    tail = "\nlogging.getLogger('kinesis_spout.somewhere').warning('with `retry_limit=%d`', 3)\n"
    done = subprocess.run(
        [sys.executable, "-c", head + script + tail], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr


def test_a_line_has_its_time_and_its_level_and_is_printed_once() -> None:
    lines = printed("print_log_lines()\nprint_log_lines(level='DEBUG')").splitlines()
    assert len(lines) == 1
    assert re.fullmatch(rf"{LINE} WARNING kinesis_spout\.somewhere: with `retry_limit=3`", lines[0]), lines


def test_a_line_is_in_the_words_of_the_door() -> None:
    assert "`retryLimit=3`" in printed("print_log_lines(spell=lambda name, value: f'retryLimit={value}')")


def test_only_what_is_asked_for_is_printed() -> None:
    speak = "logging.getLogger('kinesis_spout.somewhere').info('an info')"
    assert "an info" not in printed(f"print_log_lines()\n{speak}")
    assert " INFO kinesis_spout.somewhere: an info" in printed(f"print_log_lines(level='INFO')\n{speak}")


def test_logging_that_was_configured_is_left_as_it_is() -> None:
    configure = "logging.basicConfig(format='mine: %(message)s')\n"
    for script in (
        f"{configure}print_log_lines(level='DEBUG')",
        f"print_log_lines()\n{configure}",
        f"{configure}print_log_lines(level='DEBUG')\nlogging.getLogger('kinesis_spout.x').info('an info')",
    ):
        assert printed(script) == "mine: with `retry_limit=3`\n", script
