/* Launches of kernels with a fixed geometry, as the engine's ``cuda/runtime/launch.py`` prepares them: their parameters lie
in a buffer of the launch, constants are written once, and addresses each time. */

#ifndef TELEGRAD_KERNEL_LAUNCHES_H
#define TELEGRAD_KERNEL_LAUNCHES_H

#include <stdint.h>
#include <string.h>

#include "launches.h"

#define CALL_SIZE 11 /* of ``launchKernel``: function, grid, block, shared memory, stream, parameters, extra */
#define AT_STREAM 8
#define AT_PARAMETERS 9
#define MOST_PARAMETERS 64
#define MOST_BYTES 4096
#define ALIGNMENT 16 /* of constants, in bytes */
#define MOST_COMPARED 12 /* addresses that are compared with those of the last time */

/* The driver's description of a node of a graph that starts a kernel. */
typedef struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra, *kernel, *context;
} KernelNode;

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    PyObject *kernel, *queue, *start; /* ``start`` takes ``call`` */
    PyObject *call[CALL_SIZE];
    KernelNode node;      /* the same for a graph; without a function where it can be none */
    Py_ssize_t addresses; /* so many are filled in, from the beginning of the buffer */
    uint64_t buffer[];    /* the values of all parameters, then where each of them lies */
} KernelLaunch;

typedef struct {
    char bytes[MOST_BYTES];
    Py_ssize_t end, offsets[MOST_PARAMETERS], count;
} Parameters;

/* Where the next parameter lies, of so many bytes; NULL where there is no place for it. */
static char *
place_parameter(Parameters *parameters, Py_ssize_t alignment, Py_ssize_t nbytes)
{
    Py_ssize_t begin = (parameters->end + alignment - 1) / alignment * alignment;
    if (parameters->count == MOST_PARAMETERS || nbytes > MOST_BYTES - begin) return NULL;
    parameters->offsets[parameters->count++] = begin;
    parameters->end = begin + nbytes;
    return parameters->bytes + begin;
}

static int
write_bytes(Parameters *parameters, const void *from, Py_ssize_t nbytes)
{
    char *place = place_parameter(parameters, ALIGNMENT, nbytes);
    if (place != NULL) memcpy(place, from, nbytes);
    return place != NULL;
}

static int
write_integer(Parameters *parameters, PyObject *number, int is_signed, int is_wide)
{
    if (!PyLong_Check(number)) return 0;
    if (is_signed) {
        int64_t value = PyLong_AsLongLong(number);
        int32_t narrow = (int32_t)value;
        if (PyErr_Occurred() || (!is_wide && narrow != value)) return 0;
        return is_wide ? write_bytes(parameters, &value, 8) : write_bytes(parameters, &narrow, 4);
    }
    uint64_t value = PyLong_AsUnsignedLongLong(number);
    uint32_t narrow = (uint32_t)value;
    if (PyErr_Occurred() || (!is_wide && narrow != value)) return 0;
    return is_wide ? write_bytes(parameters, &value, 8) : write_bytes(parameters, &narrow, 4);
}

/* Write a constant, which is bytes, or a kind and a number; 0 where that is Python's. */
static int
write_constant(Parameters *parameters, PyObject *constant)
{
    if (PyBytes_CheckExact(constant))
        return write_bytes(parameters, PyBytes_AS_STRING(constant), PyBytes_GET_SIZE(constant));
    if (!PyTuple_CheckExact(constant) || PyTuple_GET_SIZE(constant) != 2) return 0;
    PyObject *kind = PyTuple_GET_ITEM(constant, 0), *number = PyTuple_GET_ITEM(constant, 1);
    const char *name = PyUnicode_CheckExact(kind) ? PyUnicode_AsUTF8(kind) : NULL;
    if (name == NULL) return 0;
    if (!strcmp(name, "int")) return write_integer(parameters, number, 1, 0);
    if (!strcmp(name, "i64")) return write_integer(parameters, number, 1, 1);
    if (!strcmp(name, "unsigned")) return write_integer(parameters, number, 0, 0);
    if (!strcmp(name, "u64") || !strcmp(name, "pointer")) return write_integer(parameters, number, 0, 1);
    if (!PyFloat_Check(number) && !PyLong_Check(number)) return 0;
    double value = PyFloat_AsDouble(number);
    char single[4];
    if (PyErr_Occurred()) return 0;
    if (!strcmp(name, "double")) return write_bytes(parameters, &value, 8);
    if (strcmp(name, "float") || PyFloat_Pack4(value, single, PY_LITTLE_ENDIAN) < 0) return 0;
    return write_bytes(parameters, single, 4);
}

/* Lay out a table of addresses, further addresses, and constants; 0 where that is Python's. */
static int
arrange(Parameters *parameters, Py_ssize_t table, Py_ssize_t addresses, PyObject *constants)
{
    parameters->end = parameters->count = 0;
    memset(parameters->bytes, 0, MOST_BYTES);
    if (table && place_parameter(parameters, 8, 8 * table) == NULL) return 0;
    for (Py_ssize_t i = 0; i < addresses; i++)
        if (place_parameter(parameters, 8, 8) == NULL) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(constants); i++)
        if (!write_constant(parameters, PySequence_Fast_GET_ITEM(constants, i))) return 0;
    return 1;
}

/* Put up to three sizes into a call; -1 for an error. */
static int
put_sizes(PyObject **call, PyObject *sizes)
{
    int is_tuple = PyTuple_CheckExact(sizes);
    for (Py_ssize_t i = 0; i < 3; i++) {
        PyObject *size = one;
        if (is_tuple && i < PyTuple_GET_SIZE(sizes)) size = PyTuple_GET_ITEM(sizes, i);
        else if (!is_tuple && i == 0) size = sizes;
        call[i] = Py_NewRef(size);
    }
    return is_tuple || PyLong_Check(sizes) ? 0 : -1;
}

static PyObject *
whole_number(PyObject *item)
{
    return PyLong_Check(item) ? Py_NewRef(item) : PyNumber_Index(item);
}

/* Write addresses into the buffer; -1 for an error. */
static int
fill_addresses(KernelLaunch *launch, PyObject *const *given)
{
    for (Py_ssize_t i = 0; i < launch->addresses; i++) {
        PyObject *address = whole_number(given[i]);
        uint64_t value = address == NULL ? 0 : PyLong_AsUnsignedLongLongMask(address);
        Py_XDECREF(address);
        if (PyErr_Occurred()) return -1;
        launch->buffer[i] = value;
    }
    return 0;
}

/* Start the kernel, given the stream and addresses, or let it wait where its queue does. */
static PyObject *
start_kernel(PyObject *self, PyObject *const *given)
{
    KernelLaunch *launch = (KernelLaunch *)self;
    if (SLOT(launch->queue, LaunchQueue__is_open) == Py_True)
        return wait_in_queue(launch->queue, self, given, 1 + launch->addresses);
    if (fill_addresses(launch, given + 1) < 0) return NULL;
    PyObject *call[CALL_SIZE];
    memcpy(call, launch->call, sizeof call);
    call[AT_STREAM] = given[0];
    return none_unless(done(PyObject_Vectorcall(launch->start, call, CALL_SIZE, NULL)));
}

static PyObject *
call_kernel_launch(PyObject *self, PyObject *const *given, size_t flags, PyObject *names)
{
    Py_ssize_t count = PyVectorcall_NARGS(flags), expected = 1 + ((KernelLaunch *)self)->addresses;
    if (count == expected && (names == NULL || PyTuple_GET_SIZE(names) == 0)) return start_kernel(self, given);
    return PyErr_Format(PyExc_TypeError, "launch: expected the stream and %zd addresses, got %zd arguments", expected - 1, count);
}

static int
traverse_kernel_launch(PyObject *self, visitproc visit, void *arg)
{
    KernelLaunch *launch = (KernelLaunch *)self;
    Py_VISIT(launch->kernel);
    Py_VISIT(launch->queue);
    Py_VISIT(launch->start);
    return 0;
}

static void
free_kernel_launch(PyObject *self)
{
    KernelLaunch *launch = (KernelLaunch *)self;
    PyObject_GC_UnTrack(self);
    Py_CLEAR(launch->kernel);
    Py_CLEAR(launch->queue);
    Py_CLEAR(launch->start);
    for (int i = 0; i < CALL_SIZE; i++) Py_CLEAR(launch->call[i]);
    PyObject_GC_Del(self);
}

static int
clear_kernel_launch(PyObject *self)
{
    Py_CLEAR(((KernelLaunch *)self)->kernel);
    return 0;
}

static PyMemberDef members_of_kernel_launch[] = {
    {"kernel", T_OBJECT, offsetof(KernelLaunch, kernel), READONLY, "The kernel, which holds its module."}, {0},
};

static PyTypeObject KernelLaunchType = {
    PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "telegrad.KernelLaunch",
    .tp_doc = "A launch of a kernel; it takes the stream and the addresses of what the kernel works on.",
    .tp_basicsize = sizeof(KernelLaunch),
    .tp_itemsize = sizeof(uint64_t),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(KernelLaunch, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_members = members_of_kernel_launch,
    .tp_traverse = traverse_kernel_launch,
    .tp_clear = clear_kernel_launch,
    .tp_dealloc = free_kernel_launch,
};

/* How many addresses a text of formats stands for, each a P or a Q, or an integer of four bytes in the place of one; -1 where
something else varies. */
static Py_ssize_t
addresses_in(PyObject *varying)
{
    Py_ssize_t size = 0;
    const char *formats = PyUnicode_CheckExact(varying) ? PyUnicode_AsUTF8AndSize(varying, &size) : NULL;
    return formats != NULL && (Py_ssize_t)strspn(formats, "PQiI") == size ? size : -1;
}

/* Describe the launch as a node of a graph, without a function where the driver could not be told so. */
static void
describe_node(KernelLaunch *launch, void **parameters)
{
    KernelNode *node = &launch->node;
    for (int i = 0; i < 3; i++) {
        node->grid[i] = (unsigned)PyLong_AsUnsignedLong(launch->call[1 + i]);
        node->block[i] = (unsigned)PyLong_AsUnsignedLong(launch->call[4 + i]);
    }
    node->shared = (unsigned)PyLong_AsUnsignedLong(launch->call[7]);
    node->parameters = parameters;
    node->function = PyLong_AsVoidPtr(launch->call[0]);
    if (!PyErr_Occurred()) return;
    PyErr_Clear();
    node->function = NULL;
}

/* A launch over parameters that are arranged; NULL for an error. */
static PyObject *
kernel_launch_of(PyObject *const *given, const Parameters *parameters, Py_ssize_t addresses)
{
    Py_ssize_t values = (parameters->end + 7) / 8;
    KernelLaunch *launch = PyObject_GC_NewVar(KernelLaunch, &KernelLaunchType, values + parameters->count);
    if (launch == NULL) return NULL;
    memset((char *)launch + offsetof(KernelLaunch, vectorcall), 0, sizeof(KernelLaunch) - offsetof(KernelLaunch, vectorcall));
    launch->vectorcall = call_kernel_launch;
    launch->kernel = Py_NewRef(given[0]);
    launch->queue = Py_NewRef(given[1]);
    launch->start = Py_NewRef(given[2]);
    launch->addresses = addresses;
    memcpy(launch->buffer, parameters->bytes, 8 * values);
    for (Py_ssize_t i = 0; i < parameters->count; i++)
        launch->buffer[values + i] = (uint64_t)(uintptr_t)launch->buffer + parameters->offsets[i];
    launch->call[0] = Py_NewRef(given[3]);
    launch->call[7] = Py_NewRef(given[6]);
    launch->call[AT_STREAM] = Py_NewRef(zero);
    launch->call[AT_PARAMETERS] = PyLong_FromVoidPtr(launch->buffer + values);
    launch->call[AT_PARAMETERS + 1] = Py_NewRef(zero);
    int failed = launch->call[AT_PARAMETERS] == NULL || put_sizes(launch->call + 1, given[4]) || put_sizes(launch->call + 4, given[5]);
    PyObject_GC_Track(launch);
    if (!failed) {
        describe_node(launch, (void **)(launch->buffer + values));
        return (PyObject *)launch;
    }
    Py_DECREF(launch);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* A launch of a kernel, by a queue, a function that starts it and its address, of a grid, a block, shared bytes, the length
of the table, the formats of what varies, and constants; None where that is Python's. */
static PyObject *
prepare_kernel(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 10 || the_LaunchQueue == NULL || !is_usual_queue(given[1])) return Py_NewRef(Py_None);
    Py_ssize_t table = PyLong_AsSsize_t(given[7]), varying = addresses_in(given[8]);
    if (PyErr_Occurred()) return NULL;
    if (varying < 0 || table < 0 || table + varying > MOST_BYTES / 8) return Py_NewRef(Py_None);
    PyObject *constants = PySequence_Fast(given[9], "prepare_kernel: expected constants");
    if (constants == NULL) return NULL;
    Parameters parameters;
    int arranged = arrange(&parameters, table, varying, constants);
    Py_DECREF(constants);
    if (arranged) return kernel_launch_of(given, &parameters, table + varying);
    PyErr_Clear(); /* Python's way says what is wrong */
    return Py_NewRef(Py_None);
}

#endif
