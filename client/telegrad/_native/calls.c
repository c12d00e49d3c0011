/* The usual path of a call, without Python's functions: what ``call`` in ``_ops/call.py`` says, which is the one to
 * read. A call is looked up first, which has no effect; whatever is unusual is left to ``call`` from its beginning.
 * While functions of Python may run, all that is used later is owned here, and no container is half made.
 */

#include "batches.h"
#include "conditions.h"
#include "extension_calls.h"
#include "answers.h"
#include "arguments.h"
#include "gradients.h"
#include "keys.h"
#include "noting.h"
#include "objects.h"
#include "receivers.h"
#include "runs.h"
#include "sending.h"

/* The parents where some operands are never differentiated. */
static int
take_differentiable(Work *work, PyObject *pattern, PyObject *values)
{
    PyObject *tensors = PyObject_CallOneArg(SLOT(pattern, CallPattern__differentiable), values);
    int usual = tensors != NULL && PyTuple_CheckExact(tensors);
    drop(work->parents, &work->parent_count);
    for (Py_ssize_t i = 0; usual && i < PyTuple_GET_SIZE(tensors); i++)
        usual = is_usual(PyTuple_GET_ITEM(tensors, i)) && take_parent(work, PyTuple_GET_ITEM(tensors, i));
    Py_XDECREF(tensors);
    return usual;
}

static PyObject *
wire_arguments(Work *work, PyObject *pattern)
{
    PyObject *rest = SLOT(work->plan, CallPlan__rest), *template = SLOT(work->plan, CallPlan__template), *wire;
    PyObject *positions = SLOT(pattern, CallPattern__positions);
    int leads = PyObject_IsTrue(SLOT(pattern, CallPattern__is_leading));
    if (leads < 0 || !PyList_CheckExact(rest) || !PyList_CheckExact(template) || !PyList_CheckExact(positions))
        return NULL;
    if (leads) {
        wire = PyList_New(work->tensors + PyList_GET_SIZE(rest));
        if (wire == NULL) return NULL;
        PyObject **item = ((PyListObject *)wire)->ob_item;
        for (Py_ssize_t i = 0; i < work->tensors; i++) *item++ = Py_NewRef(work->ids[i]);
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(rest); i++) *item++ = Py_NewRef(PyList_GET_ITEM(rest, i));
        if (place_lists(work, wire) < 0) Py_CLEAR(wire);
        return wire;
    }
    if (PyList_GET_SIZE(positions) != work->tensors) return NULL;
    wire = PyList_GetSlice(template, 0, PyList_GET_SIZE(template));
    for (Py_ssize_t i = 0; wire != NULL && i < work->tensors; i++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyList_GET_ITEM(positions, i));
        if (position < 0) position += PyList_GET_SIZE(wire);
        if (PyList_SetItem(wire, position, Py_NewRef(work->ids[i])) < 0) Py_CLEAR(wire);
    }
    if (wire != NULL && place_lists(work, wire) < 0) Py_CLEAR(wire);
    return wire;
}

static PyObject *
root_of(PyObject *tensor)
{
    PyObject *base = SLOT(tensor, Tensor___base);
    return base == NULL || base == Py_None ? tensor : base;
}

/* Whether no other operand shares the memory of a tensor. */
static int
is_apart(PyObject *target, PyObject *values)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        if (value == target || !PyObject_TypeCheck(value, (PyTypeObject *)the_Tensor)) continue;
        if (root_of(value) == root_of(target)) return 0;
    }
    return 1;
}

/* The operand that is written into, for a call that makes nothing; 0 where more than the server may have to know. */
static int
take_target(Work *work, PyObject *pattern, PyObject *values, int records)
{
    PyObject *position = SLOT(work->plan, CallPlan__target), *sources = SLOT(pattern, CallPattern__sources);
    Py_ssize_t place = PyLong_CheckExact(position) && PyList_CheckExact(sources) ? PyLong_AsSsize_t(position) : -1;
    if (place < 0 || place >= PyList_GET_SIZE(sources)) return 0;
    PyObject *target = value_at(values, PyList_GET_ITEM(sources, place));
    if (target == NULL || work->parent_count || !is_usual(target)) return 0;
    if (records && SLOT(target, Tensor___base) != Py_None) return 0;
    if (PyObject_IsTrue(SLOT(work->plan, CallPlan__keeps_apart)) && !is_apart(target, values)) return 0;
    if (records && (SLOT(target, Tensor___requires_grad) != Py_False || has(target, text__is_inference))) return 0;
    if (has(the_sharing, text_keeps_saved)) return 0;
    work->target = Py_NewRef(target);
    return 1;
}

/* The session of a call without operands, and its devices; 0 where it is of another class. */
static int
take_session(Work *work, PyObject *pattern, PyObject *values)
{
    PyObject *source = SLOT(pattern, CallPattern__device_source);
    PyObject *named = source == Py_None ? Py_None : value_at(values, source);
    if (named != NULL) work->session = PyObject_CallOneArg(the_session_for, named);
    if (work->session == NULL || !IS(work->session, ClientSession)) return 0;
    work->devices = PyObject_GetAttr(work->session, text_places);
    return work->devices != NULL;
}

/* All that has no effect; 0 where the call is an unusual one, or with an exception set. */
static int
look_up(Work *work, PyObject *pattern, PyObject *values)
{
    if (!PyObject_IsTrue(SLOT(pattern, CallPattern__is_usual))) return 0;
    int plain = PyObject_IsTrue(SLOT(pattern, CallPattern__is_plain)), found;
    int single = PyObject_IsTrue(SLOT(pattern, CallPattern__is_single));
    work->modes = current_modes();
    if (work->modes == NULL || !IS(work->modes, Modes)) return 0;
    int records = PyObject_IsTrue(SLOT(work->modes, Modes__records));
    if (plain || single) found = take_operands(work, values, single ? 1 : -1, records);
    else {
        PyObject *tensors = PyObject_CallOneArg(SLOT(pattern, CallPattern__tensors), values);
        found = tensors != NULL && take_operands(work, tensors, -1, records);
        Py_XDECREF(tensors);
    }
    int makes = found && work->session == NULL && PyList_GET_SIZE(SLOT(pattern, CallPattern__tensor_lists)) == 0;
    if (!found || (makes && !take_session(work, pattern, values)) || !take_plan(work, pattern, values, plain)) return 0;
    if (work->session == NULL || !is_usual_session(work->session)) return 0;
    if (work->parent_count && PyObject_IsTrue(SLOT(pattern, CallPattern__has_no_grad)) &&
        !take_differentiable(work, pattern, values))
        return 0;
    int writes = SLOT(work->plan, CallPlan__meta) == Py_None;
    if (writes && (work->target = update_of(work, pattern)) == NULL && !take_target(work, pattern, values, records))
        return 0;
    work->wire = wire_arguments(work, pattern);
    return work->wire != NULL;
}

/* Let a view share what its source shares; -1 for an error. */
static int
join(Work *work, PyObject *result, PyObject *pattern, PyObject *values)
{
    PyObject *index = SLOT(work->plan, CallPlan__view_of), *sources = SLOT(pattern, CallPattern__sources);
    PyObject *source = PyObject_GetItem(sources, index);
    PyObject *tensor = source == NULL ? NULL : PyObject_GetItem(values, source), *done = NULL;
    if (tensor != NULL) done = PyObject_CallFunctionObjArgs(the_join, result, tensor, work->plan, NULL);
    Py_XDECREF(source);
    Py_XDECREF(tensor);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *
new_result(Work *work, PyObject *id, PyObject *pattern, PyObject *values)
{
    PyObject *result = new_tensor(work->session, id, SLOT(work->plan, CallPlan__meta));
    if (result == NULL) return NULL;
    int error = 0;
    if ((work->parent_count || work->list_parents) && PyObject_IsTrue(SLOT(work->plan, CallPlan__gives_gradient))) {
        PyObject *name = SLOT(work->plan, CallPlan__grad_name);
        PyObject *node = new_node(work->parents, work->parent_count, work->list_parents, name);
        Py_SETREF(SLOT(result, Tensor___requires_grad), Py_NewRef(Py_True));
        if (node == NULL) error = -1;
        else Py_SETREF(SLOT(result, Tensor___node), node);
    }
    if (error == 0 && PyObject_IsTrue(SLOT(work->plan, CallPlan__is_view)))
        error = join(work, result, pattern, values);
    else if (error == 0 && PyObject_IsTrue(SLOT(work->modes, Modes__inference)))
        error = PyObject_SetAttr(result, text__is_inference, Py_True);
    if (error < 0) Py_CLEAR(result);
    return result;
}

/* Make the result of a call that was looked up, if it makes one, and queue the instruction. */
static PyObject *
perform(Work *work, PyObject *pattern, PyObject *values)
{
    PyObject *session = work->session, *message = NULL, *freed = NULL, *site = NULL, *id = NULL, *outs = NULL;
    PyObject *result = Py_XNewRef(work->target);
    if (result != NULL) outs = Py_NewRef(no_arguments);
    else {
        id = next_number(SLOT(session, SendQueue__new_id));
        result = id == NULL ? NULL : new_result(work, id, pattern, values);
        outs = result == NULL ? NULL : PyTuple_Pack(1, id);
    }
    if (id != NULL && outs != NULL) PyObject_GC_UnTrack(outs); /* a number refers to nothing */
    if (outs != NULL) freed = take_dead(SLOT(session, SendQueue___dead));
    if (freed != NULL) site = current_site(SLOT(session, SendQueue__sites));
    if (site != NULL) {
        PyObject *parts[] = {NULL, SLOT(work->plan, CallPlan__index), site, outs, work->wire, freed};
        message = PyObject_Vectorcall(the_Call, parts + 1, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }
    if (message == NULL || queue(session, message, work->modes) < 0) Py_CLEAR(result);
    Py_XDECREF(message);
    Py_XDECREF(site);
    Py_XDECREF(freed);
    Py_XDECREF(outs);
    Py_XDECREF(id);
    return result;
}

static PyObject *
usual_or_not(PyObject *const *args, Py_ssize_t count)
{
    Work work;
    memset(&work, 0, offsetof(Work, metas));
    PyObject *result = NULL;
    if (count == 2 && IS(args[0], CallPattern) && PyTuple_CheckExact(args[1]) && look_up(&work, args[0], args[1]))
        result = perform(&work, args[0], args[1]);
    else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError)) { /* such as an attribute without hash */
        PyErr_Clear();
        result = PyObject_Vectorcall(the_call, args, count, NULL);
    }
    forget(&work);
    return result;
}

static PyObject *
call(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!notes.is_on || count != 2 || !IS(args[0], CallPattern)) return usual_or_not(args, count);
    int64_t begin = monotonic_ns();
    PyObject *result = usual_or_not(args, count);
    if (notes.is_on) note(args[0], args[1], result, begin);
    return result;
}

/* ``Tensor.__del__``. Where what frees is a function of Python, an interrupt has to find ``__del__`` on the stack. */
static PyObject *
finalize(PyObject *tensor, PyObject *nothing)
{
    PyObject *session = SLOT(tensor, Tensor___session), *id = SLOT(tensor, Tensor___id);
    PyObject *free = session != NULL && IS(session, ClientSession) ? SLOT(session, SendQueue__free) : NULL;
    if (!is_usual(tensor) || id == NULL || free == NULL || !PyCFunction_CheckExact(free)) {
        PyErr_Clear();
        return PyObject_CallOneArg(the_finalize, tensor);
    }
    return id == zero ? Py_NewRef(Py_None) : PyObject_CallOneArg(free, id);
}

static PyMethodDef finalizer = {"__del__", finalize, METH_NOARGS, "Free the tensor, of which nothing is left here."};

static PyObject *
prepare(PyObject *module, PyObject *args, PyObject *given)
{
    if (given == NULL || take_objects(given) < 0) return given ? NULL : PyErr_Format(PyExc_TypeError, "prepare: no names");
    return Py_BuildValue(
        "NN", PyDescr_NewMethod((PyTypeObject *)the_Tensor, &finalizer),
        PyDescr_NewMethod((PyTypeObject *)the_Pace, &completer));
}

static PyMethodDef methods[] = {
    {"places_of", places_of, METH_O, "Return where calls of each line begin in a batch."},
    {"usual_receivers", usual_receivers, METH_O, "Return leaves that are reached from nodes, if all are usual."},
    {"new_tensor", (PyCFunction)(void (*)(void))call_new_tensor, METH_FASTCALL, "Return the handle of a tensor."},
    {"types_of", (PyCFunction)(void (*)(void))types_of, METH_FASTCALL, "Return the types of values, and names after them."},
    {"match_arguments", (PyCFunction)(void (*)(void))match_arguments, METH_FASTCALL, "Return tensors of a call that is alike."},
    {"ids_of", (PyCFunction)(void (*)(void))ids_of, METH_FASTCALL, "Return the numbers of tensors."},
    {"take_numbers", (PyCFunction)(void (*)(void))take_numbers, METH_FASTCALL, "Take numbers, and return the first."},
    {"send_queued", send_queued, METH_O, "Send what a session has queued; whether that was usual, and is done."},
    {"take_answer", (PyCFunction)(void (*)(void))take_answer, METH_FASTCALL, "Wait for an answer that comes as usual."},
    {"waits_awake", waits_awake, METH_NOARGS, "Waits that were awake, those in vain, and how many short ones will be asleep."},
    {"hold", (PyCFunction)(void (*)(void))hold, METH_FASTCALL, "Tell whether conditions hold, by kind."},
    {"gradients_hold", (PyCFunction)(void (*)(void))gradients_hold, METH_FASTCALL, "Tell whether rows hold."},
    {"change_gradients", (PyCFunction)(void (*)(void))change_gradients, METH_FASTCALL, "Change gradients by rows."},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, "Do what ``telegrad._ops.call.call`` does."},
    {"call_extension", (PyCFunction)(void (*)(void))call_extension, METH_FASTCALL, "Call a function of an extension."},
    {"begin_notes", begin_notes, METH_VARARGS, "Note calls from here on."},
    {"end_notes", end_notes, METH_NOARGS, "Return what was noted of calls."},
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS, "Take what ``call`` works with."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_calls", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__calls(void)
{
    return PyModule_Create(&definition);
}
