/* What a call of a compiled function is given, compared with what another one was: ``compiler/guarded/arguments.py`` does
 * the same, and also where something is given that is neither a tensor nor a constant.
 */

#ifndef TELEGRAD_ARGUMENTS_H
#define TELEGRAD_ARGUMENTS_H

#include "conditions.h"

#define OF_TENSOR 6 /* its class, how it lies, whether it requires a gradient and was made in inference mode, its session,
                       and a place */

/* Whether a tensor is as another one was, among those that are before it in a list. */
static int
is_like(PyObject *tensor, PyObject *other, PyObject *before)
{
    if ((PyObject *)Py_TYPE(tensor) != PyTuple_GET_ITEM(other, 0) || !is_usual(tensor) || !is_current(tensor)) return 0;
    if (SLOT(tensor, Tensor___meta) != PyTuple_GET_ITEM(other, 1)) return 0;
    if (SLOT(tensor, Tensor___requires_grad) != PyTuple_GET_ITEM(other, 2)) return 0;
    if (SLOT(tensor, Tensor___session) != PyTuple_GET_ITEM(other, 4)) return 0;
    PyObject *is_inference = PyObject_GetAttr(tensor, text__is_inference);
    Py_XDECREF(is_inference); /* True and False are there anyway */
    if (is_inference != PyTuple_GET_ITEM(other, 3)) return 0;
    Py_ssize_t place = 0, size = PyList_GET_SIZE(before);
    while (place < size && PyList_GET_ITEM(before, place) != tensor) place++;
    return place == PyLong_AsSsize_t(PyTuple_GET_ITEM(other, 5));
}

/* Compare an argument, and note it if it is a tensor; -1 for an error. */
static int
take_argument(PyObject *value, PyObject *other, PyObject *tensors)
{
    if (!PyTuple_CheckExact(other)) return 0;
    if (PyTuple_GET_SIZE(other) == 1) return is_same(value, PyTuple_GET_ITEM(other, 0));
    int like = PyTuple_GET_SIZE(other) == OF_TENSOR && is_like(value, other, tensors);
    return like ? PyList_Append(tensors, value) == 0 ? 1 : -1 : 0;
}

/* The tensors of a call, as a list, given what another one was given, by which names, and the arguments of this one; None
 * where these are not alike, or that is for Python to say.
 */
static PyObject *
match_arguments(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int usual = count == 4 && PyTuple_CheckExact(args[0]) && PyTuple_CheckExact(args[1]) && PyTuple_CheckExact(args[2]);
    if (!usual || !PyDict_CheckExact(args[3]))
        return PyErr_Format(PyExc_TypeError, "match_arguments: expected three tuples and a dict");
    Py_ssize_t given = PyTuple_GET_SIZE(args[2]), named = PyDict_GET_SIZE(args[3]), place = 0;
    if (given + named != PyTuple_GET_SIZE(args[0]) || named != PyTuple_GET_SIZE(args[1])) Py_RETURN_NONE;
    PyObject *tensors = PyList_New(0), *name, *value;
    int same = tensors == NULL ? -1 : 1;
    for (Py_ssize_t i = 0; same == 1 && i < given; i++)
        same = take_argument(PyTuple_GET_ITEM(args[2], i), PyTuple_GET_ITEM(args[0], i), tensors);
    for (Py_ssize_t i = 0; same == 1 && PyDict_Next(args[3], &place, &name, &value); i++) {
        same = is_same(name, PyTuple_GET_ITEM(args[1], i));
        if (same == 1) same = take_argument(value, PyTuple_GET_ITEM(args[0], given + i), tensors);
    }
    if (same == 1) return tensors;
    Py_XDECREF(tensors);
    if (same < 0 || PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

#endif
