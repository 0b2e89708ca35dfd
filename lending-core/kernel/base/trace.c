// SPDX-License-Identifier: GPL-2.0-only
/* The one place where the tracepoints of trace.h are made. */

#include <linux/types.h>

#define CREATE_TRACE_POINTS
#include "base/trace.h"
