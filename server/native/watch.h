/* Signs of repetition, as ``cache/watch.py`` looks for them. */

#ifndef TELEGRAD_WATCH_H
#define TELEGRAD_WATCH_H

#include "slots.h"

/* Put an integer into a slot; -1 for an error. */
static int
put_number(PyObject *object, Py_ssize_t slot, Py_ssize_t number)
{
    PyObject *value = PyLong_FromSsize_t(number);
    if (value == NULL) return -1;
    PUT(object, slot, value);
    return 0;
}

/* Whether a streak is as long as is wanted, and begins anew then; -1 for an error. */
static int
is_long_enough(PyObject *watch, Py_ssize_t streak)
{
    Py_ssize_t wanted = number_in(watch, Watch___wanted), least = number_in(watch, Watch___new_before) * wanted;
    if (PyErr_Occurred()) return -1;
    if (streak < wanted || number_in(watch, Watch___new) < least) return 0;
    PyObject *is = PyObject_CallMethodNoArgs(watch, text__spend);
    int long_enough = is == NULL ? -1 : PyObject_IsTrue(is);
    Py_XDECREF(is);
    return long_enough;
}

/* ``Watch.repeats``; -1 for an error. */
static int
repeats(PyObject *watch, PyObject *number)
{
    Py_ssize_t left = number_in(watch, Watch___left) - 1;
    if (PyErr_Occurred() || put_number(watch, Watch___left, left) < 0) return -1;
    if (left == 0 && done(PyObject_CallMethodNoArgs(watch, text__age)) < 0) return -1;
    int before = PySet_Contains(SLOT(watch, Watch___before), number);
    if (before < 0) return -1;
    if (before) {
        Py_ssize_t streak = number_in(watch, Watch___streak) + 1;
        return put_number(watch, Watch___streak, streak) < 0 ? -1 : is_long_enough(watch, streak);
    }
    int lately = PySet_Contains(SLOT(watch, Watch___lately), number);
    if (lately) return lately < 0 ? -1 : 0;
    if (PySet_Add(SLOT(watch, Watch___lately), number) < 0) return -1;
    PUT_SAME(watch, Watch___streak, zero);
    return add_to(watch, Watch___new, one);
}

/* ``Signs.note``, with the hash of what a session holds; -1 for an error. */
static int
note_free(PyObject *signs, PyObject *held, PyObject *totals, PyObject *pointer)
{
    PyObject *both = PyTuple_Pack(2, totals, pointer);
    Py_hash_t hash = both == NULL ? -1 : PyObject_Hash(both);
    Py_XDECREF(both);
    PyObject *number = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(hash);
    int in_place = number == NULL ? -1 : repeats(SLOT(signs, Signs___in_place), number);
    Py_XDECREF(number);
    int of_session = in_place < 0 ? -1 : repeats(SLOT(signs, Signs___of_session), held);
    return of_session < 0 ? -1 : of_session || in_place;
}

#endif
