/* The derivatives of single nodes, as the engine's ``autograd/node.py`` has them. */

#ifndef TELEGRAD_DERIVATIVES_H
#define TELEGRAD_DERIVATIVES_H

#include "values.h"

#define AUTOGRAD_CLASSES(X) X(OpNode) X(GradientPlan) X(SavedTensor) X(SavedOutput) X(AutogradMeta)

#define AUTOGRAD_SLOTS(X)                                                                                              \
    X(OpNode, edges) X(OpNode, metas) X(OpNode, plan) X(OpNode, retained) X(OpNode, saved) X(OpNode, sequence)         \
    X(GradientPlan, constants) X(GradientPlan, inputs) X(GradientPlan, joint) X(GradientPlan, names_grads)             \
    X(GradientPlan, reads)                                                                                             \
    X(GradientPlan, saves) X(GradientPlan, saves_outs) X(SavedTensor, array) X(SavedTensor, meta)                      \
    X(SavedTensor, node) X(SavedTensor, output) X(SavedTensor, storage) X(SavedTensor, value) X(SavedTensor, version)  \
    X(AutogradMeta, accumulator) X(AutogradMeta, grad) X(AutogradMeta, grad_fn) X(AutogradMeta, output)                \
    X(AutogradMeta, rebased) X(AutogradMeta, requires_grad) X(Context, excluded)

/* What else ``prepare_autograd`` is given: functions of Python that do what is unusual, and constants. */
#define AUTOGRAD_OBJECTS(X)                                                                                            \
    X(apply) X(fit_gradient) X(fit_all) X(edge_of) X(save_list) X(next_sequence) X(unrecorded) X(autograd_key)
#define AUTOGRAD_TEXTS(X) X(key) X(unpack)

AUTOGRAD_SLOTS(DECLARE_SLOT)
AUTOGRAD_CLASSES(DECLARE_OBJECT)
AUTOGRAD_OBJECTS(DECLARE_OBJECT)
AUTOGRAD_TEXTS(DECLARE_TEXT)

static int
take_autograd(PyObject *given)
{
    PyObject *value;
    AUTOGRAD_CLASSES(TAKE)
    AUTOGRAD_OBJECTS(TAKE)
    AUTOGRAD_SLOTS(FIND)
    AUTOGRAD_TEXTS(INTERN)
    return 0;
}

/* Append a new reference to a list; -1 for an error, also where there is none. */
static int
append(PyObject *list, PyObject *item)
{
    int failed = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return failed;
}

/* Whether gradients are not recorded now; -1 for an error. */
static int
is_unrecorded(void)
{
    PyObject *context = PyDict_GetItemWithError(the_context, text_current);
    if (context == NULL || !IS(context, Context)) return PyErr_Occurred() ? -1 : 0;
    PyObject *both = PyNumber_And(SLOT(context, Context__excluded), the_autograd_key);
    int is = both == NULL ? -1 : PyObject_IsTrue(both);
    Py_XDECREF(both);
    return is;
}

/* A value over a storage, laid out as a meta says: all of its slots are set but those of views. */
static PyObject *
value_over(PyObject *storage, PyObject *meta)
{
    PyObject *backend = SLOT(storage, Storage__backend), *key = PyObject_GetAttr(backend, text_key);
    PyObject *value = key == NULL ? NULL : PyBaseObject_Type.tp_new((PyTypeObject *)the_Value, no_arguments, NULL);
    if (value == NULL) {
        Py_XDECREF(key);
        return NULL;
    }
    SLOT(value, Value__storage) = Py_NewRef(storage);
    SLOT(value, Value__meta) = Py_NewRef(meta);
    SLOT(value, Value__backend) = Py_NewRef(backend);
    SLOT(value, Value__base) = Py_NewRef(Py_None);
    SLOT(value, Value__autograd) = Py_NewRef(Py_None);
    SLOT(value, Value___array) = Py_NewRef(Py_None);
    SLOT(value, Value__keys) = key;
    return value;
}

/* ``SavedTensor.unpack`` where gradients are not recorded, or the tensor has no history; Python's for all else. */
static PyObject *
unpack(PyObject *item, PyObject *node)
{
    int is_usual = IS(item, SavedTensor) || IS(item, SavedOutput);
    PyObject *storage = is_usual ? SLOT(item, SavedTensor__storage) : NULL;
    if (is_usual) is_usual = is_equal(SLOT(storage, Storage__version), SLOT(item, SavedTensor__version));
    PyObject *leaf = is_usual == 1 ? SLOT(item, SavedTensor__value) : Py_None;
    if (leaf != Py_None && SLOT(leaf, Value__storage) == storage) return Py_NewRef(leaf);
    if (leaf != Py_None) return PyObject_CallMethodOneArg(item, text_unpack, node);
    int has_history = is_usual == 1 && SLOT(item, SavedTensor__node) != Py_None;
    if (has_history) is_usual = is_unrecorded();
    if (is_usual < 0) return NULL;
    if (!is_usual) return PyObject_CallMethodOneArg(item, text_unpack, node);
    PyObject *value = value_over(storage, SLOT(item, SavedTensor__meta));
    if (value == NULL) return NULL;
    if (has_history) PUT_SAME(value, Value__autograd, the_unrecorded);
    PUT_SAME(value, Value___array, SLOT(item, SavedTensor__array));
    return value;
}

/* The same of an item of a list, which may lose it meanwhile. */
static PyObject *
unpack_item(PyObject *list, Py_ssize_t at, PyObject *node)
{
    PyObject *item = Py_NewRef(PyList_GET_ITEM(list, at)), *value = unpack(item, node);
    Py_DECREF(item);
    return value;
}

/* ``fit_gradient``, of which most gradients need nothing; takes the gradient. */
static PyObject *
fitted(PyObject *gradient, PyObject *meta)
{
    if (gradient == NULL || gradient == Py_None || (IS(gradient, Value) && SLOT(gradient, Value__meta) == meta))
        return gradient;
    PyObject *both[] = {gradient, meta};
    PyObject *result = PyObject_Vectorcall(the_fit_gradient, both, 2, NULL);
    Py_DECREF(gradient);
    return result;
}

/* Call a formula on what it picks from the operands of a node. */
static PyObject *
evaluate(PyObject *formula, PyObject *pick, PyObject *operands)
{
    PyObject *picked = PyObject_CallOneArg(pick, operands);
    if (picked != NULL && !PyTuple_CheckExact(picked)) Py_SETREF(picked, PySequence_Tuple(picked));
    PyObject *result = picked == NULL ? NULL : PyObject_Call(formula, picked, NULL);
    Py_XDECREF(picked);
    return result;
}

/* Append the gradients of a formula that gives all of them at once; -1 for an error. */
static int
append_joint(PyObject *results, PyObject *joint, PyObject *operands)
{
    PyObject *metas = PyTuple_GET_ITEM(joint, 2);
    PyObject *given = evaluate(PyTuple_GET_ITEM(joint, 0), PyTuple_GET_ITEM(joint, 1), operands);
    PyObject *gradients = given == NULL ? NULL : PySequence_Fast(given, "a formula of several gradients gives no sequence");
    int failed = gradients == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(metas) && i < PySequence_Fast_GET_SIZE(gradients); i++)
        failed = append(results, fitted(Py_NewRef(PySequence_Fast_GET_ITEM(gradients, i)), PyTuple_GET_ITEM(metas, i)));
    Py_XDECREF(gradients);
    Py_XDECREF(given);
    return failed;
}

/* Append the gradients of one argument, which may be a list; -1 for an error. */
static int
append_gradient(PyObject *results, PyObject *input, PyObject *operands)
{
    PyObject *formula = PyTuple_GET_ITEM(input, 0), *meta = PyTuple_GET_ITEM(input, 2);
    if (formula == Py_None) return PyList_SetSlice(results, PyList_GET_SIZE(results), PyList_GET_SIZE(results), meta);
    PyObject *gradient = evaluate(formula, PyTuple_GET_ITEM(input, 1), operands);
    if (!PyTuple_CheckExact(meta)) return append(results, fitted(gradient, meta));
    PyObject *both[] = {gradient, meta};
    PyObject *all = gradient == NULL ? NULL : PyObject_Vectorcall(the_fit_all, both, 2, NULL);
    int failed = all == NULL ? -1 : PyList_SetSlice(results, PyList_GET_SIZE(results), PyList_GET_SIZE(results), all);
    Py_XDECREF(all);
    Py_XDECREF(gradient);
    return failed;
}

/* Whether zeros have to stand for gradients that are missing, of several outputs; -1 for an error. */
static int
needs_zeros(PyObject *plan, PyObject *grads)
{
    int needs = 0;
    for (Py_ssize_t i = 0; PyList_GET_SIZE(grads) > 1 && !needs && i < PyList_GET_SIZE(grads); i++) {
        if (PyList_GET_ITEM(grads, i) != Py_None) continue;
        PyObject *number = PyLong_FromSsize_t(i);
        needs = number == NULL ? -1 : PySequence_Contains(SLOT(plan, GradientPlan__reads), number);
        Py_XDECREF(number);
    }
    return needs;
}

/* ``OpNode.apply``, but where formulas take all gradients as one, or zeros in place of some. */
static PyObject *
call_apply(PyObject *node, PyObject *grads)
{
    PyObject *saved = SLOT(node, OpNode__saved), *plan = SLOT(node, OpNode__plan);
    if (saved == NULL || !PyList_CheckExact(saved) || plan == NULL || !IS(plan, GradientPlan) ||
        SLOT(plan, GradientPlan__names_grads) != Py_False || !PyList_CheckExact(grads) || needs_zeros(plan, grads)) {
        if (PyErr_Occurred()) return NULL;
        PyObject *both[] = {node, grads};
        return PyObject_Vectorcall(the_apply, both, 2, NULL);
    }
    PyObject *constants = SLOT(plan, GradientPlan__constants), *joint = SLOT(plan, GradientPlan__joint);
    PyObject *given = PyList_GetSlice(grads, 0, PyList_GET_SIZE(grads)); /* the list may lose some while others are unpacked */
    PyObject *operands = PyList_GetSlice(constants, 0, PyList_GET_SIZE(constants)), *results = PyList_New(0);
    int failed = given == NULL || operands == NULL || results == NULL;
    Py_INCREF(saved);
    Py_INCREF(plan);
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(saved); i++)
        failed = append(operands, unpack_item(saved, i, node));
    if (!failed) failed = PyList_SetSlice(operands, PyList_GET_SIZE(operands), PyList_GET_SIZE(operands), given);
    Py_XDECREF(given);
    if (!failed && joint != Py_None) failed = append_joint(results, joint, operands);
    PyObject *inputs = SLOT(plan, GradientPlan__inputs);
    for (Py_ssize_t i = 0; !failed && joint == Py_None && i < PyTuple_GET_SIZE(inputs); i++)
        failed = append_gradient(results, PyTuple_GET_ITEM(inputs, i), operands);
    Py_DECREF(saved);
    Py_DECREF(plan);
    Py_XDECREF(operands);
    if (failed) Py_CLEAR(results);
    return results;
}

#endif
