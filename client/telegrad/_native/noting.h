/* What a profile has of calls: when each began and ended, in which thread, what it made and where it was made.
 *
 * A call leaves numbers and references in an array that grows; lists, lines and names are made when the profile ends.
 * While nobody profiles, a call looks at ``notes.is_on`` and does nothing else of this.
 */

#ifndef TELEGRAD_NOTING_H
#define TELEGRAD_NOTING_H

#include "slots.h"
#include <stdint.h>
#include <time.h>

#define DEEPEST 128 /* frames of a stack */
#define FIELDS 6    /* of a call, in what ``noted`` returns */

typedef struct {
    PyObject *pattern, *id, *stack;
    int64_t begin, end;
    unsigned long thread;
} Note;

static struct {
    Note *rows;
    Py_ssize_t count, room, most;
    int is_on, with_stacks;
    PyObject *id_of; /* tells the id of what is no single tensor */
} notes;

/* What ``time.monotonic_ns`` returns. */
static int64_t
monotonic_ns(void)
{
#ifdef __APPLE__
    return (int64_t)clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
#else
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
#endif
}

/* The code objects of the frames that are active and the places in them, in turns, the innermost first. */
static PyObject *
stack_of_caller(void)
{
    PyObject *parts[2 * DEEPEST], *stack = NULL;
    Py_ssize_t count = 0;
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != NULL && count < 2 * DEEPEST) {
        PyObject *place = PyLong_FromLong(PyFrame_GetLasti(frame));
        if (place == NULL) break;
        parts[count++] = (PyObject *)PyFrame_GetCode(frame);
        parts[count++] = place;
        PyFrameObject *outer = PyFrame_GetBack(frame);
        Py_SETREF(frame, outer);
    }
    Py_XDECREF(frame);
    if (!PyErr_Occurred()) stack = PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (stack != NULL) PyTuple_SET_ITEM(stack, i, parts[i]);
        else Py_DECREF(parts[i]);
    }
    return stack;
}

static int
has_room(void)
{
    if (notes.count >= notes.most) return 0;
    if (notes.count < notes.room) return 1;
    Py_ssize_t room = notes.room ? 2 * notes.room : 4096;
    Note *rows = PyMem_Realloc(notes.rows, room * sizeof(Note));
    if (rows == NULL) return 0;
    notes.rows = rows;
    notes.room = room;
    return 1;
}

static PyObject *
id_made_by(PyObject *pattern, PyObject *values, PyObject *result)
{
    PyObject *id = result != NULL && IS(result, Tensor) ? Py_XNewRef(SLOT(result, Tensor___id)) : NULL;
    if (id == NULL)
        id = PyObject_CallFunctionObjArgs(notes.id_of, pattern, values, result == NULL ? Py_None : result, NULL);
    return id;
}

/* Note a call that has ended with a result, or with NULL and an exception, which stays. */
static void
note(PyObject *pattern, PyObject *values, PyObject *result, int64_t begin)
{
    int64_t end = monotonic_ns();
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *id = id_made_by(pattern, values, result), *stack = NULL;
    if (id != NULL) stack = notes.with_stacks ? stack_of_caller() : Py_NewRef(Py_None);
    if (stack != NULL && notes.is_on && has_room()) {
        Note row = {Py_NewRef(pattern), Py_NewRef(id), Py_NewRef(stack), begin, end, PyThread_get_thread_ident()};
        notes.rows[notes.count++] = row;
    }
    Py_XDECREF(id);
    Py_XDECREF(stack);
    PyErr_Clear(); /* a note that cannot be made is missing */
    PyErr_Restore(kind, error, trace);
}

/* Begin to note calls: at most so many, with their stacks or not. Returns whether nobody else notes any. */
static PyObject *
begin_notes(PyObject *module, PyObject *args)
{
    Py_ssize_t most;
    int with_stacks;
    PyObject *tell;
    if (!PyArg_ParseTuple(args, "npO", &most, &with_stacks, &tell)) return NULL;
    if (notes.is_on) Py_RETURN_FALSE;
    notes.most = most;
    notes.with_stacks = with_stacks;
    Py_XSETREF(notes.id_of, Py_NewRef(tell));
    notes.is_on = 1;
    Py_RETURN_TRUE;
}

/* Put the fields of a note into a list from a place on, which takes over what the note holds; -1 for an error. */
static int
unpack(PyObject *list, Py_ssize_t place, Note *row)
{
    PyObject *fields[FIELDS] = {row->pattern, PyLong_FromLongLong(row->begin), PyLong_FromLongLong(row->end),
                                PyLong_FromUnsignedLong(row->thread), row->id, row->stack};
    int error = 0;
    for (int i = 0; i < FIELDS; i++) {
        PyList_SET_ITEM(list, place + i, fields[i]);
        if (fields[i] == NULL) error = -1;
    }
    return error;
}

/* Note no more calls, and return what was noted of each, one field after the other. */
static PyObject *
end_notes(PyObject *module, PyObject *nothing)
{
    Note *rows = notes.rows;
    Py_ssize_t count = notes.count;
    notes.rows = NULL;
    notes.is_on = 0;
    notes.count = notes.room = 0;
    PyObject *list = PyList_New(FIELDS * count);
    int error = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (list != NULL) error |= unpack(list, FIELDS * i, rows + i);
        else {
            Py_DECREF(rows[i].pattern);
            Py_DECREF(rows[i].id);
            Py_DECREF(rows[i].stack);
        }
    }
    PyMem_Free(rows);
    if (error) Py_CLEAR(list);
    return list;
}

#endif
