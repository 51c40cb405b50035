"""File operations of an archive, in a local directory or behind a URI of pyarrow.fs.

A write is atomic: a reader sees all of it or nothing. Local files are on disk when a call returns.
The durability of remote files depends on the file system, and they cannot be locked.
"""

import errno
import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from rockhopper.paths import check_inside, check_relative, expand_home
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.disk import check_writable, sync

_NOT_YOURS = "nothing was changed there; use a copy of the archive that you trust"


class LocalFiles:
    """A local directory; names are relative to it, with slashes."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = expand_home(root).absolute()
        self.location = str(self._root)

    def path(self, name: str) -> Path:
        """Return the path of a file. Raises PipelineError if it is outside the directory."""
        if not name:
            return self._root
        with name_damage(self.location, _NOT_YOURS):
            return check_inside(self._root, name)

    def read(self, name: str) -> bytes | None:
        """Return the whole file; None if it does not exist."""
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a small file atomically; create its directory if needed."""
        path = self.path(name)
        self.create_directory(os.path.dirname(name))
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        with open(scratch, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
        sync(path.parent)

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; an empty list if it does not exist."""
        try:
            return sorted(os.listdir(self.path(directory)))
        except FileNotFoundError:
            return []

    def exists(self, name: str) -> bool:
        """Return whether the file or directory exists."""
        return self.path(name).exists()

    def check_writable(self, name: str) -> None:
        """Check that a directory can be written or created, as far as possible without writing.

        Raises OSError.
        """
        check_writable(self.path(name))

    def create_directory(self, name: str) -> None:
        """Create a directory and its parents; it may exist."""
        path = self.path(name)
        made = [parent for parent in (path, *path.parents) if not parent.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for directory in made:
            sync(directory.parent)

    def create_leaf(self, name: str) -> None:
        """Create a directory whose parent exists."""
        self.path(name).mkdir(exist_ok=True)

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        """Rename files; the target directories must exist."""
        directories = set()
        for source, target in moves:
            os.replace(self.path(source), self.path(target))
            directories.add(self.path(target).parent)
        for directory in sorted(directories):
            sync(directory)

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        self.path(name).unlink(missing_ok=True)

    def remove_tree(self, name: str) -> None:
        """Delete a directory and its contents if it exists."""
        shutil.rmtree(self.path(name), ignore_errors=True)

    def open_input(self, name: str) -> Any:
        """Open a file for reading. Raises OSError."""
        return open(self.path(name), "rb")

    def open_output(self, name: str) -> Any:
        """Open a file for writing Parquet."""
        import pyarrow as pa

        return pa.OSFile(str(self.path(name)), "wb")

    def settle(self, name: str) -> int:
        """Sync a written file to disk and return its size."""
        with open(self.path(name), "rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold an exclusive lock; it ends with this process.

        Raises:
            PipelineError: another process holds the lock.
        """
        import fcntl

        self.create_directory(os.path.dirname(name))
        with open(self.path(name), "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise PipelineError(
                    f"{holder} is at work on {self.location}: wait until it is done"
                ) from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield
            file.truncate(0)


class RemoteFiles:
    """A location that pyarrow.fs can access, such as ``s3://bucket/history``."""

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        self.location = uri
        self._fs = fs
        try:
            self._files, root = fs.FileSystem.from_uri(uri)
        except Exception as error:
            raise PipelineError(
                f"{uri} cannot be reached ({error}): give a local directory, or a URI that "
                "pyarrow.fs knows, such as s3://bucket/directory"
            ) from error
        self._root = root.rstrip("/")

    def path(self, name: str) -> str:
        """Return the path of a file. Raises PipelineError if it is outside the root."""
        if name:
            with name_damage(self.location, _NOT_YOURS):
                check_relative(name)
        return f"{self._root}/{name}" if name else self._root

    def read(self, name: str) -> bytes | None:
        """See LocalFiles."""
        try:
            with self._files.open_input_file(self.path(name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """See LocalFiles."""
        path = self.path(name)
        self._files.create_dir(path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(f"{path}.new") as file:
            file.write(data)
        self._files.move(f"{path}.new", path)

    def names(self, directory: str) -> list[str]:
        """See LocalFiles."""
        selector = self._fs.FileSelector(self.path(directory), allow_not_found=True)
        return sorted(info.base_name for info in self._files.get_file_info(selector))

    def exists(self, name: str) -> bool:
        """See LocalFiles."""
        found = self._files.get_file_info(self.path(name)).type
        return bool(found != self._fs.FileType.NotFound)

    def check_writable(self, name: str) -> None:
        """See LocalFiles; does nothing, because only a write can show it."""

    def create_directory(self, name: str) -> None:
        """See LocalFiles."""
        self._files.create_dir(self.path(name), recursive=True)

    def create_leaf(self, name: str) -> None:
        """See LocalFiles."""
        self.create_directory(name)

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        """See LocalFiles."""
        for source, target in moves:
            self._files.move(self.path(source), self.path(target))

    def remove(self, name: str) -> None:
        """See LocalFiles."""
        if self.exists(name):
            self._files.delete_file(self.path(name))

    def remove_tree(self, name: str) -> None:
        """See LocalFiles."""
        if self.exists(name):
            self._files.delete_dir(self.path(name))

    def open_input(self, name: str) -> Any:
        """See LocalFiles."""
        return self._files.open_input_file(self.path(name))

    def open_output(self, name: str) -> Any:
        """See LocalFiles."""
        return self._files.open_output_stream(self.path(name))

    def settle(self, name: str) -> int:
        """See LocalFiles."""
        return int(self._files.get_file_info(self.path(name)).size)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Do nothing: remote files have no lock, so the user must start one run at a time."""
        yield


@contextmanager
def name_damage(where: str, remedy: str) -> Iterator[None]:
    """Turn errors of an invalid document into a PipelineError that names it."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(f"{where} is damaged ({error!r}): {remedy}") from error


@contextmanager
def name_unreadable(where: str) -> Iterator[None]:
    """Turn errors of an unreadable archive file into a PipelineError that names it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise PipelineError(
            f"{where} cannot be read ({str(error).splitlines()[0]}): restore it from a copy of the "
            "archive; the job audit tells what else is wrong"
        ) from error


Files: TypeAlias = LocalFiles | RemoteFiles


def files_at(location: str) -> Files:
    """Return the files below a local path, a ``file:`` URI or other URI. Raises PipelineError."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return LocalFiles(unquote(parts.path))
    if "://" in location:
        return RemoteFiles(location)
    return LocalFiles(location)
