/* The wait of a worker's loop for its sockets, as ``worker/sockets.py`` asks for it. */

#ifndef TELEGRAD_WAITS_H
#define TELEGRAD_WAITS_H

#include "awake.h"
#include "slots.h"

static Awake for_sockets;

static PyObject *
wait_awake(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "wait_awake: expected a descriptor and milliseconds");
    struct pollfd one = {.fd = PyObject_AsFileDescriptor(given[0]), .events = POLLIN};
    long milliseconds = one.fd < 0 ? 0 : PyLong_AsLong(given[1]);
    if (PyErr_Occurred()) return NULL;
    int ready = poll_awake(&for_sockets, &one, 1, (int)milliseconds);
    return none_unless(ready < 0 && (PyErr_Occurred() || PyErr_CheckSignals() < 0));
}

static PyObject *
waits_awake(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    return told_of(&for_sockets);
}

#endif
