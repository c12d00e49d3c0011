/* What is looked at of tensors before anything is done with them. */

#ifndef TELEGRAD_OPERANDS_H
#define TELEGRAD_OPERANDS_H

#include "slots.h"

/* Whether the attributes of an object are the slots of ``Tensor``; 0 also for an error. */
static int
is_usual(PyObject *tensor)
{
    PyObject *type = (PyObject *)Py_TYPE(tensor);
    if (type == the_Tensor || type == usual_type) return 1;
    if (!PyType_IsSubtype(Py_TYPE(tensor), (PyTypeObject *)the_Tensor)) return 0;
    PyObject *known = PyDict_GetItemWithError(usual_types, type);
    if (known == Py_True) usual_type = type; /* which the dict keeps */
    if (known != NULL) return known == Py_True;
    if (PyErr_Occurred() || PyDict_GET_SIZE(usual_types) >= 64) return 0;
    known = PyObject_CallOneArg(the_is_usual, type);
    int usual = known != NULL && PyDict_SetItem(usual_types, type, known) == 0 && known == Py_True;
    Py_XDECREF(known);
    return usual;
}

/* Whether a tensor is what it was when it was last looked at: nothing that shares its memory was written into. */
static int
is_current(PyObject *tensor)
{
    PyObject *aliases = SLOT(tensor, Tensor___aliases), *seen = SLOT(tensor, Tensor___seen);
    if (aliases == Py_None) return 1;
    PyObject *version = aliases != NULL && IS(aliases, Aliases) ? SLOT(aliases, Aliases__version) : NULL;
    if (version == NULL || seen == NULL || !PyLong_CheckExact(version) || !PyLong_CheckExact(seen)) return 0;
    return version == seen || PyObject_RichCompareBool(version, seen, Py_EQ) == 1;
}

/* The value of a call at a place, which is borrowed; NULL where there is none. */
static PyObject *
value_at(PyObject *values, PyObject *index)
{
    Py_ssize_t place = PyLong_CheckExact(index) ? PyLong_AsSsize_t(index) : -1;
    return place < 0 || place >= PyTuple_GET_SIZE(values) ? NULL : PyTuple_GET_ITEM(values, place);
}

/* Whether an object is a list or a tuple, or of a class of tuples that iterates over its items, such as sizes are. */
static int
is_plain_sequence(PyObject *list)
{
    return PyList_CheckExact(list) || (PyTuple_Check(list) && Py_TYPE(list)->tp_iter == PyTuple_Type.tp_iter);
}

/* Whether an attribute is true, or cannot be read. */
static int
has(PyObject *owner, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(owner, name);
    int is_true = value == NULL || PyObject_IsTrue(value);
    Py_XDECREF(value);
    return is_true;
}

#endif
