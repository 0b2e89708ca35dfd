// SPDX-License-Identifier: GPL-2.0-or-later
// What libpcilend.so exports; all else in it is hidden.
#pragma once

#define PCILEND_API __attribute__((visibility("default")))
