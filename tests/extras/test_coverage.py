"""Coverage of the package, in a checkout that reaches its folders through links as well."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


def test_coverage_counts_each_file_of_the_broker_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from rockhopper.broker.store.log.encoding import encode_plain\n")
    data = f"--data-file={tmp_path / 'data'}"
    ran = run("-m", "coverage", "run", data, str(script))
    assert (ran.returncode, ran.stderr) == (0, "")
    report = tmp_path / "report.json"
    ran = run("-m", "coverage", "json", "-q", data, "-o", str(report), "--include=*/broker/*")
    assert (ran.returncode, ran.stderr) == (0, "")

    files = json.loads(report.read_text())["files"]
    real = [(ROOT / name).resolve() for name in files]
    assert len(set(real)) == len(real)
    (encoding,) = (each for name, each in files.items() if name.endswith("store/log/encoding.py"))
    assert encoding["summary"]["percent_covered"] > 0
