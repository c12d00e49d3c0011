/* What a session looks at in a batch before it sends it. */

#ifndef TELEGRAD_BATCHES_H
#define TELEGRAD_BATCHES_H

#include "slots.h"

/* Note that calls of a line begin at a place; -1 for an error. */
static int
note_begin(PyObject *places, PyObject *line, Py_ssize_t place)
{
    PyObject *number = PyLong_FromSsize_t(place), *begins;
    int error = number == NULL ? -1 : 0;
    if (error == 0 && (begins = PyDict_GetItemWithError(places, line)) != NULL) error = PyList_Append(begins, number);
    else if (error == 0 && !PyErr_Occurred()) {
        begins = PyList_New(1);
        if (begins != NULL) PyList_SET_ITEM(begins, 0, Py_NewRef(number));
        error = begins == NULL ? -1 : PyDict_SetItem(places, line, begins);
        Py_XDECREF(begins);
    } else error = -1;
    Py_XDECREF(number);
    return error;
}

/* Whether two lines are the same; -1 for an error. A small number is most often the same object. */
static int
is_same_line(PyObject *one, PyObject *other)
{
    return one == other || PyObject_RichCompareBool(one, other, Py_EQ);
}

/* ``places_of`` in ``_session/sending/batch_ends.py``, which is the one to read. */
static PyObject *
places_of(PyObject *module, PyObject *batch)
{
    PyObject *places = PyDict_New(), *line = NULL; /* that of the call before, borrowed of a call in the batch */
    int is_known = 1, error = !PyList_CheckExact(batch); /* whether a line that begins does so here */
    if (error) PyErr_SetString(PyExc_TypeError, "places_of: expected a list");
    for (Py_ssize_t place = 0; places != NULL && !error && place < PyList_GET_SIZE(batch); place++) {
        PyObject *call = PyList_GET_ITEM(batch, place), *site;
        if (PyTuple_CheckExact(call) && PyTuple_GET_SIZE(call) == 2) call = PyTuple_GET_ITEM(call, 1);
        if (!IS(call, Call) || (site = SLOT(call, Call__site)) == NULL) {
            int is_leavable = PySet_Contains(the_leavable, (PyObject *)Py_TYPE(call));
            error = is_leavable < 0;
            if (!is_leavable) PyDict_Clear(places);
            line = NULL;
            is_known = 0;
            continue;
        }
        int same = line == NULL ? 0 : is_same_line(line, site);
        if (same == 0 && is_known) error = note_begin(places, site, place) < 0;
        error = error || same < 0;
        line = site;
        is_known = 1;
    }
    if (error) Py_CLEAR(places);
    return places;
}

#endif
