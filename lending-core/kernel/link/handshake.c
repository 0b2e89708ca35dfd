// SPDX-License-Identifier: GPL-2.0-only
/*
 * How a link comes up, is watched, and goes down. One work item, polled at bounded intervals and
 * hurried by doorbells and link events, is all that changes a link's state and peer:
 *
 *	down -> handshake	the NTB's link is up: set translations, show our scratchpads
 *	handshake -> up		the peer's scratchpads name an area, its window shows it to us,
 *				the peer has seen ours, its heart beats in it, and what the two
 *				say of themselves fits (hello.c)
 *	up -> handshake		the peer started over, fell silent, or takes no messages
 *	any -> down		the NTB's link went down
 *
 *	handshake -> refused	does not fit, or the peer is not the node that it says it is
 *
 * A session is a pair of boot ids. It survives the link's going down and up; a peer with another
 * boot id starts a new one, after everything of the old one is fenced and forgotten.
 */

#include "link/session.h"

#define QUICK_MS 50		/* while a handshake is under way, for QUICK_FOR_MS */
#define QUICK_FOR_MS 10000
#define SLOW_MS 1000
#define REFRESH_MS 10000	/* while up, show our scratchpads again */
#define ENABLE_AGAIN_MS 5000	/* while a switch's link is down */
#define STABLE_READS 4
/*
 * So long without an event of the driver before a link carries anything: one that comes later is
 * taken for a loss. ntb_hw_amd polls a second after it was told of a loss, and then sends an event
 * whatever it finds.
 */
#define SETTLE_MS 1250

/* What a peer shows in the scratchpads. */
struct greeting {
	u32 spad[PCILEND_SPADS];
};

static u64 handshake_greeting_boot(const struct greeting *peer)
{
	return (u64)peer->spad[PCILEND_SPAD_BOOT_HIGH] << 32 | peer->spad[PCILEND_SPAD_BOOT_LOW];
}

/* Reads until two passes agree, so that no half-written greeting is taken. */
static bool handshake_read_greeting(struct pcilend_link *link, struct greeting *peer)
{
	struct greeting again;
	int try, i;

	for (i = 0; i < PCILEND_SPADS; i++)
		peer->spad[i] = ntb_spad_read(link->ntb, i);
	for (try = 0; try < STABLE_READS; try++) {
		for (i = 0; i < PCILEND_SPADS; i++)
			again.spad[i] = ntb_spad_read(link->ntb, i);
		if (!memcmp(peer, &again, sizeof(again)))
			return true;
		*peer = again;
	}
	return false;
}

static void handshake_write_spad(struct pcilend_link *link, enum pcilend_spad spad, u32 value)
{
	ntb_peer_spad_write(link->ntb, NTB_DEF_PEER_IDX, spad, value);
}

/* Shows our scratchpads. The values stay the same, so only the first time hides them meanwhile. */
static void handshake_publish(struct pcilend_link *link)
{
	if (!link->published)
		handshake_write_spad(link, PCILEND_SPAD_MAGIC, 0);
	handshake_write_spad(link, PCILEND_SPAD_BOOT_LOW, lower_32_bits(link->boot));
	handshake_write_spad(link, PCILEND_SPAD_BOOT_HIGH, upper_32_bits(link->boot));
	handshake_write_spad(link, PCILEND_SPAD_NODE, pcilend_node);
	handshake_write_spad(link, PCILEND_SPAD_AREA_PAGE,
			     link->aperture.layout.dma_window << PCILEND_AREA_WINDOW_SHIFT |
			     link->area_dma / PCILEND_PAGE);
	handshake_write_spad(link, PCILEND_SPAD_SEEN_LOW, lower_32_bits(link->peer_boot));
	handshake_write_spad(link, PCILEND_SPAD_MAGIC, PCILEND_WIRE_MAGIC + PCILEND_WIRE_VERSION);
	link->published = true;
	link->published_at = pcilend_now();
	/* A refresh rings no doorbell: a peer that is up takes no interrupt for it. */
	if (link->state != PCILEND_LINK_UP)
		pcilend_link_kick_peer(link);
}

static void handshake_note_heartbeat(struct pcilend_link *link)
{
	u64 writer = pcilend_area_writer(link);
	u64 value = le64_to_cpu(READ_ONCE(link->area->heartbeat));

	spin_lock(&link->state_lock);
	if (link->peer_boot &&
	    pcilend_heartbeat_note(&link->beat, writer, value, pcilend_now()) ==
	    PCILEND_HEARTBEAT_ALIVE) {
		link->alive = true;
		link->silent = false;
	}
	spin_unlock(&link->state_lock);
}

/*
 * pcilend_link_follow_trail - does anything show that the link was lost, of which the driver did
 * not tell?
 *
 * Process context. Only of a link that carries; what was lost before that hurts nobody.
 */
void pcilend_link_follow_trail(struct pcilend_link *link)
{
	const struct pcilend_wire_area *area;
	__le32 slots[PCILEND_TRAIL_SLOTS];
	enum pcilend_trail_news news;
	u32 beat;

	if (!pcilend_link_carries(link))
		return;
	spin_lock(&link->state_lock);
	area = link->area;
	if (!link->peer_boot || pcilend_area_writer(link) != link->peer_boot) {
		spin_unlock(&link->state_lock);
		return;
	}
	beat = le64_to_cpu(READ_ONCE(area->heartbeat));
	/* The beat before what was written ahead of it. */
	dma_rmb();
	memcpy(slots, area->trail, sizeof(slots));
	news = pcilend_trail_follow(&link->trail, slots, beat,
				    le32_to_cpu(READ_ONCE(area->losses)));
	spin_unlock(&link->state_lock);

	if (news == PCILEND_TRAIL_WHOLE)
		return;
	if (pcilend_link_may_log(link))
		pci_notice(link->pdev, "pcilend: the link was lost for a moment: %s\n",
			   news == PCILEND_TRAIL_GAP ? "a heartbeat is missing" :
						       "the peer has noticed");
	if (news == PCILEND_TRAIL_GAP)
		pcilend_link_lost(link);
	else
		pcilend_link_lost_by_peer(link);
	pcilend_handshake_event(link);
}

/* The link is about to carry: what counts from now on. */
static void handshake_start_trail(struct pcilend_link *link)
{
	spin_lock(&link->state_lock);
	pcilend_trail_start(&link->trail, le64_to_cpu(READ_ONCE(link->area->heartbeat)),
			    le32_to_cpu(READ_ONCE(link->area->losses)));
	spin_unlock(&link->state_lock);
}

static void handshake_tick_work(struct work_struct *work)
{
	struct pcilend_link *link = container_of(work, struct pcilend_link, tick.work);
	bool fell_silent = false;

	pcilend_channel_beat(link);
	pcilend_link_listen(link);
	pcilend_channel_look(link);
	handshake_note_heartbeat(link);
	pcilend_link_follow_trail(link);

	spin_lock(&link->state_lock);
	if (link->peer_boot && !link->silent &&
	    pcilend_heartbeat_silence(&link->beat, pcilend_now()) >= pcilend_lease_ms) {
		link->silent = true;
		link->trusted = false;
		fell_silent = true;
	}
	spin_unlock(&link->state_lock);

	if (fell_silent)
		pcilend_handshake_event(link);
	queue_delayed_work(pcilend_channel_wq, &link->tick, msecs_to_jiffies(PCILEND_HEARTBEAT_MS));
}

/* Everything that was lent to, or borrowed from, this boot of the peer is over when it returns. */
static void handshake_end_session(struct pcilend_link *link)
{
	u16 node = link->peer_node;
	u64 boot = link->peer_boot;

	if (!boot)
		return;
	/* What is told of the next session's link starts anew; this one's functions are stopped. */
	pcilend_link_lost_by_peer(link);
	pcilend_link_take_lost(link);
	pcilend_channel_close(link);
	pcilend_link_lender->peer_dead(link, node, boot);
	pcilend_link_borrower->peer_dead(link);
	pcilend_link_segments->peer_dead(link);

	spin_lock(&link->state_lock);
	link->peer_node = 0;
	link->peer_boot = 0;
	link->trusted = false;
	link->peer_connected = false;
	link->alive = false;
	link->silent = false;
	spin_unlock(&link->state_lock);
	link->denied_by = 0;
}

static int handshake_start_session(struct pcilend_link *link, const struct greeting *peer)
{
	u32 area = peer->spad[PCILEND_SPAD_AREA_PAGE];
	u64 page = area & (BIT(PCILEND_AREA_WINDOW_SHIFT) - 1);
	const char *why = "";
	int err;

	pcilend_hello_reset(link);
	spin_lock(&link->state_lock);
	link->peer_node = peer->spad[PCILEND_SPAD_NODE];
	link->peer_boot = handshake_greeting_boot(peer);
	link->alive = false;
	link->silent = false;
	pcilend_heartbeat_start(&link->beat, link->peer_boot,
				le64_to_cpu(READ_ONCE(link->area->heartbeat)), pcilend_now());
	spin_unlock(&link->state_lock);

	err = pcilend_channel_open(link, area >> PCILEND_AREA_WINDOW_SHIFT, page * PCILEND_PAGE,
				   &why);
	if (err) {
		spin_lock(&link->state_lock);
		link->peer_node = 0;
		link->peer_boot = 0;
		spin_unlock(&link->state_lock);
		pcilend_link_set_state(link, err == -EAGAIN ? PCILEND_LINK_HANDSHAKE :
							      PCILEND_LINK_REFUSED, why);
		return err;
	}
	pcilend_channel_beat(link);
	handshake_write_spad(link, PCILEND_SPAD_SEEN_LOW, lower_32_bits(link->peer_boot));
	pcilend_link_kick_peer(link);
	return 0;
}

/* Why this peer can't be talked to; false if it can. */
static bool handshake_unfit(struct pcilend_link *link, const struct greeting *peer, char *why,
			    size_t bytes)
{
	u32 version = peer->spad[PCILEND_SPAD_MAGIC] - PCILEND_WIRE_MAGIC;
	u32 node = peer->spad[PCILEND_SPAD_NODE];

	if (version != PCILEND_WIRE_VERSION) {
		snprintf(why, bytes,
			 "the peer speaks protocol version %u, this host %u: use the same release of pcilend on both",
			 version, PCILEND_WIRE_VERSION);
		return true;
	}
	if (!node || node > PCILEND_NODE_MAX || !handshake_greeting_boot(peer)) {
		snprintf(why, bytes,
			 "the peer shows node id %u: load pcilend there with node=1..65535", node);
		return true;
	}
	if (node == pcilend_node) {
		snprintf(why, bytes,
			 "both hosts have node id %u: load pcilend with another node= on one of them",
			 node);
		return true;
	}
	return false;
}

/* Nobody there: scratchpads as after power-on, of a removed module, or of other software. */
static bool handshake_nobody(const struct greeting *peer)
{
	return peer->spad[PCILEND_SPAD_MAGIC] - PCILEND_WIRE_MAGIC - 1 > 0xff;
}

static void handshake_go_down(struct pcilend_link *link)
{
	if (link->state == PCILEND_LINK_DOWN)
		return;
	/* Not every driver signals it. */
	pcilend_link_lost(link);
	pcilend_link_take_lost(link);
	pcilend_link_set_state(link, PCILEND_LINK_DOWN, "");
	if (link->peer_boot)
		pcilend_channel_suspend(link);
	pcilend_link_borrower->down(link);
}

static void handshake_go_back(struct pcilend_link *link, const char *reason)
{
	if (link->state != PCILEND_LINK_HANDSHAKE) {
		link->poll_since = pcilend_now();
		spin_lock(&link->state_lock);
		link->alive = false;
		spin_unlock(&link->state_lock);
	}
	pcilend_link_set_state(link, PCILEND_LINK_HANDSHAKE, reason);
}

static void handshake_go_up(struct pcilend_link *link)
{
	pcilend_link_drop_former_area(link);
	pcilend_channel_settle(link);
	if (!pcilend_link_carries(link))
		handshake_start_trail(link);
	pcilend_link_met(link);
	pcilend_link_set_state(link, PCILEND_LINK_UP, "");
	pcilend_channel_go_on(link);
	pcilend_link_lender->up(link);
	pcilend_link_borrower->up(link);
	pcilend_link_segments->up(link);
}

/* The NTB's link is up and we were down. Return: false if that's as far as it goes. */
static bool handshake_come_up(struct pcilend_link *link)
{
	char why[PCILEND_REASON_BYTES] = "";
	int err;

	/* A device may have been added to the group since. */
	if (!link->aperture.direct && !pcilend_link_is_isolated(link)) {
		pcilend_link_set_state(link, PCILEND_LINK_REFUSED, PCILEND_NOT_ISOLATED);
		return false;
	}
	err = pcilend_aperture_open(link, why, sizeof(why));
	if (err == -ENOTCONN)
		return false;
	if (err) {
		if (!*why)
			snprintf(why, sizeof(why),
				 "memory windows can't be set up (error %d): see the kernel log",
				 err);
		pcilend_link_set_state(link, PCILEND_LINK_REFUSED, why);
		return false;
	}
	WRITE_ONCE(link->event_at, pcilend_now());
	handshake_go_back(link, "");
	if (link->peer_boot) {
		pcilend_channel_resume(link);
		pcilend_channel_beat(link);
	}
	handshake_publish(link);
	return true;
}

/* Takes and clears what the tick or the channel ask for. */
static void handshake_take_flags(struct pcilend_link *link, bool *restart, bool *silent)
{
	spin_lock(&link->state_lock);
	*restart = link->restart;
	link->restart = false;
	*silent = link->silent;
	spin_unlock(&link->state_lock);
}

/*
 * The plan does not fit what the peer has said: with that, and as if we had just been loaded. Not
 * before nothing of the plan is in use any more.
 */
static void handshake_start_over(struct pcilend_link *link, char *why, size_t bytes)
{
	char problem[PCILEND_REASON_BYTES];

	if (!pcilend_aperture_replan(link)) {
		strscpy(problem, why, sizeof(problem));
		snprintf(why, bytes, "waits until guests let go of what they had over it, as %s",
			 problem);
		handshake_go_back(link, why);
		return;
	}
	if (pcilend_link_may_log(link))
		pci_info(link->pdev, "pcilend: the aperture is planned anew: %s\n", why);
	handshake_go_back(link, "");
	handshake_end_session(link);
	link->boot = pcilend_new_boot();
	link->area->boot = cpu_to_le64(link->boot);
	link->published = false;
}

/* Has the driver told all of how the link came up? */
static bool handshake_is_settled(struct pcilend_link *link)
{
	return pcilend_link_carries(link) ||
	       pcilend_now() - READ_ONCE(link->event_at) >= SETTLE_MS;
}

/* Do the two know and suit each other? 0, or when to look again. */
static unsigned int handshake_exchange_hello(struct pcilend_link *link)
{
	char why[PCILEND_REASON_BYTES];
	int err;

	pcilend_hello_say(link);
	err = pcilend_hello_judge(link, why, sizeof(why));
	if (!err && !handshake_is_settled(link))
		err = -EAGAIN;
	if (!err)
		err = pcilend_link_earn_trust(link, why, sizeof(why));
	if (!err)
		return 0;
	if (err == -ERANGE)
		handshake_start_over(link, why, sizeof(why));
	else if (err == -EAGAIN)
		handshake_go_back(link, why);
	else
		pcilend_link_set_state(link, PCILEND_LINK_REFUSED, why);
	return err == -ERANGE || err == -EAGAIN ? QUICK_MS : SLOW_MS;
}

/*
 * A pin keeps the peer out: all that goes over this link ends. Its session stays, as the peer does
 * not know that, and as it may be pinned to this adapter, too.
 */
static void handshake_expel(struct pcilend_link *link)
{
	bool trusted;

	spin_lock(&link->state_lock);
	trusted = link->trusted;
	link->trusted = false;
	spin_unlock(&link->state_lock);
	if (!trusted)
		return;
	handshake_go_back(link, "");
	pcilend_link_lender->peer_dead(link, link->peer_node, link->peer_boot);
	pcilend_link_borrower->silent(link);
	pcilend_link_segments->expelled(link);
}

static unsigned int handshake_meet_peer(struct pcilend_link *link)
{
	char why[PCILEND_REASON_BYTES];
	unsigned int wait;
	struct greeting peer;
	bool ready;

	if (!handshake_read_greeting(link, &peer))
		return QUICK_MS;
	if (handshake_nobody(&peer)) {
		handshake_go_back(link, "");
		return QUICK_MS;
	}
	if (handshake_unfit(link, &peer, why, sizeof(why))) {
		pcilend_link_set_state(link, PCILEND_LINK_REFUSED, why);
		return SLOW_MS;
	}
	if (pcilend_link_is_misplaced(link, peer.spad[PCILEND_SPAD_NODE], why, sizeof(why))) {
		handshake_expel(link);
		pcilend_link_set_state(link, PCILEND_LINK_REFUSED, why);
		return SLOW_MS;
	}
	if (link->peer_boot != handshake_greeting_boot(&peer)) {
		handshake_go_back(link, "");
		handshake_end_session(link);
		if (handshake_start_session(link, &peer))
			return QUICK_MS;
	}
	if (link->state == PCILEND_LINK_UP) {
		if (pcilend_now() - link->published_at >= REFRESH_MS)
			handshake_publish(link);
		return SLOW_MS;
	}

	handshake_note_heartbeat(link);
	spin_lock(&link->state_lock);
	ready = link->alive && peer.spad[PCILEND_SPAD_SEEN_LOW] == lower_32_bits(link->boot);
	spin_unlock(&link->state_lock);
	if (!ready) {
		if (link->state == PCILEND_LINK_REFUSED)
			handshake_go_back(link, "");
		if (pcilend_now() - link->published_at >= SLOW_MS)
			handshake_publish(link);
		return QUICK_MS;
	}
	wait = handshake_exchange_hello(link);
	if (wait)
		return wait;
	handshake_go_up(link);
	return SLOW_MS;
}

/*
 * Only of switches: to others' hardware this may mean training anew. An error was logged when the
 * adapter was taken into use.
 */
static void handshake_enable_again(struct pcilend_link *link)
{
	enum ntb_topo topo = link->ntb->topo;

	if ((topo == NTB_TOPO_SWITCH || topo == NTB_TOPO_CROSSLINK) &&
	    pcilend_now() - link->enabled_at >= ENABLE_AGAIN_MS)
		pcilend_link_enable(link);
}

static unsigned int handshake_step(struct pcilend_link *link)
{
	bool restart, silent;

	handshake_take_flags(link, &restart, &silent);
	if ((silent || !pcilend_link_is_trusted(link)) && link->state == PCILEND_LINK_UP)
		handshake_go_back(link,
				  "the peer's heartbeat stopped: see whether that host is alive");
	else if (restart && link->state == PCILEND_LINK_UP)
		handshake_go_back(link, "the peer takes no messages");
	if (silent) {
		pcilend_link_borrower->silent(link);
		pcilend_link_segments->silent(link);
	}

	/* However short it was: what was under way is gone. */
	if (pcilend_link_take_lost(link))
		handshake_go_down(link);
	if (!pcilend_link_adapter_is_up(link)) {
		handshake_go_down(link);
		handshake_enable_again(link);
		return SLOW_MS;
	}
	if (link->state == PCILEND_LINK_DOWN || !link->aperture.open) {
		if (!handshake_come_up(link))
			return SLOW_MS;
	}
	return handshake_meet_peer(link);
}

static void handshake_work(struct work_struct *work)
{
	struct pcilend_link *link = container_of(work, struct pcilend_link, work.work);
	unsigned int wait = handshake_step(link);

	if (wait == QUICK_MS && pcilend_now() - link->poll_since > QUICK_FOR_MS)
		wait = SLOW_MS;
	queue_delayed_work(pcilend_wq, &link->work, msecs_to_jiffies(wait));
}

/* Look at the link at once. Any context. */
void pcilend_handshake_event(struct pcilend_link *link)
{
	mod_delayed_work(pcilend_wq, &link->work, 0);
}

/* The peer takes nothing from its ring any more: what waited was dropped, so start over. */
void pcilend_link_restart(struct pcilend_link *link)
{
	spin_lock(&link->state_lock);
	link->restart = true;
	spin_unlock(&link->state_lock);
	pcilend_handshake_event(link);
}

void pcilend_handshake_init(struct pcilend_link *link)
{
	INIT_DELAYED_WORK(&link->work, handshake_work);
	INIT_DELAYED_WORK(&link->tick, handshake_tick_work);
}

void pcilend_handshake_start(struct pcilend_link *link)
{
	queue_delayed_work(pcilend_channel_wq, &link->tick, msecs_to_jiffies(PCILEND_HEARTBEAT_MS));
	pcilend_handshake_event(link);
}

/*
 * The adapter is going. The channel stays open until the frontends have given back what they
 * borrowed; the heart beats on meanwhile.
 */
void pcilend_handshake_stop(struct pcilend_link *link)
{
	const struct pcilend_msg_connected goodbye = { .connected = 0 };

	disable_delayed_work_sync(&link->work);
	WRITE_ONCE(link->going, true);
	wake_up_all(&link->idle);
	pcilend_link_borrower->leaving(link);
	if (link->state == PCILEND_LINK_UP)
		pcilend_channel_notify(link, PCILEND_MSG_CONNECTED, &goodbye);
	if (link->published) {
		handshake_write_spad(link, PCILEND_SPAD_MAGIC, 0);
		pcilend_link_kick_peer(link);
	}
	disable_delayed_work_sync(&link->tick);
	pcilend_link_set_state(link, PCILEND_LINK_DOWN, "");
	handshake_end_session(link);
}
