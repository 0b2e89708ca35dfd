// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest's config space: a virtual one of its own, apart from the one of the virtual function
 * on this host. Reads are answered here; of writes only their effects reach the hardware.
 *
 * MSI and MSI-X registers have none but on INTx: the VMM programs interrupts with
 * VFIO_DEVICE_SET_IRQS.
 */

#include "pcilend_mdev.h"
#include "mdev_trace.h"

void mdev_config_init(struct mdev_device_state *state)
{
	mutex_init(&state->config.lock);
	mutex_init(&state->config.placing);
}

int mdev_config_open(struct mdev_device_state *state)
{
	struct mdev_config *config = &state->config;
	int err;

	config->told = false;
	memset(config->placed, 0, sizeof(config->placed));
	guard(mutex)(&config->lock);
	config->lost = false;
	err = pcilend_config_init(state->remote, &config->space);
	if (!err)
		mdev_intx_allow(state, pcilend_vconfig_intx(&config->space));
	return err;
}

/* Comes after mdev_memory_revoke(), so that nobody is in here for long. */
void mdev_config_revoke(struct mdev_device_state *state)
{
	guard(mutex)(&state->config.lock);
	state->config.lost = true;
}

void mdev_config_place_bars(struct mdev_device_state *state)
{
	struct mdev_config *config = &state->config;
	u64 now[PCI_STD_NUM_BARS] = { };
	unsigned int i;

	guard(mutex)(&config->placing);
	scoped_guard(mutex, &config->lock) {
		if (config->lost)
			return;
		for (i = 0; i < ARRAY_SIZE(now) && pcilend_vconfig_memory(&config->space); i++)
			now[i] = pcilend_vconfig_bar_address(&config->space, i);
	}
	/* What firmware or a reset has put nowhere comes back, most often to the same place. */
	for (i = 0; i < ARRAY_SIZE(now); i++)
		now[i] = now[i] ?: config->placed[i];
	if (config->told && !memcmp(now, config->placed, sizeof(now)))
		return;
	config->told = true;
	memcpy(config->placed, now, sizeof(now));
	pcilend_guest_bars(state->remote, state->memory.guest->mm, now);
}

u32 mdev_config_size(const struct mdev_device_state *state)
{
	return state->config.space.express ? PCI_CFG_SPACE_EXP_SIZE : PCI_CFG_SPACE_SIZE;
}

u32 mdev_config_read(struct mdev_device_state *state, u32 offset, u32 length)
{
	struct mdev_config *config = &state->config;
	u8 hardware[4];
	u32 value, i;

	guard(mutex)(&config->lock);
	/* As of a device that was pulled out. */
	if (config->lost)
		return ~0U;
	value = pcilend_vconfig_read(&config->space, offset, length);
	if (!pcilend_vconfig_forwards(&config->space, offset, length) ||
	    pcilend_config_read(state->remote, offset, hardware, length))
		return value;
	for (i = 0; i < length; i++) {
		if (!pcilend_vconfig_forwards(&config->space, offset + i, 1))
			continue;
		value &= ~(0xffU << (8 * i));
		value |= (u32)hardware[i] << (8 * i);
	}
	return value;
}

/* Registers that live in the hardware are written byte by byte: their neighbours may not. */
static int forward(struct mdev_device_state *state, u32 offset, u32 length, u32 value)
{
	int err = 0, last;
	u32 i;

	for (i = 0; i < length; i++, value >>= 8) {
		if (!pcilend_vconfig_forwards(&state->config.space, offset + i, 1))
			continue;
		last = pcilend_config_write(state->remote, offset + i, value & 0xff, 1);
		err = err ?: last;
	}
	return err;
}

/* May the function start transactions, by its registers? */
static bool masters(const struct pcilend_vconfig *space)
{
	u32 control;

	if (!pcilend_vconfig_bus_master(space))
		return false;
	if (!space->power)
		return true;
	control = pcilend_vconfig_read(space, space->power + PCI_PM_CTRL, 2);
	return (control & PCI_PM_CTRL_STATE_MASK) == (__force u32)PCI_D0;
}

static int reset(struct mdev_device_state *state)
{
	struct mdev_config *config = &state->config;
	int err;

	lockdep_assert_held(&config->lock);
	/* Before the registers change: no DMA of the past may meet memory of the future. */
	err = mdev_memory_bus_master(state, false);
	if (!err)
		err = pcilend_reset(state->remote);
	pcilend_vconfig_reset(&config->space);
	mdev_intx_allow(state, pcilend_vconfig_intx(&config->space));
	if (!err)
		err = mdev_irqs_restore(state);
	trace_pcilend_mdev_state(state->remote->id, "reset", err);
	return err;
}

int mdev_reset(struct mdev_device_state *state)
{
	guard(mutex)(&state->config.lock);
	return state->config.lost ? -ENODEV : reset(state);
}

int mdev_was_reset(struct mdev_device_state *state)
{
	int err;

	guard(mutex)(&state->config.lock);
	if (state->config.lost)
		return 0;
	err = mdev_irqs_restore(state);
	if (!err)
		err = mdev_memory_regrant(state);
	trace_pcilend_mdev_state(state->remote->id, "was reset", err);
	return err;
}

int mdev_config_write(struct mdev_device_state *state, u32 offset, u32 length, u32 value)
{
	struct mdev_config *config = &state->config;
	struct pcilend_vconfig *space = &config->space;
	unsigned int effects;
	int err = 0;

	guard(mutex)(&config->lock);
	if (config->lost)
		return 0;
	effects = pcilend_vconfig_write(space, offset, length, value);
	if (effects & PCILEND_EFFECT_RESET)
		return reset(state);
	if (effects & PCILEND_EFFECT_FORWARD)
		err = forward(state, offset, length, value);
	if (effects & PCILEND_EFFECT_INTX)
		mdev_intx_allow(state, pcilend_vconfig_intx(space));

	/*
	 * Not only on a change: firmware sets the bus master bit before memory is where it stays,
	 * and memory may have been plugged in since the last look.
	 */
	if (offset == PCI_COMMAND || effects & (PCILEND_EFFECT_COMMAND | PCILEND_EFFECT_POWER))
		err = mdev_memory_bus_master(state, masters(space));
	else if (effects & (PCILEND_EFFECT_MSI | PCILEND_EFFECT_MSIX))
		mdev_memory_settle(state);
	return err;
}
