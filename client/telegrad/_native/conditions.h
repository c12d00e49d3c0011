/* Whether what a compiled function has read is as it was: ``compiler/guarded/conditions.py`` says what is compared, and
 * does so itself wherever this does not find that all is the same. Conditions of a kind lie side by side in a tuple.
 */

#ifndef TELEGRAD_CONDITIONS_H
#define TELEGRAD_CONDITIONS_H

#include <math.h>

#include "operands.h"

/* Whether one object stands for the other: the same one, or a number or text that is equal; zeros have signs. */
static int
is_same(PyObject *value, PyObject *other)
{
    if (value == other) return 1;
    if (value == NULL || Py_TYPE(value) != Py_TYPE(other)) return 0;
    if (PyFloat_CheckExact(value)) {
        double one = PyFloat_AS_DOUBLE(value), two = PyFloat_AS_DOUBLE(other);
        return one == two && signbit(one) == signbit(two);
    }
    if (PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value))
        return PyObject_RichCompareBool(value, other, Py_EQ);
    return 0;
}

/* owner, its class, its dict of attributes or None */
static int
kind_holds(PyObject *const *one)
{
    if ((PyObject *)Py_TYPE(one[0]) != one[1]) return 0;
    if (one[2] == Py_None) return 1;
    PyObject *attributes = PyObject_GenericGetDict(one[0], NULL);
    Py_XDECREF(attributes); /* the object has it, as long as this is compared */
    return attributes == NULL ? -1 : attributes == one[2];
}

/* class, its parents */
static int
parents_hold(PyObject *const *one)
{
    return ((PyTypeObject *)one[0])->tp_mro == one[1];
}

/* what a class has by name, how many these are or their names in order */
static int
members_hold(PyObject *const *one)
{
    if (PyLong_CheckExact(one[1])) return PyObject_Size(one[0]) == PyLong_AsSsize_t(one[1]);
    PyObject *names = PySequence_Tuple(one[0]);
    int same = names == NULL ? -1 : PyTuple_GET_SIZE(names) == PyTuple_GET_SIZE(one[1]);
    for (Py_ssize_t i = 0; same == 1 && i < PyTuple_GET_SIZE(names); i++)
        same = PyTuple_GET_ITEM(names, i) == PyTuple_GET_ITEM(one[1], i);
    Py_XDECREF(names);
    return same;
}

/* function, its code, defaults, and defaults of what is given by name */
static int
code_holds(PyObject *const *one)
{
    PyFunctionObject *function = (PyFunctionObject *)one[0];
    return function->func_code == one[1] && (function->func_defaults ? function->func_defaults : Py_None) == one[2] &&
           (function->func_kwdefaults ? function->func_kwdefaults : Py_None) == one[3];
}

/* Whether a dict has a value for a key; ``the_absent`` stands for none. */
static int
has_entry(PyObject *entries, PyObject *key, PyObject *expected)
{
    PyObject *value = PyDict_GetItemWithError(entries, key);
    if (value == NULL) return PyErr_Occurred() ? -1 : expected == the_absent;
    return is_same(value, expected);
}

/* Whether a dict holds these keys and values and no others, in this order. */
static int
has_content(PyObject *entries, PyObject *keys, PyObject *values)
{
    PyObject *key, *value;
    Py_ssize_t place = 0, count = 0;
    if (PyDict_GET_SIZE(entries) != PyTuple_GET_SIZE(keys)) return 0;
    for (; PyDict_Next(entries, &place, &key, &value); count++)
        if (!is_same(key, PyTuple_GET_ITEM(keys, count)) || !is_same(value, PyTuple_GET_ITEM(values, count))) return 0;
    return 1;
}

/* dict, keys and values of entries in turn, all its keys or None, all its values */
static int
dict_holds(PyObject *const *one)
{
    int same = one[2] == Py_None || has_content(one[0], one[2], one[3]);
    for (Py_ssize_t i = 0; same == 1 && i < PyTuple_GET_SIZE(one[1]); i += 2)
        same = has_entry(one[0], PyTuple_GET_ITEM(one[1], i), PyTuple_GET_ITEM(one[1], i + 1));
    return same;
}

/* list, place from its begin or end, value */
static int
element_holds(PyObject *const *one)
{
    Py_ssize_t size = PyList_GET_SIZE(one[0]), place = PyLong_AsSsize_t(one[1]);
    if (place < 0) place += size;
    return place >= 0 && place < size && is_same(PyList_GET_ITEM(one[0], place), one[2]);
}

/* list, what it holds */
static int
list_holds(PyObject *const *one)
{
    Py_ssize_t place = 0, size = PyTuple_GET_SIZE(one[1]);
    if (PyList_GET_SIZE(one[0]) != size) return 0;
    while (place < size && is_same(PyList_GET_ITEM(one[0], place), PyTuple_GET_ITEM(one[1], place))) place++;
    return place == size;
}

/* variable of an enclosing function, value */
static int
cell_holds(PyObject *const *one)
{
    return is_same(PyCell_GET(one[0]), one[1]);
}

/* tensor, how it lies, whether it requires a gradient, whether it was made in inference mode */
static int
tensor_holds(PyObject *const *one)
{
    PyObject *tensor = one[0];
    if (!is_usual(tensor) || SLOT(tensor, Tensor___meta) != one[1]) return 0;
    if (SLOT(tensor, Tensor___requires_grad) != one[2] || !is_current(tensor)) return 0;
    PyObject *is_inference = PyObject_GetAttr(tensor, text__is_inference);
    Py_XDECREF(is_inference);
    return is_inference == NULL ? -1 : is_inference == one[3];
}

/* owner, name, value or the function of a method, what the method belongs to or what stands for none */
static int
attribute_holds(PyObject *const *one)
{
    PyObject *value = PyObject_GetAttr(one[0], one[1]);
    if (value == NULL) return -1;
    int same = one[3] == the_absent ? is_same(value, one[2])
                                    : PyMethod_Check(value) && PyMethod_GET_FUNCTION(value) == one[2] &&
                                          PyMethod_GET_SELF(value) == one[3];
    Py_DECREF(value);
    return same;
}

/* Kinds of conditions, and of how many objects each consists: the order is that of ``KINDS`` in ``conditions.py``. What
 * tells which attributes an object has comes before these.
 */
static const struct {
    int (*holds)(PyObject *const *);
    Py_ssize_t size;
} kinds[] = {
    {kind_holds, 3}, {parents_hold, 2}, {members_hold, 2}, {code_holds, 4},   {dict_holds, 4},
    {list_holds, 2}, {element_holds, 3}, {cell_holds, 2},  {tensor_holds, 4}, {attribute_holds, 4},
};
#define KINDS (Py_ssize_t)(sizeof(kinds) / sizeof(*kinds))
#define OF_DICTS 4

/* A number that a dict has for as long as nothing in it is changed, where this interpreter counts that; else 0. */
static uint64_t
version_of(PyObject *entries)
{
#if PY_VERSION_HEX < 0x030D0000
    return ((PyDictObject *)entries)->ma_version_tag;
#else
    return 0;
#endif
}

/* Whether dicts hold what they did; ``versions`` has what they were when that was looked at last. */
static int
dicts_hold(PyObject *group, uint64_t *versions)
{
    for (Py_ssize_t i = 0, size = kinds[OF_DICTS].size; i < PyTuple_GET_SIZE(group); i += size, versions++) {
        PyObject *const *one = &PyTuple_GET_ITEM(group, i);
        uint64_t version = version_of(one[0]); /* before it is looked at, which may change it */
        if (version == *versions && version) continue;
        int holds = dict_holds(one);
        if (holds != 1) return holds;
        *versions = version;
    }
    return 1;
}

static int
group_holds(PyObject *group, Py_ssize_t kind)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(group); i += kinds[kind].size) {
        int holds = kinds[kind].holds(&PyTuple_GET_ITEM(group, i));
        if (holds != 1) return holds;
    }
    return 1;
}

/* Whether all conditions hold, given those of each kind and eight bytes for each dict; False also where that is for
 * Python to say.
 */
static PyObject *
hold(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    int usual = count == 2 && PyTuple_CheckExact(args[0]) && PyByteArray_CheckExact(args[1]);
    if (usual) usual = PyTuple_GET_SIZE(args[0]) == KINDS;
    PyObject *const *groups = usual ? &PyTuple_GET_ITEM(args[0], 0) : NULL;
    if (usual) usual = 2 * PyTuple_GET_SIZE(groups[OF_DICTS]) == PyByteArray_GET_SIZE(args[1]);
    if (!usual) return PyErr_Format(PyExc_TypeError, "hold: expected a tuple for each kind, and bytes for each dict");
    int holds = 1;
    for (Py_ssize_t kind = 0; holds == 1 && kind < KINDS; kind++)
        holds = kind == OF_DICTS ? dicts_hold(groups[kind], (uint64_t *)PyByteArray_AS_STRING(args[1]))
                                 : group_holds(groups[kind], kind);
    return holds < 0 || PyErr_Occurred() ? NULL : PyBool_FromLong(holds);
}

#endif
