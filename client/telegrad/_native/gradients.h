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

/* The gradients of leaves, by row, None where there is none; None if leaves have not those that rows say they have before
 * a call of a session. They are referred to from the moment on at which they are looked at.
 */
static PyObject *
gradients_hold(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!are_rows(args, count, 2)) return PyErr_Format(PyExc_TypeError, "gradients_hold: expected rows and a session");
    PyObject *found = PyList_New(PyTuple_GET_SIZE(args[0]) / ROW);
    for (Py_ssize_t i = 0; found != NULL && i < PyTuple_GET_SIZE(args[0]); i += ROW) {
        PyObject *const *row = &PyTuple_GET_ITEM(args[0], i);
        if (is_as_before(row, args[1])) PyList_SET_ITEM(found, i / ROW, Py_NewRef(SLOT(row[0], Tensor___grad)));
        else Py_CLEAR(found);
    }
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* The gradient that a row says a leaf has after a call: a new reference. */
static PyObject *
gradient_after(PyObject *const *row, PyObject *session, PyObject *first)
{
    if (row[2] == Py_None || row[2] == Py_False) return Py_NewRef(row[2]);
    PyObject *id = PyNumber_Add(first, row[3]), *gradient = id == NULL ? NULL : new_tensor(session, id, row[2]);
    Py_XDECREF(id);
    return gradient;
}

/* Give a leaf the gradient that a row says it has after a call, and return the one before: takes one, gives the other. The
 * run frees the one that was found before the call where it dies, whatever the program has done to the leaf meanwhile.
 */
static PyObject *
exchange(PyObject *const *row, PyObject *found, PyObject *gradient)
{
    PyObject *former = SLOT(row[0], Tensor___grad);
    if (row[1] == Py_True && IS(found, Tensor)) Py_XSETREF(SLOT(found, Tensor___id), Py_NewRef(zero));
    SLOT(row[0], Tensor___grad) = gradient;
    return former == NULL ? Py_NewRef(Py_None) : former;
}

/* Give leaves the gradients that rows say they have after a call, whose first number is given. All of them are made
 * before any is given, so that an error leaves everything as it was; and all are given before any that was there dies,
 * since whoever is told of that may look at the others, or change them.
 */
static PyObject *
change_gradients(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size = are_rows(args, count, 4) ? PyTuple_GET_SIZE(args[0]) : -1;
    if (size < 0 || !PyList_CheckExact(args[3]) || PyList_GET_SIZE(args[3]) != size / ROW)
        return PyErr_Format(PyExc_TypeError, "change_gradients: expected rows, a session, a number and a gradient for each row");
    PyObject *made = PyList_New(size / ROW);
    for (Py_ssize_t i = 0; made != NULL && i < size; i += ROW) {
        PyObject *gradient = gradient_after(&PyTuple_GET_ITEM(args[0], i), args[1], args[2]);
        if (gradient == NULL) Py_CLEAR(made);
        else PyList_SET_ITEM(made, i / ROW, gradient);
    }
    for (Py_ssize_t i = 0; made != NULL && i < size; i += ROW) {
        PyObject *gradient = PyList_GET_ITEM(made, i / ROW);
        PyObject *found = PyList_GET_ITEM(args[3], i / ROW);
        if (gradient != Py_False) PyList_SET_ITEM(made, i / ROW, exchange(&PyTuple_GET_ITEM(args[0], i), found, gradient));
    }
    Py_XDECREF(made);
    return made == NULL ? NULL : Py_NewRef(Py_None);
}

#endif
