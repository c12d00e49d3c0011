/* Elements that are moved: by layout, or to and from places that integers tell. */

#ifndef TELEGRAD_SMALL_PLACES_H
#define TELEGRAD_SMALL_PLACES_H

#include "small_walks.h"

static inline void
move_element(char *to, const char *from, int64_t size)
{
    switch (size) {
    case 1: *to = *from; break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memmove(to, from, (size_t)size);
    }
}

/* Copy elements whose size is the state, from the first operand to the second one. */
static void
copy_loop(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    int64_t size = *(const int64_t *)state;
    const char *from = at[0];
    char *to = at[1];
    if (steps[0] == size && steps[1] == size) {
        memmove(to, from, (size_t)(count * size));
        return;
    }
    for (int64_t i = 0; i < count; i++, from += steps[0], to += steps[1]) move_element(to, from, size);
}

/* The size of elements, whether the result is filled first, the bits of an element, how many the result has, and how many
pieces are copied into it; of each its place, and a walk over it and the result. Offsets are those of places: the result of
each piece is a place of its own, behind that of its operand. */
static int
copy_pieces(const int64_t *numbers, char **at)
{
    int64_t size = numbers[0], pieces = numbers[4];
    char *out = at[0];
    if (numbers[1])
        for (int64_t i = 0; i < numbers[3]; i++) move_element(out + i * size, (const char *)&numbers[2], size);
    const int64_t *piece = numbers + 5;
    for (int64_t i = 0; i < pieces; i++) {
        walk(piece, at + 1 + 2 * i, 2, copy_loop, (void *)numbers);
        piece += walk_size(piece, 2);
    }
    return 0;
}

#define MOST_INDICES 3
enum { PUT_COPY, PUT_ADD_F32, PUT_ADD_F64, PUT_ADD_I64 };

/* Where indices lead: the size of elements, what is done to them, how many indices there are, and of each the length and the
stride of the dimension it addresses, and whether negative ones count from the end. */
typedef struct {
    int64_t size, kind, count;
    struct {
        int64_t length, stride, wraps;
    } of[MOST_INDICES];
} Indices;

typedef struct {
    const Indices *indices;
    int is_beyond;
} Places;

/* How far from the first element the indices at addresses lead; where one leads nowhere, that is noted. */
static inline int64_t
place_at(Places *places, char *const *at, const int64_t *steps, int64_t i)
{
    int64_t offset = 0;
    for (int64_t k = 0; k < places->indices->count; k++) {
        int64_t index = AT(const int64_t, at[k] + i * steps[k]), length = places->indices->of[k].length;
        if (index < 0 && places->indices->of[k].wraps) index += length;
        if (index < 0 || index >= length) {
            places->is_beyond = 1;
            return 0;
        }
        offset += index * places->indices->of[k].stride;
    }
    return offset;
}

static int
are_fixed(const Places *places, const int64_t *steps)
{
    for (int64_t k = 0; k < places->indices->count; k++)
        if (steps[k] != 0) return 0;
    return 1;
}

static void
take_loop(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    Places *places = state;
    int64_t size = places->indices->size;
    if (are_fixed(places, steps + 2)) {
        char *const both[] = {at[0] + place_at(places, at + 2, steps + 2, 0), at[1]};
        copy_loop(count, both, steps, &size);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        move_element(at[1] + i * steps[1], at[0] + i * steps[0] + place_at(places, at + 2, steps + 2, i), size);
}

/* Operand, result, and indices: a walk over them follows what the indices are. */
static int
take_elements(const int64_t *numbers, char **at)
{
    Places places = {(const Indices *)numbers, 0};
    walk(numbers + sizeof(Indices) / sizeof(int64_t), at, 2 + (int)places.indices->count, take_loop, &places);
    return places.is_beyond;
}

static void
look_loop(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    Places *places = state;
    if (are_fixed(places, steps + 2)) count = 1;
    for (int64_t i = 0; i < count && !places->is_beyond; i++) place_at(places, at + 2, steps + 2, i);
}

static void
put_loop(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    Places *places = state;
    int64_t size = places->indices->size;
    for (int64_t i = 0; i < count; i++) {
        char *to = at[0] + i * steps[0] + place_at(places, at + 2, steps + 2, i), *from = at[1] + i * steps[1];
        switch (places->indices->kind) {
        case PUT_ADD_F32: AT(float, to) += AT(const float, from); break;
        case PUT_ADD_F64: AT(double, to) += AT(const double, from); break;
        case PUT_ADD_I64: AT(uint64_t, to) += AT(const uint64_t, from); break;
        default: move_element(to, from, size);
        }
    }
}

/* Target, values, indices, and where the target is new, what it is a copy of: a walk over target, values and indices, then
whether there is a copy, and a walk over that and the target. Nothing is written where an index leads nowhere. */
static int
put_elements(const int64_t *numbers, char **at)
{
    Places places = {(const Indices *)numbers, 0};
    int operands = 2 + (int)places.indices->count;
    const int64_t *over = numbers + sizeof(Indices) / sizeof(int64_t), *copied = over + walk_size(over, operands);
    walk(over, at, operands, look_loop, &places);
    if (places.is_beyond) return 1;
    char *const both[] = {at[operands], at[0]};
    if (copied[0]) walk(copied + 1, both, 2, copy_loop, (void *)numbers);
    walk(over, at, operands, put_loop, &places);
    return 0;
}

/* Results of as many elements as data says. A kernel is called twice: without a result (NULL) it counts, and notes that
where the address behind those of operands leads; with one it writes. Results come first among the addresses. */
typedef struct {
    int64_t count, row; /* the row is that of the element, or the size of elements */
    int64_t *to;
    char *copied;
} Chosen;

static void
count_loop(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    int64_t chosen = 0;
    for (int64_t i = 0; i < count; i++) chosen += AT(const uint8_t, at[0] + i * steps[0]) != 0;
    ((Chosen *)state)->count += chosen;
}

static void
where_loop(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    Chosen *chosen = state;
    for (int64_t i = 0; i < count; i++, chosen->row++)
        if (AT(const uint8_t, at[0] + i * steps[0])) *chosen->to++ = chosen->row;
}

/* Truth values -> the numbers of those that are true, in order: a walk. */
static int
true_places(const int64_t *numbers, char **at)
{
    Chosen chosen = {0, 0, (int64_t *)at[0], NULL};
    walk(numbers, at + 1, 1, at[0] == NULL ? count_loop : where_loop, &chosen);
    if (at[0] == NULL) *(int64_t *)at[2] = chosen.count;
    return 0;
}

static void
select_loop(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    Chosen *chosen = state;
    int64_t size = chosen->row;
    for (int64_t i = 0; i < count; i++)
        if (AT(const uint8_t, at[0] + i * steps[0])) {
            move_element(chosen->copied, at[1] + i * steps[1], size);
            chosen->copied += size;
        }
}

/* Truth values and elements, broadcast -> the elements where they are true: a walk over both, and the size of elements. */
static int
true_elements(const int64_t *numbers, char **at)
{
    Chosen chosen = {0, numbers[walk_size(numbers, 2)], NULL, at[0]};
    walk(numbers, at + 1, 2, at[0] == NULL ? count_loop : select_loop, &chosen);
    if (at[0] == NULL) *(int64_t *)at[3] = chosen.count;
    return 0;
}

#define MOST_COUNTED 65536

/* Classes, one behind the other -> how often there is each: how many there are, and the least length. */
static int
count_classes(const int64_t *numbers, char **at)
{
    const int64_t *classes = (const int64_t *)at[1];
    int64_t *counts = (int64_t *)at[0], length = numbers[1];
    for (int64_t i = 0; i < numbers[0]; i++) {
        if (classes[i] < 0 || classes[i] >= MOST_COUNTED) return 1;
        if (classes[i] >= length) length = classes[i] + 1;
    }
    if (counts == NULL) {
        *(int64_t *)at[2] = length;
        return 0;
    }
    memset(counts, 0, (size_t)length * sizeof(int64_t));
    for (int64_t i = 0; i < numbers[0]; i++) counts[classes[i]]++;
    return 0;
}

/* Classes -> a row for each that is 1 at the class, else 0: how many there are, and the length of a row. */
static int
hot_rows(const int64_t *numbers, char **at)
{
    const int64_t *classes = (const int64_t *)at[0];
    int64_t *rows = (int64_t *)at[1];
    for (int64_t i = 0; i < numbers[0]; i++)
        if (classes[i] < 0 || classes[i] >= numbers[1]) return 1;
    memset(rows, 0, (size_t)(numbers[0] * numbers[1]) * sizeof(int64_t));
    for (int64_t i = 0; i < numbers[0]; i++) rows[i * numbers[1] + classes[i]] = 1;
    return 0;
}

#endif
