/* Calls whose outcome is known, and states that are new, as ``cache/recall.py`` answers the ones and names the others. */

#ifndef TELEGRAD_RECALL_H
#define TELEGRAD_RECALL_H

#include "states.h"

/* Have a block stand for its piece of memory: ``Pieces._let_stand``; -1 for an error. */
static int
let_stand(PyObject *table, PyObject *piece, PyObject *block)
{
    PUT_SAME(block, Block__is_stable, Py_True);
    PUT_SAME(block, Block__array, Py_None);
    PUT_SAME(block, Block__meta, Py_None);
    return PyDict_SetItem(table, piece, block);
}

/* ``replace_block``. */
static void
replace_block(PyObject *block, PyObject *other)
{
    PyObject *before = SLOT(block, Block__previous), *behind = SLOT(block, Block__next);
    PUT_SAME(other, Block__previous, before);
    PUT_SAME(other, Block__next, behind);
    if (before == Py_None) PUT_SAME(SLOT(block, Block__segment), Segment__first, other);
    else PUT_SAME(before, Block__next, other);
    if (behind != Py_None) PUT_SAME(behind, Block__previous, other);
    PUT_SAME(block, Block__previous, Py_None);
    PUT_SAME(block, Block__next, Py_None);
    PUT_SAME(block, Block__is_free, Py_True);
}

static PyObject *
piece_of(PyObject *block)
{
    return PyTuple_Pack(4, SLOT(block, Block__pointer), SLOT(block, Block__size), SLOT(block, Block__requested), SLOT(block, Block__owner));
}

/* ``Pieces.recognize`` of a block that has its piece's key: a new reference to the block that stands for the piece. */
static PyObject *
recognize(PyObject *pieces, PyObject *block)
{
    PyObject *table = SLOT(pieces, Pieces__table), *piece = piece_of(block);
    PyObject *known = piece == NULL ? NULL : PyDict_GetItemWithError(table, piece);
    if (known != NULL && PyObject_TypeCheck(known, (PyTypeObject *)the_Block)) {
        Py_INCREF(known);
        PUT_SAME(known, Block__bin, SLOT(block, Block__bin));
        PUT_SAME(known, Block__split, SLOT(block, Block__split));
        PUT_SAME(known, Block__is_free, Py_False);
        replace_block(block, known);
        Py_DECREF(piece);
        return known;
    }
    int failed = PyErr_Occurred() || (known != NULL && let_stand(table, piece, block) < 0);
    Py_XDECREF(piece);
    return failed ? NULL : Py_NewRef(block);
}

/* Whether a block is so large that nothing is remembered of it; -1 for an error. */
static int
is_oversize(PyObject *recall, PyObject *block)
{
    return PyObject_RichCompareBool(SLOT(block, Block__size), SLOT(recall, Recall___oversize), Py_GE);
}

/* ``_link_allocation``: a new reference to the block that is handed out; NULL for an error. */
static PyObject *
link_allocation(PyObject *recall, PyObject *block, PyObject *state, PyObject *from_name, PyObject *before, PyObject *request)
{
    int is_alone = is_equal(SLOT(recall, Recall___name), from_name);
    PyObject *name = is_alone < 0 ? NULL : PyNumber_Xor(SLOT(recall, Recall___name), SLOT(block, Block__key));
    int failed = name == NULL || enter_state(recall, name) < 0;
    int links = !failed && is_alone && state != the_unknown && SLOT(recall, Recall__state) != the_unknown;
    int large = links ? is_oversize(recall, block) : 1;
    PyObject *known = failed || large < 0 ? NULL : large ? Py_NewRef(block) : recognize(SLOT(recall, Recall___pieces), block);
    if (known != NULL && !large && remember_call(recall, state, request, known, Py_True, name, before) < 0) Py_CLEAR(known);
    Py_XDECREF(name);
    return known;
}

/* ``Pieces.representative``: a new reference, None where the piece is not known; NULL for an error. */
static PyObject *
representative(PyObject *pieces, PyObject *block)
{
    if (SLOT(block, Block__is_stable) != Py_False) return Py_NewRef(block);
    PyObject *table = SLOT(pieces, Pieces__table), *piece = piece_of(block);
    PyObject *known = piece == NULL ? NULL : PyDict_GetItemWithError(table, piece);
    int failed = PyErr_Occurred() != NULL;
    if (known != NULL) known = Py_NewRef(PyObject_TypeCheck(known, (PyTypeObject *)the_Block) ? known : block);
    if (known == block) failed = let_stand(table, piece, block) < 0;
    Py_XDECREF(piece);
    if (failed) Py_CLEAR(known);
    return failed || known != NULL ? known : Py_NewRef(Py_None);
}

/* ``replace_by_copy``: the new block, in the place of one that is in use; NULL for an error. */
static PyObject *
replace_by_copy(PyObject *block)
{
    PyObject *copy = PyBaseObject_Type.tp_new((PyTypeObject *)the_Block, no_arguments, NULL);
    if (copy == NULL) return NULL;
#define OF_BLOCK(name) SLOT(copy, Block__##name) = Py_NewRef(SLOT(block, Block__##name));
#define INITIALLY(name, value) SLOT(copy, Block__##name) = Py_NewRef(value);
    OF_BLOCK(segment) OF_BLOCK(offset) OF_BLOCK(pointer) OF_BLOCK(size) OF_BLOCK(stream) OF_BLOCK(owner) OF_BLOCK(bin)
    OF_BLOCK(split) OF_BLOCK(requested) OF_BLOCK(charge) OF_BLOCK(device_charge)
    INITIALLY(previous, Py_None) INITIALLY(next, Py_None) INITIALLY(is_free, Py_False) INITIALLY(is_stable, Py_False)
    INITIALLY(key, zero) INITIALLY(array, Py_None) INITIALLY(meta, Py_None)
    replace_block(block, copy);
    return copy;
}

/* ``_give_back``; -1 for an error. */
static int
give_back(PyObject *recall, PyObject *block)
{
    PyObject *freed = SLOT(block, Block__is_stable) == Py_False ? Py_NewRef(block)
                      : IS(block, Block)                                ? replace_by_copy(block)
                                                                        : PyObject_CallOneArg(the_replace_by_copy, block);
    int failed = freed == NULL || free_in_layer(recall, freed) < 0;
    Py_XDECREF(freed);
    return failed || forget_what_changed(recall) < 0 ? -1 : 0;
}

/* ``_free_to_known``; -1 for an error. */
static int
free_to_known(PyObject *recall, PyObject *block)
{
    PyObject *state = Py_NewRef(SLOT(recall, Recall__state)), *before = Py_NewRef(SLOT(SLOT(recall, Recall___ledger), Ledger__now));
    PyObject *name = PyNumber_Xor(SLOT(recall, Recall___name), SLOT(block, Block__key)), *known = NULL;
    int links = name == NULL ? -1 : state == the_unknown ? 0 : PyDict_Contains(SLOT(recall, Recall___states), name);
    if (links > 0) {
        int large = is_oversize(recall, block);
        links = large < 0 ? -1 : !large;
    }
    if (links > 0) known = representative(SLOT(recall, Recall___pieces), block);
    int failed = links < 0 || (links && known == NULL) || give_back(recall, block) < 0;
    if (!failed && SLOT(recall, Recall___is_bypassed) != Py_False) {
        PyObject *both[] = {recall, block};
        failed = done(PyObject_Vectorcall(the_enter_without, both, 2, NULL)) < 0;
    } else if (!failed) {
        PyObject *entered = PyNumber_Xor(SLOT(recall, Recall___name), SLOT(block, Block__key));
        failed = entered == NULL || enter_state(recall, entered) < 0;
        Py_XDECREF(entered);
    }
    if (!failed && links && known != Py_None && SLOT(recall, Recall__state) != the_unknown) {
        int there = PyDict_Contains(state, known);
        failed = there < 0 || (!there && remember_call(recall, state, known, known, Py_False, name, before) < 0);
    }
    Py_XDECREF(known);
    Py_XDECREF(name);
    Py_DECREF(before);
    Py_DECREF(state);
    return failed ? -1 : 0;
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
            PyObject *request = links < 0 ? NULL : PyTuple_Pack(3, nbytes, stream, owner);
            PyObject *linked = request == NULL ? NULL : link_allocation(recall, block, state, name, before, request);
            Py_XDECREF(request);
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
                SLOT(recall, Recall___is_bypassed) == Py_False && !IS_TRUE(block, Block__is_free);
    if (usual) usual = is_equal(SLOT(block, Block__owner), SLOT(recall, Recall___turn));
    int known = usual != 1 ? 0 : IS_TRUE(block, Block__is_stable) ? 1 : leads_to_known(recall, block);
    if (PyErr_Occurred()) return -1;
    if (known) return free_to_known(recall, block);
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
