/* Operands that stand in lists, as those of ``stack`` and of the steps of optimizers do. */

#ifndef TELEGRAD_LISTS_H
#define TELEGRAD_LISTS_H

#include "work.h"

/* The number of a parameter whose value is a list of tensors, given the value's index; -1 for other lists. */
static Py_ssize_t
parameter_of(PyObject *pattern, PyObject *index)
{
    PyObject *pairs = SLOT(pattern, CallPattern__tensor_lists);
    for (Py_ssize_t i = 0; PyList_CheckExact(pairs) && i < PyList_GET_SIZE(pairs); i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        int same = PyTuple_CheckExact(pair) && PyObject_RichCompareBool(PyTuple_GET_ITEM(pair, 0), index, Py_EQ) == 1;
        if (same) return PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 1));
    }
    return -1;
}

/* The meta of an item as a part of a key: without its offset where nothing depends on that. */
static PyObject *
meta_in_key(PyObject *meta, int has_places)
{
    if (has_places || !IS(meta, Meta)) return Py_NewRef(meta);
    PyObject *offset = SLOT(meta, Meta__offset);
    return offset == zero ? Py_NewRef(meta) : PyObject_GetAttr(meta, text_at_start);
}

/* Note where the gradients of an item go. */
static int
take_list_parent(Work *work, PyObject *tensor)
{
    if (is_inference(tensor)) return 0;
    if (SLOT(tensor, Tensor___requires_grad) == Py_False) return 1;
    if (work->list_parents == NULL && (work->list_parents = PyList_New(0)) == NULL) return 0;
    PyObject *node = edge_of(tensor);
    int error = node == NULL ? -1 : PyList_Append(work->list_parents, node);
    Py_XDECREF(node);
    return error == 0;
}

/* Take one item of a list: its meta and its number go into these. */
static int
take_item(Work *work, PyObject *tensor, PyObject *metas, PyObject *ids, Py_ssize_t i, int has_places)
{
    if (PySet_Contains(the_tensor_types, (PyObject *)Py_TYPE(tensor)) != 1 || !is_usual(tensor)) return 0;
    PyObject *session = SLOT(tensor, Tensor___session), *id = SLOT(tensor, Tensor___id);
    PyObject *meta = SLOT(tensor, Tensor___meta);
    if (session == NULL || id == NULL || meta == NULL) return 0;
    if (work->session == NULL && IS(session, ClientSession)) work->session = Py_NewRef(session);
    if (session != work->session || !is_current(tensor)) return 0;
    PyList_SET_ITEM(ids, i, Py_NewRef(id));
    meta = meta_in_key(meta, has_places);
    PyTuple_SET_ITEM(metas, i, meta);
    return meta != NULL;
}

/* Take all that a list has: its metas, which are returned, its numbers, and where gradients go if ``graded``. */
static PyObject *
take_list(Work *work, PyObject *list, Py_ssize_t parameter, int has_places, int graded)
{
    if (!(PyList_CheckExact(list) || PyTuple_CheckExact(list)) || work->list_count == MOST) return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(list);
    PyObject *ids = PyList_New(count), *metas = ids == NULL ? NULL : PyTuple_New(count);
    int found = metas != NULL;
    if (found) { /* nobody finds them before they are filled */
        PyObject_GC_UnTrack(ids);
        if (count) PyObject_GC_UnTrack(metas);
    }
    for (Py_ssize_t i = 0; found && i < count; i++) {
        if (PySequence_Fast_GET_SIZE(list) != count) break; /* a function of Python has changed it */
        PyObject *tensor = Py_NewRef(PySequence_Fast_GET_ITEM(list, i));
        found = take_item(work, tensor, metas, ids, i, has_places) && (!graded || take_list_parent(work, tensor));
        Py_DECREF(tensor);
        found = found && PySequence_Fast_GET_SIZE(list) == count;
    }
    if (!found) {
        Py_XDECREF(ids);
        Py_XDECREF(metas);
        return NULL;
    }
    PyObject_GC_Track(ids);
    if (count) PyObject_GC_Track(metas);
    work->places[work->list_count] = parameter;
    work->lists[work->list_count++] = ids;
    return metas;
}

/* Take a list that is a value of a call; returns what the key has of it, NULL for what is unusual. */
static PyObject *
take_tensors_of(Work *work, PyObject *pattern, PyObject *list, Py_ssize_t parameter)
{
    PyObject *place = PyLong_FromSsize_t(parameter);
    if (place == NULL) return NULL;
    int spared = PySequence_Contains(SLOT(pattern, CallPattern__no_grad), place);
    int has_places = PyObject_IsTrue(SLOT(pattern, CallPattern__has_places));
    int records = PyObject_IsTrue(SLOT(work->modes, Modes__records));
    Py_DECREF(place);
    return spared < 0 ? NULL : take_list(work, list, parameter, has_places, records && !spared);
}

/* Put the numbers that lists have into the arguments on the wire; -1 for an error. */
static int
place_lists(Work *work, PyObject *wire)
{
    for (Py_ssize_t i = 0; i < work->list_count; i++)
        if (PyList_SetItem(wire, work->places[i], Py_NewRef(work->lists[i])) < 0) return -1;
    return 0;
}

/* What a call returns that changes the tensors of lists and is not recorded; NULL where Python is to see to it. */
static PyObject *
update_of(Work *work, PyObject *pattern)
{
    PyObject *plan = work->plan;
    if (!work->list_count || SLOT(pattern, CallPattern__updates) != Py_True) return NULL;
    if (work->parent_count || work->list_parents != NULL || SLOT(plan, CallPlan__outs) != Py_None) return NULL;
    if (PyObject_IsTrue(SLOT(plan, CallPlan__keeps_apart)) || PyObject_IsTrue(SLOT(plan, CallPlan__late_error)))
        return NULL;
    return has(the_sharing, text_keeps_saved) ? NULL : Py_NewRef(Py_None);
}

#endif
