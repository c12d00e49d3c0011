/* Values over new memory, and memory that goes back as the last value over it dies, as the engine's ``prepared.py`` and
``value.py`` have them. */

#ifndef TELEGRAD_VALUES_H
#define TELEGRAD_VALUES_H

#include "recall.h"

#define VALUE_CLASSES(X) X(Storage) X(Value) X(Backend) X(Context)

#define VALUE_SLOTS(X)                                                                                                 \
    X(Storage, backend) X(Storage, block) X(Storage, keeper) X(Storage, nbytes) X(Storage, version) X(Value, _array)   \
    X(Value, autograd) X(Value, backend) X(Value, base) X(Value, keys) X(Value, meta) X(Value, storage)                \
    X(Backend, allocator) X(Backend, apart) X(Backend, in_allocator) X(Backend, queued_frees) X(Backend, stream)       \
    X(Context, owner)

/* What else ``prepare_values`` is given: the finalizer of Python, and the names of the module ``context``. */
#define VALUE_OBJECTS(X) X(finalize) X(context)
#define VALUE_TEXTS(X) X(current) X(free_queued) X(allocate) X(free)

VALUE_SLOTS(DECLARE_SLOT)
VALUE_CLASSES(DECLARE_OBJECT)
VALUE_OBJECTS(DECLARE_OBJECT)
VALUE_TEXTS(DECLARE_TEXT)

static int
take_values(PyObject *given)
{
    PyObject *value;
    VALUE_CLASSES(TAKE)
    VALUE_OBJECTS(TAKE)
    VALUE_SLOTS(FIND)
    VALUE_TEXTS(INTERN)
    return 0;
}

/* End a call into the allocator, whether or not an error is set, and free what the garbage collector has freed meanwhile;
-1 for an error. */
static int
leave_allocator(PyObject *backend)
{
    PUT_SAME(backend, Backend__in_allocator, Py_False);
    if (PyList_GET_SIZE(SLOT(backend, Backend__queued_frees)) == 0) return PyErr_Occurred() ? -1 : 0;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    if (done(PyObject_CallMethodNoArgs(backend, text_free_queued)) < 0) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return -1;
    }
    PyErr_Restore(type, error, trace);
    return type == NULL ? 0 : -1;
}

/* Memory of a backend on its current stream, for the session whose turn it is; NULL for an error. */
static PyObject *
take_memory(PyObject *backend, PyObject *nbytes)
{
    PyObject *context = PyDict_GetItemWithError(the_context, text_current), *recall;
    if (context == NULL || !IS(context, Context)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "context: there is no current one");
        return NULL;
    }
    PyObject *stream = SLOT(backend, Backend__stream), *apart = SLOT(backend, Backend__apart);
    if (apart != Py_None) {
        PyObject *number = PyDict_GetItemWithError(apart, nbytes);
        if (number == NULL && PyErr_Occurred()) return NULL;
        if (number != NULL) stream = number;
    }
    PyObject *all[] = {nbytes, stream, SLOT(context, Context__owner)};
    PyObject *function = PyObject_GetAttr(SLOT(backend, Backend__allocator), text_allocate);
    if (function == NULL) return NULL;
    PUT_SAME(backend, Backend__in_allocator, Py_True);
    PyObject *block = is_own(function, (PyCFunction)(void (*)(void))call_allocate, &recall)
                          ? allocate(recall, all)
                          : PyObject_Vectorcall(function, all, 3, NULL);
    Py_DECREF(function);
    if (leave_allocator(backend) < 0) Py_CLEAR(block);
    return block;
}

/* Whether something is a backend that C can ask for memory. */
static int
is_usual_backend(PyObject *backend)
{
    return PyObject_TypeCheck(backend, (PyTypeObject *)the_Backend) && SLOT(backend, Backend__allocator) != NULL &&
           SLOT(backend, Backend__in_allocator) != NULL && SLOT(backend, Backend__queued_frees) != NULL &&
           SLOT(backend, Backend__stream) != NULL && SLOT(backend, Backend__apart) != NULL;
}

/* A value over new memory, all of whose slots are set but those of views; NULL for an error. */
static PyObject *
new_value(PyObject *backend, PyObject *key, PyObject *nbytes, PyObject *meta)
{
    PyObject *block = take_memory(backend, nbytes);
    if (block == NULL) return NULL;
    PyObject *storage = PyBaseObject_Type.tp_new((PyTypeObject *)the_Storage, no_arguments, NULL);
    if (storage == NULL) {
        Py_DECREF(block);
        return NULL;
    }
    SLOT(storage, Storage__backend) = Py_NewRef(backend);
    SLOT(storage, Storage__block) = block;
    SLOT(storage, Storage__nbytes) = Py_NewRef(nbytes);
    SLOT(storage, Storage__keeper) = Py_NewRef(Py_None);
    SLOT(storage, Storage__version) = Py_NewRef(zero);
    PyObject *value = PyBaseObject_Type.tp_new((PyTypeObject *)the_Value, no_arguments, NULL);
    if (value == NULL) {
        Py_DECREF(storage);
        return NULL;
    }
    SLOT(value, Value__storage) = storage;
    SLOT(value, Value__meta) = Py_NewRef(meta);
    SLOT(value, Value__backend) = Py_NewRef(backend);
    SLOT(value, Value__base) = Py_NewRef(Py_None);
    SLOT(value, Value__autograd) = Py_NewRef(Py_None);
    SLOT(value, Value___array) = Py_NewRef(Py_None);
    SLOT(value, Value__keys) = Py_NewRef(key);
    return value;
}

/* ``Storage.__del__``. */
static PyObject *
call_finalize(PyObject *storage, PyObject *unused)
{
    (void)unused;
    PyObject *keeper = SLOT(storage, Storage__keeper), *backend = SLOT(storage, Storage__backend), *recall;
    if (keeper != NULL && keeper != Py_None) Py_RETURN_NONE;
    PyObject *block = SLOT(storage, Storage__block);
    if (keeper == NULL || backend == NULL || block == NULL || !is_usual_backend(backend) ||
        SLOT(backend, Backend__in_allocator) != Py_False)
        return PyObject_CallOneArg(the_finalize, storage);
    PyObject *function = PyObject_GetAttr(SLOT(backend, Backend__allocator), text_free);
    if (function == NULL) return NULL;
    PUT_SAME(backend, Backend__in_allocator, Py_True);
    if (is_own(function, call_free, &recall)) release(recall, block);
    else done(PyObject_CallOneArg(function, block));
    Py_DECREF(function);
    return none_unless(leave_allocator(backend));
}

/* What ``bound_to_launch`` returns: execute an operation of one result by a launch. ``bound`` has the backend, its key,
the bytes and the meta of the result, and the launch. */
static PyObject *
call_run(PyObject *bound, PyObject *args)
{
    PyObject *value = new_value(PyTuple_GET_ITEM(bound, 0), PyTuple_GET_ITEM(bound, 1), PyTuple_GET_ITEM(bound, 2),
                                PyTuple_GET_ITEM(bound, 3));
    PyObject *outs = value == NULL ? NULL : PyTuple_Pack(1, value);
    PyObject *both[] = {args, outs};
    if (outs == NULL || done(PyObject_Vectorcall(PyTuple_GET_ITEM(bound, 4), both, 2, NULL)) < 0) Py_CLEAR(value);
    Py_XDECREF(outs);
    return value;
}

/* What ``bound_to_several`` returns: the same for an operation of several results, whose bytes and metas are tuples. */
static PyObject *
call_run_several(PyObject *bound, PyObject *args)
{
    PyObject *sizes = PyTuple_GET_ITEM(bound, 2), *values = PyTuple_New(PyTuple_GET_SIZE(sizes));
    for (Py_ssize_t i = 0; values != NULL && i < PyTuple_GET_SIZE(sizes); i++) {
        PyObject *value = new_value(PyTuple_GET_ITEM(bound, 0), PyTuple_GET_ITEM(bound, 1), PyTuple_GET_ITEM(sizes, i),
                                    PyTuple_GET_ITEM(PyTuple_GET_ITEM(bound, 3), i));
        if (value == NULL) Py_CLEAR(values);
        else PyTuple_SET_ITEM(values, i, value);
    }
    PyObject *both[] = {args, values};
    if (values != NULL && done(PyObject_Vectorcall(PyTuple_GET_ITEM(bound, 4), both, 2, NULL)) < 0) Py_CLEAR(values);
    return values;
}

#endif
