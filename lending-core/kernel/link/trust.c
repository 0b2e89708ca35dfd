// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which links are trusted to lead to which node (core/path.h decides). Node ids are not
 * authenticated, so the first link to a node is believed; whoever shows the same id on another one
 * gets in only if the node says, over a link that is trusted, that this one is its own too. A pin
 * takes the place of both.
 *
 * A link is trusted from the end of its handshake until its session is over, or its peer has been
 * silent for as long as leases last. Requests and notices are handled over trusted links only.
 */

#include <linux/slab.h>

#include "link/session.h"
#include "pcilend/path.h"

/* A node that is let in over this adapter only, or over others that it is pinned to. */
struct pin {
	struct list_head node;
	u32 id;				/* of the node */
	char adapter[32];
};

static LIST_HEAD(pins);
static DEFINE_MUTEX(pins_lock);

/* One link becomes trusted at a time; outside of pins_lock. */
static DEFINE_MUTEX(trust_lock);

static struct pin *trust_find_pin(const char *adapter)
{
	struct pin *pin;

	lockdep_assert_held(&pins_lock);
	list_for_each_entry(pin, &pins, node) {
		if (!strcmp(pin->adapter, adapter))
			return pin;
	}
	return NULL;
}

static void trust_look_again(void)
{
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (link->usable)
			pcilend_handshake_event(link);
	}
}

/*
 * pcilend_pin - let a node in only over this adapter, and others that it is pinned to
 *
 * Links that do not agree with it are ended. Return: 0; -ENODEV, -EBUSY, -ENOMEM.
 */
int pcilend_pin(u32 id, const char *adapter, struct netlink_ext_ack *extack)
{
	struct pcilend_link *link = pcilend_link_by_adapter(adapter);
	struct pin *pin;
	int err = 0;

	if (!link) {
		NL_SET_ERR_MSG(extack, "this host has no NTB adapter at that address: see 'pcilend link'");
		return -ENODEV;
	}
	mutex_lock(&pins_lock);
	pin = trust_find_pin(adapter);
	if (pin && pin->id != id) {
		NL_SET_ERR_MSG(extack, "another node is pinned to that adapter: see 'pcilend link --verbose', disconnect that node first");
		err = -EBUSY;
	} else if (!pin) {
		pin = kzalloc(sizeof(*pin), GFP_KERNEL);
		if (pin) {
			pin->id = id;
			strscpy(pin->adapter, adapter, sizeof(pin->adapter));
			list_add_tail(&pin->node, &pins);
		} else {
			err = -ENOMEM;
		}
	}
	mutex_unlock(&pins_lock);
	if (!err) {
		pcilend_event_link(link);
		trust_look_again();
	}
	pcilend_link_put(link);
	return err;
}

static void trust_drop_pins(u32 id, bool all)
{
	struct pin *pin, *next;

	mutex_lock(&pins_lock);
	list_for_each_entry_safe(pin, next, &pins, node) {
		if (all || pin->id == id) {
			list_del(&pin->node);
			kfree(pin);
		}
	}
	mutex_unlock(&pins_lock);
}

void pcilend_unpin(u32 id)
{
	trust_drop_pins(id, false);
	trust_look_again();
}

/* The links are gone. */
void pcilend_pins_exit(void)
{
	trust_drop_pins(0, true);
}

/* The node that is pinned to that adapter; 0: none. */
u32 pcilend_pinned(struct pcilend_link *link)
{
	struct pin *pin;
	u32 id;

	mutex_lock(&pins_lock);
	pin = trust_find_pin(pci_name(link->pdev));
	id = pin ? pin->id : 0;
	mutex_unlock(&pins_lock);
	return id;
}

static bool trust_is_pinned(u32 id)
{
	struct pin *pin;
	bool found = false;

	mutex_lock(&pins_lock);
	list_for_each_entry(pin, &pins, node)
		found |= pin->id == id;
	mutex_unlock(&pins_lock);
	return found;
}

/* May what comes over this link be taken for its node's? */
bool pcilend_link_is_trusted(struct pcilend_link *link)
{
	bool trusted;

	spin_lock(&link->state_lock);
	trusted = link->trusted;
	spin_unlock(&link->state_lock);
	return trusted;
}

/*
 * What is known about the claim of the peer of @link to be node @id. *trusted (optional) is set to
 * one of the links that are trusted to lead to that node, one that is up if there is any, with a
 * reference; or NULL.
 */
static enum pcilend_path_verdict trust_judge(struct pcilend_link *link, u32 id,
					     struct pcilend_link **trusted)
{
	struct pcilend_path_claim claim = {
		.node = id,
		.pinned = pcilend_pinned(link),
		.pinned_elsewhere = trust_is_pinned(id),
	};
	struct pcilend_link *other, *known = NULL;

	for (other = pcilend_link_next(NULL); other; other = pcilend_link_next(other)) {
		bool counts, up;

		if (other == link)
			continue;
		spin_lock(&other->state_lock);
		counts = other->trusted && other->peer_node == id;
		up = other->state == PCILEND_LINK_UP;
		spin_unlock(&other->state_lock);
		if (!counts)
			continue;
		if (!known || (up && !claim.trusted_up)) {
			pcilend_link_put(known);
			known = pcilend_link_get(other);
		}
		claim.trusted++;
		claim.trusted_up += up;
	}
	if (trusted)
		*trusted = known;
	else
		pcilend_link_put(known);
	return pcilend_path_judge(&claim);
}

static void trust_refused(struct pcilend_link *link, u32 id)
{
	pcilend_count(PCILEND_COUNTER_A_STRANGERS);
	pcilend_audit_peer(&link->audit, id, "path", 0, 0, -ENOTUNIQ);
}

/* The handshake: is node @id pinned, or this adapter, such that it must not be here? */
bool pcilend_link_is_misplaced(struct pcilend_link *link, u32 id, char *why, size_t bytes)
{
	switch (trust_judge(link, id, NULL)) {
	case PCILEND_PATH_OTHER_NODE:
		snprintf(why, bytes,
			 "node %u is behind this adapter, to which node %u is pinned: check the cables, or 'pcilend disconnect %u' to unpin it",
			 id, pcilend_pinned(link), pcilend_pinned(link));
		break;
	case PCILEND_PATH_OTHER_ADAPTER:
		snprintf(why, bytes,
			 "node %u is pinned to another adapter: if it is behind this one too, run 'pcilend connect %u --adapter %s'",
			 id, id, pci_name(link->pdev));
		break;
	default:
		return false;
	}
	if (link->state != PCILEND_LINK_REFUSED)
		trust_refused(link, id);
	return true;
}

/* Asks the node at the other end of @voucher whether the one of @link is its own. */
static int trust_ask(struct pcilend_link *link, struct pcilend_link *voucher, char *why,
		     size_t bytes)
{
	const struct pcilend_msg_vouch msg = {
		.asker = cpu_to_le64(link->boot),
		.asked = cpu_to_le64(link->peer_boot),
	};
	u64 session = READ_ONCE(voucher->peer_boot);
	int err = -ENOTUNIQ;

	if (link->denied_by != session)
		err = pcilend_channel_request(voucher, PCILEND_MSG_VOUCH, &msg, NULL);
	if (!err)
		return 0;
	if (err != -ENOTUNIQ) {
		snprintf(why, bytes, "asking node %u about it through adapter %s",
			 link->peer_node, pci_name(voucher->pdev));
		return -EAGAIN;
	}
	if (link->denied_by != session)
		trust_refused(link, link->peer_node);
	link->denied_by = session;
	snprintf(why, bytes,
		 "node %u, reached through adapter %s, says that this is somebody else: give every host its own node=, or pin the node by 'pcilend connect %u --adapter'",
		 link->peer_node, pci_name(voucher->pdev), link->peer_node);
	return err;
}

/*
 * pcilend_link_earn_trust - may this link be used for the node that its peer says it is?
 * @why: set unless it may
 *
 * Called by the handshake when all else fits; may wait for the peer of another link, for
 * PCILEND_REQUEST_MS. Return: 0; -EAGAIN: not yet; -ENOTUNIQ.
 */
int pcilend_link_earn_trust(struct pcilend_link *link, char *why, size_t bytes)
{
	struct pcilend_link *voucher = NULL;
	enum pcilend_path_verdict verdict;
	int err;

	if (pcilend_link_is_trusted(link))
		return 0;
	mutex_lock(&trust_lock);
	verdict = trust_judge(link, link->peer_node, &voucher);
	if (verdict == PCILEND_PATH_FIRST || verdict == PCILEND_PATH_PINNED) {
		pcilend_link_set_trusted(link);
		err = 0;
	} else {
		err = -EAGAIN;
	}
	mutex_unlock(&trust_lock);

	if (verdict == PCILEND_PATH_WAIT)
		snprintf(why, bytes,
			 "node %u is known behind adapter %s, which is down: waits until that is up, or its leases are over",
			 link->peer_node, pci_name(voucher->pdev));
	else if (verdict == PCILEND_PATH_ASK)
		err = trust_ask(link, voucher, why, bytes);
	if (!err && verdict == PCILEND_PATH_ASK) {
		/* What vouched for this one must still hold. */
		mutex_lock(&trust_lock);
		if (pcilend_link_is_trusted(voucher))
			pcilend_link_set_trusted(link);
		else
			err = -EAGAIN;
		mutex_unlock(&trust_lock);
	}
	pcilend_link_put(voucher);
	return err;
}

/* A peer that shows this node's id elsewhere: is that this host? Return: 0 or -ENOTUNIQ. */
int pcilend_link_vouch(u32 node, const struct pcilend_msg_vouch *msg)
{
	struct pcilend_link *link;
	bool own = false;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		struct pcilend_path_end end;

		spin_lock(&link->state_lock);
		end.node = link->peer_node;
		end.boot = READ_ONCE(link->boot);
		end.peer_boot = link->peer_boot;
		spin_unlock(&link->state_lock);
		own |= pcilend_path_is_own(&end, node, le64_to_cpu(msg->asker),
					   le64_to_cpu(msg->asked));
	}
	return own ? 0 : -ENOTUNIQ;
}
