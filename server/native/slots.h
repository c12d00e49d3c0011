/* The objects of Python that the usual path of the allocator works on, and where their classes have their slots. */

#ifndef TELEGRAD_ALLOCATOR_SLOTS_H
#define TELEGRAD_ALLOCATOR_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define CLASSES(X)                                                                                                     \
    X(Block) X(Bin) X(FreeList) X(Pool) X(Segment) X(Request) X(Account) X(Ledger) X(Heap) X(FastBins) X(Recall)       \
    X(Pieces) X(ReplayPolicy) X(Signs) X(Watch)

#define SLOTS(X)                                                                                                       \
    X(Block, array) X(Block, bin) X(Block, charge) X(Block, device_charge) X(Block, is_free) X(Block, is_stable)       \
    X(Block, key) X(Block, meta) X(Block, next) X(Block, offset) X(Block, owner) X(Block, pointer) X(Block, previous)  \
    X(Block, requested) X(Block, segment) X(Block, size) X(Block, split) X(Block, stream) X(Bin, blocks)               \
    X(Bin, eager_frees) X(Bin, free_list) X(Bin, listed) X(Bin, size) X(FreeList, bins) X(FreeList, pool)              \
    X(FreeList, remainder) X(FreeList, remainder_front) X(FreeList, remainder_size) X(FreeList, sizes)                 \
    X(FreeList, stream) X(Pool, ended_inactive_bytes) X(Pool, ended_inactive_count) X(Pool, inactive_byte_charge)      \
    X(Pool, inactive_count_charge) X(Segment, first) X(Request, bin) X(Request, blocks) X(Request, charge)             \
    X(Request, free_list) X(Request, min_remainder) X(Request, nbytes) X(Request, size) X(Request, split_charge)       \
    X(Request, split_off_charge) X(Request, split_uses) X(Request, uses) X(Account, owner) X(Account, quota_bytes)     \
    X(Account, requests) X(Account, requests_by_route) X(Account, route) X(Account, stream) X(Ledger, allocated_peak)  \
    X(Ledger, ceiling) X(Ledger, now) X(Ledger, peak) X(Ledger, pending) X(Ledger, quota) X(Heap, generation)          \
    X(FastBins, _accounts) X(FastBins, _allocate) X(FastBins, _bypassed) X(FastBins, _complete) X(FastBins, _free)     \
    X(FastBins, _ledger) X(FastBins, _oversize) X(Pieces, table) X(Pieces, new_key) X(ReplayPolicy, cooldown)          \
    X(Recall, _accounts) X(Recall, _allocate_below) X(Recall, _changes) X(Recall, _free_below) X(Recall, _heap)        \
    X(Recall, _is_bypassed) X(Recall, _is_flushing) X(Recall, _left) X(Recall, _ledger) X(Recall, _moved)              \
    X(Recall, _name) X(Recall, _pieces) X(Recall, _states) X(Recall, _turn) X(Recall, allocate_unknown)                \
    X(Recall, free_unknown) X(Recall, log) X(Recall, replay_policy) X(Recall, state) X(Recall, _signs)                 \
    X(Recall, _oversize) X(Recall, _is_cooling) X(Step, account) X(Step, account_now) X(Step, after) X(Step, amounts)  \
    X(Step, before) X(Step, block) X(Step, name) X(Step, now) X(Step, resets) X(Step, takes) X(Ledger, resets)         \
    X(Signs, _in_place) X(Signs, _of_session) X(Watch, _before) X(Watch, _lately) X(Watch, _left) X(Watch, _new)       \
    X(Watch, _new_before) X(Watch, _streak) X(Watch, _wanted)

/* What else ``prepare`` is given: functions of Python that do all that is unusual, and constants. */
#define OBJECTS(X)                                                                                                     \
    X(Step) X(bins_allocate) X(bins_free) X(split_with_care) X(coalesce_with_next) X(recall_allocate) X(recall_free)   \
    X(allocate_anew) X(free_anew) X(free_in_cooldown) X(replace_by_copy) X(enter_without) X(guards) X(unlimited)       \
    X(field_bits) X(unknown) X(seen) X(longest_log) X(others)

#define TEXTS(X)                                                                                                       \
    X(add) X(take_peaks) X(name) X(forget) X(flush_totals) X(_count_miss) X(_remember_again) X(_trust_signs) X(_age)   \
    X(_spend)

#define DECLARE_SLOT(type, name) static Py_ssize_t type##__##name;
#define DECLARE_OBJECT(name) static PyObject *the_##name;
#define DECLARE_TEXT(name) static PyObject *text_##name;
SLOTS(DECLARE_SLOT)
CLASSES(DECLARE_OBJECT)
OBJECTS(DECLARE_OBJECT)
TEXTS(DECLARE_TEXT)
static PyObject *no_arguments, *zero, *one, *two;
static Py_ssize_t longest_log;

/* What is in a slot of an object whose type the caller knows: borrowed, and never empty in objects that are complete. */
#define SLOT(object, slot) (*(PyObject **)((char *)(object) + (slot)))
#define IS(object, type) (Py_TYPE(object) == (PyTypeObject *)the_##type)
/* Put a new reference into a slot that has something. */
#define PUT(object, slot, value) Py_SETREF(SLOT(object, slot), value)
#define PUT_SAME(object, slot, value) PUT(object, slot, Py_NewRef(value))
#define IS_TRUE(object, slot) (SLOT(object, slot) == Py_True)

static Py_ssize_t
offset_of(PyObject *type, const char *name)
{
    PyObject *slot = PyObject_GetAttrString(type, name);
    if (slot == NULL) return -1;
    PyMemberDef *member = Py_IS_TYPE(slot, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)slot)->d_member : NULL;
    Py_ssize_t offset = member != NULL && member->type == T_OBJECT_EX ? member->offset : -1;
    Py_DECREF(slot);
    if (offset < 0) PyErr_Format(PyExc_TypeError, "%R.%s is no slot", type, name);
    return offset;
}

/* Take everything from a dictionary by its name. */
static int
take_objects(PyObject *given)
{
    PyObject *value;
#define TAKE(name)                                                                                                     \
    if ((value = PyDict_GetItemString(given, #name)) == NULL) {                                                        \
        PyErr_Format(PyExc_TypeError, "prepare: %s is missing", #name);                                                \
        return -1;                                                                                                     \
    }                                                                                                                  \
    Py_XSETREF(the_##name, Py_NewRef(value));
#define FIND(type, name)                                                                                               \
    if ((type##__##name = offset_of(the_##type, #name)) < 0) return -1;
#define INTERN(name)                                                                                                   \
    if ((text_##name = PyUnicode_InternFromString(#name)) == NULL) return -1;
    CLASSES(TAKE)
    OBJECTS(TAKE)
    SLOTS(FIND)
    TEXTS(INTERN)
    no_arguments = PyTuple_New(0);
    zero = PyLong_FromLong(0);
    one = PyLong_FromLong(1);
    two = PyLong_FromLong(2);
    longest_log = PyLong_AsSsize_t(the_longest_log);
    return no_arguments && zero && one && two && !PyErr_Occurred() ? 0 : -1;
}

/* Whether two integers are equal; -1 for an error. */
static int
is_equal(PyObject *one_of_them, PyObject *other)
{
    return one_of_them == other ? 1 : PyObject_RichCompareBool(one_of_them, other, Py_EQ);
}

/* Add to the integer in a slot; -1 for an error. */
static int
add_to(PyObject *object, Py_ssize_t slot, PyObject *amount)
{
    PyObject *sum = PyNumber_Add(SLOT(object, slot), amount);
    if (sum == NULL) return -1;
    PUT(object, slot, sum);
    return 0;
}

/* The integer in a slot, which fits a register; -1 with an error set where it does not. */
static Py_ssize_t
number_in(PyObject *object, Py_ssize_t slot)
{
    return PyLong_AsSsize_t(SLOT(object, slot));
}

/* Let go of what a function returned for which only its success matters; -1 for an error. */
static int
done(PyObject *result)
{
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Append a new reference, or an error; -1 for an error. */
static int
append_new(PyObject *list, PyObject *item)
{
    int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

static PyObject *
none_unless(int failed)
{
    return failed ? NULL : Py_NewRef(Py_None);
}

#endif
