"""Write constraints.txt anew: ``python -m tests.release.constraints``, before a release.

It has the version of each package that builds a release, or that a wheel is tried with: the newest
that the index has for the Python that runs this.
"""

import json
import subprocess
import sys

from tests.release.building import CONSTRAINTS
from tests.release.places import ROOT
from tests.release.source import Commit

HEAD = """\
# What builds a release, and what its wheels are tried with; tests/release/constraints.py writes it.
"""


def main() -> None:
    """Ask pip what it would install."""
    requires = Commit(ROOT, "HEAD").project["build-system"]["requires"]
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed")
    done = subprocess.run(
        [*command, "--report", "-", f"{ROOT}[packages]", *requires],
        stdout=subprocess.PIPE,
        check=True,
    )
    found = [each["metadata"] for each in json.loads(done.stdout)["install"]]
    ours = "rockhopper-mq"
    lines = sorted(f"{each['name']}=={each['version']}\n" for each in found if each["name"] != ours)
    CONSTRAINTS.write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
