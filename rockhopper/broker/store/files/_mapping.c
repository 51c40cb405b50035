/* Compiled: file mappings that hold no descriptor (mapped_file.py explains why), the sync of a whole
   file system (disk.py), and what a start asks of the files of each queue: the units of a short
   queue (unit_files.py), and whether files have changed (inventory.py). */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/utsname.h>
#include <sys/vfs.h>
#endif

/* map_over(mapping, descriptor): replaces an anonymous mapping by a mapping of the file, at the
   same address and of the same size. */
static PyObject *map_over(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *mapping;
    int descriptor;
    Py_buffer place;
    if (!PyArg_ParseTuple(args, "Oi", &mapping, &descriptor)
        || PyObject_GetBuffer(mapping, &place, PyBUF_SIMPLE) < 0)
        return NULL;
    int protection = place.readonly ? PROT_READ : PROT_READ | PROT_WRITE;
    void *mapped = mmap(place.buf, (size_t)place.len, protection, MAP_SHARED | MAP_FIXED,
                        descriptor, 0);
    PyBuffer_Release(&place);
    if (mapped == MAP_FAILED)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

#ifdef __linux__
/* Since Linux 5.8, syncfs reports that a write failed earlier. A layered file system (overlay,
   FUSE) may not: only those whose own pages are written are listed. */
static int reports_failed_writes(int descriptor)
{
    struct utsname system;
    struct statfs found;
    int major = 0, minor = 0;
    if (uname(&system) != 0 || sscanf(system.release, "%d.%d", &major, &minor) != 2
        || major < 5 || (major == 5 && minor < 8) || fstatfs(descriptor, &found) != 0)
        return 0;
    switch ((unsigned long)found.f_type & 0xffffffffUL) {
    case 0xef53UL:     /* ext2, ext3, ext4 */
    case 0x58465342UL: /* XFS */
    case 0x9123683eUL: /* Btrfs */
    case 0xf2f52010UL: /* F2FS */
    case 0x01021994UL: /* tmpfs */
        return 1;
    default:
        return 0;
    }
}
#endif

/* sync_file_system(descriptor): makes all files and names durable in the file system of an open
   file. Returns False, with nothing done, if this system would not report a failed write. */
static PyObject *sync_file_system(PyObject *module, PyObject *argument)
{
    (void)module;
    int descriptor = PyObject_AsFileDescriptor(argument);
    if (descriptor < 0)
        return NULL;
#ifdef __linux__
    if (reports_failed_writes(descriptor)) {
        int result;
        Py_BEGIN_ALLOW_THREADS
        result = syncfs(descriptor);
        Py_END_ALLOW_THREADS
        if (result != 0)
            return PyErr_SetFromErrno(PyExc_OSError);
        Py_RETURN_TRUE;
    }
#endif
    Py_RETURN_FALSE;
}

#define UNIT_BYTES 20
#define SHORT_BYTES 4096
#define STEP_BYTES 16384
#define FIRST_FILE "00000000000000000000"

static int64_t big_endian(const unsigned char *bytes, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | bytes[i];
    return (int64_t)value;
}

/* Opens the only file of a directory if it is the first of a queue; else returns -1. */
static int open_only_file(const char *path)
{
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -1;
    DIR *listing = fdopendir(directory);
    if (listing == NULL) {
        close(directory);
        return -1;
    }
    int count = 0, others = 0, file = -1;
    const struct dirent *entry;
    errno = 0;
    while ((entry = readdir(listing)) != NULL) {
        if (strcmp(entry->d_name, FIRST_FILE) == 0)
            count++;
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            others++;
    }
    if (errno == 0 && count == 1 && others == 0)
        file = openat(directory, FIRST_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    closedir(listing);
    return file;
}

/* Returns whether the file holds only zeros after SHORT_BYTES; *head* has room for STEP_BYTES. */
static int ends_short(int file, int64_t size, unsigned char *head)
{
#ifdef SEEK_DATA
    off_t data = lseek(file, SHORT_BYTES, SEEK_DATA);
    if (data < 0)
        return errno == ENXIO;
    if (data >= STEP_BYTES || size < STEP_BYTES || pread(file, head, STEP_BYTES, 0) != STEP_BYTES)
        return 0;
    /* Blocks that were allocated with the first count as data while they are cached. */
    for (int i = SHORT_BYTES; i < STEP_BYTES; i++)
        if (head[i] != 0)
            return 0;
    return lseek(file, STEP_BYTES, SEEK_DATA) < 0 && errno == ENXIO;
#else
    (void)file, (void)size, (void)head;
    return 0;
#endif
}

/* Returns the bytes of the units in *head* if each is sound and only zeros follow them; else 0. */
static int sound_bytes(const unsigned char *head, int64_t log_end)
{
    int end = 0;
    int64_t before = -1;
    while (end + UNIT_BYTES <= SHORT_BYTES) {
        int64_t offset = big_endian(head + end, 8), size = big_endian(head + end + 8, 4);
        if (offset <= before || size <= 0 || size >= INT32_MAX || offset > log_end - size)
            break;
        before = offset;
        end += UNIT_BYTES;
    }
    for (int i = end; i < SHORT_BYTES; i++)
        if (head[i] != 0)
            return 0;
    return end;
}

/* read_short_queue(directory, log_end): the file size, device and units of a short queue, or None;
   unit_files.py has the oracle. */
static PyObject *read_short_queue(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *path;
    long long log_end;
    if (!PyArg_ParseTuple(args, "O&L", PyUnicode_FSConverter, &path, &log_end))
        return NULL;
    unsigned char head[STEP_BYTES];
    struct stat status = {0};
    int end = 0;
    Py_BEGIN_ALLOW_THREADS
    int file = open_only_file(PyBytes_AS_STRING(path));
    if (file >= 0) {
        if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > SHORT_BYTES
            && pread(file, head, SHORT_BYTES, 0) == SHORT_BYTES)
            end = sound_bytes(head, log_end);
        if (end > 0 && !ends_short(file, status.st_size, head))
            end = 0;
        close(file);
    }
    Py_END_ALLOW_THREADS
    Py_DECREF(path);
    if (end == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("LKy#", (long long)status.st_size, (unsigned long long)status.st_dev,
                         (const char *)head, (Py_ssize_t)end);
}

#ifdef __APPLE__
#define MODIFIED st_mtimespec
#define CHANGED st_ctimespec
#else
#define MODIFIED st_mtim
#define CHANGED st_ctim
#endif

static uint64_t nanoseconds(struct timespec time)
{
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

/* Mixes the identity and the times of a file into *digest*; returns whether there is one. */
static int mix_file(const char *path, uint64_t *digest)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return 0;
    const uint64_t fields[] = {(uint64_t)status.st_ino, (uint64_t)status.st_size,
                               nanoseconds(status.MODIFIED), nanoseconds(status.CHANGED)};
    for (int i = 0; i < 4; i++)
        *digest = (*digest ^ fields[i]) * 1099511628211U;
    return 1;
}

/* digest_files(paths, suffix): a number that changes with any of the files *paths*, and of the
   files *suffix* in each; None if one is missing. inventory.py has the oracle. */
static PyObject *digest_files(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *paths;
    const char *suffix;
    Py_ssize_t suffix_size;
    if (!PyArg_ParseTuple(args, "O!s#", &PyList_Type, &paths, &suffix, &suffix_size))
        return NULL;
    uint64_t digest = 14695981039346656037U;
    char file[PATH_MAX];
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(paths); i++) {
        PyObject *path;
        if (!PyUnicode_FSConverter(PyList_GET_ITEM(paths, i), &path))
            return NULL;
        Py_ssize_t size = PyBytes_GET_SIZE(path);
        int is_there = size + suffix_size < (Py_ssize_t)sizeof file;
        if (is_there) {
            memcpy(file, PyBytes_AS_STRING(path), (size_t)size + 1);
            is_there = mix_file(file, &digest);
        }
        if (is_there && suffix_size > 0) {
            memcpy(file + size, suffix, (size_t)suffix_size + 1);
            is_there = mix_file(file, &digest);
        }
        Py_DECREF(path);
        if (!is_there)
            Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(digest);
}

static PyMethodDef methods[] = {{"map_over", map_over, METH_VARARGS, NULL},
                                {"sync_file_system", sync_file_system, METH_O, NULL},
                                {"read_short_queue", read_short_queue, METH_VARARGS, NULL},
                                {"digest_files", digest_files, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.broker.store.files._mapping",
    "Mappings without descriptors, syncs of file systems, and reads of many files.", 0, methods,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__mapping(void)
{
    return PyModule_Create(&definition);
}
