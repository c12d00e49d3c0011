/* The plan of a call: what decides it is a key, which is looked up where the plan is not remembered. */

#ifndef TELEGRAD_KEYS_H
#define TELEGRAD_KEYS_H

#include "lists.h"
#include "plans.h"

/* A list of integers as a tuple; NULL for others. */
static PyObject *
integers_of(PyObject *list)
{
    if (!is_plain_sequence(list)) return NULL;
    PyObject *items = PySequence_Tuple(list);
    for (Py_ssize_t i = 0; items != NULL && i < PyTuple_GET_SIZE(items); i++)
        if (!PyLong_CheckExact(PyTuple_GET_ITEM(items, i))) Py_CLEAR(items);
    return items;
}

/* Take what the key has besides metas. */
static int
take_others(Work *work, PyObject *pattern, PyObject *values)
{
    PyObject *pick = SLOT(pattern, CallPattern__attributes), *floats = SLOT(pattern, CallPattern__floats);
    PyObject *lists = SLOT(pattern, CallPattern__lists);
    if (!PyList_CheckExact(floats) || !PyList_CheckExact(lists)) return 0;
    if (pick != Py_None && !take_other(work, PyObject_CallOneArg(pick, values))) return 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(floats); i++) {
        PyObject *value = value_at(values, PyList_GET_ITEM(floats, i));
        int is_true = value == NULL ? -1 : PyObject_IsTrue(value);
        if (is_true < 0 || !take_other(work, is_true ? Py_NewRef(value) : PyObject_Repr(value))) return 0;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lists); i++) {
        PyObject *index = PyList_GET_ITEM(lists, i), *list = value_at(values, index);
        Py_ssize_t parameter = parameter_of(pattern, index);
        if (list == NULL) return 0;
        if (!take_other(work, parameter < 0 ? integers_of(list) : take_tensors_of(work, pattern, list, parameter)))
            return 0;
    }
    return 1;
}

/* The types of values, and names after them: a tuple, as ``types_of`` of ``_ops/call_pattern.py`` has it. */
static PyObject *
types_of(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count < 1 || count > 2 || !PyTuple_CheckExact(args[0]) || (count == 2 && !PyDict_CheckExact(args[1])))
        return PyErr_Format(PyExc_TypeError, "types_of: expected a tuple, and names in a dict");
    Py_ssize_t values = PyTuple_GET_SIZE(args[0]), names = count == 2 ? PyDict_GET_SIZE(args[1]) : 0, place = 0;
    PyObject *types = PyTuple_New(values + names), *name, *value;
    if (types == NULL) return NULL;
    for (Py_ssize_t i = 0; i < values; i++)
        PyTuple_SET_ITEM(types, i, Py_NewRef((PyObject *)Py_TYPE(PyTuple_GET_ITEM(args[0], i))));
    for (Py_ssize_t i = 0; i < names && PyDict_Next(args[1], &place, &name, &value); i++)
        PyTuple_SET_ITEM(types, values + i, Py_NewRef(name));
    return types;
}

/* Find the plan in the dictionary of all; 0 where there is none yet. */
static int
look_plan_up(Work *work, PyObject *pattern)
{
    PyObject *dtype = PyDict_GetItemWithError(the_dtypes, text__default);
    PyObject *key = dtype == NULL ? NULL : PyTuple_New(3 + work->tensors + work->other_count), *plan;
    if (key == NULL) return 0;
    PyObject **part = &PyTuple_GET_ITEM(key, 0);
    *part++ = Py_NewRef(pattern);
    *part++ = Py_NewRef(dtype);
    *part++ = Py_NewRef(SLOT(work->modes, Modes__of_plans));
    for (Py_ssize_t i = 0; i < work->tensors; i++) *part++ = Py_NewRef(work->metas[i]);
    for (Py_ssize_t i = 0; i < work->other_count; i++) *part++ = Py_NewRef(work->others[i]);
    plan = PyDict_GetItemWithError(the_plans, key);
    work->plan = plan != NULL && IS(plan, CallPlan) ? Py_NewRef(plan) : NULL;
    Py_DECREF(key);
    return work->plan != NULL;
}

/* Find the plan, which is most often remembered; 0 where there is none yet. */
static int
take_plan(Work *work, PyObject *pattern, PyObject *values, int plain)
{
    Given given;
    given.kinds = 0;
    given.count = 0;
    PyObject *dtype = PyDict_GetItemWithError(the_dtypes, text__default), *plan;
    int noted = dtype != NULL && note_word(&given, (intptr_t)pattern, AN_OBJECT) &&
                note_word(&given, (intptr_t)dtype, AN_OBJECT) &&
                note_word(&given, (intptr_t)SLOT(work->modes, Modes__of_plans), AN_OBJECT);
    for (Py_ssize_t i = 0; noted && i < work->tensors; i++)
        noted = note_word(&given, (intptr_t)work->metas[i], AN_OBJECT);
    if (noted && !plain)
        noted = !PyList_GET_SIZE(SLOT(pattern, CallPattern__tensor_lists)) &&
                note_values(&given, SLOT(pattern, CallPattern__others), values) &&
                note_values(&given, SLOT(pattern, CallPattern__floats), values) &&
                note_lists(&given, SLOT(pattern, CallPattern__lists), values);
    if (noted && work->devices != NULL) noted = note_word(&given, (intptr_t)work->devices, AN_OBJECT);
    Py_ssize_t place = noted ? place_of(&given) : 0;
    if (noted && (plan = remembered_plan(&given, place)) != NULL) {
        work->plan = Py_NewRef(plan);
        return 1;
    }
    if (!plain && !take_others(work, pattern, values)) return 0;
    if (work->devices != NULL && !take_other(work, Py_NewRef(work->devices))) return 0;
    if (!look_plan_up(work, pattern)) return 0;
    if (noted) remember(&given, place, work->plan);
    return 1;
}

#endif
