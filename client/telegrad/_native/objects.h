/* Handles, nodes, lines of the program and the queue, as Python's functions of the same names make and keep them. */

#ifndef TELEGRAD_OBJECTS_H
#define TELEGRAD_OBJECTS_H

#include "slots.h"
#include <limits.h>
#include <stdint.h>

#define LINES 256 /* whose numbers are remembered, a power of 2 */

/* ``thread.modes``. What a thread has in ``thread`` stays one dictionary, and a number of a thread is not used again. */
static PyObject *
current_modes(void)
{
    static PyObject *entries;
    static uint64_t owner;
    uint64_t number = PyThreadState_GetID(PyThreadState_Get());
    if (entries == NULL || number != owner) {
        PyObject *own = PyObject_GetAttr(the_thread, text___dict__);
        if (own == NULL || !PyDict_CheckExact(own)) {
            Py_XDECREF(own);
            return NULL;
        }
        PyObject *former = entries;
        entries = own;
        owner = number; /* before anything else may run */
        Py_XDECREF(former);
    }
    PyObject *modes = PyDict_GetItemWithError(entries, text_modes);
    return modes == NULL && !PyErr_Occurred() ? Py_NewRef(the_default_modes) : Py_XNewRef(modes);
}

/* The next number that a function gives, which is ``__next__`` of a counter. */
static PyObject *
next_number(PyObject *give)
{
    static PyObject *known, *counter; /* the function that gave numbers last, and the counter that it belongs to */
    if (give != known) {
        PyObject *name = PyObject_GetAttr(give, text___name__);
        PyObject *owner = name == NULL ? NULL : PyObject_GetAttr(give, text___self__);
        int is_next = owner != NULL && IS(owner, count) && PyUnicode_CompareWithASCIIString(name, "__next__") == 0;
        Py_XDECREF(name);
        if (!is_next) {
            Py_XDECREF(owner);
            PyErr_Clear();
            return PyObject_CallNoArgs(give);
        }
        PyObject *former[] = {counter, known};
        counter = owner;
        known = Py_NewRef(give);
        for (int i = 0; i < 2; i++) Py_XDECREF(former[i]);
    }
    return PyIter_Next(counter);
}

/* An instance of a class whose ``__new__`` is object's. Its slots are empty, and the caller fills them at once. */
static PyObject *
allocate(PyObject *type)
{
    return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
}

static PyObject *
new_tensor(PyObject *session, PyObject *id, PyObject *meta)
{
    PyObject *tensor = allocate(the_Tensor);
    if (tensor == NULL) return NULL;
    SLOT(tensor, Tensor___id) = Py_NewRef(id);
    SLOT(tensor, Tensor___session) = Py_NewRef(session);
    SLOT(tensor, Tensor___meta) = Py_NewRef(meta);
    SLOT(tensor, Tensor___requires_grad) = Py_NewRef(Py_False);
    SLOT(tensor, Tensor___node) = Py_NewRef(Py_None);
    SLOT(tensor, Tensor___grad) = Py_NewRef(Py_None);
    SLOT(tensor, Tensor___base) = Py_NewRef(Py_None);
    SLOT(tensor, Tensor___aliases) = Py_NewRef(Py_None);
    SLOT(tensor, Tensor___seen) = Py_NewRef(zero);
    return tensor;
}

static PyObject *
new_node(PyObject **parents, Py_ssize_t count, PyObject *further, PyObject *name)
{
    PyObject *edges = PyTuple_New(count + (further == NULL ? 0 : PyList_GET_SIZE(further)));
    if (edges == NULL) return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(edges); i++)
        PyTuple_SET_ITEM(edges, i, Py_NewRef(i < count ? parents[i] : PyList_GET_ITEM(further, i - count)));
    PyObject *node = allocate(the_OperationNode);
    if (node == NULL) {
        Py_DECREF(edges);
        return NULL;
    }
    SLOT(node, OperationNode__parents) = edges;
    SLOT(node, OperationNode__name) = Py_NewRef(name);
    SLOT(node, OperationNode__extras) = Py_NewRef(Py_None);
    return node;
}

/* Whether a file is telegrad's; -1 for an error. */
static int
is_own(PyObject *file)
{
    int found = PySet_Contains(the_other_files, file);
    if (found != 0) return found < 0 ? -1 : 0;
    found = PySet_Contains(the_own_files, file);
    if (found != 0) return found;
    PyObject *answer = PyObject_CallOneArg(the_is_own, file);
    found = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return found;
}

/* The number of a line that the server may have been told of, given where a frame's code stands. */
static PyObject *
look_number_up(PyObject *sites, PyObject *code, int at, PyObject *frame)
{
    PyObject *address = PyLong_FromVoidPtr(code), *place = PyLong_FromLong(at);
    PyObject *key = address && place ? PyTuple_Pack(2, address, place) : NULL, *number = NULL;
    Py_XDECREF(address);
    Py_XDECREF(place);
    if (key == NULL) return NULL;
    number = Py_XNewRef(PyDict_GetItemWithError(SLOT(sites, CallSites___numbers), key));
    if (number == NULL && !PyErr_Occurred())
        number = PyObject_CallMethodObjArgs(sites, text__introduce, key, frame, NULL);
    Py_DECREF(key);
    return number;
}

/* The same, of the innermost frame that is not telegrad's. The numbers of the last lines are remembered. */
static PyObject *
number_of(PyObject *sites, PyObject *code, PyObject *frame)
{
    static struct {
        PyObject *numbers, *code, *number;
        int at;
    } lines[LINES];
    PyObject *numbers = SLOT(sites, CallSites___numbers);
    int at = PyFrame_GetLasti((PyFrameObject *)frame);
    Py_ssize_t place = (((uintptr_t)code >> 4) + (unsigned)at / 2) & (LINES - 1);
    if (lines[place].code == code && lines[place].at == at && lines[place].numbers == numbers)
        return Py_NewRef(lines[place].number);
    PyObject *number = look_number_up(sites, code, at, frame);
    if (number != NULL) {
        PyObject *former[] = {lines[place].numbers, lines[place].code, lines[place].number};
        lines[place].numbers = Py_NewRef(numbers);
        lines[place].code = Py_NewRef(code);
        lines[place].number = Py_NewRef(number);
        lines[place].at = at;
        for (int i = 0; i < 3; i++) Py_XDECREF(former[i]);
    }
    return number;
}

/* ``CallSites.current``, skipping the function of Python that has called this one. */
static PyObject *
current_site(PyObject *sites)
{
    PyObject *frame = PyObject_CallOneArg(the_getframe, one), *number = NULL;
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
        int own = is_own(code->co_filename);
        PyObject *outer = own == 1 ? (PyObject *)PyFrame_GetBack((PyFrameObject *)frame) : NULL;
        if (outer == NULL && own >= 0) number = number_of(sites, (PyObject *)code, frame);
        Py_DECREF(code);
        Py_SETREF(frame, outer);
    }
    return number;
}

/* ``SendQueue.take_dead``, or an empty tuple where none are dead. */
static PyObject *
take_dead(PyObject *dead)
{
    if (Py_SIZE(dead) == 0) return Py_NewRef(no_arguments);
    Py_ssize_t count = Py_SIZE(dead);
    PyObject *ids = PyList_New(count);
    if (Py_SIZE(dead) < count) { /* a finalizer has run, and with it another thread, which has taken them */
        Py_XDECREF(ids);
        return take_dead(dead);
    }
    for (Py_ssize_t i = 0; ids != NULL && i < count; i++) {
        PyObject *id = PyObject_Vectorcall(popleft, &dead, 1, NULL);
        if (id == NULL) Py_CLEAR(ids);
        else PyList_SET_ITEM(ids, i, id);
    }
    return ids;
}

/* The next larger number. */
static PyObject *
successor(PyObject *number)
{
    int overflow = 1;
    long long value = PyLong_CheckExact(number) ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
    return overflow || value == LLONG_MAX ? PyNumber_Add(number, one) : PyLong_FromLongLong(value + 1);
}

/* Whether a count is as large as a limit, or larger; -1 for an error. */
static int
is_reached(PyObject *count, PyObject *limit)
{
    int overflow = 1, other = 1;
    long long value = PyLong_CheckExact(count) ? PyLong_AsLongLongAndOverflow(count, &overflow) : 0;
    long long most = PyLong_CheckExact(limit) ? PyLong_AsLongLongAndOverflow(limit, &other) : 0;
    return overflow || other ? PyObject_RichCompareBool(count, limit, Py_GE) : value >= most;
}

/* Whether the parts of a session that calls pass are what they usually are. */
static int
is_usual_session(PyObject *session)
{
    PyObject *pending = SLOT(session, SendQueue___pending), *dead = SLOT(session, SendQueue___dead);
    PyObject *sites = SLOT(session, SendQueue__sites);
    if (pending == NULL || dead == NULL || sites == NULL || !IS(sites, CallSites)) return 0;
    if (!IS(pending, deque) || !IS(dead, deque) || SLOT(session, SendQueue__new_id) == NULL) return 0;
    return SLOT(session, SendQueue__operations) && SLOT(session, SendQueue___full_at) &&
           SLOT(session, SendQueue___is_armed) && SLOT(session, SendQueue___is_urgent);
}

/* ``SendQueue.queue``; -1 for an error. */
static int
queue(PyObject *session, PyObject *instruction, PyObject *modes)
{
    PyObject *done;
    int armed = PyObject_IsTrue(SLOT(session, SendQueue___is_armed));
    if (armed != 1) {
        done = armed < 0 ? NULL : PyObject_CallMethodObjArgs(session, text_queue, instruction, modes, NULL);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    PyObject *entry = modes == the_default_modes ? Py_NewRef(instruction) : PyTuple_Pack(2, modes, instruction);
    PyObject *both[] = {SLOT(session, SendQueue___pending), entry};
    done = entry == NULL ? NULL : PyObject_Vectorcall(append, both, 2, NULL);
    Py_XDECREF(entry);
    if (done == NULL) return -1;
    Py_DECREF(done);
    PyObject *count = successor(SLOT(session, SendQueue__operations));
    if (count == NULL) return -1;
    Py_SETREF(SLOT(session, SendQueue__operations), count);
    int full = PyObject_IsTrue(SLOT(session, SendQueue___is_urgent));
    if (full == 0) full = is_reached(count, SLOT(session, SendQueue___full_at));
    if (full != 1) return full;
    done = PyObject_CallMethodNoArgs(session, text__send_full);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

#endif
