/* Launches that wait for each other, as the engine's ``device/launch_queue.py`` has them. */

#ifndef TELEGRAD_LAUNCHES_H
#define TELEGRAD_LAUNCHES_H

#include "slots.h"

#define LAUNCH_CLASSES(X) X(LaunchQueue)
#define LAUNCH_SLOTS(X)                                                                                                \
    X(LaunchQueue, full) X(LaunchQueue, is_open) X(LaunchQueue, may_wait) X(LaunchQueue, waiting)
#define LAUNCH_OBJECTS(X) X(most_waiting)
#define LAUNCH_TEXTS(X) X(flush) X(_make)

LAUNCH_SLOTS(DECLARE_SLOT)
LAUNCH_CLASSES(DECLARE_OBJECT)
LAUNCH_OBJECTS(DECLARE_OBJECT)
LAUNCH_TEXTS(DECLARE_TEXT)
static Py_ssize_t most_waiting;

static int
take_launches(PyObject *given)
{
    PyObject *value;
    LAUNCH_CLASSES(TAKE)
    LAUNCH_OBJECTS(TAKE)
    LAUNCH_SLOTS(FIND)
    LAUNCH_TEXTS(INTERN)
    most_waiting = PyLong_AsSsize_t(the_most_waiting);
    return PyErr_Occurred() ? -1 : 0;
}

/* Whether something is a queue whose launches C can let wait. */
static int
is_usual_queue(PyObject *queue)
{
    return PyObject_TypeCheck(queue, (PyTypeObject *)the_LaunchQueue) && SLOT(queue, LaunchQueue__full) != NULL &&
           SLOT(queue, LaunchQueue__is_open) != NULL && SLOT(queue, LaunchQueue__may_wait) != NULL &&
           SLOT(queue, LaunchQueue__waiting) != NULL && PyList_CheckExact(SLOT(queue, LaunchQueue__waiting));
}

/* Make the launches that wait where there are enough of them, and let twice as many wait until the next flush; -1 for an
error. */
static int
make_if_full(PyObject *queue)
{
    Py_ssize_t full = number_in(queue, LaunchQueue__full);
    if (full < 0 && PyErr_Occurred()) return -1;
    if (PyList_GET_SIZE(SLOT(queue, LaunchQueue__waiting)) < full) return 0;
    PyObject *doubled = PyLong_FromSsize_t(2 * full < most_waiting ? 2 * full : most_waiting);
    if (doubled == NULL) return -1;
    PUT(queue, LaunchQueue__full, doubled);
    return done(PyObject_CallMethodNoArgs(queue, text__make));
}

/* Append a launch to those that wait: what performs it, the stream, and what it is given. */
static PyObject *
wait_in_queue(PyObject *queue, PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    PyObject *waiting = PyTuple_New(1 + count);
    if (waiting == NULL) return NULL;
    PyTuple_SET_ITEM(waiting, 0, Py_NewRef(self));
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(waiting, 1 + i, Py_NewRef(given[i]));
    return none_unless(append_new(SLOT(queue, LaunchQueue__waiting), waiting));
}

/* What ``LaunchQueue.deferring`` returns: ``bound`` has the queue and the work, whose launches look at ``is_open``. */
static PyObject *
call_deferred(PyObject *bound, PyObject *const *both, Py_ssize_t count)
{
    PyObject *queue = PyTuple_GET_ITEM(bound, 0), *work = PyTuple_GET_ITEM(bound, 1);
    if (SLOT(queue, LaunchQueue__may_wait) != Py_True) {
        if (PyList_GET_SIZE(SLOT(queue, LaunchQueue__waiting)) && done(PyObject_CallMethodNoArgs(queue, text_flush)) < 0)
            return NULL;
        return none_unless(done(PyObject_Vectorcall(work, both, count, NULL)));
    }
    PyObject *before = Py_NewRef(SLOT(queue, LaunchQueue__is_open));
    PUT_SAME(queue, LaunchQueue__is_open, Py_True);
    int failed = done(PyObject_Vectorcall(work, both, count, NULL));
    PUT(queue, LaunchQueue__is_open, before);
    return none_unless(failed < 0 ? failed : make_if_full(queue));
}

static PyMethodDef deferred_method = {
    "deferred", (PyCFunction)(void (*)(void))call_deferred, METH_FASTCALL, "Do work whose launches wait where they may.",
};

static PyObject *
bound_to_queue(PyObject *module, PyObject *bound)
{
    (void)module;
    if (the_LaunchQueue == NULL || !PyTuple_CheckExact(bound) || PyTuple_GET_SIZE(bound) != 2 ||
        !is_usual_queue(PyTuple_GET_ITEM(bound, 0))) {
        PyErr_SetString(PyExc_TypeError, "bound_to_queue: expected a queue and work, after prepare_launches");
        return NULL;
    }
    return PyCFunction_New(&deferred_method, bound);
}

static PyObject *
prepare_launches(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || no_arguments == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_launches: expected a dict, after prepare");
        return NULL;
    }
    return none_unless(take_launches(given));
}

#endif
