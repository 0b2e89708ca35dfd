// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Each public header, as C, in an order that shows what one of them forgets to include. */

#include "pcilend/vconfig.h"
#include "pcilend/granules.h"
#include "pcilend/resolve.h"
#include "pcilend/set.h"
#include "pcilend/tenant.h"
#include "pcilend/mappings.h"
#include "pcilend/mastering.h"
#include "pcilend/reach.h"
#include "pcilend/range.h"
#include "pcilend/path.h"
#include "pcilend/layout.h"
#include "pcilend/lease.h"
#include "pcilend/identity.h"
#include "pcilend/kind.h"
#include "pcilend/wire.h"
#include "pcilend/platform.h"
