/* SPDX-License-Identifier: GPL-2.0-only */
/* The version of modules and programs; CMakeLists.txt and tools/dkms/tree read it here. */
#ifndef PCILEND_VERSION_H
#define PCILEND_VERSION_H

#define PCILEND_VERSION "0.1.0"

#endif
