/* What a worker does for most operations, in C: memory is allocated and freed as ``Recall`` and ``FastBins`` do, and
values over it are made and die, calls are given a history, and nodes of it compute gradients.

It works on the same objects as the functions of Python, through their slots, and looks at everything before it changes
anything. Where something is not as it expects, the function of Python is called from its beginning.
``allocator/native_calls.py`` and ``engine/in_c`` hand it what it works on. */

#include "arrays.h"
#include "extension_calls.h"
#include "lookups.h"
#include "metas.h"
#include "operand_launches.h"
#include "philox.h"
#include "relocations.h"
#include "runs.h"
#include "small_launches.h"
#include "views.h"
#include "waits.h"
#include "walks.h"

/* Three arguments of an allocation, of which the last two are 0 where they are left out; 0 where Python is to bind them. */
static int
bind(PyObject *const *given, Py_ssize_t count, PyObject *names, PyObject **all)
{
    if (names != NULL || count < 1 || count > 3) return 0;
    for (int i = 0; i < 3; i++) all[i] = i < count ? given[i] : zero;
    return PyLong_CheckExact(all[0]) && PyLong_CheckExact(all[1]) && PyLong_CheckExact(all[2]);
}

/* Call a function of Python with an object before the arguments, whatever these are. */
static PyObject *
call_python(PyObject *function, PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject **all = PyMem_Malloc((1 + count + named) * sizeof(PyObject *));
    if (all == NULL) return PyErr_NoMemory();
    all[0] = self;
    for (Py_ssize_t i = 0; i < count + named; i++) all[1 + i] = given[i];
    PyObject *result = PyObject_Vectorcall(function, all, 1 + count, names);
    PyMem_Free(all);
    return result;
}

static PyObject *
call_allocate(PyObject *recall, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *all[3];
    return bind(given, count, names, all) ? allocate(recall, all)
                                          : call_python(the_recall_allocate, recall, given, count, names);
}

static PyObject *
call_free(PyObject *recall, PyObject *block)
{
    return none_unless(release(recall, block));
}

static PyObject *
call_allocate_anew(PyObject *recall, PyObject *const *given, Py_ssize_t count)
{
    PyObject *all[3];
    return bind(given, count, NULL, all) ? allocate_anew(recall, all[0], all[1], all[2])
                                         : call_python(the_allocate_anew, recall, given, count, NULL);
}

static PyObject *
call_free_anew(PyObject *recall, PyObject *block)
{
    return none_unless(free_anew(recall, block));
}

static PyObject *
call_free_in_cooldown(PyObject *recall, PyObject *block)
{
    return none_unless(free_in_cooldown(recall, block));
}

static PyObject *
call_allocate_from_bins(PyObject *bins, PyObject *const *given, Py_ssize_t count, PyObject *names)
{
    PyObject *all[3];
    return bind(given, count, names, all) ? allocate_from_bins(bins, all[0], all[1], all[2])
                                          : call_python(the_bins_allocate, bins, given, count, names);
}

static PyObject *
call_free_to_bins(PyObject *bins, PyObject *block)
{
    if (!IS(block, Block)) return call_python(the_bins_free, bins, &block, 1, NULL);
    return none_unless(free_to_bins(bins, block));
}

#define WITH_NAMES(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL | METH_KEYWORDS
static PyMethodDef of_recall[] = {
    {"allocate", WITH_NAMES(call_allocate), "``Recall.allocate``"},
    {"free", call_free, METH_O, "``Recall.free``"},
    {"allocate_anew", (PyCFunction)(void (*)(void))call_allocate_anew, METH_FASTCALL, "``Recall.allocate_anew``"},
    {"free_anew", call_free_anew, METH_O, "``Recall.free_anew``"},
    {"free_in_cooldown", call_free_in_cooldown, METH_O, "``Recall._free_in_cooldown``"},
};
static PyMethodDef of_bins[] = {
    {"allocate", WITH_NAMES(call_allocate_from_bins), "``FastBins.allocate``"},
    {"free", call_free_to_bins, METH_O, "``FastBins.free``"},
};

/* Functions bound to an object, as a tuple. */
static PyObject *
bound(PyMethodDef *methods, Py_ssize_t count, PyObject *object, PyObject *type)
{
    if (type == NULL || !PyObject_TypeCheck(object, (PyTypeObject *)type)) {
        PyErr_Format(PyExc_TypeError, "expected an object of a class that prepare was given, got %R", object);
        return NULL;
    }
    PyObject *all = PyTuple_New(count);
    for (Py_ssize_t i = 0; all != NULL && i < count; i++) {
        PyObject *function = PyCFunction_New(&methods[i], object);
        if (function == NULL) Py_CLEAR(all);
        else PyTuple_SET_ITEM(all, i, function);
    }
    return all;
}

static PyObject *
bound_to_recall(PyObject *module, PyObject *recall)
{
    (void)module;
    return bound(of_recall, Py_ARRAY_LENGTH(of_recall), recall, the_Recall);
}

static PyObject *
bound_to_bins(PyObject *module, PyObject *bins)
{
    (void)module;
    return bound(of_bins, Py_ARRAY_LENGTH(of_bins), bins, the_FastBins);
}

static PyObject *
prepare(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "prepare: expected a dict");
        return NULL;
    }
    return none_unless(take_objects(given));
}

/* Whether there is a backend, which C can ask for memory, in the place of one; TypeError where there is not. */
static int
check_backend(PyObject *backend)
{
    if (the_Backend != NULL && is_usual_backend(backend)) return 0;
    PyErr_Format(PyExc_TypeError, "expected a backend with an allocator, got %R", backend);
    return -1;
}

static PyObject *
call_new_value(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 4 || !PyLong_CheckExact(given[2])) {
        PyErr_SetString(PyExc_TypeError, "new_value: expected a backend, its key, bytes and a meta");
        return NULL;
    }
    return check_backend(given[0]) < 0 ? NULL : new_value(given[0], given[1], given[2], given[3]);
}

static PyMethodDef run_method = {"run", call_run, METH_O, "Execute an operation whose one result is new."};

static PyObject *
bound_to_launch(PyObject *module, PyObject *bound)
{
    (void)module;
    if (!PyTuple_CheckExact(bound) || PyTuple_GET_SIZE(bound) != 5 || !PyLong_CheckExact(PyTuple_GET_ITEM(bound, 2))) {
        PyErr_SetString(PyExc_TypeError, "bound_to_launch: expected a backend, its key, bytes, a meta and a launch");
        return NULL;
    }
    return check_backend(PyTuple_GET_ITEM(bound, 0)) < 0 ? NULL : PyCFunction_New(&run_method, bound);
}

static PyMethodDef several_method = {"run", call_run_several, METH_O, "Execute an operation whose several results are new."};

static PyObject *
bound_to_several(PyObject *module, PyObject *bound)
{
    (void)module;
    int usual = PyTuple_CheckExact(bound) && PyTuple_GET_SIZE(bound) == 5 && PyTuple_CheckExact(PyTuple_GET_ITEM(bound, 2)) &&
                PyTuple_CheckExact(PyTuple_GET_ITEM(bound, 3)) &&
                PyTuple_GET_SIZE(PyTuple_GET_ITEM(bound, 2)) == PyTuple_GET_SIZE(PyTuple_GET_ITEM(bound, 3));
    for (Py_ssize_t i = 0; usual && i < PyTuple_GET_SIZE(PyTuple_GET_ITEM(bound, 2)); i++)
        usual = PyLong_CheckExact(PyTuple_GET_ITEM(PyTuple_GET_ITEM(bound, 2), i));
    if (!usual) {
        PyErr_SetString(PyExc_TypeError, "bound_to_several: expected a backend, its key, bytes, as many metas, and a launch");
        return NULL;
    }
    return check_backend(PyTuple_GET_ITEM(bound, 0)) < 0 ? NULL : PyCFunction_New(&several_method, bound);
}

static PyMethodDef view_method = {"run", call_view, METH_O, "Make a view of the memory of an operand."};

static PyObject *
bound_to_view(PyObject *module, PyObject *bound)
{
    (void)module;
    if (the_view == NULL || !PyTuple_CheckExact(bound) || PyTuple_GET_SIZE(bound) != VIEW_FIELDS ||
        !PyLong_CheckExact(PyTuple_GET_ITEM(bound, VIEW_PLACE)) || !PyLong_CheckExact(PyTuple_GET_ITEM(bound, VIEW_BYTES))) {
        PyErr_SetString(PyExc_TypeError, "bound_to_view: expected an operation, a place, bytes and a meta, after prepare_views");
        return NULL;
    }
    return PyCFunction_New(&view_method, bound);
}

static PyObject *
prepare_views(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || the_OpNode == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_views: expected a dict, after prepare_autograd");
        return NULL;
    }
    return none_unless(take_views(given));
}

static PyMethodDef finalizer = {"__del__", call_finalize, METH_NOARGS, "Give the memory back, unless something else does."};

static PyObject *
prepare_values(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || the_Recall == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_values: expected a dict, after prepare");
        return NULL;
    }
    return take_values(given) < 0 ? NULL : PyDescr_NewMethod((PyTypeObject *)the_Storage, &finalizer);
}

static PyMethodDef recording = {"recording", call_recording, METH_O, "Execute an operation, and give its result a history."};
static PyMethodDef applying = {"apply", call_apply, METH_O, "Compute the gradients for ``edges`` from those of the outputs."};

static PyObject *
bound_to_recording(PyObject *module, PyObject *bound)
{
    (void)module;
    if (the_OpNode == NULL || !PyTuple_CheckExact(bound) || PyTuple_GET_SIZE(bound) != FIELDS ||
        !PyTuple_CheckExact(PyTuple_GET_ITEM(bound, POSITIONS)) || !PyDict_CheckExact(PyTuple_GET_ITEM(bound, PLANS))) {
        PyErr_SetString(PyExc_TypeError, "bound_to_recording: expected positions, plans, a run, metas, a flag and a function");
        return NULL;
    }
    return PyCFunction_New(&recording, bound);
}

static PyObject *
prepare_autograd(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || the_Value == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_autograd: expected a dict, after prepare_values");
        return NULL;
    }
    return take_autograd(given) < 0 ? NULL : PyDescr_NewMethod((PyTypeObject *)the_OpNode, &applying);
}

static PyObject *
call_apply_program(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (the_NodeProgram != NULL && count == 4 && IS(given[0], OpNode)) {
        int releases = PyObject_IsTrue(given[3]);
        return releases < 0 ? NULL : apply_program(given[0], given[1], given[2], releases);
    }
    PyErr_SetString(PyExc_TypeError, "apply_program: expected a node, its gradients, modes, and whether it is released, after prepare_node_programs");
    return NULL;
}

static PyObject *
call_drain(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    int usual = the_NodeProgram != NULL && count == 7 && PyList_CheckExact(given[1]) && PyDict_CheckExact(given[2]);
    if (usual && (given[6] == Py_None || PyAnySet_Check(given[6]))) {
        Pass pass = {given[0], given[2], given[3], given[5], given[6], given[4] == Py_True};
        return none_unless(drain(&pass, given[1]));
    }
    PyErr_SetString(PyExc_TypeError, "drain: expected a pass, nodes that are ready, counts, modes, a flag, and two sets or None");
    return NULL;
}

static PyObject *
prepare_node_programs(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || the_OpNode == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_node_programs: expected a dict, after prepare_autograd");
        return NULL;
    }
    return none_unless(take_node_programs(given) < 0 ? -1 : take_drain(given));
}

static PyObject *
prepare_signatures(PyObject *module, PyObject *given)
{
    (void)module;
    if (!PyDict_Check(given) || the_Value == NULL) {
        PyErr_SetString(PyExc_TypeError, "prepare_signatures: expected a dict, after prepare_values");
        return NULL;
    }
    return none_unless(take_signatures(given) < 0 ? -1 : take_lookups());
}

static PyMethodDef methods[] = {
    {"prepare", prepare, METH_O, "Take classes, functions and constants by their names; raises TypeError where one is missing."},
    {"bound_to_recall", bound_to_recall, METH_O, "allocate, free, allocate_anew, free_anew and free_in_cooldown of a ``Recall``."},
    {"bound_to_bins", bound_to_bins, METH_O, "allocate and free of ``FastBins``."},
    {"prepare_values", prepare_values, METH_O, "Take classes and objects by their names; returns ``Storage.__del__``."},
    {"new_value", (PyCFunction)(void (*)(void))call_new_value, METH_FASTCALL, "Return a value over new memory."},
    {"bound_to_launch", bound_to_launch, METH_O, "Return what executes an operation of one result by a launch."},
    {"bound_to_several", bound_to_several, METH_O, "Return what executes an operation of several results by a launch."},
    {"prepare_arrays", prepare_arrays, METH_O, "Take classes and objects by their names."},
    {"bound_to_kernel", bound_to_kernel, METH_O, "Return what has a kernel write into values."},
    {"bound_in_place", bound_in_place, METH_O, "Return what has a kernel write into its first operand."},
    {"small_launch", (PyCFunction)(void (*)(void))small_launch, METH_FASTCALL, "Return a launch on few elements, or a run in place."},
    {"philox", (PyCFunction)(void (*)(void))call_philox, METH_FASTCALL, "Write random words of a seed."},
    {"prepare_launches", prepare_launches, METH_O, "Take classes and objects by their names."},
    {"bound_to_queue", bound_to_queue, METH_O, "Return work whose launches wait in a queue where they may."},
    {"prepare_kernel", (PyCFunction)(void (*)(void))prepare_kernel, METH_FASTCALL, "Return a launch of a kernel, or None."},
    {"chains", (PyCFunction)(void (*)(void))new_chains, METH_FASTCALL, "Return what makes launches in chains."},
    {"relocated", (PyCFunction)(void (*)(void))new_relocated, METH_FASTCALL, "Return launches that are made again elsewhere, or None."},
    {"operand_launch", (PyCFunction)(void (*)(void))operand_launch, METH_FASTCALL, "Return a launch on operands, or None."},
    {"beginnings_of", call_beginnings_of, METH_O, "Return where the memory of values begins."},
    {"note_writes", (PyCFunction)(void (*)(void))call_note_writes, METH_FASTCALL, "Count a modification of arguments."},
    {"queued_call", (PyCFunction)(void (*)(void))queued_call, METH_FASTCALL, "Return a call that waits in a queue, or None."},
    {"prepare_autograd", prepare_autograd, METH_O, "Take classes and objects by their names; returns ``OpNode.apply``."},
    {"edge_of", call_edge_of, METH_O, "Return where gradients of a value flow, None if it requires none."},
    {"bound_to_recording", bound_to_recording, METH_O, "Return what executes an operation and gives its result a history."},
    {"prepare_node_programs", prepare_node_programs, METH_O, "Take classes and objects by their names."},
    {"apply_program", (PyCFunction)(void (*)(void))call_apply_program, METH_FASTCALL, "Do what a node does, by its program."},
    {"drain", (PyCFunction)(void (*)(void))call_drain, METH_FASTCALL, "Visit the nodes of a pass, from those that are ready."},
    {"count_gradients", (PyCFunction)(void (*)(void))call_count_gradients, METH_FASTCALL, "How many gradients nodes wait for."},
    {"begins_before", (PyCFunction)(void (*)(void))call_begins_before, METH_FASTCALL, "Whether a graph is older than a number."},
    {"identities", call_identities, METH_O, "What tells the nodes apart that a node leads to."},
    {"prepare_views", prepare_views, METH_O, "Take objects by their names."},
    {"bound_to_view", bound_to_view, METH_O, "Return what makes a view of the memory of an operand."},
    {"prepare_extension_calls", prepare_extension_calls, METH_O, "Take places in shared memory by their names."},
    {"bound_to_extension", bound_to_extension, METH_O, "Return what calls a function of an extension."},
    {"prepare_signatures", prepare_signatures, METH_O, "Take classes, functions and constants by their names."},
    {"signature_of", (PyCFunction)(void (*)(void))call_signature_of, METH_FASTCALL, "The key set of a call, and its signature."},
    {"lookup", (PyCFunction)(void (*)(void))new_lookup, METH_FASTCALL, "Return a lookup of what executes calls."},
    {"bound_to_dispatch", bound_to_dispatch, METH_O, "Return ``dispatch``, given what dispatches first calls."},
    {"metas_of", call_metas_of, METH_O, "Arguments with metas in place of values."},
    {"domain_of", call_domain_of, METH_O, "The domain of the caller for whom something is kept."},
    {"count_items", call_count_items, METH_O, "How many items there are in nested tuples."},
    {"prepare_metas", prepare_metas, METH_O, "Take classes, functions and objects by their names."},
    {"meta_of", WITH_NAMES(call_meta_of), "``Meta.of``"},
    {"count_entry", (PyCFunction)(void (*)(void))call_count_entry, METH_FASTCALL, "Note that an entry has come, or gone."},
    {"blocks_of", call_blocks_of, METH_O, "Return the blocks that values lie in; None where one is none."},
    {"storages_over", (PyCFunction)(void (*)(void))call_storages_over, METH_FASTCALL, "Return storages over memory."},
    {"values_over", (PyCFunction)(void (*)(void))call_values_over, METH_FASTCALL, "Return results over storages, or None."},
    {"named_by", (PyCFunction)(void (*)(void))call_named_by, METH_FASTCALL, "Return what slots name after a run, or None."},
    {"give_gradients", (PyCFunction)(void (*)(void))call_give_gradients, METH_FASTCALL, "Give values gradients, by rows."},
    {"bind_pairs", (PyCFunction)(void (*)(void))call_bind_pairs, METH_FASTCALL, "Bind numbers, and return those that are gone."},
    {"wait_awake", (PyCFunction)(void (*)(void))wait_awake, METH_FASTCALL, "Wait for a descriptor, awake at first where waits were short."},
    {"waits_awake", waits_awake, METH_NOARGS, "Waits that were awake, those in vain, and how many short ones will be asleep."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_worker", .m_doc = "The usual path of operations.", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__worker(void)
{
    PyObject *module = ready_launch_types() | PyType_Ready(&ChainType) | PyType_Ready(&ChainsType) | PyType_Ready(&RelocatedChainType) | PyType_Ready(&LookupType) | PyType_Ready(&SmallLaunchType) ? NULL : PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "MOST_READY", MOST_READY) < 0) Py_CLEAR(module);
    return module;
}
