/* Records on their way to Kinesis: sorted by shard, packed in the KPL's format, and written into a request.

   Each function does what Python does in its place, with the same result, for the usual types: `bytes` and `str`
   themselves, none of their subclasses. For anything else it returns None, and Python does it. The format of
   aggregated records is told in `aggregated_record.py`, and how they are filled in `write/aggregates.py`. */

#include "_native.h"

enum { DIGEST_BYTES = 16, BLOCK_BYTES = 64, LANES = 8 };

/* Most bytes of a message of protobuf: beyond it lengths would not fit the numbers used here. */
static const size_t MAX_BYTES = (size_t)1 << 30;

static PyObject *refused(void)
{
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* ---- MD5 ----------------------------------------------------------------------------------------------- */

static const uint32_t md5_start[4] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476};

/* The steps of RFC 1321, for one number or for a vector of them, one for each message. */
#define MD5_STEP(f, a, b, c, d, word, by, add)                                                                       \
    a += f(b, c, d) + (word) + (add);                                                                                \
    a = (a << (by) | a >> (32 - (by))) + b;
#define MD5_F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define MD5_G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
#define MD5_H(x, y, z) ((x) ^ (y) ^ (z))
#define MD5_I(x, y, z) ((y) ^ ((x) | ~(z)))
#define MD5_FOUR(f, w, i, j, k, l, r, s, t, u, p, q, v, x)                                                           \
    MD5_STEP(f, a, b, c, d, w[i], r, p)                                                                              \
    MD5_STEP(f, d, a, b, c, w[j], s, q)                                                                              \
    MD5_STEP(f, c, d, a, b, w[k], t, v)                                                                              \
    MD5_STEP(f, b, c, d, a, w[l], u, x)
#define MD5_BLOCK(w)                                                                                                 \
    MD5_FOUR(MD5_F, w, 0, 1, 2, 3, 7, 12, 17, 22, 0xD76AA478u, 0xE8C7B756u, 0x242070DBu, 0xC1BDCEEEu)                \
    MD5_FOUR(MD5_F, w, 4, 5, 6, 7, 7, 12, 17, 22, 0xF57C0FAFu, 0x4787C62Au, 0xA8304613u, 0xFD469501u)                \
    MD5_FOUR(MD5_F, w, 8, 9, 10, 11, 7, 12, 17, 22, 0x698098D8u, 0x8B44F7AFu, 0xFFFF5BB1u, 0x895CD7BEu)              \
    MD5_FOUR(MD5_F, w, 12, 13, 14, 15, 7, 12, 17, 22, 0x6B901122u, 0xFD987193u, 0xA679438Eu, 0x49B40821u)            \
    MD5_FOUR(MD5_G, w, 1, 6, 11, 0, 5, 9, 14, 20, 0xF61E2562u, 0xC040B340u, 0x265E5A51u, 0xE9B6C7AAu)                \
    MD5_FOUR(MD5_G, w, 5, 10, 15, 4, 5, 9, 14, 20, 0xD62F105Du, 0x02441453u, 0xD8A1E681u, 0xE7D3FBC8u)               \
    MD5_FOUR(MD5_G, w, 9, 14, 3, 8, 5, 9, 14, 20, 0x21E1CDE6u, 0xC33707D6u, 0xF4D50D87u, 0x455A14EDu)                \
    MD5_FOUR(MD5_G, w, 13, 2, 7, 12, 5, 9, 14, 20, 0xA9E3E905u, 0xFCEFA3F8u, 0x676F02D9u, 0x8D2A4C8Au)               \
    MD5_FOUR(MD5_H, w, 5, 8, 11, 14, 4, 11, 16, 23, 0xFFFA3942u, 0x8771F681u, 0x6D9D6122u, 0xFDE5380Cu)              \
    MD5_FOUR(MD5_H, w, 1, 4, 7, 10, 4, 11, 16, 23, 0xA4BEEA44u, 0x4BDECFA9u, 0xF6BB4B60u, 0xBEBFBC70u)               \
    MD5_FOUR(MD5_H, w, 13, 0, 3, 6, 4, 11, 16, 23, 0x289B7EC6u, 0xEAA127FAu, 0xD4EF3085u, 0x04881D05u)               \
    MD5_FOUR(MD5_H, w, 9, 12, 15, 2, 4, 11, 16, 23, 0xD9D4D039u, 0xE6DB99E5u, 0x1FA27CF8u, 0xC4AC5665u)              \
    MD5_FOUR(MD5_I, w, 0, 7, 14, 5, 6, 10, 15, 21, 0xF4292244u, 0x432AFF97u, 0xAB9423A7u, 0xFC93A039u)               \
    MD5_FOUR(MD5_I, w, 12, 3, 10, 1, 6, 10, 15, 21, 0x655B59C3u, 0x8F0CCC92u, 0xFFEFF47Du, 0x85845DD1u)              \
    MD5_FOUR(MD5_I, w, 8, 15, 6, 13, 6, 10, 15, 21, 0x6FA87E4Fu, 0xFE2CE6E0u, 0xA3014314u, 0x4E0811A1u)              \
    MD5_FOUR(MD5_I, w, 4, 11, 2, 9, 6, 10, 15, 21, 0xF7537E82u, 0xBD3AF235u, 0x2AD7D2BBu, 0xEB86D391u)

static uint32_t little_endian(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* A message whose digest is wanted, or what is left of it. */
typedef struct {
    const uint8_t *at;
    size_t blocks;                 /* whole ones, at `at` */
    uint8_t tail[2 * BLOCK_BYTES]; /* what follows them, and the padding */
    size_t tail_blocks;
    uint32_t state[4];
    uint8_t *digest; /* NULL: there is no message */
} Message;

static void begin_message(Message *message, const uint8_t *at, size_t bytes, uint8_t *digest)
{
    size_t rest = bytes % BLOCK_BYTES;
    message->at = at;
    message->blocks = bytes / BLOCK_BYTES;
    message->tail_blocks = rest + 9 <= BLOCK_BYTES ? 1 : 2;
    memset(message->tail, 0, sizeof message->tail);
    memcpy(message->tail, at + bytes - rest, rest);
    message->tail[rest] = 0x80;
    uint64_t bits = (uint64_t)bytes * 8;
    for (int byte = 0; byte < 8; byte++)
        message->tail[message->tail_blocks * BLOCK_BYTES - 8 + (size_t)byte] = (uint8_t)(bits >> 8 * byte);
    memcpy(message->state, md5_start, sizeof md5_start);
    message->digest = digest;
}

static void end_message(Message *message)
{
    for (int word = 0; word < 4; word++)
        for (int byte = 0; byte < 4; byte++)
            message->digest[4 * word + byte] = (uint8_t)(message->state[word] >> 8 * byte);
    message->digest = NULL;
}

/* Of how many blocks in a row the next are: they are at `*from`. */
static size_t next_blocks(const Message *message, const uint8_t **from)
{
    *from = message->blocks ? message->at : message->tail;
    return message->blocks ? message->blocks : message->tail_blocks;
}

/* Note that blocks were worked on; the message may be over. */
static void worked(Message *message, size_t blocks)
{
    if (message->blocks) {
        message->blocks -= blocks;
        message->at += blocks * BLOCK_BYTES;
        return;
    }
    message->tail_blocks -= blocks;
    if (message->tail_blocks == 0)
        end_message(message);
    else
        memmove(message->tail, message->tail + blocks * BLOCK_BYTES, message->tail_blocks * BLOCK_BYTES);
}

static void work_alone(Message *message)
{
    while (message->digest != NULL) {
        const uint8_t *from;
        size_t blocks = next_blocks(message, &from);
        uint32_t a = message->state[0], b = message->state[1], c = message->state[2], d = message->state[3];
        for (size_t block = 0; block < blocks; block++, from += BLOCK_BYTES) {
            uint32_t words[16], before[4] = {a, b, c, d};
            for (int word = 0; word < 16; word++)
                words[word] = little_endian(from + 4 * word);
            MD5_BLOCK(words)
            a += before[0];
            b += before[1];
            c += before[2];
            d += before[3];
        }
        uint32_t after[4] = {a, b, c, d};
        memcpy(message->state, after, sizeof after);
        worked(message, blocks);
    }
}

#ifdef WITH_AVX2
typedef uint32_t Lanes __attribute__((vector_size(4 * LANES)));

/* Work on so many blocks of eight messages at once. */
__attribute__((target("avx2"))) static void work_together(Message *messages, const uint8_t **from, size_t blocks)
{
    uint32_t states[4][LANES] __attribute__((aligned(32)));
    for (int lane = 0; lane < LANES; lane++)
        for (int word = 0; word < 4; word++)
            states[word][lane] = messages[lane].state[word];
    Lanes a, b, c, d;
    memcpy(&a, states[0], sizeof a);
    memcpy(&b, states[1], sizeof b);
    memcpy(&c, states[2], sizeof c);
    memcpy(&d, states[3], sizeof d);
    for (size_t block = 0; block < blocks; block++) {
        Lanes words[16], before[4] = {a, b, c, d};
        for (int half = 0; half < 2; half++) { /* eight words of each message become eight of each lane */
            __m256i row[LANES], pair[LANES], four[LANES];
            for (int lane = 0; lane < LANES; lane++)
                row[lane] = _mm256_loadu_si256((const __m256i *)(const void *)(from[lane] + block * BLOCK_BYTES + 32 * half));
            for (int lane = 0; lane < LANES; lane += 2) {
                pair[lane] = _mm256_unpacklo_epi32(row[lane], row[lane + 1]);
                pair[lane + 1] = _mm256_unpackhi_epi32(row[lane], row[lane + 1]);
            }
            for (int lane = 0; lane < LANES; lane += 4) {
                four[lane] = _mm256_unpacklo_epi64(pair[lane], pair[lane + 2]);
                four[lane + 1] = _mm256_unpackhi_epi64(pair[lane], pair[lane + 2]);
                four[lane + 2] = _mm256_unpacklo_epi64(pair[lane + 1], pair[lane + 3]);
                four[lane + 3] = _mm256_unpackhi_epi64(pair[lane + 1], pair[lane + 3]);
            }
            for (int word = 0; word < 4; word++) {
                words[8 * half + word] = (Lanes)_mm256_permute2x128_si256(four[word], four[word + 4], 0x20);
                words[8 * half + word + 4] = (Lanes)_mm256_permute2x128_si256(four[word], four[word + 4], 0x31);
            }
        }
        MD5_BLOCK(words)
        a += before[0];
        b += before[1];
        c += before[2];
        d += before[3];
    }
    memcpy(states[0], &a, sizeof a);
    memcpy(states[1], &b, sizeof b);
    memcpy(states[2], &c, sizeof c);
    memcpy(states[3], &d, sizeof d);
    for (int lane = 0; lane < LANES; lane++)
        for (int word = 0; word < 4; word++)
            messages[lane].state[word] = states[word][lane];
}
#endif

/* Digests of several messages. Eight at once take as long as one, where the processor can do that. Mutable. */
typedef struct {
    Message messages[LANES];
    int count;
} Digests;

static void work(Digests *digests)
{
#ifdef WITH_AVX2
    static const uint8_t nothing[BLOCK_BYTES];
    if (has_avx2 && digests->count > 2) {
        const uint8_t *from[LANES];
        size_t blocks = SIZE_MAX;
        for (int lane = 0; lane < LANES; lane++) {
            Message *message = &digests->messages[lane];
            from[lane] = nothing;
            if (message->digest == NULL) {
                blocks = 1;
                continue;
            }
            size_t here = next_blocks(message, &from[lane]);
            blocks = here < blocks ? here : blocks;
        }
        work_together(digests->messages, from, blocks);
        for (int lane = 0; lane < LANES; lane++)
            if (digests->messages[lane].digest != NULL) {
                worked(&digests->messages[lane], blocks);
                digests->count -= digests->messages[lane].digest == NULL;
            }
        return;
    }
#endif
    for (int lane = 0; lane < LANES; lane++)
        work_alone(&digests->messages[lane]);
    digests->count = 0;
}

/* Have the digest of a message written, at the latest by `finish_digests`. */
static void add_message(Digests *digests, const uint8_t *at, size_t bytes, uint8_t *digest)
{
    while (digests->count == LANES)
        work(digests);
    int lane = 0;
    while (digests->messages[lane].digest != NULL)
        lane++;
    begin_message(&digests->messages[lane], at, bytes, digest);
    digests->count++;
}

static void finish_digests(Digests *digests)
{
    while (digests->count)
        work(digests);
}

/* ---- Base64 -------------------------------------------------------------------------------------------- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static size_t base64_characters(size_t bytes)
{
    return (bytes + 2) / 3 * 4;
}

#ifdef WITH_AVX2
/* 24 bytes at a time, as long as 28 may be read; returns how many bytes it has encoded. After Wojciech Mula and
   Daniel Lemire, "Faster Base64 Encoding and Decoding Using AVX2 Instructions", https://arxiv.org/abs/1704.00605. */
__attribute__((target("avx2"))) static size_t encode_avx2(const uint8_t *from, size_t bytes, uint8_t *to)
{
    const __m256i order = _mm256_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10,
                                           1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
    const __m256i shifts = _mm256_setr_epi8(65, 71, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -19, -16, 0, 0,
                                            65, 71, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -19, -16, 0, 0);
    size_t done = 0;
    for (; done + 28 <= bytes; done += 24, to += 32) {
        __m256i text = _mm256_set_m128i(_mm_loadu_si128((const __m128i *)(const void *)(from + done + 12)),
                                        _mm_loadu_si128((const __m128i *)(const void *)(from + done)));
        text = _mm256_shuffle_epi8(text, order);
        __m256i high = _mm256_mulhi_epu16(_mm256_and_si256(text, _mm256_set1_epi32(0x0FC0FC00)), _mm256_set1_epi32(0x04000040));
        __m256i low = _mm256_mullo_epi16(_mm256_and_si256(text, _mm256_set1_epi32(0x003F03F0)), _mm256_set1_epi32(0x01000010));
        __m256i digits = _mm256_or_si256(high, low);
        __m256i which = _mm256_subs_epu8(digits, _mm256_set1_epi8(51));
        which = _mm256_sub_epi8(which, _mm256_cmpgt_epi8(digits, _mm256_set1_epi8(25)));
        text = _mm256_add_epi8(digits, _mm256_shuffle_epi8(shifts, which));
        _mm256_storeu_si256((__m256i *)(void *)to, text);
    }
    return done;
}
#endif

/* Returns the place behind what it wrote. */
static uint8_t *encode_base64(const uint8_t *from, size_t bytes, uint8_t *to)
{
    size_t done = 0;
#ifdef WITH_AVX2
    if (has_avx2)
        done = encode_avx2(from, bytes, to);
#endif
    to += done / 3 * 4;
    for (; done + 3 <= bytes; done += 3) {
        uint32_t three = (uint32_t)from[done] << 16 | (uint32_t)from[done + 1] << 8 | from[done + 2];
        *to++ = (uint8_t)alphabet[three >> 18];
        *to++ = (uint8_t)alphabet[three >> 12 & 63];
        *to++ = (uint8_t)alphabet[three >> 6 & 63];
        *to++ = (uint8_t)alphabet[three & 63];
    }
    if (done == bytes)
        return to;
    bool are_two = bytes - done == 2;
    uint32_t rest = (uint32_t)from[done] << 16 | (are_two ? (uint32_t)from[done + 1] << 8 : 0);
    *to++ = (uint8_t)alphabet[rest >> 18];
    *to++ = (uint8_t)alphabet[rest >> 12 & 63];
    *to++ = are_two ? (uint8_t)alphabet[rest >> 6 & 63] : '=';
    *to++ = '=';
    return to;
}

/* ---- Objects ------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at;
    size_t bytes;
} Span;

static bool bytes_in(PyObject *object, Span *span)
{
    if (!PyBytes_CheckExact(object))
        return false;
    span->at = (const uint8_t *)PyBytes_AsString(object);
    span->bytes = (size_t)PyBytes_Size(object);
    return span->bytes <= MAX_BYTES;
}

/* The UTF-8 of a text. Half of a surrogate pair is refused, without an exception. */
static bool text_in(PyObject *object, Span *span)
{
    if (!PyUnicode_CheckExact(object))
        return false;
    Py_ssize_t bytes;
    span->at = (const uint8_t *)PyUnicode_AsUTF8AndSize(object, &bytes);
    span->bytes = (size_t)bytes;
    if (span->at == NULL)
        PyErr_Clear();
    return span->at != NULL;
}

static PyObject *new_reference(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

/* How many objects a list or a tuple has; -1: it is something else. */
static Py_ssize_t count_of(PyObject *objects)
{
    return PyTuple_CheckExact(objects) ? PyTuple_Size(objects) : PyList_CheckExact(objects) ? PyList_Size(objects) : -1;
}

/* A borrowed reference; NULL: there is none. */
static PyObject *item(PyObject *objects, Py_ssize_t at)
{
    return PyTuple_CheckExact(objects) ? PyTuple_GetItem(objects, at) : PyList_GetItem(objects, at);
}

/* Whether both are lists or tuples of this many objects. */
static bool are_columns(PyObject *keys, PyObject *data, Py_ssize_t *count)
{
    *count = count_of(keys);
    return *count >= 0 && count_of(data) == *count;
}

/* ---- Records that were put together -------------------------------------------------------------------- */

PyDoc_STRVAR(columns_of_doc,
"columns_of(records, longest_key, most_bytes)\n--\n\n"
"Return (data, keys, size_bytes) of a list of pairs: `bytes` of at most so many, and ASCII keys that are neither\n"
"empty nor too long. None: they are others.");

static PyObject *columns_of(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *records;
    Py_ssize_t longest_key, most_bytes, size_bytes = 0;
    if (!PyArg_ParseTuple(arguments, "O!nn", &PyList_Type, &records, &longest_key, &most_bytes))
        return NULL;
    Py_ssize_t count = PyList_Size(records);
    PyObject *data = PyList_New(count), *keys = PyList_New(count);
    bool is_good = data != NULL && keys != NULL;
    for (Py_ssize_t row = 0; is_good && row < count; row++) {
        PyObject *record = PyList_GetItem(records, row);
        is_good = record != NULL && PyTuple_CheckExact(record) && PyTuple_Size(record) == 2;
        if (!is_good)
            break;
        PyObject *datum = PyTuple_GetItem(record, 0), *key = PyTuple_GetItem(record, 1);
        Span text;
        is_good = PyBytes_CheckExact(datum) && PyBytes_Size(datum) <= most_bytes && PyUnicode_CheckExact(key)
                  && PyUnicode_GetLength(key) > 0 && PyUnicode_GetLength(key) <= longest_key && text_in(key, &text)
                  && text.bytes == (size_t)PyUnicode_GetLength(key);
        if (!is_good)
            break;
        size_bytes += PyBytes_Size(datum) + (Py_ssize_t)text.bytes;
        is_good = PyList_SetItem(data, row, new_reference(datum)) == 0 && PyList_SetItem(keys, row, new_reference(key)) == 0;
    }
    PyObject *made = is_good ? Py_BuildValue("(OOn)", data, keys, size_bytes) : NULL;
    Py_XDECREF(data);
    Py_XDECREF(keys);
    return made == NULL ? refused() : made;
}

/* ---- By shard ------------------------------------------------------------------------------------------ */

/* The number of the range in which a hash key lies; `count`: in none. Both ends of each are told, in order. */
static size_t range_of(const uint8_t *hash_key, const uint8_t *firsts, const uint8_t *lasts, size_t count)
{
    size_t from = 0, to = count; /* before `from` they begin at or before it, from `to` on behind it */
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (memcmp(firsts + middle * DIGEST_BYTES, hash_key, DIGEST_BYTES) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    bool is_inside = from > 0 && memcmp(hash_key, lasts + (from - 1) * DIGEST_BYTES, DIGEST_BYTES) <= 0;
    return is_inside ? from - 1 : count;
}

/* Make the columns of one range's records: their places, keys and data. The garbage collector looks at a tuple of
   texts or bytes once, and at a list again and again. */
static PyObject *columns_at(PyObject *keys, PyObject *data, const uint32_t *rows, size_t count, size_t range)
{
    PyObject *places = PyBytes_FromStringAndSize((const char *)rows, (Py_ssize_t)(count * sizeof *rows));
    PyObject *some_keys = PyTuple_New((Py_ssize_t)count), *some_data = PyTuple_New((Py_ssize_t)count);
    bool is_good = places != NULL && some_keys != NULL && some_data != NULL;
    for (size_t at = 0; is_good && at < count; at++) {
        PyObject *key = item(keys, (Py_ssize_t)rows[at]), *datum = item(data, (Py_ssize_t)rows[at]);
        is_good = key != NULL && datum != NULL && PyTuple_SetItem(some_keys, (Py_ssize_t)at, new_reference(key)) == 0
                  && PyTuple_SetItem(some_data, (Py_ssize_t)at, new_reference(datum)) == 0;
    }
    PyObject *made = is_good ? Py_BuildValue("(nOOO)", (Py_ssize_t)range, places, some_keys, some_data) : NULL;
    Py_XDECREF(places);
    Py_XDECREF(some_keys);
    Py_XDECREF(some_data);
    return made;
}

/* Make the columns of each range that has records, given how many it has, and its rows one behind the other. */
static PyObject *columns_by_range(PyObject *keys, PyObject *data, const uint32_t *rows, const size_t *counts, size_t ranges)
{
    PyObject *made = PyList_New(0);
    for (size_t range = 0; made != NULL && range < ranges; range++) {
        if (counts[range] == 0)
            continue;
        PyObject *columns = columns_at(keys, data, rows, counts[range], range);
        rows += counts[range];
        if (columns == NULL || PyList_Append(made, columns) < 0)
            Py_CLEAR(made);
        Py_XDECREF(columns);
    }
    return made;
}

/* Write the MD5 of each key; false: one is no text. */
static bool digest_keys(PyObject *keys, Py_ssize_t count, uint8_t *to)
{
    Digests digests;
    memset(&digests, 0, sizeof digests);
    for (Py_ssize_t row = 0; row < count; row++) {
        Span text;
        PyObject *key = item(keys, row);
        if (key == NULL || !text_in(key, &text))
            return false;
        add_message(&digests, text.at, text.bytes, to + row * DIGEST_BYTES);
    }
    finish_digests(&digests);
    return true;
}

PyDoc_STRVAR(by_range_doc,
"by_range(keys, data, firsts, lasts)\n--\n\n"
"Sort records by the ranges of hash keys in which the MD5 of their keys lie; both ends of each range are 16 bytes.\n"
"Return a list of (range, places, keys, data), of ranges with records; the number behind the last range is that of\n"
"records in none. Places are numbers of four bytes.");

static PyObject *by_range(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *keys, *data, *made = NULL;
    const char *firsts, *lasts;
    Py_ssize_t count, first_bytes, last_bytes;
    if (!PyArg_ParseTuple(arguments, "OOy#y#", &keys, &data, &firsts, &first_bytes, &lasts, &last_bytes))
        return NULL;
    if (!are_columns(keys, data, &count) || first_bytes != last_bytes || first_bytes % DIGEST_BYTES || count > INT32_MAX)
        return refused();
    size_t ranges = (size_t)first_bytes / DIGEST_BYTES, rows = (size_t)count;
    uint8_t *hash_keys = malloc(rows * DIGEST_BYTES + 1);
    uint32_t *range_of_row = malloc(rows * sizeof *range_of_row + 1), *sorted = malloc(rows * sizeof *sorted + 1);
    size_t *counts = calloc(ranges + 1, sizeof *counts), *next = malloc((ranges + 1) * sizeof *next);
    if (hash_keys == NULL || range_of_row == NULL || sorted == NULL || counts == NULL || next == NULL) {
        PyErr_NoMemory();
    } else if (digest_keys(keys, count, hash_keys)) {
        for (size_t row = 0; row < rows; row++) {
            size_t range = range_of(hash_keys + row * DIGEST_BYTES, (const uint8_t *)firsts, (const uint8_t *)lasts, ranges);
            range_of_row[row] = (uint32_t)range;
            counts[range]++;
        }
        next[0] = 0;
        for (size_t range = 0; range < ranges; range++)
            next[range + 1] = next[range] + counts[range];
        for (size_t row = 0; row < rows; row++)
            sorted[next[range_of_row[row]]++] = (uint32_t)row;
        made = columns_by_range(keys, data, sorted, counts, ranges + 1);
    }
    free(hash_keys);
    free(range_of_row);
    free(sorted);
    free(counts);
    free(next);
    return made == NULL ? refused() : made;
}

/* ---- Into aggregated records --------------------------------------------------------------------------- */

PyDoc_STRVAR(fill_doc,
"fill(keys, data, at, seen, room, record_bytes, key_bytes)\n--\n\n"
"Count how many records from `at` on fit into the room of an aggregated record whose keys are `seen`, which gets\n"
"theirs. Each weighs its data and so many bytes; its key, if it is new, its text and so many. Return (the place\n"
"behind the last one, what they weigh, the bytes of their data and keys). Unlike the others it raises TypeError for\n"
"unusual types.");

static PyObject *fill(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *keys, *data, *seen;
    Py_ssize_t count, at, room, record_bytes, key_bytes, weight = 0, size_bytes = 0;
    if (!PyArg_ParseTuple(arguments, "OOnO!nnn", &keys, &data, &at, &PyDict_Type, &seen, &room, &record_bytes, &key_bytes))
        return NULL;
    if (!are_columns(keys, data, &count) || at < 0) {
        PyErr_SetString(PyExc_TypeError, "expected two columns of one length, and a place in them");
        return NULL;
    }
    for (Py_ssize_t keys_before = PyDict_Size(seen); at < count; at++) {
        PyObject *key = item(keys, at), *datum = item(data, at);
        Span text, inside;
        if (key == NULL || datum == NULL || !text_in(key, &text) || !bytes_in(datum, &inside)) {
            PyErr_SetString(PyExc_TypeError, "expected keys that are str, and data that are bytes");
            return NULL; /* and not None: some keys may be among the seen ones already */
        }
        Py_ssize_t new_key = key_bytes + (Py_ssize_t)text.bytes, record = record_bytes + (Py_ssize_t)inside.bytes;
        if (weight + new_key + record > room)
            break;
        if (PyDict_SetItem(seen, key, Py_None) < 0)
            return NULL;
        Py_ssize_t keys_now = PyDict_Size(seen);
        weight += record + (keys_now > keys_before ? new_key : 0);
        size_bytes += (Py_ssize_t)(text.bytes + inside.bytes);
        keys_before = keys_now;
    }
    return Py_BuildValue("(nnn)", at, weight, size_bytes);
}

static const uint8_t MAGIC[4] = {0xF3, 0x89, 0x9A, 0xC2};
enum { KEY_TABLE = 0x0A, RECORD = 0x1A, KEY_NUMBER = 0x08, RECORD_DATA = 0x1A }; /* the tags of fields */

static size_t varint_bytes(size_t number)
{
    size_t bytes = 1;
    for (; number > 127; number >>= 7)
        bytes++;
    return bytes;
}

static uint8_t *write_varint(uint8_t *to, size_t number)
{
    for (; number > 127; number >>= 7)
        *to++ = (uint8_t)(number | 128);
    *to++ = (uint8_t)number;
    return to;
}

/* What is noted of the records of an aggregated record. Used for one after the other. */
typedef struct {
    struct {
        Span data;
        uint32_t key; /* its number */
    } *rows;
    Span *keys;      /* by their numbers */
    uint32_t *slots; /* numbers of keys, from 1, by their hashes */
    size_t room, key_count, bytes;
} Notes;

static void free_notes(Notes *notes)
{
    free(notes->rows);
    free(notes->keys);
    free(notes->slots);
}

/* Make place for so many rows; false: there is no memory. There are twice as many slots, at least. */
static bool has_place(Notes *notes, size_t rows, size_t *slots)
{
    for (*slots = 64; *slots < 2 * rows;)
        *slots *= 2;
    if (notes->room < *slots) {
        free_notes(notes);
        notes->rows = malloc(*slots / 2 * sizeof *notes->rows);
        notes->keys = malloc(*slots / 2 * sizeof *notes->keys);
        notes->slots = malloc(*slots * sizeof *notes->slots);
        notes->room = *slots;
        if (notes->rows == NULL || notes->keys == NULL || notes->slots == NULL) {
            PyErr_NoMemory();
            return false;
        }
    }
    memset(notes->slots, 0, *slots * sizeof *notes->slots);
    return true;
}

static uint32_t number_of_key(Notes *notes, const Span *text, size_t hash, size_t slots)
{
    size_t slot = hash & (slots - 1);
    for (; notes->slots[slot]; slot = (slot + 1) & (slots - 1)) {
        uint32_t number = notes->slots[slot] - 1;
        if (notes->keys[number].bytes == text->bytes && memcmp(notes->keys[number].at, text->at, text->bytes) == 0)
            return number;
    }
    uint32_t number = (uint32_t)notes->key_count++;
    notes->keys[number] = *text;
    notes->slots[slot] = number + 1;
    notes->bytes += 1 + varint_bytes(text->bytes) + text->bytes;
    return number;
}

/* Note all records and count the bytes of the message. */
static bool note_records(Notes *notes, PyObject *keys, PyObject *data, Py_ssize_t count)
{
    size_t slots;
    notes->key_count = notes->bytes = 0;
    if (count > INT32_MAX / 4 || !has_place(notes, (size_t)count, &slots))
        return false;
    for (Py_ssize_t row = 0; row < count; row++) {
        PyObject *key = item(keys, row), *datum = item(data, row);
        Span text;
        if (key == NULL || datum == NULL || !text_in(key, &text) || !bytes_in(datum, &notes->rows[row].data))
            return false;
        uint32_t number = number_of_key(notes, &text, (size_t)PyObject_Hash(key), slots);
        size_t bytes = notes->rows[row].data.bytes;
        size_t inside = 1 + varint_bytes(number) + 1 + varint_bytes(bytes) + bytes;
        notes->rows[row].key = number;
        notes->bytes += 1 + varint_bytes(inside) + inside;
        if (notes->bytes > MAX_BYTES)
            return false;
    }
    return true;
}

static void write_message(const Notes *notes, size_t count, uint8_t *to)
{
    for (size_t number = 0; number < notes->key_count; number++) {
        const Span *key = &notes->keys[number];
        *to++ = KEY_TABLE;
        to = write_varint(to, key->bytes);
        memcpy(to, key->at, key->bytes);
        to += key->bytes;
    }
    for (size_t row = 0; row < count; row++) {
        const Span *data = &notes->rows[row].data;
        uint32_t number = notes->rows[row].key;
        *to++ = RECORD;
        to = write_varint(to, 1 + varint_bytes(number) + 1 + varint_bytes(data->bytes) + data->bytes);
        *to++ = KEY_NUMBER;
        to = write_varint(to, number);
        *to++ = RECORD_DATA;
        to = write_varint(to, data->bytes);
        memcpy(to, data->at, data->bytes);
        to += data->bytes;
    }
}

/* Make an aggregated record; its digest is not written yet. NULL without an exception: something is unusual. */
static PyObject *aggregate_of(Notes *notes, PyObject *columns)
{
    Py_ssize_t count;
    if (!PyTuple_CheckExact(columns) || PyTuple_Size(columns) != 2)
        return NULL;
    PyObject *keys = PyTuple_GetItem(columns, 0), *data = PyTuple_GetItem(columns, 1);
    if (!are_columns(keys, data, &count) || !note_records(notes, keys, data, count))
        return NULL;
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(sizeof MAGIC + notes->bytes + DIGEST_BYTES));
    if (made == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AsString(made);
    memcpy(to, MAGIC, sizeof MAGIC);
    write_message(notes, (size_t)count, to + sizeof MAGIC);
    return made;
}

/* An aggregated record that nobody else has seen. */
typedef struct {
    PyObject *object;
    uint8_t *message;
    size_t message_bytes; /* the digest follows */
} Made;

/* Write the digests of aggregated records. */
static void digest_aggregates(const Made *made, Py_ssize_t count)
{
    Digests digests;
    memset(&digests, 0, sizeof digests);
    PyThreadState *thread = PyEval_SaveThread(); /* from here on nothing of Python is called */
    for (const Made *each = made; each < made + count; each++)
        add_message(&digests, each->message, each->message_bytes, each->message + each->message_bytes);
    finish_digests(&digests);
    PyEval_RestoreThread(thread);
}

PyDoc_STRVAR(aggregates_doc,
"aggregates(columns)\n--\n\n"
"Encode aggregated records, each given as a tuple of its keys and its data. See `aggregate_columns`.");

static PyObject *aggregates(PyObject *module, PyObject *columns)
{
    (void)module;
    if (!PyList_CheckExact(columns))
        return refused();
    Py_ssize_t count = PyList_Size(columns), done = 0;
    PyObject *list = NULL;
    Made *made = calloc((size_t)count + 1, sizeof *made);
    if (made == NULL)
        return PyErr_NoMemory();
    Notes notes;
    memset(&notes, 0, sizeof notes);
    for (; done < count; done++) {
        PyObject *each = PyList_GetItem(columns, done);
        PyObject *object = each == NULL ? NULL : aggregate_of(&notes, each);
        if (object == NULL)
            break;
        made[done] = (Made){object, (uint8_t *)PyBytes_AsString(object) + sizeof MAGIC, notes.bytes};
    }
    free_notes(&notes);
    if (done == count) {
        digest_aggregates(made, count);
        list = PyList_New(count);
    }
    for (Py_ssize_t number = 0; number < done; number++) {
        if (list == NULL)
            Py_DECREF(made[number].object);
        else
            PyList_SetItem(list, number, made[number].object);
    }
    free(made);
    return list == NULL ? refused() : list;
}

/* ---- The body of a request ----------------------------------------------------------------------------- */

/* Whether a text is written as it is: without quotes, backslashes and control characters. */
static bool is_plain(const Span *text)
{
    bool is_good = true;
    for (size_t at = 0; at < text->bytes; at++)
        is_good &= text->at[at] >= 0x20 && text->at[at] != '"' && text->at[at] != '\\';
    return is_good;
}

enum { DATA, KEY, HASH_KEY, MEMBERS };
static const char *const member_names[MEMBERS] = {"Data", "PartitionKey", "ExplicitHashKey"};
static const char *const member_starts[MEMBERS] = {"{\"Data\":\"", ",\"PartitionKey\":\"", ",\"ExplicitHashKey\":\""};

typedef struct {
    PyObject *objects[MEMBERS]; /* owned, so that nothing that happens meanwhile ends them */
    Span spans[MEMBERS];
} PutRecord;

/* Note a record. False: it is unusual. Its objects must be let go in any case. */
static bool note_record(PyObject *record, PyObject *const *names, PutRecord *put, size_t *bytes)
{
    if (record == NULL || !PyDict_CheckExact(record))
        return false;
    Py_ssize_t found = 0;
    for (int member = 0; member < MEMBERS; member++) {
        PyObject *value = PyDict_GetItemWithError(record, names[member]);
        if (value == NULL && (PyErr_Occurred() || member != HASH_KEY))
            return false;
        if (value == NULL)
            continue;
        found++;
        put->objects[member] = new_reference(value);
        Span *span = &put->spans[member];
        if (member == DATA ? !bytes_in(value, span) : !text_in(value, span) || !is_plain(span))
            return false;
        *bytes += strlen(member_starts[member]) + 1 + (member == DATA ? base64_characters(span->bytes) : span->bytes);
    }
    *bytes += 2; /* the closing brace, and a comma, or in the end the bracket */
    return found == PyDict_Size(record) && *bytes <= MAX_BYTES;
}

static uint8_t *write_record(uint8_t *to, const PutRecord *put)
{
    for (int member = 0; member < MEMBERS; member++) {
        if (put->objects[member] == NULL)
            continue;
        size_t length = strlen(member_starts[member]);
        memcpy(to, member_starts[member], length);
        to += length;
        const Span *span = &put->spans[member];
        if (member == DATA) {
            to = encode_base64(span->at, span->bytes, to);
        } else {
            memcpy(to, span->at, span->bytes);
            to += span->bytes;
        }
        *to++ = '"';
    }
    *to++ = '}';
    *to++ = ',';
    return to;
}

static PyObject *written(const PutRecord *puts, Py_ssize_t count, const Span *start, size_t bytes)
{
    static const char records_start[] = ",\"Records\":[";
    size_t start_bytes = start->bytes - 1; /* without its closing brace */
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(start_bytes + sizeof records_start - 1 + bytes + 1));
    if (made == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AsString(made);
    memcpy(to, start->at, start_bytes);
    memcpy(to + start_bytes, records_start, sizeof records_start - 1);
    to += start_bytes + sizeof records_start - 1;
    for (Py_ssize_t number = 0; number < count; number++)
        to = write_record(to, &puts[number]);
    to[-1] = ']'; /* in place of the last comma */
    *to = '}';
    return made;
}

PyDoc_STRVAR(put_records_doc,
"put_records(start, records)\n--\n\n"
"Return the body of a request in JSON: the members of the JSON object `start`, which has some, and the records,\n"
"which are dictionaries as boto3 takes them, and not none. None also where a text needs an escape.");

static PyObject *put_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *start_object, *records, *made = NULL, *names[MEMBERS] = {NULL};
    Span start;
    if (!PyArg_ParseTuple(arguments, "OO", &start_object, &records))
        return NULL;
    if (!bytes_in(start_object, &start) || start.bytes < 3 || !PyList_CheckExact(records) || PyList_Size(records) == 0)
        return refused();
    Py_ssize_t count = PyList_Size(records), noted = 0;
    PutRecord *puts = calloc((size_t)count, sizeof *puts);
    if (puts == NULL)
        return PyErr_NoMemory();
    bool is_good = true;
    for (int member = 0; is_good && member < MEMBERS; member++)
        is_good = (names[member] = PyUnicode_InternFromString(member_names[member])) != NULL;
    size_t bytes = 0;
    for (; is_good && noted < count; noted++)
        is_good = note_record(PyList_GetItem(records, noted), names, &puts[noted], &bytes);
    if (is_good)
        made = written(puts, count, &start, bytes);
    for (Py_ssize_t number = 0; number < noted; number++)
        for (int member = 0; member < MEMBERS; member++)
            Py_XDECREF(puts[number].objects[member]);
    for (int member = 0; member < MEMBERS; member++)
        Py_XDECREF(names[member]);
    free(puts);
    return made == NULL ? refused() : made;
}

PyMethodDef packing_methods[] = {
    {"columns_of", columns_of, METH_VARARGS, columns_of_doc},
    {"by_range", by_range, METH_VARARGS, by_range_doc},
    {"fill", fill, METH_VARARGS, fill_doc},
    {"aggregates", aggregates, METH_O, aggregates_doc},
    {"put_records", put_records, METH_VARARGS, put_records_doc},
    {NULL, NULL, 0, NULL},
};
