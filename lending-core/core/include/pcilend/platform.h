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

#define pcilend_static_assert(condition, what) static_assert(condition, what)

/* Makes a function of the core, compiled into pcilend.ko, known to its frontends. */
#define PCILEND_EXPORT(function) EXPORT_SYMBOL_GPL(function)

#else /* userspace: C11 or C++20 on a little-endian machine */

#include <errno.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

#ifdef __cplusplus
#define pcilend_static_assert(condition, what) static_assert(condition, what)
#else
#define pcilend_static_assert(condition, what) _Static_assert(condition, what)
#endif

#define PCILEND_EXPORT(function) pcilend_static_assert(sizeof(&(function)), #function)

#endif /* __KERNEL__ */

/* Around declarations, so that C++ programs can link them. */
#ifdef __cplusplus
#define PCILEND_DECLARATIONS_BEGIN extern "C" {
#define PCILEND_DECLARATIONS_END }
#else
#define PCILEND_DECLARATIONS_BEGIN
#define PCILEND_DECLARATIONS_END
#endif

/* Granule of everything that is mapped across the NTB, whatever the hosts' page size, in bytes. */
#define PCILEND_PAGE 4096ULL

#endif /* PCILEND_PLATFORM_H */
