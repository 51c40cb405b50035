/* The compiled version of split_frames in frame.py. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Return the frame whose two length fields start at *p*, or NULL if memory is short. */
static PyObject *frame_at(const unsigned char *p, Py_ssize_t header_size, Py_ssize_t body_size)
{
    const char *header = (const char *)p + 8;
    PyObject *parts[] = {PyLong_FromLong(p[4]), PyBytes_FromStringAndSize(header, header_size),
                         PyBytes_FromStringAndSize(header + header_size, body_size)};
    PyObject *frame = NULL;
    if (parts[0] != NULL && parts[1] != NULL && parts[2] != NULL)
        frame = PyTuple_Pack(3, parts[0], parts[1], parts[2]);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(parts[i]);
    if (frame != NULL)
        PyObject_GC_UnTrack(frame); /* No cycle can contain it: see split_frames. */
    return frame;
}

/* split_frames(data, frame_size_max, header_size_max)

   The collector does not track the frames, or their list: they refer to nothing but numbers and
   bytes. Otherwise it would examine those of thousands of connections again and again while they
   wait for their turn. */
static PyObject *split_frames(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 3 || !PyBytes_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "bytes and two numbers are needed");
    int64_t frame_size_max = PyLong_AsLongLong(args[1]);
    int64_t header_size_max = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t start = 0, end = PyBytes_GET_SIZE(args[0]);
    PyObject *frames = PyList_New(0);
    while (frames != NULL && end - start >= 8) {
        int64_t length = get32(bytes + start), header_size = get32(bytes + start + 4) & 0xFFFFFF;
        if (length < 4 + header_size || length > frame_size_max || header_size > header_size_max
            || length + 4 > end - start)
            break;
        PyObject *frame = frame_at(bytes + start, (Py_ssize_t)header_size,
                                   (Py_ssize_t)(length - 4 - header_size));
        if (frame == NULL || PyList_Append(frames, frame) < 0)
            Py_CLEAR(frames);
        Py_XDECREF(frame);
        start += (Py_ssize_t)length + 4;
    }
    if (frames == NULL)
        return NULL;
    PyObject_GC_UnTrack(frames);
    return Py_BuildValue("(Nn)", frames, start);
}

static PyMethodDef methods[] = {{"split_frames",
                                 (PyCFunction)(void (*)(void))split_frames, METH_FASTCALL, NULL},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.protocol._framing", "The compiled part of frame.py.", 0,
    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__framing(void)
{
    return PyModule_Create(&definition);
}
