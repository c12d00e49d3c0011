/* Chains: launches of kernels one after the other as one CUDA graph, whose nodes are given what each launch has. As the
engine's ``device/launch_queue.py`` says. The driver's functions are given by their addresses. */

#ifndef TELEGRAD_CHAINS_H
#define TELEGRAD_CHAINS_H

#include "kernel_launches.h"

#define MOST_CHAINED 64      /* launches in one chain */
#define MOST_SEQUENCES 4096  /* of functions that are known, most of them from having come once */
#define DRIVER_FUNCTIONS 7

typedef struct {
    int (*create)(void **graph, unsigned flags);
    int (*add)(void **node, void *graph, void *const *after, size_t count, const KernelNode *given);
    int (*instantiate)(void **executable, void *graph, unsigned long long flags);
    int (*set)(void *executable, void *node, const KernelNode *given);
    int (*launch)(void *executable, void *stream);
    int (*destroy_executable)(void *executable);
    int (*destroy)(void *graph);
} Driver;

typedef struct {
    PyObject *launch; /* what the node was given last, which keeps its kernel's module; NULL where that is not known */
    void *node;
    Py_ssize_t count;
    uint64_t addresses[MOST_COMPARED];
} ChainNode;

/* Launches of so many functions in a row on one stream. */
typedef struct {
    PyObject_VAR_HEAD
    Driver driver;
    void *graph, *executable;
    ChainNode nodes[];
} Chain;

/* The chains of a device, by the stream and the functions: None for what came once, False for what the driver refused. */
typedef struct {
    PyObject_HEAD
    Driver driver;
    PyObject *known;
    Py_ssize_t nodes, most_nodes;
} Chains;

static int
traverse_chain(PyObject *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_VISIT(((Chain *)self)->nodes[i].launch);
    return 0;
}

static int
clear_chain(PyObject *self)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) Py_CLEAR(((Chain *)self)->nodes[i].launch);
    return 0;
}

static void
free_chain(PyObject *self)
{
    Chain *chain = (Chain *)self;
    PyObject_GC_UnTrack(self);
    if (chain->executable != NULL) chain->driver.destroy_executable(chain->executable); /* it may be running */
    if (chain->graph != NULL) chain->driver.destroy(chain->graph);
    clear_chain(self);
    PyObject_GC_Del(self);
}

static PyTypeObject ChainType = {
    PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "telegrad.Chain",
    .tp_doc = "Launches of certain functions in a row, as one graph.",
    .tp_basicsize = sizeof(Chain),
    .tp_itemsize = sizeof(ChainNode),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_traverse = traverse_chain,
    .tp_clear = clear_chain,
    .tp_dealloc = free_chain,
};

/* The launch that an entry of a queue makes; NULL where that is no launch of a kernel. */
static KernelLaunch *
kernel_in(PyObject *entry)
{
    PyObject *launch = PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) > 1 ? PyTuple_GET_ITEM(entry, 0) : NULL;
    if (launch == NULL || !Py_IS_TYPE(launch, &KernelLaunchType) || !PyLong_CheckExact(PyTuple_GET_ITEM(entry, 1))) return NULL;
    KernelLaunch *kernel = (KernelLaunch *)launch;
    return kernel->node.function != NULL && PyTuple_GET_SIZE(entry) == 2 + kernel->addresses ? kernel : NULL;
}

/* Write the addresses of an entry into the buffer of its launch; -1 for an error. */
static int
fill_from(PyObject *entry, KernelLaunch *launch)
{
    return fill_addresses(launch, &PyTuple_GET_ITEM(entry, 2));
}

static int
has_this(const ChainNode *node, const KernelLaunch *launch)
{
    return node->launch == (PyObject *)launch && node->count == launch->addresses &&
           !memcmp(node->addresses, launch->buffer, 8 * launch->addresses);
}

/* Note what a node was given, where that is little enough to be compared the next time. */
static void
note_given(ChainNode *node, KernelLaunch *launch)
{
    Py_XSETREF(node->launch, Py_NewRef((PyObject *)launch));
    node->count = launch->addresses <= MOST_COMPARED ? launch->addresses : -1;
    if (node->count > 0) memcpy(node->addresses, launch->buffer, 8 * node->count);
}

/* A chain of new launches; None where the driver refuses it, NULL for an error. */
static PyObject *
new_chain(const Driver *driver, PyObject *const *entries, Py_ssize_t count)
{
    Chain *chain = PyObject_GC_NewVar(Chain, &ChainType, count);
    if (chain == NULL) return NULL;
    memset((char *)chain + offsetof(Chain, driver), 0, sizeof(Chain) - offsetof(Chain, driver) + count * sizeof(ChainNode));
    chain->driver = *driver;
    PyObject_GC_Track(chain);
    int refused = driver->create(&chain->graph, 0), failed = 0;
    for (Py_ssize_t i = 0; i < count && !refused && !failed; i++) {
        KernelLaunch *launch = kernel_in(entries[i]);
        failed = fill_from(entries[i], launch);
        if (failed) break;
        refused = driver->add(&chain->nodes[i].node, chain->graph, i ? &chain->nodes[i - 1].node : NULL, i > 0, &launch->node);
        note_given(chain->nodes + i, launch);
    }
    if (!refused && !failed) refused = driver->instantiate(&chain->executable, chain->graph, 0);
    if (!refused && !failed) return (PyObject *)chain;
    Py_DECREF(chain);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Give the nodes of a chain what launches have; 1 where the driver takes all of it, -1 for an error. */
static int
set_chain(Chain *chain, PyObject *const *entries)
{
    for (Py_ssize_t i = 0; i < Py_SIZE(chain); i++) {
        ChainNode *node = chain->nodes + i;
        KernelLaunch *launch = kernel_in(entries[i]);
        if (fill_from(entries[i], launch) < 0) return -1;
        if (has_this(node, launch)) continue;
        if (chain->driver.set(chain->executable, node->node, &launch->node)) return 0;
        note_given(node, launch);
    }
    return 1;
}

static int
launch_chain(Chain *chain, PyObject *stream)
{
    void *raw = PyLong_AsVoidPtr(stream);
    if (raw == NULL && PyErr_Occurred()) return -1;
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = chain->driver.launch(chain->executable, raw);
    Py_END_ALLOW_THREADS
    return !status;
}

/* The key of launches in a row: their stream and functions. */
static PyObject *
key_of_chain(PyObject *const *entries, Py_ssize_t count)
{
    void *key[1 + MOST_CHAINED];
    key[0] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(entries[0], 1));
    if (key[0] == NULL && PyErr_Occurred()) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) key[1 + i] = kernel_in(entries[i])->node.function;
    return PyBytes_FromStringAndSize((const char *)key, (1 + count) * sizeof(void *));
}

/* Keep what is known of a key; all others are forgotten where they are too many. */
static int
keep_chain(Chains *chains, PyObject *key, PyObject *chain)
{
    Py_ssize_t nodes = Py_IS_TYPE(chain, &ChainType) ? Py_SIZE(chain) : 0;
    if (chains->nodes + nodes > chains->most_nodes || PyDict_GET_SIZE(chains->known) >= MOST_SEQUENCES) {
        PyDict_Clear(chains->known);
        chains->nodes = 0;
    }
    chains->nodes += nodes;
    return PyDict_SetItem(chains->known, key, chain);
}

/* Launch a chain of an earlier time, with what entries have. 0 where nothing was launched, -1 for an error. */
static int
launch_again(Chains *chains, PyObject *key, Chain *chain, PyObject *const *entries)
{
    Py_INCREF(chain);
    int state = set_chain(chain, entries);
    if (state > 0) state = launch_chain(chain, PyTuple_GET_ITEM(entries[0], 1));
    else if (state == 0) {
        chains->nodes -= Py_SIZE(chain);
        state = PyDict_SetItem(chains->known, key, Py_False);
    }
    Py_DECREF(chain);
    return state;
}

/* Launch entries in a row as a graph: built the second time, and given other parameters from then on. 0 where nothing was
launched, -1 for an error. */
static int
launch_in_chain(Chains *chains, PyObject *const *entries, Py_ssize_t count)
{
    PyObject *key = key_of_chain(entries, count);
    if (key == NULL) return -1;
    PyObject *known = PyDict_GetItemWithError(chains->known, key), *chain = NULL;
    int state = known == NULL && PyErr_Occurred() ? -1 : 0;
    if (known != NULL && Py_IS_TYPE(known, &ChainType)) state = launch_again(chains, key, (Chain *)known, entries);
    else if (known == NULL && !state) state = keep_chain(chains, key, Py_None);
    else if (known == Py_None) {
        chain = new_chain(&chains->driver, entries, count);
        state = chain == NULL ? -1 : keep_chain(chains, key, chain == Py_None ? Py_False : chain);
        if (!state && chain != Py_None) state = launch_chain((Chain *)chain, PyTuple_GET_ITEM(entries[0], 1));
    }
    Py_XDECREF(chain);
    Py_DECREF(key);
    return state;
}

/* How many entries from the first on can be in one chain. */
static Py_ssize_t
chained_from(PyObject *const *entries, Py_ssize_t count)
{
    Py_ssize_t length = 0;
    PyObject *stream = NULL;
    while (length < count && length < MOST_CHAINED && kernel_in(entries[length]) != NULL) {
        PyObject *its = PyTuple_GET_ITEM(entries[length], 1);
        if (stream != NULL && its != stream && PyObject_RichCompareBool(its, stream, Py_EQ) != 1) break;
        stream = its;
        length++;
    }
    return length;
}

/* The exception that is set, which is so no more. */
static PyObject *
taken_exception(void)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL) PyException_SetTraceback(error, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return error;
}

/* Make one launch by itself; the first exception of several is kept, and the others are dropped. */
static void
make_alone(PyObject *entry, PyObject **failure)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entry) - 1;
    PyObject *result = PyObject_Vectorcall(PyTuple_GET_ITEM(entry, 0), &PyTuple_GET_ITEM(entry, 1), count, NULL);
    Py_XDECREF(result);
    if (result != NULL) return;
    if (*failure == NULL) *failure = taken_exception();
    else PyErr_Clear();
}

/* ``Chains.perform``: make launches one after the other, those of kernels in chains; all of them, even if one fails. Returns
how many were made in chains. */
static PyObject *
perform_in_chains(PyObject *self, PyObject *sequence)
{
    if (!PyTuple_CheckExact(sequence)) return PyErr_Format(PyExc_TypeError, "perform: expected a tuple, got %R", Py_TYPE(sequence));
    Py_ssize_t count = PyTuple_GET_SIZE(sequence), at = 0, chained = 0;
    PyObject *const *entries = &PyTuple_GET_ITEM(sequence, 0);
    PyObject *failure = NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyTuple_CheckExact(entries[i]) || PyTuple_GET_SIZE(entries[i]) == 0)
            return PyErr_Format(PyExc_TypeError, "perform: expected launches, got %R", entries[i]);
    while (at < count) {
        Py_ssize_t length = chained_from(entries + at, count - at), end = at + (length ? length : 1);
        int state = length ? launch_in_chain((Chains *)self, entries + at, length) : 0;
        if (state > 0) chained += length;
        else if (state < 0) PyErr_Clear(); /* launched alone, it says what is wrong */
        for (; at < end; at++)
            if (state <= 0) make_alone(entries[at], &failure);
    }
    if (failure == NULL) return PyLong_FromSsize_t(chained);
    PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
    Py_DECREF(failure);
    return NULL;
}

/* ``Chains.forget``: drop all chains. */
static PyObject *
forget_chains(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    PyDict_Clear(((Chains *)self)->known);
    ((Chains *)self)->nodes = 0;
    return Py_NewRef(Py_None);
}

static int
traverse_chains(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Chains *)self)->known);
    return 0;
}

static int
clear_chains(PyObject *self)
{
    Py_CLEAR(((Chains *)self)->known);
    return 0;
}

static void
free_chains(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear_chains(self);
    PyObject_GC_Del(self);
}

static PyMethodDef methods_of_chains[] = {
    {"perform", perform_in_chains, METH_O, "Make launches one after the other; returns how many were made in chains."},
    {"forget", forget_chains, METH_NOARGS, "Drop all chains."},
    {0},
};

static PyMemberDef members_of_chains[] = {
    {"nodes", T_PYSSIZET, offsetof(Chains, nodes), READONLY, "How many launches all chains have."}, {0},
};

static PyTypeObject ChainsType = {
    PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "telegrad.Chains",
    .tp_doc = "Sequences of launches of a device that are launched as graphs, by their functions.",
    .tp_basicsize = sizeof(Chains),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_traverse = traverse_chains,
    .tp_clear = clear_chains,
    .tp_methods = methods_of_chains,
    .tp_members = members_of_chains,
    .tp_dealloc = free_chains,
};

/* The chains of a device, given the addresses of the driver's functions in the order of ``Driver``, and how many launches
they may have together. */
static PyObject *
new_chains(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyTuple_CheckExact(given[0]) || PyTuple_GET_SIZE(given[0]) != DRIVER_FUNCTIONS)
        return PyErr_Format(PyExc_TypeError, "chains: expected %d addresses and a number", DRIVER_FUNCTIONS);
    void *functions[DRIVER_FUNCTIONS];
    for (Py_ssize_t i = 0; i < DRIVER_FUNCTIONS; i++) functions[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(given[0], i));
    Py_ssize_t most = PyLong_AsSsize_t(given[1]);
    if (PyErr_Occurred()) return NULL;
    PyObject *known = PyDict_New();
    Chains *chains = known == NULL ? NULL : PyObject_GC_New(Chains, &ChainsType);
    if (chains == NULL) {
        Py_XDECREF(known);
        return NULL;
    }
    memcpy(&chains->driver, functions, sizeof chains->driver);
    chains->known = known;
    chains->nodes = 0;
    chains->most_nodes = most;
    PyObject_GC_Track(chains);
    return (PyObject *)chains;
}

#endif
