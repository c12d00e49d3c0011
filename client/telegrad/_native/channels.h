/* The direct channel of a session, as ``_transport/direct_channel.py`` keeps it, where nothing waits in it. */

#ifndef TELEGRAD_CHANNELS_H
#define TELEGRAD_CHANNELS_H

#include "attributes.h"
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* where there are no direct channels */
#endif
#define FRAME_HEADER 13 /* of ``telegrad_protocol/channels/frames.py``: length, kind and number */

/* A transport and what belongs to it, which are owned. Its lock is held while ``lock`` is set. */
typedef struct {
    PyObject *transport, *lock, *connection, *direct, *link, *writer, *reader, *socket;
    int fd;
} Channel;

static void
unlock(Channel *channel)
{
    PyObject *lock = channel->lock;
    channel->lock = NULL;
    if (lock == NULL) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (call_method(lock, text_release) < 0) PyErr_Clear();
    PyErr_Restore(type, value, trace);
    Py_DECREF(lock);
}

static void
close_channel(Channel *channel)
{
    unlock(channel);
    Py_CLEAR(channel->transport);
    Py_CLEAR(channel->connection);
    Py_CLEAR(channel->direct);
    Py_CLEAR(channel->link);
    Py_CLEAR(channel->writer);
    Py_CLEAR(channel->reader);
    Py_CLEAR(channel->socket);
}

/* Take the transport's lock; 0 where another thread has it. */
static int
lock_channel(Channel *channel)
{
    PyObject *lock = attribute(channel->transport, text__lock);
    if (take_lock(lock)) {
        channel->lock = lock;
        return 1;
    }
    Py_XDECREF(lock);
    return 0;
}

/* The descriptor of a socket; -1 where it has none. */
static int
descriptor_of(PyObject *socket)
{
    PyObject *number = socket == NULL ? NULL : PyObject_CallMethodNoArgs(socket, text_fileno);
    long long fd = -1;
    if (!take_number(number, &fd)) fd = -1;
    PyErr_Clear();
    Py_XDECREF(number);
    return (int)fd;
}

/* Whether ``SocketTransport._check`` has nothing to say; the lock is held. */
static int
is_sound(Channel *channel)
{
    long long owner;
    return is_attribute(channel->transport, text__fatal, Py_None) &&
           is_attribute(channel->transport, text__closed, Py_False) &&
           is_attribute(channel->transport, text__busy, Py_False) &&
           take_number_of(channel->transport, text__pid, &owner) && owner == (long long)getpid();
}

/* Whether nothing waits in either connection, to be read or to be written; the lock is held. */
static int
is_quiet(Channel *channel)
{
    long long pending;
    PyObject *link = attribute(channel->transport, text__link);
    int quiet = is_empty(link, text_inbox);
    Py_XDECREF(link);
    return quiet && is_empty(channel->connection, text_unsent) && is_empty(channel->link, text_inbox) &&
           is_attribute(channel->reader, text__large, Py_None) && is_attribute(channel->reader, text__end, zero) &&
           is_attribute(channel->reader, text_unparsed, zero) &&
           take_number_of(channel->writer, text_pending, &pending) && pending == 0;
}

/* Take a transport, and its lock; 0 where its direct channel is not open and quiet, or the lock is not free. */
static int
open_channel(Channel *channel, PyObject *transport)
{
    memset(channel, 0, sizeof *channel);
    channel->transport = transport;
    if (transport == NULL || !IS(transport, SocketTransport) || !lock_channel(channel)) return 0;
    channel->direct = attribute(transport, text__direct);
    channel->connection = attribute(transport, text__connection);
    if (channel->direct == NULL || !IS(channel->direct, DirectChannel) || channel->connection == NULL) return 0;
    if (channel->connection == Py_None || !is_attribute(channel->direct, text_is_open, Py_True)) return 0;
    channel->link = attribute(channel->direct, text_link);
    channel->writer = attribute(channel->direct, text__writer);
    channel->reader = attribute(channel->direct, text__reader);
    channel->socket = attribute(channel->direct, text__socket);
    channel->fd = descriptor_of(channel->socket);
    return channel->fd >= 0 && is_sound(channel) && is_quiet(channel);
}

/* The header of a frame in bytes. */
static void
write_header(unsigned char *header, uint32_t length, unsigned char kind, uint64_t number)
{
    for (int i = 0; i < 4; i++) header[i] = (unsigned char)(length >> 8 * i);
    header[4] = kind;
    for (int i = 0; i < 8; i++) header[5 + i] = (unsigned char)(number >> 8 * i);
}

/* The same of bytes that have come. */
static void
read_header(const unsigned char *header, uint32_t *length, unsigned char *kind, uint64_t *number)
{
    *length = 0;
    *number = 0;
    for (int i = 0; i < 4; i++) *length |= (uint32_t)header[i] << 8 * i;
    *kind = header[4];
    for (int i = 0; i < 8; i++) *number |= (uint64_t)header[5 + i] << 8 * i;
}

#endif
