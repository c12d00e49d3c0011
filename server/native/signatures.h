/* What is kept for calls is found by signatures, as the engine's ``signature.py`` makes them and ``remembered.py`` weighs
them. */

#ifndef TELEGRAD_SIGNATURES_H
#define TELEGRAD_SIGNATURES_H

#include "values.h"

#define SIGNATURE_CLASSES(X) X(Operator) X(DType) X(Tables)

#define SIGNATURE_SLOTS(X)                                                                                             \
    X(Operator, first_attribute) X(Operator, is_unary) X(Operator, leading_tensors) X(Operator, middle_is_plain)       \
    X(Operator, scalar_attributes) X(Context, included) X(Context, excluded) X(Tables, by_domain) X(Tables, weight)

/* What else ``prepare_signatures`` is given: functions of Python, the names of the module ``dtypes``, and constants. */
#define SIGNATURE_OBJECTS(X) X(signature_of) X(metas_of) X(dtypes) X(domain_shift)
#define SIGNATURE_TEXTS(X) X(_default)

#define OPERANDS_OF_AN_ENTRY 16 /* as ``remembered`` has it */

SIGNATURE_SLOTS(DECLARE_SLOT)
SIGNATURE_CLASSES(DECLARE_OBJECT)
SIGNATURE_OBJECTS(DECLARE_OBJECT)
SIGNATURE_TEXTS(DECLARE_TEXT)
static long domain_shift;

static int
take_signatures(PyObject *given)
{
    PyObject *value;
    SIGNATURE_CLASSES(TAKE)
    SIGNATURE_OBJECTS(TAKE)
    SIGNATURE_SLOTS(FIND)
    SIGNATURE_TEXTS(INTERN)
    domain_shift = PyLong_AsLong(the_domain_shift);
    return PyErr_Occurred() ? -1 : 0;
}

/* How many items there are in nested tuples; -1 for an error. */
static Py_ssize_t
count_items(PyObject *items)
{
    if (Py_EnterRecursiveCall(" while items are counted")) return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    for (Py_ssize_t i = 0, length = count; i < length && count >= 0; i++) {
        if (!PyTuple_CheckExact(PyTuple_GET_ITEM(items, i))) continue;
        Py_ssize_t held = count_items(PyTuple_GET_ITEM(items, i));
        count = held < 0 ? -1 : count + held;
    }
    Py_LeaveRecursiveCall();
    return count;
}

/* Whether something of these items is a value, or a tuple that may hold one. */
static int
may_hold_values(PyObject *items)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++)
        if (IS(PyTuple_GET_ITEM(items, i), Value) || PyTuple_CheckExact(PyTuple_GET_ITEM(items, i))) return 1;
    return 0;
}

/* Arguments with metas in place of values, also of those in tuples; NULL for an error. */
static PyObject *
metas_in_place(PyObject *args)
{
    if (Py_EnterRecursiveCall(" while metas are read")) return NULL;
    PyObject *metas = PyTuple_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; metas != NULL && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *arg = PyTuple_GET_ITEM(args, i);
        PyObject *read = IS(arg, Value)                                    ? Py_XNewRef(SLOT(arg, Value__meta))
                         : PyTuple_CheckExact(arg) && may_hold_values(arg) ? metas_in_place(arg)
                                                                           : Py_NewRef(arg);
        if (read == NULL) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_AttributeError, "meta");
            Py_CLEAR(metas);
        } else PyTuple_SET_ITEM(metas, i, read);
    }
    Py_LeaveRecursiveCall();
    return metas;
}

/* What tells a number apart from others that are equal: ``number_identity``. */
static PyObject *
identity_of(PyObject *item)
{
    if (PyFloat_CheckExact(item) || PyComplex_CheckExact(item)) return PyObject_Repr(item);
    return Py_NewRef((PyObject *)Py_TYPE(item));
}

/* Append the meta of a value, and add its keys; -1 for an error. */
static int
append_value(PyObject *items, PyObject *value, long long *keys)
{
    PyObject *meta = SLOT(value, Value__meta), *its = SLOT(value, Value__keys);
    if (meta == NULL || its == NULL) {
        PyErr_SetString(PyExc_AttributeError, "meta");
        return -1;
    }
    *keys |= PyLong_AsLongLong(its);
    return PyErr_Occurred() ? -1 : PyList_Append(items, meta);
}

/* Append the metas of a tuple of values; 0 where it holds something else, -1 for an error. */
static int
append_values(PyObject *items, PyObject *values, long long *keys)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++)
        if (!IS(PyTuple_GET_ITEM(values, i), Value)) return 0;
    PyObject *metas = PyList_New(0);
    int failed = metas == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(values); i++)
        failed = append_value(metas, PyTuple_GET_ITEM(values, i), keys) < 0;
    if (!failed) failed = append_new(items, PyList_AsTuple(metas)) < 0;
    Py_XDECREF(metas);
    return failed ? -1 : 1;
}

/* Describe all arguments but the attributes; 0 where that is Python's, -1 for an error. */
static int
describe_tensors(PyObject *operator, PyObject *args, PyObject *items, long long *keys)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args), leading = number_in(operator, Operator__leading_tensors);
    PyObject *plain = SLOT(operator, Operator__middle_is_plain);
    for (Py_ssize_t i = 0; i < count && i < leading; i++) {
        PyObject *arg = PyTuple_GET_ITEM(args, i);
        if (IS(arg, Value)) {
            if (append_value(items, arg, keys) < 0) return -1;
        } else if (PyList_Append(items, arg) < 0 || (arg != Py_None && append_new(items, identity_of(arg)) < 0))
            return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(plain) && leading + i < count; i++) {
        PyObject *arg = PyTuple_GET_ITEM(args, leading + i);
        int described = 1;
        if (IS(arg, Value)) described = append_value(items, arg, keys) < 0 ? -1 : 1;
        else if (PyTuple_GET_ITEM(plain, i) == Py_True || arg == Py_None)
            described = PyList_Append(items, arg) < 0 ? -1 : 1;
        else described = PyTuple_CheckExact(arg) ? append_values(items, arg, keys) : 0;
        if (described < 1) return described;
    }
    return 1;
}

/* Append the attributes, and what tells their scalars apart; -1 for an error. */
static int
describe_attributes(PyObject *operator, PyObject *args, PyObject *items)
{
    Py_ssize_t count = PyTuple_GET_SIZE(args), first = number_in(operator, Operator__first_attribute);
    PyObject *scalars = SLOT(operator, Operator__scalar_attributes);
    if (first >= count) return 0;
    if (append_new(items, PyTuple_GetSlice(args, first, count)) < 0) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(scalars); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(scalars, i));
        PyObject *arg = PyTuple_GetItem(args, place);
        int is_set = arg == NULL ? -1 : PyObject_IsTrue(arg);
        if (is_set < 0) return -1;
        PyObject *told = is_set && !PyComplex_CheckExact(arg) ? Py_NewRef((PyObject *)Py_TYPE(arg)) : identity_of(arg);
        if (append_new(items, told) < 0) return -1;
    }
    return 0;
}

/* A key set without domain, and a signature, in a tuple. */
static PyObject *
with_keys(long long keys, PyObject *signature)
{
    if (signature == NULL) return NULL;
    return Py_BuildValue("LN", keys & ((1LL << domain_shift) - 1), signature);
}

/* ``signature_of``; Python does what C has not described. */
static PyObject *
call_signature_of(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    PyObject *context = PyDict_GetItemWithError(the_context, text_current);
    PyObject *dtype = PyDict_GetItemWithError(the_dtypes, text__default), *operator = count == 2 ? given[0] : NULL;
    if (context == NULL || dtype == NULL || operator == NULL || !IS(context, Context) || !IS(operator, Operator) ||
        !PyTuple_CheckExact(given[1]))
        return PyObject_Vectorcall(the_signature_of, given, count, NULL);
    PyObject *args = given[1];
    long long keys = PyLong_AsLongLong(SLOT(context, Context__included));
    long long excluded = PyLong_AsLongLong(SLOT(context, Context__excluded));
    if (PyErr_Occurred()) return NULL;
    if (IS_TRUE(operator, Operator__is_unary)) {
        PyObject *value = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : Py_None;
        if (!IS(value, Value) || SLOT(value, Value__meta) == NULL || SLOT(value, Value__keys) == NULL)
            return PyObject_Vectorcall(the_signature_of, given, count, NULL);
        keys = (keys | PyLong_AsLongLong(SLOT(value, Value__keys))) & ~excluded;
        if (PyErr_Occurred()) return NULL;
        return with_keys(keys, Py_BuildValue("OLON", dtype, keys >> domain_shift, SLOT(value, Value__meta),
                                             PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args))));
    }
    PyObject *items = Py_BuildValue("[OL]", dtype, keys >> domain_shift), *result = NULL;
    if (items == NULL) return NULL;
    int described = describe_tensors(operator, args, items, &keys);
    if (described == 0) result = PyObject_Vectorcall(the_signature_of, given, count, NULL);
    else if (described > 0 && describe_attributes(operator, args, items) == 0)
        result = with_keys(keys & ~excluded, PyList_AsTuple(items));
    Py_DECREF(items);
    return result;
}

/* ``metas_of``. */
static PyObject *
call_metas_of(PyObject *module, PyObject *args)
{
    (void)module;
    return PyTuple_CheckExact(args) ? metas_in_place(args) : PyObject_CallOneArg(the_metas_of, args);
}

/* ``remembered._items_in``. */
static PyObject *
call_count_items(PyObject *module, PyObject *items)
{
    (void)module;
    if (!PyTuple_CheckExact(items)) return PyErr_Format(PyExc_TypeError, "count_items: expected a tuple, got %R", items);
    Py_ssize_t count = count_items(items);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

/* ``remembered._domain_of``. */
static PyObject *
call_domain_of(PyObject *module, PyObject *key)
{
    (void)module;
    if (the_Operator == NULL) return PyErr_Format(PyExc_TypeError, "domain_of: before prepare_signatures");
    while (PyTuple_CheckExact(key) && PyTuple_GET_SIZE(key) >= 2) {
        PyObject *first = PyTuple_GET_ITEM(key, 0);
        if (IS(first, DType)) return Py_NewRef(PyTuple_GET_ITEM(key, 1));
        if (!PyTuple_CheckExact(first)) {
            PyObject *keys = PyType_Check(first) ? NULL : PySequence_GetItem(key, 2);
            if (keys == NULL) return PyType_Check(first) ? PyLong_FromLong(0) : NULL;
            Py_SETREF(keys, PyNumber_Long(keys));
            return apply(PyNumber_Rshift, keys, Py_NewRef(the_domain_shift));
        }
        key = first;
    }
    return PyLong_FromLong(0);
}

/* ``Tables.count``: an entry of a table has come, or gone. */
static PyObject *
call_count_entry(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    long long weight = count == 3 ? PyLong_AsLongLong(given[2]) : 0;
    if (the_Tables == NULL || count != 3 || !IS(given[0], Tables) || !PyDict_Check(SLOT(given[0], Tables__by_domain)))
        return PyErr_Format(PyExc_TypeError, "count_entry: expected tables, a key and a sign, after prepare_signatures");
    if (PyTuple_CheckExact(given[1])) {
        Py_ssize_t items = count_items(given[1]);
        if (items < 0) return NULL;
        weight *= 1 + items / OPERANDS_OF_AN_ENTRY;
    }
    PyObject *added = PyErr_Occurred() ? NULL : PyLong_FromLongLong(weight), *domain = call_domain_of(module, given[1]);
    PyObject *before = domain == NULL ? NULL : PyDict_GetItemWithError(SLOT(given[0], Tables__by_domain), domain), *sum = NULL;
    if (added != NULL && !PyErr_Occurred()) sum = PyNumber_Add(before == NULL ? zero : before, added);
    int failed = sum == NULL || PyDict_SetItem(SLOT(given[0], Tables__by_domain), domain, sum) < 0 ||
                 add_to(given[0], Tables__weight, added) < 0;
    Py_XDECREF(added);
    Py_XDECREF(domain);
    Py_XDECREF(sum);
    return none_unless(failed);
}

#endif
