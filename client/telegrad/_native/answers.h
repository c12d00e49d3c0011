/* An answer that comes alone over a quiet direct channel: ``ClientSession._await`` and all that it calls for it. */

#ifndef TELEGRAD_ANSWERS_H
#define TELEGRAD_ANSWERS_H

#include "awake.h"
#include "channels.h"

static Awake for_answers;

/* Wait until either connection has something; 1 where the direct channel alone has, -1 for an exception of a signal. */
static int
wait_for_direct(Channel *channel, int gateway)
{
    struct pollfd both[] = {{.fd = channel->fd, .events = POLLIN}, {.fd = gateway, .events = POLLIN}};
    if (!may_wait_awake) for_answers.comes_soon = 0;
    int ready = poll_awake(&for_answers, both, 2, look_milliseconds);
    if (ready < 0) return PyErr_Occurred() ? -1 : PyErr_CheckSignals();
    return ready == 1 && both[0].revents == POLLIN;
}

static PyObject *
waits_awake(PyObject *module, PyObject *nothing)
{
    return told_of(&for_answers);
}

/* Whether the channel is as it was before the wait, and takes the frame that comes. */
static int
is_unchanged(Channel *channel)
{
    return is_attribute(channel->transport, text__direct, channel->direct) &&
           is_attribute(channel->transport, text__connection, channel->connection) &&
           is_attribute(channel->direct, text__socket, channel->socket) &&
           is_attribute(channel->direct, text__reader, channel->reader) &&
           descriptor_of(channel->socket) == channel->fd && is_sound(channel) && is_quiet(channel);
}

/* The one reply of a batch, if that is the answer to this request; NULL else. */
static PyObject *
answer_in(const char *body, Py_ssize_t nbytes, PyObject *request)
{
    PyObject *bytes = PyBytes_FromStringAndSize(body, nbytes), *answer = NULL;
    PyObject *replies = bytes == NULL ? NULL : PyObject_CallOneArg(the_decode_replies, bytes);
    if (replies != NULL && PyList_CheckExact(replies) && PyList_GET_SIZE(replies) == 1) {
        PyObject *reply = PyList_GET_ITEM(replies, 0), *number = NULL;
        int is_whole = IS(reply, Answer) || (IS(reply, Data) && !is_attribute(reply, text_data, Py_None));
        if (is_whole) number = attribute(reply, text_request);
        if (number != NULL && PyObject_RichCompareBool(number, request, Py_EQ) == 1) answer = Py_NewRef(reply);
        Py_XDECREF(number);
    }
    PyErr_Clear();
    Py_XDECREF(replies);
    Py_XDECREF(bytes);
    return answer;
}

/* ``Link.admit`` of a frame that is delivered at once; -1 for an error. */
static int
admit(Channel *channel, long long number, Py_ssize_t nbytes)
{
    long long unannounced, received;
    if (!take_number_of(channel->link, text__unannounced_bytes, &unannounced)) return -1;
    if (!take_number_of(channel->direct, text_bytes_received, &received)) return -1;
    if (set_number(channel->link, text_received, number) < 0 || set_number(channel->link, text_released, number) < 0) return -1;
    if (set_number(channel->link, text__unannounced_bytes, unannounced + nbytes) < 0) return -1;
    return set_number(channel->direct, text_bytes_received, received + nbytes);
}

/* Read once. The answer, if it comes alone; else NULL, and what has come is left to whoever reads next. */
static PyObject *
read_answer(Channel *channel, PyObject *request)
{
    PyObject *view = attribute(channel->reader, text__view), *answer = NULL;
    Py_buffer memory;
    if (view == NULL || PyObject_GetBuffer(view, &memory, PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        Py_XDECREF(view);
        return NULL;
    }
    ssize_t count = recv(channel->fd, memory.buf, (size_t)memory.len, MSG_DONTWAIT);
    uint32_t length = 0;
    unsigned char kind = 0;
    uint64_t number = 0;
    long long received;
    if (count >= FRAME_HEADER) read_header(memory.buf, &length, &kind, &number);
    if (count >= FRAME_HEADER && kind == BATCH && (uint64_t)length + FRAME_HEADER == (uint64_t)count &&
        take_number_of(channel->link, text_received, &received) && number == (uint64_t)received + 1)
        answer = answer_in((char *)memory.buf + FRAME_HEADER, length, request);
    PyBuffer_Release(&memory);
    Py_DECREF(view);
    if (answer != NULL && admit(channel, (long long)number, length) < 0) Py_CLEAR(answer);
    else if (answer == NULL && count > 0) set_number(channel->reader, text_unparsed, count);
    return answer;
}

/* Wait and read, while the caller may read for all threads; 1 if the answer came, 0 if not, -1 for an exception. */
static int
receive_answer(PyObject *session, PyObject *answers, PyObject *request)
{
    Channel channel;
    PyObject *answer = NULL, *gateway = NULL;
    int came = 0, is_open = open_channel(&channel, attribute(session, text_transport));
    if (is_open && is_attribute(channel.transport, text__limits, Py_None)) {
        gateway = attribute(channel.connection, text__socket);
        came = set_attribute(channel.transport, text__waiting, Py_NewRef(Py_True));
        unlock(&channel);
        if (came == 0) came = wait_for_direct(&channel, descriptor_of(gateway));
        if (came == 1 && lock_channel(&channel) && is_unchanged(&channel)) {
            came = set_attribute(channel.transport, text__waiting, Py_NewRef(Py_False));
            if (came == 0) answer = read_answer(&channel, request);
            if (answer != NULL) came = PyObject_SetItem(answers, request, answer) < 0 ? -1 : 1;
        } else if (came > 0) came = 0;
    }
    if (PyErr_Occurred()) came = -1;
    Py_XDECREF(answer);
    Py_XDECREF(gateway);
    close_channel(&channel);
    return came;
}

/* Wake other threads that wait, so that one of them reads; -1 for an error. */
static int
wake_others(PyObject *session)
{
    PyObject *waiting = attribute(session, text__waiting);
    Py_ssize_t count = waiting == NULL ? 0 : PyObject_Size(waiting);
    Py_XDECREF(waiting);
    return count > 1 ? call_method(session, text__wake) : 0;
}

/* Let other threads read; -1 for an error. An exception from before stays the one that is raised. */
static int
leave(PyObject *session, PyObject *reading)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    int error = call_method(reading, text_release) < 0 || wake_others(session) < 0;
    if (type != NULL) PyErr_Restore(type, value, trace);
    return error ? -1 : 0;
}

/* Wait for the answer to a request, and keep it for the thread that asked; whether it came, and as it usually comes. */
static PyObject *
take_answer(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) return PyErr_Format(PyExc_TypeError, "take_answer: expected a session and a number");
    PyObject *session = args[0], *answers = NULL, *reading = NULL;
    int came = 0;
    if (!IS(session, ClientSession) || !is_attribute(session, text_is_open, Py_True)) Py_RETURN_FALSE;
    reading = attribute(session, text__reading);
    answers = attribute(session, text__answers);
    if (answers != NULL && PyDict_CheckExact(answers) && take_lock(reading)) {
        int here = PyDict_Contains(answers, args[1]);
        came = here ? here : receive_answer(session, answers, args[1]);
        if (leave(session, reading) < 0) came = -1;
    }
    Py_XDECREF(answers);
    Py_XDECREF(reading);
    return came < 0 ? NULL : PyBool_FromLong(came);
}

#endif
