/* The leaves that a backward pass gives a gradient, where nothing of the program stands on its way. */

#ifndef TELEGRAD_RECEIVERS_H
#define TELEGRAD_RECEIVERS_H

#include "slots.h"

/* Put nodes of a tuple or list on the stack that were not seen before; -1 for an error. */
static int
push_unseen(PyObject *nodes, PyObject *seen, PyObject *stack)
{
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(nodes); i++) {
        PyObject *parent = PySequence_Fast_GET_ITEM(nodes, i);
        int known = PySet_Contains(seen, parent);
        if (known < 0 || (!known && (PySet_Add(seen, parent) < 0 || PyList_Append(stack, parent) < 0))) return -1;
    }
    return 0;
}

/* Go on from a node: 1 if it is a usual one, 0 for others, -1 for an error. */
static int
visit(PyObject *node, PyObject *seen, PyObject *stack, PyObject *tensors)
{
    if (IS(node, OperationNode)) {
        PyObject *parents = SLOT(node, OperationNode__parents);
        if (SLOT(node, OperationNode__extras) != Py_None || parents == NULL || !PyTuple_CheckExact(parents)) return 0;
        Py_INCREF(parents);
        int error = push_unseen(parents, seen, stack);
        Py_DECREF(parents);
        return error < 0 ? -1 : 1;
    }
    if (IS(node, DeferredNode)) {
        PyObject *expand = SLOT(node, DeferredNode___expand), *edges = SLOT(node, DeferredNode__edges);
        if (SLOT(node, OperationNode__extras) != Py_None || expand == NULL || expand == Py_None) return 0;
        if (edges == NULL || !PyList_CheckExact(edges)) return 0;
        Py_INCREF(edges);
        int error = push_unseen(edges, seen, stack);
        Py_DECREF(edges);
        return error < 0 ? -1 : 1;
    }
    if (!IS(node, LeafNode) || SLOT(node, LeafNode__extras) != Py_None || SLOT(node, LeafNode__tensor) == NULL) return 0;
    PyObject *tensor = PyObject_CallNoArgs(SLOT(node, LeafNode__tensor));
    int error = tensor == NULL, receives = !error && tensor != Py_None && SLOT(tensor, Tensor___requires_grad) != Py_False;
    if (receives) error = PyList_Append(tensors, tensor) < 0;
    Py_XDECREF(tensor);
    return error ? -1 : 1;
}

/* What ``gradient_receivers`` in ``_tensor/receivers.py`` finds, which is the one to read; None for unusual nodes. */
static PyObject *
usual_receivers(PyObject *module, PyObject *roots)
{
    if (!PyList_CheckExact(roots)) return Py_NewRef(Py_None); /* Python goes through them again */
    PyObject *seen = PySet_New(roots), *stack = seen == NULL ? NULL : PySequence_List(seen), *tensors = PyList_New(0);
    int state = stack == NULL || tensors == NULL ? -1 : 1;
    while (state == 1 && PyList_GET_SIZE(stack)) {
        Py_ssize_t last = PyList_GET_SIZE(stack) - 1;
        PyObject *node = Py_NewRef(PyList_GET_ITEM(stack, last));
        state = PyList_SetSlice(stack, last, last + 1, NULL) < 0 ? -1 : visit(node, seen, stack, tensors);
        Py_DECREF(node);
    }
    Py_XDECREF(seen);
    Py_XDECREF(stack);
    if (state == 1) return tensors;
    Py_XDECREF(tensors);
    return state < 0 ? NULL : Py_NewRef(Py_None);
}

#endif
