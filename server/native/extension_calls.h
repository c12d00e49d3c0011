/* Calls of an extension's functions of a kind that came before, as the engine's ``extensions/prepared_call.py`` has them. */

#ifndef TELEGRAD_EXTENSION_CALLS_H
#define TELEGRAD_EXTENSION_CALLS_H

#include "extension_surroundings.h"
#include <stdint.h>

#define EXTENSION_SLOTS(X) X(Storage, elements)
/* What else ``prepare_extension_calls`` is given: places in the memory that extensions and their worker share. */
#define EXTENSION_NUMBERS(X) X(DEAD_COUNT) X(READS_DATA) X(READY_COUNT) X(READY_ADDRESS) X(ASKED) X(DEAD) X(BUFFER) X(TENSOR) \
    X(CURRENT_DEVICE)

EXTENSION_SLOTS(DECLARE_SLOT)
static PyObject *the_changing, *text_arguments, *text_emptied;
#define DECLARE_NUMBER(name) static Py_ssize_t PLACE_##name;
EXTENSION_NUMBERS(DECLARE_NUMBER)

/* What ``bound_to_extension`` is given: the address of the library's function, which of its functions is called, the
shared memory, the words of the arguments and of the memory that is asked for, rows of tensors, of memory and of streams,
the values by their handles, the worker's side of extensions, whether elements on the host are seen, the library, the name
that notes have, and functions of Python: one that makes a call of other arguments, and one that ends a call whose result is
not the memory that was made for it. A row of streams has a place, a backend, and its queue of launches or None. */
enum {
    ENTRY, NUMBER, SHARED, GIVEN_WORDS, READY_WORDS, TENSORS, READY, DEVICE_STREAMS, HELD, RUNTIME, READS_HOST, LIBRARY,
    NAME, IN_PYTHON, END_IN_PYTHON, CALL_FIELDS,
};
/* A tensor among the arguments: its position, its address and flag among the words, its meta, and the bytes before its first
element, -1 where there is none. Memory: its words, a backend, its key, bytes and meta, whose elements may be none. */
enum { T_POSITION, T_ADDRESS, T_FLAG, T_META, T_SKIPPED, TENSOR_FIELDS };
enum { R_HANDLE, R_ADDRESS, R_BACKEND, R_KEY, R_BYTES, R_META, R_IS_EMPTY, READY_FIELDS };
#define MOST_READY 16

typedef int64_t (*ExtensionEntry)(int64_t, const int64_t *);

static int
take_extension_calls(PyObject *given)
{
    PyObject *value;
    EXTENSION_SLOTS(FIND)
#define TAKE_NUMBER(name)                                                                                              \
    if ((value = PyDict_GetItemString(given, #name)) == NULL || (PLACE_##name = PyLong_AsSsize_t(value)) < 0) {        \
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "prepare_extension_calls: a place is missing");        \
        return -1;                                                                                                     \
    }
    EXTENSION_NUMBERS(TAKE_NUMBER)
    if ((value = PyDict_GetItemString(given, "changing")) == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_extension_calls: changing is missing");
        return -1;
    }
    if (take_surroundings(given) < 0) return -1;
    Py_XSETREF(the_changing, Py_NewRef(value));
    text_arguments = PyUnicode_InternFromString("arguments");
    text_emptied = PyUnicode_InternFromString("emptied");
    return text_arguments && text_emptied ? 0 : -1;
}

static int64_t
field(PyObject *row, Py_ssize_t index)
{
    return PyLong_AsLongLong(PyTuple_GET_ITEM(row, index));
}

static int64_t *
memory_at(PyObject *bound, Py_ssize_t index)
{
    return (int64_t *)PyLong_AsVoidPtr(PyTuple_GET_ITEM(bound, index));
}

/* The tensor of a row, if it is what the call was prepared for: borrowed, NULL where it is not. */
static PyObject *
usual_tensor(PyObject *row, PyObject *values, PyObject *args)
{
    Py_ssize_t position = field(row, T_POSITION);
    if (position >= PyList_GET_SIZE(args)) return NULL;
    PyObject *arg = PyList_GET_ITEM(args, position);
    if (!(PyList_CheckExact(arg) || PyTuple_CheckExact(arg)) || PySequence_Fast_GET_SIZE(arg) != 1) return NULL;
    PyObject *id = PySequence_Fast_GET_ITEM(arg, 0), *value = PyLong_CheckExact(id) ? PyDict_GetItem(values, id) : NULL;
    if (value == NULL || !is_plain_value(value) || SLOT(value, Value__meta) != PyTuple_GET_ITEM(row, T_META)) return NULL;
    if (SLOT(value, Value__autograd) != Py_None || SLOT(value, Value__base) != Py_None) return NULL;
    return IS(SLOT(SLOT(value, Value__storage), Storage__block), Block) ? value : NULL;
}

/* The tensors that a call is given, as a list; None where one is not what the call was prepared for. */
static PyObject *
usual_tensors(PyObject *bound, PyObject *values, PyObject *args)
{
    PyObject *rows = PyTuple_GET_ITEM(bound, TENSORS), *given = PyList_New(PyTuple_GET_SIZE(rows));
    for (Py_ssize_t i = 0; given != NULL && i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *value = usual_tensor(PyTuple_GET_ITEM(rows, i), values, args);
        if (value == NULL) {
            Py_SETREF(given, Py_NewRef(Py_None));
            break;
        }
        PyList_SET_ITEM(given, i, Py_NewRef(value));
    }
    return given;
}

/* Write the tensors into the words of the arguments; -1 for an error. */
static int
write_tensors(PyObject *bound, PyObject *given)
{
    int64_t *words = memory_at(bound, GIVEN_WORDS);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given); i++) {
        PyObject *row = PyTuple_GET_ITEM(PyTuple_GET_ITEM(bound, TENSORS), i);
        PyObject *storage = SLOT(PyList_GET_ITEM(given, i), Value__storage);
        Py_XSETREF(SLOT(storage, Storage__elements), Py_NewRef(the_changing));
        int64_t skipped = field(row, T_SKIPPED);
        if (skipped >= 0)
            words[field(row, T_ADDRESS)] = PyLong_AsLongLong(SLOT(SLOT(storage, Storage__block), Block__pointer)) + skipped;
        words[field(row, T_FLAG)] = 0;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int
write_streams(PyObject *bound, int64_t *shared)
{
    PyObject *rows = PyTuple_GET_ITEM(bound, DEVICE_STREAMS);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        shared[field(row, 0)] = (int64_t)(intptr_t)PyLong_AsVoidPtr(SLOT(PyTuple_GET_ITEM(row, 1), Backend__stream));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Make the memory that the function will ask for; -1 for an error. */
static int
make_ready(PyObject *bound, PyObject **made)
{
    PyObject *rows = PyTuple_GET_ITEM(bound, READY);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        made[i] = new_value(PyTuple_GET_ITEM(row, R_BACKEND), PyTuple_GET_ITEM(row, R_KEY), PyTuple_GET_ITEM(row, R_BYTES),
                            PyTuple_GET_ITEM(row, R_META));
        if (made[i] == NULL) return -1;
    }
    return 0;
}

/* Give memory handles, which begin where those that Python gives never come, and write it down; -1 for an error. */
static int
hold_ready(PyObject *bound, PyObject **made, PyObject **handles)
{
    static int64_t last = (int64_t)1 << 48;
    PyObject *rows = PyTuple_GET_ITEM(bound, READY);
    int64_t *words = memory_at(bound, READY_WORDS);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i), *block = SLOT(SLOT(made[i], Value__storage), Storage__block);
        words[field(row, R_HANDLE)] = ++last;
        words[field(row, R_ADDRESS)] =
            PyTuple_GET_ITEM(row, R_IS_EMPTY) == Py_True ? 0 : PyLong_AsLongLong(SLOT(block, Block__pointer));
        handles[i] = PyLong_FromLongLong(last);
        if (handles[i] == NULL || PyDict_SetItem(PyTuple_GET_ITEM(bound, HELD), handles[i], made[i]) < 0) return -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Forget a value by its handle, if it is held. */
static int
forget(PyObject *held, PyObject *handle)
{
    if (handle == NULL) return -1;
    int is_held = PyDict_Contains(held, handle);
    return is_held <= 0 ? is_held : PyDict_DelItem(held, handle);
}

/* Forget the values that the extension has dropped; -1 for an error. */
static int
forget_dropped(PyObject *bound, int64_t *shared)
{
    int64_t count = shared[PLACE_DEAD_COUNT];
    shared[PLACE_DEAD_COUNT] = 0;
    for (int64_t i = 0; i < count; i++) {
        PyObject *handle = PyLong_FromLongLong(shared[PLACE_DEAD + i]);
        int failed = forget(PyTuple_GET_ITEM(bound, HELD), handle);
        Py_XDECREF(handle);
        if (failed) return -1;
    }
    return 0;
}

/* Enter the function, and forget the memory that it has not asked for. Returns its result where that is the only memory
that was made for it, and it asked for nothing else; else an integer, which tells whether the function has thrown. */
static PyObject *
enter_extension(PyObject *bound, PyObject *given, PyObject **made, PyObject **handles)
{
    int64_t *shared = memory_at(bound, SHARED);
    Py_ssize_t count = PyTuple_GET_SIZE(PyTuple_GET_ITEM(bound, READY));
    shared[PLACE_READS_DATA] = PyTuple_GET_ITEM(bound, READS_HOST) == Py_True;
    shared[PLACE_ASKED] = 0;
    shared[PLACE_READY_COUNT] = count;
    shared[PLACE_READY_ADDRESS] = (int64_t)(intptr_t)memory_at(bound, READY_WORDS);
    ExtensionEntry entry = (ExtensionEntry)(intptr_t)memory_at(bound, ENTRY);
    int64_t failed = entry(field(bound, NUMBER), memory_at(bound, GIVEN_WORDS));
    int64_t unused = shared[PLACE_READY_COUNT] < 0 ? -shared[PLACE_READY_COUNT] : shared[PLACE_READY_COUNT];
    shared[PLACE_READY_COUNT] = 0;
    for (Py_ssize_t i = count - unused; i < count; i++)
        if (i < 0 || forget(PyTuple_GET_ITEM(bound, HELD), handles[i]) < 0) return NULL;
    int is_usual = !failed && !shared[PLACE_ASKED] && count == 1 && !unused && shared[PLACE_BUFFER] == PLACE_TENSOR;
    if (!is_usual || shared[PLACE_BUFFER + 1] != PyLong_AsLongLong(handles[0])) return PyLong_FromLongLong(failed);
    if (forget_dropped(bound, shared) < 0 || PyList_SetSlice(given, 0, PY_SSIZE_T_MAX, NULL) < 0) return NULL;
    return Py_NewRef(made[0]);
}

/* Tell Python of the arguments, whose handles are below 0, and that no memory was asked for. */
static int
tell_arguments(PyObject *bound, PyObject *given)
{
    PyObject *runtime = PyTuple_GET_ITEM(bound, RUNTIME), *emptied = PyList_New(0);
    int failed = emptied == NULL || PyObject_SetAttr(runtime, text_arguments, given) < 0 ||
                 PyObject_SetAttr(runtime, text_emptied, emptied) < 0;
    Py_XDECREF(emptied);
    return failed ? -1 : 0;
}

/* Enter the function while it is noted that it runs; what ``enter_extension`` returns. */
static PyObject *
enter_noted(PyObject *bound, PyObject *given, PyObject **made, PyObject **handles)
{
    PyObject *result = note_running(PyTuple_GET_ITEM(bound, NAME)) < 0 ? NULL : enter_extension(bound, given, made, handles);
    if (note_end() < 0) Py_CLEAR(result);
    return result;
}

/* Make the call on tensors that are what it was prepared for; what ``enter_extension`` returns. */
static PyObject *
call_usual(PyObject *bound, PyObject *given)
{
    PyObject *made[MOST_READY] = {NULL}, *handles[MOST_READY] = {NULL}, *result = NULL;
    PyObject *runtime = PyTuple_GET_ITEM(bound, RUNTIME);
    int64_t *shared = memory_at(bound, SHARED);
    if (enter_modes(runtime, shared + PLACE_CURRENT_DEVICE) == 0 &&
        PyObject_SetAttr(runtime, text_library, PyTuple_GET_ITEM(bound, LIBRARY)) == 0 && write_tensors(bound, given) == 0 &&
        write_streams(bound, shared) == 0 && make_ready(bound, made) == 0 && hold_ready(bound, made, handles) == 0 &&
        tell_arguments(bound, given) == 0)
        result = enter_noted(bound, given, made, handles);
    for (int i = 0; i < MOST_READY; i++) {
        Py_XDECREF(made[i]);
        Py_XDECREF(handles[i]);
    }
    return result;
}

/* What ``bound_to_extension`` returns, given values by their numbers and the arguments of a call: ``PreparedCall.call``. */
static PyObject *
call_prepared(PyObject *bound, PyObject *const *all, Py_ssize_t count)
{
    if (count != 2 || !PyDict_CheckExact(all[0]) || !PyList_CheckExact(all[1])) {
        PyErr_SetString(PyExc_TypeError, "expected values and a list of arguments");
        return NULL;
    }
    if (flush_launches(PyTuple_GET_ITEM(bound, DEVICE_STREAMS), 1) < 0) return NULL;
    PyObject *given = usual_tensors(bound, all[0], all[1]), *result = NULL;
    if (given == Py_None) result = PyObject_Vectorcall(PyTuple_GET_ITEM(bound, IN_PYTHON), all, 2, NULL);
    else if (given != NULL) result = call_usual(bound, given);
    Py_XDECREF(given);
    if (result != NULL && PyLong_CheckExact(result))
        Py_SETREF(result, PyObject_CallOneArg(PyTuple_GET_ITEM(bound, END_IN_PYTHON), result));
    return result;
}

/* Whether all rows of a tuple are tuples of so many fields, of which the first two are integers. */
static int
are_rows(PyObject *rows, Py_ssize_t size)
{
    if (!PyTuple_CheckExact(rows)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); i++) {
        PyObject *row = PyTuple_GET_ITEM(rows, i);
        if (!PyTuple_CheckExact(row) || PyTuple_GET_SIZE(row) != size || !PyLong_CheckExact(PyTuple_GET_ITEM(row, 0))) return 0;
    }
    return 1;
}

/* Whether something is what ``bound_to_extension`` takes. */
static int
is_usual_call(PyObject *bound)
{
    if (!PyTuple_CheckExact(bound) || PyTuple_GET_SIZE(bound) != CALL_FIELDS) return 0;
    for (int i = ENTRY; i < TENSORS; i++)
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(bound, i))) return 0;
    PyObject *ready = PyTuple_GET_ITEM(bound, READY), *streams = PyTuple_GET_ITEM(bound, DEVICE_STREAMS);
    if (!are_rows(PyTuple_GET_ITEM(bound, TENSORS), TENSOR_FIELDS) || !are_rows(ready, READY_FIELDS) || !are_rows(streams, 3)) return 0;
    if (PyTuple_GET_SIZE(ready) > MOST_READY || !PyDict_CheckExact(PyTuple_GET_ITEM(bound, HELD))) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ready); i++) {
        PyObject *row = PyTuple_GET_ITEM(ready, i);
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(row, R_BYTES)) || !is_usual_backend(PyTuple_GET_ITEM(row, R_BACKEND))) return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(streams); i++)
        if (!is_usual_backend(PyTuple_GET_ITEM(PyTuple_GET_ITEM(streams, i), 1))) return 0;
    return 1;
}

static PyMethodDef prepared_method = {
    "prepared", (PyCFunction)(void (*)(void))call_prepared, METH_FASTCALL, "Call a function of an extension.",
};

static PyObject *
bound_to_extension(PyObject *module, PyObject *bound)
{
    (void)module;
    if (the_changing != NULL && is_usual_call(bound)) return PyCFunction_New(&prepared_method, bound);
    PyErr_SetString(PyExc_TypeError, "bound_to_extension: expected what a call is prepared by, after prepare_extension_calls");
    return NULL;
}

static PyObject *
prepare_extension_calls(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || the_AutogradMeta == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_extension_calls: expected a dict, after prepare_autograd");
        return NULL;
    }
    return none_unless(take_extension_calls(given));
}

#endif
