/* Includes that every unit test starts with: cmocka.h needs these headers before it, in this order.
 */
#ifndef STK_BASE_TESTING_H
#define STK_BASE_TESTING_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#endif
