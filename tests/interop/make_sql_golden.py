"""Make tests/golden/apache-<version>/sql92.json anew with Apache's own evaluator.

Run as ``python -m tests.interop.make_sql_golden``; needs a JDK and Maven. The file holds the sets
of properties and, for each expression, the verdicts on them in the letters of interop.JavaFilter.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

from tests.interop import apache
from tests.interop.java_client import JavaClient
from tests.interop.make_golden import GOLDEN
from tests.support.sql_grammar import random_expression
from tests.support.sql_table import EXPRESSIONS, PROPERTY_SETS

RANDOM_COUNT = 1000


def main() -> None:
    """Make the file and say how large it is."""
    source = random.Random(1)
    expressions = [*EXPRESSIONS, *(random_expression(source) for _ in range(RANDOM_COUNT))]
    with tempfile.TemporaryDirectory(prefix="golden-") as directory:
        client = JavaClient(Path(directory))
        verdicts = client.call("sqlVerdicts", expressions=expressions, properties=PROPERTY_SETS)
        client.close()
    table = dict(zip(expressions, verdicts, strict=True))
    target = GOLDEN / f"apache-{apache.version()}" / "sql92.json"
    document = {"properties": PROPERTY_SETS, "verdicts": table}
    text = json.dumps(document, ensure_ascii=False, indent=0) + "\n"
    target.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{target}: {len(table)} expressions, {target.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
