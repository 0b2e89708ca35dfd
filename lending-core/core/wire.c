// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Checks and names of the wire protocol; see wire.h. */

#include <linux/pcilend.h>

#include "pcilend/identity.h"
#include "pcilend/segment.h"
#include "pcilend/wire.h"

#define CONFIG_BYTES 4096u
#define LARGE_PAGE 0x200000u	/* bytes; of an IOMMU on x86 */
#define LAST_STATUS PCILEND_STATUS_NO_REQUESTER

struct msg_kind {
	const char *name;
	u16 type;
	u16 length;		/* payload of a notice or request */
	u16 answer;		/* payload of its answer */
	bool request;
};

static const struct msg_kind msg_kinds[] = {
	{ "function", PCILEND_MSG_FUNCTION, sizeof(struct pcilend_msg_function), 0, false },
	{ "withdraw", PCILEND_MSG_WITHDRAW, sizeof(struct pcilend_msg_id), 0, false },
	{ "lost", PCILEND_MSG_LOST, sizeof(struct pcilend_msg_lease), 0, false },
	{ "connected", PCILEND_MSG_CONNECTED, sizeof(struct pcilend_msg_connected), 0, false },
	{ "recall", PCILEND_MSG_RECALL, sizeof(struct pcilend_msg_recall), 0, false },
	{ "was-reset", PCILEND_MSG_WAS_RESET, sizeof(struct pcilend_msg_lease), 0, false },
	{ "intx-raised", PCILEND_MSG_INTX_RAISED, sizeof(struct pcilend_msg_lease), 0, false },
	{ "unreached", PCILEND_MSG_UNREACHED, sizeof(struct pcilend_msg_unreached), 0, false },
	{ "borrow", PCILEND_MSG_BORROW, sizeof(struct pcilend_msg_borrow),
	  sizeof(struct pcilend_msg_borrowed), true },
	{ "return", PCILEND_MSG_RETURN, sizeof(struct pcilend_msg_lease), 0, true },
	{ "map", PCILEND_MSG_MAP, sizeof(struct pcilend_msg_map), 0, true },
	{ "unmap", PCILEND_MSG_UNMAP, sizeof(struct pcilend_msg_map), 0, true },
	{ "bus-master", PCILEND_MSG_BUS_MASTER, sizeof(struct pcilend_msg_bus_master), 0, true },
	{ "reset", PCILEND_MSG_RESET, sizeof(struct pcilend_msg_lease), 0, true },
	{ "config-read", PCILEND_MSG_CONFIG_READ, sizeof(struct pcilend_msg_config),
	  sizeof(struct pcilend_msg_config), true },
	{ "config-write", PCILEND_MSG_CONFIG_WRITE, sizeof(struct pcilend_msg_config), 0, true },
	{ "sync", PCILEND_MSG_SYNC, 0, 0, true },
	{ "reserve", PCILEND_MSG_RESERVE, sizeof(struct pcilend_msg_reserve), 0, true },
	{ "hello", PCILEND_MSG_HELLO, sizeof(struct pcilend_msg_hello), 0, true },
	{ "vouch", PCILEND_MSG_VOUCH, sizeof(struct pcilend_msg_vouch), 0, true },
	{ "intx", PCILEND_MSG_INTX, sizeof(struct pcilend_msg_intx), 0, true },
	{ "reach", PCILEND_MSG_REACH, sizeof(struct pcilend_msg_reach), 0, true },
	{ "expose", PCILEND_MSG_EXPOSE, sizeof(struct pcilend_msg_expose), 0, true },
	{ "exposed", PCILEND_MSG_EXPOSED, sizeof(struct pcilend_msg_exposed), 0, true },
	{ "msi", PCILEND_MSG_MSI, sizeof(struct pcilend_msg_msi),
	  sizeof(struct pcilend_msg_msi_message), true },
	{ "msi-raised", PCILEND_MSG_MSI_RAISED, sizeof(struct pcilend_msg_msi_raised), 0, true },
	{ "target", PCILEND_MSG_TARGET, sizeof(struct pcilend_msg_target), 0, true },
	{ "near", PCILEND_MSG_NEAR, sizeof(struct pcilend_msg_near), sizeof(struct pcilend_msg_id),
	  true },
	{ "segment-connect", PCILEND_MSG_SEGMENT_CONNECT, sizeof(struct pcilend_msg_connection),
	  sizeof(struct pcilend_msg_segment), true },
	{ "segment-release", PCILEND_MSG_SEGMENT_RELEASE, sizeof(struct pcilend_msg_connection), 0,
	  true },
	{ "segment-withdraw", PCILEND_MSG_SEGMENT_WITHDRAW, sizeof(struct pcilend_msg_withdraw), 0,
	  true },
	{ "segment-next", PCILEND_MSG_SEGMENT_NEXT, sizeof(struct pcilend_msg_after),
	  sizeof(struct pcilend_msg_offered), true },
	{ "client", PCILEND_MSG_CLIENT, sizeof(struct pcilend_msg_client), 0, false },
	{ "client-gone", PCILEND_MSG_CLIENT_GONE, sizeof(struct pcilend_msg_clear), 0, false },
	{ "quarantine", PCILEND_MSG_QUARANTINE, sizeof(struct pcilend_msg_clear), 0, false },
	{ "readmitted", PCILEND_MSG_READMITTED, sizeof(struct pcilend_msg_lease), 0, false },
	{ "policy", PCILEND_MSG_POLICY, sizeof(struct pcilend_msg_policy), 0, true },
	{ "join", PCILEND_MSG_JOIN, sizeof(struct pcilend_msg_join),
	  sizeof(struct pcilend_msg_joined), true },
	{ "cleared", PCILEND_MSG_CLEARED, sizeof(struct pcilend_msg_clear), 0, true },
	{ "mail", PCILEND_MSG_MAIL, sizeof(struct pcilend_msg_mail), 0, true },
	{ "mailed", PCILEND_MSG_MAILED, sizeof(struct pcilend_msg_mail), 0, false },
	{ "vector", PCILEND_MSG_VECTOR, sizeof(struct pcilend_msg_vector), 0, true },
};

struct status_kind {
	const char *name;
	int error;
};

static const struct status_kind status_kinds[] = {
	[PCILEND_STATUS_OK] = { "ok", 0 },
	[PCILEND_STATUS_MALFORMED] = { "malformed", -EPROTO },
	[PCILEND_STATUS_NO_FUNCTION] = { "no-function", -ENODEV },
	[PCILEND_STATUS_UNAVAILABLE] = { "unavailable", -EAGAIN },
	[PCILEND_STATUS_BUSY] = { "busy", -EBUSY },
	[PCILEND_STATUS_NO_LEASE] = { "no-lease", -ESTALE },
	[PCILEND_STATUS_RANGE] = { "range", -ERANGE },
	[PCILEND_STATUS_NO_SPACE] = { "no-space", -ENOSPC },
	[PCILEND_STATUS_FAILED] = { "failed", -EIO },
	[PCILEND_STATUS_QUARANTINED] = { "quarantined", -EUCLEAN },
	[PCILEND_STATUS_OVERLOAD] = { "overload", -EBUSY },
	[PCILEND_STATUS_RESERVED] = { "reserved", -EACCES },
	[PCILEND_STATUS_SET_INCOMPLETE] = { "set-incomplete", -EXDEV },
	[PCILEND_STATUS_SET_TAKEN] = { "set-taken", -EUSERS },
	[PCILEND_STATUS_STRANGER] = { "stranger", -ENOTUNIQ },
	[PCILEND_STATUS_SET_ELSEWHERE] = { "set-elsewhere", -EMLINK },
	[PCILEND_STATUS_NO_ROUTE] = { "no-route", -EOPNOTSUPP },
	[PCILEND_STATUS_NO_LINK] = { "no-link", -EHOSTUNREACH },
	[PCILEND_STATUS_NOT_OFFERED] = { "not-offered", -ECONNREFUSED },
	[PCILEND_STATUS_NO_REQUESTER] = { "no-requester", -EXFULL },
};

static_assert(ARRAY_SIZE(status_kinds) == LAST_STATUS + 1, "a name and an errno for each status");

static const struct msg_kind *wire_find_kind(u16 type)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(msg_kinds); i++) {
		if (msg_kinds[i].type == type)
			return &msg_kinds[i];
	}
	return NULL;
}

static bool wire_is_power_of_two(u64 value)
{
	return value && !(value & (value - 1));
}

static bool wire_page_aligned(u64 value)
{
	return !(value & (PCILEND_PAGE - 1));
}

/* [start, start + size) is not empty, page aligned and inside 64 bits. */
static bool wire_page_range(u64 start, u64 size)
{
	return size && wire_page_aligned(start) && wire_page_aligned(size) && start + size > start;
}

static bool wire_all_zero(const u8 *bytes, size_t size)
{
	while (size && !bytes[size - 1])
		size--;
	return !size;
}

bool pcilend_label_valid(const __u8 label[PCILEND_LABEL_BYTES])
{
	size_t length = 0;

	while (length < PCILEND_LABEL_BYTES && label[length] >= 0x20 && label[length] < 0x7f)
		length++;
	return length < PCILEND_LABEL_BYTES &&
	       wire_all_zero(label + length, PCILEND_LABEL_BYTES - length);
}

static const char *wire_check_id(__le32 id)
{
	return pcilend_id_valid(le32_to_cpu(id)) ? NULL : "id without node or index";
}

static const char *wire_check_lease(__le32 id, __le32 lease)
{
	if (!lease)
		return "lease number 0";
	return wire_check_id(id);
}

static const char *wire_check_bars(const struct pcilend_msg_bar *bar)
{
	const u32 known = PCILEND_BAR_MEM64 | PCILEND_BAR_PREFETCH | PCILEND_BAR_IO;
	unsigned int i;

	for (i = 0; i < PCILEND_BARS; i++) {
		u64 size = le64_to_cpu(bar[i].size);
		u32 flags = le32_to_cpu(bar[i].flags);

		if (flags & ~known)
			return "unknown BAR flags";
		if (!size)
			continue;
		if (!wire_is_power_of_two(size))
			return "BAR size is not a power of two";
		if (flags & PCILEND_BAR_IO) {
			if (flags != PCILEND_BAR_IO || i == 6 || size < 4 || size > 0x10000)
				return "impossible I/O BAR";
			continue;
		}
		if (size < 16)
			return "BAR below 16 bytes";
		if (i == 6) {
			if (flags || size < 2048 || size > 0x1000000)
				return "impossible expansion ROM";
			continue;
		}
		if (!(flags & PCILEND_BAR_MEM64)) {
			if (size > 0x80000000ULL)
				return "32-bit BAR above 2 GiB";
			continue;
		}
		if (i == 5 || bar[i + 1].size)
			return "64-bit BAR without its upper half";
	}
	return NULL;
}

static const char *wire_check_function(const struct pcilend_msg_function *msg)
{
	if (msg->state < PCILEND_FUNCTION_ADDED || msg->state > PCILEND_FUNCTION_QUARANTINED)
		return "unknown function state";
	if (msg->reserved[0] || msg->reserved[1] ||
	    msg->flags & ~(PCILEND_FUNCTION_DIRECT | PCILEND_FUNCTION_SHARED))
		return "reserved bytes set";
	if (le32_to_cpu(msg->borrower) > PCILEND_NODE_MAX)
		return "borrower is not a node id";
	if (!pcilend_uuid_is_ours(msg->uuid))
		return "UUID is not one of a lent function";
	if (!pcilend_label_valid(msg->label))
		return "label is not printable ASCII";
	if (le32_to_cpu(msg->reserved_node) > PCILEND_NODE_MAX)
		return "reserved for what is not a node id";
	return wire_check_id(msg->id) ?: wire_check_bars(msg->bar);
}

static const char *wire_check_borrow(const struct pcilend_msg_borrow *msg)
{
	u32 lease_ms = le32_to_cpu(msg->lease_ms);
	u64 alias = le64_to_cpu(msg->interrupt_alias);

	if (lease_ms < PCILEND_LEASE_MS_MIN || lease_ms > PCILEND_LEASE_MS_MAX)
		return "lease time out of range";
	if (alias & 0xfffff || alias >> 32)
		return "interrupt alias not 1 MiB aligned below 4 GiB";
	/* The function would reach the lender's own interrupt controller. */
	if (alias == 0xfee00000)
		return "interrupt alias on the lender's interrupt range";
	if (msg->reserved)
		return "reserved bytes set";
	if (le32_to_cpu(msg->dma_window) >= PCILEND_WIRE_WINDOWS ||
	    !wire_page_aligned(le64_to_cpu(msg->dma_offset)))
		return "DMA area at an impossible place";
	return wire_check_id(msg->id);
}

static const char *wire_check_reserve(const struct pcilend_msg_reserve *msg)
{
	u32 ttl_ms = le32_to_cpu(msg->ttl_ms);
	bool uuid = !wire_all_zero(msg->uuid, sizeof(msg->uuid));

	if (le32_to_cpu(msg->node) > PCILEND_NODE_MAX)
		return "reserved for what is not a node id";
	if (msg->node && uuid)
		return "reserved for two";
	if (!msg->node && !uuid) {
		if (ttl_ms)
			return "reserved for nobody";
	} else if (ttl_ms < PCILEND_RESERVE_MS_MIN || ttl_ms > PCILEND_RESERVE_MS_MAX) {
		return "reserved for an impossible time";
	}
	return wire_check_id(msg->id);
}

static const char *wire_check_placements(const struct pcilend_msg_placement *bar, unsigned int bars)
{
	unsigned int i;

	for (i = 0; i < bars; i++) {
		u64 offset = le64_to_cpu(bar[i].offset);
		u64 size = le64_to_cpu(bar[i].size);
		u32 shift = le32_to_cpu(bar[i].shift);

		if (!size)
			continue;
		if (le32_to_cpu(bar[i].window) >= PCILEND_WIRE_WINDOWS)
			return "BAR placed in an impossible window";
		if (size < PCILEND_PAGE ? shift + size > PCILEND_PAGE :
					  shift || !wire_page_aligned(size))
			return "BAR placed at an impossible shift";
		if (!wire_page_aligned(offset) || offset + size < offset)
			return "BAR placed at an impossible offset";
	}
	return NULL;
}

static const char *wire_check_borrowed(const struct pcilend_msg_borrowed *msg)
{
	const char *fault = wire_check_placements(msg->bar, ARRAY_SIZE(msg->bar));

	if (fault)
		return fault;
	/* Sums of these and what is in the DMA area don't wrap. */
	if (!wire_page_aligned(le64_to_cpu(msg->dma_address)) ||
	    le64_to_cpu(msg->dma_address) >> 62 ||
	    le64_to_cpu(msg->interrupt_address) & 0xfffff ||
	    (msg->interrupt_address && !msg->dma_address))
		return "device-side addresses that can't be";
	fault = wire_check_lease(msg->id, msg->lease);
	if (fault)
		return fault;
	if (msg->dma_address ? msg->last_address != 0 :
			       !msg->last_address || le64_to_cpu(msg->last_address) >> 62 ||
			       !wire_page_aligned(le64_to_cpu(msg->last_address) + 1))
		return "a last address that can't be";
	return NULL;
}

static const char *wire_check_map(const struct pcilend_msg_map *msg, bool map)
{
	if (msg->reserved)
		return "reserved bytes set";
	if (!wire_page_range(le64_to_cpu(msg->device_address), le64_to_cpu(msg->size)))
		return "device-side range empty, unaligned or past the end";
	if (map && !wire_page_range(le64_to_cpu(msg->offset), le64_to_cpu(msg->size)))
		return "window range unaligned or past the end";
	if (map && le32_to_cpu(msg->window) >= PCILEND_WIRE_WINDOWS)
		return "impossible window";
	return wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_config(const struct pcilend_msg_config *msg, bool write)
{
	u32 offset = le16_to_cpu(msg->offset);
	u32 length = le16_to_cpu(msg->length);

	if (!length || length > PCILEND_CONFIG_CHUNK || offset + length > CONFIG_BYTES)
		return "configuration access out of range";
	if (write && (length > 4 || length == 3 || offset % length))
		return "configuration write not 1, 2 or 4 bytes, aligned";
	return wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_flag(__le32 flag)
{
	return le32_to_cpu(flag) > 1 ? "flag neither 0 nor 1" : NULL;
}

static const char *wire_check_reach(const struct pcilend_msg_reach *msg)
{
	if (msg->reserved)
		return "reserved bytes set";
	if (!wire_page_range(le64_to_cpu(msg->device_address), PCILEND_PAGE))
		return "device-side address unaligned or past the end";
	if (le32_to_cpu(msg->bar) > 5)
		return "no BAR of that number";
	if (msg->target == msg->id)
		return "a function that is to reach itself";
	return wire_check_flag(msg->on) ?: wire_check_lease(msg->target, msg->target_lease) ?:
	       wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_expose(const struct pcilend_msg_expose *msg)
{
	if (!msg->node || le32_to_cpu(msg->node) > PCILEND_NODE_MAX)
		return "exposed to what is not a node id";
	return wire_check_flag(msg->on) ?: wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_exposed(const struct pcilend_msg_exposed *msg)
{
	const char *fault = wire_check_flag(msg->on) ?: wire_check_lease(msg->id, msg->lease);
	unsigned int i;

	if (fault)
		return fault;
	if (!msg->borrower || le32_to_cpu(msg->borrower) > PCILEND_NODE_MAX)
		return "borrower is not a node id";
	if (!msg->on)
		return NULL;
	for (i = 0; i < 6; i++) {
		u64 size = le64_to_cpu(msg->bar[i].size);

		if (!size)
			continue;
		if (!wire_page_aligned(size) || !wire_is_power_of_two(size))
			return "exposed BAR is not whole pages, a power of two";
		/* So that it takes few page tables of the receiver's. */
		if (le64_to_cpu(msg->bar[i].offset) &
		    ((size < LARGE_PAGE ? size : LARGE_PAGE) - 1))
			return "exposed BAR is not aligned";
	}
	return wire_check_placements(msg->bar, ARRAY_SIZE(msg->bar));
}

static const char *wire_check_msi(const struct pcilend_msg_msi *msg)
{
	u32 vector = le32_to_cpu(msg->vector);
	u32 count = le32_to_cpu(msg->count);

	if (vector >= PCILEND_RELAY_VECTORS)
		return "a vector that is not relayed";
	if (!wire_is_power_of_two(count) || count > PCILEND_RELAY_MSI_MAX || (count > 1 && vector))
		return "an impossible number of vectors";
	return wire_check_flag(msg->on) ?: wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_msi_message(const struct pcilend_msg_msi_message *msg)
{
	if (msg->reserved)
		return "reserved bytes set";
	if (le64_to_cpu(msg->address) & 3)
		return "interrupt message to an unaligned address";
	return wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_msi_raised(const struct pcilend_msg_msi_raised *msg)
{
	if (!msg->vectors)
		return "no vector has raised an interrupt";
	return wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_unreached(const struct pcilend_msg_unreached *msg)
{
	return wire_check_id(msg->target) ?: wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_target(const struct pcilend_msg_target *msg)
{
	u64 size = le64_to_cpu(msg->size);

	if (le32_to_cpu(msg->flags) & ~(PCILEND_TARGET_ON | PCILEND_TARGET_READ_ONLY))
		return "reserved bytes set";
	if (!wire_page_range(le64_to_cpu(msg->device_address), size))
		return "device-side range empty, unaligned or past the end";
	if (size > PCILEND_SEGMENT_BYTES_MAX)
		return "segment of an impossible size";
	return wire_check_id(msg->segment) ?: wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_near(const struct pcilend_msg_near *msg)
{
	u64 size = le64_to_cpu(msg->size);

	if (!size || !wire_page_aligned(size) || size > PCILEND_NEAR_BYTES_MAX)
		return "memory of an impossible size";
	return wire_check_lease(msg->id, msg->lease);
}

static const char *wire_check_connection(const struct pcilend_msg_connection *msg, bool connect)
{
	if (!msg->connection)
		return "connection number 0";
	if (connect ? le32_to_cpu(msg->node) > PCILEND_NODE_MAX : msg->node != 0)
		return "connected for what is not a node id";
	return wire_check_id(msg->id);
}

static const char *wire_check_withdraw(const struct pcilend_msg_withdraw *msg)
{
	return msg->offer ? wire_check_id(msg->id) : "offer number 0";
}

static const char *wire_check_after(const struct pcilend_msg_after *msg)
{
	return msg->id ? wire_check_id(msg->id) : NULL;
}

static const char *wire_check_offered(const struct pcilend_msg_offered *msg)
{
	u64 size = le64_to_cpu(msg->size);

	if (!wire_page_range(0, size) || size > PCILEND_SEGMENT_BYTES_MAX)
		return "segment of an impossible size";
	if (le32_to_cpu(msg->flags) & ~(PCILEND_SEGMENT_READ_ONLY | PCILEND_SEGMENT_NOTIFIES))
		return "reserved bytes set";
	if (!pcilend_label_valid(msg->name))
		return "label is not printable ASCII";
	return wire_check_id(msg->id);
}

static const char *wire_check_segment(const struct pcilend_msg_segment *msg)
{
	u64 size = le64_to_cpu(msg->size);
	u32 flags = le32_to_cpu(msg->flags);
	u32 notify = le32_to_cpu(msg->notify_offset);

	if (!msg->offer)
		return "offer number 0";
	if (!wire_page_range(le64_to_cpu(msg->offset), size) || size > PCILEND_SEGMENT_BYTES_MAX)
		return "segment at an impossible place";
	if (le32_to_cpu(msg->window) >= PCILEND_WIRE_WINDOWS)
		return "impossible window";
	if (flags & ~(PCILEND_SEGMENT_READ_ONLY | PCILEND_SEGMENT_NOTIFIES))
		return "reserved bytes set";
	if (flags & PCILEND_SEGMENT_NOTIFIES ?
	    notify & 3 || notify >= 0x100000 : notify || msg->notify_data)
		return "notified at an impossible place";
	return wire_check_id(msg->id);
}

static const char *wire_check_hello(const struct pcilend_msg_hello *msg)
{
	u32 lease_ms = le32_to_cpu(msg->lease_ms);
	u32 windows = le32_to_cpu(msg->windows);
	u32 interrupts = le32_to_cpu(msg->interrupt_window);
	u32 i;

	if (msg->reserved)
		return "reserved bytes set";
	if (lease_ms < PCILEND_LEASE_MS_MIN || lease_ms > PCILEND_LEASE_MS_MAX)
		return "lease time out of range";
	if (!windows || windows > PCILEND_WIRE_WINDOWS ||
	    (interrupts >= PCILEND_WIRE_WINDOWS && interrupts != PCILEND_WIRE_NO_WINDOW))
		return "impossible window";
	if (interrupts == PCILEND_WIRE_NO_WINDOW && msg->interrupt_offset)
		return "interrupts at an offset in no window";
	if (le64_to_cpu(msg->interrupt_offset) & 0xfffff)
		return "interrupts not 1 MiB aligned";
	if (!wire_page_aligned(le64_to_cpu(msg->hole)) ||
	    !wire_page_aligned(le64_to_cpu(msg->dma_limit)) || !msg->dma_limit)
		return "PCI hole or DMA area not page aligned";
	for (i = windows; i < PCILEND_WIRE_WINDOWS; i++) {
		if (msg->window[i])
			return "reserved bytes set";
	}
	return NULL;
}

static const char *wire_check_request(u16 type, const void *payload)
{
	const struct pcilend_msg_lease *lease = payload;
	const struct pcilend_msg_recall *recall = payload;
	const struct pcilend_msg_vouch *vouch = payload;
	const struct pcilend_msg_bus_master *bus_master = payload;
	const struct pcilend_msg_intx *intx = payload;

	switch (type) {
	case PCILEND_MSG_FUNCTION:
		return wire_check_function(payload);
	case PCILEND_MSG_WITHDRAW:
		return wire_check_id(((const struct pcilend_msg_id *)payload)->id);
	case PCILEND_MSG_LOST:
		if (le32_to_cpu(lease->reason) < PCILEND_LOST_REVOKED ||
		    le32_to_cpu(lease->reason) > PCILEND_LOST_GONE)
			return "unknown reason of a lost lease";
		return wire_check_lease(lease->id, lease->lease);
	case PCILEND_MSG_RECALL:
		if (le32_to_cpu(recall->grace_ms) > PCILEND_GRACE_MS_MAX)
			return "grace time out of range";
		return wire_check_lease(recall->id, recall->lease);
	case PCILEND_MSG_RESERVE:
		return wire_check_reserve(payload);
	case PCILEND_MSG_CONNECTED:
		return wire_check_flag(((const struct pcilend_msg_connected *)payload)->connected);
	case PCILEND_MSG_BORROW:
		return wire_check_borrow(payload);
	case PCILEND_MSG_WAS_RESET:
	case PCILEND_MSG_INTX_RAISED:
	case PCILEND_MSG_RETURN:
	case PCILEND_MSG_RESET:
		if (lease->reason)
			return "reserved bytes set";
		return wire_check_lease(lease->id, lease->lease);
	case PCILEND_MSG_MAP:
	case PCILEND_MSG_UNMAP:
		return wire_check_map(payload, type == PCILEND_MSG_MAP);
	case PCILEND_MSG_BUS_MASTER:
		return wire_check_flag(bus_master->on) ?: wire_check_lease(bus_master->id,
								  bus_master->lease);
	case PCILEND_MSG_INTX:
		if (le32_to_cpu(intx->state) > PCILEND_INTX_OPEN)
			return "unknown state of a legacy interrupt";
		return wire_check_lease(intx->id, intx->lease);
	case PCILEND_MSG_REACH:
		return wire_check_reach(payload);
	case PCILEND_MSG_EXPOSE:
		return wire_check_expose(payload);
	case PCILEND_MSG_EXPOSED:
		return wire_check_exposed(payload);
	case PCILEND_MSG_UNREACHED:
		return wire_check_unreached(payload);
	case PCILEND_MSG_MSI:
		return wire_check_msi(payload);
	case PCILEND_MSG_MSI_RAISED:
		return wire_check_msi_raised(payload);
	case PCILEND_MSG_TARGET:
		return wire_check_target(payload);
	case PCILEND_MSG_NEAR:
		return wire_check_near(payload);
	case PCILEND_MSG_SEGMENT_CONNECT:
	case PCILEND_MSG_SEGMENT_RELEASE:
		return wire_check_connection(payload, type == PCILEND_MSG_SEGMENT_CONNECT);
	case PCILEND_MSG_SEGMENT_WITHDRAW:
		return wire_check_withdraw(payload);
	case PCILEND_MSG_SEGMENT_NEXT:
		return wire_check_after(payload);
	case PCILEND_MSG_CONFIG_READ:
	case PCILEND_MSG_CONFIG_WRITE:
		return wire_check_config(payload, type == PCILEND_MSG_CONFIG_WRITE);
	case PCILEND_MSG_HELLO:
		return wire_check_hello(payload);
	case PCILEND_MSG_VOUCH:
		return vouch->asker && vouch->asked ? NULL : "boot id 0";
	case PCILEND_MSG_SYNC: /* no payload */
		return NULL;
	default:
		return pcilend_wire_share_fault(type, false, payload);
	}
}

static const char *wire_check_answer(u16 type, const void *payload)
{
	switch (type) {
	case PCILEND_MSG_BORROW:
		return wire_check_borrowed(payload);
	case PCILEND_MSG_CONFIG_READ:
		return wire_check_config(payload, false);
	case PCILEND_MSG_MSI:
		return wire_check_msi_message(payload);
	case PCILEND_MSG_NEAR:
		return wire_check_id(((const struct pcilend_msg_id *)payload)->id);
	case PCILEND_MSG_SEGMENT_CONNECT:
		return wire_check_segment(payload);
	case PCILEND_MSG_SEGMENT_NEXT:
		return wire_check_offered(payload);
	default:
		return pcilend_wire_share_fault(type, true, payload);
	}
}

static const char *wire_check_message(const void *slot, u64 boot, u32 sequence)
{
	const struct pcilend_msg_header *header = slot;
	const void *payload = header + 1;
	u16 type = le16_to_cpu(header->type);
	u16 flags = le16_to_cpu(header->flags);
	u16 status = le16_to_cpu(header->status);
	const struct msg_kind *kind = wire_find_kind(type);
	bool answer = flags & PCILEND_MSG_FLAG_ANSWER;

	if (!kind)
		return "unknown type";
	if (flags & ~PCILEND_MSG_FLAG_ANSWER)
		return "unknown flags";
	if (answer && !kind->request)
		return "answer to a notice";
	if (le64_to_cpu(header->boot) != boot)
		return "boot id of somebody else";
	if (le32_to_cpu(header->sequence) != sequence)
		return "out of sequence";
	if (le16_to_cpu(header->length) != (answer ? kind->answer : kind->length))
		return "wrong length";
	if (kind->request != !!header->request)
		return kind->request ? "request number 0" : "notice with a request number";
	if (!answer)
		return status ? "status outside an answer" : wire_check_request(type, payload);
	if (status > LAST_STATUS)
		return "unknown status";
	return status == PCILEND_STATUS_OK ? wire_check_answer(type, payload) : NULL;
}

int pcilend_wire_check(const void *slot, __u64 boot, __u32 sequence, const char **why)
{
	const char *fault = wire_check_message(slot, boot, sequence);

	if (!fault)
		return 0;
	if (why)
		*why = fault;
	return -EPROTO;
}

int pcilend_wire_check_polled(const void *slot, __u64 boot, __u32 number, const char **why)
{
	const struct pcilend_msg_header *header = slot;
	int err = pcilend_wire_check(slot, boot, number, why);
	__u16 type = le16_to_cpu(header->type);

	if (err)
		return err;
	if (!(header->flags & cpu_to_le16(PCILEND_MSG_FLAG_ANSWER)) &&
	    (type == PCILEND_MSG_BUS_MASTER || type == PCILEND_MSG_CONFIG_WRITE))
		return 0;
	if (why)
		*why = "it is not a request that is polled for";
	return -EPROTO;
}

int pcilend_wire_length(__u16 type, int answer)
{
	const struct msg_kind *kind = wire_find_kind(type);

	if (!kind || (answer && !kind->request))
		return -EPROTO;
	return answer ? kind->answer : kind->length;
}

void *pcilend_wire_begin(void *slot, __u16 type, int answer, __u16 status, __u32 request,
			 __u32 sequence, __u64 boot)
{
	struct pcilend_msg_header *header = slot;
	int length = pcilend_wire_length(type, answer);

	memset(slot, 0, PCILEND_SLOT_BYTES);
	header->type = cpu_to_le16(type);
	header->flags = cpu_to_le16(answer ? PCILEND_MSG_FLAG_ANSWER : 0);
	header->status = cpu_to_le16(status);
	header->length = cpu_to_le16(length < 0 ? 0 : length);
	header->request = cpu_to_le32(request);
	header->sequence = cpu_to_le32(sequence);
	header->boot = cpu_to_le64(boot);
	return header + 1;
}

bool pcilend_function_same(const struct pcilend_msg_function *known,
			   const struct pcilend_msg_function *told)
{
	return known->id == told->id && !memcmp(known->uuid, told->uuid, sizeof(told->uuid)) &&
	       known->vendor == told->vendor && known->device == told->device &&
	       known->subsystem_vendor == told->subsystem_vendor &&
	       known->subsystem_device == told->subsystem_device &&
	       known->class_revision == told->class_revision && known->serial == told->serial &&
	       !memcmp(known->bar, told->bar, sizeof(told->bar));
}

int pcilend_status_to_errno(__u16 status)
{
	return status <= LAST_STATUS ? status_kinds[status].error : -EPROTO;
}

__u16 pcilend_status_from_errno(int error)
{
	switch (error) {
	case 0:
		return PCILEND_STATUS_OK;
	case -EPROTO:
	case -EINVAL:
		return PCILEND_STATUS_MALFORMED;
	case -ENODEV:
	case -ENOENT:
	case -EPERM:
		return PCILEND_STATUS_NO_FUNCTION;
	case -EAGAIN:
		return PCILEND_STATUS_UNAVAILABLE;
	case -EBUSY:
	case -EALREADY:
		return PCILEND_STATUS_BUSY;
	case -ESTALE:
		return PCILEND_STATUS_NO_LEASE;
	case -ERANGE:
		return PCILEND_STATUS_RANGE;
	case -ENOSPC:
	case -ENOMEM:
		return PCILEND_STATUS_NO_SPACE;
	case -EUCLEAN:
		return PCILEND_STATUS_QUARANTINED;
	case -EACCES:
		return PCILEND_STATUS_RESERVED;
	case -EXDEV:
		return PCILEND_STATUS_SET_INCOMPLETE;
	case -EUSERS:
		return PCILEND_STATUS_SET_TAKEN;
	case -ENOTUNIQ:
		return PCILEND_STATUS_STRANGER;
	case -EMLINK:
		return PCILEND_STATUS_SET_ELSEWHERE;
	case -EOPNOTSUPP:
		return PCILEND_STATUS_NO_ROUTE;
	case -EHOSTUNREACH:
		return PCILEND_STATUS_NO_LINK;
	case -ECONNREFUSED:
		return PCILEND_STATUS_NOT_OFFERED;
	case -EXFULL:
		return PCILEND_STATUS_NO_REQUESTER;
	default:
		return PCILEND_STATUS_FAILED;
	}
}

const char *pcilend_status_name(__u16 status)
{
	return status <= LAST_STATUS ? status_kinds[status].name : "unknown";
}

const char *pcilend_msg_name(__u16 type)
{
	const struct msg_kind *kind = wire_find_kind(type);

	return kind ? kind->name : "unknown";
}
