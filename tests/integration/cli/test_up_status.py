"""What `correlator up` shows on a terminal. Its pipeline has nothing to work with here, and no Spark has to start."""

import json
import os
import re
import signal
from http.client import HTTPConnection
from pathlib import Path

from tests.integration.cli.terminals import Terminal, terminal
from tests.integration.pipeline.histories import warehouse
from tests.integration.server.running import kill_postgres, postmaster, wait_until

UP = re.compile(r"Correlator is up: http://127\.0\.0\.1:(\d+)")
CTRL_C = b"\x03"


def arguments(data_dir: Path, *more: str) -> tuple[str, ...]:
    # It is told to read Kafka with a connector that is not there: it says so before it starts Spark.
    nothing = ("--kafka-servers", "127.0.0.1:9", "--kafka-jars", str(data_dir / "missing.jar"))
    return ("up", "--port", "0", "--data-dir", str(data_dir), *nothing, *more)


def send(shown: Terminal, body: bytes) -> None:
    found = UP.search(shown.screen)
    assert found is not None
    connection = HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
    connection.request("POST", "/api/v1/lineage", body, {"Content-Type": "application/json"})
    connection.getresponse().read()
    connection.close()


def test_one_block_tells_how_things_are_and_its_log_is_in_a_file(data_dir: Path) -> None:
    log = data_dir / "logs" / "correlator.log"
    try:
        with terminal(*arguments(data_dir)) as shown:
            shown.wait_for(UP)
            # A part that cannot work: that, why, and that it is tried again.
            shown.wait_for(re.compile(r"the pipeline has ended \(There is no file .*missing\.jar, which kafka_jars"))
            shown.wait_for(re.compile(r"pipeline +\w+ .*started again \w+"))
            shown.wait_for(re.compile(r"database +up +PostgreSQL \d+"))
            shown.wait_for(re.compile(r"alerts +up +nobody is told yet"))

            shown.wait_for("0 in")
            send(shown, warehouse(1)[0])
            send(shown, json.dumps({"eventType": "START"}).encode())
            shown.wait_for(re.compile(r"events +1 in.*; 1 rejected"))
            shown.wait_for(re.compile(r"facts +1 events, \d+ s behind"))

            # A part that dies: the same.
            process = postmaster(data_dir)
            assert process is not None
            os.kill(process, signal.SIGKILL)
            shown.wait_for("the database had died and was started again")
            shown.wait_for(re.compile(r"database +up +PostgreSQL \S+; started again once"))

            assert shown.screen.count("Correlator is") == 1, shown.screen
            shown.press(CTRL_C)
            assert shown.wait() == 0, shown.screen

        last = shown.screen.rstrip().splitlines()[-1]
        assert last == f"Correlator has stopped. All that it has taken is kept: {data_dir}"
        assert shown.screen.count("Correlator is stopping") == 1
        for name in ("server", "pipeline", "database"):
            assert re.search(rf"{name} +stopped", shown.screen), shown.screen
        # Lines are for the file, and none of them came over the display.
        assert b"POST /api/v1/lineage" not in shown.raw
        assert b"listening on" not in shown.raw
        wait_until(lambda: "POST /api/v1/lineage 200" in log.read_text(), "the log has the request")
        assert "the pipeline has ended (There is no file" in log.read_text()
        assert "Traceback" not in log.read_text()
        assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    finally:
        kill_postgres(data_dir)


def test_plain_lines_go_to_the_terminal_if_one_asks_for_them(data_dir: Path) -> None:
    try:
        # There is nobody yet who would read the demo.
        with terminal(*arguments(data_dir, "--plain", "--demo")) as shown:
            shown.wait_for("Correlator is listening on http://127.0.0.1:")
            shown.wait_for("the pipeline has ended (There is no file")
            shown.press(CTRL_C)
            assert shown.wait() == 0, shown.screen

        assert "Correlator has stopped. All that it has taken is kept" in shown.screen
        assert b"\x1b[" not in shown.raw
        assert "A shop with" not in shown.screen
        assert not (data_dir / "logs").exists()
    finally:
        kill_postgres(data_dir)


def test_what_keeps_it_from_starting_is_told_below_the_block(data_dir: Path) -> None:
    try:
        with terminal(*arguments(data_dir, "--host", "203.0.113.1", "--insecure")) as shown:
            assert shown.wait() == 2
        assert "Error: Cannot listen on 203.0.113.1" in shown.screen
        assert "has stopped" not in shown.screen
    finally:
        kill_postgres(data_dir)
