/* Metas: interned by what is known of a tensor without its data, as the protocol's ``meta.py`` has them. */

#ifndef TELEGRAD_METAS_H
#define TELEGRAD_METAS_H

#include "signatures.h"

#define MOST_DIMENSIONS 64 /* as ``meta.py`` has it */
#define SMALL ((int64_t)1 << 40)

#define META_CLASSES(X) X(Meta) X(Device) X(KeyedRef)
#define META_SLOTS(X)                                                                                                  \
    X(Meta, shape) X(Meta, strides) X(Meta, offset) X(Meta, dtype) X(Meta, device) X(Meta, ndim) X(Meta, numel)        \
    X(Meta, is_contiguous) X(Meta, extent) X(Meta, _at_start) X(Device, name) X(KeyedRef, key)
/* ``meta_of`` is the function of Python, ``metas`` has the names of its module, ``host`` is the CPU. */
#define META_OBJECTS(X) X(meta_of) X(metas) X(host)
#define META_TEXTS(X) X(_interned) X(data) X(_remove) X(_pending_removals) X(_commit_removals)

META_SLOTS(DECLARE_SLOT)
META_CLASSES(DECLARE_OBJECT)
META_OBJECTS(DECLARE_OBJECT)
META_TEXTS(DECLARE_TEXT)

static int
take_metas(PyObject *given)
{
    PyObject *value;
    META_CLASSES(TAKE)
    META_OBJECTS(TAKE)
    META_SLOTS(FIND)
    META_TEXTS(INTERN)
    return 0;
}

typedef struct {
    Py_ssize_t ndim;
    int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS], row_major[MOST_DIMENSIONS], offset, numel, extent;
    int is_contiguous, is_row_major;
} Extents;

/* Read small whole numbers that are not negative; 0 where something else is among them. */
static int
read_sizes(int64_t *sizes, PyObject *items)
{
    if (!PyTuple_CheckExact(items) || PyTuple_GET_SIZE(items) > MOST_DIMENSIONS) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        int overflows = 0;
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (!PyLong_CheckExact(item)) return 0;
        sizes[i] = PyLong_AsLongLongAndOverflow(item, &overflows);
        if (overflows || sizes[i] < 0 || sizes[i] >= SMALL) return 0;
    }
    return 1;
}

/* What follows from shape, strides (or None) and offset; 0 where numbers are not small, and Python is to look at them. */
static int
measure(Extents *of, PyObject *shape, PyObject *strides, PyObject *offset)
{
    PyObject *offsets = PyTuple_Pack(1, offset);
    int usual = offsets != NULL && read_sizes(of->shape, shape) && read_sizes(&of->offset, offsets);
    Py_XDECREF(offsets);
    if (!usual) return 0;
    of->ndim = PyTuple_GET_SIZE(shape);
    if (strides != Py_None && (!read_sizes(of->strides, strides) || PyTuple_GET_SIZE(strides) != of->ndim)) return 0;
    int64_t step = 1, dense = 1, numel = 1, last = 0;
    int follows = 1;
    for (Py_ssize_t i = of->ndim - 1; i >= 0; i--) {
        of->row_major[i] = step;
        if (strides == Py_None) of->strides[i] = step;
        int64_t size = of->shape[i], stride = of->strides[i], reach;
        if (size > 1 && (__builtin_mul_overflow(size - 1, stride, &reach) || reach >= SMALL || (last += reach) >= SMALL)) return 0;
        if (__builtin_mul_overflow(step, size ? size : 1, &step) || step >= SMALL) return 0;
        if (size != 1 && follows) {
            if (stride != dense) follows = 0;
            else dense *= size ? size : 1;
        }
        numel *= size;
    }
    of->numel = numel;
    of->is_row_major = strides != Py_None && memcmp(of->strides, of->row_major, of->ndim * sizeof(int64_t)) == 0;
    of->is_contiguous = strides == Py_None || follows || numel == 0;
    of->extent = numel == 0 ? 0 : of->offset + (of->is_contiguous ? numel : 1 + last);
    return 1;
}

static PyObject *
tuple_of(const int64_t *sizes, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(sizes[i]);
        if (number == NULL) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

/* Keep a meta by a key for as long as somebody has it, as a ``WeakValueDictionary`` does; -1 for an error. */
static int
intern_meta(PyObject *interned, PyObject *key, PyObject *meta)
{
    PyObject *pending = PyObject_GetAttr(interned, text__pending_removals);
    int failed = pending == NULL;
    if (!failed && PyObject_IsTrue(pending)) failed = done(PyObject_CallMethodNoArgs(interned, text__commit_removals)) < 0;
    Py_XDECREF(pending);
    PyObject *data = failed ? NULL : PyObject_GetAttr(interned, text_data);
    PyObject *remove = data == NULL ? NULL : PyObject_GetAttr(interned, text__remove);
    PyObject *both = remove == NULL ? NULL : PyTuple_Pack(2, meta, remove);
    PyObject *kept = both == NULL ? NULL : _PyWeakref_RefType.tp_new((PyTypeObject *)the_KeyedRef, both, NULL);
    if (kept != NULL) Py_XSETREF(SLOT(kept, KeyedRef__key), Py_NewRef(key));
    failed = kept == NULL || PyDict_SetItem(data, key, kept) < 0;
    Py_XDECREF(data);
    Py_XDECREF(remove);
    Py_XDECREF(both);
    Py_XDECREF(kept);
    return failed ? -1 : 0;
}

/* A meta that nobody has, of extents that were measured. */
static PyObject *
new_meta(const Extents *of, PyObject *const *given)
{
    PyObject *meta = PyBaseObject_Type.tp_new((PyTypeObject *)the_Meta, no_arguments, NULL);
    PyObject *strides = given[3] == Py_None ? tuple_of(of->row_major, of->ndim) : Py_NewRef(given[3]);
    PyObject *numbers[] = {PyLong_FromSsize_t(of->ndim), PyLong_FromLongLong(of->numel), PyLong_FromLongLong(of->extent)};
    if (meta == NULL || strides == NULL || !numbers[0] || !numbers[1] || !numbers[2]) {
        Py_XDECREF(meta);
        Py_XDECREF(strides);
        for (int i = 0; i < 3; i++) Py_XDECREF(numbers[i]);
        return NULL;
    }
    SLOT(meta, Meta__shape) = Py_NewRef(given[0]);
    SLOT(meta, Meta__dtype) = Py_NewRef(given[1]);
    SLOT(meta, Meta__device) = Py_NewRef(given[2]);
    SLOT(meta, Meta__strides) = strides;
    SLOT(meta, Meta__offset) = Py_NewRef(given[4]);
    SLOT(meta, Meta__ndim) = numbers[0];
    SLOT(meta, Meta__numel) = numbers[1];
    SLOT(meta, Meta__extent) = numbers[2];
    SLOT(meta, Meta__is_contiguous) = Py_NewRef(of->is_contiguous ? Py_True : Py_False);
    SLOT(meta, Meta___at_start) = Py_NewRef(Py_None);
    return meta;
}

/* The meta that is kept by a key, NULL without an error where there is none. */
static PyObject *
interned_meta(PyObject *interned, PyObject *key)
{
    PyObject *data = PyObject_GetAttr(interned, text_data);
    PyObject *kept = data == NULL ? NULL : PyDict_GetItemWithError(data, key), *meta = NULL;
    if (kept != NULL && IS(kept, KeyedRef)) meta = PyWeakref_GetObject(kept);
    meta = meta == NULL || meta == Py_None ? NULL : Py_NewRef(meta);
    Py_XDECREF(data);
    return meta;
}

/* The one meta of a shape, a type, a device, strides or None, and an offset; ``Meta.of``. */
static PyObject *
meta_of(PyObject *const *given)
{
    PyObject *interned = PyDict_GetItemWithError(the_metas, text__interned), *meta = NULL;
    if (interned == NULL || !PyTuple_CheckExact(given[0]) || !IS(given[2], Device))
        return PyErr_Occurred() ? NULL : PyObject_Vectorcall(the_meta_of, given, 5, NULL);
    Py_INCREF(interned);
    PyObject *key = PyTuple_Pack(5, given[0], given[3], given[4], given[1], SLOT(given[2], Device__name));
    if (key != NULL) meta = interned_meta(interned, key);
    Extents extents;
    if (key != NULL && meta == NULL && !PyErr_Occurred()) {
        if (!measure(&extents, given[0], given[3], given[4])) {
            if (!PyErr_Occurred()) meta = PyObject_Vectorcall(the_meta_of, given, 5, NULL);
        } else {
            PyObject *row_major[] = {given[0], given[1], given[2], Py_None, given[4]};
            meta = extents.is_row_major ? meta_of(row_major) : new_meta(&extents, given);
            if (meta != NULL && intern_meta(interned, key, meta) < 0) Py_CLEAR(meta);
        }
    }
    Py_DECREF(interned);
    Py_XDECREF(key);
    return meta;
}

static PyObject *
call_meta_of(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (names != NULL || count < 2 || count > 5) return PyObject_Vectorcall(the_meta_of, given, count, names);
    PyObject *all[] = {given[0], given[1], count > 2 ? given[2] : the_host, count > 3 ? given[3] : Py_None, count > 4 ? given[4] : zero};
    return meta_of(all);
}

static PyObject *
prepare_metas(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || no_arguments == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_metas: expected a dict, after prepare");
        return NULL;
    }
    return none_unless(take_metas(given));
}

#endif
