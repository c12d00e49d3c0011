/* What nodes do by the programs of their plans, as the engine's ``autograd/node_program.py`` has it. */

#ifndef TELEGRAD_NODE_PROGRAMS_H
#define TELEGRAD_NODE_PROGRAMS_H

#include "autograd.h"

#define NODE_PROGRAM_CLASSES(X) X(NodeProgram)
#define NODE_PROGRAM_SLOTS(X)                                                                                          \
    X(NodeProgram, gradient) X(NodeProgram, modes) X(NodeProgram, results) X(NodeProgram, size)                        \
    X(NodeProgram, steps) X(GradientPlan, program)
#define NODE_PROGRAM_OBJECTS(X) X(learn)

NODE_PROGRAM_SLOTS(DECLARE_SLOT)
NODE_PROGRAM_CLASSES(DECLARE_OBJECT)
NODE_PROGRAM_OBJECTS(DECLARE_OBJECT)

static int
take_node_programs(PyObject *given)
{
    PyObject *value;
    NODE_PROGRAM_CLASSES(TAKE)
    NODE_PROGRAM_OBJECTS(TAKE)
    NODE_PROGRAM_SLOTS(FIND)
    return 0;
}

/* The fields of a step. */
enum { RUN, ARGUMENTS, SOURCES, RESULTS, FREED };

/* The values of a node while its program runs; all that it has is freed with it. */
typedef struct {
    PyObject *few[16], **all;
    Py_ssize_t size;
} Table;

static int
open_table(Table *table, Py_ssize_t size)
{
    table->size = size;
    table->all = size <= (Py_ssize_t)Py_ARRAY_LENGTH(table->few) ? table->few : PyMem_Calloc(size, sizeof(PyObject *));
    if (table->all == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (table->all == table->few) memset(table->few, 0, sizeof(table->few));
    return 0;
}

static void
close_table(Table *table)
{
    for (Py_ssize_t i = 0; i < table->size; i++) Py_CLEAR(table->all[i]);
    if (table->all != table->few) PyMem_Free(table->all);
}

/* The place of the table that a number names; -1 with an error set where there is none. */
static Py_ssize_t
place_in(Table *table, PyObject *number)
{
    Py_ssize_t place = PyLong_AsSsize_t(number);
    if (place >= 0 && place < table->size) return place;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_IndexError, "a program of a node has no value %zd", place);
    return -1;
}

/* A new reference to what is at a source; NULL for an error. */
static PyObject *
value_at(Table *table, PyObject *source)
{
    if (PyLong_CheckExact(source)) {
        Py_ssize_t place = place_in(table, source);
        return place < 0 ? NULL : Py_NewRef(table->all[place] == NULL ? Py_None : table->all[place]);
    }
    if (PyTuple_CheckExact(source)) {
        Py_ssize_t place = place_in(table, PyTuple_GET_ITEM(source, 0));
        PyObject *list = place < 0 ? NULL : table->all[place];
        if (place >= 0 && (list == NULL || !PyTuple_CheckExact(list)))
            return PyErr_Format(PyExc_TypeError, "a program of a node expected a list of values, got %R", list);
        return list == NULL ? NULL : Py_XNewRef(PyTuple_GetItem(list, PyLong_AsSsize_t(PyTuple_GET_ITEM(source, 1))));
    }
    PyObject *items = PyTuple_New(PyList_GET_SIZE(source));
    for (Py_ssize_t i = 0; items != NULL && i < PyList_GET_SIZE(source); i++) {
        PyObject *item = PyList_GET_ITEM(source, i), *value = item == Py_None ? Py_NewRef(item) : value_at(table, item);
        if (value == NULL) Py_CLEAR(items);
        else PyTuple_SET_ITEM(items, i, value);
    }
    return items;
}

/* The arguments of a step; NULL for an error. */
static PyObject *
bind_step(Table *table, PyObject *step)
{
    PyObject *template = PyTuple_GET_ITEM(step, ARGUMENTS), *sources = PyTuple_GET_ITEM(step, SOURCES);
    PyObject *bound = PyTuple_New(PyTuple_GET_SIZE(template));
    for (Py_ssize_t i = 0; bound != NULL && i < PyTuple_GET_SIZE(template); i++)
        PyTuple_SET_ITEM(bound, i, Py_NewRef(PyTuple_GET_ITEM(template, i)));
    for (Py_ssize_t i = 0; bound != NULL && i < PyTuple_GET_SIZE(sources); i++) {
        PyObject *source = PyTuple_GET_ITEM(sources, i);
        PyObject *value = value_at(table, PyTuple_GET_ITEM(source, 1));
        if (value == NULL || PyTuple_SetItem(bound, PyLong_AsSsize_t(PyTuple_GET_ITEM(source, 0)), value) < 0) Py_CLEAR(bound);
    }
    return bound;
}

/* Put what a step has made into the table; takes the result, -1 for an error. */
static int
keep_results(Table *table, PyObject *places, PyObject *result)
{
    if (PyLong_CheckExact(places)) {
        Py_ssize_t place = place_in(table, places);
        if (place < 0) Py_DECREF(result);
        else Py_XSETREF(table->all[place], result);
        return place < 0 ? -1 : 0;
    }
    int failed = !PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != PyTuple_GET_SIZE(places);
    if (failed) PyErr_Format(PyExc_TypeError, "a program of a node expected %zd results, got %R", PyTuple_GET_SIZE(places), result);
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(places); i++) {
        Py_ssize_t place = place_in(table, PyTuple_GET_ITEM(places, i));
        failed = place < 0;
        if (!failed) Py_XSETREF(table->all[place], Py_NewRef(PyTuple_GET_ITEM(result, i)));
    }
    Py_DECREF(result);
    return failed ? -1 : 0;
}

/* Execute one operation of a program; -1 for an error. */
static int
run_step(Table *table, PyObject *step)
{
    PyObject *bound = bind_step(table, step);
    PyObject *result = bound == NULL ? NULL : PyObject_CallOneArg(PyTuple_GET_ITEM(step, RUN), bound);
    Py_XDECREF(bound);
    if (result == NULL || keep_results(table, PyTuple_GET_ITEM(step, RESULTS), result) < 0) return -1;
    PyObject *freed = PyTuple_GET_ITEM(step, FREED);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(freed); i++) {
        Py_ssize_t place = place_in(table, PyTuple_GET_ITEM(freed, i));
        if (place < 0) return -1;
        Py_CLEAR(table->all[place]);
    }
    return 0;
}

/* The gradients for a node's edges; NULL for an error. */
static PyObject *
run_program(PyObject *program, PyObject *node, PyObject *saved, PyObject *gradient)
{
    Table table;
    PyObject *steps = Py_NewRef(SLOT(program, NodeProgram__steps)), *sources = Py_NewRef(SLOT(program, NodeProgram__results));
    Py_ssize_t count = PyList_GET_SIZE(saved), size = number_in(program, NodeProgram__size);
    int failed = size <= count || open_table(&table, size) < 0;
    if (failed && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "a program of a node has no room for %zd saved values", count);
    PyObject *results = NULL;
    if (!failed) {
        Py_INCREF(saved);
        table.all[count] = Py_NewRef(gradient); /* before anything is called that may let go of it */
        for (Py_ssize_t i = 0; !failed && i < count && i < PyList_GET_SIZE(saved); i++)
            failed = (table.all[i] = unpack_item(saved, i, node)) == NULL;
        for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(steps); i++) failed = run_step(&table, PyTuple_GET_ITEM(steps, i)) < 0;
        results = failed ? NULL : PyList_New(0);
        for (Py_ssize_t i = 0; results != NULL && i < PyTuple_GET_SIZE(sources); i++) {
            PyObject *source = PyTuple_GET_ITEM(sources, i);
            if (append(results, source == Py_None ? Py_NewRef(Py_None) : value_at(&table, source)) < 0) Py_CLEAR(results);
        }
        close_table(&table);
        Py_DECREF(saved);
    }
    Py_DECREF(steps);
    Py_DECREF(sources);
    return results;
}

/* ``node_program.apply``. */
static PyObject *
apply_program(PyObject *node, PyObject *grads, PyObject *modes, int releases)
{
    PyObject *saved = SLOT(node, OpNode__saved), *plan = SLOT(node, OpNode__plan);
    PyObject *program = plan != NULL && IS(plan, GradientPlan) ? SLOT(plan, GradientPlan__program) : NULL;
    PyObject *gradient = PyList_CheckExact(grads) && PyList_GET_SIZE(grads) == 1 ? PyList_GET_ITEM(grads, 0) : NULL;
    if (program != NULL && IS(program, NodeProgram) && SLOT(program, NodeProgram__modes) == modes && gradient != NULL &&
        IS(gradient, Value) && SLOT(gradient, Value__meta) == SLOT(program, NodeProgram__gradient) && saved != NULL &&
        PyList_CheckExact(saved)) {
        Py_INCREF(program);
        PyObject *results = run_program(program, node, saved, gradient);
        Py_DECREF(program);
        return results;
    }
    PyObject *all[] = {node, grads, modes, releases ? Py_True : Py_False};
    return PyObject_Vectorcall(the_learn, all, 4, NULL);
}

#endif
