/* Calls whose outcome is known, and states that are new, as ``cache/recall.py`` answers the ones and names the others. */

#ifndef TELEGRAD_RECALL_H
#define TELEGRAD_RECALL_H

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
    int known = SLOT(recall, Recall___is_bypassed) != Py_False ? 1 : PyDict_Contains(states, name);
    if (known == 0 && PyDict_SetItem(states, name, the_seen) < 0) known = -1;
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

/* ``Recall.allocate_anew``. */
static PyObject *
allocate_anew(PyObject *recall, PyObject *nbytes, PyObject *stream, PyObject *owner)
{
    int same = is_equal(owner, SLOT(recall, Recall___turn)), positive = PyObject_RichCompareBool(nbytes, zero, Py_GT);
    if (same < 0 || positive < 0) return NULL;
    if (!same || !positive || has_deferred(recall)) {
        PyObject *all[] = {recall, nbytes, stream, owner};
        return PyObject_Vectorcall(the_allocate_anew, all, 4, NULL);
    }
    PyObject *state = Py_NewRef(SLOT(recall, Recall__state)), *name = Py_NewRef(SLOT(recall, Recall___name));
    PyObject *before = Py_NewRef(SLOT(SLOT(recall, Recall___ledger), Ledger__now));
    PUT_SAME(recall, Recall__state, the_unknown);
    PyObject *block = allocate_in_layer(recall, nbytes, stream, owner);
    if (block != NULL) {
        int links = note_allocation(recall, block, nbytes, owner);
        if (links) {
            PyObject *all[] = {recall, block, state, name, before, nbytes, stream, owner};
            PyObject *linked = links < 0 ? NULL : PyObject_Vectorcall(the_link_allocation, all, 8, NULL);
            Py_SETREF(block, linked);
        }
    }
    Py_DECREF(state);
    Py_DECREF(name);
    Py_DECREF(before);
    return block;
}

/* Whether a free between two states that are both known is to be remembered, which Python does; -1 for an error. */
static int
leads_to_known(PyObject *recall, PyObject *block)
{
    if (SLOT(recall, Recall__state) == the_unknown) return 0;
    PyObject *name = PyNumber_Xor(SLOT(recall, Recall___name), SLOT(block, Block__key));
    int known = name == NULL ? -1 : PyDict_Contains(SLOT(recall, Recall___states), name);
    Py_XDECREF(name);
    return known;
}

/* ``Recall.free_anew``; -1 for an error. */
static int
free_anew(PyObject *recall, PyObject *block)
{
    int cools = PyObject_IsTrue(SLOT(SLOT(recall, Recall__replay_policy), ReplayPolicy__cooldown));
    int usual = !cools && SLOT(recall, Recall___is_flushing) == Py_False && !has_deferred(recall) && IS(block, Block) &&
                SLOT(recall, Recall___is_bypassed) == Py_False && !IS_TRUE(block, Block__is_free) &&
                !IS_TRUE(block, Block__is_stable);
    if (usual) usual = is_equal(SLOT(block, Block__owner), SLOT(recall, Recall___turn));
    if (usual == 1) usual = 1 - leads_to_known(recall, block);
    if (PyErr_Occurred()) return -1;
    if (usual != 1) {
        PyObject *both[] = {recall, block};
        return done(PyObject_Vectorcall(the_free_anew, both, 2, NULL));
    }
    if (free_in_layer(recall, block) < 0 || forget_what_changed(recall) < 0) return -1;
    int entered = enter_new_state(recall, PyNumber_Xor(SLOT(recall, Recall___name), SLOT(block, Block__key)));
    if (entered) return entered < 0 ? -1 : 0;
    PyObject *both[] = {recall, block};
    return done(PyObject_Vectorcall(the_enter_without, both, 2, NULL));
}

/* The hash of what a session holds, 0 where it has no account; -1 with an error set. */
static Py_hash_t
hash_of_held(PyObject *recall, PyObject *owner)
{
    PyObject *account = PyDict_GetItemWithError(SLOT(recall, Recall___accounts), owner);
    if (account == NULL) return PyErr_Occurred() ? -1 : 0;
    PyObject *held = PyTuple_Pack(1, SLOT(account, Ledger__now));
    Py_hash_t hash = held == NULL ? -1 : PyObject_Hash(held);
    Py_XDECREF(held);
    return hash;
}

/* ``Recall._free_in_cooldown``; -1 for an error. */
static int
free_in_cooldown(PyObject *recall, PyObject *block)
{
    PyObject *policy = SLOT(recall, Recall__replay_policy);
    if (!IS(block, Block) || IS_TRUE(block, Block__is_free) || IS_TRUE(block, Block__is_stable)) {
        PyObject *both[] = {recall, block};
        return done(PyObject_Vectorcall(the_free_in_cooldown, both, 2, NULL));
    }
    PyObject *pointer = Py_NewRef(SLOT(block, Block__pointer)), *owner = Py_NewRef(SLOT(block, Block__owner));
    int failed = free_in_layer(recall, block) < 0;
    PyObject *left = failed ? NULL : PyNumber_Subtract(SLOT(policy, ReplayPolicy__cooldown), two);
    int goes_on = left == NULL ? -1 : PyObject_RichCompareBool(left, zero, Py_GT);
    if (left != NULL) PUT(policy, ReplayPolicy__cooldown, left);
    if (goes_on == 0) failed = done(PyObject_CallMethodNoArgs(recall, text__remember_again));
    else if (goes_on > 0) {
        Py_hash_t held = hash_of_held(recall, owner);
        PyObject *number = PyErr_Occurred() || held & PyLong_AsLong(the_others) ? NULL : PyLong_FromSsize_t(held);
        int are = number == NULL ? 0 : note_free(SLOT(recall, Recall___signs), number, SLOT(SLOT(recall, Recall___ledger), Ledger__now), pointer);
        failed = are <= 0 ? are : done(PyObject_CallMethodNoArgs(recall, text__trust_signs));
        Py_XDECREF(number);
    }
    Py_DECREF(pointer);
    Py_DECREF(owner);
    return failed || PyErr_Occurred() ? -1 : 0;
}

/* Log a call that is remembered: its block, borrowed from the state that it led from; NULL for an error. */
static PyObject *
follow(PyObject *recall, PyObject *step)
{
    PyObject *log = SLOT(recall, Recall__log);
    if (PyList_Append(log, step) < 0) return NULL;
    PUT_SAME(recall, Recall__state, SLOT(step, Step__after));
    return SLOT(step, Step__block);
}

/* ``Recall.allocate``. */
static PyObject *
allocate(PyObject *recall, PyObject *const *all)
{
    PyObject *state = SLOT(recall, Recall__state), *step = NULL, *function;
    if (PyDict_GET_SIZE(state)) {
        PyObject *request = PyTuple_Pack(3, all[0], all[1], all[2]);
        if (request == NULL) return NULL;
        step = Py_XNewRef(PyDict_GetItemWithError(SLOT(recall, Recall__state), request));
        Py_DECREF(request);
    }
    if (step != NULL) {
        PyObject *block = Py_XNewRef(follow(recall, step));
        Py_DECREF(step);
        if (block != NULL && PyList_GET_SIZE(SLOT(recall, Recall__log)) > longest_log &&
            done(PyObject_CallMethodNoArgs(recall, text_flush_totals)) < 0)
            Py_CLEAR(block);
        return block;
    }
    if (PyErr_Occurred()) return NULL;
    function = SLOT(recall, Recall__allocate_unknown);
    PyObject *self;
    if (is_own(function, (PyCFunction)(void (*)(void))call_allocate_anew, &self) && self == recall)
        return allocate_anew(recall, all[0], all[1], all[2]);
    if (function == SLOT(recall, Recall___allocate_below)) return allocate_in_layer(recall, all[0], all[1], all[2]);
    Py_INCREF(function);
    PyObject *block = PyObject_Vectorcall(function, all, 3, NULL);
    Py_DECREF(function);
    return block;
}

/* ``Recall.free``; -1 for an error. */
static int
release(PyObject *recall, PyObject *block)
{
    PyObject *state = SLOT(recall, Recall__state), *step = NULL, *self;
    if (PyDict_GET_SIZE(state)) step = Py_XNewRef(PyDict_GetItemWithError(state, block));
    if (step != NULL) {
        int failed = follow(recall, step) == NULL;
        Py_DECREF(step);
        return -failed;
    }
    if (PyErr_Occurred()) return -1;
    PyObject *function = SLOT(recall, Recall__free_unknown);
    if (is_own(function, call_free_in_cooldown, &self) && self == recall) return free_in_cooldown(recall, block);
    if (is_own(function, call_free_anew, &self) && self == recall) return free_anew(recall, block);
    Py_INCREF(function);
    int failed = done(PyObject_CallOneArg(function, block));
    Py_DECREF(function);
    return failed;
}

#endif
