"""Run in a bare environment with Rockhopper: its commands, a broker, a message there and back.

    bin/python trial.py all       the compiled parts must be there ("none": they must not)

Nothing but the standard library is imported: this file stands alone where it runs.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
HANG_S = 300.0
BODY = "a message of the trial"


def run(command: str, *arguments: str) -> str:
    done = subprocess.run(
        [BIN / command, *arguments], capture_output=True, text=True, timeout=HANG_S
    )
    if done.returncode:
        sys.exit(f"{command} {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def serving(broker: "subprocess.Popen[str]") -> dict[str, Any]:
    """The line of the log that says where the broker serves."""
    assert broker.stderr is not None
    lines = []
    for text in broker.stderr:
        lines.append(text)
        if '"serving"' in text:
            return dict(json.loads(text))
    sys.exit("the broker ended: " + "".join(lines))


def try_a_broker(compiled: str) -> None:
    with tempfile.TemporaryDirectory() as store:
        ports = [f"--{name}-port=0" for name in ("listen", "namesrv", "http")]
        broker = subprocess.Popen(
            [BIN / "rockhopper-broker", "--store", store, *ports], stderr=subprocess.PIPE, text=True
        )
        # The pipe takes what little a broker logs that is asked this little.
        with broker:
            try:
                told = serving(broker)
                if not told["compiled"].startswith(compiled):
                    sys.exit(f"compiled parts: {told['compiled']}, and {compiled} were expected")
                where = ("--nameserver", told["nameserver"])
                run("rockhopper", "send", "trial", BODY, *where)
                pulled = run("rockhopper", "pull", "trial", "--json", *where)
                if json.loads(pulled)["body"] != BODY:
                    sys.exit(f"the message came back as {pulled}")
                broker.send_signal(signal.SIGTERM)
                if code := broker.wait(HANG_S):
                    sys.exit(f"the broker ended with {code} after SIGTERM")
            finally:
                broker.kill()


def main(compiled: str) -> None:
    os.environ.pop("PYTHONPATH", None)
    print(run("rockhopper", "--version").strip())
    run("rockhopper-broker", "--print-config")
    try_a_broker(compiled)


if __name__ == "__main__":
    main(sys.argv[1])
