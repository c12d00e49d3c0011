/* Sizes that a session asked for before, as ``cache/fast_bins.py`` serves them and takes them back. */

#ifndef TELEGRAD_BINS_H
#define TELEGRAD_BINS_H

#include "free_lists.h"
#include "totals.h"

/* What a layer below does, where this one may not. */
static PyObject *
allocate_below(PyObject *bins, PyObject *nbytes, PyObject *stream, PyObject *owner)
{
    PyObject *all[] = {nbytes, stream, owner};
    return PyObject_Vectorcall(SLOT(bins, FastBins___allocate), all, 3, NULL);
}

static int
free_below(PyObject *bins, PyObject *block)
{
    return done(PyObject_CallOneArg(SLOT(bins, FastBins___free), block));
}

/* A whole block of a bin: a new reference; NULL without an error where the layer below must decide. */
static PyObject *
take_from_bin(PyObject *bins, PyObject *request, PyObject *account, PyObject *owner)
{
    PyObject *blocks = SLOT(request, Request__blocks), *ledger = SLOT(bins, FastBins___ledger);
    Py_ssize_t last = PyList_GET_SIZE(blocks) - 1;
    PyObject *block = Py_NewRef(PyList_GET_ITEM(blocks, last));
    int is_split = IS_TRUE(block, Block__split);
    PyObject *charge = SLOT(request, Request__charge);
    PyObject *of_device = is_split ? SLOT(request, Request__split_charge) : charge;
    PyObject *held = PyNumber_Add(SLOT(account, Ledger__now), charge);
    PyObject *all = held == NULL ? NULL : PyNumber_Add(SLOT(ledger, Ledger__now), of_device);
    int stands = all == NULL ? -1 : is_equal(SLOT(block, Block__owner), owner);
    if (stands == 1 && (stands = passes(account, held)) >= 0) stands = stands ? 0 : passes(ledger, all) == 0;
    if (stands != 1 || PyErr_Occurred() || delete_item(blocks, last) < 0 ||
        add_to(request, is_split ? Request__split_uses : Request__uses, one) < 0) {
        Py_XDECREF(held);
        Py_XDECREF(all);
        Py_DECREF(block);
        return NULL;
    }
    PUT(account, Ledger__now, held);
    PUT(ledger, Ledger__now, all);
    PUT_SAME(block, Block__is_free, Py_False);
    PUT_SAME(block, Block__requested, SLOT(request, Request__nbytes));
    PUT_SAME(block, Block__charge, charge);
    PUT_SAME(block, Block__device_charge, of_device);
    return block;
}

/* By how much the totals change as a block is split off one that is no part of anything yet; NULL for an error. */
static PyObject *
first_split_charge(PyObject *request, PyObject *pool, Py_ssize_t left)
{
    PyObject *bytes = apply(PyNumber_Multiply, PyLong_FromSsize_t(left), Py_NewRef(SLOT(pool, Pool__inactive_byte_charge)));
    PyObject *counted = PyNumber_Add(SLOT(request, Request__charge), SLOT(pool, Pool__inactive_count_charge));
    return apply(PyNumber_Add, counted, bytes);
}

/* Account for a block that was split off; -1 for an error. */
static int
hand_out(PyObject *bins, PyObject *front, PyObject *request, PyObject *account, PyObject *change)
{
    PUT_SAME(front, Block__requested, SLOT(request, Request__nbytes));
    PUT_SAME(front, Block__bin, SLOT(request, Request__bin));
    PUT_SAME(front, Block__charge, SLOT(request, Request__charge));
    PUT_SAME(front, Block__device_charge, SLOT(request, Request__split_charge));
    if (add_to(request, Request__uses, one) < 0 || charge(SLOT(bins, FastBins___ledger), change) < 0) return -1;
    return charge(account, SLOT(request, Request__charge));
}

/* The front of the larger block that fits best; NULL without an error where the layer below must decide. */
static PyObject *
split_from_larger(PyObject *bins, PyObject *request, PyObject *account)
{
    PyObject *free_list = SLOT(request, Request__free_list), *pool = SLOT(free_list, FreeList__pool);
    Py_ssize_t size = number_in(request, Request__size);
    PyObject *block = size == -1 ? NULL : best_in_bins(free_list, size);
    if (block == NULL || !IS(block, Block)) return NULL;
    int same = is_equal(SLOT(block, Block__owner), SLOT(account, Account__owner));
    Py_ssize_t whole = number_in(block, Block__size), least = number_in(request, Request__min_remainder);
    if (same != 1 || whole - size < least || whole >= number_in(bins, FastBins___oversize) || PyErr_Occurred()) return NULL;
    Py_INCREF(block);
    int was_split = IS_TRUE(block, Block__split);
    PyObject *change = was_split ? Py_NewRef(SLOT(request, Request__split_off_charge))
                                 : first_split_charge(request, pool, whole - size);
    PyObject *front = NULL;
    if (change != NULL && remove_block(block) == 0 &&
        (!was_split || add_to(pool, Pool__ended_inactive_bytes, SLOT(request, Request__size)) == 0))
        front = split_front(block, SLOT(request, Request__size));
    if (front != NULL && (add_block(free_list, block) < 0 || hand_out(bins, front, request, account, change) < 0))
        Py_CLEAR(front);
    Py_XDECREF(change);
    Py_DECREF(block);
    return front;
}

/* Whether a larger block in a bin is to be split for a request, and not the last remainder; -1 for an error. */
static int
splits_in_bin(PyObject *free_list, PyObject *request)
{
    if (SLOT(free_list, FreeList__remainder) == Py_None) return 1;
    Py_ssize_t size = number_in(request, Request__size), left = number_in(free_list, FreeList__remainder_size);
    PyObject *larger = left < size ? NULL : best_in_bins(free_list, size);
    int splits = left < size || (larger != NULL && number_in(larger, Block__size) < left);
    return PyErr_Occurred() ? -1 : splits;
}

/* Whether a request would be beyond the quota of a session that has one; -1 for an error. */
static int
exceeds_quota(PyObject *account, PyObject *request)
{
    if (SLOT(account, Account__quota_bytes) == Py_None) return 0;
    PyObject *held = PyNumber_Add(SLOT(account, Ledger__now), SLOT(request, Request__charge));
    int exceeds = held == NULL ? -1 : passes(account, held);
    Py_XDECREF(held);
    return exceeds;
}

/* ``FastBins._split``; NULL without an error where the layer below must decide. */
static PyObject *
split(PyObject *bins, PyObject *request, PyObject *account)
{
    PyObject *free_list = SLOT(request, Request__free_list), *all[] = {bins, request, account};
    int is_usual = IS(free_list, FreeList);
    if (is_usual) {
        int exceeds = exceeds_quota(account, request);
        if (exceeds) return NULL;
        is_usual = splits_in_bin(free_list, request);
    }
    if (is_usual < 0) return NULL;
    return is_usual ? split_from_larger(bins, request, account) : PyObject_Vectorcall(the_split_with_care, all, 3, NULL);
}

/* ``Account.select_stream`` of another stream than before; -1 for an error. */
static int
select_stream(PyObject *account, PyObject *stream)
{
    PyObject *key = PyTuple_Pack(2, SLOT(account, Account__route), stream), *empty = key == NULL ? NULL : PyDict_New();
    PyObject *table = empty == NULL ? NULL : PyDict_SetDefault(SLOT(account, Account__requests_by_route), key, empty);
    if (table != NULL) {
        PUT_SAME(account, Account__stream, stream);
        PUT_SAME(account, Account__requests, table);
    }
    Py_XDECREF(empty);
    Py_XDECREF(key);
    return table == NULL ? -1 : 0;
}

/* ``FastBins.allocate``. */
static PyObject *
allocate_from_bins(PyObject *bins, PyObject *nbytes, PyObject *stream, PyObject *owner)
{
    PyObject *request = NULL, *block = NULL;
    PyObject *account = PyDict_GetItemWithError(SLOT(bins, FastBins___accounts), owner);
    if (account != NULL && SLOT(bins, FastBins___bypassed) == Py_False) {
        int same = is_equal(SLOT(account, Account__stream), stream);
        if (same < 0 || (!same && select_stream(account, stream) < 0)) return NULL;
        request = PyDict_GetItemWithError(SLOT(account, Account__requests), nbytes);
    }
    if (request != NULL) {
        Py_INCREF(request);
        block = PyList_GET_SIZE(SLOT(request, Request__blocks)) ? take_from_bin(bins, request, account, owner)
                                                                : split(bins, request, account);
        Py_DECREF(request);
    }
    return block != NULL || PyErr_Occurred() ? block : allocate_below(bins, nbytes, stream, owner);
}

/* ``FastBins._account_for_free``, where ``merged`` blocks cease to be inactive ones; -1 for an error. */
static int
account_for_free(PyObject *bins, PyObject *block, PyObject *pool, int merged)
{
    PyObject *account = PyDict_GetItemWithError(SLOT(bins, FastBins___accounts), SLOT(block, Block__owner));
    if (account == NULL) {
        if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, SLOT(block, Block__owner));
        return -1;
    }
    PyObject *ledger = SLOT(bins, FastBins___ledger);
    PyObject *held = PyNumber_Subtract(SLOT(account, Ledger__now), SLOT(block, Block__charge));
    PyObject *now = held == NULL ? NULL : PyNumber_Subtract(SLOT(ledger, Ledger__now), SLOT(block, Block__device_charge));
    for (; merged > 0 && now != NULL; merged--)
        now = apply(PyNumber_Subtract, now, Py_NewRef(SLOT(pool, Pool__inactive_count_charge)));
    if (now == NULL) {
        Py_XDECREF(held);
        return -1;
    }
    PUT_SAME(block, Block__is_free, Py_True);
    PUT(account, Ledger__now, held);
    return set_totals(ledger, now);
}

/* ``FastBins._coalesce_with_next``; -1 for an error. */
static int
coalesce_with_next(PyObject *bins, PyObject *block, PyObject *following, PyObject *free_list)
{
    PyObject *bin = SLOT(block, Block__bin);
    int same = is_equal(SLOT(block, Block__owner), SLOT(following, Block__owner));
    int is_whole = SLOT(block, Block__previous) == Py_None && SLOT(following, Block__next) == Py_None;
    int is_eager = same == 1 ? PyObject_RichCompareBool(SLOT(bin, Bin__eager_frees), zero, Py_GT) : 0;
    if (same < 0 || is_eager < 0) return -1;
    if (!is_eager || is_whole || following == SLOT(free_list, FreeList__remainder_front)) {
        PyObject *all[] = {bins, block, following, free_list};
        return done(PyObject_Vectorcall(the_coalesce_with_next, all, 4, NULL));
    }
    PyObject *left = PyNumber_Subtract(SLOT(bin, Bin__eager_frees), one);
    if (left == NULL) return -1;
    PUT(bin, Bin__eager_frees, left);
    if (remove_block(following) < 0 || join_front(following, block) < 0 || add_block(free_list, following) < 0) return -1;
    return account_for_free(bins, block, SLOT(free_list, FreeList__pool), 1);
}

/* ``FastBins._coalesce_into_previous``; -1 for an error. */
static int
coalesce_into_previous(PyObject *bins, PyObject *previous, PyObject *block, PyObject *following, PyObject *free_list)
{
    int joins = following != Py_None && IS_TRUE(following, Block__is_free);
    PyObject *beyond = joins ? SLOT(following, Block__next) : following, *pool = SLOT(free_list, FreeList__pool);
    int same = is_equal(SLOT(block, Block__owner), SLOT(previous, Block__owner));
    if (same == 1 && joins) same = is_equal(SLOT(block, Block__owner), SLOT(following, Block__owner));
    if (same < 0) return -1;
    if (!same || SLOT(free_list, FreeList__remainder) != Py_None ||
        (beyond == Py_None && SLOT(previous, Block__previous) == Py_None))
        return done(PyObject_CallOneArg(SLOT(bins, FastBins___complete), block));
    Py_INCREF(beyond);
    int failed = remove_block(previous) < 0 || add_to(previous, Block__size, SLOT(block, Block__size)) < 0;
    if (!failed && joins) {
        failed = remove_block(following) < 0 || add_to(previous, Block__size, SLOT(following, Block__size)) < 0 ||
                 add_to(pool, Pool__ended_inactive_count, one) < 0;
        PUT_SAME(following, Block__is_free, Py_True);
        PUT_SAME(following, Block__previous, Py_None); /* merged blocks must not keep each other alive */
    }
    PUT_SAME(previous, Block__next, beyond);
    if (beyond != Py_None) PUT_SAME(beyond, Block__previous, previous);
    Py_DECREF(beyond);
    return failed || add_block(free_list, previous) < 0 ? -1 : account_for_free(bins, block, pool, 1 + joins);
}

/* ``FastBins.free`` of a block that the caller holds, and is no shadow; -1 for an error. */
static int
free_to_bins(PyObject *bins, PyObject *block)
{
    PyObject *bin = SLOT(block, Block__bin);
    if (bin == Py_None || IS_TRUE(block, Block__is_free) || SLOT(bins, FastBins___bypassed) != Py_False)
        return free_below(bins, block);
    PyObject *free_list = SLOT(bin, Bin__free_list);
    if (!IS(free_list, FreeList)) {
        PyObject *both[] = {bins, block};
        return done(PyObject_Vectorcall(the_bins_free, both, 2, NULL));
    }
    PyObject *previous = Py_NewRef(SLOT(block, Block__previous)), *following = Py_NewRef(SLOT(block, Block__next));
    int failed;
    if (previous != Py_None && IS_TRUE(previous, Block__is_free))
        failed = coalesce_into_previous(bins, previous, block, following, free_list);
    else if (following != Py_None && IS_TRUE(following, Block__is_free))
        failed = coalesce_with_next(bins, block, following, free_list);
    else
        failed = account_for_free(bins, block, Py_None, 0) < 0 ? -1 : add_to_bin(bin, block);
    Py_DECREF(previous);
    Py_DECREF(following);
    return failed;
}

#endif
