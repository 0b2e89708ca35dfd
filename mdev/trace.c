// SPDX-License-Identifier: GPL-2.0-only
/* Makes the tracepoints of mdev_trace.h. */

#define CREATE_TRACE_POINTS
#include "mdev_trace.h"
