/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Address resolution: at which address does a CPU or a function reach a target, over which links,
 * and what has to be mapped on the way? A model, for tests and benchmarks: pcilend.ko maps what it
 * needs without asking it.
 *
 *	function -- private domain --> window of an adapter == link ==> IOMMU domain of the
 *	peer's adapter --> window of another adapter == link ==> ... --> memory, or a BAR
 *
 * A CPU starts at the window; on the target's own host nothing is crossed. The fewest links win.
 * Nothing here changes a mapping: what is needed is returned, in the order a transaction meets it,
 * and the caller maps it, in the reverse order, so that nothing leads nowhere.
 *
 * The caller describes hosts, adapters and links in arrays of its own and refers to them by index.
 * It serialises against changes of them. Addresses and sizes are bytes.
 */
#ifndef PCILEND_RESOLVE_H
#define PCILEND_RESOLVE_H

#include "pcilend/layout.h"
#include "pcilend/platform.h"
#include "pcilend/range.h"

__BEGIN_DECLS

#define PCILEND_PATH_HOPS 8		/* no path crosses more links */
#define PCILEND_RESOLVE_TEXT_BYTES 256
#define PCILEND_ANYWHERE U64_MAX

/* Parts of an aperture in which something can be mapped. */
enum pcilend_space {
	PCILEND_SPACE_DMA,	/* [0, dma_limit): what the DMA API maps: a host's own memory */
	PCILEND_SPACE_EXPORTS,	/* BARs, and windows of other adapters */
	PCILEND_SPACE_SLOTS,	/* pinned pages: guest memory, segments */
	PCILEND_SPACES,
};

struct pcilend_topo_host {
	u32 node;		/* its id, for people */
	bool translated;	/* IOMMU on, not in passthrough mode */
	bool p2p;		/* its root ports and switches route from device to device */
};

/* A memory window onto the peer. */
struct pcilend_topo_window {
	u64 phys;		/* on the adapter's own host */
	u64 size;
};

struct pcilend_topo_adapter {
	u32 host;
	const char *name;	/* for people, such as its PCI address */
	const struct pcilend_topo_window *window;
	u32 windows;
	const struct pcilend_layout *layout; /* of its own host's aperture: what the peer sees */
	/* What is in use there. NULL: nothing can be added, only what is placed is reached. */
	const struct pcilend_range *space[PCILEND_SPACES];
};

struct pcilend_topo_link {
	u32 adapter[2];
	bool up;
};

struct pcilend_topology {
	const struct pcilend_topo_host *host;
	const struct pcilend_topo_adapter *adapter;
	const struct pcilend_topo_link *link;
	u32 hosts;
	u32 adapters;
	u32 links;
};

/**
 * pcilend_topology_check - may pcilend_resolve() be asked about it?
 * @why: on refusal, what is wrong; PCILEND_RESOLVE_TEXT_BYTES are enough
 *
 * Return: 0; -EINVAL if an index leads nowhere, a link joins a host with itself, two links share an
 * adapter, or a layout has a window that ends beyond 64 bits or more windows than it can hold.
 */
int pcilend_topology_check(const struct pcilend_topology *topology, char *why, size_t why_bytes);

enum pcilend_target_kind {
	PCILEND_TARGET_BAR,	/* of a function; its pages hold nothing else */
	PCILEND_TARGET_SEGMENT,	/* memory of a host */
	PCILEND_TARGET_GUEST,	/* contiguous memory of a VM */
};

/* All of a target is mapped already, from @iova on, in the domain of one of its host's adapters. */
struct pcilend_placed {
	u32 adapter;
	u64 iova;		/* page aligned */
};

struct pcilend_target {
	enum pcilend_target_kind kind;
	u32 host;
	u64 phys;		/* page aligned */
	u64 size;
	const struct pcilend_placed *placed;
	u32 placed_count;
};

struct pcilend_viewpoint {
	u32 host;
	bool device;		/* a function in a private domain; else a CPU */
	/*
	 * Devices only: the address that the range is to have there (the guest's, say), free in
	 * the private domain; or PCILEND_ANYWHERE: the lowest that is free in @space, which leaves
	 * out PCILEND_MSI_IOVA.
	 */
	u64 at;
	const struct pcilend_range *space;
};

/* Who wants to reach [offset, +size) of what. */
struct pcilend_resolve_request {
	struct pcilend_viewpoint from;
	struct pcilend_target target;
	u64 offset;
	u64 size;
};

enum pcilend_domain {
	PCILEND_DOMAIN_FUNCTION,	/* private domain of the function that looks */
	PCILEND_DOMAIN_ADAPTER,
};

/* [iova, +size) of a domain leads to [phys, +size) of its host; whole pages. */
struct pcilend_mapping {
	enum pcilend_domain domain;
	u32 adapter;		/* PCILEND_DOMAIN_ADAPTER only, as are: */
	enum pcilend_space space;
	bool present;		/* the target is placed there: nothing to do */
	bool mmio;		/* a BAR or a window, not memory */
	u64 iova;		/* what pcilend_range_alloc(size, align) gives in the space */
	u64 phys;
	u64 size;
	u64 align;
};

struct pcilend_path {
	u64 address;		/* to be used at the viewpoint */
	u32 hops;
	u32 link[PCILEND_PATH_HOPS];	/* crossed, from the viewpoint on */
	u32 mappings;
	struct pcilend_mapping mapping[PCILEND_PATH_HOPS + 1];
};

/**
 * pcilend_resolve - the shortest ways from a viewpoint to a target
 * @topology: passed pcilend_topology_check()
 * @distance: room for @topology->hosts bytes, used while this runs
 * @paths: filled in with shortest paths, in ascending order of their link numbers
 * @capacity: at least 1; with 1 there is just the choice
 * @why: on refusal, a sentence that names what is missing; PCILEND_RESOLVE_TEXT_BYTES are enough
 *
 * Whole pages are reached: those that hold a byte of the range.
 *
 * Return: the number of paths in @paths; -EINVAL for a request that makes no sense; -ERANGE if the
 * range leaves its target, or the device-side address can't be used; -EHOSTUNREACH if no links
 * lead there, -ENOTCONN if they are down; -ENOSPC if no space or no window is large enough;
 * -EOPNOTSUPP if an IOMMU is not translating, devices can't reach each other, or nothing may be
 * mapped where that is needed.
 */
int pcilend_resolve(const struct pcilend_topology *topology,
		    const struct pcilend_resolve_request *request, u8 *distance,
		    struct pcilend_path *paths, u32 capacity, char *why, size_t why_bytes);

__END_DECLS

#endif /* PCILEND_RESOLVE_H */
