/* Waiting for descriptors awake while what is waited for comes soon: to sleep and to be woken takes longer than many an
 * answer does (decision 0129). */

#ifndef TELEGRAD_AWAKE_H
#define TELEGRAD_AWAKE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <poll.h>
#include <time.h>

#define SOON_NANOSECONDS 600000LL /* the longest wait awake, and the longest one that is short */
#define MOST_ASLEEP 255           /* so many short waits are spent asleep, after waits awake were in vain, at most */

/* What was seen of the waits of one process. One of zeros sleeps. */
typedef struct {
    int comes_soon;          /* whether the last wait was short */
    int asleep;              /* how many short waits are spent asleep before the next one awake */
    int penalty;             /* how many they were when a wait awake was in vain the last time, halved by each other one */
    long long looks, vainly; /* waits that were awake, and those among them that were in vain */
} Awake;

static long long
nanoseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Leave the processor to who shares its units for about half a microsecond. */
static void
rest_a_little(void)
{
    for (int i = 0; i < 16; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ __volatile__("yield");
#endif
    }
}

/* Look until something has happened, or the wait is no short one any more; what ``poll`` returns. */
static int
look_awake(struct pollfd *all, nfds_t count, long long begin)
{
    int ready;
    while ((ready = poll(all, count, 0)) == 0 && nanoseconds_now() - begin < SOON_NANOSECONDS) rest_a_little();
    return ready;
}

/* Note what a wait awake came to. One in vain takes the processor from whoever is to answer, where there is no other. */
static void
note_look(Awake *awake, int ready)
{
    awake->looks++;
    if (ready != 0) {
        awake->penalty /= 2;
        return;
    }
    awake->vainly++;
    awake->penalty = 2 * awake->penalty + 1 < MOST_ASLEEP ? 2 * awake->penalty + 1 : MOST_ASLEEP;
    awake->asleep = awake->penalty;
}

/* ``poll`` without the interpreter's lock, awake at first where the last wait was short; -1 with or without an exception.
 * A signal that comes while nobody sleeps ends no system call, so it is handled before ``poll`` begins. */
static int
poll_awake(Awake *awake, struct pollfd *all, nfds_t count, int milliseconds)
{
    long long begin = nanoseconds_now();
    int looks = awake->comes_soon && awake->asleep == 0, ready = 0;
    if (looks) {
        Py_BEGIN_ALLOW_THREADS;
        ready = look_awake(all, count, begin);
        Py_END_ALLOW_THREADS;
        note_look(awake, ready);
        if (ready == 0 && PyErr_CheckSignals() < 0) return -1;
    }
    if (ready == 0) {
        Py_BEGIN_ALLOW_THREADS;
        ready = poll(all, count, milliseconds);
        Py_END_ALLOW_THREADS;
    }
    awake->comes_soon = ready > 0 && nanoseconds_now() - begin < SOON_NANOSECONDS;
    if (awake->comes_soon && !looks && awake->asleep > 0) awake->asleep--;
    return ready;
}

/* What was seen, as numbers of Python: waits awake, those in vain, and how many short waits will be spent asleep. */
static PyObject *
told_of(const Awake *awake)
{
    return Py_BuildValue("LLi", awake->looks, awake->vainly, awake->asleep);
}

#endif
