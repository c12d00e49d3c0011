/* The lookup of what executes a call, as the engine's ``lookup.py`` has it. Whatever cannot be read goes to ``uncached``. */

#ifndef TELEGRAD_LOOKUPS_H
#define TELEGRAD_LOOKUPS_H

#include <math.h>

#include "signatures.h"

#define LEAST_VARYING 1e-30 /* as ``varying`` has them */
#define GREATEST_VARYING 1e30
#define GREATEST_SPECIAL 4.0

#define LOOKUP_SLOTS(X) X(Operator, runs) X(Operator, lookups) X(Operator, reads_numbers) X(Context, trace)
LOOKUP_SLOTS(DECLARE_SLOT)
static PyObject *text_values;

/* ``tensors``, ``signed_``, ``scalars`` and ``lists`` are tuples of positions, ``decoded`` one of positions and functions. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *operator, *tensors, *signed_, *decoded, *scalars, *lists, *uncached, *dispatch_and_cache, *marker;
    Py_ssize_t longest_list;
} Lookup;

static int
take_lookups(void)
{
    LOOKUP_SLOTS(FIND)
    text_values = PyUnicode_InternFromString("values");
    return text_values == NULL ? -1 : 0;
}

/* Whether a number is a float for which calls may share what is kept: ``varying.varies``. */
static int
varies(PyObject *item)
{
    if (!PyFloat_CheckExact(item)) return 0;
    double size = fabs(PyFloat_AS_DOUBLE(item));
    return size > LEAST_VARYING && size < GREATEST_VARYING && (size > GREATEST_SPECIAL || 2 * size != floor(2 * size));
}

/* What is read of a call: its arguments and what makes its key of them, as lists, and the keys of its tensors. */
typedef struct {
    PyObject *bound, *read, *values; /* ``values`` has tensors by their numbers; NULL where arguments are tensors */
    long long keys;
} Reading;

/* The value that an argument is, or names; a new reference, NULL for anything else. */
static PyObject *
value_of(const Reading *reading, PyObject *item)
{
    PyObject *value = reading->values == NULL ? item : PyDict_GetItemWithError(reading->values, item);
    return value != NULL && IS(value, Value) && SLOT(value, Value__meta) != NULL && SLOT(value, Value__keys) != NULL
               ? Py_NewRef(value) : NULL;
}

static int
add_keys(Reading *reading, PyObject *value)
{
    reading->keys |= PyLong_AsLongLong(SLOT(value, Value__keys));
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *
item_at(PyObject *list, PyObject *position, Py_ssize_t *place)
{
    *place = PyLong_AsSsize_t(position);
    return *place >= 0 && *place < PyList_GET_SIZE(list) ? PyList_GET_ITEM(list, *place) : NULL;
}

static int
read_decoded(Reading *reading, PyObject *decoded)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(decoded); i++) {
        PyObject *pair = PyTuple_GET_ITEM(decoded, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return -1;
        Py_ssize_t place;
        PyObject *item = item_at(reading->bound, PyTuple_GET_ITEM(pair, 0), &place);
        PyObject *made = item == NULL ? NULL : PyObject_CallOneArg(PyTuple_GET_ITEM(pair, 1), item);
        if (made == NULL) return -1;
        PyList_SetItem(reading->bound, place, made);
    }
    return 0;
}

static int
read_tensors(Reading *reading, PyObject *tensors)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tensors); i++) {
        Py_ssize_t place;
        PyObject *item = item_at(reading->bound, PyTuple_GET_ITEM(tensors, i), &place);
        PyObject *value = item == NULL ? NULL : value_of(reading, item);
        if (value == NULL) return -1;
        PyList_SetItem(reading->bound, place, value);
        PyList_SetItem(reading->read, place, Py_NewRef(SLOT(value, Value__meta)));
        if (add_keys(reading, value) < 0) return -1;
    }
    return 0;
}

/* Put values and metas into the places of a list of tensors, or of their numbers, of which there is one at least. */
static int
read_list(Reading *reading, PyObject *items, Py_ssize_t place)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    if (count == 0 && reading->values != NULL) return -1;
    PyObject *held = PyTuple_New(count), *metas = PyTuple_New(count);
    int failed = held == NULL || metas == NULL;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        PyObject *value = reading->values != NULL && !PyLong_CheckExact(item) ? NULL : value_of(reading, item);
        failed = value == NULL || add_keys(reading, value) < 0;
        if (value == NULL) break;
        PyTuple_SET_ITEM(held, i, value);
        PyTuple_SET_ITEM(metas, i, Py_NewRef(SLOT(value, Value__meta)));
    }
    if (failed) {
        Py_XDECREF(held);
        Py_XDECREF(metas);
        return -1;
    }
    PyList_SetItem(reading->bound, place, held);
    PyList_SetItem(reading->read, place, metas);
    return 0;
}

static int
read_lists(Reading *reading, PyObject *items, const Lookup *lookup)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(lookup->lists); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(lookup->lists, i));
        if (place < 0 || place >= PySequence_Fast_GET_SIZE(items)) return -1;
        PyObject *list = PySequence_Fast_GET_ITEM(items, place);
        if (!PyList_CheckExact(list) && !PyTuple_CheckExact(list)) return -1;
        if (PySequence_Fast_GET_SIZE(list) > lookup->longest_list || read_list(reading, list, place) < 0) return -1;
    }
    return 0;
}

/* Append what tells scalars apart that are equal. */
static int
read_numbers(Reading *reading, PyObject *items, const Lookup *lookup)
{
    for (Py_ssize_t i = 0; reading->values != NULL && i < PyTuple_GET_SIZE(lookup->scalars); i++) {
        Py_ssize_t place;
        PyObject *item = item_at(reading->bound, PyTuple_GET_ITEM(lookup->scalars, i), &place);
        int is_set = item == NULL ? -1 : PyObject_IsTrue(item);
        if (is_set < 0) return -1;
        PyObject *told = is_set && !PyComplex_CheckExact(item) ? Py_NewRef((PyObject *)Py_TYPE(item)) : identity_of(item);
        if (append_new(reading->read, told) < 0) return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(lookup->signed_); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(lookup->signed_, i));
        if (place < 0 || place >= PySequence_Fast_GET_SIZE(items)) return -1;
        PyObject *item = PySequence_Fast_GET_ITEM(items, place);
        int is_set = PyObject_IsTrue(item);
        if (is_set < 0 || ((!is_set || PyComplex_CheckExact(item)) && append_new(reading->read, PyObject_Repr(item)) < 0))
            return -1;
    }
    return 0;
}

/* Read the arguments of a call; -1 where they cannot be read, with an error or without one. */
static int
read_call(Reading *reading, PyObject *items, PyObject *table, const Lookup *lookup)
{
    if (!PyTuple_CheckExact(items) && !PyList_CheckExact(items)) return -1;
    if ((reading->bound = PySequence_List(items)) == NULL) return -1;
    if (table != Py_None) {
        reading->values = PyObject_GetAttr(table, text_values);
        if (reading->values == NULL || !PyDict_CheckExact(reading->values)) return -1;
        if (read_decoded(reading, lookup->decoded) < 0) return -1;
    }
    reading->read = PyList_GetSlice(reading->bound, 0, PyList_GET_SIZE(reading->bound));
    if (reading->read == NULL || read_tensors(reading, lookup->tensors) < 0) return -1;
    return read_lists(reading, items, lookup) < 0 ? -1 : read_numbers(reading, items, lookup);
}

/* The key of a call; NULL for an error. */
static PyObject *
key_of_call(const Reading *reading, PyObject *context, const Lookup *lookup)
{
    PyObject *dtype = PyDict_GetItemWithError(the_dtypes, text__default);
    long long included = PyLong_AsLongLong(SLOT(context, Context__included));
    long long excluded = PyLong_AsLongLong(SLOT(context, Context__excluded));
    if (dtype == NULL || PyErr_Occurred()) return NULL;
    PyObject *read = PyList_AsTuple(reading->read), *keys = PyLong_FromLongLong((reading->keys | included) & ~excluded);
    PyObject *key = read == NULL || keys == NULL ? NULL : PyTuple_Pack(4, lookup->marker, dtype, keys, read);
    Py_XDECREF(read);
    Py_XDECREF(keys);
    return key;
}

/* The key of all calls that differ from one in floats that vary, as ``varying.general_key`` makes it; NULL where there is
none, or for an error. */
static PyObject *
general_key(PyObject *key)
{
    PyObject *read = PyTuple_GET_ITEM(key, 3);
    Py_ssize_t count = PyTuple_GET_SIZE(read), first = 0;
    while (first < count && !varies(PyTuple_GET_ITEM(read, first))) first++;
    if (first == count) return NULL;
    PyObject *general = PyTuple_New(count);
    for (Py_ssize_t i = 0; general != NULL && i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(read, i);
        PyTuple_SET_ITEM(general, i, Py_NewRef(varies(item) ? (PyObject *)&PyFloat_Type : item));
    }
    if (general == NULL) return NULL;
    PyObject *whole = PyTuple_Pack(4, PyTuple_GET_ITEM(key, 0), PyTuple_GET_ITEM(key, 1), PyTuple_GET_ITEM(key, 2), general);
    Py_DECREF(general);
    return whole;
}

/* What is kept for calls like one, whatever floats that vary they have; a borrowed reference, NULL for none or an error. */
static PyObject *
general_run(PyObject *runs, PyObject *key)
{
    PyObject *general = general_key(key);
    PyObject *run = general == NULL ? NULL : PyDict_GetItemWithError(runs, general);
    Py_XDECREF(general);
    return run;
}

/* Execute a call that was read, by what is kept for it, or by dispatching it. */
static PyObject *
execute(const Lookup *lookup, PyObject *args, PyObject *key, PyObject *context)
{
    PyObject *runs = SLOT(lookup->operator, Operator__runs), *run = PyDict_GetItemWithError(runs, key);
    if (run == NULL && !PyErr_Occurred() && SLOT(lookup->operator, Operator__reads_numbers) != zero) run = general_run(runs, key);
    if (run == NULL && PyErr_Occurred()) return NULL;
    if (run == NULL || SLOT(context, Context__trace) != Py_None) {
        PyObject *given[] = {lookup->operator, args, key};
        return PyObject_Vectorcall(lookup->dispatch_and_cache, given, 3, NULL);
    }
    Py_INCREF(run);
    PyObject *result = PyObject_CallOneArg(run, args);
    Py_DECREF(run);
    return result;
}

static PyObject *
call_lookup(PyObject *self, PyObject *const *given, size_t flags, PyObject *names)
{
    Lookup *lookup = (Lookup *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count < 1 || count > 2 || (names != NULL && PyTuple_GET_SIZE(names)))
        return PyErr_Format(PyExc_TypeError, "lookup: expected arguments and a table");
    PyObject *both[] = {given[0], count == 2 ? given[1] : Py_None};
    PyObject *context = PyDict_GetItemWithError(the_context, text_current), *args = NULL, *key = NULL, *result = NULL;
    Reading reading = {NULL, NULL, NULL, 0};
    if (context != NULL && IS(context, Context) && read_call(&reading, both[0], both[1], lookup) == 0) {
        key = key_of_call(&reading, context, lookup);
        args = key == NULL ? NULL : both[1] == Py_None && PyTuple_GET_SIZE(lookup->lists) == 0 && PyTuple_CheckExact(both[0])
                                        ? Py_NewRef(both[0]) : PyList_AsTuple(reading.bound);
    }
    Py_XDECREF(reading.bound);
    Py_XDECREF(reading.read);
    Py_XDECREF(reading.values);
    if (args != NULL) {
        Py_INCREF(context);
        result = execute(lookup, args, key, context);
        Py_DECREF(context);
    } else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        result = PyObject_Vectorcall(lookup->uncached, both, 2, NULL);
    }
    Py_XDECREF(args);
    Py_XDECREF(key);
    return result;
}

static int
traverse_lookup(PyObject *self, visitproc visit, void *arg)
{
    Lookup *lookup = (Lookup *)self;
    Py_VISIT(lookup->operator);
    Py_VISIT(lookup->decoded);
    Py_VISIT(lookup->uncached);
    Py_VISIT(lookup->dispatch_and_cache);
    return 0;
}

static void
free_lookup(PyObject *self)
{
    Lookup *lookup = (Lookup *)self;
    PyObject *held[] = {lookup->operator, lookup->tensors, lookup->signed_, lookup->decoded, lookup->scalars, lookup->lists,
                        lookup->uncached, lookup->dispatch_and_cache, lookup->marker};
    PyObject_GC_UnTrack(self);
    for (size_t i = 0; i < Py_ARRAY_LENGTH(held); i++) Py_DECREF(held[i]);
    PyObject_GC_Del(self);
}

static PyTypeObject LookupType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "telegrad.Lookup",
    .tp_doc = "Executes a call; it takes the arguments, and a table of the tensors that they name by numbers.",
    .tp_basicsize = sizeof(Lookup),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(Lookup, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = traverse_lookup,
    .tp_dealloc = free_lookup,
};

/* A lookup by an operator, five tuples of positions (tensors, signed, decoded, scalars, lists), ``uncached``,
``dispatch_and_cache``, and how long lists may be. */
static PyObject *
new_lookup(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    int usual = count == 9 && the_Operator != NULL && IS(given[0], Operator);
    for (int i = 1; usual && i < 6; i++) usual = PyTuple_CheckExact(given[i]);
    if (!usual || !PyDict_CheckExact(SLOT(given[0], Operator__runs)))
        return PyErr_Format(PyExc_TypeError, "lookup: expected an operator and tuples of positions");
    Py_ssize_t longest = PyLong_AsSsize_t(given[8]);
    PyObject *marker = PyErr_Occurred() ? NULL : PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    Lookup *lookup = marker == NULL ? NULL : PyObject_GC_New(Lookup, &LookupType);
    if (lookup == NULL) {
        Py_XDECREF(marker);
        return NULL;
    }
    lookup->vectorcall = call_lookup;
    lookup->operator = Py_NewRef(given[0]);
    lookup->tensors = Py_NewRef(given[1]);
    lookup->signed_ = Py_NewRef(given[2]);
    lookup->decoded = Py_NewRef(given[3]);
    lookup->scalars = Py_NewRef(given[4]);
    lookup->lists = Py_NewRef(given[5]);
    lookup->uncached = Py_NewRef(given[6]);
    lookup->dispatch_and_cache = Py_NewRef(given[7]);
    lookup->marker = marker;
    lookup->longest_list = longest;
    PyObject_GC_Track(lookup);
    return (PyObject *)lookup;
}

/* The classes of arguments, as a tuple. */
static PyObject *
classes_of(PyObject *args)
{
    PyObject *classes = PyTuple_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; classes != NULL && i < PyTuple_GET_SIZE(args); i++)
        PyTuple_SET_ITEM(classes, i, Py_NewRef((PyObject *)Py_TYPE(PyTuple_GET_ITEM(args, i))));
    return classes;
}

/* ``dispatch``: ``first`` dispatches what has no lookup. */
static PyObject *
call_dispatch(PyObject *first, PyObject *const *given, Py_ssize_t count)
{
    if (count != 2 || !IS(given[0], Operator) || !PyTuple_Check(given[1]))
        return PyErr_Format(PyExc_TypeError, "dispatch: expected an operator and a tuple of arguments");
    PyObject *classes = classes_of(given[1]);
    if (classes == NULL) return NULL;
    PyObject *lookup = PyDict_GetItemWithError(SLOT(given[0], Operator__lookups), classes), *result = NULL;
    if (lookup != NULL) {
        Py_INCREF(lookup);
        result = PyObject_CallOneArg(lookup, given[1]);
        Py_DECREF(lookup);
    } else if (!PyErr_Occurred()) {
        PyObject *all[] = {given[0], given[1], classes};
        result = PyObject_Vectorcall(first, all, 3, NULL);
    }
    Py_DECREF(classes);
    return result;
}

static PyMethodDef dispatch_method = {
    "dispatch", (PyCFunction)(void (*)(void))call_dispatch, METH_FASTCALL, "Run an operation on bound arguments.",
};

static PyObject *
bound_to_dispatch(PyObject *module, PyObject *first)
{
    (void)module;
    if (the_Operator == NULL) return PyErr_Format(PyExc_TypeError, "bound_to_dispatch: before prepare_signatures");
    return PyCFunction_New(&dispatch_method, first);
}

#endif
