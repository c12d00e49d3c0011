/* Handles, nodes, lines of the program and the queue, as Python's functions of the same names make and keep them. */

#ifndef TELEGRAD_OBJECTS_H
#define TELEGRAD_OBJECTS_H

#include "slots.h"

/* An instance of a class whose ``__new__`` is object's. Its slots are empty, and the caller fills them at once. */
static PyObject *
allocate(PyObject *type)
{
    return PyBaseObject_Type.tp_new((PyTypeObject *)type, no_arguments, NULL);
}

static PyObject *
new_tensor(PyObject *session, PyObject *id, PyObject *meta)
{
    PyObject *tensor = allocate(the_Tensor);
    if (tensor == NULL) return NULL;
    SLOT(tensor, Tensor___id) = Py_NewRef(id);
    SLOT(tensor, Tensor___session) = Py_NewRef(session);
    SLOT(tensor, Tensor___meta) = Py_NewRef(meta);
    SLOT(tensor, Tensor___requires_grad) = Py_NewRef(Py_False);
    SLOT(tensor, Tensor___node) = Py_NewRef(Py_None);
    SLOT(tensor, Tensor___grad) = Py_NewRef(Py_None);
    SLOT(tensor, Tensor___base) = Py_NewRef(Py_None);
    SLOT(tensor, Tensor___aliases) = Py_NewRef(Py_None);
    SLOT(tensor, Tensor___seen) = Py_NewRef(zero);
    return tensor;
}

static PyObject *
new_node(PyObject **parents, Py_ssize_t count, PyObject *name)
{
    PyObject *edges = PyTuple_New(count);
    if (edges == NULL) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(edges, i, Py_NewRef(parents[i]));
    PyObject *node = allocate(the_OperationNode);
    if (node == NULL) {
        Py_DECREF(edges);
        return NULL;
    }
    SLOT(node, OperationNode__parents) = edges;
    SLOT(node, OperationNode__name) = Py_NewRef(name);
    SLOT(node, OperationNode__extras) = Py_NewRef(Py_None);
    return node;
}

/* Whether a file is telegrad's; -1 for an error. */
static int
is_own(PyObject *file)
{
    int found = PySet_Contains(the_other_files, file);
    if (found != 0) return found < 0 ? -1 : 0;
    found = PySet_Contains(the_own_files, file);
    if (found != 0) return found;
    PyObject *answer = PyObject_CallOneArg(the_is_own, file);
    found = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return found;
}

/* The number of a line that the server may have been told of, given the innermost frame that is not telegrad's. */
static PyObject *
number_of(PyObject *sites, PyObject *code, PyObject *frame)
{
    PyObject *address = PyLong_FromVoidPtr(code);
    PyObject *place = PyLong_FromLong(PyFrame_GetLasti((PyFrameObject *)frame));
    PyObject *key = address && place ? PyTuple_Pack(2, address, place) : NULL, *number = NULL;
    Py_XDECREF(address);
    Py_XDECREF(place);
    if (key == NULL) return NULL;
    number = Py_XNewRef(PyDict_GetItemWithError(SLOT(sites, CallSites___numbers), key));
    if (number == NULL && !PyErr_Occurred())
        number = PyObject_CallMethodObjArgs(sites, text__introduce, key, frame, NULL);
    Py_DECREF(key);
    return number;
}

/* ``CallSites.current``, skipping the function of Python that has called this one. */
static PyObject *
current_site(PyObject *sites)
{
    PyObject *frame = PyObject_CallOneArg(the_getframe, one), *number = NULL;
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
        int own = is_own(code->co_filename);
        PyObject *outer = own == 1 ? (PyObject *)PyFrame_GetBack((PyFrameObject *)frame) : NULL;
        if (outer == NULL && own >= 0) number = number_of(sites, (PyObject *)code, frame);
        Py_DECREF(code);
        Py_SETREF(frame, outer);
    }
    return number;
}

/* ``SendQueue.take_dead``, or an empty tuple where none are dead. */
static PyObject *
take_dead(PyObject *dead)
{
    if (Py_SIZE(dead) == 0) return Py_NewRef(no_arguments);
    PyObject *ids = PyList_New(0);
    while (ids != NULL && Py_SIZE(dead)) {
        PyObject *id = PyObject_Vectorcall(popleft, &dead, 1, NULL);
        if (id == NULL || PyList_Append(ids, id) < 0) Py_CLEAR(ids);
        Py_XDECREF(id);
    }
    return ids;
}

/* ``SendQueue.queue``; -1 for an error. */
static int
queue(PyObject *session, PyObject *instruction, PyObject *modes)
{
    PyObject *done;
    int armed = PyObject_IsTrue(SLOT(session, SendQueue___is_armed));
    if (modes != the_default_modes || armed != 1) {
        done = armed < 0 ? NULL : PyObject_CallMethodObjArgs(session, text_queue, instruction, modes, NULL);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    PyObject *both[] = {SLOT(session, SendQueue___pending), instruction};
    done = PyObject_Vectorcall(append, both, 2, NULL);
    if (done == NULL) return -1;
    Py_DECREF(done);
    PyObject *count = PyNumber_Add(SLOT(session, SendQueue__operations), one);
    if (count == NULL) return -1;
    Py_SETREF(SLOT(session, SendQueue__operations), count);
    int full = PyObject_IsTrue(SLOT(session, SendQueue___is_urgent));
    if (full == 0) full = PyObject_RichCompareBool(count, SLOT(session, SendQueue___full_at), Py_GE);
    if (full != 1) return full;
    done = PyObject_CallMethodNoArgs(session, text__send_full);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

#endif
