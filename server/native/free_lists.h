/* Free blocks in bins, and blocks that are split and merged, as ``core/block.py`` and ``core/splitting.py`` have them.

Free lists that expand are left to Python, and so is what concerns the last remainder of others. */

#ifndef TELEGRAD_FREE_LISTS_H
#define TELEGRAD_FREE_LISTS_H

#include "slots.h"

static int
delete_item(PyObject *list, Py_ssize_t at)
{
    return PyList_SetSlice(list, at, at + 1, NULL);
}

/* The place of the first number of a list in order that is at least a given one; -1 for an error. */
static Py_ssize_t
place_of_size(PyObject *sizes, Py_ssize_t size)
{
    Py_ssize_t low = 0, high = PyList_GET_SIZE(sizes);
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2, found = PyLong_AsSsize_t(PyList_GET_ITEM(sizes, middle));
        if (found == -1 && PyErr_Occurred()) return -1;
        if (found < size) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The place of the first block of a bin whose address is at most a given one: the highest comes first; -1 for an error. */
static Py_ssize_t
place_of_block(PyObject *blocks, Py_ssize_t pointer)
{
    Py_ssize_t low = 0, high = PyList_GET_SIZE(blocks);
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2, found = number_in(PyList_GET_ITEM(blocks, middle), Block__pointer);
        if (found == -1 && PyErr_Occurred()) return -1;
        if (found > pointer) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ``FreeList.best_in_bins``: borrowed; NULL where there is none, or for an error. */
static PyObject *
best_in_bins(PyObject *free_list, Py_ssize_t size)
{
    PyObject *sizes = SLOT(free_list, FreeList__sizes);
    Py_ssize_t at = place_of_size(sizes, size);
    while (at >= 0 && at < PyList_GET_SIZE(sizes)) {
        PyObject *bin = PyDict_GetItemWithError(SLOT(free_list, FreeList__bins), PyList_GET_ITEM(sizes, at));
        if (bin == NULL) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "allocator: a size without a bin");
            return NULL;
        }
        PyObject *blocks = SLOT(bin, Bin__blocks);
        if (PyList_GET_SIZE(blocks)) return PyList_GET_ITEM(blocks, PyList_GET_SIZE(blocks) - 1);
        PUT_SAME(bin, Bin__listed, Py_False);
        if (delete_item(sizes, at) < 0) return NULL;
    }
    return NULL;
}

/* ``Bin.add``; -1 for an error. */
static int
add_to_bin(PyObject *bin, PyObject *block)
{
    PyObject *free_list = SLOT(bin, Bin__free_list), *blocks = SLOT(bin, Bin__blocks);
    if (!IS_TRUE(bin, Bin__listed)) {
        int same = is_equal(SLOT(bin, Bin__size), SLOT(free_list, FreeList__remainder_size));
        if (same) return same < 0 ? -1 : done(PyObject_CallMethodOneArg(bin, text_add, block));
        PyObject *sizes = SLOT(free_list, FreeList__sizes);
        Py_ssize_t size = number_in(bin, Bin__size), at = place_of_size(sizes, size);
        if ((size == -1 || at < 0) && PyErr_Occurred()) return -1;
        PUT_SAME(bin, Bin__listed, Py_True);
        if (PyList_Insert(sizes, at, SLOT(bin, Bin__size)) < 0) return -1;
    }
    Py_ssize_t pointer = number_in(block, Block__pointer), at = place_of_block(blocks, pointer);
    if ((pointer == -1 || at < 0) && PyErr_Occurred()) return -1;
    return at == PyList_GET_SIZE(blocks) ? PyList_Append(blocks, block) : PyList_Insert(blocks, at, block);
}

/* ``FreeList.bin``: a new reference; NULL for an error. */
static PyObject *
bin_of(PyObject *free_list, PyObject *size)
{
    PyObject *bin = Py_XNewRef(PyDict_GetItemWithError(SLOT(free_list, FreeList__bins), size));
    if (bin != NULL || PyErr_Occurred()) return bin;
    PyObject *blocks = PyList_New(0);
    bin = blocks == NULL ? NULL : PyBaseObject_Type.tp_new((PyTypeObject *)the_Bin, no_arguments, NULL);
    if (bin == NULL) {
        Py_XDECREF(blocks);
        return NULL;
    }
    SLOT(bin, Bin__free_list) = Py_NewRef(free_list);
    SLOT(bin, Bin__size) = Py_NewRef(size);
    SLOT(bin, Bin__blocks) = blocks;
    SLOT(bin, Bin__listed) = Py_NewRef(Py_False);
    SLOT(bin, Bin__eager_frees) = Py_NewRef(zero);
    if (PyDict_SetItem(SLOT(free_list, FreeList__bins), size, bin) < 0) Py_CLEAR(bin);
    return bin;
}

/* ``FreeList.add``; -1 for an error. */
static int
add_block(PyObject *free_list, PyObject *block)
{
    PyObject *bin = bin_of(free_list, SLOT(block, Block__size));
    if (bin == NULL) return -1;
    PUT_SAME(block, Block__is_free, Py_True);
    PUT(block, Block__bin, bin);
    return add_to_bin(bin, block);
}

/* ``FreeList.remove``; -1 for an error. */
static int
remove_block(PyObject *block)
{
    PyObject *blocks = SLOT(SLOT(block, Block__bin), Bin__blocks);
    Py_ssize_t last = PyList_GET_SIZE(blocks) - 1;
    if (last >= 0 && PyList_GET_ITEM(blocks, last) != block) {
        Py_ssize_t pointer = number_in(block, Block__pointer);
        last = pointer == -1 && PyErr_Occurred() ? -1 : place_of_block(blocks, pointer);
    }
    if (last < 0 || last >= PyList_GET_SIZE(blocks) || PyList_GET_ITEM(blocks, last) != block) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "allocator: a free block that is in no bin");
        return -1;
    }
    PUT_SAME(block, Block__is_free, Py_False);
    return delete_item(blocks, last);
}

/* A block of all of whose slots are set, before another one of its segment; NULL for an error. */
static PyObject *
new_block(PyObject *behind, PyObject *size)
{
    PyObject *block = PyBaseObject_Type.tp_new((PyTypeObject *)the_Block, no_arguments, NULL);
    if (block == NULL) return NULL;
#define SAME(name) SLOT(block, Block__##name) = Py_NewRef(SLOT(behind, Block__##name));
#define IS_NOW(name, value) SLOT(block, Block__##name) = Py_NewRef(value);
    SAME(segment) SAME(offset) SAME(pointer) SAME(stream) SAME(owner) SAME(previous)
    IS_NOW(size, size) IS_NOW(next, behind) IS_NOW(requested, zero) IS_NOW(charge, zero) IS_NOW(device_charge, zero)
    IS_NOW(key, zero) IS_NOW(split, Py_True) IS_NOW(is_free, Py_False) IS_NOW(is_stable, Py_False)
    IS_NOW(array, Py_None) IS_NOW(meta, Py_None) IS_NOW(bin, Py_None)
    return block;
}

/* Put a block, or None, behind the one that comes before it, or first in a segment. */
static void
put_behind(PyObject *before, PyObject *segment, PyObject *block)
{
    if (before == Py_None) PUT_SAME(segment, Segment__first, block);
    else PUT_SAME(before, Block__next, block);
}

/* ``split_front``: the first bytes of a block as a new one; NULL for an error. */
static PyObject *
split_front(PyObject *block, PyObject *size)
{
    PyObject *front = new_block(block, size);
    PyObject *left = front == NULL ? NULL : PyNumber_Subtract(SLOT(block, Block__size), size);
    if (left == NULL || add_to(block, Block__offset, size) < 0 || add_to(block, Block__pointer, size) < 0) {
        Py_XDECREF(front);
        Py_XDECREF(left);
        return NULL;
    }
    PUT(block, Block__size, left);
    put_behind(SLOT(block, Block__previous), SLOT(block, Block__segment), front);
    PUT_SAME(block, Block__previous, front);
    PUT_SAME(block, Block__split, Py_True);
    return front;
}

/* ``join_front``: let a block begin where its neighbour does; -1 for an error. */
static int
join_front(PyObject *block, PyObject *front)
{
    if (add_to(block, Block__size, SLOT(front, Block__size)) < 0) return -1;
    PUT_SAME(block, Block__previous, SLOT(front, Block__previous));
    put_behind(SLOT(block, Block__previous), SLOT(block, Block__segment), block);
    PUT_SAME(block, Block__offset, SLOT(front, Block__offset));
    PUT_SAME(block, Block__pointer, SLOT(front, Block__pointer));
    return 0;
}

#endif
