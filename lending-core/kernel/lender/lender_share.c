// SPDX-License-Identifier: GPL-2.0-only
/*
 * A local function that several processes share: who has borrowed it is its manager, and admits
 * clients by a policy. The state machine is in the portable core (share.h); here its actions are
 * carried out, one after the other, while the function's lock is held. So a client is asked for,
 * mapped and answered in one go, and no reset of the function comes in between.
 *
 * Its manager's lease is the function's (lease.h): whatever ends that fences the function, and ends
 * its clients with it. The manager can't end its lease and go on confirming, as its descriptor is
 * gone by then; so PCILEND_SHARE_RETURN is for clients only, and a manager that wants them to end
 * in order gives a policy for none first.
 *
 * A client is known here from its JOIN until it is over, and as long as a process of this host has
 * it. Such a process's memory is let go after both.
 */

#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "lender/lender_share.h"

static void lender_share_free_work(struct work_struct *work)
{
	struct lender_client *client = container_of(work, struct lender_client, free);

	if (client->use)
		pcilend_use_end(client->use);
	pcilend_use_put(client->use);
	pcilend_share_peer_free(client);
	pcilend_function_put(client->fn);
	kfree(client);
}

/* The last one may hold fn->lock, for which memory of processes does not wait. */
static void lender_share_release(struct kref *ref)
{
	queue_work(pcilend_wq, &container_of(ref, struct lender_client, ref)->free);
}

void pcilend_share_put_client(struct lender_client *client)
{
	kref_put(&client->ref, lender_share_release);
}

/* Zeroed memory before; with one reference, and one on @fn. */
void pcilend_share_init_client(struct lender_client *client, struct pcilend_function *fn)
{
	kref_init(&client->ref);
	INIT_WORK(&client->free, lender_share_free_work);
	client->mail = 1;
	kref_get(&fn->ref);
	client->fn = fn;
}

struct lender_client *pcilend_share_client(struct pcilend_function *fn, u32 lease)
{
	struct lender_client *client;

	lockdep_assert_held(&fn->lock);
	list_for_each_entry(client, &fn->shared->clients, node)
		if (client->lease == lease)
			return client;
	return NULL;
}

static bool lender_share_is_on(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	return fn->shared && fn->shared->share.state == PCILEND_SHARE_SHARED;
}

/* The manager has number 0. */
u32 pcilend_share_vector_of(const struct pcilend_share *share,
			    const struct pcilend_share_client *client)
{
	return 1 + pcilend_share_piece(share, client) * share->policy.vectors;
}

void pcilend_share_describe(const struct pcilend_share *share,
			    const struct pcilend_share_client *client,
			    struct pcilend_client_notice *notice)
{
	*notice = (struct pcilend_client_notice){
		.lease = client->lease,
		.node = client->node,
		.news = PCILEND_NEWS_JOINED,
		.slice = client->slice,
		.slice_bytes = client->wish.slice_bytes,
		.vector = pcilend_share_vector_of(share, client),
		.vectors = client->wish.vectors,
		.piece = pcilend_share_piece(share, client),
	};
}

static void lender_share_follow(struct pcilend_shared *shared, enum pcilend_share_event_type type,
				u32 client)
{
	if (WARN_ON(shared->follow == ARRAY_SIZE(shared->after)))
		return;
	shared->after[shared->follow++] = (struct pcilend_share_event){
		.type = type,
		.client = client,
	};
}

static void lender_share_tell(struct pcilend_function *fn,
			      const struct pcilend_share_action *action,
			      enum pcilend_client_news news)
{
	const struct pcilend_share *share = &fn->shared->share;
	const struct pcilend_share_client *client = pcilend_share_find(share, action->lease);
	struct pcilend_client_notice notice;

	if (!client)
		return;
	pcilend_share_describe(share, client, &notice);
	notice.news = news;
	notice.round = news == PCILEND_NEWS_JOINED ? 0 : action->round;
	pcilend_local_tell_client(fn, &notice);
}

/* It can ring nothing from now on, and no interrupt of the function is its any more. */
static void lender_share_close(struct pcilend_function *fn, u32 lease)
{
	const struct pcilend_share *share = &fn->shared->share;
	const struct pcilend_share_client *client = pcilend_share_find(share, lease);
	struct lender_client *ours = pcilend_share_client(fn, lease);
	u32 i;

	if (ours && ours->use)
		pcilend_use_over(ours->use);
	if (ours) {
		pcilend_share_peer_close(ours);
		pcilend_share_vectors_close(ours);
	}
	for (i = 0; client && i < client->wish.vectors; i++)
		pcilend_local_interrupt(fn, pcilend_share_vector_of(share, client) + i, NULL, NULL);
	lender_share_follow(fn->shared, PCILEND_SHARE_CLOSED, lease);
}

/* The function reaches nothing of its slice from now on; @last: nor its host's interrupts. */
static void lender_share_unmap(struct pcilend_function *fn, u32 lease, bool last)
{
	const struct pcilend_share_client *client = pcilend_share_find(&fn->shared->share, lease);
	int i;

	if (client && last)
		pcilend_share_vectors_unmap(fn, client);

	for (i = 0; client && i < PCILEND_MAPS; i++) {
		struct pcilend_map_entry *map = &fn->map[i];

		if (map->size && map->start >= client->slice &&
		    map->start - client->slice < client->wish.slice_bytes)
			pcilend_device_unmap(fn, map->start, map->size);
	}
	lender_share_follow(fn->shared, PCILEND_SHARE_UNMAPPED, lease);
}

static void lender_share_forget(struct pcilend_function *fn,
				const struct pcilend_share_action *action)
{
	struct lender_client *ours = pcilend_share_client(fn, action->lease);

	if (!ours)
		return;
	if (ours->use)
		pcilend_use_over(ours->use);
	pcilend_share_peer_over(ours, action->reason);
	list_del(&ours->node);
	pcilend_share_put_client(ours);
}

static void lender_share_map_client(struct pcilend_function *fn, u32 lease)
{
	struct lender_client *ours = pcilend_share_client(fn, lease);

	/* A process of this host maps its memory itself, and asks for pages of BARs. */
	lender_share_follow(fn->shared, ours && pcilend_share_peer_map(ours) ?
			    PCILEND_SHARE_MAP_FAILED : PCILEND_SHARE_MAPPED, lease);
}

/* Everybody loses it, as it is not safe to take one client's memory from it. */
static void lender_share_take_back(struct pcilend_function *fn,
				   const struct pcilend_share_action *action)
{
	struct pcilend_lease_event event = {
		.type = action->reason == PCILEND_LOST_REVOKED ? PCILEND_LEASE_REVOKE :
								  PCILEND_LEASE_EXPIRE,
	};

	/* If it is being fenced, that is why. */
	if (fn->lease.state != PCILEND_FUNCTION_BORROWED || fn->lease.number != action->lease)
		return;
	if (action->reason != PCILEND_LOST_REVOKED)
		pci_warn(fn->pdev, "its manager, node %u, has not confirmed in time that a client's memory is not used: lease %u and those of all clients are over\n",
			 action->node, action->lease);
	pcilend_function_apply(fn, &event, NULL);
	pcilend_function_queue_settle(fn);
}

static void lender_share_notify(struct pcilend_function *fn, u32 lease, u16 type)
{
	struct lender_client *ours = pcilend_share_client(fn, lease);

	if (!ours)
		return;
	if (ours->use)
		pcilend_use_disturbed(ours->use);
	pcilend_share_peer_tell(ours, type);
}

/* Nothing carries its interrupts for now, or they are carried again. */
static void lender_share_mute(struct pcilend_function *fn, u32 lease, bool muted)
{
	struct lender_client *ours = pcilend_share_client(fn, lease);

	if (ours)
		pcilend_share_vectors_mask(ours, muted);
}

static void lender_share_ask_back(struct pcilend_function *fn, u32 lease)
{
	struct lender_client *ours = pcilend_share_client(fn, lease);

	/* That to the manager its lease brings. */
	if (!ours)
		return;
	if (ours->use)
		pcilend_use_recalled(ours->use);
	pcilend_share_peer_recall(ours, pcilend_lease_recall_in(&fn->lease, pcilend_now()));
}

static void lender_share_act(struct pcilend_function *fn,
			     const struct pcilend_share_action *action)
{
	lockdep_assert_held(&fn->lock);
	switch (action->type) {
	case PCILEND_SHARE_DO_MAP:
		lender_share_map_client(fn, action->lease);
		break;
	case PCILEND_SHARE_DO_TELL:
		lender_share_tell(fn, action, PCILEND_NEWS_JOINED);
		break;
	case PCILEND_SHARE_DO_GONE:
		lender_share_tell(fn, action, PCILEND_NEWS_GONE);
		break;
	case PCILEND_SHARE_DO_QUARANTINE:
		lender_share_mute(fn, action->lease, true);
		lender_share_tell(fn, action, PCILEND_NEWS_QUARANTINED);
		break;
	case PCILEND_SHARE_DO_CLOSE:
		lender_share_close(fn, action->lease);
		break;
	case PCILEND_SHARE_DO_UNMAP:
		lender_share_unmap(fn, action->lease, action->last);
		break;
	case PCILEND_SHARE_DO_RELEASE:
		lender_share_forget(fn, action);
		break;
	case PCILEND_SHARE_DO_WAS_RESET:
		lender_share_notify(fn, action->lease, PCILEND_MSG_WAS_RESET);
		break;
	case PCILEND_SHARE_DO_READMIT:
		lender_share_mute(fn, action->lease, false);
		lender_share_notify(fn, action->lease, PCILEND_MSG_READMITTED);
		break;
	case PCILEND_SHARE_DO_RECALL:
		lender_share_ask_back(fn, action->lease);
		break;
	case PCILEND_SHARE_DO_FENCE:
		lender_share_take_back(fn, action);
		break;
	case PCILEND_SHARE_DO_ANSWER:		/* who has asked waits for it */
	case PCILEND_SHARE_DO_AUDIT:		/* whoever handles what was tried has the refusal */
	case PCILEND_SHARE_DO_MANAGER_OVER:	/* see above */
		break;
	}
}

static void lender_share_carry_out(struct pcilend_function *fn)
{
	const struct pcilend_share_result *result = &fn->shared->result;
	u32 i;

	for (i = 0; i < result->count; i++)
		lender_share_act(fn, &result->action[i]);
}

/* The work item holds a reference. */
static void lender_share_queue_due(struct pcilend_function *fn)
{
	u64 ms = pcilend_share_due_in(&fn->shared->share, pcilend_now());
	struct lender_client *client;

	lockdep_assert_held(&fn->lock);
	list_for_each_entry(client, &fn->shared->clients, node)
		ms = min(ms, pcilend_share_peer_left(client));
	if (ms == U64_MAX) {
		if (cancel_delayed_work(&fn->share_due))
			pcilend_function_put(fn);
		return;
	}
	kref_get(&fn->ref);
	if (mod_delayed_work(pcilend_wq, &fn->share_due, msecs_to_jiffies(ms) + 1))
		pcilend_function_put(fn);
}

static void lender_share_tell_listeners(struct pcilend_function *fn)
{
	struct pcilend_report *report __free(kfree) = kmalloc(sizeof(*report), GFP_KERNEL);

	pcilend_changed();
	if (!report)
		return;
	pcilend_function_report(fn, report);
	pcilend_event_function(PCILEND_EVENT_FUNCTION, report);
}

/*
 * One step of the machine, and all that follows from it.
 * @joining: of JOIN: the client, in the list from its grant on; else NULL
 * @why: set on refusal; may be NULL
 */
int pcilend_share_step(struct pcilend_function *fn, struct pcilend_share_event *event,
		       struct lender_client *joining, const char **why)
{
	struct pcilend_shared *shared = fn->shared;
	u32 done;
	int err;

	lockdep_assert_held(&fn->lock);
	event->now = pcilend_now();
	err = pcilend_function_share_step(&shared->share, event, &shared->result);
	if (err && why)
		*why = shared->result.why;
	if (!err && joining) {
		joining->lease = shared->result.lease;
		kref_get(&joining->ref);
		list_add_tail(&joining->node, &shared->clients);
	}
	lender_share_carry_out(fn);
	for (done = 0; done < shared->follow; done++) {
		shared->after[done].now = event->now;
		WARN_ON(pcilend_function_share_step(&shared->share, &shared->after[done],
						    &shared->result));
		lender_share_carry_out(fn);
	}
	if (shared->follow)
		lender_share_tell_listeners(fn);
	shared->follow = 0;
	pcilend_share_mail_settle(fn);
	lender_share_queue_due(fn);
	return err;
}

/* Hosts that are silent for longer than their leases last. */
static void lender_share_expire(struct pcilend_function *fn)
{
	u32 i;

	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		const struct pcilend_share_client *core = &fn->shared->share.client[i];
		struct lender_client *client = core->state == PCILEND_CLIENT_NONE ? NULL :
			pcilend_share_client(fn, core->lease);
		struct pcilend_share_event event = {
			.type = PCILEND_SHARE_EXPIRE,
			.client = core->lease,
		};

		if (client && !pcilend_share_peer_left(client))
			pcilend_share_step(fn, &event, NULL, NULL);
	}
}

void pcilend_share_due_work(struct work_struct *work)
{
	struct pcilend_function *fn = container_of(work, struct pcilend_function, share_due.work);
	struct pcilend_share_event event = { .type = PCILEND_SHARE_TICK };

	scoped_guard(mutex, &fn->lock) {
		if (fn->shared) {
			lender_share_expire(fn);
			pcilend_share_step(fn, &event, NULL, NULL);
		}
	}
	pcilend_function_put(fn);
}

/* What the function has to be shared. */
static void lender_share_look_at(struct pcilend_function *fn,
				 struct pcilend_share_function *function)
{
	struct pci_dev *pdev = fn->pdev;
	int i;

	*function = (struct pcilend_share_function){
		.last_address = pcilend_function_is_direct(fn) ? 0 :
				min(pcilend_device_last_address(fn), pcilend_group_last_place(fn)),
		.alone = !pcilend_group_set(fn),
	};
	for (i = 0; i < PCI_STD_NUM_BARS; i++)
		if (pci_resource_flags(pdev, i) & IORESOURCE_MEM)
			function->bar_bytes[i] = PAGE_ALIGN(pci_resource_len(pdev, i));
	if (pdev->msix_cap)
		function->msix_bar = pcilend_use_table_pages(pdev, &function->msix_page,
							     &function->msix_pages);
}

/* Who has borrowed it manages it, and admits nobody yet. */
static int lender_share_begin(struct pcilend_function *fn)
{
	const struct pcilend_share_rules rules = { .clients = PCILEND_SHARE_CLIENTS };
	struct pcilend_share_event allow = { .type = PCILEND_SHARE_ALLOW, .rules = &rules };
	struct pcilend_share_event manage = {
		.type = PCILEND_SHARE_MANAGE,
		.node = fn->lease.node,
		.boot = fn->lease.boot,
		.lease = fn->lease.number,
		.slice_bytes = fn->slice_bytes,
	};
	struct pcilend_share_function function;

	lockdep_assert_held(&fn->lock);
	fn->shared = kvzalloc(sizeof(*fn->shared), GFP_KERNEL);
	if (!fn->shared)
		return -ENOMEM;
	INIT_LIST_HEAD(&fn->shared->clients);
	lender_share_look_at(fn, &function);
	pcilend_share_init(&fn->shared->share, &function, PCILEND_SHARE_CLEAR_MS);
	WARN_ON(pcilend_share_step(fn, &allow, NULL, NULL) ||
		pcilend_share_step(fn, &manage, NULL, NULL));
	return 0;
}

/*
 * pcilend_share_set - the function's borrower admits clients
 * @policy: for 0 clients: those that there are end
 * @nodes: whose processes may join
 * @why: set on refusal, if there is more to say than the error
 *
 * Return: as pcilend_share_apply() for POLICY, or -ENOMEM.
 */
int pcilend_share_set(struct pcilend_function *fn, const struct pcilend_share_policy *policy,
		      const struct pcilend_access *nodes, const char **why)
{
	const struct pcilend_share_rules rules = {
		.clients = PCILEND_SHARE_CLIENTS,
		.nodes = *nodes,
	};
	struct pcilend_share_event allow = { .type = PCILEND_SHARE_ALLOW, .rules = &rules };
	struct pcilend_share_event event = {
		.type = PCILEND_SHARE_POLICY,
		.node = fn->lease.node,
		.boot = fn->lease.boot,
		.lease = fn->lease.number,
		.policy = policy,
	};
	int err = 0;

	lockdep_assert_held(&fn->lock);
	if (!fn->shared)
		err = policy->clients ? lender_share_begin(fn) : 0;
	if (err || !fn->shared)
		return err;
	err = pcilend_share_step(fn, &event, NULL, why);
	if (err)
		return err;
	if (policy->clients)
		pcilend_share_step(fn, &allow, NULL, NULL);
	pcilend_function_announce(fn);
	return 0;
}

/* pcilend_share_cleared - the manager confirms the end of a client; Return: as for CLEARED */
int pcilend_share_cleared(struct pcilend_function *fn, u32 client, u32 round, const char **why)
{
	struct pcilend_share_event event = {
		.type = PCILEND_SHARE_CLEARED,
		.node = fn->lease.node,
		.boot = fn->lease.boot,
		.lease = fn->lease.number,
		.client = client,
		.round = round,
	};

	lockdep_assert_held(&fn->lock);
	if (!fn->shared) {
		*why = "it is not shared: give a policy first";
		return -EINVAL;
	}
	return pcilend_share_step(fn, &event, NULL, why);
}

/* Is it the clients' that there may be? */
bool pcilend_share_has_vector(struct pcilend_function *fn, u32 vector)
{
	const struct pcilend_share_policy *policy;

	if (!lender_share_is_on(fn))
		return false;
	policy = &fn->shared->share.policy;
	return vector && vector <= policy->clients * policy->vectors;
}

/* Bytes of slices, of all clients. */
u64 pcilend_share_bytes(struct pcilend_function *fn)
{
	u64 bytes = 0;
	u32 i;

	lockdep_assert_held(&fn->lock);
	for (i = 0; fn->shared && i < PCILEND_SHARE_CLIENTS; i++)
		if (fn->shared->share.client[i].state != PCILEND_CLIENT_NONE)
			bytes += fn->shared->share.client[i].wish.slice_bytes;
	return bytes;
}

/* The range as it is for that client. */
struct pcilend_share_range pcilend_share_own(const struct pcilend_share *share,
					     const struct pcilend_share_client *client, u32 index)
{
	struct pcilend_share_range range = share->policy.range[index];

	if (range.kind == PCILEND_SHARE_POOL)
		range.page += pcilend_share_piece(share, client) * range.pages;
	return range;
}

/* What follows happens to a function that is shared; of others these are no-ops. */

static void lender_share_all(struct pcilend_function *fn, void (*tell)(struct pcilend_use *use),
			     void (*tell_peer)(struct lender_client *client))
{
	struct lender_client *client;

	lockdep_assert_held(&fn->lock);
	if (!fn->shared)
		return;
	list_for_each_entry(client, &fn->shared->clients, node) {
		if (client->use)
			tell(client->use);
		tell_peer(client);
	}
}

void pcilend_share_hide(struct pcilend_function *fn)
{
	lender_share_all(fn, pcilend_use_hide, pcilend_share_peer_hide);
}

void pcilend_share_show(struct pcilend_function *fn)
{
	lender_share_all(fn, pcilend_use_show, pcilend_share_peer_show);
}

/* It is being fenced: no way in for clients either. */
void pcilend_share_close(struct pcilend_function *fn)
{
	lender_share_all(fn, pcilend_use_over, pcilend_share_peer_close);
}

/* It is fenced: nothing of clients is reached. @lost: why the manager has lost it; 0: returned */
void pcilend_share_over(struct pcilend_function *fn, enum pcilend_lost_reason lost)
{
	struct pcilend_share_event take = {
		.type = lost == PCILEND_LOST_REVOKED ? PCILEND_SHARE_REVOKE :
						       PCILEND_SHARE_UNPLUGGED,
	};
	struct pcilend_share_event fenced = { .type = PCILEND_SHARE_FENCED };

	lockdep_assert_held(&fn->lock);
	if (!fn->shared)
		return;
	pcilend_share_step(fn, &take, NULL, NULL);
	pcilend_share_step(fn, &fenced, NULL, NULL);
	WARN_ON(!list_empty(&fn->shared->clients));
	kvfree(fn->shared);
	fn->shared = NULL;
}

/* All that it was programmed with is gone; its manager was told. */
void pcilend_share_was_reset(struct pcilend_function *fn)
{
	struct pcilend_share_event resetting = {
		.type = PCILEND_SHARE_RESETTING,
		.node = fn->lease.node,
		.boot = fn->lease.boot,
		.lease = fn->lease.number,
	};
	struct pcilend_share_event done = { .type = PCILEND_SHARE_RESET_OK };

	lockdep_assert_held(&fn->lock);
	if (!fn->shared || pcilend_share_step(fn, &resetting, NULL, NULL))
		return;
	pcilend_share_step(fn, &done, NULL, NULL);
}

void pcilend_share_recall(struct pcilend_function *fn, u64 left)
{
	struct pcilend_share_event event = {
		.type = PCILEND_SHARE_RECALL,
		.grace_ms = min_t(u64, left, PCILEND_GRACE_MS_MAX),
	};

	lockdep_assert_held(&fn->lock);
	if (fn->shared)
		pcilend_share_step(fn, &event, NULL, NULL);
}

bool pcilend_share_is_on(struct pcilend_function *fn)
{
	return lender_share_is_on(fn);
}

void pcilend_share_report(struct pcilend_function *fn, struct pcilend_report *report)
{
	u32 i;

	lockdep_assert_held(&fn->lock);
	for (i = 0; fn->shared && i < PCILEND_SHARE_CLIENTS; i++) {
		const struct pcilend_share_client *client = &fn->shared->share.client[i];

		if (client->state == PCILEND_CLIENT_NONE)
			continue;
		report->client[report->clients++] = (struct pcilend_report_client){
			.lease = client->lease,
			.node = client->node,
			.state = client->state,
		};
	}
}
