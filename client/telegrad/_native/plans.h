/* Plans of calls by what the calls are given, found without making a key of Python's objects.
 *
 * What decides a plan is written down as words: addresses of objects, which the memory keeps alive, and the values of
 * integers and floats. Equal words are an equal key. What is not found is looked up in the dictionary of plans.
 */

#ifndef TELEGRAD_PLANS_H
#define TELEGRAD_PLANS_H

#include "slots.h"
#include <stdint.h>
#include <string.h>

#define WORDS 24     /* of a call, at most; calls that are given more are not remembered */
#define PLACES 1024  /* of calls that are remembered, a power of 2 */

enum { AN_OBJECT, AN_INTEGER, A_FLOAT, A_LENGTH };

typedef struct {
    uint64_t kinds; /* two bits for each word */
    int64_t words[WORDS];
    Py_ssize_t count;
} Given;

static struct {
    Given given;
    PyObject *objects, *plan;
} remembered[PLACES];

static int
note_word(Given *given, int64_t word, uint64_t kind)
{
    if (given->count == WORDS) return 0;
    given->kinds |= kind << 2 * given->count;
    given->words[given->count++] = word;
    return 1;
}

/* Note a number by its value, and any other object by its address; 0 where there is no more room. */
static int
note_value(Given *given, PyObject *value)
{
    int64_t word = (int64_t)(intptr_t)value;
    if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AS_DOUBLE(value);
        memcpy(&word, &number, sizeof word);
        return note_word(given, word, A_FLOAT);
    }
    if (!PyLong_CheckExact(value)) return note_word(given, word, AN_OBJECT);
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow ? note_word(given, word, AN_OBJECT) : note_word(given, number, AN_INTEGER);
}

/* Note the values at these places of a call; 0 where they cannot be. */
static int
note_values(Given *given, PyObject *places, PyObject *values)
{
    if (!PyList_CheckExact(places)) return 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(places); i++) {
        PyObject *value = value_at(values, PyList_GET_ITEM(places, i));
        if (value == NULL || !note_value(given, value)) return 0;
    }
    return 1;
}

/* Note lists of integers, each behind its length; 0 for others. */
static int
note_lists(Given *given, PyObject *places, PyObject *values)
{
    if (!PyList_CheckExact(places)) return 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(places); i++) {
        PyObject *list = value_at(values, PyList_GET_ITEM(places, i));
        if (list == NULL || !is_plain_sequence(list)) return 0;
        Py_ssize_t length = PySequence_Fast_GET_SIZE(list);
        if (!note_word(given, length, A_LENGTH)) return 0;
        for (Py_ssize_t j = 0; j < length; j++) {
            PyObject *item = PySequence_Fast_GET_ITEM(list, j);
            if (!PyLong_CheckExact(item) || !note_value(given, item)) return 0;
        }
    }
    return 1;
}

static Py_ssize_t
place_of(const Given *given)
{
    uint64_t hash = given->kinds;
    for (Py_ssize_t i = 0; i < given->count; i++) hash = (hash ^ (uint64_t)given->words[i]) * 0x9E3779B97F4A7C15u;
    return (Py_ssize_t)(hash >> 40) & (PLACES - 1);
}

/* The plan of a call that was given the same; NULL where none is remembered. */
static PyObject *
remembered_plan(const Given *given, Py_ssize_t place)
{
    const Given *known = &remembered[place].given;
    if (remembered[place].plan == NULL || known->count != given->count || known->kinds != given->kinds) return NULL;
    if (memcmp(known->words, given->words, given->count * sizeof *given->words)) return NULL;
    return remembered[place].plan;
}

/* Remember a plan instead of the one that was remembered at this place. */
static void
remember(const Given *given, Py_ssize_t place, PyObject *plan)
{
    PyObject *objects = PyTuple_New(given->count);
    if (objects == NULL) {
        PyErr_Clear();
        return;
    }
    for (Py_ssize_t i = 0; i < given->count; i++) {
        int is_object = (given->kinds >> 2 * i & 3) == AN_OBJECT;
        PyTuple_SET_ITEM(objects, i, Py_NewRef(is_object ? (PyObject *)(intptr_t)given->words[i] : Py_None));
    }
    PyObject *former[] = {remembered[place].objects, remembered[place].plan};
    remembered[place].given = *given;
    remembered[place].objects = objects;
    remembered[place].plan = Py_NewRef(plan);
    for (int i = 0; i < 2; i++) Py_XDECREF(former[i]); /* which may run what looks plans up */
}

#endif
