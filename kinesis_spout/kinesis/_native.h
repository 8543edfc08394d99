/* What the two halves of the module `_native` share. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define WITH_AVX2
#include <immintrin.h>
extern bool has_avx2;
#endif

extern PyMethodDef packing_methods[]; /* of `_packing.c`; ends with an empty one */
