/* ``Pace`` of ``telegrad_protocol/pace.py``, which is the text to read: what a submission and a completion change. */

#ifndef TELEGRAD_PACE_H
#define TELEGRAD_PACE_H

#include "attributes.h"

/* What is in the slots of a pace. */
typedef struct {
    long long submitted, completed, limit, measured_from;
    double delay, seconds, learnt_at, count, taken;
    PyObject *submissions; /* borrowed */
} Pace;

static int
take_seconds(PyObject *value, double *seconds)
{
    if (value == NULL || !(PyFloat_CheckExact(value) || PyLong_CheckExact(value))) return 0;
    *seconds = PyFloat_AsDouble(value);
    if (*seconds != -1.0 || !PyErr_Occurred()) return 1;
    PyErr_Clear();
    return 0;
}

/* Read a pace; 0 where anything in it is unusual. */
static int
take_pace(PyObject *pace, Pace *read)
{
    read->submissions = SLOT(pace, Pace___submissions);
    return read->submissions != NULL && IS(read->submissions, deque) &&
           take_number(SLOT(pace, Pace__submitted), &read->submitted) &&
           take_number(SLOT(pace, Pace__completed), &read->completed) &&
           take_number(SLOT(pace, Pace__limit), &read->limit) &&
           take_number(SLOT(pace, Pace___measured_from), &read->measured_from) &&
           take_seconds(SLOT(pace, Pace__delay), &read->delay) &&
           take_seconds(SLOT(pace, Pace__seconds), &read->seconds) &&
           take_seconds(SLOT(pace, Pace___learnt_at), &read->learnt_at) &&
           take_seconds(SLOT(pace, Pace___count), &read->count) && take_seconds(SLOT(pace, Pace___taken), &read->taken);
}

/* Replace what is in a slot by a new reference; -1 for an error. */
static int
put(PyObject *object, Py_ssize_t slot, PyObject *value)
{
    if (value == NULL) return -1;
    Py_XSETREF(SLOT(object, slot), value);
    return 0;
}

/* The first submission that is kept: 0 where there is none, or it is unusual. */
static int
first_submission(PyObject *submissions, long long *last, double *at)
{
    PyObject *first = Py_SIZE(submissions) ? PySequence_GetItem(submissions, 0) : NULL;
    int taken = first != NULL && PyTuple_CheckExact(first) && PyTuple_GET_SIZE(first) == 2 &&
                take_number(PyTuple_GET_ITEM(first, 0), last) && take_seconds(PyTuple_GET_ITEM(first, 1), at);
    Py_XDECREF(first);
    if (first == NULL) PyErr_Clear();
    return taken;
}

static void
drop_submission(PyObject *submissions)
{
    PyObject *first = PyObject_Vectorcall(popleft, &submissions, 1, NULL);
    if (first == NULL) PyErr_Clear();
    Py_XDECREF(first);
}

/* ``Pace._measure``. */
static void
measure(Pace *pace, long long before, double now, double *count, double *taken)
{
    long long completed = pace->completed, first = before, last;
    double at;
    *count = (double)(completed - before);
    *taken = now - pace->learnt_at;
    if (*taken < rules.least) *taken = rules.least;
    while (2 * (completed - first) >= completed - before && first_submission(pace->submissions, &last, &at)) {
        double begun = at + pace->delay, later = (double)(completed - first);
        double since = now - (begun > pace->learnt_at ? begun : pace->learnt_at);
        if (since < rules.least) since = rules.least;
        if (later * *taken > *count * since) {
            *count = later;
            *taken = since;
        }
        if (last > completed) break;
        drop_submission(pace->submissions);
        first = last;
    }
    while (first_submission(pace->submissions, &last, &at) && last <= completed) drop_submission(pace->submissions);
}

/* ``Pace.complete`` where numbers are usual: 1 if done, 0 if nothing was, -1 for an error. */
static int
complete_usually(PyObject *object, long long completed, double now)
{
    Pace pace;
    if (!take_pace(object, &pace) || pace.limit > 1LL << 48) return 0;
    long long before = pace.completed;
    pace.completed = completed > pace.submitted ? pace.submitted : completed;
    if (pace.completed <= before) return 1;
    double count, taken;
    measure(&pace, before, now, &count, &taken);
    if (put(object, Pace__completed, PyLong_FromLongLong(pace.completed)) < 0) return -1;
    if (put(object, Pace___learnt_at, PyFloat_FromDouble(now)) < 0) return -1;
    if (before < pace.measured_from) return 1;
    double keep = rules.memory / (rules.memory + taken);
    double all = pace.count * keep + count, time = pace.taken * keep + taken;
    double most = rules.growth * ((double)pace.limit > count ? (double)pace.limit : count);
    double measured = all / time * (pace.seconds + pace.delay);
    long long limit = (long long)(measured < most ? measured : most);
    if (put(object, Pace___count, PyFloat_FromDouble(all)) < 0) return -1;
    if (put(object, Pace___taken, PyFloat_FromDouble(time)) < 0) return -1;
    return put(object, Pace__limit, PyLong_FromLongLong(limit < rules.fewest ? rules.fewest : limit)) < 0 ? -1 : 1;
}

static PyObject *
pace_complete(PyObject *pace, PyObject *const *args, Py_ssize_t count)
{
    long long completed;
    double now;
    int done = 0;
    if (count == 2 && take_number(args[0], &completed) && take_seconds(args[1], &now))
        done = complete_usually(pace, completed, now);
    if (done) return done < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *all[] = {pace, count > 0 ? args[0] : NULL, count > 1 ? args[1] : NULL};
    return PyObject_Vectorcall(the_pace_complete, all, count > 2 ? 0 : count + 1, NULL);
}

/* ``Pace.submit`` where numbers are usual; as ``complete_usually``. */
static int
submit_usually(PyObject *object, long long submitted, PyObject *now)
{
    Pace pace;
    if (!take_pace(object, &pace)) return 0;
    if (submitted > pace.submitted && Py_SIZE(pace.submissions) < rules.submissions) {
        PyObject *both[] = {pace.submissions, Py_BuildValue("(LO)", submitted, now)};
        PyObject *done = both[1] == NULL ? NULL : PyObject_Vectorcall(append, both, 2, NULL);
        Py_XDECREF(both[1]);
        if (done == NULL) return -1;
        Py_DECREF(done);
    }
    return put(object, Pace__submitted, PyLong_FromLongLong(submitted)) < 0 ? -1 : 1;
}

/* ``Ahead.room`` where how much may be ahead is bounded. */
static long long
room(Pace *pace, long long most)
{
    long long portion = pace->limit / 2, left = pace->limit - pace->submitted + pace->completed;
    if (pace->count != 0.0)
        portion = (long long)((double)pace->limit * pace->seconds / (pace->seconds + pace->delay) / 4);
    if (portion < 1) portion = 1;
    if (portion < most) most = portion;
    return most <= left ? most : left > 0 ? left : 0;
}

static PyMethodDef completer = {
    "complete", (PyCFunction)(void (*)(void))pace_complete, METH_FASTCALL, "Do what ``Pace.complete`` does."};

#endif
