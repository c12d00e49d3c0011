/* Walks over a backward graph before a pass: what each node waits for, and what tells graphs apart, as the engine's
``autograd/graph_task.py`` and ``replay/backward_program.py`` have them. */

#ifndef TELEGRAD_WALKS_H
#define TELEGRAD_WALKS_H

#include "drain.h"

/* The edges of a node as a list or tuple: a new reference; NULL for an error. */
static PyObject *
edges_from(PyObject *node)
{
    if (PyObject_TypeCheck(node, (PyTypeObject *)the_Node) && SLOT(node, Node__edges) != NULL)
        return PySequence_Fast(SLOT(node, Node__edges), "walk: the edges of a node are no sequence");
    PyErr_Format(PyExc_TypeError, "walk: expected a node, got %R", node);
    return NULL;
}

/* The node that an edge leads to: borrowed; NULL where there is no edge, or for an error. */
static PyObject *
end_of(PyObject *edge)
{
    if (edge == Py_None) return NULL;
    if (PyTuple_CheckExact(edge) && PyTuple_GET_SIZE(edge) > 0) return PyTuple_GET_ITEM(edge, 0);
    PyErr_Format(PyExc_TypeError, "walk: expected an edge, got %R", edge);
    return NULL;
}

/* Take the last item of a list; NULL for an error. */
static PyObject *
pop_last(PyObject *list)
{
    Py_ssize_t last = PyList_GET_SIZE(list) - 1;
    PyObject *item = Py_NewRef(PyList_GET_ITEM(list, last));
    if (PyList_SetSlice(list, last, last + 1, NULL) < 0) Py_CLEAR(item);
    return item;
}

/* Count a gradient for a node, which is to be walked from where it has edges and is met first; -1 for an error. */
static int
count_one(PyObject *counts, PyObject *seen, PyObject *stack, PyObject *node)
{
    PyObject *count = PyDict_GetItemWithError(counts, node);
    if (count != NULL) {
        PyObject *more = PyNumber_Add(count, one);
        int failed = more == NULL ? -1 : PyDict_SetItem(counts, node, more);
        Py_XDECREF(more);
        return failed;
    }
    PyObject *edges = PyErr_Occurred() || PyDict_SetItem(counts, node, one) < 0 ? NULL : edges_from(node);
    int ends = edges == NULL ? -1 : PySequence_Fast_GET_SIZE(edges) == 0;
    Py_XDECREF(edges);
    if (ends == 0) ends = PySet_Contains(seen, node);
    return ends ? (ends < 0 ? -1 : 0) : PyList_Append(stack, node);
}

/* ``graph_task._counted``: how many gradients each node waits for that these on the stack lead to. */
static PyObject *
call_count_gradients(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (the_Node == NULL || count != 2 || !PySet_Check(given[0]) || !PyList_CheckExact(given[1])) {
        PyErr_SetString(PyExc_TypeError, "count_gradients: expected a set and a list of nodes, after prepare_node_programs");
        return NULL;
    }
    PyObject *seen = given[0], *stack = given[1], *counts = PyDict_New();
    while (counts != NULL && PyList_GET_SIZE(stack)) {
        PyObject *node = pop_last(stack), *edges = node == NULL ? NULL : edges_from(node);
        int failed = edges == NULL ? -1 : 0;
        for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(edges); i++) {
            PyObject *following = end_of(PySequence_Fast_GET_ITEM(edges, i));
            if (following != NULL) failed = count_one(counts, seen, stack, following);
            else if (PyErr_Occurred()) failed = -1;
        }
        Py_XDECREF(edges);
        Py_XDECREF(node);
        if (failed) Py_CLEAR(counts);
    }
    return counts;
}

/* ``apart._begins_before``: whether the graph that ends with a node has, on one way to its beginning, a node that was made
before a number was drawn. */
static PyObject *
call_begins_before(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    long long number = count == 2 && the_Node != NULL ? PyLong_AsLongLong(given[1]) : -1;
    if (number < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "begins_before: expected a node and a number, after prepare_node_programs");
        return NULL;
    }
    PyObject *node = Py_NewRef(given[0]), *edges = edges_from(node);
    long long sequence = edges == NULL ? -1 : PyLong_AsLongLong(SLOT(node, Node__sequence));
    while (edges != NULL && sequence > number) {
        PyObject *following = NULL, *ahead = NULL;
        for (Py_ssize_t i = 0; following == NULL && i < PySequence_Fast_GET_SIZE(edges); i++) {
            PyObject *end = end_of(PySequence_Fast_GET_ITEM(edges, i));
            if (end != NULL) Py_XSETREF(ahead, edges_from(end));
            if (PyErr_Occurred()) break;
            if (end != NULL && PySequence_Fast_GET_SIZE(ahead)) following = Py_NewRef(end);
        }
        Py_SETREF(node, following);
        if (following == NULL) Py_CLEAR(ahead);
        Py_SETREF(edges, ahead);
        sequence = following == NULL ? -1 : PyLong_AsLongLong(SLOT(node, Node__sequence));
    }
    Py_XDECREF(edges);
    Py_XDECREF(node);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(sequence >= 0);
}

/* ``backward_program._identity``: a new reference; NULL for an error. */
static PyObject *
identity_of_node(PyObject *node)
{
    if (IS(node, OpNode) && SLOT(node, OpNode__plan) != NULL) return PyLong_FromVoidPtr(SLOT(node, OpNode__plan));
    PyObject *metas = SLOT(node, Node__metas), *meta = metas == NULL ? NULL : PySequence_GetItem(metas, 0);
    PyObject *identity = meta == NULL ? NULL : PyLong_FromVoidPtr(meta);
    if (meta == NULL && !PyErr_Occurred()) PyErr_SetString(PyExc_AttributeError, "metas");
    Py_XDECREF(meta);
    return identity;
}

/* Note a node that was found, unless it was found before; -1 for an error. */
static int
find_node(PyObject *found, PyObject *stack, PyObject *identities, PyObject *node)
{
    if (!PyObject_TypeCheck(node, (PyTypeObject *)the_Node)) return done(edges_from(node));
    int known = PySet_Contains(found, node);
    if (known) return known < 0 ? -1 : 0;
    return PySet_Add(found, node) < 0 || PyList_Append(stack, node) < 0 ? -1 : append(identities, identity_of_node(node));
}

/* ``backward_program._identities``: what tells the nodes that a node leads to, in the order in which they are found. */
static PyObject *
call_identities(PyObject *module, PyObject *start)
{
    (void)module;
    if (the_Node == NULL) return PyErr_Format(PyExc_TypeError, "identities: before prepare_node_programs");
    PyObject *found = PySet_New(NULL), *stack = PyList_New(0), *identities = PyList_New(0);
    int failed = found == NULL || stack == NULL || identities == NULL ? -1 : find_node(found, stack, identities, start);
    while (!failed && PyList_GET_SIZE(stack)) {
        PyObject *node = pop_last(stack), *edges = node == NULL ? NULL : edges_from(node);
        failed = edges == NULL ? -1 : 0;
        for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(edges); i++) {
            PyObject *following = end_of(PySequence_Fast_GET_ITEM(edges, i));
            if (following != NULL) failed = find_node(found, stack, identities, following);
            else if (PyErr_Occurred()) failed = -1;
        }
        Py_XDECREF(edges);
        Py_XDECREF(node);
    }
    PyObject *all = failed ? NULL : PyList_AsTuple(identities);
    Py_XDECREF(found);
    Py_XDECREF(stack);
    Py_XDECREF(identities);
    return all;
}

#endif
