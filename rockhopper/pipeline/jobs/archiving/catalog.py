"""The archive directory, and the atomic commit of a run.

    topic=orders/date=2026-11-20/part-00003-00000-0.parquet
    _rockhopper/current.json              {"manifest": "manifest-00000003.json"}
    _rockhopper/manifest-00000003.json    what run 3 added (manifest.py)
    _rockhopper/base-00000002.json        what runs 1 to 2 added and removed, in their place
    _rockhopper/intent.json               a run that is being committed
    _rockhopper/staging/run-00000004/…    output of the tasks of the current run
    _rockhopper/replaced/run-00000003/…   files that run 3 removed, kept for a while
    _rockhopper/lock                      held by the current run

Readers of Parquet skip names that start with ``_``. A commit has these steps:

1. The tasks write files below staging.
2. The run writes the *intent*: the manifest and the names of the files to move.
3. It moves the files to their places.
4. It writes the manifest.
5. It updates the pointer in current.json.
6. It moves the files that it removes below replaced.
7. It deletes the intent and staging.

The first run after the retention time (``keepOldMs`` in the manifest's source) deletes the replaced
files.

To limit the number of manifests, ``fold`` writes one manifest, the *base*, in place of those whose
removed files are deleted. The pointer names it ("base"), and then the others are deleted.

If a run is killed before it writes its intent, the next run clears staging, and nothing else is
left. If a run is killed later, the next run finds the intent and completes the commit. So a
directory listing shows files of runs that are committed or are being committed, and the manifests
show complete runs only.
"""

import glob
import json
import os
import re
from contextlib import AbstractContextManager
from pathlib import Path

from rockhopper.paths import check_relative
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import Files, name_damage
from rockhopper.pipeline.jobs.archiving.manifest import (
    ArchivedFile,
    Manifest,
    fold_manifests,
    list_left,
)

OWN_DIRECTORY = "_rockhopper"
CURRENT_FILE = f"{OWN_DIRECTORY}/current.json"
INTENT_FILE = f"{OWN_DIRECTORY}/intent.json"
LOCK_FILE = f"{OWN_DIRECTORY}/lock"
STAGING_DIRECTORY = f"{OWN_DIRECTORY}/staging"
REPLACED_DIRECTORY = f"{OWN_DIRECTORY}/replaced"
REPLACED_SUFFIX = ".replaced"
"""The suffix of replaced files, so that ``**/*.parquet`` does not find them.

Not all readers skip directories that begin with an underscore.
"""

_MANIFEST_NAME = re.compile(r"manifest-\d{8,}\.json")
_FOLDED_NAME = re.compile(r"(?:manifest|base)-(\d{8,})\.json")
_REPLACED_RUN = re.compile(r"run-(\d{8,})")


class Catalog:
    """The manifests of one archive."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def lock(self) -> AbstractContextManager[None]:
        """Make this the only run. Raises PipelineError."""
        return self.files.lock(LOCK_FILE)

    def check_writable(self) -> None:
        """Check that a run could write, as far as possible without writing. Raises OSError."""
        for name in ("", OWN_DIRECTORY):
            self.files.check_writable(name)

    def current(self) -> Manifest | None:
        """Return the newest manifest; None if there is no archive. Raises PipelineError."""
        return self._state()[0]

    def _state(self) -> tuple[Manifest | None, int]:
        """Return the newest manifest, and the last run in the base, 0 without a base."""
        data = self.files.read(CURRENT_FILE)
        if data is None:
            self._refuse_headless()
            return None, 0
        remedy = 'write {"manifest": "…"} with the name of the newest manifest beside it'
        with name_damage(f"{self.files.location}/{CURRENT_FILE}", remedy):
            pointer = json.loads(data)
            name, base = str(pointer["manifest"]), int(pointer.get("base", 0))
            if not _MANIFEST_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a manifest")
        return self._manifest(f"{OWN_DIRECTORY}/{name}"), base

    def _refuse_headless(self) -> None:
        """Refuse manifests without the pointer to the newest one. Raises PipelineError."""
        found = [name for name in self.files.names(OWN_DIRECTORY) if name.startswith("manifest-")]
        found = [name for name in found if name.endswith(".json")]
        # The first run writes its manifest before the pointer, and its intent before both.
        if found and not (len(found) == 1 and self.files.exists(INTENT_FILE)):
            raise PipelineError(
                f"{self.files.location}/{CURRENT_FILE} is missing, and {found[-1]} is there: "
                f'restore it from a copy of the archive, or write {{"manifest": "{found[-1]}"}} '
                "into it if that is the newest"
            )

    def check_whole(self) -> None:
        """Check that the manifests of all runs exist. Raises PipelineError."""
        there = set(self.files.names(OWN_DIRECTORY))
        for name in self._former()[1]:
            if name.rpartition("/")[2] not in there:
                raise PipelineError(
                    f"{self.files.location}/{name} is missing: restore it from a copy of the "
                    "archive; until then nothing is added to it"
                )

    def manifests(self) -> list[Manifest]:
        """Return all committed manifests, starting with the first or the base.

        Raises:
            PipelineError: a manifest is missing or damaged.
        """
        while True:
            current, former = self._former()
            try:
                found = [self._manifest(name) for name in former]
            except PipelineError:
                if self._former()[1] == former:
                    raise
                continue  # another run folded them meanwhile
            return found if current is None else [*found, current]

    def _former(self) -> tuple[Manifest | None, list[str]]:
        """Return the newest manifest, and the names of those before it.

        The first value is None if the base covers all runs.
        """
        current, base = self._state()
        names = [base_file(base)] if base else []
        end = current.run if current is not None else 0
        names += [manifest_file(run) for run in range(base + 1, end)]
        return None if base >= end else current, names

    def fold(self) -> None:
        """Replace old manifests by one. The caller must hold the lock.

        Manifests stay as long as the files that they removed are kept.
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
        self.files.write(base_file(last), fold_manifests(old).to_json())
        self._point_to(manifest_file(current.run), last)
        self._remove_folded(current.run, last)

    def _base(self) -> int:
        data = self.files.read(CURRENT_FILE)
        return 0 if data is None else int(json.loads(data).get("base", 0))

    def _remove_folded(self, newest: int, base: int) -> None:
        """Delete the manifests in the base, except the newest, which gives the next run's start."""
        wanted = {manifest_file(newest), base_file(base)}
        for name in self.files.names(OWN_DIRECTORY):
            old = _FOLDED_NAME.fullmatch(name)
            path = f"{OWN_DIRECTORY}/{name}"
            if old is not None and int(old[1]) <= base and path not in wanted:
                self.files.remove(path)

    def _point_to(self, name: str, base: int) -> None:
        """Make a manifest the newest one for readers."""
        pointer: dict[str, object] = {"manifest": name.rpartition("/")[2]}
        if base:
            pointer["base"] = base
        self.files.write(CURRENT_FILE, json.dumps(pointer).encode() + b"\n")

    def archived_files(self) -> list[ArchivedFile]:
        """Return all files of the archive, in the order in which they were added."""
        return list_left(self.manifests())

    def topics(self) -> set[str]:
        """Return the topics that the archive has read, including those without messages."""
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
        """Return the run that was killed during its commit, or None."""
        intended = self._intended()
        return intended[0].run if intended else None

    def recover(self) -> Manifest | None:
        """Complete the commit of a killed run; clear staging in any case.

        The caller must hold the lock. Returns the manifest of the completed run.
        """
        intended = self._intended()
        if intended:
            for _ in self.manifests():
                pass  # a damaged manifest raises here, before any file is moved
            self._check_places(*intended)
            self._finish(*intended)
        self.files.remove_tree(STAGING_DIRECTORY)
        return intended[0] if intended else None

    def _intended(self) -> tuple[Manifest, list[str]] | None:
        """Return the manifest in the intent and the files to move; None without an intent."""
        data = self.files.read(INTENT_FILE)
        if data is None:
            return None
        where = f"{self.files.location}/{INTENT_FILE}"
        remedy = "delete it together with the files of the newest run that no manifest lists"
        with name_damage(where, remedy):
            document = json.loads(data)
            staged = [_check_staged(str(name)) for name in document["staged"]]
            manifest = Manifest.from_json(json.dumps(document["manifest"]).encode(), where)
            if len(manifest.files) != len(staged):
                raise ValueError(f"{len(staged)} files become {len(manifest.files)}")
        return manifest, staged

    def create_staging(self, run: int) -> str:
        """Create the staging directory of a run, and return it."""
        directory = f"{STAGING_DIRECTORY}/run-{run:08d}"
        self.files.create_directory(directory)
        return directory

    def commit(self, manifest: Manifest, staged: list[str]) -> None:
        """Commit a run; *staged* are its files, in the order of the manifest."""
        intent = {"manifest": json.loads(manifest.to_json()), "staged": staged}
        self._check_places(manifest, staged)
        self.files.write(INTENT_FILE, json.dumps(intent).encode())
        self._finish(manifest, staged)
        self.files.remove_tree(STAGING_DIRECTORY)

    def _check_places(self, manifest: Manifest, staged: list[str]) -> None:
        """Check that no symbolic link puts a file outside the archive. Raises PipelineError."""
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
        """Move the files that a run removes to a place where readers of Parquet do not look."""
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
        """Delete files that runs removed, after their retention. The caller must hold the lock."""
        for name in self.files.names(REPLACED_DIRECTORY):
            run = _REPLACED_RUN.fullmatch(name)
            if run is None:
                continue
            manifest = self._manifest(manifest_file(int(run[1])))
            if manifest.created_ms + int(manifest.source.get("keepOldMs", 0)) <= now_ms:
                self.files.remove_tree(f"{REPLACED_DIRECTORY}/{name}")


def find_kept_path(path: str) -> str:
    """Return the current path of a local archive file that a plan refers to.

    Raises:
        PipelineError: the file was merged with others, or expired, and is deleted.
    """
    if os.path.exists(path):
        return path
    found = Path(path)
    if len(found.parents) < 3:
        return path
    root = found.parents[2]
    name = glob.escape(str(found.relative_to(root)))
    for suffix in (REPLACED_SUFFIX, ""):  # earlier releases added no suffix
        for aside in sorted((root / REPLACED_DIRECTORY).glob(f"run-*/{name}{suffix}")):
            return str(aside)
    if (root / CURRENT_FILE).exists():
        raise PipelineError(
            f"{path} is not in the archive any more, since it was merged with others or "
            "expired: start over with another --id, and with --from behind what was replayed"
        )
    return path


def base_file(run: int) -> str:
    """Return the name of the base manifest up to a run."""
    return f"{OWN_DIRECTORY}/base-{run:08d}.json"


def manifest_file(run: int) -> str:
    """Return the name of a run's manifest."""
    return f"{OWN_DIRECTORY}/manifest-{run:08d}.json"


def _check_staged(name: str) -> str:
    if not check_relative(name).startswith(f"{STAGING_DIRECTORY}/"):
        raise ValueError(f"{name!r} is not below {STAGING_DIRECTORY}")
    return name
