/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All that the portable core takes from its surroundings: fixed-width types, byte order, memory
 * and string primitives, errno values, and a static assertion. Nothing in here may allocate,
 * sleep, lock or read a clock.
 */
#ifndef PCILEND_PLATFORM_H
#define PCILEND_PLATFORM_H

#ifdef __KERNEL__

#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/export.h>
#include <linux/kernel.h>
#include <linux/limits.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/unaligned.h>

/* Around declarations, so that C++ programs can link them. */
#define __BEGIN_DECLS
#define __END_DECLS

#else /* userspace: C11 or C++20 on a little-endian machine */

#include <assert.h>
#include <errno.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/cdefs.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#ifndef U64_MAX
#define U32_MAX UINT32_MAX
#define U64_MAX UINT64_MAX
#endif

#ifndef __packed
#define __packed __attribute__((packed))
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the userspace build of the portable core knows little-endian machines only"
#endif

#define cpu_to_le16(x) ((__le16)(x))
#define cpu_to_le32(x) ((__le32)(x))
#define cpu_to_le64(x) ((__le64)(x))
#define le16_to_cpu(x) ((__u16)(x))
#define le32_to_cpu(x) ((__u32)(x))
#define le64_to_cpu(x) ((__u64)(x))

#ifndef ARRAY_SIZE
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#endif

#ifndef BIT_ULL
#define BIT_ULL(n) (1ULL << (n))
#endif

/* In the kernel: frontends may call it. */
#define EXPORT_SYMBOL_GPL(function) static_assert(1, #function)

#endif /* __KERNEL__ */

/* Granule of everything that is mapped across the NTB, whatever the hosts' page size, in bytes. */
#define PCILEND_PAGE 4096ULL

#endif /* PCILEND_PLATFORM_H */
