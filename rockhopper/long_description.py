"""The README as the package's long description, with links to the project's home.

Setuptools runs this at a build (``cmdclass`` in pyproject.toml). The package index has no files
beside the README, and no anchors in it.
"""

import re
from typing import Any

from setuptools.command.egg_info import egg_info

_LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^\]]*\])\((?!\w+:)(?P<target>[^)\s]+)\)")


def absolute(text: str, home: str) -> str:
    """Return *text* with its relative links below *home*, the address of the repository."""

    def of(found: re.Match[str]) -> str:
        target = found["target"]
        if target.startswith("#"):
            return f"{found['text']}({home}{target})"
        if found["image"]:
            return f"!{found['text']}({home}/raw/main/{target})"
        kind = "tree" if target.partition("#")[0].endswith("/") else "blob"
        return f"{found['text']}({home}/{kind}/main/{target})"

    return _LINK.sub(of, text)


class EggInfo(egg_info):
    """Writes the metadata of sdist and wheel."""

    def run(self) -> None:
        """Replace the links, then write."""
        metadata: Any = self.distribution.metadata
        home = metadata.project_urls["Source"]
        metadata.long_description = absolute(metadata.long_description, home)
        super().run()
