/* What queues a run of a program: the numbers of its inputs, and those of what it makes. */

#ifndef TELEGRAD_RUNS_H
#define TELEGRAD_RUNS_H

#include "objects.h"
#include "operands.h"

/* The number of a tensor: a new reference. */
static PyObject *
id_of(PyObject *tensor)
{
    PyObject *id = is_usual(tensor) ? SLOT(tensor, Tensor___id) : NULL;
    if (id != NULL) return Py_NewRef(id);
    return PyErr_Occurred() ? NULL : PyObject_GetAttr(tensor, text__id);
}

/* ``new_tensor`` in ``_tensor/tensor.py``. */
static PyObject *
call_new_tensor(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3) return PyErr_Format(PyExc_TypeError, "new_tensor: expected a session, a number and how it lies");
    return new_tensor(args[0], args[1], args[2]);
}

/* The numbers of tensors, each of which is given, or by its place among others. */
static PyObject *
ids_of(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyTuple_CheckExact(args[0]) || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "ids_of: expected a tuple and a list");
    PyObject *sources = args[0], *others = args[1], *ids = PyList_New(PyTuple_GET_SIZE(sources));
    for (Py_ssize_t i = 0; ids != NULL && i < PyTuple_GET_SIZE(sources); i++) {
        PyObject *source = PyTuple_GET_ITEM(sources, i), *id;
        if (PyLong_CheckExact(source)) source = PyList_GetItem(others, PyLong_AsSsize_t(source));
        id = source == NULL ? NULL : id_of(source);
        if (id == NULL) Py_CLEAR(ids);
        else PyList_SET_ITEM(ids, i, id);
    }
    return ids;
}

/* Take so many numbers from an iterator that gives consecutive ones, with nothing in between, and return the first. */
static PyObject *
take_numbers(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t left = count == 2 ? PyLong_AsSsize_t(args[1]) : -1;
    if (left < 1) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "take_numbers: expected a positive number");
    PyObject *first = PyIter_Next(args[0]), *number = first;
    while (number != NULL && --left) {
        if (number != first) Py_DECREF(number);
        number = PyIter_Next(args[0]);
    }
    if (number != first) Py_XDECREF(number);
    if (number != NULL) return first;
    Py_XDECREF(first);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "take_numbers: there are no more numbers");
}

#endif
