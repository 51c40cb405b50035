"""What the build does beside MkDocs: pages from the repository's top, and links out of docs/.

Pages in docs/ link to files of the repository (``../docker/broker.conf``), as one reads them at the
forge. On the site, links to pages lead to the page and read as its title, those to other files lead
to the forge. A search finds what one does with the broker, not why it was built so.
"""

import functools
import logging
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# Folders and pages that a search leaves out.
UNSEARCHED = ("decisions/", "changelog.md", "readme.md")
# How much more, or less, a page counts in a search than others.
BOOSTS = {
    "delay-and-timers.md": 4.0,
    "security.md": 4.0,
    "settings.md": 4.0,
    "operations/backup.md": 8.0,
    # Words of a message stand in no title, which a search gives a thousand times the weight.
    "operations/troubleshooting.md": 400.0,
    "operations/service.md": 8.0,
    "operations/containers.md": 4.0,
    "operations/": 2.0,
    "consumer.md": 3.0,
    "producer.md": 2.0,
    "api/": 0.7,
    "architecture.md": 0.3,
    "contributing.md": 0.3,
}
# Pages of the site that stand at the repository's top.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "readme.md",
}
_LINK = re.compile(r"(\[[^\[\]]*)?(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
FORGE = str(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"][
        "Source"
    ]
)


def on_startup(**_: Any) -> None:
    """Have a link to a file that the site leaves out fail a strict build."""
    logging.getLogger("mkdocs.structure.pages").addFilter(warn_of_excluded)


def warn_of_excluded(record: logging.LogRecord) -> bool:
    """Make a warning of what MkDocs only tells."""
    if "excluded from the built site" in record.getMessage():
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's top."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Have links lead where they can be followed from the site."""
    path = page.file.src_uri
    page.meta.setdefault("search", searched(path))
    home = {site: name for name, site in PAGES.items()}.get(path, f"docs/{path}")
    pages = {file.src_uri for file in files if file.inclusion is not InclusionLevel.EXCLUDED}
    return rewritten(markdown, home, path, pages)


def searched(path: str) -> dict[str, bool | float]:
    """What the search is told about the page *path*."""
    if path.startswith(UNSEARCHED):
        return {"exclude": True}
    return {"boost": next((BOOSTS[each] for each in BOOSTS if path.startswith(each)), 1.0)}


@functools.cache
def title(path: str) -> str:
    """The title of the page that is the file *path* of the repository."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))


def rewritten(markdown: str, home: str, place: str, pages: set[str]) -> str:
    """*markdown* of the file *home* of the repository, for the page *place* of the site.

    A link that reads as the name of its page's file reads as the page's title.
    """

    def of(found: re.Match[str]) -> str:
        text, opening, target, end = found.groups(default="")
        if "://" in target or target.startswith(("mailto:", "/")):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
        page = PAGES.get(path, path.removeprefix("docs/"))
        if page in pages and (path in PAGES or path.startswith("docs/")):
            if text.endswith(".md"):
                text = f"[{title(path)}"
            there = posixpath.relpath(page, posixpath.dirname(place) or ".")
            return f"{text}{opening}{there}{end}"
        if not (ROOT / path).exists():
            return found[0]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{text}{opening}{FORGE}/{kind}/main/{path}{end}"

    return _LINK.sub(of, markdown)
