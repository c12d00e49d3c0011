/* Arrays over the memory of the host, as the engine's ``device/cpu_backend.py`` makes them, and kernels that are called with
arrays, as ``direct_runs.py`` has them. */

#ifndef TELEGRAD_ARRAYS_H
#define TELEGRAD_ARRAYS_H

#include "values.h"

#define ARRAY_CLASSES(X) X(CpuBackend)
#define ARRAY_SLOTS(X) X(Segment, buffer)
#define ARRAY_OBJECTS(X) X(ndarray) X(layout_of)
#define ARRAY_TEXTS(X) X(array)

ARRAY_SLOTS(DECLARE_SLOT)
ARRAY_CLASSES(DECLARE_OBJECT)
ARRAY_OBJECTS(DECLARE_OBJECT)
ARRAY_TEXTS(DECLARE_TEXT)

#define MOST_ARGUMENTS 24
#define MOST_LAYOUTS 4096
static PyObject *known_layouts;

static int
take_arrays(PyObject *given)
{
    PyObject *value;
    ARRAY_CLASSES(TAKE)
    ARRAY_OBJECTS(TAKE)
    ARRAY_SLOTS(FIND)
    ARRAY_TEXTS(INTERN)
    Py_XSETREF(known_layouts, PyDict_New());
    return known_layouts == NULL ? -1 : 0;
}

/* What ``layout_of`` returns. */
enum { LAYOUT_SHAPE, LAYOUT_DTYPE, LAYOUT_STRIDES, LAYOUT_OFFSET, LAYOUT_FIELDS };

/* How arrays of a meta are laid out; NULL for an error. */
static PyObject *
layout_of(PyObject *meta)
{
    PyObject *layout = Py_XNewRef(PyDict_GetItemWithError(known_layouts, meta));
    if (layout != NULL || PyErr_Occurred()) return layout;
    layout = PyObject_CallOneArg(the_layout_of, meta);
    if (layout == NULL) return NULL;
    if (!PyTuple_CheckExact(layout) || PyTuple_GET_SIZE(layout) != LAYOUT_FIELDS) {
        PyErr_Format(PyExc_TypeError, "layout_of: expected a shape, a type, strides and an offset, got %R", layout);
        Py_CLEAR(layout);
    }
    if (PyDict_GET_SIZE(known_layouts) >= MOST_LAYOUTS) PyDict_Clear(known_layouts);
    if (layout != NULL && PyDict_SetItem(known_layouts, meta, layout) < 0) Py_CLEAR(layout);
    return layout;
}

/* A new array over the memory of a block; NULL for an error. */
static PyObject *
array_over(PyObject *block, PyObject *meta)
{
    PyObject *layout = layout_of(meta);
    PyObject *offset = layout == NULL ? NULL : PyNumber_Add(SLOT(block, Block__offset), PyTuple_GET_ITEM(layout, LAYOUT_OFFSET));
    PyObject *array = NULL;
    if (offset != NULL) {
        PyObject *strides = PyTuple_GET_ITEM(layout, LAYOUT_STRIDES);
        PyObject *all[] = {PyTuple_GET_ITEM(layout, LAYOUT_SHAPE), PyTuple_GET_ITEM(layout, LAYOUT_DTYPE),
                           SLOT(SLOT(block, Block__segment), Segment__buffer), offset, strides};
        array = PyObject_Vectorcall(the_ndarray, all, 5, NULL);
        if (array != NULL && strides == Py_None && IS_TRUE(block, Block__is_stable)) {
            PUT_SAME(block, Block__array, array);
            PUT_SAME(block, Block__meta, meta);
        }
    }
    Py_XDECREF(offset);
    Py_XDECREF(layout);
    return array;
}

/* Whether C can make the array of a value. */
static int
is_on_host(PyObject *value)
{
    PyObject *storage = SLOT(value, Value__storage), *backend = SLOT(value, Value__backend);
    if (storage == NULL || backend == NULL || SLOT(value, Value__meta) == NULL || !IS(storage, Storage) || !IS(backend, CpuBackend))
        return 0;
    PyObject *block = SLOT(storage, Storage__block);
    return block != NULL && IS(block, Block) && SLOT(block, Block__is_stable) != NULL && SLOT(block, Block__offset) != NULL &&
           SLOT(block, Block__segment) != NULL && PyObject_TypeCheck(SLOT(block, Block__segment), (PyTypeObject *)the_Segment) &&
           SLOT(SLOT(block, Block__segment), Segment__buffer) != NULL;
}

/* ``value.array``; NULL for an error. */
static PyObject *
array_of(PyObject *value)
{
    if (!IS(value, Value)) return PyObject_GetAttr(value, text_array);
    PyObject *known = SLOT(value, Value___array);
    if (known != NULL && known != Py_None) return Py_NewRef(known);
    if (known == NULL || !is_on_host(value)) return PyObject_GetAttr(value, text_array);
    PyObject *block = SLOT(SLOT(value, Value__storage), Storage__block), *meta = SLOT(value, Value__meta);
    int is_same = SLOT(block, Block__meta) == meta && IS_TRUE(block, Block__is_stable) && SLOT(block, Block__array) != NULL;
    PyObject *array = is_same ? Py_NewRef(SLOT(block, Block__array)) : array_over(block, meta);
    if (array != NULL) PUT_SAME(value, Value___array, array);
    return array;
}

/* The arrays of all values of a tuple, as a tuple; NULL for an error. */
static PyObject *
arrays_of(PyObject *values)
{
    PyObject *arrays = PyTuple_New(PyTuple_GET_SIZE(values));
    for (Py_ssize_t i = 0; arrays != NULL && i < PyTuple_GET_SIZE(values); i++) {
        PyObject *array = array_of(PyTuple_GET_ITEM(values, i));
        if (array == NULL) Py_CLEAR(arrays);
        else PyTuple_SET_ITEM(arrays, i, array);
    }
    return arrays;
}

/* What a kernel is called with: the function, its positional arguments, pairs of a place among them and of the operand whose
array belongs there, or arrays of a list, the names of keywords, of which ``out`` is the last, the values of the others, and whether it has one result.
In place also: operands which must not share memory with the first one, and what is called where one does. */
enum { KERNEL_FUNCTION, KERNEL_ARGUMENTS, KERNEL_PLACES, KERNEL_NAMES, KERNEL_VALUES, KERNEL_IS_SINGLE, KERNEL_FIELDS,
       KERNEL_APART = KERNEL_FIELDS, KERNEL_OTHERWISE, IN_PLACE_FIELDS };

static int
is_kernel(PyObject *bound, Py_ssize_t fields)
{
    if (!PyTuple_CheckExact(bound) || PyTuple_GET_SIZE(bound) != fields) return 0;
    for (int i = KERNEL_ARGUMENTS; i <= KERNEL_VALUES; i++)
        if (!PyTuple_CheckExact(PyTuple_GET_ITEM(bound, i))) return 0;
    PyObject *arguments = PyTuple_GET_ITEM(bound, KERNEL_ARGUMENTS), *places = PyTuple_GET_ITEM(bound, KERNEL_PLACES);
    if (PyTuple_GET_SIZE(places) > MOST_ARGUMENTS) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); i++) {
        PyObject *pair = PyTuple_GET_ITEM(places, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return 0;
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 0)), operand = PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 1));
        if (PyErr_Occurred()) PyErr_Clear();
        if (place < 0 || operand < 0 || place >= PyTuple_GET_SIZE(arguments)) return 0;
    }
    Py_ssize_t names = PyTuple_GET_SIZE(PyTuple_GET_ITEM(bound, KERNEL_NAMES));
    return names == PyTuple_GET_SIZE(PyTuple_GET_ITEM(bound, KERNEL_VALUES)) + 1 &&
           PyTuple_GET_SIZE(arguments) + names <= MOST_ARGUMENTS;
}

/* Call a kernel on arrays of operands, which writes into ``out``; -1 for an error. */
static int
call_kernel(PyObject *bound, PyObject *args, PyObject *out)
{
    PyObject *arguments = PyTuple_GET_ITEM(bound, KERNEL_ARGUMENTS), *places = PyTuple_GET_ITEM(bound, KERNEL_PLACES);
    PyObject *values = PyTuple_GET_ITEM(bound, KERNEL_VALUES), *all[MOST_ARGUMENTS], *held[MOST_ARGUMENTS];
    Py_ssize_t count = PyTuple_GET_SIZE(arguments), given = PyTuple_GET_SIZE(values), made = 0;
    for (Py_ssize_t i = 0; i < count; i++) all[i] = PyTuple_GET_ITEM(arguments, i);
    for (Py_ssize_t i = 0; i < given; i++) all[count + i] = PyTuple_GET_ITEM(values, i);
    all[count + given] = out;
    int failed = 0;
    for (; !failed && made < PyTuple_GET_SIZE(places); made += !failed) {
        PyObject *pair = PyTuple_GET_ITEM(places, made);
        Py_ssize_t operand = PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 1));
        PyObject *array = NULL;
        PyObject *given_there = operand < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, operand) : NULL;
        if (given_there != NULL) array = PyTuple_CheckExact(given_there) ? arrays_of(given_there) : array_of(given_there);
        else PyErr_SetString(PyExc_IndexError, "a kernel was called with too few arguments");
        failed = array == NULL;
        if (!failed) held[made] = all[PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 0))] = array;
    }
    if (!failed)
        failed = done(PyObject_Vectorcall(PyTuple_GET_ITEM(bound, KERNEL_FUNCTION), all, count, PyTuple_GET_ITEM(bound, KERNEL_NAMES))) < 0;
    while (made) Py_DECREF(held[--made]);
    return failed ? -1 : 0;
}

/* What ``bound_to_kernel`` returns: a launch, which takes the arguments and the values to write into. */
static PyObject *
call_launch(PyObject *bound, PyObject *const *both, Py_ssize_t count)
{
    int is_single = PyTuple_GET_ITEM(bound, KERNEL_IS_SINGLE) == Py_True;
    if (count != 2 || !PyTuple_CheckExact(both[0]) || !PyTuple_CheckExact(both[1]) || PyTuple_GET_SIZE(both[1]) < is_single) {
        PyErr_SetString(PyExc_TypeError, "a launch takes the arguments and the values to write into");
        return NULL;
    }
    PyObject *out = is_single ? array_of(PyTuple_GET_ITEM(both[1], 0)) : arrays_of(both[1]);
    if (out == NULL) return NULL;
    int failed = call_kernel(bound, both[0], out);
    Py_DECREF(out);
    return none_unless(failed);
}

/* Whether an operand that must lie elsewhere shares the memory of the first one. */
static int
may_clash(PyObject *bound, PyObject *args)
{
    PyObject *target = PyTuple_GET_ITEM(args, 0), *apart = PyTuple_GET_ITEM(bound, KERNEL_APART);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(apart); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(apart, i));
        PyObject *other = place < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, place) : NULL;
        if (other == NULL || !IS(other, Value) || SLOT(other, Value__storage) == SLOT(target, Value__storage)) return 1;
    }
    return 0;
}

/* What ``bound_in_place`` returns: a run, which writes the first operand and returns it. */
static PyObject *
call_in_place(PyObject *bound, PyObject *args)
{
    int usual = PyTuple_CheckExact(args) && PyTuple_GET_SIZE(args) && IS(PyTuple_GET_ITEM(args, 0), Value);
    if (!usual || may_clash(bound, args)) return PyObject_CallOneArg(PyTuple_GET_ITEM(bound, KERNEL_OTHERWISE), args);
    PyObject *target = PyTuple_GET_ITEM(args, 0), *out = array_of(target);
    if (out == NULL) return NULL;
    int failed = call_kernel(bound, args, out);
    Py_DECREF(out);
    if (failed || add_to(SLOT(target, Value__storage), Storage__version, one) < 0) return NULL;
    return Py_NewRef(target);
}

static PyMethodDef launch_method = {
    "launch", (PyCFunction)(void (*)(void))call_launch, METH_FASTCALL, "Have a kernel write into values.",
};
static PyMethodDef in_place_method = {"run", call_in_place, METH_O, "Execute an operation in place."};

static PyObject *
bound_to_kernel(PyObject *module, PyObject *bound)
{
    (void)module;
    if (known_layouts != NULL && is_kernel(bound, KERNEL_FIELDS)) return PyCFunction_New(&launch_method, bound);
    PyErr_SetString(PyExc_TypeError, "bound_to_kernel: expected a function and what it is called with, after prepare_arrays");
    return NULL;
}

static PyObject *
bound_in_place(PyObject *module, PyObject *bound)
{
    (void)module;
    int usual = known_layouts != NULL && is_kernel(bound, IN_PLACE_FIELDS) && PyTuple_CheckExact(PyTuple_GET_ITEM(bound, KERNEL_APART));
    for (Py_ssize_t i = 0; usual && i < PyTuple_GET_SIZE(PyTuple_GET_ITEM(bound, KERNEL_APART)); i++)
        usual = PyLong_CheckExact(PyTuple_GET_ITEM(PyTuple_GET_ITEM(bound, KERNEL_APART), i));
    if (usual) return PyCFunction_New(&in_place_method, bound);
    PyErr_SetString(PyExc_TypeError, "bound_in_place: expected a function, what it is called with, places and a run, after prepare_arrays");
    return NULL;
}

static PyObject *
prepare_arrays(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || the_Value == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_arrays: expected a dict, after prepare_values");
        return NULL;
    }
    return none_unless(take_arrays(given));
}

#endif
