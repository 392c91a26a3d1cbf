/* findings: the results of the host's checks (host/preflight), for people and programs. */
#ifndef STK_SHOW_FINDINGS_H
#define STK_SHOW_FINDINGS_H

#include "base/buf.h"
#include "host/preflight/preflight.h"

stk_check_level stk_findings_worst(const stk_findings *findings);
/* One line per finding, and one for its remedy. */
void stk_findings_text(const stk_findings *findings, bool colour, stk_buf *out);
/* {"version","worst","findings":[{"level","topic","subject","text","remedy"}…]} and a newline. */
void stk_findings_json(const stk_findings *findings, stk_buf *out);

#endif
