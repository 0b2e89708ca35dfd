// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Address resolution, a model for tests; see resolve.h. Whether a link can be crossed into a host
 * depends on that link and on the target alone, so distances to the target are found first, and
 * paths follow them.
 */

#include "pcilend/resolve.h"

#define FAR 0xff		/* not reached */
#define LARGE_PAGE 0x200000ULL
#define LARGEST_PAGE 0x40000000ULL

struct search {
	const struct pcilend_topology *topology;
	const struct pcilend_resolve_request *request;
	u64 phys;		/* pages of the range, on the target's host */
	u64 size;
	u64 align;
};

/* How a link is crossed into one of its adapters' hosts. */
struct crossing {
	struct pcilend_mapping mapping;	/* there; phys is not set */
	u64 address;			/* on the host that is left */
};

/* What a look for distances leaves out of account, to find out what is missing. */
enum leave_out {
	NOTHING,
	ALL_BUT_LINK_STATE,
	EVERYTHING,
};

static const char * const space_names[] = {
	[PCILEND_SPACE_DMA] = "DMA area",
	[PCILEND_SPACE_EXPORTS] = "export region",
	[PCILEND_SPACE_SLOTS] = "guest slots",
};

static u64 resolve_page_down(u64 value)
{
	return value & ~(PCILEND_PAGE - 1);
}

static bool resolve_page_aligned(u64 value)
{
	return !(value & (PCILEND_PAGE - 1));
}

static int resolve_invalid(const char *text, char *why, size_t why_bytes)
{
	snprintf(why, why_bytes, "%s", text);
	return -EINVAL;
}

static const char *resolve_check_layout(const struct pcilend_layout *layout)
{
	u32 i;

	if (layout->windows > PCILEND_LAYOUT_WINDOWS)
		return "a layout has too many windows";
	for (i = 0; i < layout->windows; i++) {
		u64 end = layout->window[i].translation + layout->window[i].size;

		if (end < layout->window[i].translation)
			return "a translation goes past the end of 64 bits";
	}
	return NULL;
}

static const char *resolve_check_adapter(const struct pcilend_topology *topology,
					 const struct pcilend_topo_adapter *adapter)
{
	u32 i;

	if (adapter->host >= topology->hosts)
		return "an adapter is in no host";
	for (i = 0; i < adapter->windows; i++) {
		if (adapter->window[i].phys + adapter->window[i].size < adapter->window[i].phys)
			return "a window goes past the end of 64 bits";
	}
	return resolve_check_layout(adapter->layout);
}

static const char *resolve_check_link(const struct pcilend_topology *topology, u32 index)
{
	const struct pcilend_topo_link *link = &topology->link[index];
	u32 i;

	if (link->adapter[0] >= topology->adapters || link->adapter[1] >= topology->adapters)
		return "a link ends at no adapter";
	if (topology->adapter[link->adapter[0]].host == topology->adapter[link->adapter[1]].host)
		return "a link joins a host with itself";
	for (i = 0; i < 2 * index; i++) {
		u32 other = topology->link[i / 2].adapter[i % 2];

		if (other == link->adapter[0] || other == link->adapter[1])
			return "two links share an adapter";
	}
	return NULL;
}

int pcilend_topology_check(const struct pcilend_topology *topology, char *why, size_t why_bytes)
{
	const char *fault = NULL;
	u32 i;

	for (i = 0; i < topology->adapters && !fault; i++)
		fault = resolve_check_adapter(topology, &topology->adapter[i]);
	for (i = 0; i < topology->links && !fault; i++)
		fault = resolve_check_link(topology, i);
	return fault ? resolve_invalid(fault, why, why_bytes) : 0;
}

static u32 resolve_node_of(const struct search *search, u32 host)
{
	return search->topology->host[host].node;
}

/* The host on the side @end of a link. */
static u32 resolve_host_at(const struct pcilend_topology *topology, u32 link, u32 end)
{
	return topology->adapter[topology->link[link].adapter[end]].host;
}

static int resolve_check_host(const struct search *search, u32 host, bool mmio, char *why,
			      size_t why_bytes)
{
	const struct pcilend_topo_host *at = &search->topology->host[host];

	if (!at->translated) {
		snprintf(why, why_bytes,
			 "the IOMMU of node %u does not translate: boot it with intel_iommu=on or amd_iommu=on and without iommu=pt",
			 at->node);
		return -EOPNOTSUPP;
	}
	if (mmio && !at->p2p) {
		snprintf(why, why_bytes,
			 "node %u does not route from device to device: put the adapter and the function below one switch, or use a host whose root ports do",
			 at->node);
		return -EOPNOTSUPP;
	}
	return 0;
}

static enum pcilend_space resolve_space_for(const struct search *search, bool last)
{
	if (!last || search->request->target.kind == PCILEND_TARGET_BAR)
		return PCILEND_SPACE_EXPORTS;
	return search->request->target.kind == PCILEND_TARGET_GUEST ? PCILEND_SPACE_SLOTS :
								      PCILEND_SPACE_DMA;
}

/* Where the range is mapped in the adapter's domain already. */
static bool resolve_find_placed(const struct search *search, u32 adapter, u64 *iova)
{
	const struct pcilend_target *target = &search->request->target;
	u32 i;

	for (i = 0; i < target->placed_count; i++) {
		if (target->placed[i].adapter == adapter) {
			*iova = target->placed[i].iova + (search->phys - target->phys);
			return *iova >= target->placed[i].iova;
		}
	}
	return false;
}

/* The lowest free range, aligned to the largest page that fits in it if there is room for that. */
static int resolve_find_space(const struct search *search, const struct pcilend_range *space,
			      struct pcilend_mapping *mapping)
{
	mapping->align = search->align;
	if (!pcilend_range_find(space, search->size, mapping->align, &mapping->iova))
		return 0;
	mapping->align = PCILEND_PAGE;
	return pcilend_range_find(space, search->size, mapping->align, &mapping->iova);
}

/* Where those behind @out see [iova, +size) of @in: 0, or -ENOSPC. */
static int resolve_locate(const struct pcilend_topo_adapter *in,
			  const struct pcilend_topo_adapter *out, u64 iova, u64 size, u64 *address)
{
	u32 i;

	for (i = 0; i < in->layout->windows && i < out->windows; i++) {
		u64 reach = in->layout->window[i].size;
		u64 offset = iova - in->layout->window[i].translation;

		if (reach > out->window[i].size)
			reach = out->window[i].size;
		if (iova >= in->layout->window[i].translation && size <= reach &&
		    offset <= reach - size) {
			*address = out->window[i].phys + offset;
			return 0;
		}
	}
	return -ENOSPC;
}

static int resolve_map_in_adapter(const struct search *search,
				  const struct pcilend_topo_adapter *in, u32 index, bool last,
				  struct pcilend_mapping *mapping, char *why, size_t why_bytes)
{
	enum pcilend_space space = resolve_space_for(search, last);
	u32 node = resolve_node_of(search, in->host);

	mapping->domain = PCILEND_DOMAIN_ADAPTER;
	mapping->adapter = index;
	mapping->space = space;
	mapping->mmio = space == PCILEND_SPACE_EXPORTS;
	mapping->size = search->size;
	mapping->align = PCILEND_PAGE;
	mapping->present = last && resolve_find_placed(search, index, &mapping->iova);
	if (mapping->present)
		return 0;
	if (!in->space[space]) {
		snprintf(why, why_bytes,
			 "nothing can be added to the %s of adapter %s of node %u: map the target there first",
			 space_names[space], in->name, node);
		return -EOPNOTSUPP;
	}
	if (!resolve_find_space(search, in->space[space], mapping))
		return 0;
	snprintf(why, why_bytes,
		 "the %s of adapter %s of node %u has at most %llu KiB in one piece, %llu KiB are needed: return what is not used, or enlarge the windows",
		 space_names[space], in->name, node,
		 (unsigned long long)pcilend_range_largest(in->space[space]) >> 10,
		 (unsigned long long)search->size >> 10);
	return -ENOSPC;
}

/* Into the host of the adapter at @end. */
static int resolve_cross(const struct search *search, u32 link, u32 end, struct crossing *crossing,
			 char *why, size_t why_bytes)
{
	const struct pcilend_topology *topology = search->topology;
	u32 index = topology->link[link].adapter[end];
	const struct pcilend_topo_adapter *in = &topology->adapter[index];
	const struct pcilend_topo_adapter *out =
		&topology->adapter[topology->link[link].adapter[!end]];
	bool last = in->host == search->request->target.host;
	int error;

	if (!topology->link[link].up) {
		snprintf(why, why_bytes,
			 "the link between node %u (adapter %s) and node %u (adapter %s) is down: see 'pcilend link' and the cable",
			 resolve_node_of(search, out->host), out->name,
			 resolve_node_of(search, in->host), in->name);
		return -ENOTCONN;
	}
	error = resolve_check_host(search, in->host,
				   !last || search->request->target.kind == PCILEND_TARGET_BAR, why,
				   why_bytes);
	if (error)
		return error;
	error = resolve_map_in_adapter(search, in, index, last, &crossing->mapping, why, why_bytes);
	if (error)
		return error;
	error = resolve_locate(in, out, crossing->mapping.iova, search->size, &crossing->address);
	if (error)
		snprintf(why, why_bytes,
			 "no memory window of adapter %s of node %u reaches 0x%llx in the aperture of node %u: enlarge its windows",
			 out->name, resolve_node_of(search, out->host),
			 (unsigned long long)crossing->mapping.iova,
			 resolve_node_of(search, in->host));
	return error;
}

static bool resolve_can_cross(const struct search *search, u32 link, u32 end,
			      enum leave_out leave_out)
{
	struct crossing crossing;

	if (leave_out == EVERYTHING)
		return true;
	if (leave_out == ALL_BUT_LINK_STATE || !search->topology->link[link].up)
		return search->topology->link[link].up;
	return !resolve_cross(search, link, end, &crossing, NULL, 0);
}

/* Links from each host to the target, as far as the viewpoint. Return: true if that is reached. */
static bool resolve_find_distances(const struct search *search, u8 *distance,
				   enum leave_out leave_out)
{
	const struct pcilend_topology *topology = search->topology;
	u32 from = search->request->from.host;
	u8 hops;
	u32 i;

	memset(distance, FAR, topology->hosts);
	distance[search->request->target.host] = 0;
	for (hops = 1; hops <= PCILEND_PATH_HOPS && distance[from] == FAR; hops++) {
		for (i = 0; i < 2 * topology->links; i++) {
			u32 link = i / 2, end = i % 2;
			u32 far = resolve_host_at(topology, link, !end);

			if (distance[resolve_host_at(topology, link, end)] == hops - 1 &&
			    distance[far] == FAR && resolve_can_cross(search, link, end, leave_out))
				distance[far] = hops;
		}
	}
	return distance[from] != FAR;
}

/*
 * The next link, from *link on, that leads from @host one step closer to the target; *end is the
 * side it leads to.
 */
static bool resolve_next_step(const struct search *search, const u8 *distance, u32 host, u32 *link,
			      u32 *end, enum leave_out leave_out)
{
	const struct pcilend_topology *topology = search->topology;

	for (; *link < topology->links; (*link)++) {
		u32 near = resolve_host_at(topology, *link, 0) == host ? 0 : 1;

		if (resolve_host_at(topology, *link, near) != host)
			continue;
		*end = !near;
		if (distance[resolve_host_at(topology, *link, *end)] + 1 == distance[host] &&
		    resolve_can_cross(search, *link, *end, leave_out))
			return true;
	}
	return false;
}

/* Says what is wrong with the way that would be there if nothing were. */
static int resolve_refuse(const struct search *search, u8 *distance, char *why, size_t why_bytes)
{
	u32 target = search->request->target.host;
	u32 host = search->request->from.host;
	enum leave_out leave_out = ALL_BUT_LINK_STATE;

	if (!resolve_find_distances(search, distance, leave_out)) {
		leave_out = EVERYTHING;
		if (!resolve_find_distances(search, distance, leave_out))
			target = host;
	}
	while (host != target) {
		struct crossing crossing;
		u32 link = 0, end = 0;
		int error = 0;

		if (!resolve_next_step(search, distance, host, &link, &end, leave_out))
			break;
		/* Links that are down come first: the rest may change with them. */
		if (leave_out == ALL_BUT_LINK_STATE || !search->topology->link[link].up)
			error = resolve_cross(search, link, end, &crossing, why, why_bytes);
		if (error)
			return error;
		host = resolve_host_at(search->topology, link, end);
	}
	snprintf(why, why_bytes,
		 "no links lead from node %u to node %u: join them by an adapter in each",
		 resolve_node_of(search, search->request->from.host),
		 resolve_node_of(search, search->request->target.host));
	return -EHOSTUNREACH;
}

static int resolve_check_request(const struct pcilend_topology *topology,
				 const struct pcilend_resolve_request *request, char *why,
				 size_t why_bytes)
{
	const struct pcilend_target *target = &request->target;
	u32 i;

	if (request->from.host >= topology->hosts || target->host >= topology->hosts)
		return resolve_invalid("there is no such host", why, why_bytes);
	if (!resolve_page_aligned(target->phys) || target->phys + target->size < target->phys ||
	    target->size > U64_MAX - PCILEND_PAGE)
		return resolve_invalid("the target does not begin at a page, or ends beyond 64 bits",
				       why, why_bytes);
	for (i = 0; i < target->placed_count; i++) {
		if (target->placed[i].adapter >= topology->adapters ||
		    topology->adapter[target->placed[i].adapter].host != target->host ||
		    !resolve_page_aligned(target->placed[i].iova))
			return resolve_invalid("the target is placed where it can't be", why,
					       why_bytes);
	}
	if (!request->size)
		return resolve_invalid("nothing is to be reached", why, why_bytes);
	if (request->offset > target->size || request->size > target->size - request->offset) {
		snprintf(why, why_bytes,
			 "the range ends beyond its target, which has 0x%llx bytes",
			 (unsigned long long)target->size);
		return -ERANGE;
	}
	return 0;
}

/* The mapping in the private domain; phys is not set. */
static int resolve_map_in_function(const struct search *search, struct pcilend_mapping *mapping,
				   char *why, size_t why_bytes)
{
	const struct pcilend_resolve_request *request = search->request;
	u64 last_byte;
	int error;

	mapping->domain = PCILEND_DOMAIN_FUNCTION;
	mapping->mmio = request->from.host != request->target.host ||
			request->target.kind == PCILEND_TARGET_BAR;
	mapping->size = search->size;
	mapping->align = PCILEND_PAGE;
	error = resolve_check_host(search, request->from.host, mapping->mmio, why, why_bytes);
	if (error)
		return error;
	if (request->from.at == PCILEND_ANYWHERE) {
		if (request->from.space &&
		    !resolve_find_space(search, request->from.space, mapping))
			return 0;
		snprintf(why, why_bytes,
			 "the function's own address space has no %llu KiB left: unmap what is not used",
			 (unsigned long long)search->size >> 10);
		return -ENOSPC;
	}
	mapping->iova = resolve_page_down(request->from.at);
	last_byte = mapping->iova + search->size - 1;
	if ((request->from.at ^ request->offset) & (PCILEND_PAGE - 1))
		return resolve_invalid("the device-side address has another place in its page than the target",
				       why, why_bytes);
	if (last_byte < mapping->iova || (mapping->iova < PCILEND_MSI_IOVA + PCILEND_MSI_BYTES &&
					  last_byte >= PCILEND_MSI_IOVA)) {
		snprintf(why, why_bytes,
			 "at 0x%llx the range would meet the interrupt range or the end of 64 bits: choose another address",
			 (unsigned long long)request->from.at);
		return -ERANGE;
	}
	return 0;
}

/* @link, @end: as crossed, from the viewpoint on; @first: the viewpoint's own mapping, or NULL. */
static void resolve_fill_in(const struct search *search, const u32 *link, const u8 *end, u32 hops,
			    const struct pcilend_mapping *first, struct pcilend_path *path)
{
	u64 address = search->phys;
	u32 own = first ? 1 : 0;
	u32 i;

	memset(path, 0, sizeof(*path));
	path->hops = hops;
	path->mappings = hops + own;
	for (i = hops; i-- > 0;) {
		struct crossing crossing = { 0 };

		resolve_cross(search, link[i], end[i], &crossing, NULL, 0);
		crossing.mapping.phys = address;
		path->mapping[i + own] = crossing.mapping;
		path->link[i] = link[i];
		address = crossing.address;
	}
	if (first) {
		path->mapping[0] = *first;
		path->mapping[0].phys = address;
		address = first->iova;
	}
	path->address = address + (search->request->offset & (PCILEND_PAGE - 1));
}

/* All shortest paths, depth first; distances only fall, so none ends before the target. */
static int resolve_enumerate(const struct search *search, const u8 *distance,
			     const struct pcilend_mapping *first, struct pcilend_path *paths,
			     u32 capacity)
{
	u32 link[PCILEND_PATH_HOPS + 1] = { 0 };
	u8 end[PCILEND_PATH_HOPS + 1] = { 0 };
	u32 host[PCILEND_PATH_HOPS + 1];
	u32 hops = distance[search->request->from.host];
	u32 depth = 0, count = 0;

	host[0] = search->request->from.host;
	while (count < capacity) {
		u32 into = 0;

		if (depth == hops) {
			resolve_fill_in(search, link, end, hops, first, &paths[count++]);
		} else if (resolve_next_step(search, distance, host[depth], &link[depth], &into,
					     NOTHING)) {
			end[depth] = (u8)into;
			host[depth + 1] = resolve_host_at(search->topology, link[depth], into);
			link[++depth] = 0;
			continue;
		}
		if (!depth)
			break;
		link[--depth]++;
	}
	return (int)count;
}

int pcilend_resolve(const struct pcilend_topology *topology,
		    const struct pcilend_resolve_request *request, u8 *distance,
		    struct pcilend_path *paths, u32 capacity, char *why, size_t why_bytes)
{
	struct search search = { .topology = topology, .request = request };
	struct pcilend_mapping first = { 0 };
	u64 end;
	int error = resolve_check_request(topology, request, why, why_bytes);

	if (error)
		return error;
	search.phys = request->target.phys + resolve_page_down(request->offset);
	end = request->offset + request->size + PCILEND_PAGE - 1;
	search.size = resolve_page_down(end) - resolve_page_down(request->offset);
	search.align = search.size >= LARGEST_PAGE ? LARGEST_PAGE :
		       search.size >= LARGE_PAGE   ? LARGE_PAGE :
						     PCILEND_PAGE;
	if (request->from.device) {
		error = resolve_map_in_function(&search, &first, why, why_bytes);
		if (error)
			return error;
	}
	if (!resolve_find_distances(&search, distance, NOTHING))
		return resolve_refuse(&search, distance, why, why_bytes);
	return resolve_enumerate(&search, distance, request->from.device ? &first : NULL, paths,
				 capacity);
}
