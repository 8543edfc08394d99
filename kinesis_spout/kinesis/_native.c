/* The records of a GetRecords reply, taken from its body, which is JSON.

   A reply is read in two steps. The first one notes where the texts of each record are, and checks them: names,
   lengths, UTF-8, escapes, numbers. The second one copies them, or undoes their base64, to objects or to the
   buffers of columns. Both leave the interpreter to other threads while they work on a large body.

   Whatever is unusual is refused (the functions return None), and says nothing about the reply: `page` then
   decodes it in Python, and says what is wrong with it. So this file need not know every correct way to write a
   reply, and must never accept a wrong one. Nothing is read beyond the body, and no offset leaves it.

   The rest of the reply, a few hundred bytes without the records, is returned for `page` to decode. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define WITH_AVX2
#include <immintrin.h>
#endif

typedef const uint8_t *Place;

enum { LARGE_BODY = 64 * 1024, MAX_DEPTH = 32, MAX_DIGITS = 128 };
static const double LATEST_SECONDS = 253402300800.0; /* the year 10,000 */
static const uint64_t MAX_EXACT = UINT64_C(1) << 53; /* all whole numbers up to it are doubles */
static const uint8_t MAGIC[4] = {0xF3, 0x89, 0x9A, 0xC2}; /* of an aggregated record: see aggregated_record.py */

/* ---- Base64 -------------------------------------------------------------------------------------------- */

enum { NO_DIGIT = 0xFF };
static uint8_t digits[256];

static void make_digits(void)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    memset(digits, NO_DIGIT, sizeof digits);
    for (int value = 0; value < 64; value++)
        digits[(uint8_t)alphabet[value]] = (uint8_t)value;
}

/* Decode groups of four characters without padding. False: one is not of the alphabet. */
static bool decode_groups(Place from, size_t characters, uint8_t *to)
{
    uint8_t wrong = 0;
    for (Place end = from + characters; from < end; from += 4, to += 3) {
        uint8_t a = digits[from[0]], b = digits[from[1]], c = digits[from[2]], d = digits[from[3]];
        wrong |= a | b | c | d;
        to[0] = (uint8_t)(a << 2 | b >> 4);
        to[1] = (uint8_t)(b << 4 | c >> 2);
        to[2] = (uint8_t)(c << 6 | d);
    }
    return wrong < 64;
}

#ifdef WITH_AVX2
static bool has_avx2;

/* 32 characters at a time, as long as 32 bytes may be written; returns how many characters it has decoded.
   It stops before what is not of the alphabet. After Wojciech Mula and Daniel Lemire, "Faster Base64 Encoding and
   Decoding Using AVX2 Instructions", https://arxiv.org/abs/1704.00605. */
__attribute__((target("avx2"))) static size_t decode_avx2(Place from, size_t characters, uint8_t *to)
{
    const __m256i low_nibbles = _mm256_setr_epi8(
        0x15, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x13, 0x1A, 0x1B, 0x1B, 0x1B, 0x1A,
        0x15, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x13, 0x1A, 0x1B, 0x1B, 0x1B, 0x1A);
    const __m256i high_nibbles = _mm256_setr_epi8(
        0x10, 0x10, 0x01, 0x02, 0x04, 0x08, 0x04, 0x08, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10,
        0x10, 0x10, 0x01, 0x02, 0x04, 0x08, 0x04, 0x08, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10);
    const __m256i shifts = _mm256_setr_epi8(
        0, 16, 19, 4, -65, -65, -71, -71, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 16, 19, 4, -65, -65, -71, -71, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m256i order = _mm256_setr_epi8(
        2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1,
        2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1);
    const __m256i slash = _mm256_set1_epi8(0x2F);
    size_t done = 0;
    /* The last store writes 8 bytes too many: as many as 11 further characters give. */
    for (; done + 44 <= characters; done += 32, to += 24) {
        __m256i text = _mm256_loadu_si256((const __m256i *)(const void *)(from + done));
        __m256i high = _mm256_and_si256(_mm256_srli_epi32(text, 4), slash);
        __m256i low = _mm256_and_si256(text, slash);
        if (!_mm256_testz_si256(_mm256_shuffle_epi8(low_nibbles, low), _mm256_shuffle_epi8(high_nibbles, high)))
            break;
        __m256i shift = _mm256_shuffle_epi8(shifts, _mm256_add_epi8(_mm256_cmpeq_epi8(text, slash), high));
        text = _mm256_add_epi8(text, shift);
        text = _mm256_maddubs_epi16(text, _mm256_set1_epi32(0x01400140));
        text = _mm256_madd_epi16(text, _mm256_set1_epi32(0x00011000));
        text = _mm256_shuffle_epi8(text, order);
        text = _mm256_permutevar8x32_epi32(text, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, -1, -1));
        _mm256_storeu_si256((__m256i *)(void *)to, text);
    }
    return done;
}
#endif

/* How many bytes a value of base64 has; -1: its length is no base64's. Its alphabet is for `decode_base64`. */
static int64_t base64_bytes(Place from, size_t characters)
{
    if (characters == 0)
        return 0;
    if (characters % 4)
        return -1;
    int64_t padding = from[characters - 1] != '=' ? 0 : from[characters - 2] != '=' ? 1 : 2;
    return (int64_t)(characters / 4 * 3) - padding;
}

/* Decode to exactly `bytes`, which are of `base64_bytes`. False: it is no base64, or none that an encoder writes. */
static bool decode_base64(Place from, size_t characters, uint8_t *to, size_t bytes)
{
    if (characters == 0)
        return true;
    size_t done = 0, whole = bytes % 3 ? characters - 4 : characters;
#ifdef WITH_AVX2
    if (has_avx2)
        done = decode_avx2(from, whole, to);
#endif
    if (!decode_groups(from + done, whole - done, to + done / 4 * 3))
        return false;
    if (whole == characters)
        return true;
    from += whole;
    to += whole / 4 * 3;
    uint8_t a = digits[from[0]], b = digits[from[1]], c = bytes % 3 == 2 ? digits[from[2]] : 0;
    if ((a | b | c) >= 64 || (bytes % 3 == 2 ? c & 3 : b & 15))
        return false;
    to[0] = (uint8_t)(a << 2 | b >> 4);
    if (bytes % 3 == 2)
        to[1] = (uint8_t)(b << 4 | c >> 2);
    return true;
}

/* ---- What is noted of a reply -------------------------------------------------------------------------- */

typedef struct {
    uint32_t at; /* 0: there is none, as no text begins a body */
    uint32_t length;
    uint32_t plain; /* its bytes without escapes, or without base64; other than `length` only if it has these */
} Text;

enum { DATA, SEQUENCE, KEY, ENCRYPTION, TEXTS };

typedef struct {
    Text texts[TEXTS];
    double arrival; /* seconds; NaN: there is none */
} Row;

typedef struct {
    Place body, end;
    Row *rows;
    size_t count, room;
    size_t bytes[TEXTS]; /* of all rows */
    Place rest_from, rest_to; /* the records, which the rest of the reply is without */
} Reply;

static Row *next_row(Reply *reply)
{
    if (reply->count == reply->room) {
        size_t room = reply->room ? reply->room * 2 : 64;
        Row *rows = realloc(reply->rows, room * sizeof *rows);
        if (rows == NULL)
            return NULL;
        reply->rows = rows;
        reply->room = room;
    }
    Row *row = &reply->rows[reply->count];
    memset(row, 0, sizeof *row);
    row->arrival = NAN;
    return row;
}

/* Whether a record has a sequence number, above that of the record before it: as numbers are without zeros in front,
   the longer one is the larger. */
static bool is_in_order(const Reply *reply, const Row *row)
{
    const Text *number = &row->texts[SEQUENCE];
    Place digit = reply->body + number->at, end = digit + number->length;
    if (!number->at || !number->length || number->length > MAX_DIGITS || (*digit == '0' && number->length > 1))
        return false;
    for (; digit < end; digit++)
        if (*digit < '0' || *digit > '9')
            return false;
    if (reply->count == 0)
        return true;
    const Text *last = &row[-1].texts[SEQUENCE];
    return number->length == last->length
               ? memcmp(reply->body + last->at, reply->body + number->at, number->length) < 0
               : number->length > last->length;
}

static bool finish_row(Reply *reply, const Row *row)
{
    if (!row->texts[DATA].at || !is_in_order(reply, row) || !(isnan(row->arrival) || row->arrival < LATEST_SECONDS))
        return false;
    for (int text = 0; text < TEXTS; text++)
        reply->bytes[text] += row->texts[text].plain;
    reply->count++;
    return true;
}

/* ---- Text ---------------------------------------------------------------------------------------------- */

/* How many bytes a character has that is not ASCII; 0: it is no UTF-8. */
static int utf8_bytes(Place at, Place end)
{
    uint8_t first = at[0];
    int bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || end - at < bytes)
        return 0;
    for (int next = 1; next < bytes; next++)
        if ((at[next] & 0xC0) != 0x80)
            return 0;
    uint8_t second = at[1];
    bool is_wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) /* a surrogate */
                    || (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
    return is_wrong ? 0 : bytes;
}

static int32_t four_hex(Place at, Place end)
{
    int32_t value = 0;
    if (end - at < 4)
        return -1;
    for (int digit = 0; digit < 4; digit++) {
        uint8_t letter = at[digit] | 0x20;
        int of = at[digit] >= '0' && at[digit] <= '9' ? at[digit] - '0'
                 : letter >= 'a' && letter <= 'f'     ? letter - 'a' + 10
                                                      : -1;
        if (of < 0)
            return -1;
        value = value << 4 | of;
    }
    return value;
}

/* Undo one escape of JSON; `at` is behind its backslash. Writes `*bytes` to `to`, and returns the place behind
   it; NULL: it is none. It is always longer than what it stands for. */
static Place unescape(Place at, Place end, uint8_t to[4], uint32_t *bytes)
{
    static const char escapes[] = "\"\\/bfnrt", stand_for[] = "\"\\/\b\f\n\r\t";
    if (at == end)
        return NULL;
    if (*at != 'u') {
        const char *found = *at ? strchr(escapes, *at) : NULL;
        if (found == NULL)
            return NULL;
        to[0] = (uint8_t)stand_for[found - escapes];
        *bytes = 1;
        return at + 1;
    }
    int32_t code = four_hex(at + 1, end);
    at += 5;
    if (code < 0 || (code >= 0xDC00 && code < 0xE000))
        return NULL;
    if (code >= 0xD800 && code < 0xDC00) {
        int32_t low = end - at < 6 || at[0] != '\\' || at[1] != 'u' ? -1 : four_hex(at + 2, end);
        if (low < 0xDC00 || low >= 0xE000)
            return NULL;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
    }
    if (code < 0x80) {
        to[0] = (uint8_t)code;
        *bytes = 1;
    } else if (code < 0x800) {
        to[0] = (uint8_t)(0xC0 | code >> 6);
        to[1] = (uint8_t)(0x80 | (code & 0x3F));
        *bytes = 2;
    } else if (code < 0x10000) {
        to[0] = (uint8_t)(0xE0 | code >> 12);
        to[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        to[2] = (uint8_t)(0x80 | (code & 0x3F));
        *bytes = 3;
    } else {
        to[0] = (uint8_t)(0xF0 | code >> 18);
        to[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
        to[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        to[3] = (uint8_t)(0x80 | (code & 0x3F));
        *bytes = 4;
    }
    return at;
}

static const uint64_t TOP_BITS = UINT64_C(0x8080808080808080); /* of 8 bytes: those that are not ASCII have them */

/* How many of 8 characters come before the first one that ends a text of JSON or is more than itself: quotes,
   backslashes, control characters, and all that is not ASCII. */
static unsigned plain_before(Place at)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t word;
    memcpy(&word, at, sizeof word);
    uint64_t quotes = word ^ ones * '"', backslashes = word ^ ones * '\\';
    uint64_t found = word | (word - ones * 0x20) | ((quotes - ones) & ~quotes) | ((backslashes - ones) & ~backslashes);
    found &= TOP_BITS;
    if (found == 0)
        return 8;
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return (unsigned)__builtin_ctzll(found) / 8; /* a borrow marks wrongly only what is behind the first one */
#else
    return 0;
#endif
}

/* Copy a text without its escapes: `text->plain` bytes, also if the body was changed meanwhile. */
static void copy_text(Place body, const Text *text, uint8_t *to)
{
    Place at = body + text->at, end = at + text->length;
    if (text->plain == text->length) {
        memcpy(to, at, text->length);
        return;
    }
    for (uint32_t done = 0, bytes; done < text->plain; done += bytes) {
        uint8_t character[4] = {0};
        bytes = 1;
        if (at != NULL && at < end && *at == '\\')
            at = unescape(at + 1, end, character, &bytes);
        else if (at != NULL && at < end)
            character[0] = *at++;
        if (bytes > text->plain - done)
            bytes = text->plain - done;
        memcpy(to + done, character, bytes);
    }
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static Place skip_space(Place at, Place end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

/* The place behind a character that must come next; NULL: it does not. So do all that read something. */
static Place read_sign(Place at, Place end, uint8_t sign)
{
    if (at == NULL)
        return NULL;
    at = skip_space(at, end);
    return at < end && *at == sign ? at + 1 : NULL;
}

static Place read_text(const Reply *reply, Place at, Text *text)
{
    Place end = reply->end;
    at = read_sign(at, end, '"');
    if (at == NULL)
        return NULL;
    text->at = (uint32_t)(at - reply->body);
    uint32_t escaped = 0;
    for (;;) {
        for (unsigned plain = 8; plain == 8 && end - at >= 8; at += plain)
            plain = plain_before(at);
        if (at == end)
            return NULL;
        if (*at == '"')
            break;
        if (*at == '\\') {
            uint8_t character[4];
            uint32_t bytes = 0;
            Place behind = unescape(at + 1, end, character, &bytes);
            if (behind == NULL)
                return NULL;
            escaped += (uint32_t)(behind - at) - bytes;
            at = behind;
        } else if (*at < 0x80) {
            if (*at < 0x20)
                return NULL;
            at++;
        } else {
            int bytes = utf8_bytes(at, end);
            if (bytes == 0)
                return NULL;
            at += bytes;
        }
    }
    text->length = (uint32_t)(at - reply->body) - text->at;
    text->plain = text->length - escaped;
    return at + 1;
}

static Place read_base64(const Reply *reply, Place at, Text *text)
{
    at = read_sign(at, reply->end, '"');
    Place behind = at == NULL ? NULL : memchr(at, '"', (size_t)(reply->end - at));
    int64_t bytes = behind == NULL ? -1 : base64_bytes(at, (size_t)(behind - at));
    if (bytes < 0)
        return NULL;
    text->at = (uint32_t)(at - reply->body);
    text->length = (uint32_t)(behind - at);
    text->plain = (uint32_t)bytes;
    return behind + 1;
}

static Place read_digits(Place at, Place end, uint64_t *value, int *count)
{
    Place first = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (++*count <= 18)
            *value = *value * 10 + (*at - '0');
    return at == first ? NULL : at;
}

/* Read a number. Its value is NaN where it is not sure to be exact, and below zero. */
static Place read_number(Place at, Place end, double *number)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    at = skip_space(at, end);
    bool is_negative = at < end && *at == '-';
    at += is_negative;
    uint64_t value = 0, exponent = 0;
    int count = 0, fraction = 0, exponent_digits = 0;
    bool is_small = false, is_zero = at < end && *at == '0';
    Place first = at;
    at = read_digits(at, end, &value, &count);
    if (at == NULL || (is_zero && at - first > 1))
        return NULL;
    if (at < end && *at == '.') {
        int before = count;
        at = read_digits(at + 1, end, &value, &count);
        if (at == NULL)
            return NULL;
        fraction = count - before;
    }
    if (at < end && (*at | 0x20) == 'e') {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            is_small = *at++ == '-';
        at = read_digits(at, end, &exponent, &exponent_digits);
        if (at == NULL)
            return NULL;
    }
    *number = NAN;
    if (is_negative || count > 18 || exponent_digits > 3)
        return at;
    int power = (is_small ? -(int)exponent : (int)exponent) - fraction;
    if (value <= MAX_EXACT && power >= -22 && power <= 22)
        *number = power < 0 ? (double)value / powers[-power] : (double)value * powers[power];
    return at;
}

static Place read_word(Place at, Place end, const char *word)
{
    size_t length = strlen(word);
    at = skip_space(at, end);
    return (size_t)(end - at) >= length && memcmp(at, word, length) == 0 ? at + length : NULL;
}

static Place read_arrival(Place at, Place end, double *seconds)
{
    Place behind = read_word(at, end, "null");
    if (behind != NULL)
        return behind;
    at = read_number(at, end, seconds);
    return at == NULL || isnan(*seconds) ? NULL : at;
}

static Place read_text_or_null(const Reply *reply, Place at, Text *text)
{
    Place behind = read_word(at, reply->end, "null");
    return behind == NULL ? read_text(reply, at, text) : behind;
}

/* The place behind a value of any kind. */
static Place skip_value(const Reply *reply, Place at, int depth)
{
    Place end = reply->end;
    Text text;
    double number;
    at = skip_space(at, end);
    if (at == end || depth == MAX_DEPTH)
        return NULL;
    switch (*at) {
    case '"':
        return read_text(reply, at, &text);
    case 't':
        return read_word(at, end, "true");
    case 'f':
        return read_word(at, end, "false");
    case 'n':
        return read_word(at, end, "null");
    case '{':
    case '[':
        break;
    default:
        return read_number(at, end, &number);
    }
    bool is_object = *at++ == '{';
    uint8_t closing = is_object ? '}' : ']';
    Place behind = read_sign(at, end, closing);
    if (behind != NULL)
        return behind;
    for (;;) {
        if (is_object)
            at = read_sign(read_text(reply, at, &text), end, ':');
        at = at == NULL ? NULL : skip_value(reply, at, depth + 1);
        behind = read_sign(at, end, closing);
        if (behind != NULL)
            return behind;
        at = read_sign(at, end, ',');
        if (at == NULL)
            return NULL;
    }
}

/* Constants, so that the compiler compares words and calls nothing. */
#define IS_CALLED(at, length, name) ((length) == sizeof name - 1 && memcmp(at, name, sizeof name - 1) == 0)

enum { ARRIVAL = TEXTS, UNKNOWN };

static int member_called(Place name, size_t length)
{
    return IS_CALLED(name, length, "Data")                          ? DATA
           : IS_CALLED(name, length, "PartitionKey")                ? KEY
           : IS_CALLED(name, length, "SequenceNumber")              ? SEQUENCE
           : IS_CALLED(name, length, "EncryptionType")              ? ENCRYPTION
           : IS_CALLED(name, length, "ApproximateArrivalTimestamp") ? ARRIVAL
                                                                    : UNKNOWN;
}

/* Read the name of a record's member, and the colon behind it. */
static Place read_member(const Reply *reply, Place at, int *member)
{
    Place end = reply->end;
    Place first = at == NULL ? NULL : read_sign(at, end, '"');
    if (first == NULL)
        return NULL;
    /* Of the names, no two begin with the same letter. */
    static const struct { uint8_t length; int8_t member; } by_letter[] = {
        ['A'] = {27, ARRIVAL}, ['D'] = {4, DATA}, ['E'] = {14, ENCRYPTION}, ['P'] = {12, KEY}, ['S'] = {14, SEQUENCE},
    };
    if (first < end && *first <= 'S' && end - first > 27) {
        size_t length = by_letter[*first].length;
        *member = by_letter[*first].member;
        if (length && first[length] == '"' && member_called(first, length) == *member)
            return read_sign(first + length + 1, end, ':');
    }
    Text name;
    at = read_text(reply, at, &name);
    if (at == NULL || name.plain != name.length)
        return NULL;
    *member = member_called(reply->body + name.at, name.length);
    return read_sign(at, end, ':');
}

static Place read_json_record(Reply *reply, Place at)
{
    Place end = reply->end;
    Row *row = next_row(reply);
    at = read_sign(at, end, '{');
    if (row == NULL || at == NULL)
        return NULL;
    for (unsigned seen = 0;;) {
        int member;
        at = read_member(reply, at, &member);
        if (at == NULL)
            return NULL;
        if (member != UNKNOWN && seen & 1U << member)
            return NULL;
        seen |= 1U << member;
        at = member == DATA       ? read_base64(reply, at, &row->texts[DATA])
             : member == SEQUENCE ? read_text(reply, at, &row->texts[SEQUENCE])
             : member == ARRIVAL  ? read_arrival(at, end, &row->arrival)
             : member == UNKNOWN  ? skip_value(reply, at, 0)
                                  : read_text_or_null(reply, at, &row->texts[member]);
        Place behind = read_sign(at, end, '}');
        if (behind != NULL)
            return finish_row(reply, row) ? behind : NULL;
        at = read_sign(at, end, ',');
        if (at == NULL)
            return NULL;
    }
}

/* Read the array of records. */
static Place read_records(Reply *reply, Place at)
{
    Place end = reply->end;
    at = read_sign(at, end, '[');
    reply->rest_from = at;
    Place behind = at == NULL ? NULL : read_sign(at, end, ']');
    while (behind == NULL) {
        at = read_json_record(reply, at);
        behind = read_sign(at, end, ']');
        if (behind == NULL && (at = read_sign(at, end, ',')) == NULL)
            return NULL;
    }
    reply->rest_to = behind - 1;
    return behind;
}

/* A reply that names its records twice, or may do so by an escape, is refused. */
static bool read_json(Reply *reply)
{
    Place end = reply->end, at = read_sign(reply->body, end, '{');
    for (;;) {
        Text name;
        at = at == NULL ? NULL : read_sign(read_text(reply, at, &name), end, ':');
        if (at == NULL || name.plain != name.length)
            return false;
        if (!IS_CALLED(reply->body + name.at, name.length, "Records"))
            at = skip_value(reply, at, 0);
        else if (reply->rest_from != NULL)
            return false;
        else
            at = read_records(reply, at);
        if (read_sign(at, end, '}') != NULL)
            return reply->rest_from != NULL;
        at = read_sign(at, end, ',');
    }
}

/* ---- What is made of a reply --------------------------------------------------------------------------- */

static PyObject *no_memory(void)
{
    return PyErr_NoMemory();
}

static bool decode_data(const Reply *reply, const Text *data, uint8_t *to)
{
    return decode_base64(reply->body + data->at, data->length, to, data->plain);
}

static bool is_aggregated(const uint8_t *data, size_t bytes)
{
    return bytes >= sizeof MAGIC && memcmp(data, MAGIC, sizeof MAGIC) == 0;
}

static PyObject *text_object(const Reply *reply, const Text *text)
{
    if (text->at == 0)
        Py_RETURN_NONE;
    if (text->plain == text->length)
        return PyUnicode_FromStringAndSize((const char *)reply->body + text->at, (Py_ssize_t)text->length);
    char *plain = malloc(text->plain + 1);
    if (plain == NULL)
        return no_memory();
    copy_text(reply->body, text, (uint8_t *)plain);
    PyObject *made = PyUnicode_FromStringAndSize(plain, (Py_ssize_t)text->plain);
    free(plain);
    return made;
}

/* The reply without its records. */
static PyObject *rest_of(const Reply *reply)
{
    size_t before = (size_t)(reply->rest_from - reply->body), after = (size_t)(reply->end - reply->rest_to);
    PyObject *rest = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(before + after));
    if (rest == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AsString(rest);
    memcpy(to, reply->body, before);
    memcpy(to + before, reply->rest_to, after);
    return rest;
}

/* Read a body. False: it is refused, or (with an exception) it cannot be read. */
static bool read_reply(Reply *reply, const Py_buffer *body)
{
    memset(reply, 0, sizeof *reply);
    if (body->len < 2 || body->len > INT32_MAX)
        return false;
    reply->body = body->buf;
    reply->end = reply->body + body->len;
    bool is_large = body->len >= LARGE_BODY, is_read;
    PyThreadState *thread = is_large ? PyEval_SaveThread() : NULL;
    is_read = read_json(reply);
    if (is_large)
        PyEval_RestoreThread(thread);
    return is_read;
}

/* Make the data of all records. NULL without an exception: one has no base64. */
static PyObject **data_objects(const Reply *reply, bool *has_aggregates)
{
    PyObject **made = calloc(reply->count + 1, sizeof *made);
    if (made == NULL) {
        no_memory();
        return NULL;
    }
    bool is_good = true;
    size_t row = 0;
    for (; row < reply->count; row++) {
        made[row] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)reply->rows[row].texts[DATA].plain);
        if (made[row] == NULL) {
            is_good = false;
            break;
        }
    }
    if (is_good) {
        bool is_large = reply->end - reply->body >= LARGE_BODY;
        PyThreadState *thread = is_large ? PyEval_SaveThread() : NULL;
        for (row = 0; is_good && row < reply->count; row++) {
            const Text *data = &reply->rows[row].texts[DATA];
            /* Nobody else has seen these objects. One of no bytes is shared, and nothing is written to it. */
            uint8_t *to = (uint8_t *)PyBytes_AsString(made[row]);
            is_good = decode_data(reply, data, to);
            *has_aggregates |= is_aggregated(to, data->plain);
        }
        if (is_large)
            PyEval_RestoreThread(thread);
    }
    if (is_good)
        return made;
    for (row = 0; row < reply->count; row++)
        Py_XDECREF(made[row]);
    free(made);
    return NULL;
}

/* A text that most records share, and its object. */
typedef struct {
    const Text *text;
    PyObject *object;
} Shared;

static PyObject *shared_object(const Reply *reply, const Text *text, Shared *last)
{
    bool is_same = last->object != NULL && text->at && last->text->at && last->text->length == text->length
                   && memcmp(reply->body + last->text->at, reply->body + text->at, text->length) == 0;
    if (!is_same) {
        Py_XDECREF(last->object);
        last->text = text;
        last->object = text_object(reply, text);
    }
    Py_XINCREF(last->object);
    return last->object;
}

/* Call the type of records with a record's members. `arguments` is a tuple that nobody else has. */
static PyObject *record_object(const Reply *reply, const Row *row, PyObject *data, PyObject *type, PyObject *arguments,
                               Shared *encryption)
{
    PyObject *arrival = isnan(row->arrival) ? (Py_INCREF(Py_None), Py_None) : PyFloat_FromDouble(row->arrival);
    PyObject *members[] = {
        data,
        text_object(reply, &row->texts[SEQUENCE]),
        text_object(reply, &row->texts[KEY]),
        arrival,
        shared_object(reply, &row->texts[ENCRYPTION], encryption),
    };
    bool is_whole = true;
    for (int member = 0; member < 5; member++) {
        is_whole = is_whole && members[member] != NULL;
        if (members[member] != NULL && PyTuple_SetItem(arguments, member, members[member]) < 0)
            is_whole = false;
    }
    return is_whole ? PyObject_Call(type, arguments, NULL) : NULL;
}

static PyObject *record_list(const Reply *reply, PyObject **data, PyObject *type, PyObject *stream, PyObject *shard_id)
{
    PyObject *arguments = PyTuple_New(7), *records = PyList_New((Py_ssize_t)reply->count);
    Shared encryption = {NULL, NULL};
    bool is_good = arguments != NULL && records != NULL;
    if (is_good) {
        Py_INCREF(stream);
        Py_INCREF(shard_id);
        is_good = PyTuple_SetItem(arguments, 5, stream) == 0 && PyTuple_SetItem(arguments, 6, shard_id) == 0;
    }
    for (size_t row = 0; is_good && row < reply->count; row++) {
        PyObject *taken = data[row];
        data[row] = NULL;
        PyObject *record = record_object(reply, &reply->rows[row], taken, type, arguments, &encryption);
        is_good = record != NULL && PyList_SetItem(records, (Py_ssize_t)row, record) == 0;
    }
    Py_XDECREF(arguments);
    Py_XDECREF(encryption.object);
    if (is_good)
        return records;
    Py_XDECREF(records);
    return NULL;
}

PyDoc_STRVAR(records_doc,
"records(body, record_type, stream, shard_id)\n--\n\n"
"Return (records, size_bytes, has_aggregates, rest) of a reply; None if it is refused.");

static PyObject *records(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer body;
    PyObject *type, *stream, *shard_id, *made = NULL;
    if (!PyArg_ParseTuple(arguments, "y*OOO", &body, &type, &stream, &shard_id))
        return NULL;
    Reply reply;
    bool has_aggregates = false;
    PyObject **data = read_reply(&reply, &body) ? data_objects(&reply, &has_aggregates) : NULL;
    if (data != NULL) {
        PyObject *list = record_list(&reply, data, type, stream, shard_id);
        PyObject *rest = list == NULL ? NULL : rest_of(&reply);
        if (rest != NULL)
            made = Py_BuildValue("(OnOO)", list, (Py_ssize_t)(reply.bytes[DATA] + reply.bytes[KEY]),
                                 has_aggregates ? Py_True : Py_False, rest);
        Py_XDECREF(list);
        Py_XDECREF(rest);
        for (size_t row = 0; row < reply.count; row++)
            Py_XDECREF(data[row]);
        free(data);
    }
    free(reply.rows);
    PyBuffer_Release(&body);
    if (made == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return made;
}

/* A column: which rows have a value (None: all), the offsets of the values, and the values. */
typedef struct {
    PyObject *validity, *offsets, *values;
} Column;

static bool make_column(const Reply *reply, int text, Column *column)
{
    size_t rows = reply->count, missing = 0;
    for (size_t row = 0; row < rows; row++)
        missing += reply->rows[row].texts[text].at == 0;
    if (missing == 0) {
        Py_INCREF(Py_None);
        column->validity = Py_None;
    } else {
        column->validity = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((rows + 7) / 8));
    }
    column->offsets = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((rows + 1) * sizeof(int32_t)));
    column->values = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)reply->bytes[text]);
    return column->validity != NULL && column->offsets != NULL && column->values != NULL;
}

static bool fill_column(const Reply *reply, int text, const Column *column, bool *has_aggregates)
{
    uint8_t *offsets = (uint8_t *)PyBytes_AsString(column->offsets), *values = (uint8_t *)PyBytes_AsString(column->values);
    uint8_t *validity = column->validity == Py_None ? NULL : (uint8_t *)PyBytes_AsString(column->validity);
    if (validity != NULL)
        memset(validity, 0, (reply->count + 7) / 8);
    int32_t offset = 0;
    memcpy(offsets, &offset, sizeof offset);
    for (size_t row = 0; row < reply->count; row++) {
        const Text *from = &reply->rows[row].texts[text];
        if (from->at) {
            if (text != DATA)
                copy_text(reply->body, from, values + offset);
            else if (!decode_data(reply, from, values + offset))
                return false;
            else
                *has_aggregates |= is_aggregated(values + offset, from->plain);
            if (validity != NULL)
                validity[row / 8] |= (uint8_t)(1U << row % 8);
        }
        offset += (int32_t)from->plain;
        memcpy(offsets + (row + 1) * sizeof offset, &offset, sizeof offset);
    }
    return true;
}

/* The microseconds of all arrivals. */
static void fill_arrivals(const Reply *reply, uint8_t *arrivals, uint8_t *validity, size_t *missing)
{
    memset(validity, 0, (reply->count + 7) / 8);
    for (size_t row = 0; row < reply->count; row++) {
        double seconds = reply->rows[row].arrival;
        int64_t microseconds = 0;
        if (isnan(seconds)) {
            ++*missing;
        } else {
            microseconds = (int64_t)nearbyint(seconds * 1e6);
            validity[row / 8] |= (uint8_t)(1U << row % 8);
        }
        memcpy(arrivals + row * sizeof microseconds, &microseconds, sizeof microseconds);
    }
}

PyDoc_STRVAR(columns_doc,
"columns(body)\n--\n\n"
"Return (rows, data, keys, sequence_numbers, encryption_types, arrivals, has_aggregates, rest) of a reply; None if\n"
"it is refused. The first four columns are (validity, offsets, values), arrivals (validity, microseconds), as the\n"
"buffers of Arrow arrays.");

static PyObject *columns(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer body;
    if (!PyArg_ParseTuple(arguments, "y*", &body))
        return NULL;
    Reply reply;
    Column made[TEXTS] = {{NULL, NULL, NULL}};
    PyObject *arrivals = NULL, *validity = NULL, *rest = NULL, *result = NULL;
    bool is_good = read_reply(&reply, &body), has_aggregates = false;
    for (int text = 0; is_good && text < TEXTS; text++)
        is_good = make_column(&reply, text, &made[text]);
    if (is_good) {
        arrivals = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(reply.count * sizeof(int64_t)));
        validity = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((reply.count + 7) / 8));
        rest = arrivals == NULL || validity == NULL ? NULL : rest_of(&reply);
        is_good = rest != NULL;
    }
    if (is_good) {
        size_t missing = 0;
        bool is_large = body.len >= LARGE_BODY;
        PyThreadState *thread = is_large ? PyEval_SaveThread() : NULL;
        for (int text = 0; is_good && text < TEXTS; text++)
            is_good = fill_column(&reply, text, &made[text], &has_aggregates);
        uint8_t *to = (uint8_t *)PyBytes_AsString(arrivals), *known = (uint8_t *)PyBytes_AsString(validity);
        fill_arrivals(&reply, to, known, &missing);
        if (is_large)
            PyEval_RestoreThread(thread);
        if (is_good) {
            Column *d = &made[DATA], *k = &made[KEY], *s = &made[SEQUENCE], *e = &made[ENCRYPTION];
            result = Py_BuildValue("(n(OOO)(OOO)(OOO)(OOO)(OO)OO)", (Py_ssize_t)reply.count, d->validity, d->offsets,
                                   d->values, k->validity, k->offsets, k->values, s->validity, s->offsets, s->values,
                                   e->validity, e->offsets, e->values, missing ? validity : Py_None, arrivals,
                                   has_aggregates ? Py_True : Py_False, rest);
        }
    }
    for (int text = 0; text < TEXTS; text++) {
        Py_XDECREF(made[text].validity);
        Py_XDECREF(made[text].offsets);
        Py_XDECREF(made[text].values);
    }
    Py_XDECREF(arrivals);
    Py_XDECREF(validity);
    Py_XDECREF(rest);
    free(reply.rows);
    PyBuffer_Release(&body);
    if (result == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return result;
}

PyDoc_STRVAR(use_avx2_doc,
"use_avx2(wanted)\n--\n\n"
"Choose whether base64 uses AVX2, for tests: at first they do if the processor has it. Return what they do now.");

static PyObject *use_avx2(PyObject *module, PyObject *wanted)
{
    (void)module;
    int is_wanted = PyObject_IsTrue(wanted);
    if (is_wanted < 0)
        return NULL;
#ifdef WITH_AVX2
    has_avx2 = is_wanted && __builtin_cpu_supports("avx2");
    return PyBool_FromLong(has_avx2);
#else
    return PyBool_FromLong(0);
#endif
}

static PyMethodDef decoding_methods[] = {
    {"records", records, METH_VARARGS, records_doc},
    {"columns", columns, METH_VARARGS, columns_doc},
    {"use_avx2", use_avx2, METH_O, use_avx2_doc},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    make_digits();
#ifdef WITH_AVX2
    __builtin_cpu_init();
    has_avx2 = __builtin_cpu_supports("avx2");
#endif
    (void)module;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "Decodes GetRecords replies.",
    .m_methods = decoding_methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module);
}
