/* What is found out of a call before anything is done: its operands, and what decides its plan. */

#ifndef TELEGRAD_WORK_H
#define TELEGRAD_WORK_H

#include "operands.h"

#define MOST 8    /* operands, parents and lists, each */
#define PARTS 24 /* of the key besides metas of operands */

typedef struct {
    PyObject *modes, *session, *plan, *wire, *target;
    PyObject *list_parents; /* a list of what operands in lists give, NULL for none */
    PyObject *devices;      /* of the session, for a call without operands; NULL for any other */
    Py_ssize_t tensors, other_count, parent_count, list_count;
    PyObject *metas[MOST], *ids[MOST], *others[PARTS], *parents[MOST]; /* as many as are counted */
    PyObject *lists[MOST];    /* of the numbers of tensors that are in a list */
    Py_ssize_t places[MOST];  /* where these stand among the arguments on the wire */
} Work;

static void
drop(PyObject **objects, Py_ssize_t *count)
{
    while (*count) Py_DECREF(objects[--*count]);
}

static void
forget(Work *work)
{
    Py_ssize_t ids = work->tensors;
    drop(work->ids, &ids);
    drop(work->metas, &work->tensors);
    drop(work->others, &work->other_count);
    drop(work->parents, &work->parent_count);
    drop(work->lists, &work->list_count);
    Py_XDECREF(work->list_parents);
    Py_XDECREF(work->devices);
    Py_XDECREF(work->modes);
    Py_XDECREF(work->session);
    Py_XDECREF(work->plan);
    Py_XDECREF(work->wire);
    Py_XDECREF(work->target);
}

/* Where the gradient of a tensor goes that requires one; NULL for an error, and for what is unusual. */
static PyObject *
edge_of(PyObject *tensor)
{
    PyObject *node = SLOT(tensor, Tensor___node);
    if (SLOT(tensor, Tensor___requires_grad) != Py_True || node == NULL) return NULL;
    return node != Py_None ? Py_NewRef(node) : PyObject_CallMethodNoArgs(tensor, text__gradient_edge);
}

/* Note where the gradient of an operand goes, if it requires one; 0 for what is unusual, as below. */
static int
take_parent(Work *work, PyObject *tensor)
{
    if (SLOT(tensor, Tensor___requires_grad) == Py_False) return 1;
    PyObject *node = work->parent_count < MOST ? edge_of(tensor) : NULL;
    if (node == NULL) return 0;
    work->parents[work->parent_count++] = node;
    return 1;
}

/* Whether a tensor was made in inference mode, which a recorded call may not save. */
static int
is_inference(PyObject *tensor)
{
    if (PyList_GET_SIZE(the_entered_inference) == 0) return 0;
    PyObject *made = PyObject_GetAttr(tensor, text__is_inference);
    Py_XDECREF(made);
    return made != Py_False;
}

static int
take_operand(Work *work, PyObject *tensor, int records)
{
    if (!is_usual(tensor)) return 0;
    PyObject *session = SLOT(tensor, Tensor___session), *id = SLOT(tensor, Tensor___id);
    PyObject *meta = SLOT(tensor, Tensor___meta);
    if (session == NULL || id == NULL || meta == NULL) return 0;
    if (work->session == NULL && IS(session, ClientSession)) work->session = Py_NewRef(session);
    if (session != work->session) return 0;
    if (!is_current(tensor)) return 0;
    work->metas[work->tensors] = Py_NewRef(meta);
    work->ids[work->tensors++] = Py_NewRef(id);
    if (!records) return 1;
    return !is_inference(tensor) && take_parent(work, tensor);
}

static int
take_operands(Work *work, PyObject *tensors, Py_ssize_t count, int records)
{
    if (!PyTuple_CheckExact(tensors)) return 0;
    if (count < 0) count = PyTuple_GET_SIZE(tensors);
    if (count > MOST || count > PyTuple_GET_SIZE(tensors)) return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!take_operand(work, PyTuple_GET_ITEM(tensors, i), records)) return 0;
    return 1;
}

/* Take over a part of the key; 0 for NULL. */
static int
take_other(Work *work, PyObject *part)
{
    if (part == NULL) return 0;
    if (work->other_count == PARTS) {
        Py_DECREF(part);
        return 0;
    }
    work->others[work->other_count++] = part;
    return 1;
}

#endif
