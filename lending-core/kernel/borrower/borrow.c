// SPDX-License-Identifier: GPL-2.0-only
/* Borrowing a remote function: the choice of a link, the lease, and the virtual function. */

#include <linux/module.h>
#include <linux/slab.h>

#include "borrower/borrower.h"
#include "borrower/iommu.h"
#include "base/trace.h"

#define BUSY_MS 20000	/* that requests wait until another is done with the function */

DEFINE_MUTEX(remote_choice_lock);	/* each choice of a link sees those before */

static const char *borrow_why_refused(int error)
{
	switch (error) {
	case -ENODEV:
		return "its lender no longer offers it to this node: run 'pcilend connect' there";
	case -EAGAIN:
		return "it is not available: run 'pcilend available' on its lender";
	case -EBUSY:
		return "it is borrowed or being reset: see 'pcilend list' for who has it";
	case -EACCES:
		return "it is reserved for another node or domain: see its lender's 'pcilend show'";
	case -EUCLEAN:
		return "it or one of its group is quarantined: 'pcilend show' on its lender";
	case -EXDEV:
		return "others of its group are not available: 'pcilend available' them there";
	case -EUSERS:
		return "another function of its group is lent to others: see 'pcilend list'";
	case -EMLINK:
		return "others of its group are borrowed over another adapter: use that one";
	case -ENOSPC:
		return "no room in the memory windows for its BARs: return other functions first";
	case -EXFULL:
		return "its lender's adapter does not let it through: see the kernel log there";
	case -ENETDOWN:
		return "the link to its lender is down: see 'pcilend link'";
	case -ETIMEDOUT:
		return "its lender does not answer: see whether that host is alive";
	case -EIO:
		return "its lender could not lend it: see the kernel log there";
	case -ESTALE:
		return "the lease was lost again at once: try once more";
	case -EPROTO:
	case -ERANGE:
		return "its lender makes no sense: use the same release of pcilend on both hosts";
	case -ENOMEM:
		return "this host is out of memory";
	default:
		return "its virtual function can't be made: see the kernel log";
	}
}

static int borrow_refuse(const char **why, int error, const char *sentence)
{
	if (why)
		*why = sentence;
	return error;
}

/*
 * As mutex_lock() of the operation, with a limit: who holds it may wait for a user of VFIO, who
 * never lets go, and a request of netlink that does not end holds up those of all families.
 * Return: 0; -EBUSY; -EINTR if the caller is killed. *why (NULL allowed) as for pcilend_borrow().
 */
int remote_lock_operation(struct remote *r, const char **why)
{
	unsigned long start = jiffies;

	while (!mutex_trylock(&r->operation)) {
		if (fatal_signal_pending(current))
			return borrow_refuse(why, -EINTR, "the request was interrupted");
		if (remote_awaits_user(r) &&
		    time_after(jiffies, start + msecs_to_jiffies(REMOTE_LET_GO_MS)))
			return borrow_refuse(why, -EBUSY, "it is being returned, and its user has not let go of it yet: end that guest, or detach the device there");
		if (time_after(jiffies, start + msecs_to_jiffies(BUSY_MS)))
			return borrow_refuse(why, -EBUSY, "it is being borrowed or returned, which takes long: see the kernel log, and whether its user or driver lets go of it");
		schedule_timeout_killable(msecs_to_jiffies(20));
	}
	return 0;
}

/* Counts a lease over the link, unless this host is about to sleep. */
static bool borrow_count_lease(struct pcilend_link *link)
{
	atomic_inc(&link->leases);
	if (!pcilend_sleeps())
		return true;
	atomic_dec(&link->leases);
	return false;
}

static int borrow_begin(struct remote *r, struct pcilend_frontend *frontend, const char *owner,
			const char *adapter, const char **why)
{
	struct pcilend_link *any = pcilend_link_to(pcilend_id_node(r->pub.id), 0);
	struct pcilend_link *link, *of_set;
	int err = 0;

	mutex_lock(&remote_choice_lock);
	of_set = adapter ? NULL : remote_link_of_set(r);
	mutex_lock(&r->lock);
	link = remote_path_choose(r, of_set ? pci_name(of_set->pdev) : adapter);
	if (!any) {
		err = borrow_refuse(why, -ENETDOWN, borrow_why_refused(-ENETDOWN));
	} else if (r->dying || r->absent) {
		err = borrow_refuse(why, -ENODEV, borrow_why_refused(-ENODEV));
	} else if (r->ending) {
		err = borrow_refuse(why, -EBUSY, "it is being returned: try again in a few seconds");
	} else if (r->state == REMOTE_HELD && r->frontend == frontend &&
		   !strcmp(r->owner, owner)) {
		err = borrow_refuse(why, -EALREADY, "this owner has borrowed it already");
	} else if (r->state == REMOTE_HELD || r->state == REMOTE_BORROWING) {
		err = borrow_refuse(why, -EBUSY, "this host has borrowed it already: see 'pcilend list' for its owner");
	} else if (r->state != REMOTE_IDLE) {
		err = borrow_refuse(why, -EBUSY, "it is still being returned after its last use: try again in a few seconds, and see 'pcilend link'");
	} else if (!link && adapter) {
		err = borrow_refuse(why, -ENOTCONN, "its lender does not offer it over that adapter: 'pcilend show' lists its paths");
	} else if (!link && of_set) {
		err = borrow_refuse(why, -ENETDOWN, "the link over which others of its group are borrowed is down: return them first, or see 'pcilend link'");
	} else if (!link) {
		err = borrow_refuse(why, -ENETDOWN, borrow_why_refused(-ENETDOWN));
	} else if (frontend->guests && r->pub.info.flags & PCILEND_FUNCTION_DIRECT) {
		err = borrow_refuse(why, -EOPNOTSUPP, "it is lent without an IOMMU (direct), so VMs can't borrow it: make it available without --direct on its lender");
	} else if (frontend->guests && link->aperture.direct) {
		err = borrow_refuse(why, -EOPNOTSUPP, "VMs can't borrow over an adapter without an IOMMU: boot with intel_iommu=on or amd_iommu=on, without iommu=pt");
	} else if (!borrow_count_lease(link)) {
		err = borrow_refuse(why, -EAGAIN, "this host is about to sleep or to go down: try again when it is awake");
	} else {
		remote_set_link(r, link);
		r->state = REMOTE_BORROWING;
		r->borrows++;
		r->lost_early = 0;
		r->recalled = 0;
		WRITE_ONCE(r->guest_bytes, 0);
		r->frontend = frontend;
		strscpy(r->owner, owner, sizeof(r->owner));
	}
	mutex_unlock(&r->lock);
	if (!err)
		remote_choose_interrupts(r);
	mutex_unlock(&remote_choice_lock);
	pcilend_link_put(of_set);
	pcilend_link_put(any);
	return err;
}

/* Where the lender put the BARs; a placement that can't be is the lender's fault. */
static int borrow_place_bars(struct remote *r, const struct pcilend_msg_borrowed *granted)
{
	int i;

	memset(r->bar, 0, sizeof(r->bar));
	memset(&r->rom, 0, sizeof(r->rom));
	for (i = 0; i < PCILEND_BARS; i++) {
		struct pcilend_virtual_bar *bar = i < ARRAY_SIZE(r->bar) ? &r->bar[i] : &r->rom;
		u64 size = le64_to_cpu(granted->bar[i].size);
		phys_addr_t phys;

		if (!size)
			continue;
		if (size != le64_to_cpu(r->pub.info.bar[i].size) ||
		    le32_to_cpu(r->pub.info.bar[i].flags) & PCILEND_BAR_IO)
			return -ERANGE;
		if (pcilend_aperture_peer(r->link, le32_to_cpu(granted->bar[i].window),
					  le64_to_cpu(granted->bar[i].offset),
					  size + le32_to_cpu(granted->bar[i].shift), &phys))
			return -ERANGE;
		bar->address = phys + le32_to_cpu(granted->bar[i].shift);
		bar->size = size;
	}
	return 0;
}

/* Where the function has this host: at addresses of its own, or at those of a window. */
static void borrow_place_host(struct remote *r, const struct pcilend_msg_borrowed *granted)
{
	remote_dma_begin(r);
	r->last_address = le64_to_cpu(granted->last_address);
	r->dma_base = le64_to_cpu(granted->dma_address);	/* the area begins at 0 */
	r->interrupts = r->dma_base ? le64_to_cpu(granted->interrupt_address) :
				      r->reaches ? PCILEND_INTERRUPT_ALIAS : 0;
}

static int borrow_ask_for_lease(struct remote *r, const char *owner)
{
	struct pcilend_msg_borrow msg = {
		.id = cpu_to_le32(r->pub.id),
		.lease_ms = cpu_to_le32(pcilend_lease_ms),
	};
	struct pcilend_answer *answer __free(kfree) = kzalloc(sizeof(*answer), GFP_KERNEL);
	const struct pcilend_msg_borrowed *granted;
	u64 iova, size, offset;
	uuid_t uuid;
	u32 window;
	int err;

	if (!answer)
		return -ENOMEM;
	pcilend_dma_area(&r->pub, &iova, &size);
	err = pcilend_aperture_locate(r->link, iova, size, &window, &offset);
	if (err)
		return err;
	msg.dma_window = cpu_to_le32(window);
	msg.dma_offset = cpu_to_le64(offset);
	if (r->reaches)
		msg.interrupt_alias = cpu_to_le64(PCILEND_INTERRUPT_ALIAS);
	/* A domain, or a mediated device: a reservation may be for it. */
	if (!remote_parse_owner(owner, &uuid))
		export_uuid(msg.owner, &uuid);
	err = pcilend_channel_request(r->link, PCILEND_MSG_BORROW, &msg, answer);
	if (err)
		return err;

	granted = (const struct pcilend_msg_borrowed *)answer->payload;
	mutex_lock(&r->lock);
	r->lease = le32_to_cpu(granted->lease);
	r->granted = answer->sequence;
	err = le32_to_cpu(granted->id) == r->pub.id ? borrow_place_bars(r, granted) : -EPROTO;
	borrow_place_host(r, granted);
	/* It may have become direct since. */
	if (!err && r->dma_base && r->frontend->guests)
		err = -EAGAIN;
	/* From here on requests of drivers are let through. */
	r->state = REMOTE_HELD;
	mutex_unlock(&r->lock);
	return err;
}

/* Those of the lender's bus, as far as its registers tell: those of an SR-IOV function don't. */
static void borrow_note_bus_addresses(struct remote *r, const u8 *raw)
{
	int i;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		const u8 *at = raw + PCI_BASE_ADDRESS_0 + 4 * i;
		u64 bus = get_unaligned_le32(at) & PCI_BASE_ADDRESS_MEM_MASK;

		if (le32_to_cpu(r->pub.info.bar[i].flags) & PCILEND_BAR_MEM64 &&
		    i + 1 < PCI_STD_NUM_BARS)
			bus = (u32)bus | (u64)get_unaligned_le32(at + 4) << 32;
		if (r->bar[i].size && IS_ALIGNED(bus, r->bar[i].size) &&
		    bus <= U64_MAX - r->bar[i].size)
			r->bar[i].bus = bus;
	}
}

/* The function's configuration space as the lender has it, made into a virtual one. */
static int borrow_fetch_config(struct remote *r)
{
	u8 *raw __free(kfree) = kzalloc(PCI_CFG_SPACE_EXP_SIZE, GFP_KERNEL);
	struct pcilend_vconfig_bar bar[7] = { };
	struct pcilend_vconfig *config;
	u32 length = PCI_CFG_SPACE_EXP_SIZE;
	int i, err;

	if (!raw)
		return -ENOMEM;
	err = pcilend_config_read(&r->pub, 0, raw, PCI_CFG_SPACE_SIZE);
	if (err)
		return err;
	err = pcilend_config_read(&r->pub, PCI_CFG_SPACE_SIZE, raw + PCI_CFG_SPACE_SIZE,
				  PCI_CFG_SPACE_EXP_SIZE - PCI_CFG_SPACE_SIZE);
	if (err == -ERANGE)
		length = PCI_CFG_SPACE_SIZE;
	else if (err)
		return err;

	/* What was granted, and I/O ports, which are not. */
	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		bar[i].flags = le32_to_cpu(r->pub.info.bar[i].flags);
		bar[i].size = bar[i].flags & PCILEND_BAR_IO ?
			      le64_to_cpu(r->pub.info.bar[i].size) : r->bar[i].size;
	}
	bar[PCI_ROM_RESOURCE].size = r->rom.size;
	borrow_note_bus_addresses(r, raw);
	config = kvmalloc(sizeof(*config), GFP_KERNEL);
	if (!config)
		return -ENOMEM;
	err = pcilend_vconfig_init(config, raw, length, bar);
	if (err) {
		kvfree(config);
		return -EPROTO;
	}
	mutex_lock(&r->lock);
	r->config = config;
	mutex_unlock(&r->lock);
	return 0;
}

static const struct pcilend_virtual_ops virtual_ops = {
	.claim = pcilend_iommu_claim,
	.changed = remote_virtual_changed,
	.reset = pcilend_reset,
	.bus_master = pcilend_bus_master,
	.config_read = pcilend_config_read,
	.config_write = pcilend_config_write,
	.poll_bus_master = remote_poll_bus_master,
	.poll_config_write = remote_poll_config_write,
	.intx_ask = remote_intx_ask,
	.intx_listen = remote_intx_listen,
	.msi_ask = remote_msi_ask,
	.msi_listen = remote_msi_listen,
};

static int borrow_make_virtual(struct remote *r, struct pcilend_frontend *frontend)
{
	struct pcilend_virtual_bar bar[PCILEND_BARS];
	struct pcilend_virtual *virtual;

	memcpy(bar, r->bar, sizeof(r->bar));
	bar[PCI_ROM_RESOURCE] = r->rom;
	virtual = pcilend_virtual_create(r->link, &r->pub, &virtual_ops, bar, r->interrupts,
					 r->config, frontend);
	/* Not to be taken for an answer of the lender. */
	if (IS_ERR(virtual))
		return PTR_ERR(virtual) == -ENOMEM ? -ENOMEM : -ECANCELED;
	mutex_lock(&r->lock);
	r->virtual = virtual;
	mutex_unlock(&r->lock);
	return 0;
}

int pcilend_borrow(struct pcilend_remote *remote, struct pcilend_frontend *frontend,
		   const char *owner, const char *adapter, const char **why)
{
	struct remote *r = to_remote(remote);
	u32 borrow;
	int err;

	if (strlen(owner) >= PCILEND_OWNER_BYTES)
		return borrow_refuse(why, -EINVAL, "the owner's name is longer than 63 bytes");
	err = remote_lock_operation(r, why);
	if (err)
		return err;
	if (!try_module_get(THIS_MODULE)) {
		err = borrow_refuse(why, -ENODEV, "pcilend is being unloaded");
		goto err_unlock;
	}
	if (!try_module_get(frontend->owner)) {
		err = borrow_refuse(why, -ENODEV, "the frontend is being unloaded");
		goto err_module;
	}
	err = borrow_begin(r, frontend, owner, adapter, why);
	if (err)
		goto err_frontend;

	err = borrow_ask_for_lease(r, owner);
	mutex_lock(&r->lock);
	if (r->state == REMOTE_BORROWING) {	/* there is no lease */
		r->state = REMOTE_IDLE;
		atomic_dec(&r->link->leases);
		r->frontend = NULL;
		r->owner[0] = '\0';
		mutex_unlock(&r->lock);
		borrow_refuse(why, err, borrow_why_refused(err));
		remote_retire_if_idle(r);
		goto err_frontend;
	}
	mutex_unlock(&r->lock);

	pcilend_count(PCILEND_COUNTER_A_BORROWED);
	trace_pcilend_lease_begin(remote->id, r->lease, pcilend_id_node(remote->id),
				  pcilend_node, "borrowed");
	/* Whoever removes the adapter has found no lease to end. */
	if (!err && READ_ONCE(r->link->going))
		err = -ENODEV;
	if (!err)
		err = borrow_fetch_config(r);
	if (!err && frontend->prepare)
		err = frontend->prepare(remote);
	if (!err)
		err = borrow_make_virtual(r, frontend);
	if (!err && (!remote_held_lease(r) || r->lost_early == r->lease))
		err = -ESTALE;
	if (err) {
		borrow_refuse(why, err, borrow_why_refused(err));
		/* A user of VFIO may have the virtual function already. */
		mutex_lock(&r->lock);
		WRITE_ONCE(r->ending, true);
		borrow = r->borrows;
		remote_queue_give_back(r);
		mutex_unlock(&r->lock);
		mutex_unlock(&r->operation);
		remote_await_given_back(r, borrow);
		return err;
	}
	mutex_unlock(&r->operation);
	remote_take_in_notices(r);
	remote_ask_to_let_go(r);
	return 0;

err_frontend:
	module_put(frontend->owner);
err_module:
	module_put(THIS_MODULE);
err_unlock:
	mutex_unlock(&r->operation);
	return err;
}
EXPORT_SYMBOL_GPL(pcilend_borrow);
