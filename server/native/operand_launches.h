/* Launches on operands and results: they read the addresses of these, and call what starts a kernel with them; and calls of
a library that wait where launches do. As the engine's ``cuda/runtime/operands.py`` has them. */

#ifndef TELEGRAD_OPERAND_LAUNCHES_H
#define TELEGRAD_OPERAND_LAUNCHES_H

#include "kernel_launches.h"
#include "values.h"

#define MOST_PLACES 16

enum { OF_ARGUMENT, OF_RESULT, OF_CONSTANT, OF_WORKSPACE, OF_NUMBER, PLACE_SOURCES };

typedef struct {
    Py_ssize_t source, number, offset; /* the offset is in bytes; of a workspace or a number it is the size */
} Place;

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    PyObject *backend, *fire;
    Place places[];
} OperandLaunch;

static PyObject *text_storage, *text_block, *text_pointer, *text_workspace;

/* The address of the block of a value, as a new reference; 0 for an absent one. */
static PyObject *
beginning_of(PyObject *value)
{
    if (value == Py_None) return Py_NewRef(zero);
    PyObject *storage = IS(value, Value) ? SLOT(value, Value__storage) : NULL;
    PyObject *block = storage != NULL && IS(storage, Storage) ? SLOT(storage, Storage__block) : NULL;
    if (block != NULL && IS(block, Block) && SLOT(block, Block__pointer) != NULL) return Py_NewRef(SLOT(block, Block__pointer));
    storage = PyObject_GetAttr(value, text_storage);
    block = storage == NULL ? NULL : PyObject_GetAttr(storage, text_block);
    PyObject *pointer = block == NULL ? NULL : PyObject_GetAttr(block, text_pointer);
    Py_XDECREF(storage);
    Py_XDECREF(block);
    return pointer;
}

/* A number and an offset together, of which the reference to the number is taken. */
static PyObject *
with_offset(PyObject *number, Py_ssize_t offset)
{
    if (number == NULL || offset == 0) return number;
    PyObject *added = PyLong_FromSsize_t(offset);
    PyObject *sum = added == NULL ? NULL : PyNumber_Add(number, added);
    Py_XDECREF(added);
    Py_DECREF(number);
    return sum;
}

static PyObject *
workspace_of(PyObject *backend, Py_ssize_t nbytes)
{
    PyObject *size = PyLong_FromSsize_t(nbytes), *block = NULL, *pointer = NULL;
    if (size != NULL) block = PyObject_CallMethodOneArg(backend, text_workspace, size);
    if (block != NULL) pointer = PyObject_GetAttr(block, text_pointer);
    Py_XDECREF(size);
    Py_XDECREF(block);
    return pointer;
}

/* A number as an argument holds it, in so many bytes, as an integer of the same bits. */
static PyObject *
bits_of(PyObject *number, Py_ssize_t nbytes)
{
    if (!PyFloat_CheckExact(number) && !PyLong_Check(number))
        return PyErr_Format(PyExc_TypeError, "launch: expected a number, got %R", number);
    double value = PyFloat_AsDouble(number);
    if (PyErr_Occurred()) return NULL;
    float single = (float)value;
    uint64_t bits = 0;
    if (nbytes == 4) memcpy(&bits, &single, 4);
    else memcpy(&bits, &value, 8);
    return PyLong_FromUnsignedLongLong(bits);
}

static PyObject *
address_at(OperandLaunch *launch, const Place *place, PyObject *const *both)
{
    if (place->source == OF_CONSTANT) return PyLong_FromSsize_t(place->offset);
    if (place->source == OF_WORKSPACE) return workspace_of(launch->backend, place->offset);
    PyObject *values = both[place->source == OF_RESULT];
    if (place->number >= PyTuple_GET_SIZE(values)) {
        PyErr_SetString(PyExc_IndexError, "launch: an operand or a result is missing");
        return NULL;
    }
    PyObject *value = PyTuple_GET_ITEM(values, place->number);
    if (place->source == OF_NUMBER) return bits_of(value, place->offset);
    PyObject *address = beginning_of(value);
    return value == Py_None ? address : with_offset(address, place->offset);
}

static PyObject *
call_operand_launch(PyObject *self, PyObject *const *both, size_t flags, PyObject *names)
{
    OperandLaunch *launch = (OperandLaunch *)self;
    if (PyVectorcall_NARGS(flags) != 2 || (names != NULL && PyTuple_GET_SIZE(names)) || !PyTuple_CheckExact(both[0]) ||
        !PyTuple_CheckExact(both[1]))
        return PyErr_Format(PyExc_TypeError, "launch: expected tuples of operands and of results");
    Py_ssize_t count = Py_SIZE(self), filled = 0;
    PyObject *given[1 + MOST_PLACES], *result = NULL;
    given[0] = Py_NewRef(SLOT(launch->backend, Backend__stream));
    while (filled < count && (given[1 + filled] = address_at(launch, &launch->places[filled], both)) != NULL) filled++;
    if (filled == count) {
        int is_kernel = Py_IS_TYPE(launch->fire, &KernelLaunchType) && ((KernelLaunch *)launch->fire)->addresses == count;
        result = is_kernel ? start_kernel(launch->fire, given)
                           : PyObject_Vectorcall(launch->fire, given, 1 + count, NULL);
    }
    for (Py_ssize_t i = 0; i <= filled; i++) Py_DECREF(given[i]);
    return none_unless(done(result));
}

static int
traverse_operand_launch(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((OperandLaunch *)self)->backend);
    Py_VISIT(((OperandLaunch *)self)->fire);
    return 0;
}

static void
free_operand_launch(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_DECREF(((OperandLaunch *)self)->backend);
    Py_DECREF(((OperandLaunch *)self)->fire);
    PyObject_GC_Del(self);
}

static PyTypeObject OperandLaunchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "telegrad.OperandLaunch",
    .tp_doc = "A launch on operands and results, which are given as two tuples.",
    .tp_basicsize = sizeof(OperandLaunch),
    .tp_itemsize = sizeof(Place),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(OperandLaunch, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = traverse_operand_launch,
    .tp_dealloc = free_operand_launch,
};

/* Read a place from a tuple of its source, number and offset; -1 for an error. */
static int
read_place(Place *place, PyObject *described)
{
    if (PyTuple_CheckExact(described) && PyTuple_GET_SIZE(described) == 3) {
        place->source = PyLong_AsSsize_t(PyTuple_GET_ITEM(described, 0));
        place->number = PyLong_AsSsize_t(PyTuple_GET_ITEM(described, 1));
        place->offset = PyLong_AsSsize_t(PyTuple_GET_ITEM(described, 2));
        if (PyErr_Occurred()) return -1;
        if (place->source >= 0 && place->source < PLACE_SOURCES && place->number >= 0) return 0;
    }
    PyErr_Format(PyExc_TypeError, "operand_launch: expected a source, a number and an offset, got %R", described);
    return -1;
}

/* A launch on operands by a backend, what starts it, and a list of places; None where that is Python's. */
static PyObject *
operand_launch(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyList_CheckExact(given[2])) return PyErr_Format(PyExc_TypeError, "operand_launch: expected a list of places");
    Py_ssize_t size = PyList_GET_SIZE(given[2]);
    if (the_Backend == NULL || !PyObject_TypeCheck(given[0], (PyTypeObject *)the_Backend) ||
        SLOT(given[0], Backend__stream) == NULL || size > MOST_PLACES)
        return Py_NewRef(Py_None);
    Place places[MOST_PLACES];
    for (Py_ssize_t i = 0; i < size; i++)
        if (read_place(&places[i], PyList_GET_ITEM(given[2], i)) < 0) return NULL;
    OperandLaunch *launch = PyObject_GC_NewVar(OperandLaunch, &OperandLaunchType, size);
    if (launch == NULL) return NULL;
    launch->vectorcall = call_operand_launch;
    launch->backend = Py_NewRef(given[0]);
    launch->fire = Py_NewRef(given[1]);
    memcpy(launch->places, places, size * sizeof(Place));
    PyObject_GC_Track(launch);
    return (PyObject *)launch;
}

/* Where the memory of values begins, as a list; ``beginnings_of``. */
static PyObject *
call_beginnings_of(PyObject *module, PyObject *values)
{
    (void)module;
    PyObject *sequence = PySequence_Fast(values, "beginnings_of: expected values"), *beginnings = NULL;
    if (sequence != NULL) beginnings = PyList_New(PySequence_Fast_GET_SIZE(sequence));
    for (Py_ssize_t i = 0; beginnings != NULL && i < PyList_GET_SIZE(beginnings); i++) {
        PyObject *beginning = beginning_of(PySequence_Fast_GET_ITEM(sequence, i));
        if (beginning == NULL) Py_CLEAR(beginnings);
        else PyList_SET_ITEM(beginnings, i, beginning);
    }
    Py_XDECREF(sequence);
    return beginnings;
}

/* Count a modification of the memory of a value, unless it is None; -1 for an error. */
static int
note_write(PyObject *value)
{
    if (value == Py_None) return 0;
    PyObject *storage = IS(value, Value) ? SLOT(value, Value__storage) : NULL;
    if (storage != NULL && IS(storage, Storage) && SLOT(storage, Storage__version) != NULL)
        return add_to(storage, Storage__version, one);
    PyErr_Format(PyExc_TypeError, "note_writes: expected values, got %R", value);
    return -1;
}

/* Count a modification of each argument in some places, and of each value of a tuple there; ``note_writes``. */
static PyObject *
call_note_writes(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyTuple_Check(given[0]) || !PyTuple_CheckExact(given[1]))
        return PyErr_Format(PyExc_TypeError, "note_writes: expected arguments and places");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given[1]); i++) {
        PyObject *target = PyTuple_GetItem(given[0], PyLong_AsSsize_t(PyTuple_GET_ITEM(given[1], i)));
        if (target == NULL) return NULL;
        if (!PyTuple_CheckExact(target)) {
            if (note_write(target) < 0) return NULL;
            continue;
        }
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(target); k++)
            if (note_write(PyTuple_GET_ITEM(target, k)) < 0) return NULL;
    }
    return Py_NewRef(Py_None);
}

#define MOST_ARGUMENTS 24

/* A call of a function of which most arguments are fixed. The stream, and then values, go to the others. */
typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    PyObject *queue, *function, *fixed, *first, *kept; /* ``first`` is called with the value after the last place */
    Py_ssize_t places[];
} QueuedCall;

static PyObject *
call_queued(PyObject *self, PyObject *const *given, size_t flags, PyObject *names)
{
    QueuedCall *queued = (QueuedCall *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flags), places = Py_SIZE(self), size = PyTuple_GET_SIZE(queued->fixed);
    if ((names != NULL && PyTuple_GET_SIZE(names)) || count < places || count > places + 1 ||
        (queued->first != Py_None && count == places))
        return PyErr_Format(PyExc_TypeError, "launch: expected the stream and %zd values", places - 1);
    if (SLOT(queued->queue, LaunchQueue__is_open) == Py_True) return wait_in_queue(queued->queue, self, given, count);
    if (queued->first != Py_None && done(PyObject_CallOneArg(queued->first, given[places])) < 0) return NULL;
    PyObject *all[MOST_ARGUMENTS];
    memcpy(all, &PyTuple_GET_ITEM(queued->fixed, 0), size * sizeof(PyObject *));
    for (Py_ssize_t i = 0; i < places; i++) all[queued->places[i]] = given[i];
    return none_unless(done(PyObject_Vectorcall(queued->function, all, size, NULL)));
}

static int
traverse_queued(PyObject *self, visitproc visit, void *arg)
{
    QueuedCall *queued = (QueuedCall *)self;
    Py_VISIT(queued->queue);
    Py_VISIT(queued->function);
    Py_VISIT(queued->fixed);
    Py_VISIT(queued->first);
    Py_VISIT(queued->kept);
    return 0;
}

static void
free_queued(PyObject *self)
{
    QueuedCall *queued = (QueuedCall *)self;
    PyObject_GC_UnTrack(self);
    Py_DECREF(queued->queue);
    Py_DECREF(queued->function);
    Py_DECREF(queued->fixed);
    Py_DECREF(queued->first);
    Py_DECREF(queued->kept);
    PyObject_GC_Del(self);
}

static PyTypeObject QueuedCallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "telegrad.QueuedCall",
    .tp_doc = "A call of a library that waits where launches do; it takes the stream and values.",
    .tp_basicsize = sizeof(QueuedCall),
    .tp_itemsize = sizeof(Py_ssize_t),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(QueuedCall, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = traverse_queued,
    .tp_dealloc = free_queued,
};

/* A call by a queue, a function, its arguments, the places of the stream and of values among these, what is called before,
and what has to live as long; None where that is Python's. */
static PyObject *
queued_call(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 6 || the_LaunchQueue == NULL || !is_usual_queue(given[0]) || !PyTuple_CheckExact(given[2]) ||
        !PyTuple_CheckExact(given[3]) || PyTuple_GET_SIZE(given[2]) > MOST_ARGUMENTS)
        return Py_NewRef(Py_None);
    Py_ssize_t places = PyTuple_GET_SIZE(given[3]);
    QueuedCall *queued = PyObject_GC_NewVar(QueuedCall, &QueuedCallType, places);
    if (queued == NULL) return NULL;
    queued->vectorcall = call_queued;
    queued->queue = Py_NewRef(given[0]);
    queued->function = Py_NewRef(given[1]);
    queued->fixed = Py_NewRef(given[2]);
    queued->first = Py_NewRef(given[4]);
    queued->kept = Py_NewRef(given[5]);
    for (Py_ssize_t i = 0; i < places; i++) {
        queued->places[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(given[3], i));
        if (!PyErr_Occurred() && (queued->places[i] < 0 || queued->places[i] >= PyTuple_GET_SIZE(given[2])))
            PyErr_SetString(PyExc_IndexError, "queued_call: a place beyond the arguments");
    }
    PyObject_GC_Track(queued);
    if (!PyErr_Occurred()) return (PyObject *)queued;
    Py_DECREF(queued);
    return NULL;
}

static int
ready_launch_types(void)
{
    text_storage = PyUnicode_InternFromString("storage");
    text_block = PyUnicode_InternFromString("block");
    text_pointer = PyUnicode_InternFromString("pointer");
    text_workspace = PyUnicode_InternFromString("workspace");
    if (text_storage == NULL || text_block == NULL || text_pointer == NULL || text_workspace == NULL) return -1;
    return PyType_Ready(&KernelLaunchType) | PyType_Ready(&OperandLaunchType) | PyType_Ready(&QueuedCallType);
}

#endif
