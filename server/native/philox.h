/* Words of the generator Philox 4x32-10, as the engine's ``array_library/random_words/philox.py`` says which there are. */

#ifndef TELEGRAD_PHILOX_H
#define TELEGRAD_PHILOX_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define PHILOX_ROUNDS 10
#define WORDS_OF_A_BLOCK 4

/* The four words of a block of a seed. */
static void
write_block(uint64_t seed, uint64_t block, uint32_t *words)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = 0, c3 = 0;
    uint32_t first_key = (uint32_t)seed, second_key = (uint32_t)(seed >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t first = (uint64_t)c0 * 0xD2511F53u, second = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(second >> 32) ^ c1 ^ first_key;
        c1 = (uint32_t)second;
        c2 = (uint32_t)(first >> 32) ^ c3 ^ second_key;
        c3 = (uint32_t)first;
        first_key += 0x9E3779B9u;
        second_key += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* Write the words of blocks of a seed, from the first one on, into memory for whole blocks. */
static PyObject *
call_philox(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyLong_Check(given[0]) || !PyLong_Check(given[1])) {
        PyErr_SetString(PyExc_TypeError, "philox: expected a seed, the number of the first block, and memory");
        return NULL;
    }
    uint64_t seed = PyLong_AsUnsignedLongLongMask(given[0]), block = PyLong_AsUnsignedLongLongMask(given[1]);
    Py_buffer memory;
    if (PyErr_Occurred() || PyObject_GetBuffer(given[2], &memory, PyBUF_SIMPLE | PyBUF_WRITABLE) < 0) return NULL;
    Py_ssize_t size = WORDS_OF_A_BLOCK * sizeof(uint32_t), blocks = memory.len / size;
    for (Py_ssize_t i = 0; i < blocks; i++) {
        uint32_t words[WORDS_OF_A_BLOCK];
        write_block(seed, block + (uint64_t)i, words);
        memcpy((char *)memory.buf + i * size, words, size);
    }
    PyBuffer_Release(&memory);
    Py_RETURN_NONE;
}

#endif
