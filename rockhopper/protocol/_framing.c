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
    return frame;
}

/* split_frames(data, frame_size_max, header_size_max) */
static PyObject *split_frames(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer data;
    long long frame_size_max, header_size_max;
    if (!PyArg_ParseTuple(args, "y*LL", &data, &frame_size_max, &header_size_max))
        return NULL;
    const unsigned char *bytes = data.buf;
    Py_ssize_t start = 0;
    PyObject *frames = PyList_New(0);
    while (frames != NULL && data.len - start >= 8) {
        int64_t length = get32(bytes + start), header_size = get32(bytes + start + 4) & 0xFFFFFF;
        if (length < 4 + header_size || length > frame_size_max || header_size > header_size_max
            || length + 4 > data.len - start)
            break;
        PyObject *frame = frame_at(bytes + start, (Py_ssize_t)header_size,
                                   (Py_ssize_t)(length - 4 - header_size));
        if (frame == NULL || PyList_Append(frames, frame) < 0)
            Py_CLEAR(frames);
        Py_XDECREF(frame);
        start += (Py_ssize_t)length + 4;
    }
    PyBuffer_Release(&data);
    return frames == NULL ? NULL : Py_BuildValue("(Nn)", frames, start);
}

static PyMethodDef methods[] = {{"split_frames", split_frames, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "rockhopper.protocol._framing", "The compiled part of frame.py.", 0,
    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__framing(void)
{
    return PyModule_Create(&definition);
}
