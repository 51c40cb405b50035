"""Run in an environment: print what is installed there, one JSON object a line.

Nothing but the standard library is imported: this file stands alone where it runs.
"""

import json
from email.message import Message
from importlib.metadata import Distribution, distributions

LONGEST_NAME = 100
"""Some packages have the whole text of their licence where its name belongs."""


def find_licence(distribution: Distribution) -> str:
    """An SPDX expression if the package gives one; otherwise the name that it uses."""
    metadata: Message[str, str] = distribution.metadata  # type: ignore[assignment]
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier") or ()
        if each.startswith("License :: ")
    ]
    name = metadata.get("License", "")
    return name if 0 < len(name) <= LONGEST_NAME else ", ".join(classifiers)


def main() -> None:
    """Print by name."""
    for each in sorted(distributions(), key=lambda each: each.name.lower()):
        found = {"name": each.name, "version": each.version, "licence": find_licence(each)}
        print(json.dumps({**found, "requires": each.requires or []}))


if __name__ == "__main__":
    main()
