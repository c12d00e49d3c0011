/* What runs of programs take and leave, as the engine's ``programs/described.py`` and the session's ``compiled.py`` have it.

Everything is looked at before anything is changed; False or None tell that Python is to do it. */

#ifndef TELEGRAD_RUNS_H
#define TELEGRAD_RUNS_H

#include "autograd.h"

#define OUTPUT_SIZE 5 /* of an ``Output``: number, memory, meta, base, origin */
#define MEMORY_SIZE 3 /* of a ``Memory``: block, nbytes, version */
#define ROW_SIZE 3    /* of a row: a place, the number of an output or -1, and keys */

static int
is_plain_value(PyObject *value)
{
    return IS(value, Value) && SLOT(value, Value__storage) != NULL && IS(SLOT(value, Value__storage), Storage) &&
           SLOT(SLOT(value, Value__storage), Storage__block) != NULL;
}

/* The blocks that values lie in, as a tuple; None where something is no value over storage of its own. */
static PyObject *
blocks_of(PyObject *values)
{
    PyObject *sequence = PySequence_Fast(values, "blocks_of: expected values");
    if (sequence == NULL) return NULL;
    Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
    PyObject *blocks = PyTuple_New(size);
    for (Py_ssize_t i = 0; blocks != NULL && i < size; i++) {
        PyObject *value = PySequence_Fast_GET_ITEM(sequence, i);
        if (!is_plain_value(value)) {
            Py_SETREF(blocks, Py_NewRef(Py_None));
            break;
        }
        PyTuple_SET_ITEM(blocks, i, Py_NewRef(SLOT(SLOT(value, Value__storage), Storage__block)));
    }
    Py_DECREF(sequence);
    return blocks;
}

/* Storage of a backend over a block, that gives it back in the end. */
static PyObject *
storage_over(PyObject *backend, PyObject *block, PyObject *nbytes, PyObject *version)
{
    PyObject *storage = PyBaseObject_Type.tp_new((PyTypeObject *)the_Storage, no_arguments, NULL);
    if (storage == NULL) return NULL;
    SLOT(storage, Storage__backend) = Py_NewRef(backend);
    SLOT(storage, Storage__block) = Py_NewRef(block);
    SLOT(storage, Storage__nbytes) = Py_NewRef(nbytes);
    SLOT(storage, Storage__version) = Py_NewRef(version);
    SLOT(storage, Storage__keeper) = Py_NewRef(Py_None);
    return storage;
}

/* Storages of a backend over memory that a launch has left, as a list. */
static PyObject *
storages_over(PyObject *backend, PyObject *memories)
{
    PyObject *made = PyList_New(PyTuple_GET_SIZE(memories));
    for (Py_ssize_t i = 0; made != NULL && i < PyTuple_GET_SIZE(memories); i++) {
        PyObject *one = PyTuple_GET_ITEM(memories, i), *storage = NULL;
        if (PyTuple_Check(one) && PyTuple_GET_SIZE(one) == MEMORY_SIZE)
            storage = storage_over(backend, PyTuple_GET_ITEM(one, 0), PyTuple_GET_ITEM(one, 1), PyTuple_GET_ITEM(one, 2));
        else PyErr_SetString(PyExc_TypeError, "storages_over: expected blocks, sizes and versions");
        if (storage == NULL) Py_CLEAR(made);
        else PyList_SET_ITEM(made, i, storage);
    }
    return made;
}

/* Whether an output is a value over memory that an execution has left, as its first result there. */
static int
is_plain_output(PyObject *output, Py_ssize_t place, Py_ssize_t given, Py_ssize_t made)
{
    if (!PyTuple_Check(output) || PyTuple_GET_SIZE(output) != OUTPUT_SIZE) return 0;
    if (PyTuple_GET_ITEM(output, 2) == Py_None || PyTuple_GET_ITEM(output, 3) != Py_None) return 0;
    Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(output, 0));
    Py_ssize_t memory = PyLong_AsSsize_t(PyTuple_GET_ITEM(output, 1));
    return number == place && memory >= given && memory < given + made;
}

/* Results over the memory that an execution of so many inputs has left, as a tuple; None where one is an input, a view, or
the same as one before. */
static PyObject *
values_over(PyObject *outputs, Py_ssize_t given, PyObject *storages)
{
    Py_ssize_t size = PyTuple_GET_SIZE(outputs), made = PyList_GET_SIZE(storages);
    for (Py_ssize_t i = 0; i < size; i++)
        if (!is_plain_output(PyTuple_GET_ITEM(outputs, i), i, given, made)) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyObject *results = PyTuple_New(size);
    for (Py_ssize_t i = 0; results != NULL && i < size; i++) {
        PyObject *output = PyTuple_GET_ITEM(outputs, i);
        Py_ssize_t memory = PyLong_AsSsize_t(PyTuple_GET_ITEM(output, 1)) - given;
        PyObject *value = value_over(PyList_GET_ITEM(storages, memory), PyTuple_GET_ITEM(output, 2));
        if (value == NULL) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, value);
    }
    return results;
}

/* The output that a row tells of, which is borrowed; None for nothing, and NULL where that is no plain value. */
static PyObject *
output_of(PyObject *row, PyObject *outputs)
{
    Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 1));
    if (number == -1) return PyErr_Occurred() ? NULL : Py_None;
    PyObject *value = number >= 0 && number < PyTuple_GET_SIZE(outputs) ? PyTuple_GET_ITEM(outputs, number) : NULL;
    return value != NULL && IS(value, Value) && SLOT(value, Value__base) == Py_None ? value : NULL;
}

static int
are_plain(PyObject *rows, PyObject *outputs)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        if (!PyTuple_CheckExact(row) || PyTuple_GET_SIZE(row) != ROW_SIZE || output_of(row, outputs) == NULL) return 0;
    }
    return 1;
}

/* What slots name after a run, as a list of pairs, given rows of slots; None where Python is to say it. */
static PyObject *
named_by(PyObject *rows, PyObject *outputs)
{
    if (!are_plain(rows, outputs)) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyObject *pairs = PyList_New(PyTuple_GET_SIZE(rows));
    for (Py_ssize_t i = 0; pairs != NULL && i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i), *value = output_of(row, outputs);
        if (value != Py_None) PUT_SAME(value, Value__keys, PyTuple_GET_ITEM(row, 2));
        PyObject *pair = PyTuple_Pack(2, PyTuple_GET_ITEM(row, 0), value);
        if (pair == NULL) Py_CLEAR(pairs);
        else PyList_SET_ITEM(pairs, i, pair);
    }
    return pairs;
}

/* What autograd knows of the value that a row of places tells of; NULL where it knows nothing yet. */
static PyObject *
autograd_of(PyObject *row, PyObject *values)
{
    Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 0));
    PyObject *value = place >= 0 && place < PyList_GET_SIZE(values) ? PyList_GET_ITEM(values, place) : NULL;
    PyObject *meta = value != NULL && IS(value, Value) ? SLOT(value, Value__autograd) : NULL;
    return meta != NULL && IS(meta, AutogradMeta) ? meta : NULL;
}

/* Give values the gradients that rows of places tell of; 0 where Python is to do it. Those before die when all are given. */
static int
give_gradients(PyObject *values, PyObject *rows, PyObject *outputs)
{
    if (!are_plain(rows, outputs)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); i++)
        if (autograd_of(PyTuple_GET_ITEM(rows, i), values) == NULL) return 0;
    PyObject *before = PyList_New(PyTuple_GET_SIZE(rows));
    for (Py_ssize_t i = 0; before != NULL && i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i), *gradient = output_of(row, outputs);
        if (gradient != Py_None) PUT_SAME(gradient, Value__keys, PyTuple_GET_ITEM(row, 2));
        PyObject *meta = autograd_of(row, values);
        PyList_SET_ITEM(before, i, SLOT(meta, AutogradMeta__grad));
        SLOT(meta, AutogradMeta__grad) = Py_NewRef(gradient);
    }
    Py_XDECREF(before);
    return before != NULL;
}

/* Let numbers name what pairs say, by slot, and return the numbers whose slots name nothing any more, as a list. */
static PyObject *
bind_pairs(PyObject *named, PyObject *ids, PyObject *pairs)
{
    PyObject *gone = PyList_New(0);
    for (Py_ssize_t i = 0; gone != NULL && i < PyList_GET_SIZE(pairs); i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "bind: expected pairs");
            Py_CLEAR(gone);
            break;
        }
        Py_ssize_t slot = PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 0));
        PyObject *id = PyErr_Occurred() ? NULL : PySequence_GetItem(ids, slot), *value = PyTuple_GET_ITEM(pair, 1);
        int failed = id == NULL || (value == Py_None ? PyList_Append(gone, id) : PyDict_SetItem(named, id, value)) < 0;
        Py_XDECREF(id);
        if (failed) Py_CLEAR(gone);
    }
    return gone;
}

/* Functions about runs, which ``prepare_autograd`` has to come before. */
static int
is_given(int usual, const char *what)
{
    usual = usual && the_AutogradMeta != NULL;
    if (!usual) PyErr_Format(PyExc_TypeError, "%s, after prepare_autograd", what);
    return usual;
}

static PyObject *
call_blocks_of(PyObject *module, PyObject *values)
{
    (void)module;
    return is_given(1, "blocks_of: expected values") ? blocks_of(values) : NULL;
}

static PyObject *
call_storages_over(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (!is_given(count == 2 && PyTuple_CheckExact(given[1]), "storages_over: expected a backend and memory")) return NULL;
    return storages_over(given[0], given[1]);
}

static PyObject *
call_values_over(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    int usual = count == 3 && PyTuple_CheckExact(given[0]) && PyLong_CheckExact(given[1]) && PyList_CheckExact(given[2]);
    if (!is_given(usual, "values_over: expected outputs, a count and storages")) return NULL;
    return values_over(given[0], PyLong_AsSsize_t(given[1]), given[2]);
}

static PyObject *
call_named_by(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    int usual = count == 2 && PyTuple_CheckExact(given[0]) && PyTuple_CheckExact(given[1]);
    return is_given(usual, "named_by: expected rows and outputs") ? named_by(given[0], given[1]) : NULL;
}

static PyObject *
call_give_gradients(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    int usual = count == 3 && PyList_CheckExact(given[0]) && PyTuple_CheckExact(given[1]) && PyTuple_CheckExact(given[2]);
    if (!is_given(usual, "give_gradients: expected values, rows and outputs")) return NULL;
    int done = give_gradients(given[0], given[1], given[2]);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}

static PyObject *
call_bind_pairs(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    int usual = count == 3 && PyDict_CheckExact(given[0]) && PyList_CheckExact(given[1]) && PyList_CheckExact(given[2]);
    return is_given(usual, "bind_pairs: expected a dict, numbers and pairs") ? bind_pairs(given[0], given[1], given[2]) : NULL;
}

#endif
