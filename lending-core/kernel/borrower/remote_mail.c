// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a client of another host's function asks its manager (mail.h). A question is brought to the
 * lender by a work item, and brought again until it is answered: now and then, and when the client
 * is readmitted, as the lender has dropped it with the link. It is the same question by its number.
 */

#include "borrower/remote_client.h"

#define MAIL_AGAIN_MS 5000		/* it is under way: in case an answer got lost */
#define MAIL_RETRY_MS 500

static bool mail_is_asked(struct remote_client *client, struct pcilend_msg_mail *msg)
{
	struct remote_mail *mail = &client->mail;

	if (remote_client_check(client, NULL))
		return false;
	guard(mutex)(&mail->lock);
	msg->id = cpu_to_le32(client->id);
	msg->lease = cpu_to_le32(client->lease);
	msg->number = cpu_to_le32(mail->number);
	msg->bytes = cpu_to_le32(mail->text.bytes);
	memcpy(msg->text, mail->text.text, mail->text.bytes);
	return mail->state == PCILEND_MAIL_ASKED;
}

/* The work item has a reference; the caller has another. */
static void mail_queue(struct remote_client *client, unsigned int ms)
{
	guard(mutex)(&client->mail.lock);
	if (client->mail.over)
		return;
	kref_get(&client->ref);
	if (mod_delayed_work(pcilend_wq, &client->mail.ask, msecs_to_jiffies(ms)))
		remote_client_put(client);
}

/* Later, unless it is queued: the next question may have come meanwhile, which must not wait. */
static void mail_queue_again(struct remote_client *client, unsigned int ms)
{
	guard(mutex)(&client->mail.lock);
	if (client->mail.over)
		return;
	kref_get(&client->ref);
	if (!queue_delayed_work(pcilend_wq, &client->mail.ask, msecs_to_jiffies(ms)))
		remote_client_put(client);
}

static void mail_ask_work(struct work_struct *work)
{
	struct remote_client *client = container_of(work, struct remote_client, mail.ask.work);
	struct pcilend_msg_mail msg = { };
	int err = -ESTALE;

	if (mail_is_asked(client, &msg))
		err = pcilend_channel_request(client->link, PCILEND_MSG_MAIL, &msg, NULL);
	/* When the lease is over, so is what it asks. */
	if (err != -ESTALE)
		mail_queue_again(client, err ? MAIL_RETRY_MS : MAIL_AGAIN_MS);
	remote_client_put(client);
}

void remote_mail_init(struct remote_client *client)
{
	mutex_init(&client->mail.lock);
	INIT_DELAYED_WORK(&client->mail.ask, mail_ask_work);
}

static int mail_take_question(struct remote_mail *mail, const struct pcilend_mail_text *text,
			      struct netlink_ext_ack *extack)
{
	guard(mutex)(&mail->lock);
	if (mail->state != PCILEND_MAIL_NONE)
		return pcilend_refuse(extack, -EBUSY, "a question is under way, or its answer was not taken: take that first (mail-next)");
	if (!++mail->number)
		mail->number = 1;
	mail->state = PCILEND_MAIL_ASKED;
	mail->text = *text;
	return 0;
}

/* It is not asked again; who asks just now finds out by itself. */
static void mail_cancel(struct remote_client *client)
{
	if (cancel_delayed_work(&client->mail.ask))
		remote_client_put(client);
}

void remote_mail_end(struct remote_client *client)
{
	scoped_guard(mutex, &client->mail.lock)
		client->mail.over = true;
	if (cancel_delayed_work_sync(&client->mail.ask))
		remote_client_put(client);
}

int remote_mail_send(void *holder, u32 to, const struct pcilend_mail_text *text,
		     struct netlink_ext_ack *extack)
{
	struct remote_client *client = holder;
	int err = remote_client_check(client, extack);

	if (!err && to)
		err = pcilend_refuse(extack, -EINVAL, pcilend_use_mail_of_client);
	err = err ?: mail_take_question(&client->mail, text, extack);
	if (!err)
		mail_queue(client, 0);
	return err;
}

int remote_mail_next(void *holder, u32 *from, struct pcilend_mail_text *text,
		     struct netlink_ext_ack *extack)
{
	struct remote_client *client = holder;
	struct remote_mail *mail = &client->mail;
	int err = remote_client_check(client, extack);

	text->bytes = 0;
	if (err)
		return err;
	guard(mutex)(&mail->lock);
	if (mail->state != PCILEND_MAIL_ANSWERED)
		return 0;
	*text = mail->text;
	mail->state = PCILEND_MAIL_NONE;
	pcilend_use_set_mail(client->use, false);
	return 0;
}

void remote_mail_answered(struct remote_client *client, const struct pcilend_msg_mail *msg)
{
	struct remote_mail *mail = &client->mail;

	guard(mutex)(&mail->lock);
	if (mail->state != PCILEND_MAIL_ASKED || mail->number != le32_to_cpu(msg->number))
		return;
	mail->state = PCILEND_MAIL_ANSWERED;
	mail->text.bytes = le32_to_cpu(msg->bytes);
	memcpy(mail->text.text, msg->text, mail->text.bytes);
	pcilend_use_set_mail(client->use, true);
	mail_cancel(client);
}

void remote_mail_again(struct remote_client *client)
{
	scoped_guard(mutex, &client->mail.lock)
		if (client->mail.state != PCILEND_MAIL_ASKED)
			return;
	mail_queue(client, 0);
}
