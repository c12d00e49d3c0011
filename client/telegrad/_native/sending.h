/* A batch that is sent over a quiet direct channel: ``SendQueue._send_pending`` and ``DirectChannel.send_at_once``. */

#ifndef TELEGRAD_SENDING_H
#define TELEGRAD_SENDING_H

#include "channels.h"
#include "noting.h"
#include "objects.h"
#include "pace.h"
#include <sys/uio.h>

#define MOST_BYTES (1 << 16) /* of a batch: other threads of the program wait while it is written */

/* What a link keeps of a frame until it is acknowledged; NULL where its window has no room, and for an error. */
static PyObject *
new_kept(PyObject *link, PyObject *tail, Py_ssize_t nbytes, long long *number)
{
    Py_ssize_t size = PyObject_Size(tail);
    long long begin = 0, first = 0, window;
    PyObject *last = size > 0 ? PySequence_GetItem(tail, size - 1) : NULL;
    PyObject *oldest = size > 0 ? PySequence_GetItem(tail, 0) : NULL;
    int usual = take_number_of(link, text_window, &window);
    if (size > 0)
        usual = usual && last != NULL && oldest != NULL && PyTuple_Check(last) && PyTuple_Check(oldest) &&
                PyTuple_GET_SIZE(last) == 4 && PyTuple_GET_SIZE(oldest) == 4 &&
                take_number(PyTuple_GET_ITEM(last, 0), number) && take_number(PyTuple_GET_ITEM(last, 2), &begin) &&
                take_number(PyTuple_GET_ITEM(oldest, 1), &first);
    else usual = usual && size == 0 && take_number_of(link, text_acknowledged, number);
    Py_XDECREF(last);
    Py_XDECREF(oldest);
    if (!usual || begin + nbytes - first >= window) return NULL;
    *number += 1;
    PyObject *parts = Py_BuildValue("(LLLO)", *number, begin, begin + (long long)nbytes, Py_None);
    PyObject *args = parts == NULL ? NULL : PyTuple_Pack(1, parts);
    PyObject *kept = args == NULL ? NULL : PyTuple_Type.tp_new((PyTypeObject *)the_Kept, args, NULL);
    Py_XDECREF(parts);
    Py_XDECREF(args);
    return kept;
}

/* Write header and body as far as the socket takes them at once; -1 where it takes nothing. */
static Py_ssize_t
write_frame(int fd, PyObject *header, PyObject *body)
{
    struct iovec parts[] = {{PyBytes_AS_STRING(header), (size_t)PyBytes_GET_SIZE(header)},
                            {PyBytes_AS_STRING(body), (size_t)PyBytes_GET_SIZE(body)}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Count a frame as kept and sent; -1 for an error. */
static int
note_frame(Channel *channel, PyObject *tail, PyObject *kept, Py_ssize_t body)
{
    PyObject *both[] = {tail, kept}, *done = PyObject_Vectorcall(append, both, 2, NULL), *counted;
    long long bytes, frames;
    if (done == NULL) return -1;
    Py_DECREF(done);
    counted = attribute(channel->transport, text__counted);
    int error = !take_number_of(channel->direct, text_bytes_sent, &bytes) ||
                set_number(channel->direct, text_bytes_sent, bytes + body) < 0 ||
                !take_number_of(counted, text_frames, &frames) || set_number(counted, text_frames, frames + 1) < 0;
    Py_XDECREF(counted);
    return error || set_attribute(channel->direct, text__pause, PyFloat_FromDouble(0.0)) < 0 ? -1 : 0;
}

/* Send a batch and keep it, as a frame of ``parts``; how much the socket has taken: 0 if nothing is done, -1 for an error. */
static Py_ssize_t
send_batch(Channel *channel, PyObject *body, PyObject **parts)
{
    long long number;
    Py_ssize_t nbytes = PyBytes_GET_SIZE(body), written = 0;
    PyObject *tail = attribute(channel->link, text__tail), *kept = NULL, *header = NULL;
    if (tail != NULL && IS(tail, deque) && nbytes <= MOST_BYTES)
        kept = new_kept(channel->link, tail, nbytes + FRAME_HEADER, &number);
    if (kept != NULL) header = PyBytes_FromStringAndSize(NULL, FRAME_HEADER);
    if (header != NULL) *parts = PyTuple_Pack(2, header, body);
    if (*parts != NULL) {
        write_header((unsigned char *)PyBytes_AS_STRING(header), (uint32_t)nbytes, (unsigned char)BATCH, (uint64_t)number);
        Py_DECREF(PyTuple_GET_ITEM(kept, 3));
        PyTuple_SET_ITEM(kept, 3, Py_NewRef(*parts));
        written = write_frame(channel->fd, header, body);
        if (written < 0) written = 0;
        else if (note_frame(channel, tail, kept, nbytes) < 0) written = -1;
    }
    if (!written) PyErr_Clear();
    Py_XDECREF(header);
    Py_XDECREF(kept);
    Py_XDECREF(tail);
    return written;
}

/* Queue what the socket has not taken of a frame. An interrupt meanwhile finds the transport in the middle of a change. */
static int
keep_rest(Channel *channel, PyObject *parts, Py_ssize_t written)
{
    Py_ssize_t nbytes = PyBytes_GET_SIZE(PyTuple_GET_ITEM(parts, 1)) + FRAME_HEADER;
    if (written == nbytes) return 0;
    if (set_attribute(channel->transport, text__busy, Py_NewRef(Py_True)) < 0) return -1;
    PyObject *done = PyObject_CallMethod(channel->writer, "keep_rest", "Onn", parts, nbytes, written);
    Py_XDECREF(done);
    return done == NULL ? -1 : set_attribute(channel->transport, text__busy, Py_NewRef(Py_False));
}

/* Queue that dead tensors are freed; -1 for an error. */
static int
queue_dead(PyObject *session, PyObject *pending)
{
    PyObject *dead = SLOT(session, SendQueue___dead), *ids = NULL, *both[] = {pending, NULL}, *done = NULL;
    if (dead == NULL || !IS(dead, deque) || Py_SIZE(dead) == 0) return 0;
    ids = take_dead(dead);
    if (ids != NULL) both[1] = PyObject_CallOneArg(the_Free, ids);
    if (both[1] != NULL) done = PyObject_Vectorcall(append, both, 2, NULL);
    Py_XDECREF(ids);
    Py_XDECREF(both[1]);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Whether an instruction that is queued under modes needs the server to be told of them, which it was of others; -1 for an
error. */
static int
needs_telling(PyObject *instruction, PyObject *modes, PyObject *told)
{
    PyObject *kind = (PyObject *)Py_TYPE(instruction);
    int needs = PySet_Contains(the_modal, kind);
    if (needs || (needs = PySet_Contains(the_stoppable, kind)) <= 0) return needs;
    PyObject *here = PyObject_GetAttr(modes, text_thread), *there = here == NULL ? NULL : PyObject_GetAttr(told, text_thread);
    needs = there == NULL ? -1 : PyObject_RichCompareBool(here, there, Py_NE);
    Py_XDECREF(here);
    Py_XDECREF(there);
    return needs;
}

/* Append what brings the server from the modes that it was told of to others, of which it is ``told`` then; -1 for an error. */
static int
append_changes(PyObject *batch, PyObject *modes, PyObject **told)
{
    PyObject *changes = PyObject_CallMethodOneArg(modes, text_changes_from, *told);
    if (changes == NULL) return -1;
    Py_ssize_t end = PyList_GET_SIZE(batch);
    int failed = PyList_SetSlice(batch, end, end, changes);
    Py_DECREF(changes);
    Py_SETREF(*told, Py_NewRef(modes));
    return failed;
}

/* Append an entry of the queue, behind changes of mode; -1 for an error. */
static int
append_entry(PyObject *batch, PyObject *entry, PyObject **told)
{
    PyObject *modes = the_default_modes;
    if (PyTuple_CheckExact(entry)) {
        if (PyTuple_GET_SIZE(entry) != 2) return -1;
        modes = PyTuple_GET_ITEM(entry, 0);
        entry = PyTuple_GET_ITEM(entry, 1);
    }
    int needs = modes == *told ? 0 : needs_telling(entry, modes, *told);
    if (needs < 0 || (needs && append_changes(batch, modes, told) < 0)) return -1;
    return PyList_Append(batch, entry);
}

/* What is queued as it is sent, with changes of mode between instructions, as ``with_modes`` has it; NULL where that is
Python's. ``count`` is how many entries it is of. */
static PyObject *
batch_of(PyObject *pending, PyObject **told, Py_ssize_t *count)
{
    PyObject *queued = PySequence_List(pending), *batch = NULL;
    int is_plain = queued != NULL && *told == the_default_modes;
    *count = queued == NULL ? 0 : PyList_GET_SIZE(queued);
    for (Py_ssize_t i = 0; is_plain && i < *count; i++) is_plain = !PyTuple_CheckExact(PyList_GET_ITEM(queued, i));
    if (is_plain) return queued;
    if (queued != NULL) batch = PyList_New(0);
    for (Py_ssize_t i = 0; batch != NULL && i < *count; i++)
        if (append_entry(batch, PyList_GET_ITEM(queued, i), told) < 0) Py_CLEAR(batch);
    Py_XDECREF(queued);
    if (batch == NULL) PyErr_Clear();
    return batch;
}

/* What a session's queue has that sending changes, and its counts before; ``ends``, ``ahead`` and ``told`` are owned. */
typedef struct {
    PyObject *session, *ahead, *ends, *told;
    long long sent, waited, operations;
    Pace pace;
} Queue;

/* Whether batches of a transport are sent by its class's function, and no other that is put in its place, as by a profiler. */
static int
sends_itself(PyObject *transport)
{
    PyObject *method = attribute(transport, text_send_batch);
    int itself = method != NULL && PyMethod_Check(method) && PyMethod_GET_FUNCTION(method) == the_send_batch;
    Py_XDECREF(method);
    return itself;
}

/* Read a queue; 0 where ``_send_pending`` would do more than to encode what is queued, and to send it. */
static int
take_queue(Queue *queue, PyObject *session, PyObject *transport)
{
    queue->session = session;
    queue->ahead = attribute(session, text_ahead);
    queue->ends = attribute(session, text__ends);
    queue->told = attribute(session, text__told);
    if (queue->told == NULL) return 0;
    if (queue->ahead == NULL || !IS(queue->ahead, Ahead) || queue->ends == NULL || !IS(queue->ends, BatchEnds)) return 0;
    PyObject *own = attribute(transport, text_handshake_seconds), *known = SLOT(queue->ahead, Ahead___handshake);
    int same = own != NULL && known != NULL && PyObject_RichCompareBool(own, known, Py_EQ) == 1;
    PyErr_Clear();
    Py_XDECREF(own);
    return same && sends_itself(transport) && SLOT(queue->ahead, Ahead___is_bounded) == Py_True && SLOT(queue->ahead, Ahead___asked) == Py_None &&
           is_attribute(session, text__draft, Py_None) && is_attribute(session, text__uploading, Py_None) &&
           is_attribute(session, text__has_parts, Py_False) && is_attribute(session, text__has_new_line, Py_False) &&
           is_attribute(session, text_holder, Py_None) &&
           take_number(SLOT(queue->ends, BatchEnds___sent), &queue->sent) &&
           take_number(SLOT(session, SendQueue__operations), &queue->operations) &&
           take_number_of(session, text__waited, &queue->waited) && take_pace(SLOT(queue->ahead, Ahead__pace), &queue->pace);
}

/* Note that so many entries, which are all, were sent at a time, as so many instructions; -1 for an error. */
static int
forget_sent(Queue *queue, Py_ssize_t size, Py_ssize_t instructions, double began)
{
    PyObject *session = queue->session, *pace = SLOT(queue->ahead, Ahead__pace);
    PyObject *pending = SLOT(session, SendQueue___pending), *now = PyFloat_FromDouble(began);
    int error = now == NULL;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *one = PyObject_Vectorcall(popleft, &pending, 1, NULL);
        error = error || one == NULL;
        Py_XDECREF(one);
    }
    error = error || put(queue->ends, BatchEnds___sent, PyLong_FromLongLong(queue->sent + size)) < 0 ||
            submit_usually(pace, queue->pace.submitted + instructions, now) != 1 || !take_pace(pace, &queue->pace) ||
            put(queue->ahead, Ahead___batch_began, Py_NewRef(now)) < 0 || set_number(session, text__pending_bytes, 0) < 0 ||
            set_attribute(session, text__is_due, Py_NewRef(Py_False)) < 0 ||
            set_attribute(session, text__told, Py_NewRef(queue->told)) < 0 ||
            put(session, SendQueue___is_armed, Py_NewRef(Py_False)) < 0;
    Py_XDECREF(now);
    if (error) return -1;
    int is_long = queue->operations - queue->waited >= batch_sizes.long_run;
    long long left = room(&queue->pace, is_long ? batch_sizes.most : batch_sizes.usual);
    return put(session, SendQueue___full_at, PyLong_FromLongLong(queue->operations + (left > 1 ? left : 1)));
}

/* Encode and send what is queued, over a channel that is locked: 1 if that is done, 0 if nothing is, -1 for an error. */
static int
send_plain(Queue *queue, Channel *channel)
{
    PyObject *pending = SLOT(queue->session, SendQueue___pending), *body = NULL, *parts = NULL, *batch;
    if (queue_dead(queue->session, pending) < 0) return -1;
    Py_ssize_t size, written = 0;
    batch = batch_of(pending, &queue->told, &size);
    Py_ssize_t instructions = batch == NULL ? 0 : PyList_GET_SIZE(batch);
    int is_few = queue->pace.submitted + instructions - queue->pace.completed <= queue->pace.limit / 2, error;
    double began = (double)monotonic_ns() / 1e9;
    if (instructions && is_few) body = PyObject_CallOneArg(the_encode_batch, batch);
    if (body != NULL && PyBytes_CheckExact(body)) written = send_batch(channel, body, &parts);
    if (!written) PyErr_Clear();
    error = written < 0 || (written && (forget_sent(queue, size, instructions, began) < 0 || keep_rest(channel, parts, written) < 0));
    Py_XDECREF(parts);
    Py_XDECREF(body);
    Py_XDECREF(batch);
    return error ? -1 : written > 0;
}

/* ``SendQueue._send_pending`` where all that is queued is sent, and nothing about it is unusual. */
static PyObject *
send_queued(PyObject *module, PyObject *session)
{
    Channel channel = {0};
    Queue queue = {0};
    int sent = 0;
    PyObject *pending = IS(session, ClientSession) ? SLOT(session, SendQueue___pending) : NULL;
    if (pending == NULL || !IS(pending, deque)) Py_RETURN_FALSE;
    PyObject *transport = attribute(session, text_transport);
    if (open_channel(&channel, transport) && take_queue(&queue, session, transport)) sent = send_plain(&queue, &channel);
    close_channel(&channel);
    Py_XDECREF(queue.ahead);
    Py_XDECREF(queue.ends);
    Py_XDECREF(queue.told);
    return sent < 0 ? NULL : PyBool_FromLong(sent);
}

#endif
