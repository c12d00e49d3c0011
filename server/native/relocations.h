/* Chains whose launches are made again on other memory and with other numbers: which parameters are others is found once, as
the engine's ``programs/relocated.py`` says. */

#ifndef TELEGRAD_RELOCATIONS_H
#define TELEGRAD_RELOCATIONS_H

#include "chains.h"

#define MOST_GIVEN 512 /* arguments of a launch behind the stream */
#define MOST_ALONE 4   /* launches that are made by themselves: for more of them a captured graph is less to do */

enum { OF_VALUE, OF_MADE, OF_SINGLE, OF_DOUBLE };

/* What is another one each time: the memory of a value, or of a result, from ``begin`` to ``end`` when launches were noted;
or a number among the values, whose bits were ``begin`` then. */
typedef struct {
    int kind;
    Py_ssize_t number;
    uint64_t begin, end, now;
} Relocated;

/* An argument of a launch that depends on one of these. */
typedef struct {
    Py_ssize_t number, place, relocated;
    uint64_t offset;
} Relocation;

/* Launches from one on: as a graph, or a single one that is made by itself, such as a call of a library. */
typedef struct {
    Chain *chain;
    Py_ssize_t begin;
} Segment;

typedef struct {
    PyObject_HEAD
    PyObject *entries; /* a tuple of the launches as they were noted */
    Py_ssize_t relocated_count, count, segment_count;
    Segment *segments;
    Relocated *relocated;
    Relocation *relocations; /* by launch, and by argument */
    Py_ssize_t *begins;      /* of each launch's arguments behind the stream, and the end of all */
    uint64_t *addresses;
} RelocatedChain;

static int
traverse_relocated(PyObject *self, visitproc visit, void *arg)
{
    RelocatedChain *run = (RelocatedChain *)self;
    Py_VISIT(run->entries);
    for (Py_ssize_t i = 0; i < run->segment_count; i++) Py_VISIT(run->segments[i].chain);
    return 0;
}

static int
clear_relocated(PyObject *self)
{
    RelocatedChain *run = (RelocatedChain *)self;
    Py_CLEAR(run->entries);
    for (Py_ssize_t i = 0; i < run->segment_count; i++) Py_CLEAR(run->segments[i].chain);
    return 0;
}

static void
free_relocated(PyObject *self)
{
    RelocatedChain *run = (RelocatedChain *)self;
    PyObject_GC_UnTrack(self);
    clear_relocated(self);
    PyMem_Free(run->segments);
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

/* Whether an argument of a launch is relocated, where ``next`` counts the relocations of earlier arguments that were asked for
already: relocations are in the order of launches and of their arguments. */
static int
is_relocated(const RelocatedChain *run, Py_ssize_t place, Py_ssize_t *next)
{
    while (*next < run->count && run->relocations[*next].place < place) ++*next;
    return *next < run->count && run->relocations[*next].place == place;
}

/* Give the node of a launch the parameters that it is to have; whether the driver takes them. */
static int
set_node(RelocatedChain *run, const Segment *segment, Py_ssize_t number)
{
    ChainNode *node = segment->chain->nodes + (number - segment->begin);
    KernelLaunch *launch = (KernelLaunch *)node->launch;
    memcpy(launch->buffer, run->addresses + run->begins[number], 8 * launch->addresses);
    return !segment->chain->driver.set(segment->chain->executable, node->node, &launch->node);
}

static const Segment *
segment_of(const RelocatedChain *run, Py_ssize_t number)
{
    const Segment *segment = run->segments;
    while (segment + 1 < run->segments + run->segment_count && segment[1].begin <= number) segment++;
    return segment;
}

/* Give all nodes that have other parameters than the last time what they are to have now; whether the driver takes them. */
static int
set_relocated(RelocatedChain *run)
{
    for (Py_ssize_t i = 0; i < run->count;) {
        Py_ssize_t number = run->relocations[i].number;
        int is_other = 0;
        for (; i < run->count && run->relocations[i].number == number; i++) {
            Relocation *one = run->relocations + i;
            uint64_t now = run->relocated[one->relocated].now + one->offset, *place = run->addresses + one->place;
            is_other |= *place != now;
            *place = now;
        }
        const Segment *segment = segment_of(run, number);
        if (is_other && segment->chain != NULL && !set_node(run, segment, number)) return 0;
    }
    return 1;
}

/* Make a launch by itself, with what is relocated as it is now, and ``next`` as above; -1 for an error. */
static int
launch_alone(RelocatedChain *run, Py_ssize_t number, Py_ssize_t *next)
{
    PyObject *entry = PyTuple_GET_ITEM(run->entries, number), *given[1 + MOST_GIVEN];
    Py_ssize_t count = PyTuple_GET_SIZE(entry) - 1, made = 0;
    given[0] = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
    for (made = 1; made < count; made++) {
        Py_ssize_t place = run->begins[number] + made - 1;
        PyObject *item = PyTuple_GET_ITEM(entry, 1 + made);
        int is_other = is_relocated(run, place, next);
        given[made] = is_other ? PyLong_FromUnsignedLongLong(run->addresses[place]) : Py_NewRef(item);
        if (given[made] == NULL) break;
    }
    int failed = made < count ? -1 : done(PyObject_Vectorcall(PyTuple_GET_ITEM(entry, 0), given, count, NULL));
    while (made > 0) Py_DECREF(given[--made]);
    return failed;
}

/* ``launch(stream, values, made)``: launch it on these; False if the driver refused, and nothing was done but to memory that
nobody has read. */
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
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; state > 0 && i < run->segment_count; i++) {
        Segment *segment = run->segments + i;
        if (segment->chain != NULL) state = launch_chain(segment->chain, given[0]);
        else if (launch_alone(run, segment->begin, &next) < 0) state = -1;
    }
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

/* Note which argument of which launch depends on what. */
static int
find_relocations(RelocatedChain *run)
{
    Py_ssize_t launches = PyTuple_GET_SIZE(run->entries), most = run->begins[launches];
    run->relocations = PyMem_Calloc(most + 1, sizeof(Relocation));
    if (run->relocations == NULL) return -1;
    for (Py_ssize_t number = 0; number < launches; number++)
        for (Py_ssize_t place = run->begins[number]; place < run->begins[number + 1]; place++)
            for (Py_ssize_t i = 0; i < run->relocated_count; i++) {
                const Relocated *one = run->relocated + i;
                if (!depends_on(run->addresses[place], one)) continue;
                uint64_t offset = one->kind >= OF_SINGLE ? 0 : run->addresses[place] - one->begin;
                run->relocations[run->count++] = (Relocation){number, place, i, offset};
                break;
            }
    return 0;
}

/* Keep the arguments of all launches that are numbers; 0 for any others. */
static int
keep_addresses(RelocatedChain *run)
{
    Py_ssize_t launches = PyTuple_GET_SIZE(run->entries), count = 0;
    run->begins = PyMem_Calloc(launches + 1, sizeof(Py_ssize_t));
    if (run->begins == NULL) return -1;
    for (Py_ssize_t i = 0; i < launches; i++) {
        run->begins[i] = count;
        count += PyTuple_GET_SIZE(PyTuple_GET_ITEM(run->entries, i)) - 2;
    }
    run->begins[launches] = count;
    run->addresses = PyMem_Calloc(count + 1, sizeof(uint64_t));
    if (run->addresses == NULL) return -1;
    for (Py_ssize_t i = 0; i < launches; i++)
        for (Py_ssize_t place = run->begins[i]; place < run->begins[i + 1]; place++) {
            PyObject *item = PyTuple_GET_ITEM(PyTuple_GET_ITEM(run->entries, i), 2 + place - run->begins[i]);
            PyObject *number = PyIndex_Check(item) ? PyNumber_Index(item) : NULL;
            if (number != NULL) run->addresses[place] = PyLong_AsUnsignedLongLongMask(number);
            Py_XDECREF(number);
            if (PyErr_Occurred()) return -1;
        }
    return 0;
}

/* Make the graphs of launches in a row; 1 where the driver takes all of them, -1 for an error. */
static int
make_segments(RelocatedChain *run, const Driver *driver)
{
    Py_ssize_t launches = PyTuple_GET_SIZE(run->entries);
    PyObject *const *entries = &PyTuple_GET_ITEM(run->entries, 0);
    run->segments = PyMem_Calloc(launches + 1, sizeof(Segment));
    if (run->segments == NULL) return -1;
    for (Py_ssize_t at = 0; at < launches;) {
        Py_ssize_t length = chained_from(entries + at, launches - at);
        Segment *segment = run->segments + run->segment_count++;
        segment->begin = at;
        at += length ? length : 1;
        if (!length) continue;
        PyObject *chain = new_chain(driver, entries + segment->begin, length);
        if (chain == NULL || chain == Py_None) {
            Py_XDECREF(chain);
            return chain == NULL ? -1 : 0;
        }
        segment->chain = (Chain *)chain;
    }
    return 1;
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

/* Whether all entries are launches on one stream, of which few are made by themselves; -1 for an error. */
static int
can_be_relocated(PyObject *entries)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entries), alone = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *entry = PyTuple_GET_ITEM(entries, i), *first = PyTuple_GET_ITEM(entries, 0);
        if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) < 2 || PyTuple_GET_SIZE(entry) > 2 + MOST_GIVEN) return 0;
        int is_same = PyObject_RichCompareBool(PyTuple_GET_ITEM(entry, 1), PyTuple_GET_ITEM(first, 1), Py_EQ);
        if (is_same != 1) return is_same;
        alone += kernel_in(entry) == NULL;
    }
    return count > 0 && alone <= MOST_ALONE && alone < count;
}

/* A graph of launches that waited, given the chains of their device, the launches, and what is relocated; None where that
cannot be, or a number is in no parameter. */
static PyObject *
new_relocated(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !Py_IS_TYPE(given[0], &ChainsType) || !PyTuple_CheckExact(given[1]) || !PyTuple_CheckExact(given[2]))
        return PyErr_Format(PyExc_TypeError, "relocated: expected chains, launches, and what is relocated");
    int state = can_be_relocated(given[1]);
    if (state <= 0) return state < 0 ? NULL : Py_NewRef(Py_None);
    RelocatedChain *run = PyObject_GC_New(RelocatedChain, &RelocatedChainType);
    if (run == NULL) return NULL;
    memset((char *)run + offsetof(RelocatedChain, entries), 0, sizeof(RelocatedChain) - offsetof(RelocatedChain, entries));
    run->entries = Py_NewRef(given[1]);
    PyObject_GC_Track(run);
    int failed = take_relocated(run, given[2]) < 0 || keep_addresses(run) < 0 || find_relocations(run) < 0;
    state = failed ? -1 : are_numbers_found(run) ? make_segments(run, &((Chains *)given[0])->driver) : 0;
    if (state > 0) return (PyObject *)run;
    Py_DECREF(run);
    if (state < 0 && !PyErr_Occurred()) return PyErr_NoMemory();
    return state < 0 ? NULL : Py_NewRef(Py_None);
}

#endif
