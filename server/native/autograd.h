/* The history of operations, as the engine's ``autograd/kernel.py`` and ``graph.py`` have it. */

#ifndef TELEGRAD_AUTOGRAD_H
#define TELEGRAD_AUTOGRAD_H

#include "derivatives.h"

/* ``edge_of``: None where a value requires no gradient. */
static PyObject *
edge_of(PyObject *value)
{
    PyObject *history = SLOT(value, Value__autograd);
    int is_usual = SLOT(value, Value__base) == Py_None && (history == Py_None || IS(history, AutogradMeta));
    if (is_usual && history == Py_None) return Py_NewRef(Py_None);
    if (is_usual && SLOT(history, AutogradMeta__grad_fn) != Py_None)
        return PyTuple_Pack(2, SLOT(history, AutogradMeta__grad_fn), SLOT(history, AutogradMeta__output));
    if (is_usual && SLOT(history, AutogradMeta__requires_grad) == Py_False) return Py_NewRef(Py_None);
    PyObject *accumulator = is_usual ? SLOT(history, AutogradMeta__accumulator) : Py_None;
    PyObject *node = accumulator == Py_None ? Py_NewRef(Py_None) : PyObject_CallNoArgs(accumulator);
    PyObject *edge = node == NULL ? NULL : node == Py_None ? PyObject_CallOneArg(the_edge_of, value)
                                                           : PyTuple_Pack(2, node, zero);
    Py_XDECREF(node);
    return edge;
}

/* ``SavedTensor(value)``. */
static PyObject *
save(PyObject *value)
{
    PyObject *storage = SLOT(value, Value__storage), *history = SLOT(value, Value__autograd);
    if (history != Py_None && !IS(history, AutogradMeta)) return PyObject_CallOneArg(the_SavedTensor, value);
    PyObject *saved = PyBaseObject_Type.tp_new((PyTypeObject *)the_SavedTensor, no_arguments, NULL);
    if (saved == NULL) return NULL;
    PyObject *node = history == Py_None ? Py_None : SLOT(history, AutogradMeta__grad_fn);
    int is_leaf = history != Py_None && node == Py_None && SLOT(history, AutogradMeta__requires_grad) != Py_False;
    SLOT(saved, SavedTensor__storage) = Py_NewRef(storage);
    SLOT(saved, SavedTensor__version) = Py_NewRef(SLOT(storage, Storage__version));
    SLOT(saved, SavedTensor__meta) = Py_NewRef(SLOT(value, Value__meta));
    SLOT(saved, SavedTensor__node) = Py_NewRef(node);
    if (history != Py_None) SLOT(saved, SavedTensor__output) = Py_NewRef(SLOT(history, AutogradMeta__output));
    SLOT(saved, SavedTensor__value) = Py_NewRef(is_leaf ? value : Py_None);
    if (!is_leaf) SLOT(saved, SavedTensor__array) = Py_NewRef(SLOT(value, Value___array));
    return saved;
}

/* What a call's derivatives need, as a list. */
static PyObject *
save_operands(PyObject *plan, PyObject *args)
{
    PyObject *places = SLOT(plan, GradientPlan__saves), *saved = PyList_New(0);
    for (Py_ssize_t i = 0; saved != NULL && i < PyTuple_GET_SIZE(places); i++) {
        PyObject *value = PyTuple_GetItem(args, PyLong_AsSsize_t(PyTuple_GET_ITEM(places, i)));
        if (value == NULL || append(saved, IS(value, Value) ? save(value) : PyObject_CallOneArg(the_save_list, value)) < 0)
            Py_CLEAR(saved);
    }
    return saved;
}

static PyObject *
call_edge_of(PyObject *module, PyObject *value)
{
    (void)module;
    if (the_OpNode == NULL) return PyErr_Format(PyExc_TypeError, "edge_of: before prepare_autograd");
    int usual = IS(value, Value) && SLOT(value, Value__base) != NULL && SLOT(value, Value__autograd) != NULL;
    return usual ? edge_of(value) : PyObject_CallOneArg(the_edge_of, value);
}

/* A node without what an operation's result is; NULL for an error. Takes edges and saved tensors. */
static PyObject *
new_node(PyObject *plan, PyObject *edges, PyObject *metas, PyObject *saved)
{
    PyObject *sequence = PyObject_CallNoArgs(the_next_sequence);
    PyObject *node = sequence == NULL ? NULL : PyBaseObject_Type.tp_new((PyTypeObject *)the_OpNode, no_arguments, NULL);
    if (node == NULL) {
        Py_XDECREF(sequence);
        Py_DECREF(edges);
        Py_DECREF(saved);
        return NULL;
    }
    SLOT(node, OpNode__sequence) = sequence;
    SLOT(node, OpNode__edges) = edges;
    SLOT(node, OpNode__metas) = Py_NewRef(metas);
    SLOT(node, OpNode__plan) = Py_NewRef(plan);
    SLOT(node, OpNode__saved) = saved;
    SLOT(node, OpNode__retained) = Py_NewRef(Py_None);
    return node;
}

/* Make a node the history of a new result; -1 for an error. */
static int
give_history(PyObject *result, PyObject *node)
{
    PyObject *keys = PyNumber_Or(SLOT(result, Value__keys), the_autograd_key);
    PyObject *history = keys == NULL ? NULL : PyBaseObject_Type.tp_new((PyTypeObject *)the_AutogradMeta, no_arguments, NULL);
    if (history == NULL) {
        Py_XDECREF(keys);
        return -1;
    }
    SLOT(history, AutogradMeta__requires_grad) = Py_NewRef(Py_True);
    SLOT(history, AutogradMeta__grad_fn) = Py_NewRef(node);
    SLOT(history, AutogradMeta__output) = Py_NewRef(zero);
    SLOT(history, AutogradMeta__rebased) = Py_NewRef(zero);
    SLOT(history, AutogradMeta__grad) = Py_NewRef(Py_None);
    SLOT(history, AutogradMeta__accumulator) = Py_NewRef(Py_None);
    PUT(result, Value__autograd, history);
    PUT(result, Value__keys, keys);
    return 0;
}

/* What ``bound_to_recording`` is given: see ``engine/in_c/histories.py``. */
enum { POSITIONS, PLANS, BELOW, METAS, IS_FLOAT, MAKE_PLAN, FIELDS };

/* The edges of a call's operands, and a bit for each position of one that requires a gradient; NULL for an error. */
static PyObject *
gather(PyObject *positions, PyObject *args, unsigned long *needed)
{
    PyObject *edges = PyList_New(0);
    for (Py_ssize_t i = 0; edges != NULL && i < PyTuple_GET_SIZE(positions); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, i));
        PyObject *arg = PyTuple_GetItem(args, place);
        PyObject *edge = arg == NULL ? NULL : IS(arg, Value) ? edge_of(arg) : Py_NewRef(Py_None);
        if (edge != NULL && edge != Py_None) *needed |= 1ul << place;
        if (append(edges, edge) < 0) Py_CLEAR(edges);
    }
    return edges;
}

/* The plan of the derivatives that are needed: a new reference, made by Python where it is not known. */
static PyObject *
gradient_plan(PyObject *bound, PyObject *args, unsigned long needed)
{
    PyObject *number = PyLong_FromUnsignedLong(needed);
    PyObject *plan = number == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(PyTuple_GET_ITEM(bound, PLANS), number));
    if (plan == NULL && !PyErr_Occurred()) {
        PyObject *both[] = {number, args};
        plan = PyObject_Vectorcall(PyTuple_GET_ITEM(bound, MAKE_PLAN), both, 2, NULL);
    }
    Py_XDECREF(number);
    if (plan != NULL && !IS(plan, GradientPlan)) {
        PyErr_Format(PyExc_TypeError, "autograd: expected a plan of gradients, got %R", plan);
        Py_CLEAR(plan);
    }
    return plan;
}

/* ``_save_results`` of one result; -1 for an error. */
static int
save_result(PyObject *plan, PyObject *node, PyObject *result)
{
    PyObject *outs = SLOT(plan, GradientPlan__saves_outs), *storage = SLOT(result, Value__storage);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outs); i++) {
        PyObject *creator = PyWeakref_NewRef(node, NULL);
        PyObject *saved = creator == NULL ? NULL : PyBaseObject_Type.tp_new((PyTypeObject *)the_SavedOutput, no_arguments, NULL);
        if (saved == NULL) {
            Py_XDECREF(creator);
            return -1;
        }
        SLOT(saved, SavedTensor__storage) = Py_NewRef(storage);
        SLOT(saved, SavedTensor__version) = Py_NewRef(SLOT(storage, Storage__version));
        SLOT(saved, SavedTensor__meta) = Py_NewRef(SLOT(result, Value__meta));
        SLOT(saved, SavedTensor__value) = Py_NewRef(Py_None);
        SLOT(saved, SavedTensor__array) = Py_NewRef(SLOT(result, Value___array));
        SLOT(saved, SavedTensor__node) = creator;
        SLOT(saved, SavedTensor__output) = Py_NewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(outs, i), 1));
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(PyTuple_GET_ITEM(outs, i), 0));
        int failed = place < 0 ? -1 : PyList_Insert(SLOT(node, OpNode__saved), place, saved);
        Py_DECREF(saved);
        if (failed) return -1;
    }
    return 0;
}

/* Execute an operation below autograd, and give its result a history; takes the edges. */
static PyObject *
record(PyObject *bound, PyObject *args, PyObject *edges, unsigned long needed)
{
    PyObject *plan = gradient_plan(bound, args, needed), *saved = plan == NULL ? NULL : save_operands(plan, args);
    PyObject *result = saved == NULL ? NULL : PyObject_CallOneArg(PyTuple_GET_ITEM(bound, BELOW), args);
    if (result == NULL) {
        Py_DECREF(edges);
        Py_XDECREF(saved);
        Py_XDECREF(plan);
        return NULL;
    }
    PyObject *node = new_node(plan, edges, PyTuple_GET_ITEM(bound, METAS), saved);
    int failed = node == NULL || !IS(result, Value);
    if (!failed && PyTuple_GET_ITEM(bound, IS_FLOAT) == Py_True) failed = give_history(result, node);
    if (!failed) failed = save_result(plan, node, result);
    if (failed && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "autograd: expected a value, got %R", result);
    if (failed) Py_CLEAR(result);
    Py_XDECREF(node);
    Py_DECREF(plan);
    return result;
}

/* What ``_recording`` returns for an operation of one result on tensors alone. */
static PyObject *
call_recording(PyObject *bound, PyObject *args)
{
    unsigned long needed = 0;
    if (!PyTuple_CheckExact(args)) return PyErr_Format(PyExc_TypeError, "expected a tuple of arguments, got %R", args);
    PyObject *edges = gather(PyTuple_GET_ITEM(bound, POSITIONS), args, &needed);
    if (edges == NULL) return NULL;
    if (needed) return record(bound, args, edges, needed);
    Py_DECREF(edges);
    return PyObject_CallOneArg(PyTuple_GET_ITEM(bound, BELOW), args);
}

#endif
