/* The objects of Python that the native path of a call works on, and where their classes have their slots. */

#ifndef TELEGRAD_SLOTS_H
#define TELEGRAD_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define CLASSES(X)                                                                                                     \
    X(Tensor) X(OperationNode) X(Aliases) X(Modes) X(CallPattern) X(CallPlan) X(SendQueue) X(CallSites) X(Call)        \
    X(Meta) X(LeafNode) X(DeferredNode) X(Pace) X(Ahead) X(BatchEnds)

#define SLOTS(X)                                                                                                       \
    X(Tensor, _id) X(Tensor, _session) X(Tensor, _meta) X(Tensor, _requires_grad) X(Tensor, _node) X(Tensor, _grad)    \
    X(Tensor, _base) X(Tensor, _aliases) X(Tensor, _seen) X(OperationNode, parents) X(OperationNode, name)             \
    X(OperationNode, extras) X(Aliases, version) X(Modes, records) X(Modes, of_plans) X(Modes, inference)              \
    X(CallPattern, is_plain) X(CallPattern, is_single) X(CallPattern, is_leading) X(CallPattern, has_no_grad)          \
    X(CallPattern, tensors) X(CallPattern, attributes) X(CallPattern, floats) X(CallPattern, lists)                    \
    X(CallPattern, is_usual) X(CallPattern, others) X(CallPattern, tensor_lists) X(CallPattern, no_grad)               \
    X(CallPattern, has_places) X(CallPattern, device_source) X(CallPattern, updates) X(CallPlan, outs)                 \
    X(CallPlan, late_error) X(Meta, offset) X(LeafNode, extras) X(LeafNode, tensor) X(DeferredNode, _expand)           \
    X(DeferredNode, edges) X(CallPattern, positions) X(CallPattern, sources) X(CallPattern, differentiable)            \
    X(CallPlan, meta) X(CallPlan, rest) X(CallPlan, template) X(CallPlan, index) X(CallPlan, gives_gradient)           \
    X(CallPlan, grad_name) X(CallPlan, is_view) X(CallPlan, view_of) X(CallPlan, target) X(CallPlan, keeps_apart)      \
    X(SendQueue, _pending) X(SendQueue, _dead) X(SendQueue, new_id) X(SendQueue, operations) X(SendQueue, _full_at)    \
    X(SendQueue, _is_armed) X(SendQueue, _is_urgent) X(SendQueue, sites) X(SendQueue, free) X(CallSites, _numbers)     \
    X(Call, site) X(Pace, submitted) X(Pace, completed) X(Pace, limit) X(Pace, _measured_from) X(Pace, delay)          \
    X(Pace, seconds) X(Pace, _learnt_at) X(Pace, _count) X(Pace, _taken) X(Pace, _submissions) X(Ahead, pace)          \
    X(Ahead, _handshake) X(Ahead, _is_bounded) X(Ahead, _asked) X(Ahead, _batch_began) X(BatchEnds, _sent)

/* What else ``prepare`` is given: see there in ``__init__.py``. */
#define OBJECTS(X)                                                                                                     \
    X(ClientSession) X(thread) X(default_modes) X(plans) X(dtypes) X(own_files) X(other_files) X(is_own) X(is_usual)   \
    X(getframe) X(count) X(call) X(join) X(finalize) X(deque) X(absent) X(sharing) X(entered_inference)                \
    X(tensor_types) X(SocketTransport) X(DirectChannel) X(Kept) X(Free) X(Data) X(Answer) X(encode_batch)              \
    X(decode_replies) X(pace_complete) X(numbers) X(send_batch) X(CallExtension) X(modal) X(stoppable) X(session_for) \
    X(leavable)

#define TEXTS(X)                                                                                                       \
    X(_id) X(keeps_saved) X(modes) X(_default) X(_is_inference) X(_introduce) X(at_start) X(__dict__) X(__self__)      \
    X(__name__) X(_gradient_edge) X(queue) X(_send_full) X(free) X(acquire) X(release) X(fileno) X(_lock) X(_fatal)    \
    X(_closed) X(_busy) X(_pid) X(_link) X(inbox) X(unsent) X(_large) X(_end) X(unparsed) X(pending) X(_direct)        \
    X(_connection) X(is_open) X(link) X(_writer) X(_reader) X(_socket) X(window) X(acknowledged) X(_tail) X(_counted)  \
    X(bytes_sent) X(frames) X(_pause) X(handshake_seconds) X(_draft) X(_uploading) X(_has_parts) X(_has_new_line)      \
    X(holder) X(_told) X(_ends) X(_waited) X(_pending_bytes) X(_is_due) X(ahead) X(transport) X(data) X(request)       \
    X(_unannounced_bytes) X(bytes_received) X(received) X(released) X(_view) X(_limits) X(_waiting) X(_wake)           \
    X(_reading) X(_answers) X(send_batch) X(thread) X(changes_from) X(places)

#define DECLARE_SLOT(type, name) static Py_ssize_t type##__##name;
#define DECLARE_OBJECT(name) static PyObject *the_##name;
#define DECLARE_TEXT(name) static PyObject *text_##name;
SLOTS(DECLARE_SLOT)
CLASSES(DECLARE_OBJECT)
OBJECTS(DECLARE_OBJECT)
TEXTS(DECLARE_TEXT)
static PyObject *append, *popleft, *no_arguments, *zero, *one;
/* ``BATCH_OPERATIONS``, ``LONG_BATCH`` and ``_LONG_RUN`` of ``send_queue.py``. */
static struct {
    long long usual, most, long_run;
} batch_sizes;
/* ``MEMORY_SECONDS``, ``GROWTH``, ``FEWEST``, ``MOST_SUBMISSIONS`` and ``_LEAST_SECONDS`` of ``pace.py``. */
static struct {
    double memory, growth;
    long long fewest;
    Py_ssize_t submissions;
    double least;
} rules;
static int BATCH;             /* the kind of a frame, of ``wire.py`` */
static int look_milliseconds; /* ``LOOK_SECONDS`` of ``socket_transport.py`` */
static int may_wait_awake;    /* whether there are processors to wait awake on */
static PyObject *usual_types; /* types of operands: whether their slots are what ``Tensor`` has */
static PyObject *usual_type;  /* one of these which has them, that was met last */

/* What is in a slot of an object, whose type the caller has looked at: borrowed, and NULL where it is empty. */
#define SLOT(object, slot) (*(PyObject **)((char *)(object) + (slot)))
#define IS(object, type) (Py_TYPE(object) == (PyTypeObject *)the_##type)

static Py_ssize_t
offset_of(PyObject *type, const char *name)
{
    PyObject *slot = PyObject_GetAttrString(type, name);
    if (slot == NULL) return -1;
    PyMemberDef *member = Py_IS_TYPE(slot, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)slot)->d_member : NULL;
    Py_ssize_t offset = member != NULL && member->type == T_OBJECT_EX ? member->offset : -1;
    Py_DECREF(slot);
    if (offset < 0) PyErr_Format(PyExc_TypeError, "%R.%s is no slot", type, name);
    return offset;
}

/* Take everything from a dictionary by its name. */
static int
take_objects(PyObject *given)
{
    PyObject *value;
#define TAKE(name)                                                                                                     \
    if ((value = PyDict_GetItemString(given, #name)) == NULL) {                                                        \
        PyErr_Format(PyExc_TypeError, "prepare: %s is missing", #name);                                                \
        return -1;                                                                                                     \
    }                                                                                                                  \
    Py_XSETREF(the_##name, Py_NewRef(value));
#define FIND(type, name)                                                                                               \
    if ((type##__##name = offset_of(the_##type, #name)) < 0) return -1;
#define INTERN(name)                                                                                                   \
    if ((text_##name = PyUnicode_InternFromString(#name)) == NULL) return -1;
    CLASSES(TAKE)
    OBJECTS(TAKE)
    SLOTS(FIND)
    TEXTS(INTERN)
    if (!PyArg_ParseTuple(
            the_numbers, "iiiddLndLLL", &BATCH, &look_milliseconds, &may_wait_awake, &rules.memory, &rules.growth,
            &rules.fewest, &rules.submissions, &rules.least, &batch_sizes.usual, &batch_sizes.most, &batch_sizes.long_run))
        return -1;
    append = PyObject_GetAttrString(the_deque, "append");
    popleft = PyObject_GetAttrString(the_deque, "popleft");
    no_arguments = PyTuple_New(0);
    zero = PyLong_FromLong(0);
    one = PyLong_FromLong(1);
    usual_types = PyDict_New();
    return append && popleft && no_arguments && zero && one && usual_types ? 0 : -1;
}

#endif
