/* States of allocators whose calls are remembered: how they are named, entered and told, as ``cache/recall.py`` does. */

#ifndef TELEGRAD_STATES_H
#define TELEGRAD_STATES_H

#include "bins.h"
#include "watch.h"

static PyObject *call_allocate(PyObject *recall, PyObject *const *all, Py_ssize_t count, PyObject *names);
static PyObject *call_free(PyObject *recall, PyObject *block);
static PyObject *call_allocate_anew(PyObject *recall, PyObject *const *all, Py_ssize_t count);
static PyObject *call_free_anew(PyObject *recall, PyObject *block);
static PyObject *call_free_in_cooldown(PyObject *recall, PyObject *block);
static PyObject *call_allocate_from_bins(PyObject *bins, PyObject *const *all, Py_ssize_t count, PyObject *names);
static PyObject *call_free_to_bins(PyObject *bins, PyObject *block);

/* Whether something is a function of this module that is bound to an object; then the object is told. */
static int
is_own(PyObject *function, PyCFunction of_module, PyObject **bound_to)
{
    if (!PyCFunction_CheckExact(function) || PyCFunction_GET_FUNCTION(function) != of_module) return 0;
    *bound_to = PyCFunction_GET_SELF(function);
    return 1;
}

/* What the layer below ``Recall`` does, without a detour through the interpreter where that is this module's. */
static PyObject *
allocate_in_layer(PyObject *recall, PyObject *nbytes, PyObject *stream, PyObject *owner)
{
    PyObject *function = SLOT(recall, Recall___allocate_below), *bins, *all[] = {nbytes, stream, owner};
    if (is_own(function, (PyCFunction)(void (*)(void))call_allocate_from_bins, &bins))
        return allocate_from_bins(bins, nbytes, stream, owner);
    return PyObject_Vectorcall(function, all, 3, NULL);
}

static int
free_in_layer(PyObject *recall, PyObject *block)
{
    PyObject *function = SLOT(recall, Recall___free_below), *bins;
    if (is_own(function, call_free_to_bins, &bins)) return free_to_bins(bins, block);
    return done(PyObject_CallOneArg(function, block));
}

/* ``forget`` where segments came or went, or memory changed hands; -1 for an error. */
static int
forget_what_changed(PyObject *recall)
{
    int same = is_equal(SLOT(SLOT(recall, Recall___heap), Heap__generation), SLOT(recall, Recall___changes));
    return same != 0 ? same - 1 : done(PyObject_CallMethodNoArgs(recall, text_forget));
}

/* Whether calls that were only logged have to be carried out first. */
static int
has_deferred(PyObject *recall)
{
    return PyList_GET_SIZE(SLOT(recall, Recall__log)) || PySet_GET_SIZE(SLOT(recall, Recall___moved));
}

/* ``_count_miss``; -1 for an error. */
static int
count_miss(PyObject *recall)
{
    PyObject *left = SLOT(recall, Recall___left);
    int last = is_equal(left, one);
    if (last != 0) return last < 0 ? -1 : done(PyObject_CallMethodNoArgs(recall, text__count_miss));
    left = PyNumber_Subtract(left, one);
    if (left == NULL) return -1;
    PUT(recall, Recall___left, left);
    return 0;
}

/* Enter a state that is new, of which only the name is kept; 0 where it is known or nothing may be noted, -1 for an
error. Takes the name. */
static int
enter_new_state(PyObject *recall, PyObject *name)
{
    PyObject *states = SLOT(recall, Recall___states);
    if (name == NULL) return -1;
    Py_ssize_t before = PyDict_GET_SIZE(states);
    int known = SLOT(recall, Recall___is_bypassed) != Py_False;
    if (!known) known = PyDict_SetDefault(states, name, the_seen) == NULL ? -1 : PyDict_GET_SIZE(states) == before;
    if (known == 0) {
        PUT_SAME(recall, Recall___name, name);
        PUT_SAME(recall, Recall__state, the_unknown);
        if (count_miss(recall) < 0) known = -1;
    }
    Py_DECREF(name);
    return known < 0 ? -1 : !known;
}

/* The key of the piece of memory that a block is: a new reference; NULL for an error. */
static PyObject *
key_of(PyObject *pieces, PyObject *block, PyObject *nbytes, PyObject *owner)
{
    PyObject *piece = PyTuple_Pack(4, SLOT(block, Block__pointer), SLOT(block, Block__size), nbytes, owner);
    if (piece == NULL) return NULL;
    PyObject *key = Py_XNewRef(PyDict_GetItemWithError(SLOT(pieces, Pieces__table), piece));
    if (key != NULL && IS(key, Block)) Py_SETREF(key, Py_NewRef(SLOT(key, Block__key)));
    else if (key != NULL && !PyLong_CheckExact(key)) Py_SETREF(key, PyObject_CallMethodObjArgs(pieces, text_name, block, piece, NULL));
    else if (key == NULL && !PyErr_Occurred()) {
        key = PyObject_CallNoArgs(SLOT(pieces, Pieces__new_key));
        if (key != NULL && PyDict_SetItem(SLOT(pieces, Pieces__table), piece, key) < 0) Py_CLEAR(key);
    }
    Py_DECREF(piece);
    return key;
}

/* Note the state that an allocation has led to; -1 for an error, and 1 where Python is to link it with the one before. */
static int
note_allocation(PyObject *recall, PyObject *block, PyObject *nbytes, PyObject *owner)
{
    if (!PyObject_TypeCheck(block, (PyTypeObject *)the_Block)) {
        PyErr_Format(PyExc_TypeError, "allocator: expected a block from the layer below, got %R", block);
        return -1;
    }
    if (forget_what_changed(recall) < 0) return -1;
    PyObject *key = key_of(SLOT(recall, Recall___pieces), block, nbytes, owner);
    if (key == NULL) return -1;
    PUT(block, Block__key, key);
    PUT_SAME(block, Block__is_stable, Py_False);
    int entered = enter_new_state(recall, PyNumber_Xor(SLOT(recall, Recall___name), key));
    return entered < 0 ? -1 : !entered;
}

/* ``_enter_state``; -1 for an error. */
static int
enter_state(PyObject *recall, PyObject *name)
{
    PyObject *states = SLOT(recall, Recall___states);
    PUT_SAME(recall, Recall___name, name);
    PUT_SAME(recall, Recall__state, the_unknown);
    if (SLOT(recall, Recall___is_bypassed) != Py_False || SLOT(recall, Recall___is_cooling) != Py_False) return 0;
    PyObject *state = PyDict_GetItemWithError(states, name);
    if (state == NULL) {
        if (PyErr_Occurred() || PyDict_SetItem(states, name, the_seen) < 0) return -1;
        return count_miss(recall);
    }
    state = state == the_seen ? PyDict_New() : Py_NewRef(state);
    if (state == NULL || PyDict_SetItem(states, name, state) < 0) {
        Py_XDECREF(state);
        return -1;
    }
    PUT(recall, Recall__state, state);
    return 0;
}

/* Leave an object out of the garbage collector's walks. What is remembered is in circles that ``forget`` takes apart, and so much
that the collector would look through it again and again while a program is learnt. */
static void
leave_out(PyObject *object)
{
    if (PyObject_GC_IsTracked(object)) PyObject_GC_UnTrack(object);
}

/* Remember a call from a state, which leads to the present one of this name; -1 for an error. The first one from a state
is no miss: that the state came back is a sign, and there are no more such calls than states. */
static int
remember_call(PyObject *recall, PyObject *state, PyObject *key, PyObject *block, PyObject *takes, PyObject *name, PyObject *before)
{
    PyObject *account = PyObject_GetItem(SLOT(recall, Recall___accounts), SLOT(block, Block__owner));
    PyObject *ledger = SLOT(recall, Recall___ledger);
    PyObject *resets = account == NULL ? NULL : PyNumber_Add(SLOT(ledger, Ledger__resets), SLOT(account, Ledger__resets));
    PyObject *step = resets == NULL ? NULL : PyBaseObject_Type.tp_new((PyTypeObject *)the_Step, no_arguments, NULL);
    if (step == NULL) {
        Py_XDECREF(account);
        Py_XDECREF(resets);
        return -1;
    }
    SLOT(step, Step__block) = Py_NewRef(block);
    SLOT(step, Step__takes) = Py_NewRef(takes);
    SLOT(step, Step__account) = account;
    SLOT(step, Step__account_now) = Py_NewRef(SLOT(account, Ledger__now));
    SLOT(step, Step__after) = Py_NewRef(SLOT(recall, Recall__state));
    SLOT(step, Step__name) = Py_NewRef(name);
    SLOT(step, Step__before) = Py_NewRef(before);
    SLOT(step, Step__now) = Py_NewRef(SLOT(ledger, Ledger__now));
    SLOT(step, Step__resets) = resets;
    SLOT(step, Step__amounts) = Py_NewRef(Py_None);
    int failed = PyDict_SetItem(state, key, step);
    leave_out(step);
    leave_out(state);
    if (PyTuple_CheckExact(key)) leave_out(key); /* of numbers */
    Py_DECREF(step);
    return failed < 0 ? -1 : PyDict_GET_SIZE(state) > 1 ? count_miss(recall) : 0;
}

#endif
