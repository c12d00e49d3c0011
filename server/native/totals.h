/* Running totals and their peaks, as ``allocator/core/ledger.py`` has them: integers with a field for each total. */

#ifndef TELEGRAD_TOTALS_H
#define TELEGRAD_TOTALS_H

#include "slots.h"

/* Apply an operation and let go of its operands, either of which may be NULL after an error. */
static PyObject *
apply(binaryfunc operation, PyObject *left, PyObject *right)
{
    PyObject *result = left != NULL && right != NULL ? operation(left, right) : NULL;
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

/* Whether totals are beyond the ceiling of a ledger in any field; -1 for an error. */
static int
passes(PyObject *ledger, PyObject *now)
{
    PyObject *room = PyNumber_Subtract(SLOT(ledger, Ledger__ceiling), now);
    PyObject *kept = apply(PyNumber_And, room, Py_NewRef(the_guards));
    if (kept == NULL) return -1;
    int differs = PyObject_RichCompareBool(kept, the_guards, Py_NE);
    Py_DECREF(kept);
    return differs;
}

/* ``larger``: field by field the larger of two totals. */
static PyObject *
larger(PyObject *left, PyObject *right)
{
    PyObject *raised = PyNumber_Or(left, the_guards);
    PyObject *guards = apply(PyNumber_And, apply(PyNumber_Subtract, raised, Py_NewRef(right)), Py_NewRef(the_guards));
    PyObject *low = guards == NULL ? NULL : PyNumber_Rshift(guards, the_field_bits);
    PyObject *keep = apply(PyNumber_Subtract, guards, low);
    if (keep == NULL) return NULL;
    PyObject *others = apply(PyNumber_And, PyNumber_Invert(keep), Py_NewRef(right));
    return apply(PyNumber_Or, apply(PyNumber_And, Py_NewRef(left), keep), others);
}

/* ``Ledger.take_peaks``; -1 for an error. */
static int
take_peaks(PyObject *ledger)
{
    int together = is_equal(SLOT(ledger, Ledger__allocated_peak), SLOT(ledger, Ledger__peak));
    if (together < 0) return -1;
    if (!together || SLOT(ledger, Ledger__quota) != the_unlimited || PyObject_IsTrue(SLOT(ledger, Ledger__pending)))
        return done(PyObject_CallMethodNoArgs(ledger, text_take_peaks));
    PyObject *peak = larger(SLOT(ledger, Ledger__peak), SLOT(ledger, Ledger__now));
    PyObject *ceiling = peak == NULL ? NULL : PyNumber_Or(peak, the_guards);
    if (ceiling == NULL) {
        Py_XDECREF(peak);
        return -1;
    }
    PUT_SAME(ledger, Ledger__allocated_peak, peak);
    PUT(ledger, Ledger__peak, peak);
    PUT(ledger, Ledger__ceiling, ceiling);
    return 0;
}

/* Set the totals of a ledger to a new reference, and take the peaks if they pass one; -1 for an error. */
static int
set_totals(PyObject *ledger, PyObject *now)
{
    if (now == NULL) return -1;
    PUT(ledger, Ledger__now, now);
    int beyond = passes(ledger, now);
    return beyond > 0 ? take_peaks(ledger) : beyond;
}

/* ``Ledger.add``; -1 for an error. */
static int
charge(PyObject *ledger, PyObject *amount)
{
    return set_totals(ledger, PyNumber_Add(SLOT(ledger, Ledger__now), amount));
}

#endif
