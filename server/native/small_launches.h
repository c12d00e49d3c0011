/* Launches on few elements of the host: loops in C get the addresses of operands and results, with nothing made for them.

Which loop, its layouts and its constants are numbers that the engine's ``cpu/small`` has worked out for operands of given
metas. Where an operand is unusual, or a loop meets what it does not compute, ``otherwise`` is launched instead: kernels on
arrays of NumPy, which compute the same and raise what there is to raise. */

#ifndef TELEGRAD_SMALL_LAUNCHES_H
#define TELEGRAD_SMALL_LAUNCHES_H

#include "small_kernels.h"
#include "arrays.h"

#define MOST_SMALL_PLACES 40

enum { SMALL_ARGUMENT, SMALL_RESULT, SMALL_CONSTANT, SMALL_SOURCES };

/* Where the address of an operand comes from: argument or result of a number, an item of it if that is a list (else -1), and
bytes from where its memory begins. A constant is so many numbers from the first one. */
typedef struct {
    int64_t source, number, item, offset;
} SmallPlace;

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    PyObject *otherwise;
    SmallKernel kernel;
    int64_t places, apart; /* operands from the first on that in place may not share the memory of the target; -1 else */
    int64_t words[];       /* places, then the numbers of the kernel */
} SmallLaunch;

static const int64_t *
numbers_of(SmallLaunch *launch)
{
    return launch->words + launch->places * (int64_t)(sizeof(SmallPlace) / sizeof(int64_t));
}

/* The address of the memory of a value on the host; NULL for any other object. */
static char *
small_address(PyObject *value)
{
    if (!IS(value, Value) || !is_on_host(value)) return NULL;
    PyObject *pointer = SLOT(SLOT(SLOT(value, Value__storage), Storage__block), Block__pointer);
    if (pointer == NULL || !PyLong_CheckExact(pointer)) return NULL;
    char *address = PyLong_AsVoidPtr(pointer);
    if (address == NULL) PyErr_Clear();
    return address;
}

/* The value that a place tells of, which is borrowed; NULL where there is none. */
static PyObject *
small_value(const SmallPlace *place, PyObject *values)
{
    if (place->number >= PyTuple_GET_SIZE(values)) return NULL;
    PyObject *value = PyTuple_GET_ITEM(values, place->number);
    if (place->item < 0) return value;
    return PyTuple_CheckExact(value) && place->item < PyTuple_GET_SIZE(value) ? PyTuple_GET_ITEM(value, place->item) : NULL;
}

/* Look up all addresses; 0 where one is unusual. */
static int
small_addresses(SmallLaunch *launch, PyObject *args, PyObject *outs, char **at)
{
    const SmallPlace *places = (const SmallPlace *)launch->words;
    for (int64_t i = 0; i < launch->places; i++) {
        const SmallPlace *place = &places[i];
        if (place->source == SMALL_CONSTANT) {
            at[i] = (char *)(numbers_of(launch) + place->offset);
            continue;
        }
        PyObject *value = small_value(place, place->source == SMALL_ARGUMENT ? args : outs);
        char *address = value == NULL ? NULL : small_address(value);
        if (address == NULL) return 0;
        at[i] = address + place->offset;
    }
    return 1;
}

static PyObject *
call_small(PyObject *self, PyObject *const *both, size_t flags, PyObject *names)
{
    SmallLaunch *launch = (SmallLaunch *)self;
    if (PyVectorcall_NARGS(flags) != 2 || (names != NULL && PyTuple_GET_SIZE(names)) || !PyTuple_CheckExact(both[0]) ||
        !PyTuple_CheckExact(both[1]))
        return PyErr_Format(PyExc_TypeError, "launch: expected tuples of operands and of results");
    char *at[MOST_SMALL_PLACES];
    if (small_addresses(launch, both[0], both[1], at) && launch->kernel(numbers_of(launch), at) == 0) Py_RETURN_NONE;
    return none_unless(done(PyObject_Vectorcall(launch->otherwise, both, 2, NULL)));
}

/* Whether an operand other than the target lies in its memory, in another layout than an element-wise loop may overwrite. */
static int
small_clash(SmallLaunch *launch, PyObject *args)
{
    const SmallPlace *places = (const SmallPlace *)launch->words;
    PyObject *target = SLOT(PyTuple_GET_ITEM(args, 0), Value__storage), *meta = SLOT(PyTuple_GET_ITEM(args, 0), Value__meta);
    for (int64_t i = 0; i < launch->places; i++) {
        if (places[i].source != SMALL_ARGUMENT || (places[i].number == 0 && places[i].item < 0)) continue;
        PyObject *value = small_value(&places[i], args);
        if (value == NULL || !IS(value, Value)) return 1;
        if (SLOT(value, Value__storage) == target && (launch->apart || SLOT(value, Value__meta) != meta)) return 1;
    }
    return 0;
}

/* A run in place: it writes the first argument, which stands for the result, too, and returns it. */
static PyObject *
call_small_in_place(PyObject *self, PyObject *const *given, size_t flags, PyObject *names)
{
    SmallLaunch *launch = (SmallLaunch *)self;
    if (PyVectorcall_NARGS(flags) != 1 || (names != NULL && PyTuple_GET_SIZE(names)) || !PyTuple_CheckExact(given[0]))
        return PyErr_Format(PyExc_TypeError, "run: expected a tuple of operands");
    PyObject *args = given[0], *target = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : Py_None;
    char *at[MOST_SMALL_PLACES];
    if (!IS(target, Value) || !is_on_host(target) || small_clash(launch, args) || !small_addresses(launch, args, args, at) ||
        launch->kernel(numbers_of(launch), at) != 0)
        return PyObject_Vectorcall(launch->otherwise, given, 1, NULL);
    return add_to(SLOT(target, Value__storage), Storage__version, one) < 0 ? NULL : Py_NewRef(target);
}

/* The value that a loop writes whose size data says; NULL where there is nothing to write or it cannot, and for errors. The
first place is the result's; ``otherwise`` is a run, and what else is needed: the backend, its key, the size of elements, and
what returns the meta of so many. */
static PyObject *
small_counted(SmallLaunch *launch, PyObject *args)
{
    char *at[MOST_SMALL_PLACES + 1];
    int64_t count = -1;
    PyObject *all = launch->otherwise;
    if (!small_addresses(launch, args, args, at)) return NULL;
    at[0] = NULL;
    at[launch->places] = (char *)&count;
    if (launch->kernel(numbers_of(launch), at) != 0 || count <= 0) return NULL;
    PyObject *number = PyLong_FromLongLong(count), *meta = NULL, *nbytes = NULL, *value = NULL;
    if (number != NULL) meta = PyObject_CallOneArg(PyTuple_GET_ITEM(all, 4), number);
    if (meta != NULL) nbytes = PyNumber_Multiply(number, PyTuple_GET_ITEM(all, 3));
    if (nbytes != NULL) value = new_value(PyTuple_GET_ITEM(all, 1), PyTuple_GET_ITEM(all, 2), nbytes, meta);
    if (value != NULL && ((at[0] = small_address(value)) == NULL || launch->kernel(numbers_of(launch), at) != 0)) Py_CLEAR(value);
    Py_XDECREF(number);
    Py_XDECREF(meta);
    Py_XDECREF(nbytes);
    return value;
}

static PyObject *
call_small_counted(PyObject *self, PyObject *const *given, size_t flags, PyObject *names)
{
    SmallLaunch *launch = (SmallLaunch *)self;
    if (PyVectorcall_NARGS(flags) != 1 || (names != NULL && PyTuple_GET_SIZE(names)) || !PyTuple_CheckExact(given[0]))
        return PyErr_Format(PyExc_TypeError, "run: expected a tuple of operands");
    PyObject *value = small_counted(launch, given[0]);
    return value != NULL || PyErr_Occurred() ? value : PyObject_Vectorcall(PyTuple_GET_ITEM(launch->otherwise, 0), given, 1, NULL);
}

static int
traverse_small(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((SmallLaunch *)self)->otherwise);
    return 0;
}

static void
free_small(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_DECREF(((SmallLaunch *)self)->otherwise);
    PyObject_GC_Del(self);
}

static PyTypeObject SmallLaunchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "telegrad.SmallLaunch",
    .tp_doc = "A loop over few elements of operands and results.",
    .tp_basicsize = sizeof(SmallLaunch),
    .tp_itemsize = sizeof(int64_t),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_vectorcall_offset = offsetof(SmallLaunch, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = traverse_small,
    .tp_dealloc = free_small,
};

/* The loop of a name; NULL with an error set where there is none. */
static SmallKernel
small_kernel(PyObject *name)
{
    for (const NamedKernel *kernel = small_kernels; kernel->name != NULL; kernel++)
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, kernel->name) == 0) return kernel->kernel;
    PyErr_Format(PyExc_ValueError, "small_launch: there is no loop named %R", name);
    return NULL;
}

/* Whether words begin with so many places that can be looked up. */
static int
are_places(const int64_t *words, Py_ssize_t size, int64_t count)
{
    const SmallPlace *places = (const SmallPlace *)words;
    int64_t needed = count * (int64_t)(sizeof(SmallPlace) / sizeof(int64_t));
    if (count < 1 || count > MOST_SMALL_PLACES || needed > size) return 0;
    for (int64_t i = 0; i < count; i++) {
        if (places[i].source < 0 || places[i].source >= SMALL_SOURCES || places[i].number < 0 || places[i].item < -1) return 0;
        if (places[i].source == SMALL_CONSTANT && (places[i].offset < 0 || places[i].offset >= size - needed)) return 0;
    }
    return 1;
}

/* Whether something is what ``small_counted`` needs. */
static int
are_for_counted(PyObject *all)
{
    return PyTuple_CheckExact(all) && PyTuple_GET_SIZE(all) == 5 && is_usual_backend(PyTuple_GET_ITEM(all, 1)) &&
           PyLong_CheckExact(PyTuple_GET_ITEM(all, 2)) && PyLong_CheckExact(PyTuple_GET_ITEM(all, 3));
}

/* A launch, given the name of a loop, how many places there are, places and numbers as bytes, and what is launched otherwise;
with a fifth argument a run in place, whose operands may never lie in the memory of the target where that is true, or, where
that is None, a run whose result has as many elements as data says. */
static PyObject *
small_launch(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (known_layouts == NULL || count < 4 || count > 5 || !PyBytes_CheckExact(given[2]) || PyBytes_GET_SIZE(given[2]) % 8)
        return PyErr_Format(PyExc_TypeError, "small_launch: expected a name, a count, words and a launch, after prepare_arrays");
    Py_ssize_t size = PyBytes_GET_SIZE(given[2]) / 8, places = PyLong_AsSsize_t(given[1]);
    SmallKernel kernel = PyErr_Occurred() ? NULL : small_kernel(given[0]);
    if (kernel == NULL) return NULL;
    int is_counted = count == 5 && given[4] == Py_None, apart = count == 5 && !is_counted ? PyObject_IsTrue(given[4]) : -1;
    if (is_counted && !are_for_counted(given[3]))
        return PyErr_Format(PyExc_TypeError, "small_launch: expected a run, a backend, its key, a size, and what makes metas");
    SmallLaunch *launch = PyObject_GC_NewVar(SmallLaunch, &SmallLaunchType, size);
    if (launch == NULL) return NULL;
    launch->vectorcall = is_counted ? call_small_counted : count == 5 ? call_small_in_place : call_small;
    launch->otherwise = Py_NewRef(given[3]);
    launch->kernel = kernel;
    launch->places = places;
    launch->apart = apart;
    memcpy(launch->words, PyBytes_AS_STRING(given[2]), size * 8);
    PyObject_GC_Track(launch);
    if (are_places(launch->words, size, places)) return (PyObject *)launch;
    Py_DECREF(launch);
    return PyErr_Format(PyExc_ValueError, "small_launch: expected places that can be looked up");
}

#endif
