// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Checks of messages about shared functions; see wire_share.h. */

#include <linux/pcilend.h>

#include "pcilend/identity.h"
#include "pcilend/share.h"
#include "pcilend/wire.h"

static_assert(PCILEND_WIRE_SHARE_CLIENTS == PCILEND_SHARE_CLIENTS, "clients");
static_assert(PCILEND_WIRE_SHARE_VECTORS == PCILEND_SHARE_VECTORS, "vectors");
static_assert(PCILEND_WIRE_SHARE_RANGES == PCILEND_SHARE_RANGES, "ranges");
static_assert(PCILEND_WIRE_MAIL_BYTES == PCILEND_MAIL_BYTES, "mail");

static bool wire_share_pages(__le64 value)
{
	return !(le64_to_cpu(value) & (PCILEND_PAGE - 1));
}

static bool wire_share_slice_size(__le64 bytes)
{
	u64 value = le64_to_cpu(bytes);

	return value >= PCILEND_PAGE && value <= PCILEND_SLICE_MAX && !(value & (value - 1));
}

static const char *wire_share_lease(__le32 id, __le32 lease)
{
	if (!pcilend_id_valid(le32_to_cpu(id)))
		return "function id without node or index";
	return lease ? NULL : "lease number 0";
}

static const char *wire_share_ranges(const struct pcilend_msg_share_range *range)
{
	unsigned int i;

	for (i = 0; i < PCILEND_WIRE_SHARE_RANGES; i++) {
		if (range[i].reserved)
			return "reserved bytes set";
		if (range[i].pages && (range[i].bar > 5 || range[i].kind > PCILEND_SHARE_POOL))
			return "pages of no BAR";
	}
	return NULL;
}

static const char *wire_share_policy(const struct pcilend_msg_policy *msg)
{
	if (le32_to_cpu(msg->clients) > PCILEND_WIRE_SHARE_CLIENTS)
		return "too many clients";
	if (le32_to_cpu(msg->vectors) > PCILEND_WIRE_SHARE_VECTORS)
		return "too many vectors";
	if (msg->clients && !wire_share_slice_size(msg->slice_bytes))
		return "a slice of an impossible size";
	if (!wire_share_pages(msg->near_bytes))
		return "near memory is not whole pages";
	return wire_share_ranges(msg->range) ?: wire_share_lease(msg->id, msg->lease);
}

static const char *wire_share_join(const struct pcilend_msg_join *msg)
{
	u32 lease_ms = le32_to_cpu(msg->lease_ms);
	u64 offset = le64_to_cpu(msg->slice_offset);

	if (lease_ms < PCILEND_LEASE_MS_MIN || lease_ms > PCILEND_LEASE_MS_MAX)
		return "lease time out of range";
	if (le32_to_cpu(msg->vectors) > PCILEND_WIRE_SHARE_VECTORS)
		return "too many vectors";
	if (!wire_share_slice_size(msg->slice_bytes))
		return "a slice of an impossible size";
	if (le32_to_cpu(msg->slice_window) >= PCILEND_WIRE_WINDOWS)
		return "impossible window";
	if (!wire_share_pages(msg->slice_offset) ||
	    offset + le64_to_cpu(msg->slice_bytes) < offset)
		return "a slice at an impossible offset";
	if (!wire_share_pages(msg->near_bytes))
		return "near memory is not whole pages";
	return wire_share_lease(msg->id, cpu_to_le32(1));
}

static const char *wire_share_slice(__le64 slice, __le64 alias)
{
	u64 address = le64_to_cpu(slice);

	if (address < PCILEND_SLICE_START || address >> 62 || !wire_share_pages(slice))
		return "a slice at an impossible address";
	address = le64_to_cpu(alias);
	if (!address || address > PCILEND_ALIAS_FIRST || address & (PCILEND_ALIAS_BYTES - 1))
		return "an interrupt alias at an impossible address";
	return NULL;
}

static const char *wire_share_joined(const struct pcilend_msg_joined *msg)
{
	unsigned int i;

	for (i = 0; i < PCILEND_WIRE_SHARE_RANGES; i++) {
		u64 offset = le64_to_cpu(msg->range[i].offset);
		u64 size = le32_to_cpu(msg->range[i].pages) * PCILEND_PAGE;

		if (!size)
			continue;
		if (le32_to_cpu(msg->range[i].window) >= PCILEND_WIRE_WINDOWS)
			return "impossible window";
		if (!wire_share_pages(msg->range[i].offset) || offset + size < offset)
			return "BAR pages at an impossible offset";
		if (msg->range[i].bar > 5)
			return "pages of no BAR";
	}
	if (le32_to_cpu(msg->piece) >= PCILEND_WIRE_SHARE_CLIENTS)
		return "too many clients";
	if (le32_to_cpu(msg->vector) >
	    PCILEND_WIRE_SHARE_CLIENTS * PCILEND_WIRE_SHARE_VECTORS)
		return "too many vectors";
	return wire_share_slice(msg->slice, msg->alias) ?: wire_share_lease(msg->id, msg->lease);
}

static const char *wire_share_client(const struct pcilend_msg_client *msg)
{
	u64 bytes = le64_to_cpu(msg->slice_bytes);

	if (!msg->client)
		return "lease number 0";
	if (!msg->node || le32_to_cpu(msg->node) > PCILEND_NODE_MAX)
		return "a client that is not a node id";
	if (!wire_share_slice_size(msg->slice_bytes))
		return "a slice of an impossible size";
	if (le64_to_cpu(msg->slice) & (bytes - 1))
		return "a slice that is not aligned to its size";
	if (le32_to_cpu(msg->vectors) > PCILEND_WIRE_SHARE_VECTORS)
		return "too many vectors";
	if (le32_to_cpu(msg->piece) >= PCILEND_WIRE_SHARE_CLIENTS)
		return "too many clients";
	return wire_share_slice(msg->slice, msg->alias) ?: wire_share_lease(msg->id, msg->lease);
}

static const char *wire_share_clear(const struct pcilend_msg_clear *msg)
{
	if (!msg->client)
		return "lease number 0";
	if (!msg->round)
		return "round 0";
	return wire_share_lease(msg->id, msg->lease);
}

static const char *wire_share_mail(const struct pcilend_msg_mail *msg)
{
	u32 bytes = le32_to_cpu(msg->bytes);
	u32 i;

	if (!msg->number)
		return "mail without a number";
	if (!bytes || bytes > PCILEND_WIRE_MAIL_BYTES)
		return "mail of an impossible size";
	for (i = bytes; i < PCILEND_WIRE_MAIL_BYTES; i++)
		if (msg->text[i])
			return "reserved bytes set";
	return wire_share_lease(msg->id, msg->lease);
}

static const char *wire_share_vector(const struct pcilend_msg_vector *msg)
{
	u32 offset = le32_to_cpu(msg->offset);

	if (le32_to_cpu(msg->vector) >= PCILEND_WIRE_SHARE_VECTORS)
		return "too many vectors";
	if (le32_to_cpu(msg->on) > 1)
		return "neither on nor off";
	if (offset >= PCILEND_ALIAS_BYTES || offset & 3)
		return "an interrupt outside the interrupt range";
	return wire_share_lease(msg->id, msg->lease);
}

const char *pcilend_wire_share_fault(__u16 type, bool answer, const void *payload)
{
	const struct pcilend_msg_lease *lease = payload;

	if (answer)
		return type == PCILEND_MSG_JOIN ? wire_share_joined(payload) : NULL;
	switch (type) {
	case PCILEND_MSG_MAIL:
	case PCILEND_MSG_MAILED:
		return wire_share_mail(payload);
	case PCILEND_MSG_VECTOR:
		return wire_share_vector(payload);
	case PCILEND_MSG_POLICY:
		return wire_share_policy(payload);
	case PCILEND_MSG_JOIN:
		return wire_share_join(payload);
	case PCILEND_MSG_CLIENT:
		return wire_share_client(payload);
	case PCILEND_MSG_CLIENT_GONE:
	case PCILEND_MSG_QUARANTINE:
	case PCILEND_MSG_CLEARED:
		return wire_share_clear(payload);
	case PCILEND_MSG_READMITTED:
		return le32_to_cpu(lease->reason) > PCILEND_READMITTED_AGAIN ?
			"reserved bytes set" : wire_share_lease(lease->id, lease->lease);
	default:
		return NULL;
	}
}
