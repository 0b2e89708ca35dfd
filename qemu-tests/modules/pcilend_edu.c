// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_edu.ko: for tests. QEMU's edu device (docs/specs/edu.rst) copies a page of another
 * function's BAR into its buffer by DMA and on into memory, and back, and the data is compared; as
 * its driver would, with the address that dma_map_resource() gives.
 *
 *	# modprobe pcilend_edu function=8004:01:00.0 target=8004:02:00.0 bar=2
 *	# rmmod pcilend_edu
 *
 * The CPU touches the BAR only before and after: what @repeat adds is between the two functions.
 */

#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>

#define EDU_VENDOR 0x1234
#define EDU_DEVICE 0x11e8

#define EDU_ACKNOWLEDGE 0x64
#define EDU_DMA_SOURCE 0x80
#define EDU_DMA_DESTINATION 0x88
#define EDU_DMA_COUNT 0x90
#define EDU_DMA_COMMAND 0x98
#define EDU_DMA_RUN 0x1		/* reads 1 until it is done */
#define EDU_DMA_OUT 0x2		/* from its buffer */
#define EDU_DMA_INTERRUPT 0x4	/* when it is done */
#define EDU_DMA_DONE 0x100	/* that interrupt */
#define EDU_BUFFER 0x40000	/* 4096 bytes */
#define EDU_REGISTERS 0x100

#define BYTES 4096
#define WAIT_MS 2000		/* a copy takes 100 ms */
#define TRIES 15
#define REPEAT_MAX 1000

static char *function;
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "PCI address of an edu device, dddd:bb:dd.f; no driver is bound");

static char *target;
module_param(target, charp, 0444);
MODULE_PARM_DESC(target, "PCI address of the function whose BAR it reaches");

static unsigned int bar;
module_param(bar, uint, 0444);
MODULE_PARM_DESC(bar, "that BAR, 0 to 5; its first page is written to");

static unsigned int repeat = 1;
module_param(repeat, uint, 0444);
MODULE_PARM_DESC(repeat, "how often each copy between the two is made, 1 to 1000");

struct edu {
	struct pci_dev *pdev;
	void __iomem *registers;
	void __iomem *peer;	/* the page, as the CPU sees it */
	dma_addr_t peer_dma;	/* and as the device does */
	u32 *memory;
	dma_addr_t memory_dma;
	struct completion done;
};

static u32 pattern(unsigned int i, u32 seed)
{
	return (i + 1) * 2654435761U ^ seed;
}

static irqreturn_t interrupt(int irq, void *data)
{
	struct edu *edu = data;

	complete(&edu->done);
	return IRQ_HANDLED;
}

/*
 * From one side's address to the other's, one of them in its buffer. Its registers are left alone
 * meanwhile: in the lab, hosts that read from one another at the same time get all-ones.
 */
static int copy(struct edu *edu, u64 source, u64 destination, u64 direction)
{
	bool interrupted;
	int i;

	reinit_completion(&edu->done);
	writeq(source, edu->registers + EDU_DMA_SOURCE);
	writeq(destination, edu->registers + EDU_DMA_DESTINATION);
	writeq(BYTES, edu->registers + EDU_DMA_COUNT);
	writeq(EDU_DMA_RUN | EDU_DMA_INTERRUPT | direction, edu->registers + EDU_DMA_COMMAND);
	for (i = 0; i < TRIES; i++) {
		interrupted = wait_for_completion_timeout(&edu->done, msecs_to_jiffies(WAIT_MS));
		if (readq(edu->registers + EDU_DMA_COMMAND) & EDU_DMA_RUN)
			continue;
		if (!interrupted &&
		    !wait_for_completion_timeout(&edu->done, msecs_to_jiffies(WAIT_MS))) {
			pci_err(edu->pdev, "DMA ended without an interrupt\n");
			return -EIO;
		}
		writel(EDU_DMA_DONE, edu->registers + EDU_ACKNOWLEDGE);
		return 0;
	}
	pci_err(edu->pdev, "DMA does not end\n");
	return -ETIMEDOUT;
}

static int copy_in(struct edu *edu, u64 source)
{
	return copy(edu, source, EDU_BUFFER, 0);
}

static int copy_out(struct edu *edu, u64 destination)
{
	return copy(edu, EDU_BUFFER, destination, EDU_DMA_OUT);
}

static int compare(const struct edu *edu, const char *where, unsigned int i, u32 value, u32 seed)
{
	if (value == pattern(i, seed))
		return 0;
	pci_err(edu->pdev, "word %u in %s is %08x, not %08x\n", i, where, value,
		pattern(i, seed));
	return -EBADMSG;
}

/* The BAR, its buffer, memory. */
static int from_peer(struct edu *edu, u32 seed)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < BYTES / 4; i++)
		writel(pattern(i, seed), edu->peer + 4 * i);
	memset(edu->memory, 0, BYTES);
	/* The BAR has it before the device reads it. */
	err = compare(edu, "the BAR as it was written", 0, readl(edu->peer), seed);
	for (i = 0; i < repeat && !err; i++)
		err = copy_in(edu, edu->peer_dma);
	if (!err)
		err = copy_out(edu, edu->memory_dma);
	dma_rmb();
	for (i = 0; i < BYTES / 4 && !err; i++)
		err = compare(edu, "memory", i, READ_ONCE(edu->memory[i]), seed);
	return err;
}

/*
 * Memory, its buffer, the BAR; which edu reads once more, as its writes, its interrupt and the
 * CPU's reads go different ways where the two are in different hosts.
 */
static int to_peer(struct edu *edu, u32 seed)
{
	unsigned int i;
	int err;

	for (i = 0; i < BYTES / 4; i++)
		WRITE_ONCE(edu->memory[i], pattern(i, seed));
	dma_wmb();
	err = copy_in(edu, edu->memory_dma);
	for (i = 0; i < repeat && !err; i++)
		err = copy_out(edu, edu->peer_dma);
	if (!err)
		err = copy_in(edu, edu->peer_dma);
	for (i = 0; i < BYTES / 4 && !err; i++)
		err = compare(edu, "the BAR", i, readl(edu->peer + 4 * i), seed);
	return err;
}

static int use(struct edu *edu)
{
	struct device *dev = &edu->pdev->dev;
	int err;

	err = from_peer(edu, 0x5a000001) ?: to_peer(edu, 0xa5000002);
	if (!err)
		dev_info(dev, "pcilend_edu: %s is reached at %pad: data is right, %u times\n",
			 target, &edu->peer_dma, repeat);
	return err;
}

static int map(struct edu *edu, struct pci_dev *peer)
{
	struct device *dev = &edu->pdev->dev;
	phys_addr_t phys = pci_resource_start(peer, bar);
	int err = -ENOMEM;

	edu->registers = ioremap(pci_resource_start(edu->pdev, 0), EDU_REGISTERS);
	edu->peer = ioremap(phys, BYTES);
	edu->memory = dma_alloc_coherent(dev, BYTES, &edu->memory_dma, GFP_KERNEL);
	if (!edu->registers || !edu->peer || !edu->memory)
		goto out;
	edu->peer_dma = dma_map_resource(dev, phys, BYTES, DMA_BIDIRECTIONAL, 0);
	if (dma_mapping_error(dev, edu->peer_dma)) {
		pci_info(edu->pdev, "pcilend_edu: %s can't be mapped\n", target);
		err = -EACCES;
		goto out;
	}
	err = use(edu);
	dma_unmap_resource(dev, edu->peer_dma, BYTES, DMA_BIDIRECTIONAL, 0);
out:
	if (edu->memory)
		dma_free_coherent(dev, BYTES, edu->memory, edu->memory_dma);
	if (edu->peer)
		iounmap(edu->peer);
	if (edu->registers)
		iounmap(edu->registers);
	return err;
}

static int with_interrupt(struct edu *edu, struct pci_dev *peer)
{
	int err;

	init_completion(&edu->done);
	err = pci_alloc_irq_vectors(edu->pdev, 1, 1, PCI_IRQ_MSI);
	if (err < 0)
		return err;
	err = request_irq(pci_irq_vector(edu->pdev, 0), interrupt, 0, "pcilend_edu", edu);
	if (!err) {
		err = map(edu, peer);
		free_irq(pci_irq_vector(edu->pdev, 0), edu);
	}
	pci_free_irq_vectors(edu->pdev);
	return err;
}

static int check(struct pci_dev *pdev, struct pci_dev *peer)
{
	struct edu edu = { .pdev = pdev };
	int err;

	if (pdev->vendor != EDU_VENDOR || pdev->device != EDU_DEVICE ||
	    pci_resource_len(peer, bar) < BYTES ||
	    !(pci_resource_flags(peer, bar) & IORESOURCE_MEM))
		return -ENXIO;
	if (pdev->dev.driver)
		return -EBUSY;
	err = pci_enable_device_mem(peer);
	if (err)
		return err;
	err = pci_enable_device_mem(pdev);
	if (err)
		goto out_peer;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		goto out;
	pci_set_master(pdev);
	err = with_interrupt(&edu, peer);
	pci_clear_master(pdev);
out:
	pci_disable_device(pdev);
out_peer:
	pci_disable_device(peer);
	return err;
}

/* With a reference; or NULL. */
static struct pci_dev *find(const char *address)
{
	unsigned int domain, bus, slot, number;

	if (!address || sscanf(address, "%x:%x:%x.%u", &domain, &bus, &slot, &number) != 4)
		return NULL;
	return pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, number));
}

static int __init pcilend_edu_init(void)
{
	struct pci_dev *pdev, *peer;
	int err = -ENODEV;

	if (bar >= PCI_STD_NUM_BARS || !repeat || repeat > REPEAT_MAX)
		return -EINVAL;
	pdev = find(function);
	peer = find(target);
	if (pdev && peer)
		err = check(pdev, peer);
	pci_dev_put(peer);
	pci_dev_put(pdev);
	return err;
}

static void __exit pcilend_edu_exit(void)
{
}

module_init(pcilend_edu_init);
module_exit(pcilend_edu_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("DMA of QEMU's edu device to another function's BAR");
