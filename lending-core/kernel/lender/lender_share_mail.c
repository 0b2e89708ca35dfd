// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mail between the clients of a shared function and its manager, a process of this host. What is
 * asked and answered is kept in the machine (mail.h), so it goes with whose it is.
 */

#include "lender/lender_share.h"

static const char mail_is_asked[] =
	"a question is under way, or its answer was not taken: take that first (mail-next)";
static const char mail_for_whom[] =
	"the manager answers its clients: name the client that mail-next has named";

/* Also when some has gone with whose it was. */
void pcilend_share_mail_settle(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	pcilend_local_tell_mail(fn, fn->shared && pcilend_mail_waits(&fn->shared->share));
}

/* A process of this host asks. Its questions are numbered by the answers that it has taken. */
int pcilend_share_ask(struct lender_client *client, const struct pcilend_mail_text *text,
		      const char **why)
{
	struct pcilend_function *fn = client->fn;
	int err;

	lockdep_assert_held(&fn->lock);
	err = pcilend_mail_ask(&fn->shared->share, pcilend_node, pcilend_boot, client->lease,
			       client->mail, text, why);
	if (err == -EALREADY) {
		*why = mail_is_asked;
		err = -EBUSY;
	}
	pcilend_share_mail_settle(fn);
	return err;
}

/* @text: 0 bytes: there is no answer yet. */
void pcilend_share_take_answer(struct lender_client *client, struct pcilend_mail_text *text)
{
	struct pcilend_share *share = &client->fn->shared->share;
	const struct pcilend_mail_text *answer =
		pcilend_mail_answered(share, client->lease, client->mail);

	lockdep_assert_held(&client->fn->lock);
	text->bytes = 0;
	if (!answer)
		return;
	*text = *answer;
	/* Who asks with another number has the answer. */
	if (!++client->mail)
		client->mail = 1;
	pcilend_use_set_mail(client->use, false);
}

/* The manager's next question. Return: whose; 0, and 0 bytes: there is none */
u32 pcilend_share_next_mail(struct pcilend_function *fn, struct pcilend_mail_text *text)
{
	u32 client = fn->shared ? pcilend_mail_next(&fn->shared->share, text) : 0;

	lockdep_assert_held(&fn->lock);
	if (!client)
		text->bytes = 0;
	pcilend_share_mail_settle(fn);
	return client;
}

/* The manager answers. Return: as pcilend_mail_answer(), or -EINVAL */
int pcilend_share_answer(struct pcilend_function *fn, u32 client,
			 const struct pcilend_mail_text *text, const char **why)
{
	struct lender_client *ours;
	int err;

	lockdep_assert_held(&fn->lock);
	if (!fn->shared || !client) {
		*why = mail_for_whom;
		return -EINVAL;
	}
	err = pcilend_mail_answer(&fn->shared->share, client, text, why);
	ours = err ? NULL : pcilend_share_client(fn, client);
	if (!ours)
		return err;
	if (ours->use)
		pcilend_use_set_mail(ours->use, true);
	pcilend_share_peer_answer(ours, text);
	return 0;
}

/*
 * pcilend_share_mail - a client on another host asks; what it asks again may be answered already
 *
 * Return: 0, or as pcilend_mail_ask()
 */
int pcilend_share_mail(struct pcilend_function *fn, const struct pcilend_message *msg)
{
	const struct pcilend_msg_mail *in = pcilend_message_payload(msg);
	u32 lease = le32_to_cpu(in->lease), number = le32_to_cpu(in->number);
	struct pcilend_mail_text question = { .bytes = le32_to_cpu(in->bytes) };
	const struct pcilend_mail_text *answer;
	struct lender_client *client;
	int err;

	lockdep_assert_held(&fn->lock);
	client = fn->shared ? pcilend_share_client(fn, lease) : NULL;
	if (!client || !client->link)
		return -ESTALE;
	memcpy(question.text, in->text, sizeof(question.text));
	err = pcilend_mail_ask(&fn->shared->share, msg->peer, msg->boot, lease, number, &question,
			       NULL);
	if (err && err != -EALREADY)
		return err;
	client->mail = number;
	answer = pcilend_mail_answered(&fn->shared->share, lease, number);
	if (answer)
		pcilend_share_peer_answer(client, answer);
	pcilend_share_mail_settle(fn);
	return 0;
}
