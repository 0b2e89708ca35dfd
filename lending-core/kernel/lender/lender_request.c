// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests of borrowers. Each message has passed pcilend_wire_check(); what depends on state is
 * checked here: is the node connected, does it hold the lease it names, is the range its own.
 */

#include <linux/module.h>

#include "lender/lender.h"
#include "base/trace.h"

/* Where this request's answer goes. */
struct exchange {
	struct pcilend_link *link;
	const struct pcilend_message *msg;
	const void *payload;
};

static void lender_request_answer(const struct exchange *ex, int error, const void *payload)
{
	pcilend_channel_reply(ex->link, ex->msg, error, payload);
}

static void lender_request_audit(const struct exchange *ex, const char *action, u32 function,
				 u32 target, int error)
{
	pcilend_audit_peer(&ex->link->audit, ex->msg->peer, action, function, target, error);
}

/* Does the sender hold this lease? The function's lock is held. */
static int lender_request_check_lease(const struct exchange *ex, struct pcilend_function *fn,
				      __le32 lease)
{
	return pcilend_lease_check(&fn->lease, ex->msg->peer, ex->msg->boot, le32_to_cpu(lease),
				   NULL);
}

static void lender_request_place_bars(struct pcilend_function *fn, struct pcilend_msg_borrowed *out)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(fn->export); i++) {
		u32 window;
		u64 offset;

		if (!fn->export[i].size ||
		    pcilend_aperture_locate(fn->link, fn->export[i].iova, fn->export[i].size,
					    &window, &offset))
			continue;
		out->bar[i].offset = cpu_to_le64(offset);
		out->bar[i].size = cpu_to_le64(pci_resource_len(fn->pdev, i));
		out->bar[i].window = cpu_to_le32(window);
	}
}

/* The lease is granted; anything that fails from here on ends it again. */
static int lender_request_lend(const struct exchange *ex, struct pcilend_function *fn,
			       struct pcilend_msg_borrowed *out)
{
	const struct pcilend_msg_borrow *in = ex->payload;
	struct pcilend_lease_event undo = {
		.type = PCILEND_LEASE_RETURN,
		.node = ex->msg->peer,
		.boot = ex->msg->boot,
		.lease = fn->lease.number,
	};
	int err;

	trace_pcilend_lease_begin(fn->id, fn->lease.number, pcilend_node, ex->msg->peer, "lent");
	err = pcilend_device_lend(fn, ex->link, in);
	if (err) {
		pci_warn(fn->pdev, "can't be lent to node %u (error %d)\n", ex->msg->peer, err);
		pcilend_function_apply(fn, &undo, NULL);
		pcilend_function_queue_settle(fn);
		return err;
	}
	pcilend_device_open(fn);
	pcilend_function_queue_expiry(fn, fn->lease.lease_ms);

	out->id = cpu_to_le32(fn->id);
	out->lease = cpu_to_le32(fn->lease.number);
	out->dma_address = cpu_to_le64(fn->dma_address);
	out->interrupt_address = cpu_to_le64(fn->interrupt_address);
	if (!pcilend_function_is_direct(fn))
		out->last_address = cpu_to_le64(pcilend_device_last_address(fn));
	lender_request_place_bars(fn, out);
	return 0;
}

/* Everything that may be in the way of a lease; it counts as granted afterwards. */
static int lender_request_grant(const struct exchange *ex, struct pcilend_function *fn,
				struct pcilend_lease_event *event)
{
	const struct pcilend_msg_borrow *in = ex->payload;
	struct pcilend_set_holder holder = {
		.node = event->node,
		.boot = event->boot,
		.link = ex->link->index,
	};

	lockdep_assert_held(&fn->lock);
	memcpy(holder.owner, in->owner, sizeof(holder.owner));
	/* Whoever takes the trust away ends the leases afterwards. */
	if (!pcilend_link_is_trusted(ex->link))
		return -EAGAIN;
	if (!pcilend_lender_grants(fn, event->node))
		return -ENODEV;
	return pcilend_function_grant(fn, event, &holder, NULL);
}

static void lender_request_handle_borrow(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_borrow *in = ex->payload;
	struct pcilend_msg_borrowed out = { };
	struct pcilend_lease_event event = {
		.type = PCILEND_LEASE_BORROW,
		.node = ex->msg->peer,
		.boot = ex->msg->boot,
		/* Nobody who is dead behind a dead link keeps a function for longer. */
		.lease_ms = min(le32_to_cpu(in->lease_ms), pcilend_max_lease_ms),
		.now = pcilend_now(),
	};
	int err;

	/* Given back when the lease is settled: see pcilend_function_settle(). */
	if (!try_module_get(THIS_MODULE)) {
		lender_request_answer(ex, -EAGAIN, NULL);
		return;
	}
	mutex_lock(&fn->lock);
	err = lender_request_grant(ex, fn, &event);
	if (err)
		module_put(THIS_MODULE);
	else
		err = lender_request_lend(ex, fn, &out);
	lender_request_audit(ex, "borrow", fn->id, 0, err);
	if (!err)
		pcilend_function_announce(fn);
	lender_request_answer(ex, err, &out);
	mutex_unlock(&fn->lock);
}

static void lender_request_handle_join(const struct exchange *ex, struct pcilend_function *fn)
{
	struct pcilend_msg_joined out = { };
	int err;

	mutex_lock(&fn->lock);
	err = pcilend_share_join(fn, ex->link, ex->msg, &out);
	lender_request_audit(ex, "join", fn->id, 0, err);
	lender_request_answer(ex, err, &out);
	mutex_unlock(&fn->lock);
}

/* What clients of a shared function ask for with their own leases. */
static void lender_request_handle_client(const struct exchange *ex, struct pcilend_function *fn,
					 u16 type)
{
	int err;

	mutex_lock(&fn->lock);
	err = type == PCILEND_MSG_MAIL ? pcilend_share_mail(fn, ex->msg) :
					 pcilend_share_vector(fn, ex->msg);
	lender_request_answer(ex, err, NULL);
	mutex_unlock(&fn->lock);
}

/* Nobody at the borrower uses BARs of that lease any more, which may have ended long ago. */
static void lender_request_take_returned(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_lease *in = ex->payload;

	if (fn) {
		lockdep_assert_held(&fn->lock);
		fn->returned |= fn->link && fn->lease.node == ex->msg->peer &&
				fn->lease.number == le32_to_cpu(in->lease);
	}
	pcilend_withdrawn_returned(ex->msg->peer, le32_to_cpu(in->id), le32_to_cpu(in->lease));
}

static void lender_request_handle_return(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_lease *in = ex->payload;
	const struct pcilend_msg_header *header = pcilend_message_header(ex->msg);
	struct pcilend_lease_event event = {
		.type = PCILEND_LEASE_RETURN,
		.node = ex->msg->peer,
		.boot = ex->msg->boot,
		.lease = le32_to_cpu(in->lease),
	};
	struct pcilend_return *waiting = NULL;
	bool again;
	int err, i;

	mutex_lock(&fn->lock);
	if (pcilend_share_return(fn, ex->link, ex->msg, event.lease)) {
		lender_request_audit(ex, "leave", fn->id, 0, 0);
		mutex_unlock(&fn->lock);
		return;
	}
	/* A node may return what it holds over any link, such as when the lease's own is lost. */
	if (fn->lease.node == ex->msg->peer)
		event.boot = fn->lease.boot;
	again = fn->lease.state != PCILEND_FUNCTION_BORROWED;
	lender_request_take_returned(ex, fn);
	err = pcilend_function_apply(fn, &event, NULL);
	if (err || !again)
		lender_request_audit(ex, "return", fn->id, 0, err);
	for (i = 0; !err && i < PCILEND_RETURNS && !waiting; i++) {
		if (!fn->returns[i].link)
			waiting = &fn->returns[i];
	}
	/* Without a place to wait: the lease ends all the same, the borrower asks again. */
	if (!err && !waiting)
		err = -EBUSY;
	if (waiting) {
		waiting->link = pcilend_link_get(ex->link);
		waiting->session = ex->msg->session;
		waiting->request = le32_to_cpu(header->request);
	}
	if (fn->todo)
		pcilend_function_queue_settle(fn);
	mutex_unlock(&fn->lock);
	if (err)
		lender_request_answer(ex, err, NULL);
}

static void lender_request_handle_reserve(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_reserve *in = ex->payload;
	struct pcilend_reserve wish = {
		.node = le32_to_cpu(in->node),
		.ttl_ms = le32_to_cpu(in->ttl_ms),
		.asker = ex->msg->peer,
	};
	const char *why = NULL;
	int err = -ENODEV;

	memcpy(wish.uuid, in->uuid, sizeof(wish.uuid));
	mutex_lock(&fn->lock);
	wish.holds_lease = fn->lease.state == PCILEND_FUNCTION_BORROWED &&
			   fn->lease.node == ex->msg->peer;
	if (pcilend_function_visible(fn, ex->msg->peer))
		err = pcilend_function_reserve(fn, &wish, &why);
	lender_request_audit(ex, "reserve", fn->id, wish.node, err);
	mutex_unlock(&fn->lock);
	lender_request_answer(ex, err, NULL);
}

static void lender_request_handle_reset(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_lease *in = ex->payload;
	const char *why = NULL;
	int err;

	/* Whoever asks has the lease before the locks below, which others may hold for long. */
	mutex_lock(&fn->lock);
	err = lender_request_check_lease(ex, fn, in->lease);
	mutex_unlock(&fn->lock);
	if (err) {
		lender_request_answer(ex, err, NULL);
		return;
	}
	pcilend_device_lock(fn);
	err = lender_request_check_lease(ex, fn, in->lease);
	if (!err) {
		pcilend_device_bus_master(fn, false);
		why = pcilend_device_reset(fn);
		fn->resets++;
	}
	if (why) {
		pci_warn(fn->pdev, "reset for node %u: %s\n", ex->msg->peer, why);
		err = -EIO;
	} else if (!err) {
		pcilend_device_open(fn);
		pcilend_dma_was_reset(fn);
	}
	pcilend_device_unlock(fn);
	lender_request_answer(ex, err, NULL);
}

static int lender_request_do_map(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_map *in = ex->payload;
	u64 size = le64_to_cpu(in->size);
	phys_addr_t phys;
	int err;

	lockdep_assert_held(&fn->lock);
	err = pcilend_aperture_peer(ex->link, le32_to_cpu(in->window), le64_to_cpu(in->offset),
				    size, &phys) ?:
	      pcilend_device_map(fn, le64_to_cpu(in->device_address), phys, size);
	if (err == -EUSERS && pcilend_link_may_log(ex->link))
		pci_warn(fn->pdev, "node %u maps other memory than for another function of its IOMMU group: both must go to one guest\n",
			 ex->msg->peer);
	return err;
}

static int lender_request_do_bus_master(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_bus_master *in = ex->payload;

	lockdep_assert_held(&fn->lock);
	pcilend_device_bus_master(fn, in->on);
	return 0;
}

/* Requests that only need the lease, and have no payload in their answer. */
static void lender_request_handle_simple(const struct exchange *ex, struct pcilend_function *fn,
					 u16 type)
{
	/* All of these begin with function id and lease. */
	const struct pcilend_msg_lease *named = ex->payload;
	const struct pcilend_msg_map *map = ex->payload;
	const struct pcilend_msg_config *config = ex->payload;
	const struct pcilend_msg_intx *intx = ex->payload;
	int err;

	mutex_lock(&fn->lock);
	err = lender_request_check_lease(ex, fn, named->lease);
	if (err)
		goto out;
	switch (type) {
	case PCILEND_MSG_MAP:
		err = lender_request_do_map(ex, fn);
		break;
	case PCILEND_MSG_UNMAP:
		err = pcilend_device_unmap(fn, le64_to_cpu(map->device_address),
					   le64_to_cpu(map->size));
		break;
	case PCILEND_MSG_BUS_MASTER:
		err = lender_request_do_bus_master(ex, fn);
		break;
	case PCILEND_MSG_INTX:
		err = pcilend_intx_set(fn, le32_to_cpu(intx->state));
		break;
	case PCILEND_MSG_CONFIG_WRITE:
		err = pcilend_device_config_write(fn, le16_to_cpu(config->offset), config->data,
						  le16_to_cpu(config->length));
		break;
	default:
		err = -EPROTO;
	}
out:
	mutex_unlock(&fn->lock);
	lender_request_answer(ex, err, NULL);
}

/* Both at once: that with the lower id first. */
static void lender_request_lock_both(struct pcilend_function *a, struct pcilend_function *b)
{
	if (a->id > b->id)
		swap(a, b);
	mutex_lock(&a->lock);
	mutex_lock_nested(&b->lock, SINGLE_DEPTH_NESTING);
}

/* Does the sender hold that lease on the target? It may go over another link, with its boot id. */
static int lender_request_check_target(const struct exchange *ex, struct pcilend_function *target,
				       u32 lease)
{
	lockdep_assert_held(&target->lock);
	return pcilend_lease_check(&target->lease, ex->msg->peer, target->lease.boot, lease, NULL);
}

static int lender_request_do_reach(const struct exchange *ex, struct pcilend_function *fn,
				   struct pcilend_function *target)
{
	const struct pcilend_msg_reach *in = ex->payload;

	return lender_request_check_lease(ex, fn, in->lease) ?:
	       lender_request_check_target(ex, target, le32_to_cpu(in->target_lease)) ?:
	       pcilend_reach_set(fn, target, in);
}

static int lender_request_reach_own(const struct exchange *ex, struct pcilend_function *fn, u32 id)
{
	struct pcilend_function *target = pcilend_function_find(id);
	int err;

	if (!target)
		return -ESTALE;
	/* Never itself: pcilend_wire_check() has looked. */
	lender_request_lock_both(fn, target);
	err = lender_request_do_reach(ex, fn, target);
	mutex_unlock(&target->lock);
	mutex_unlock(&fn->lock);
	pcilend_function_put(target);
	return err;
}

/* The target is one of another lender, which knows who holds it. */
static int lender_request_reach_exposed(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_reach *in = ex->payload;
	int err;

	mutex_lock(&fn->lock);
	err = lender_request_check_lease(ex, fn, in->lease) ?:
	      pcilend_reach_set_exposed(fn, ex->msg->peer, in);
	mutex_unlock(&fn->lock);
	return err;
}

static void lender_request_handle_reach(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_reach *in = ex->payload;
	u32 target = le32_to_cpu(in->target);
	int err;

	err = pcilend_id_node(target) == pcilend_node ? lender_request_reach_own(ex, fn, target) :
							lender_request_reach_exposed(ex, fn);
	lender_request_audit(ex, in->on ? "reach" : "unreach", fn->id, target, err);
	lender_request_answer(ex, err, NULL);
}

static int lender_request_check_holder(struct pcilend_function *fn, const void *holder)
{
	const struct exchange *ex = holder;
	const struct pcilend_msg_target *in = ex->payload;

	return lender_request_check_lease(ex, fn, in->lease);
}

static void lender_request_handle_target(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_target *in = ex->payload;
	bool on = le32_to_cpu(in->flags) & PCILEND_TARGET_ON;
	int err = pcilend_target_set(fn, ex->msg->peer, in, lender_request_check_holder, ex);

	lender_request_audit(ex, on ? "map-segment" : "unmap-segment", fn->id,
			     le32_to_cpu(in->segment), err);
	lender_request_answer(ex, err, NULL);
}

static int lender_request_check_near_holder(struct pcilend_function *fn, const void *holder)
{
	const struct exchange *ex = holder;
	const struct pcilend_msg_near *in = ex->payload;

	return lender_request_check_lease(ex, fn, in->lease);
}

static void lender_request_handle_near(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_near *in = ex->payload;
	struct pcilend_msg_id out = { };
	u32 id = 0;
	int err = pcilend_near_get(fn, ex->msg->peer, le64_to_cpu(in->size),
				   lender_request_check_near_holder, ex, &id);

	out.id = cpu_to_le32(id);
	lender_request_audit(ex, "near", fn->id, id, err);
	lender_request_answer(ex, err, &out);
}

static void lender_request_handle_expose(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_expose *in = ex->payload;
	const struct pcilend_lease_event holder = {
		.node = ex->msg->peer,
		.boot = ex->msg->boot,
		.lease = le32_to_cpu(in->lease),
	};
	u32 node = le32_to_cpu(in->node);
	int err;

	mutex_lock(&fn->lock);
	err = lender_request_check_lease(ex, fn, in->lease);
	if (!err && (node == pcilend_node || node == ex->msg->peer))
		err = -EINVAL;
	if (!err && !in->on)
		pcilend_unexpose(fn, node);
	mutex_unlock(&fn->lock);
	/* Waits for the other lender, and looks at the lease again. */
	if (!err && in->on)
		err = pcilend_expose(fn, &holder, node);
	lender_request_audit(ex, in->on ? "expose" : "unexpose", fn->id, node, err);
	lender_request_answer(ex, err, NULL);
}

/* Another lender speaks of a function of its own. */
static void lender_request_handle_exposed(const struct exchange *ex)
{
	const struct pcilend_msg_exposed *in = ex->payload;
	u32 borrower = le32_to_cpu(in->borrower);

	if (pcilend_id_node(le32_to_cpu(in->id)) != ex->msg->peer || borrower == pcilend_node ||
	    borrower == ex->msg->peer)
		lender_request_answer(ex, -EINVAL, NULL);
	else
		lender_request_answer(ex, pcilend_reach_exposed(ex->link, in), NULL);
}

static void lender_request_handle_config_read(const struct exchange *ex,
					      struct pcilend_function *fn)
{
	struct pcilend_msg_config out = *(const struct pcilend_msg_config *)ex->payload;
	int err;

	mutex_lock(&fn->lock);
	err = lender_request_check_lease(ex, fn, out.lease) ?:
	      pcilend_device_config_read(fn, le16_to_cpu(out.offset), out.data,
					 le16_to_cpu(out.length));
	mutex_unlock(&fn->lock);
	lender_request_answer(ex, err, &out);
}

static void lender_request_handle_msi(const struct exchange *ex, struct pcilend_function *fn)
{
	const struct pcilend_msg_msi *in = ex->payload;
	struct pcilend_msg_msi_message out = { };
	int err;

	mutex_lock(&fn->lock);
	err = lender_request_check_lease(ex, fn, in->lease) ?: pcilend_relay_set(fn, in, &out);
	if (err == -ENOSPC && pcilend_link_may_log(ex->link))
		pci_warn(fn->pdev, "no more interrupts of this host for node %u: its driver gets along with fewer\n",
			 ex->msg->peer);
	mutex_unlock(&fn->lock);
	lender_request_answer(ex, err, &out);
}

/*
 * What a lease is asked for with is nobody's but its holder's: he is not asked what he sees. So all
 * that name one are answered with -ESTALE where there is none, or no function; and the others with
 * -ENODEV by their handlers where the sender may not see the function.
 */
static int lender_request_refuse_unknown(const struct exchange *ex, u16 type, u32 named)
{
	int err = type == PCILEND_MSG_BORROW || type == PCILEND_MSG_RESERVE ||
		  type == PCILEND_MSG_JOIN ? -ENODEV : -ESTALE;

	if (err == -ENODEV || type == PCILEND_MSG_EXPOSE)
		lender_request_audit(ex, pcilend_msg_name(type), named, 0, err);
	if (type == PCILEND_MSG_RETURN)
		lender_request_take_returned(ex, NULL);
	return err;
}

/* Of a trusted peer. Those about one function are handled one at a time, in order of arrival. */
void pcilend_lender_request(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct exchange ex = {
		.link = link,
		.msg = msg,
		.payload = pcilend_message_payload(msg),
	};
	u16 type = le16_to_cpu(pcilend_message_header(msg)->type);
	struct pcilend_function *fn;
	u32 named;

	if (type == PCILEND_MSG_SYNC) {
		lender_request_answer(&ex, pcilend_lender_sync(link), NULL);
		return;
	}
	if (type == PCILEND_MSG_EXPOSED) {
		lender_request_handle_exposed(&ex);
		return;
	}
	/* All others begin with a function's id. */
	named = le32_to_cpu(((const struct pcilend_msg_id *)ex.payload)->id);
	fn = pcilend_function_find(named);
	if (!fn) {
		lender_request_answer(&ex, lender_request_refuse_unknown(&ex, type, named), NULL);
		return;
	}
	switch (type) {
	case PCILEND_MSG_BORROW:
		lender_request_handle_borrow(&ex, fn);
		break;
	case PCILEND_MSG_RETURN:
		lender_request_handle_return(&ex, fn);
		break;
	case PCILEND_MSG_JOIN:
		lender_request_handle_join(&ex, fn);
		break;
	case PCILEND_MSG_MAIL:
	case PCILEND_MSG_VECTOR:
		lender_request_handle_client(&ex, fn, type);
		break;
	case PCILEND_MSG_RESET:
		lender_request_handle_reset(&ex, fn);
		break;
	case PCILEND_MSG_RESERVE:
		lender_request_handle_reserve(&ex, fn);
		break;
	case PCILEND_MSG_CONFIG_READ:
		lender_request_handle_config_read(&ex, fn);
		break;
	case PCILEND_MSG_REACH:
		lender_request_handle_reach(&ex, fn);
		break;
	case PCILEND_MSG_MSI:
		lender_request_handle_msi(&ex, fn);
		break;
	case PCILEND_MSG_EXPOSE:
		lender_request_handle_expose(&ex, fn);
		break;
	case PCILEND_MSG_TARGET:
		lender_request_handle_target(&ex, fn);
		break;
	case PCILEND_MSG_NEAR:
		lender_request_handle_near(&ex, fn);
		break;
	default:
		lender_request_handle_simple(&ex, fn, type);
	}
	pcilend_function_put(fn);
}
