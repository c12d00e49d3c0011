/* Chains whose launches are made again on other memory and with other numbers: which parameters are others is found once, as
the engine's ``programs/relocated.py`` says. */

#ifndef TELEGRAD_RELOCATIONS_H
#define TELEGRAD_RELOCATIONS_H

#include "chains.h"

enum { OF_VALUE, OF_MADE, OF_SINGLE, OF_DOUBLE };

/* What is another one each time: the memory of a value, or of a result, from ``begin`` to ``end`` when launches were noted;
or a number among the values, whose bits were ``begin`` then. */
typedef struct {
    int kind;
    Py_ssize_t number;
    uint64_t begin, end, now;
} Relocated;

/* A parameter of a node that depends on one of these. */
typedef struct {
    Py_ssize_t node, place, relocated;
    uint64_t offset;
} Relocation;

typedef struct {
    PyObject_HEAD
    Chain *chain;
    Py_ssize_t relocated_count, count;
    Relocated *relocated;
    Relocation *relocations; /* by node */
    Py_ssize_t *begins;      /* of each node's addresses, and the end of all */
    uint64_t *addresses;
} RelocatedChain;

static int
traverse_relocated(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((RelocatedChain *)self)->chain);
    return 0;
}

static int
clear_relocated(PyObject *self)
{
    Py_CLEAR(((RelocatedChain *)self)->chain);
    return 0;
}

static void
free_relocated(PyObject *self)
{
    RelocatedChain *run = (RelocatedChain *)self;
    PyObject_GC_UnTrack(self);
    clear_relocated(self);
    PyMem_Free(run->relocated);
    PyMem_Free(run->relocations);
    PyMem_Free(run->begins);
    PyMem_Free(run->addresses);
    PyObject_GC_Del(self);
}

/* Where the memory begins that a storage refers to; -1 for an error. */
static int
begin_of_storage(PyObject *storage, uint64_t *begin)
{
    PyObject *block = IS(storage, Storage) ? SLOT(storage, Storage__block) : NULL;
    PyObject *pointer = block == NULL ? NULL : PyObject_GetAttr(block, text_pointer);
    if (pointer == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "launch: expected values and storages");
        return -1;
    }
    *begin = PyLong_AsUnsignedLongLong(pointer);
    Py_DECREF(pointer);
    return PyErr_Occurred() ? -1 : 0;
}

static int
write_bits(PyObject *number, int is_double, uint64_t *bits)
{
    double value = PyFloat_AsDouble(number);
    if (value == -1 && PyErr_Occurred()) return -1;
    *bits = 0;
    if (!is_double) return PyFloat_Pack4(value, (char *)bits, PY_LITTLE_ENDIAN);
    memcpy(bits, &value, 8);
    return 0;
}

/* Find out what is relocated this time; -1 for an error. */
static int
look_at_relocated(RelocatedChain *run, PyObject *values, PyObject *made)
{
    for (Py_ssize_t i = 0; i < run->relocated_count; i++) {
        Relocated *one = run->relocated + i;
        PyObject *from = one->kind == OF_MADE ? made : values;
        if (one->number >= PySequence_Fast_GET_SIZE(from)) {
            PyErr_SetString(PyExc_IndexError, "launch: fewer values or storages than were noted");
            return -1;
        }
        PyObject *item = PySequence_Fast_GET_ITEM(from, one->number);
        int failed;
        if (one->kind >= OF_SINGLE) failed = write_bits(item, one->kind == OF_DOUBLE, &one->now);
        else {
            if (one->kind == OF_VALUE) item = IS(item, Value) ? SLOT(item, Value__storage) : Py_None;
            failed = begin_of_storage(item, &one->now);
        }
        if (failed) return -1;
    }
    return 0;
}

/* Give a node the parameters that it is to have; whether the driver takes them. */
static int
set_node(RelocatedChain *run, Py_ssize_t number)
{
    ChainNode *node = run->chain->nodes + number;
    KernelLaunch *launch = (KernelLaunch *)node->launch;
    memcpy(launch->buffer, run->addresses + run->begins[number], 8 * launch->addresses);
    return !run->chain->driver.set(run->chain->executable, node->node, &launch->node);
}

/* Give all nodes that have other parameters than the last time what they are to have now; whether the driver takes them. */
static int
set_relocated(RelocatedChain *run)
{
    for (Py_ssize_t i = 0; i < run->count;) {
        Py_ssize_t node = run->relocations[i].node;
        int is_other = 0;
        for (; i < run->count && run->relocations[i].node == node; i++) {
            Relocation *one = run->relocations + i;
            uint64_t now = run->relocated[one->relocated].now + one->offset, *place = run->addresses + one->place;
            is_other |= *place != now;
            *place = now;
        }
        if (is_other && !set_node(run, node)) return 0;
    }
    return 1;
}

/* ``launch(stream, values, made)``: launch it on these; False if the driver refused and nothing was done. */
static PyObject *
launch_relocated(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    RelocatedChain *run = (RelocatedChain *)self;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "launch: expected a stream, values and storages");
    PyObject *values = PySequence_Fast(given[1], "launch: expected values"), *made = NULL;
    if (values != NULL) made = PySequence_Fast(given[2], "launch: expected storages");
    int state = made == NULL || look_at_relocated(run, values, made) < 0 ? -1 : set_relocated(run);
    Py_XDECREF(values);
    Py_XDECREF(made);
    if (state > 0) state = launch_chain(run->chain, given[0]);
    return state < 0 ? NULL : PyBool_FromLong(state);
}

/* Take what is relocated: tuples of a kind, a number, where it begins or its bits, and where it ends. */
static int
take_relocated(RelocatedChain *run, PyObject *given)
{
    run->relocated_count = PyTuple_GET_SIZE(given);
    run->relocated = PyMem_Calloc(run->relocated_count + 1, sizeof(Relocated));
    if (run->relocated == NULL) return -1;
    for (Py_ssize_t i = 0; i < run->relocated_count; i++) {
        Relocated *one = run->relocated + i;
        unsigned long long begin, end;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "inKK", &one->kind, &one->number, &begin, &end)) return -1;
        one->begin = begin;
        one->end = end;
    }
    return 0;
}

static int
depends_on(uint64_t address, const Relocated *one)
{
    return one->kind >= OF_SINGLE ? address == one->begin : address >= one->begin && address < one->end;
}

/* Note which parameter of which node depends on what. */
static int
find_relocations(RelocatedChain *run)
{
    Py_ssize_t nodes = Py_SIZE(run->chain), most = run->begins[nodes];
    run->relocations = PyMem_Calloc(most + 1, sizeof(Relocation));
    if (run->relocations == NULL) return -1;
    for (Py_ssize_t node = 0; node < nodes; node++)
        for (Py_ssize_t place = run->begins[node]; place < run->begins[node + 1]; place++)
            for (Py_ssize_t i = 0; i < run->relocated_count; i++) {
                const Relocated *one = run->relocated + i;
                if (!depends_on(run->addresses[place], one)) continue;
                uint64_t offset = one->kind >= OF_SINGLE ? 0 : run->addresses[place] - one->begin;
                run->relocations[run->count++] = (Relocation){node, place, i, offset};
                break;
            }
    return 0;
}

/* Keep the addresses of all launches. */
static int
keep_addresses(RelocatedChain *run, PyObject *entries)
{
    Py_ssize_t nodes = PyTuple_GET_SIZE(entries), count = 0;
    run->begins = PyMem_Calloc(nodes + 1, sizeof(Py_ssize_t));
    if (run->begins == NULL) return -1;
    for (Py_ssize_t i = 0; i < nodes; i++) {
        run->begins[i] = count;
        count += kernel_in(PyTuple_GET_ITEM(entries, i))->addresses;
    }
    run->begins[nodes] = count;
    run->addresses = PyMem_Calloc(count + 1, sizeof(uint64_t));
    if (run->addresses == NULL) return -1;
    for (Py_ssize_t i = 0; i < nodes; i++) {
        KernelLaunch *launch = kernel_in(PyTuple_GET_ITEM(entries, i));
        if (fill_from(PyTuple_GET_ITEM(entries, i), launch) < 0) return -1;
        memcpy(run->addresses + run->begins[i], launch->buffer, 8 * launch->addresses);
    }
    return 0;
}

/* Whether every number has a parameter that depends on it, so that it is told. */
static int
are_numbers_found(const RelocatedChain *run)
{
    for (Py_ssize_t i = 0; i < run->relocated_count; i++) {
        int is_found = run->relocated[i].kind < OF_SINGLE;
        for (Py_ssize_t n = 0; n < run->count && !is_found; n++) {
            const Relocated *one = run->relocated + run->relocations[n].relocated;
            is_found = one->kind >= OF_SINGLE && one->number == run->relocated[i].number;
        }
        if (!is_found) return 0;
    }
    return 1;
}

static PyMethodDef methods_of_relocated[] = {
    {"launch", (PyCFunction)(void (*)(void))launch_relocated, METH_FASTCALL, "Launch it on a stream, for values and results."}, {0},
};

static PyTypeObject RelocatedChainType = {
    PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "telegrad.RelocatedChain",
    .tp_doc = "Launches in a row, as one graph, on the memory of values and results that are others each time.",
    .tp_basicsize = sizeof(RelocatedChain),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_methods = methods_of_relocated,
    .tp_traverse = traverse_relocated,
    .tp_clear = clear_relocated,
    .tp_dealloc = free_relocated,
};

/* Whether all entries are launches of kernels on one stream. */
static int
are_kernels(PyObject *entries)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entries);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *entry = PyTuple_GET_ITEM(entries, i);
        if (kernel_in(entry) == NULL) return 0;
        PyObject *first = PyTuple_GET_ITEM(PyTuple_GET_ITEM(entries, 0), 1);
        if (PyObject_RichCompareBool(PyTuple_GET_ITEM(entry, 1), first, Py_EQ) != 1) return 0;
    }
    return count > 0;
}

/* A graph of launches that waited, given the chains of their device, the launches, and what is relocated; None where that
cannot be, or a number is in no parameter. */
static PyObject *
new_relocated(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !Py_IS_TYPE(given[0], &ChainsType) || !PyTuple_CheckExact(given[1]) || !PyTuple_CheckExact(given[2]))
        return PyErr_Format(PyExc_TypeError, "relocated: expected chains, launches, and what is relocated");
    PyObject *entries = given[1];
    if (!are_kernels(entries)) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyObject *chain = new_chain(&((Chains *)given[0])->driver, &PyTuple_GET_ITEM(entries, 0), PyTuple_GET_SIZE(entries));
    if (chain == NULL || chain == Py_None) return chain;
    RelocatedChain *run = PyObject_GC_New(RelocatedChain, &RelocatedChainType);
    if (run == NULL) {
        Py_DECREF(chain);
        return NULL;
    }
    memset((char *)run + offsetof(RelocatedChain, chain), 0, sizeof(RelocatedChain) - offsetof(RelocatedChain, chain));
    run->chain = (Chain *)chain;
    PyObject_GC_Track(run);
    int failed = take_relocated(run, given[2]) < 0 || keep_addresses(run, entries) < 0 || find_relocations(run) < 0;
    if (!failed && are_numbers_found(run)) return (PyObject *)run;
    Py_DECREF(run);
    if (failed && !PyErr_Occurred()) return PyErr_NoMemory();
    return failed ? NULL : Py_NewRef(Py_None);
}

#endif
