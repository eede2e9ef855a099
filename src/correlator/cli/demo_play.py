"""The demo of `correlator up --demo`: played by the ordinary command, once there is somebody to read it."""

import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_GOODBYE_SECONDS: Final = 5.0


class DemoPlay:
    """Waits for the pipeline, so that what is sent can be seen at once."""

    def __init__(self, data_dir: Path) -> None:
        self._then_type = shlex.join(["correlator", "incidents", "--data-dir", str(data_dir)])
        self._works = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def pipeline_works(self) -> None:
        self._works.set()

    def start(self, url: str, *, on_line: Callable[[str], None]) -> None:
        self._thread = threading.Thread(target=self._play, args=(url, on_line), name="correlator-demo", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._works.set()
        if self._thread is not None:
            self._thread.join(2 * _GOODBYE_SECONDS)

    def _play(self, url: str, on_line: Callable[[str], None]) -> None:
        self._works.wait()
        if self._stopping.is_set():
            return
        # In a process of its own: three weeks take some seconds to make up, and the server has to answer meanwhile.
        with subprocess.Popen(  # noqa: S603 (our own command)
            [sys.executable, "-P", "-m", "correlator.cli.main", "demo", "--url", url, "--then-type", self._then_type],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        ) as demo:
            ending = threading.Thread(target=self._end, args=(demo,), daemon=True)
            ending.start()
            for line in demo.stdout or ():
                if line.strip():
                    on_line(line.rstrip())

    def _end(self, demo: "subprocess.Popen[str]") -> None:
        while demo.poll() is None:
            if self._stopping.wait(0.2):
                demo.terminate()
                with suppress(subprocess.TimeoutExpired):
                    demo.wait(_GOODBYE_SECONDS)
                return
