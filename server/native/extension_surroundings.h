/* What stands around a call of an extension's function: launches that wait, modes, and a note of what runs. */

#ifndef TELEGRAD_EXTENSION_SURROUNDINGS_H
#define TELEGRAD_EXTENSION_SURROUNDINGS_H

#include "launches.h"
#include "runs.h"

#define SURROUNDING_SLOTS(X) X(LaunchQueue, policy) X(Context, _grad_enabled) X(Context, inference)
#define SURROUNDING_OBJECTS(X) X(notes) X(dtypes)
#define SURROUNDING_TEXTS(X) X(enter_modes) X(_modes) X(_default) X(library) X(name) X(rename) X(memory)

SURROUNDING_SLOTS(DECLARE_SLOT)
SURROUNDING_OBJECTS(DECLARE_OBJECT)
SURROUNDING_TEXTS(DECLARE_TEXT)

static int
take_surroundings(PyObject *given)
{
    PyObject *value;
    SURROUNDING_OBJECTS(TAKE)
    SURROUNDING_SLOTS(FIND)
    SURROUNDING_TEXTS(INTERN)
    return 0;
}

/* Whether ``LaunchQueue.flush`` would do nothing; -1 for an error. */
static int
nothing_waits(PyObject *queue)
{
    if (queue == Py_None || !is_usual_queue(queue) || PyList_GET_SIZE(SLOT(queue, LaunchQueue__waiting))) return 0;
    PyObject *policy = SLOT(queue, LaunchQueue__policy);
    if (policy == NULL || !IS(policy, ReplayPolicy) || SLOT(policy, ReplayPolicy__cooldown) == NULL) return 0;
    return PyObject_Not(SLOT(policy, ReplayPolicy__cooldown));
}

/* Have the launches of backends made that wait, since the function may launch kernels of its own; -1 for an error. A row has a
 * backend and its queue, or None, from ``first`` on. */
static int
flush_launches(PyObject *rows, Py_ssize_t first)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        int quiet = nothing_waits(PyTuple_GET_ITEM(row, first + 1));
        if (quiet < 0) return -1;
        if (!quiet && done(PyObject_CallMethodNoArgs(PyTuple_GET_ITEM(row, first), text_flush)) < 0) return -1;
    }
    return 0;
}

/* Whether extensions were told the modes last that are current; -1 for an error. */
static int
knows_modes(PyObject *runtime)
{
    PyObject *context = PyDict_GetItemWithError(the_context, text_current), *modes = PyObject_GetAttr(runtime, text__modes);
    if (modes == NULL) return -1;
    int knows = context != NULL && IS(context, Context) && PyTuple_CheckExact(modes) && PyTuple_GET_SIZE(modes) == 3 &&
                PyTuple_GET_ITEM(modes, 0) == SLOT(context, Context___grad_enabled) &&
                PyTuple_GET_ITEM(modes, 1) == SLOT(context, Context__inference) &&
                PyTuple_GET_ITEM(modes, 2) == PyDict_GetItemWithError(the_dtypes, text__default);
    Py_DECREF(modes);
    return PyErr_Occurred() ? -1 : knows;
}

/* ``Runtime.enter_modes`` for a call on the first device; -1 for an error. */
static int
enter_modes(PyObject *runtime, int64_t *device)
{
    int knows = knows_modes(runtime);
    if (knows < 0) return -1;
    *device = 0;
    return knows ? 0 : done(PyObject_CallMethodOneArg(runtime, text_enter_modes, zero));
}

/* Note that a function runs, for whoever finds this process dead; -1 for an error. */
static int
note_running(PyObject *name)
{
    PyObject *noted = PyObject_GetAttr(the_notes, text_name), *memory = NULL;
    if (noted == NULL || (noted != name && done(PyObject_CallMethodOneArg(the_notes, text_rename, name)) < 0)) {
        Py_XDECREF(noted);
        return -1;
    }
    Py_DECREF(noted);
    memory = PyObject_GetAttr(the_notes, text_memory);
    int failed = memory == NULL || PyObject_SetItem(memory, zero, one) < 0;
    Py_XDECREF(memory);
    return failed ? -1 : 0;
}

/* Note that it has ended, however it has; -1 for an error. What was raised before stays what is raised. */
static int
note_end(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *memory = PyObject_GetAttr(the_notes, text_memory);
    int failed = memory == NULL || PyObject_SetItem(memory, zero, zero) < 0;
    Py_XDECREF(memory);
    if (type != NULL) PyErr_Restore(type, value, trace);
    return failed ? -1 : 0;
}

#endif
