"""The archive as a directory, and how a run becomes part of it: whole, or not at all.

    topic=orders/date=2026-11-20/part-00003-00000-0.parquet
    _rockhopper/current.json              {"manifest": "manifest-00000003.json"}
    _rockhopper/manifest-00000003.json    what run 3 added (manifest.py)
    _rockhopper/base-00000002.json        what runs 1 to 2 added and removed, in their place
    _rockhopper/intent.json               a run that is being committed
    _rockhopper/staging/run-00000004/…    what the tasks of the run under way write
    _rockhopper/replaced/run-00000003/…   files that run 3 removed, kept for a while
    _rockhopper/lock                      held by the run under way

Readers of Parquet leave out what starts with ``_``. A run is committed in this order: its tasks
write below staging; the *intent*, the manifest with the names to move, is written; the files are
moved to their places; the manifest; the pointer in current.json; files that the run removes go
below replaced; the intent and staging go away. What was replaced is deleted by the first run that
comes when the time to keep it (``keepOldMs`` in the manifest's source) is over.

Manifests do not pile up for ever: ``fold`` puts one, the *base*, in the place of those whose
removed files are deleted. The pointer names it ("base"), and then the others are deleted.
A run that was killed before its intent is gone: the next one clears staging. One that was killed
later is finished by the next, which finds the intent. So a reader that lists the directory sees
files of runs that are committed or about to be, and one that goes by the manifests sees whole runs.
"""

import glob
import json
import os
import re
from contextlib import AbstractContextManager
from pathlib import Path

from rockhopper.paths import check_relative
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import Files, naming_damage
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, Manifest, folded, left_of

OWN_DIRECTORY = "_rockhopper"
CURRENT_FILE = f"{OWN_DIRECTORY}/current.json"
INTENT_FILE = f"{OWN_DIRECTORY}/intent.json"
LOCK_FILE = f"{OWN_DIRECTORY}/lock"
STAGING_DIRECTORY = f"{OWN_DIRECTORY}/staging"
REPLACED_DIRECTORY = f"{OWN_DIRECTORY}/replaced"
REPLACED_SUFFIX = ".replaced"
"""Behind the names of files there, which ``**/*.parquet`` would find: not all readers leave out
directories that begin with an underscore."""

_MANIFEST_NAME = re.compile(r"manifest-\d{8,}\.json")
_FOLDED_NAME = re.compile(r"(?:manifest|base)-(\d{8,})\.json")
_REPLACED_RUN = re.compile(r"run-(\d{8,})")


class Catalog:
    """The manifests of one archive."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def lock(self) -> AbstractContextManager[None]:
        """Be the only run. Raises PipelineError."""
        return self.files.lock(LOCK_FILE)

    def check_writable(self) -> None:
        """See that a run could write, as far as can be told without. Raises OSError."""
        for name in ("", OWN_DIRECTORY):
            self.files.check_writable(name)

    def current(self) -> Manifest | None:
        """The newest manifest; None for a place without an archive. Raises PipelineError."""
        return self._state()[0]

    def _state(self) -> tuple[Manifest | None, int]:
        """The newest manifest, and the last run that the base stands for, 0 without one."""
        data = self.files.read(CURRENT_FILE)
        if data is None:
            self._refuse_headless()
            return None, 0
        remedy = 'write {"manifest": "…"} with the name of the newest manifest beside it'
        with naming_damage(f"{self.files.location}/{CURRENT_FILE}", remedy):
            pointer = json.loads(data)
            name, base = str(pointer["manifest"]), int(pointer.get("base", 0))
            if not _MANIFEST_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a manifest")
        return self._manifest(f"{OWN_DIRECTORY}/{name}"), base

    def _refuse_headless(self) -> None:
        """See that there are no manifests without the file that says which is the newest."""
        found = [name for name in self.files.names(OWN_DIRECTORY) if name.startswith("manifest-")]
        found = [name for name in found if name.endswith(".json")]
        # The first run writes its manifest before that file, and its intent before both.
        if found and not (len(found) == 1 and self.files.exists(INTENT_FILE)):
            raise PipelineError(
                f"{self.files.location}/{CURRENT_FILE} is missing, and {found[-1]} is there: "
                f'restore it from a copy of the archive, or write {{"manifest": "{found[-1]}"}} '
                "into it if that is the newest"
            )

    def check_whole(self) -> None:
        """See that the manifests of all runs are there. Raises PipelineError."""
        there = set(self.files.names(OWN_DIRECTORY))
        for name in self._former()[1]:
            if name.rpartition("/")[2] not in there:
                raise PipelineError(
                    f"{self.files.location}/{name} is missing: restore it from a copy of the "
                    "archive; until then nothing is added to it"
                )

    def manifests(self) -> list[Manifest]:
        """All that are committed, from the first on, or from the one in the place of the first.

        Raises:
            PipelineError: one is missing, or damaged.
        """
        while True:
            current, former = self._former()
            try:
                found = [self._manifest(name) for name in former]
            except PipelineError:
                if self._former()[1] == former:
                    raise
                continue  # they were folded meanwhile
            return found if current is None else [*found, current]

    def _former(self) -> tuple[Manifest | None, list[str]]:
        """The newest manifest, and the names of those before it.

        None if it is the base that says all of it.
        """
        current, base = self._state()
        names = [base_file(base)] if base else []
        end = current.run if current is not None else 0
        names += [manifest_file(run) for run in range(base + 1, end)]
        return None if base >= end else current, names

    def fold(self) -> None:
        """Put one manifest in the place of the old ones. Only under the lock.

        Those stay whose removed files are kept still.
        """
        current, base = self._state()
        if current is None:
            return
        self._remove_folded(current.run, base)
        names = self.files.names(REPLACED_DIRECTORY)
        kept = [int(run[1]) for name in names if (run := _REPLACED_RUN.fullmatch(name))]
        old = [each for each in self.manifests() if each.run < min(kept, default=current.run + 1)]
        if not any(each.removed for each in old):
            return
        last = old[-1].run
        self.files.write(base_file(last), folded(old).to_json())
        self._point_to(manifest_file(current.run), last)
        self._remove_folded(current.run, last)

    def _base(self) -> int:
        data = self.files.read(CURRENT_FILE)
        return 0 if data is None else int(json.loads(data).get("base", 0))

    def _remove_folded(self, newest: int, base: int) -> None:
        """Delete what the base stands for; the newest manifest says where the next run begins."""
        wanted = {manifest_file(newest), base_file(base)}
        for name in self.files.names(OWN_DIRECTORY):
            old = _FOLDED_NAME.fullmatch(name)
            path = f"{OWN_DIRECTORY}/{name}"
            if old is not None and int(old[1]) <= base and path not in wanted:
                self.files.remove(path)

    def _point_to(self, name: str, base: int) -> None:
        """Make a manifest the newest: from now on readers go by it."""
        pointer: dict[str, object] = {"manifest": name.rpartition("/")[2]}
        if base:
            pointer["base"] = base
        self.files.write(CURRENT_FILE, json.dumps(pointer).encode() + b"\n")

    def archived_files(self) -> list[ArchivedFile]:
        """All files of the archive, in the order in which they came."""
        return left_of(self.manifests())

    def topics(self) -> set[str]:
        """The topics that have messages in the archive, or were read for it."""
        current = self.current()
        found = {file.topic for file in self.archived_files()}
        if current is not None:
            found.update(current.reached.positions)
            for position in current.log_positions.values():
                found.update(key for key in position.offsets if key[:1] not in ("*", "~"))
        return found

    def _manifest(self, name: str) -> Manifest:
        data = self.files.read(name)
        where = f"{self.files.location}/{name}"
        if data is None:
            raise PipelineError(f"{where} is missing: restore it from a copy of the archive")
        return Manifest.from_json(data, where)

    def killed_run(self) -> int | None:
        """The run that was killed while it was being committed, if any."""
        intended = self._intended()
        return intended[0].run if intended else None

    def recover(self) -> Manifest | None:
        """Finish a run that was killed while it was being committed; clear away any other.

        Only under the lock. Returns the run that was finished.
        """
        intended = self._intended()
        if intended:
            for _ in self.manifests():
                pass  # a damaged one ends this before anything is moved
            self._check_places(*intended)
            self._finish(*intended)
        self.files.remove_tree(STAGING_DIRECTORY)
        return intended[0] if intended else None

    def _intended(self) -> tuple[Manifest, list[str]] | None:
        """What the intent says, if there is one: the manifest, and the files to move."""
        data = self.files.read(INTENT_FILE)
        if data is None:
            return None
        where = f"{self.files.location}/{INTENT_FILE}"
        remedy = "delete it together with the files of the newest run that no manifest lists"
        with naming_damage(where, remedy):
            document = json.loads(data)
            staged = [_check_staged(str(name)) for name in document["staged"]]
            manifest = Manifest.from_json(json.dumps(document["manifest"]).encode(), where)
            if len(manifest.files) != len(staged):
                raise ValueError(f"{len(staged)} files become {len(manifest.files)}")
        return manifest, staged

    def begin(self, run: int) -> str:
        """Make room for what the tasks of a run write; returns its directory."""
        directory = f"{STAGING_DIRECTORY}/run-{run:08d}"
        self.files.create_directory(directory)
        return directory

    def commit(self, manifest: Manifest, staged: list[str]) -> None:
        """Make a run part of the archive; *staged* are its files, in the manifest's order."""
        intent = {"manifest": json.loads(manifest.to_json()), "staged": staged}
        self._check_places(manifest, staged)
        self.files.write(INTENT_FILE, json.dumps(intent).encode())
        self._finish(manifest, staged)
        self.files.remove_tree(STAGING_DIRECTORY)

    def _check_places(self, manifest: Manifest, staged: list[str]) -> None:
        """See that links lead nothing of a run out of the archive. Raises PipelineError."""
        below = f"{REPLACED_DIRECTORY}/run-{manifest.run:08d}"
        aside = [f"{below}/{path}{REPLACED_SUFFIX}" for path in manifest.removed]
        added = [file.path for file in manifest.files]
        for name in (manifest_file(manifest.run), *staged, *added, *manifest.removed, *aside):
            self.files.path(name)

    def _finish(self, manifest: Manifest, staged: list[str]) -> None:
        moves = []
        for file, source in zip(manifest.files, staged, strict=True):
            if self.files.exists(source):
                moves.append((source, file.path))
            elif not self.files.exists(file.path):
                raise PipelineError(
                    f"{self.files.location}/{file.path} is missing, and so is {source}, which was "
                    "to become it: restore one of them from a copy of the archive"
                )
        for directory in sorted({target.rpartition("/")[0] for _, target in moves}):
            self.files.create_directory(directory)
        self.files.move(moves)
        name = manifest_file(manifest.run)
        self.files.write(name, manifest.to_json())
        self._point_to(name, self._base())
        self._set_aside(manifest)
        self.files.remove(INTENT_FILE)

    def _set_aside(self, manifest: Manifest) -> None:
        """Take what a run removes from where readers of Parquet look."""
        below = f"{REPLACED_DIRECTORY}/run-{manifest.run:08d}"
        moves = [
            (path, f"{below}/{path}{REPLACED_SUFFIX}")
            for path in manifest.removed
            if self.files.exists(path)
        ]
        for directory in sorted({target.rpartition("/")[0] for _, target in moves}):
            self.files.create_directory(directory)
        self.files.move(moves)

    def delete_replaced(self, now_ms: int) -> None:
        """Delete what former runs removed and nobody is to need any more. Only under the lock."""
        for name in self.files.names(REPLACED_DIRECTORY):
            run = _REPLACED_RUN.fullmatch(name)
            if run is None:
                continue
            manifest = self._manifest(manifest_file(int(run[1])))
            if manifest.created_ms + int(manifest.source.get("keepOldMs", 0)) <= now_ms:
                self.files.remove_tree(f"{REPLACED_DIRECTORY}/{name}")


def kept_path(path: str) -> str:
    """Where a file of a local archive is that was there when it was planned to read it.

    Raises:
        PipelineError: it was merged with others, or expired, and is gone.
    """
    if os.path.exists(path):
        return path
    found = Path(path)
    if len(found.parents) < 3:
        return path
    root = found.parents[2]
    name = glob.escape(str(found.relative_to(root)))
    for suffix in (REPLACED_SUFFIX, ""):  # earlier releases kept their names
        for aside in sorted((root / REPLACED_DIRECTORY).glob(f"run-*/{name}{suffix}")):
            return str(aside)
    if (root / CURRENT_FILE).exists():
        raise PipelineError(
            f"{path} is not in the archive any more, since it was merged with others or expired: "
            "begin anew with another --id, and with --from behind what was replayed"
        )
    return path


def base_file(run: int) -> str:
    """The name of the manifest in the place of those up to a run's."""
    return f"{OWN_DIRECTORY}/base-{run:08d}.json"


def manifest_file(run: int) -> str:
    """The name of a run's manifest."""
    return f"{OWN_DIRECTORY}/manifest-{run:08d}.json"


def _check_staged(name: str) -> str:
    if not check_relative(name).startswith(f"{STAGING_DIRECTORY}/"):
        raise ValueError(f"{name!r} is not below {STAGING_DIRECTORY}")
    return name
