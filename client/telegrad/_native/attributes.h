/* Attributes of objects that keep theirs in a dictionary: what is unusual about one is no error. */

#ifndef TELEGRAD_ATTRIBUTES_H
#define TELEGRAD_ATTRIBUTES_H

#include "slots.h"

/* An attribute: a new reference, and NULL without an exception where there is none. */
static PyObject *
attribute(PyObject *object, PyObject *name)
{
    PyObject *value = object == NULL ? NULL : PyObject_GetAttr(object, name);
    if (value == NULL) PyErr_Clear();
    return value;
}

/* Whether an attribute is this very object. */
static int
is_attribute(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = attribute(object, name);
    Py_XDECREF(value);
    return value != NULL && value == wanted;
}

/* Whether an attribute is a container without elements. */
static int
is_empty(PyObject *object, PyObject *name)
{
    PyObject *value = attribute(object, name);
    Py_ssize_t size = value == NULL ? -1 : PyObject_Size(value);
    Py_XDECREF(value);
    if (size < 0) PyErr_Clear();
    return size == 0;
}

/* Take a whole number of moderate size; 0 for anything else. */
static int
take_number(PyObject *value, long long *number)
{
    int overflow = 1;
    *number = 0;
    if (value != NULL && PyLong_CheckExact(value)) *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && *number < 1LL << 52 && *number > -(1LL << 52);
}

static int
take_number_of(PyObject *object, PyObject *name, long long *number)
{
    PyObject *value = attribute(object, name);
    int taken = take_number(value, number);
    Py_XDECREF(value);
    return taken;
}

/* Set an attribute to a new reference; -1 for an error. */
static int
set_attribute(PyObject *object, PyObject *name, PyObject *value)
{
    int error = value == NULL ? -1 : PyObject_SetAttr(object, name, value);
    Py_XDECREF(value);
    return error;
}

static int
set_number(PyObject *object, PyObject *name, long long number)
{
    return set_attribute(object, name, PyLong_FromLongLong(number));
}

/* Call a method without arguments that returns nothing of interest; -1 for an error. */
static int
call_method(PyObject *object, PyObject *name)
{
    PyObject *done = PyObject_CallMethodNoArgs(object, name);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Take a lock of Python if no other thread has it; 0 where one has. */
static int
take_lock(PyObject *lock)
{
    PyObject *taken = lock == NULL ? NULL : PyObject_CallMethodOneArg(lock, text_acquire, Py_False);
    Py_XDECREF(taken);
    if (taken == NULL) PyErr_Clear();
    return taken == Py_True;
}

#endif
