/* Calls of an extension's functions that are like earlier ones: what ``ExtensionFunction.__call__`` says in
 * ``utils/cpp_extension/_functions.py``, which is the one to read. Whatever is unusual is left to it from its beginning.
 */

#ifndef TELEGRAD_EXTENSION_CALLS_H
#define TELEGRAD_EXTENSION_CALLS_H

#include "objects.h"
#include "work.h"

/* Fields of what is known of a function, and of a plan. */
enum { E_SESSION, E_PLANS, E_OVERLOAD, E_FUNCTION, E_FIELDS };
enum { P_NUMBER, P_SHAPE, P_COUNT, P_USUAL, P_FIELDS };
/* Fields of the one tensor that a plan's calls return; a plan without a result has an empty tuple instead. */
enum { U_META, U_REQUIRES_GRAD, U_NAME, U_FIELDS };

/* Whether a value travels as it is. */
static int
is_plain_value(PyObject *value)
{
    return PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyBool_Check(value) || value == Py_None ||
           PyUnicode_CheckExact(value);
}

/* What of a call's arguments travels, with operands in ``work``; NULL for an error, and for what is unusual. */
static PyObject *
take_arguments(Work *work, PyObject *args, int records)
{
    PyObject *wire = PyList_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; wire != NULL && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *value = PyTuple_GET_ITEM(args, i), *item = NULL;
        if (is_plain_value(value)) item = Py_NewRef(value);
        else if (work->tensors < MOST && take_operand(work, value, records)) {
            item = PyTuple_Pack(1, work->ids[work->tensors - 1]);
            if (item != NULL) PyObject_GC_UnTrack(item); /* a number refers to nothing */
        }
        if (item == NULL) Py_CLEAR(wire);
        else PyList_SET_ITEM(wire, i, item);
    }
    return wire;
}

/* ``_frozen`` of an argument. */
static PyObject *
frozen(PyObject *value)
{
    if (!is_plain_value(value)) return Py_NewRef(the_Tensor);
    PyObject *kind = (PyObject *)Py_TYPE(value);
    if (!PyFloat_CheckExact(value)) return PyTuple_Pack(2, kind, value);
    PyObject *text = PyObject_Repr(value), *pair = text == NULL ? NULL : PyTuple_Pack(2, kind, text);
    Py_XDECREF(text);
    return pair;
}

static PyObject *
all_frozen(PyObject *args)
{
    PyObject *parts = PyTuple_New(PyTuple_GET_SIZE(args));
    for (Py_ssize_t i = 0; parts != NULL && i < PyTuple_GET_SIZE(args); i++) {
        PyObject *part = frozen(PyTuple_GET_ITEM(args, i));
        if (part == NULL) Py_CLEAR(parts);
        else PyTuple_SET_ITEM(parts, i, part);
    }
    return parts;
}

/* The key of a call's plan. */
static PyObject *
key_of_extension(Work *work, PyObject *row, PyObject *args)
{
    PyObject *dtype = PyDict_GetItemWithError(the_dtypes, text__default);
    int others = work->tensors != PyTuple_GET_SIZE(args);
    PyObject *last = dtype != NULL && others ? all_frozen(args) : NULL;
    PyObject *key = dtype != NULL && (last != NULL || !others) ? PyTuple_New(4 + 2 * work->tensors + others) : NULL;
    if (key == NULL) {
        Py_XDECREF(last);
        return NULL;
    }
    PyObject **part = &PyTuple_GET_ITEM(key, 0);
    *part++ = Py_NewRef(PyTuple_GET_ITEM(row, E_OVERLOAD));
    *part++ = Py_NewRef(SLOT(work->modes, Modes__of_plans));
    *part++ = Py_NewRef(SLOT(work->modes, Modes__records));
    *part++ = Py_NewRef(dtype);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); i++) {
        PyObject *value = PyTuple_GET_ITEM(args, i);
        if (is_plain_value(value)) continue;
        *part++ = Py_NewRef(SLOT(value, Tensor___meta));
        *part++ = Py_NewRef(SLOT(value, Tensor___requires_grad));
    }
    if (others) *part = last;
    return key;
}

/* The usual plan of a call, borrowed; NULL where there is none. */
static PyObject *
plan_of_extension(Work *work, PyObject *row, PyObject *args)
{
    PyObject *key = key_of_extension(work, row, args);
    PyObject *plan = key == NULL ? NULL : PyDict_GetItemWithError(PyTuple_GET_ITEM(row, E_PLANS), key);
    Py_XDECREF(key);
    if (plan == NULL || !PyTuple_CheckExact(plan) || PyTuple_GET_SIZE(plan) != P_FIELDS) return NULL;
    return PyTuple_CheckExact(PyTuple_GET_ITEM(plan, P_USUAL)) ? plan : NULL;
}

/* All that has no effect; 0 where the call is an unusual one, or with an exception set. */
static int
look_extension_up(Work *work, PyObject *row, PyObject *args)
{
    PyObject *session = PyTuple_GET_ITEM(row, E_SESSION);
    if (!IS(session, ClientSession) || !is_usual_session(session)) return 0;
    work->session = Py_NewRef(session);
    work->modes = current_modes();
    if (work->modes == NULL || !IS(work->modes, Modes)) return 0;
    work->wire = take_arguments(work, args, PyObject_IsTrue(SLOT(work->modes, Modes__records)));
    if (work->wire == NULL) return 0;
    work->plan = Py_XNewRef(plan_of_extension(work, row, args));
    PyObject *is_open = work->plan == NULL ? NULL : PyObject_GetAttr(session, text_is_open);
    Py_XDECREF(is_open);
    return is_open == Py_True;
}

/* The tensor that a call returns. */
static PyObject *
new_extension_result(Work *work, PyObject *id, PyObject *usual)
{
    PyObject *result = new_tensor(work->session, id, PyTuple_GET_ITEM(usual, U_META));
    int error = result == NULL ? -1 : 0;
    if (!error && PyTuple_GET_ITEM(usual, U_REQUIRES_GRAD) == Py_True && work->parent_count) {
        PyObject *node = new_node(work->parents, work->parent_count, NULL, PyTuple_GET_ITEM(usual, U_NAME));
        Py_SETREF(SLOT(result, Tensor___requires_grad), Py_NewRef(Py_True));
        if (node == NULL) error = -1;
        else Py_SETREF(SLOT(result, Tensor___node), node);
    }
    if (!error && PyObject_IsTrue(SLOT(work->modes, Modes__inference)))
        error = PyObject_SetAttr(result, text__is_inference, Py_True);
    if (error) Py_CLEAR(result);
    return result;
}

/* Make the result of a call that was looked up, and queue the instruction. */
static PyObject *
perform_extension(Work *work, PyObject *row)
{
    PyObject *usual = PyTuple_GET_ITEM(work->plan, P_USUAL), *id = NULL, *outs = NULL, *result = NULL;
    PyObject *freed = NULL, *site = NULL, *message = NULL;
    if (PyTuple_GET_SIZE(usual) != U_FIELDS) {
        result = Py_NewRef(Py_None);
        outs = Py_NewRef(no_arguments);
    } else if ((id = next_number(SLOT(work->session, SendQueue__new_id))) != NULL) {
        result = new_extension_result(work, id, usual);
        outs = result == NULL ? NULL : PyTuple_Pack(1, id);
        if (outs != NULL) PyObject_GC_UnTrack(outs);
    }
    if (outs != NULL) freed = take_dead(SLOT(work->session, SendQueue___dead));
    if (freed != NULL) site = current_site(SLOT(work->session, SendQueue__sites));
    if (site != NULL) {
        PyObject *parts[] = {NULL,       PyTuple_GET_ITEM(row, E_FUNCTION), site, outs, work->wire,
                             PyTuple_GET_ITEM(work->plan, P_NUMBER), Py_None, freed};
        message = PyObject_Vectorcall(the_CallExtension, parts + 1, 7 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    if (message == NULL || queue(work->session, message, work->modes) < 0) Py_CLEAR(result);
    Py_XDECREF(message);
    Py_XDECREF(site);
    Py_XDECREF(freed);
    Py_XDECREF(outs);
    Py_XDECREF(id);
    return result;
}

/* Make a call by its plan, given what is known of the function and the arguments; ``ABSENT`` where Python is to. */
static PyObject *
call_extension(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyTuple_CheckExact(args[0]) || PyTuple_GET_SIZE(args[0]) != E_FIELDS || !PyTuple_CheckExact(args[1]) ||
        !PyDict_CheckExact(PyTuple_GET_ITEM(args[0], E_PLANS)))
        return PyErr_Format(PyExc_TypeError, "call_extension: expected what is known of a function, and arguments");
    Work work;
    memset(&work, 0, offsetof(Work, metas));
    PyObject *result = NULL;
    if (look_extension_up(&work, args[0], args[1])) result = perform_extension(&work, args[0]);
    else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        result = Py_NewRef(the_absent);
    }
    forget(&work);
    return result;
}

#endif
