// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reservations of this host's functions, by its administrator or by peers. Who may reserve what,
 * and for how long, is decided in the portable core (reservation.h).
 */

#include "lender/lender.h"

static void lender_reserve_unreserve_work(struct work_struct *work)
{
	struct pcilend_function *fn = container_of(work, struct pcilend_function, unreserve.work);

	mutex_lock(&fn->lock);
	if (fn->lease.state != PCILEND_FUNCTION_LOCAL &&
	    !pcilend_reservation_left(&fn->reservation, pcilend_now())) {
		pcilend_changed();
		pcilend_function_announce(fn);
	}
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
}

void pcilend_reserve_init(struct pcilend_function *fn)
{
	INIT_DELAYED_WORK(&fn->unreserve, lender_reserve_unreserve_work);
}

/* The function is no longer lent; its state is `local`. */
void pcilend_reserve_exit(struct pcilend_function *fn)
{
	if (cancel_delayed_work_sync(&fn->unreserve))
		pcilend_function_put(fn);
}

/*
 * pcilend_function_reserve - reserve the function, or end its reservation
 * @wish: complete but for what is known of the function and the time
 *
 * Return: 0, or a refusal as pcilend_reservation_set(); *why is set then.
 */
int pcilend_function_reserve(struct pcilend_function *fn, struct pcilend_reserve *wish,
			     const char **why)
{
	u64 left;
	int err;

	lockdep_assert_held(&fn->lock);
	if (fn->lease.state == PCILEND_FUNCTION_LOCAL) {
		*why = "it is no longer added: run 'pcilend add' with its address first";
		return -ENODEV;
	}
	wish->now = pcilend_now();
	wish->available = fn->lease.state == PCILEND_FUNCTION_AVAILABLE;
	err = pcilend_reservation_set(&fn->reservation, wish, why);
	if (err)
		return err;
	left = pcilend_reservation_left(&fn->reservation, wish->now);
	if (left) {
		/* The work item holds a reference, and announces the end. */
		kref_get(&fn->ref);
		if (mod_delayed_work(pcilend_wq, &fn->unreserve, msecs_to_jiffies(left) + 1))
			pcilend_function_put(fn);
	} else if (cancel_delayed_work(&fn->unreserve)) {
		pcilend_function_put(fn);
	}
	pcilend_changed();
	pcilend_function_announce(fn);
	return 0;
}

/*
 * pcilend_lender_reserve - reserve a function of this host
 * @msg: checked as if a peer had sent it
 */
int pcilend_lender_reserve(const struct pcilend_msg_reserve *msg, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = pcilend_function_find(le32_to_cpu(msg->id));
	struct pcilend_reserve wish = {
		.node = le32_to_cpu(msg->node),
		.ttl_ms = le32_to_cpu(msg->ttl_ms),
	};
	const char *why = NULL;
	int err;

	if (!fn)
		return pcilend_refuse(extack, -ENODEV, "this host has no function with that id: see 'pcilend list'");
	memcpy(wish.uuid, msg->uuid, sizeof(wish.uuid));
	mutex_lock(&fn->lock);
	err = pcilend_function_reserve(fn, &wish, &why);
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
	return pcilend_refuse(extack, err, why);
}
