/* Views of the memory of an operand, as the engine's ``view_plan.py`` makes the usual ones. */

#ifndef TELEGRAD_VIEWS_H
#define TELEGRAD_VIEWS_H

#include "autograd.h"

#define VIEW_SLOTS(X) X(Value, origin) X(Value, seen)
#define VIEW_OBJECTS(X) X(view) X(tracked) X(untracked)

VIEW_SLOTS(DECLARE_SLOT)
VIEW_OBJECTS(DECLARE_OBJECT)

static int
take_views(PyObject *given)
{
    PyObject *value;
    VIEW_OBJECTS(TAKE)
    VIEW_SLOTS(FIND)
    return 0;
}

/* What ``bound_to_view`` is given: the operation, the place of the operand, the bytes that the view needs, and its meta. */
enum { VIEW_OP, VIEW_PLACE, VIEW_BYTES, VIEW_META, VIEW_FIELDS };

/* Whether the view that is asked for is a usual one of this value; -1 for an error. */
static int
is_usual_view(PyObject *bound, PyObject *source)
{
    if (!IS(source, Value) || !IS(SLOT(source, Value__storage), Storage)) return 0;
    if (SLOT(source, Value__base) != Py_None && SLOT(source, Value__origin) == NULL) return 0;
    PyObject *held = SLOT(SLOT(source, Value__storage), Storage__nbytes);
    return PyObject_RichCompareBool(PyTuple_GET_ITEM(bound, VIEW_BYTES), held, Py_LE);
}

/* A view of a value; NULL for an error. */
static PyObject *
view_of(PyObject *source, PyObject *meta)
{
    int unrecorded = is_unrecorded();
    PyObject *backend = SLOT(source, Value__backend), *key = unrecorded < 0 ? NULL : PyObject_GetAttr(backend, text_key);
    PyObject *keys = apply(PyNumber_Or, key, Py_NewRef(the_autograd_key));
    PyObject *view = keys == NULL ? NULL : PyBaseObject_Type.tp_new((PyTypeObject *)the_Value, no_arguments, NULL);
    if (view == NULL) {
        Py_XDECREF(keys);
        return NULL;
    }
    PyObject *base = SLOT(source, Value__base), *storage = SLOT(source, Value__storage);
    PyObject *origin = unrecorded ? the_untracked : base == Py_None ? the_tracked : SLOT(source, Value__origin);
    SLOT(view, Value__storage) = Py_NewRef(storage);
    SLOT(view, Value__meta) = Py_NewRef(meta);
    SLOT(view, Value__backend) = Py_NewRef(backend);
    SLOT(view, Value__base) = Py_NewRef(base == Py_None ? source : base);
    SLOT(view, Value__autograd) = Py_NewRef(Py_None);
    SLOT(view, Value___array) = Py_NewRef(Py_None);
    SLOT(view, Value__keys) = keys;
    SLOT(view, Value__seen) = Py_NewRef(SLOT(storage, Storage__version));
    SLOT(view, Value__origin) = Py_NewRef(origin);
    return view;
}

/* What ``bound_to_view`` returns. */
static PyObject *
call_view(PyObject *bound, PyObject *args)
{
    Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(bound, VIEW_PLACE));
    int is_usual = PyTuple_CheckExact(args) && place >= 0 && place < PyTuple_GET_SIZE(args)
                       ? is_usual_view(bound, PyTuple_GET_ITEM(args, place)) : 0;
    if (is_usual < 0) return NULL;
    if (is_usual) return view_of(PyTuple_GET_ITEM(args, place), PyTuple_GET_ITEM(bound, VIEW_META));
    PyObject *all[VIEW_FIELDS + 1] = {[VIEW_FIELDS] = args};
    for (int i = 0; i < VIEW_FIELDS; i++) all[i] = PyTuple_GET_ITEM(bound, i);
    return PyObject_Vectorcall(the_view, all, VIEW_FIELDS + 1, NULL);
}

#endif
