/* One pass over a backward graph, as ``GraphTask._drain`` of the engine's ``autograd/graph_task.py`` makes it where no graph of
its own is wanted. */

#ifndef TELEGRAD_DRAIN_H
#define TELEGRAD_DRAIN_H

#include "node_programs.h"

#define DRAIN_CLASSES(X) X(Node) X(AccumulateGrad) X(GraphTask)
#define DRAIN_SLOTS(X)                                                                                                 \
    X(Node, edges) X(Node, metas) X(Node, retained) X(Node, sequence) X(GraphTask, pending) X(AccumulateGrad, leaf)
#define DRAIN_OBJECTS(X) X(cancellation) X(changes) X(add) X(additions)
#define DRAIN_TEXTS(X) X(requested) X(pause) X(visit) X(receive) X(count) X(is_contiguous) X(offset)

DRAIN_SLOTS(DECLARE_SLOT)
DRAIN_CLASSES(DECLARE_OBJECT)
DRAIN_OBJECTS(DECLARE_OBJECT)
DRAIN_TEXTS(DECLARE_TEXT)

static int
take_drain(PyObject *given)
{
    PyObject *value;
    DRAIN_CLASSES(TAKE)
    DRAIN_OBJECTS(TAKE)
    DRAIN_SLOTS(FIND)
    DRAIN_TEXTS(INTERN)
    return 0;
}

/* What is known of an addition: see ``additions`` of the engine's ``autograd/node_program.py``. */
enum { ADDED_META, ADDED_MODES, ADDED_KEYS, ADDED_RUN };

/* Nodes that may be visited, as a heap: the one that was made last comes first. */
typedef struct {
    struct Ready { long long sequence; PyObject *node; } *items;
    Py_ssize_t count, room;
} Heap;

/* Add a node; -1 for an error. */
static int
push_node(Heap *heap, PyObject *node)
{
    if (!PyObject_TypeCheck(node, (PyTypeObject *)the_Node)) {
        PyErr_Format(PyExc_TypeError, "drain: expected a node, got %R", node);
        return -1;
    }
    long long sequence = PyLong_AsLongLong(SLOT(node, Node__sequence));
    if (sequence == -1 && PyErr_Occurred()) return -1;
    if (heap->count == heap->room) {
        Py_ssize_t room = heap->room ? 2 * heap->room : 32;
        struct Ready *items = PyMem_Realloc(heap->items, room * sizeof(*items));
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        heap->items = items;
        heap->room = room;
    }
    Py_ssize_t place = heap->count++;
    for (; place && heap->items[(place - 1) / 2].sequence < sequence; place = (place - 1) / 2)
        heap->items[place] = heap->items[(place - 1) / 2];
    heap->items[place].sequence = sequence;
    heap->items[place].node = Py_NewRef(node);
    return 0;
}

/* Take the node out that was made last. */
static PyObject *
pop_node(Heap *heap)
{
    PyObject *first = heap->items[0].node;
    struct Ready last = heap->items[--heap->count];
    Py_ssize_t place = 0;
    for (Py_ssize_t below = 1; below < heap->count; below = 2 * place + 1) {
        if (below + 1 < heap->count && heap->items[below + 1].sequence > heap->items[below].sequence) below++;
        if (heap->items[below].sequence <= last.sequence) break;
        heap->items[place] = heap->items[below];
        place = below;
    }
    heap->items[place] = last;
    return first;
}

/* Let others work, or end, where somebody wants that; -1 for an error. */
static int
give_way(void)
{
    PyObject *requested = PyDict_GetItemWithError(the_cancellation, text_requested);
    if (requested == Py_False) return 0;
    PyObject *pause = requested == NULL ? NULL : PyDict_GetItemWithError(the_cancellation, text_pause);
    if (pause != NULL) return done(PyObject_CallNoArgs(pause));
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "cancellation: its names are missing");
    return -1;
}

/* ``node_program.add``: the sum of two gradients, by what has added two of their meta before. */
static PyObject *
sum_of(PyObject *present, PyObject *gradient, PyObject *modes)
{
    PyObject *all[] = {present, gradient, modes};
    if (!IS(present, Value) || !IS(gradient, Value) || SLOT(present, Value__meta) != SLOT(gradient, Value__meta))
        return PyObject_Vectorcall(the_add, all, 3, NULL);
    PyObject *meta = SLOT(present, Value__meta), *key = PyLong_FromVoidPtr(meta);
    PyObject *known = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(the_additions, key));
    Py_XDECREF(key);
    if (known == NULL) return PyErr_Occurred() ? NULL : PyObject_Vectorcall(the_add, all, 3, NULL);
    int same = PyTuple_GET_ITEM(known, ADDED_META) == meta && PyTuple_GET_ITEM(known, ADDED_MODES) == modes;
    if (same) same = is_equal(SLOT(present, Value__keys), PyTuple_GET_ITEM(known, ADDED_KEYS));
    if (same == 1) same = is_equal(SLOT(gradient, Value__keys), PyTuple_GET_ITEM(known, ADDED_KEYS));
    PyObject *sum = NULL;
    if (same == 0) sum = PyObject_Vectorcall(the_add, all, 3, NULL);
    else if (same == 1) {
        PyObject *args = PyTuple_Pack(3, present, gradient, one);
        sum = args == NULL ? NULL : PyObject_CallOneArg(PyTuple_GET_ITEM(known, ADDED_RUN), args);
        Py_XDECREF(args);
    }
    Py_DECREF(known);
    return sum;
}

/* Whether something is a node, and the number of one of its outputs. */
static int
is_edge(PyObject *edge)
{
    return PyTuple_CheckExact(edge) && PyTuple_GET_SIZE(edge) == 2 &&
           PyObject_TypeCheck(PyTuple_GET_ITEM(edge, 0), (PyTypeObject *)the_Node);
}

/* ``GraphTask.receive``; -1 for an error. */
static int
receive(PyObject *task, PyObject *edge, PyObject *gradient, PyObject *modes)
{
    PyObject *following = PyTuple_GET_ITEM(edge, 0), *pending = SLOT(task, GraphTask__pending);
    PyObject *metas = SLOT(following, Node__metas);
    int is_usual = metas != NULL && PyTuple_Check(metas) && PyTuple_GET_SIZE(metas) == 1;
    PyObject *slots = is_usual ? PyDict_GetItemWithError(pending, following) : NULL;
    if (slots == NULL && PyErr_Occurred()) return -1;
    if (!is_usual || (slots != NULL && !(PyList_CheckExact(slots) && PyList_GET_SIZE(slots) == 1)))
        return done(PyObject_CallMethodObjArgs(task, text_receive, edge, gradient, NULL));
    if (slots == NULL) {
        slots = PyList_New(1);
        if (slots == NULL) return -1;
        PyList_SET_ITEM(slots, 0, Py_NewRef(gradient));
        int failed = PyDict_SetItem(pending, following, slots);
        Py_DECREF(slots);
        return failed;
    }
    PyObject *present = Py_NewRef(PyList_GET_ITEM(slots, 0));
    Py_INCREF(slots);
    PyObject *sum = present == Py_None ? Py_NewRef(gradient) : sum_of(present, gradient, modes);
    int failed = sum == NULL ? -1 : PyList_SetItem(slots, 0, sum);
    Py_DECREF(slots);
    Py_DECREF(present);
    return failed;
}

/* A pass: ``wanted`` are the nodes that lead to what is captured, and ``passed`` those of them of which nothing is asked but
gradients for their edges; None and None where nothing is captured. */
typedef struct {
    PyObject *task, *counts, *modes, *wanted, *passed;
    int releases;
} Pass;

/* Whether nothing is asked of a node but gradients for its edges; -1 for an error. */
static int
is_passed(const Pass *pass, PyObject *node)
{
    if (!IS(node, OpNode) || SLOT(node, Node__retained) != Py_None) return 0;
    return pass->passed == Py_None ? 1 : PySet_Contains(pass->passed, node);
}

/* The gradients that a node gives to its edges, None where none has reached it; NULL for an error. */
static PyObject *
visit(const Pass *pass, PyObject *node)
{
    PyObject *task = pass->task, *modes = pass->modes;
    int usual = is_passed(pass, node), releases = pass->releases;
    if (usual < 0) return NULL;
    if (!usual) return PyObject_CallMethodObjArgs(task, text_visit, node, pass->wanted, NULL);
    PyObject *pending = SLOT(task, GraphTask__pending), *grads = Py_XNewRef(PyDict_GetItemWithError(pending, node));
    if (grads == NULL) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyObject *results = PyDict_DelItem(pending, node) < 0 ? NULL : apply_program(node, grads, modes, releases);
    if (results != NULL && releases && SLOT(node, OpNode__saved) != NULL) {
        int has_saved = PyObject_IsTrue(SLOT(node, OpNode__saved));
        if (has_saved > 0) PUT_SAME(node, OpNode__saved, Py_None);
        else if (has_saved < 0) Py_CLEAR(results);
    }
    Py_DECREF(grads); /* gradients that nothing else needs are freed before those that follow are added up */
    return results;
}

/* One gradient less is waited for by a node: it is ready, or a leaf to be finished, if that was the last; -1 for an error. */
static int
arrive(PyObject *following, PyObject *counts, Heap *heap, PyObject *leaves)
{
    PyObject *count = PyDict_GetItemWithError(counts, following);
    if (count == NULL) {
        if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, following);
        return -1;
    }
    Py_ssize_t left = PyLong_AsSsize_t(count) - 1;
    if (left) {
        PyObject *number = PyLong_FromSsize_t(left);
        int failed = number == NULL ? -1 : PyDict_SetItem(counts, following, number);
        Py_XDECREF(number);
        return failed;
    }
    return IS(following, AccumulateGrad) ? PyList_Append(leaves, following) : push_node(heap, following);
}

/* Hand a node's gradients on along its edges; -1 for an error. */
static int
hand_on(PyObject *task, PyObject *node, PyObject *results, PyObject *modes, PyObject *counts, Heap *heap, PyObject *leaves)
{
    PyObject *edges = PySequence_Fast(SLOT(node, Node__edges), "the edges of a node are no sequence");
    PyObject *given = results == Py_None ? Py_NewRef(Py_None) : PySequence_Fast(results, "a node gives no sequence of gradients");
    int failed = edges == NULL || given == NULL;
    for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(edges); i++) { /* either may change meanwhile */
        if (given != Py_None && i >= PySequence_Fast_GET_SIZE(given)) break;
        PyObject *edge = PySequence_Fast_GET_ITEM(edges, i);
        if (edge == Py_None) continue;
        if (!is_edge(edge)) {
            PyErr_Format(PyExc_TypeError, "drain: expected an edge, got %R", edge);
            failed = 1;
            break;
        }
        PyObject *gradient = given == Py_None ? Py_None : PySequence_Fast_GET_ITEM(given, i);
        Py_INCREF(edge);
        Py_INCREF(gradient);
        if (gradient != Py_None) failed = receive(task, edge, gradient, modes) < 0;
        Py_DECREF(gradient);
        if (!failed) failed = arrive(PyTuple_GET_ITEM(edge, 0), counts, heap, leaves) < 0;
        Py_DECREF(edge);
    }
    Py_XDECREF(edges);
    Py_XDECREF(given);
    return failed ? -1 : 0;
}

/* Let go of a node's gradients in the order in which Python's loop does: the last one after all others. */
static void
drop_results(PyObject *results)
{
    PyObject *last = NULL;
    if ((PyList_CheckExact(results) || PyTuple_CheckExact(results)) && PySequence_Fast_GET_SIZE(results))
        last = Py_NewRef(PySequence_Fast_GET_ITEM(results, PySequence_Fast_GET_SIZE(results) - 1));
    Py_DECREF(results);
    Py_XDECREF(last);
}

/* Whether a leaf may take a gradient over as it is: nobody else has it or its memory, and it is laid out as the leaf, whose
first gradient it is; -1 for an error. */
static int
may_take_over(PyObject *leaf, PyObject *gradient)
{
    PyObject *history = SLOT(leaf, Value__autograd), *meta = SLOT(leaf, Value__meta);
    if (!IS(history, AutogradMeta) || SLOT(history, AutogradMeta__requires_grad) != Py_True) return 0;
    if (SLOT(history, AutogradMeta__grad) != Py_None || SLOT(gradient, Value__meta) != meta ||
        SLOT(gradient, Value__base) != Py_None || Py_REFCNT(gradient) != 1 || Py_REFCNT(SLOT(gradient, Value__storage)) != 1)
        return 0;
    PyObject *is_row_major = PyObject_GetAttr(meta, text_is_contiguous);
    PyObject *offset = is_row_major != Py_True ? NULL : PyObject_GetAttr(meta, text_offset);
    int may = offset == NULL ? 0 : is_equal(offset, zero);
    Py_XDECREF(is_row_major);
    Py_XDECREF(offset);
    return PyErr_Occurred() ? -1 : may;
}

/* ``changes.note``; -1 for an error. */
static int
note_change(void)
{
    PyObject *count = PyDict_GetItemWithError(the_changes, text_count), *more;
    if (count == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "changes: its count is missing");
        return -1;
    }
    more = PyNumber_Add(count, one);
    int failed = more == NULL ? -1 : PyDict_SetItem(the_changes, text_count, more);
    Py_XDECREF(more);
    return failed;
}

/* Have a leaf take its gradient over, as ``GraphTask.visit`` does; 0 where that is left to Python, -1 for an error. */
static int
take_over(PyObject *task, PyObject *node)
{
    PyObject *pending = SLOT(task, GraphTask__pending), *leaf = SLOT(node, AccumulateGrad__leaf);
    PyObject *grads = PyDict_GetItemWithError(pending, node);
    if (grads == NULL || SLOT(node, Node__retained) != Py_None || leaf == NULL || !IS(leaf, Value) ||
        !PyList_CheckExact(grads) || PyList_GET_SIZE(grads) != 1 || !IS(PyList_GET_ITEM(grads, 0), Value))
        return PyErr_Occurred() ? -1 : 0;
    int takes = may_take_over(leaf, PyList_GET_ITEM(grads, 0));
    if (takes <= 0) return takes;
    if (note_change() < 0) return -1;
    PUT_SAME(SLOT(leaf, Value__autograd), AutogradMeta__grad, PyList_GET_ITEM(grads, 0));
    return PyDict_DelItem(pending, node) < 0 ? -1 : 1;
}

/* The place in a list of the leaf that was met last; -1 for an error. */
static Py_ssize_t
place_of_latest(PyObject *leaves)
{
    Py_ssize_t latest = 0;
    long long highest = -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(leaves); i++) {
        long long sequence = PyLong_AsLongLong(SLOT(PyList_GET_ITEM(leaves, i), Node__sequence));
        if (sequence == -1 && PyErr_Occurred()) return -1;
        if (sequence > highest) {
            highest = sequence;
            latest = i;
        }
    }
    return latest;
}

/* ``GraphTask._finish``; -1 for an error. */
static int
finish(const Pass *pass, PyObject *leaves)
{
    PyObject *task = pass->task;
    while (PyList_GET_SIZE(leaves)) {
        Py_ssize_t at = place_of_latest(leaves);
        if (at < 0) return -1;
        PyObject *leaf = Py_NewRef(PyList_GET_ITEM(leaves, at));
        int taken = PyList_SetSlice(leaves, at, at + 1, NULL) < 0 ? -1 : 0;
        if (taken == 0 && pass->passed == Py_None) taken = take_over(task, leaf);
        if (taken == 0) taken = done(PyObject_CallMethodObjArgs(task, text_visit, leaf, pass->wanted, NULL));
        Py_DECREF(leaf);
        if (taken < 0) return -1;
    }
    return 0;
}

/* Visit a node, and the leaves that wait for nothing more then; -1 for an error. */
static int
step(const Pass *pass, PyObject *node, Heap *heap, PyObject *leaves)
{
    PyObject *results = visit(pass, node);
    if (results == NULL) return -1;
    int failed = hand_on(pass->task, node, results, pass->modes, pass->counts, heap, leaves);
    drop_results(results); /* a leaf may take over a gradient that nothing but the task refers to */
    if (failed || PyList_GET_SIZE(leaves) == 0) return failed;
    return finish(pass, leaves);
}

/* Visit all nodes, each when all gradients that it waits for have arrived; -1 for an error. */
static int
drain(const Pass *pass, PyObject *starts)
{
    PyObject *pending = IS(pass->task, GraphTask) ? SLOT(pass->task, GraphTask__pending) : NULL;
    if (pending == NULL || !PyDict_CheckExact(pending)) {
        PyErr_Format(PyExc_TypeError, "drain: expected a pass, got %R", pass->task);
        return -1;
    }
    Heap heap = {NULL, 0, 0};
    PyObject *leaves = PyList_New(0);
    int failed = leaves == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(starts); i++) failed = push_node(&heap, PyList_GET_ITEM(starts, i));
    while (!failed && heap.count) {
        failed = give_way();
        if (failed) break;
        PyObject *node = pop_node(&heap);
        failed = step(pass, node, &heap, leaves);
        Py_DECREF(node);
    }
    while (heap.count) Py_DECREF(heap.items[--heap.count].node);
    PyMem_Free(heap.items);
    Py_XDECREF(leaves);
    return failed;
}

#endif
