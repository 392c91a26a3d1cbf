#include "grow/grow.h"
typedef int stk_grow_is_coming;
