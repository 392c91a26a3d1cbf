/* show_devices: the devices that a step was granted and how it used them, for people. */
#ifndef STK_SHOW_DEVICES_H
#define STK_SHOW_DEVICES_H

#include "host/runner/runner_samples.h"
#include "show/show_text.h"

/* Stretches of at least STK_IDLE_S seconds in which a device was at most STK_IDLE_PERCENT busy. */
enum { STK_IDLE_S = 2, STK_IDLE_PERCENT = 5 };
typedef struct stk_idle {
    uint32_t n;
    double total_s;
    double longest_s, longest_from_s; /* since the start */
    double known_s;                   /* time for which its utilization is known */
} stk_idle;
/* Returns false if the utilization was never known. */
bool stk_show_idle(const stk_samples *samples, uint32_t i_device, stk_idle *ret_idle);

/* One line per device, nothing if none was granted. Every line but the first begins with `indent`
 * blanks: the caller has written a label there. */
void stk_text_devices(const stk_view_details *details, const stk_style *style, int indent,
                      stk_buf *out);
/* A table of the devices, the verdict and the idle stretches as HTML. If no device was granted:
 * nothing, or a sentence that says so if `profiled`. */
void stk_html_devices(const stk_view_details *details, const stk_samples *samples, bool profiled,
                      stk_buf *out);
/* The alternatives of "any_of": " (H100; 4 × google; nvidia with 10 GB)". Nothing if there are
 * fewer than two. */
void stk_text_alternatives(const stk_resources *asked, bool utf8, stk_buf *out);
/* "5.1 kJ" in `buf`. */
const char *stk_text_energy(double joules, char *buf, size_t size);
/* "12.3 GPU-s held, 8.0 busy, 5.1 kJ", "12.3 TPU chip seconds held". Nothing if the time held is
 * unknown. */
void stk_text_gpu_time(const stk_view_totals *totals, stk_buf *out);

#endif
