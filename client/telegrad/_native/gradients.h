/* Gradients that calls of compiled functions change: ``compiler/guarded/gradients.py`` says what their rows are, and does
 * the same where this is not there.
 */

#ifndef TELEGRAD_GRADIENTS_H
#define TELEGRAD_GRADIENTS_H

#include "objects.h"
#include "operands.h"

#define ROW 4 /* a leaf, what its gradient is before, what it is afterwards, and a distance */

/* Whether a tensor is a leaf without hooks. */
static int
is_plain_leaf(PyObject *leaf)
{
    if (!is_usual(leaf)) return 0;
    PyObject *node = SLOT(leaf, Tensor___node);
    return node == Py_None || (node != NULL && IS(node, LeafNode) && SLOT(node, LeafNode__extras) == Py_None);
}

/* Whether a gradient lies so, and the program knows nothing else of it. */
static int
stays(PyObject *gradient, PyObject *meta)
{
    if (SLOT(gradient, Tensor___meta) != meta || SLOT(gradient, Tensor___requires_grad) != Py_False) return 0;
    if (SLOT(gradient, Tensor___node) != Py_None || SLOT(gradient, Tensor___base) != Py_None) return 0;
    return SLOT(gradient, Tensor___aliases) == Py_None && !has(gradient, text__is_inference);
}

static int
is_as_before(PyObject *const *row, PyObject *session)
{
    if (!is_plain_leaf(row[0])) return 0;
    PyObject *gradient = SLOT(row[0], Tensor___grad);
    if (gradient == NULL || gradient == Py_None) return gradient == row[1];
    if (row[1] == Py_None || !IS(gradient, Tensor) || SLOT(gradient, Tensor___session) != session) return 0;
    return row[1] == Py_True ? Py_REFCNT(gradient) == 1 : stays(gradient, row[1]);
}

static int
are_rows(PyObject *const *args, Py_ssize_t count, Py_ssize_t expected)
{
    return count == expected && PyTuple_CheckExact(args[0]) && PyTuple_GET_SIZE(args[0]) % ROW == 0;
}

/* Whether leaves have the gradients that rows say they have before a call of a session. */
static PyObject *
gradients_hold(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!are_rows(args, count, 2)) return PyErr_Format(PyExc_TypeError, "gradients_hold: expected rows and a session");
    int same = 1;
    for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(args[0]); i += ROW)
        same = is_as_before(&PyTuple_GET_ITEM(args[0], i), args[1]);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(same);
}

/* The gradient that a row says a leaf has after a call: a new reference. */
static PyObject *
gradient_after(PyObject *const *row, PyObject *session, long long first)
{
    if (row[2] == Py_None) return Py_NewRef(Py_None);
    long long distance = PyLong_AsLongLong(row[3]);
    PyObject *id = distance < 0 ? NULL : PyLong_FromLongLong(first + distance);
    PyObject *gradient = id == NULL ? NULL : new_tensor(session, id, row[2]);
    Py_XDECREF(id);
    return gradient;
}

/* Give leaves the gradients that rows say they have after a call, whose first number is given. All of them are made
 * before any is given, so that an error leaves everything as it was.
 */
static PyObject *
change_gradients(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!are_rows(args, count, 3))
        return PyErr_Format(PyExc_TypeError, "change_gradients: expected rows, a session and a number");
    Py_ssize_t size = PyTuple_GET_SIZE(args[0]);
    long long first = PyLong_AsLongLong(args[2]);
    PyObject *made = PyErr_Occurred() ? NULL : PyList_New(size / ROW);
    for (Py_ssize_t i = 0; made != NULL && i < size; i += ROW) {
        PyObject *const *row = &PyTuple_GET_ITEM(args[0], i);
        PyObject *gradient = row[2] == Py_False ? Py_NewRef(Py_False) : gradient_after(row, args[1], first);
        if (gradient == NULL) Py_CLEAR(made);
        else PyList_SET_ITEM(made, i / ROW, gradient);
    }
    for (Py_ssize_t i = 0; made != NULL && i < size; i += ROW) {
        PyObject *const *row = &PyTuple_GET_ITEM(args[0], i);
        PyObject *gradient = PyList_GET_ITEM(made, i / ROW), *former = SLOT(row[0], Tensor___grad);
        if (gradient == Py_False) continue;
        if (row[1] == Py_True) Py_SETREF(SLOT(former, Tensor___id), Py_NewRef(zero)); /* the run frees it */
        SLOT(row[0], Tensor___grad) = Py_NewRef(gradient);
        Py_XDECREF(former);
    }
    Py_XDECREF(made);
    return made == NULL ? NULL : Py_NewRef(Py_None);
}

#endif
