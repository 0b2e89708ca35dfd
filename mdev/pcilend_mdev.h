/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of pcilend_mdev.ko share.
 *
 * Lock order, outermost first; a lock may be taken while those above it are held:
 *
 *	struct mdev_function.lock	which virtual function and which open device there is
 *	struct mdev_config.lock		the guest's config space, and the effects of writes to it
 *	struct mdev_guest.pass_lock	one pass at a time; bus mastering
 *	struct mdev_irqs.lock		eventfds and vectors
 *	struct mdev_guest.lock		what is pinned; VFIO's locks and mmap_lock inside
 *	struct mdev_bars.lock		mappings of BARs; taken in page faults, inside mmap_lock
 *	guests_lock			who uses which struct mdev_guest
 *
 * functions_lock is taken with none of them held, and mdev_irqs.lock inside it: which functions
 * there are, and who has them open.
 *
 * Functions of pcilend.ko that wait for the lender may be called with all but the last two of them
 * held, and pcilend_borrow() and pcilend_return() with none: they bind and unbind the virtual
 * function, and that takes struct mdev_function.lock.
 */
#ifndef PCILEND_MDEV_H
#define PCILEND_MDEV_H

#include <linux/eventfd.h>
#include <linux/mdev.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/vfio.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "pcilend/guestmem.h"
#include "pcilend/pcilend.h"
#include "pcilend/vconfig.h"

#define MDEV_BARS 7	/* by their regions' indices; the last one is the expansion ROM */

/* Region offsets as vfio-pci lays them out: the index above bit 40. */
#define MDEV_REGION_SHIFT 40
#define MDEV_REGION_OFFSET(index) ((u64)(index) << MDEV_REGION_SHIFT)
#define MDEV_REGION_MASK (MDEV_REGION_OFFSET(1) - 1)

/* Pages of all-ones that a guest which touches all of its BARs can have us allocate. */
#define MDEV_ONES_PAGES 64

struct mdev_device_state;

/* A remote function, from when the lender offers it until it goes. */
struct mdev_function {
	struct list_head node;			/* functions_lock, as the next one */
	struct mdev_device_state *user;		/* has it open, revoked or not; or NULL */
	wait_queue_head_t idle;			/* woken when there is no user any more */

	struct pcilend_remote *remote;
	struct mdev_parent parent;
	struct mdev_type type;
	struct mdev_type *types[1];
	char name[48];

	struct mutex lock;			/* what follows */
	struct pci_dev *pdev;			/* virtual function bound to our driver, or NULL */
	struct mdev_device_state *device;	/* open and not revoked, or NULL */
};

struct mdev_bar {
	phys_addr_t address;
	resource_size_t size;		/* bytes; 0: not there */
	bool mappable;			/* has its pages for itself */
	void __iomem *io;		/* NULL once the lease is over */
};

struct mdev_bars {
	struct rw_semaphore lock;
	bool lost;			/* all-ones are read from now on; until it is closed */
	struct xarray ones;		/* what is mapped then: pages, by their offset as regions */
	unsigned int ones_count;	/* of those */
	struct page *spare;		/* for all other offsets */
	struct mdev_bar bar[MDEV_BARS];
	unsigned int table_bar;		/* where the MSI-X table is, which only the kernel writes */
	u64 table_start, table_end;	/* bytes in that BAR; end 0: no table */
};

struct mdev_config {
	struct mutex lock;		/* space, and the effects of a write to it */
	bool lost;
	struct pcilend_vconfig space;
	struct mutex placing;		/* taken before lock, and with no other */
	bool told;			/* placing: pcilend knows of the guest, and */
	u64 placed[PCI_STD_NUM_BARS];	/* placing: where it has the BARs */
};

struct mdev_intx {
	unsigned int irq;		/* constant while enabled, as the name */
	char name[40];
	struct eventfd_ctx *trigger;	/* mdev_irqs.lock to change; may be NULL */
	struct virqfd *unmask;		/* mdev_irqs.lock */

	spinlock_t lock;		/* taken in interrupts: what follows */
	bool masked;			/* disabled, by the user or because it came */
	bool blocked;			/* by the guest's config space */
};

struct mdev_irqs {
	struct mutex lock;		/* all but what is constant */
	struct pci_dev *pdev;		/* NULL: no vectors to be had */
	unsigned int index;		/* VFIO_PCI_*_IRQ_INDEX in use, or VFIO_PCI_NUM_IRQS */
	unsigned int count[VFIO_PCI_NUM_IRQS];	/* constant while open */
	bool grows;			/* MSI-X vectors one by one; constant while open */
	struct xarray vectors;		/* of struct mdev_vector */
	struct mdev_intx intx;
	struct eventfd_ctx *request;	/* asks the user to let go */
};

struct mdev_memory;

#define MDEV_LOCALS 16

/* A BAR of this host's that vfio-pci gives to the same guest, or a part of one. */
struct mdev_local {
	struct mmu_interval_notifier notifier;
	/* Constant while somebody watches, as @size and @iova: */
	struct iommu_domain *domain;
	unsigned long hva;		/* of the VMM; 0: nobody watches */
	u64 size;			/* of its slot, bytes; 0: it has none */
	u64 iova;			/* in the aperture */
	u64 gpa;			/* where lenders may have it; 0: nowhere */
	spinlock_t lock;
	bool mapped;			/* lock: into the aperture */
};

/* The memory of one guest, as one function, or several over one adapter, reach it. */
struct mdev_guest {
	struct list_head node;		/* guests_lock */
	unsigned int users;		/* guests_lock: devices that have it open, and who looks */
	struct mm_struct *mm;		/* constant, as what follows: of the VMM */
	struct kvm *vm;			/* valid while there are members; NULL: of no VM */
	struct iommu_domain *domain;	/* of the adapter */
	u32 lender;
	u32 set;			/* of the lender; 0: of functions that are in none */

	struct mutex pass_lock;		/* one pass at a time, and requests to the lender */
	u64 spent_ns;			/* pass_lock: by passes that mapped something */
	struct mdev_local local[MDEV_LOCALS];	/* pass_lock */
	bool locals_full;		/* pass_lock: and that was said */

	struct mutex lock;		/* taken for a step of a pass, and by VFIO's callback */
	struct list_head members;	/* both locks to change, of struct mdev_memory: what is */
					/* pinned, is so for each of them */
	struct pcilend_guestmem *state;	/* lock */
	struct page **page;		/* lock: PCILEND_GUEST_BLOCK_PAGES each */
	struct scatterlist *sg;
	u64 held_gpa, held_size;	/* lock: unmapped last */
	unsigned int hold_ms;		/* lock: nothing is pinned for so long after that, */
	unsigned long held_until;	/* lock: and until then, in jiffies */

	struct delayed_work work;
};

struct mdev_memory {
	struct mdev_guest *guest;	/* from open to free; else NULL */
	bool wanted;			/* pass_lock: the guest enabled bus mastering */
	bool granted;			/* pass_lock: the lender was asked to, and did */
	bool open;			/* pass_lock: it may be */
	u64 mirrored;			/* pass_lock: a bit for each segment that the lender maps */
	u32 local;			/* pass_lock: the same of guest->local, or it refused to */
	int error;			/* pass_lock: of the last pass */

	struct list_head member;	/* lock: in guest->members, once it wanted bus mastering */
	u64 joined;			/* lock: pages below are pinned for it */
	bool stopping;			/* lock: it is being closed or revoked, or is not open */
	bool watching;			/* lock: unmaps call for a pass */
	/* lock: in the aperture */
	struct pcilend_guest_range slot[PCILEND_GUEST_SEGMENTS + MDEV_LOCALS];
	unsigned int slots;		/* lock */
};

static_assert(PCILEND_GUEST_SEGMENTS <= 64, "a bit for each segment");

/* The mediated device. */
struct mdev_device_state {
	struct vfio_device vdev;
	struct mdev_device *mdev;

	/* From open to close. */
	struct mdev_function *function;
	struct pcilend_remote *remote;
	u32 lease;
	char owner[PCILEND_OWNER_BYTES];
	struct mdev_config config;
	struct mdev_bars bars;
	struct mdev_irqs irqs;
	struct mdev_memory memory;
};

static inline struct mdev_device_state *to_state(struct vfio_device *vdev)
{
	return container_of(vdev, struct mdev_device_state, vdev);
}

/* main.c */
extern struct workqueue_struct *mdev_wq;	/* unbound: passes may take long */
extern struct pcilend_frontend mdev_frontend;
extern struct mdev_driver mdev_pcilend_driver;
/* The UUID of a mediated device as functions have theirs. */
void mdev_function_uuid(const struct mdev_device *mdev, uuid_t *uuid);
/*
 * The function that the device is, which is @state's until mdev_function_put(). Return: -ENODEV: no
 * lender offers it; -EINVAL: it is not of the device's type; -EBUSY: another device has it open.
 */
int mdev_function_get(struct mdev_device_state *state);
void mdev_function_put(struct mdev_device_state *state);

/* pci.c: functions for vfio-pci */
extern struct pcilend_frontend mdev_pci_frontend;

/* adapter.c: adapters as parents */
extern struct mdev_driver mdev_adapter_driver;
int mdev_adapter_added(struct pci_dev *pdev);
void mdev_adapter_removed(struct pci_dev *pdev);
/* The device's adapter; NULL: its parent is a function. */
struct pci_dev *mdev_adapter_of(const struct mdev_device *mdev);
/* The PCI base class of the functions that it may be, if it has an adapter. */
u8 mdev_adapter_class(const struct mdev_device *mdev);

/* device.c */
int mdev_device_probe(struct mdev_device *mdev);
void mdev_device_remove(struct mdev_device *mdev);
/*
 * The lease is over, or the virtual function goes: nothing of it is used any more on return, and
 * the user is asked to let go. Called once, with the function's lock held.
 */
void mdev_device_revoke(struct mdev_device_state *state);

/* config.c: the guest's config space. Accesses are 1, 2 or 4 bytes, aligned. */
void mdev_config_init(struct mdev_device_state *state);
int mdev_config_open(struct mdev_device_state *state);
void mdev_config_revoke(struct mdev_device_state *state);
u32 mdev_config_read(struct mdev_device_state *state, u32 offset, u32 length);
int mdev_config_write(struct mdev_device_state *state, u32 offset, u32 length, u32 value);
u32 mdev_config_size(const struct mdev_device_state *state);
/*
 * After writes, and once it is open: functions of the same guest that reach the BARs by DMA follow
 * them. Waits for other operations on the function, so the caller holds no lock.
 */
void mdev_config_place_bars(struct mdev_device_state *state);
int mdev_reset(struct mdev_device_state *state);
/* The lender has reset the function, unknown to the guest: its registers stay as they are. */
int mdev_was_reset(struct mdev_device_state *state);

/* region.c: VFIO's regions */
void mdev_regions_init(struct mdev_device_state *state);
int mdev_regions_open(struct mdev_device_state *state);
void mdev_regions_revoke(struct mdev_device_state *state);
void mdev_regions_close(struct mdev_device_state *state);
int mdev_region_info(struct vfio_device *vdev, struct vfio_region_info *info,
		     struct vfio_info_cap *caps);
ssize_t mdev_region_read(struct vfio_device *vdev, char __user *buffer, size_t count,
			 loff_t *position);
ssize_t mdev_region_write(struct vfio_device *vdev, const char __user *buffer, size_t count,
			  loff_t *position);
int mdev_region_mmap(struct vfio_device *vdev, struct vm_area_struct *vma);

/* irq.c: VFIO's interrupts, from vectors of the virtual function */
void mdev_irqs_init(struct mdev_device_state *state);
void mdev_irqs_open(struct mdev_device_state *state, struct pci_dev *pdev);
void mdev_irqs_revoke(struct mdev_device_state *state);
void mdev_irqs_close(struct mdev_device_state *state);
void mdev_irqs_request(struct mdev_device_state *state);
/* Writes the messages again that a reset wiped out. */
int mdev_irqs_restore(struct mdev_device_state *state);
int mdev_irq_info(struct mdev_device_state *state, struct vfio_irq_info *info);
int mdev_irq_set(struct mdev_device_state *state, const struct vfio_irq_set *set, void *data);

/* intx.c: VFIO's INTx, as a part of irq.c */
int mdev_intx_set(struct mdev_irqs *irqs, const struct vfio_irq_set *set, void *data);
/* It is enabled. */
void mdev_intx_disable(struct mdev_irqs *irqs);
/* What the guest's config space lets the function do. */
void mdev_intx_allow(struct mdev_device_state *state, enum pcilend_intx_state allowed);

/* memory.c: the lender's view of the guest's memory, and bus mastering, which stands on it */
void mdev_memory_init(struct mdev_device_state *state);
int mdev_memory_open(struct mdev_device_state *state);
void mdev_memory_revoke(struct mdev_device_state *state);
/*
 * On: returns when the guest's memory as it is now is reachable and the function may use it. Off:
 * when the lender has acknowledged. May take as long as pinning the guest takes.
 */
int mdev_memory_bus_master(struct mdev_device_state *state, bool on);
/* The lender has switched bus mastering off by itself: asks for it again, if the guest wants it. */
int mdev_memory_regrant(struct mdev_device_state *state);
/* Before something that may start DMA: if memory was unmapped, find it again first. */
void mdev_memory_settle(struct mdev_device_state *state);
/* Looks for memory again, when it is time to. */
void mdev_memory_plan(struct mdev_guest *guest);
void mdev_memory_work(struct work_struct *work);

/* guest.c: the guest's memory, pinned and mapped on this host */
/* Return: 0, or -EBUSY if another function of its set is another guest's. */
int mdev_guest_open(struct mdev_device_state *state);
/* After the lease was returned, or lost: the slots may be used again. */
void mdev_guest_close(struct mdev_device_state *state);
/* From now on the memory is pinned for this function, too. No-op if it is. */
int mdev_guest_join(struct mdev_memory *memory);
/* No more. What is pinned for nobody is unmapped. */
void mdev_guest_leave(struct mdev_memory *memory);
/* One pass: 0, or what it failed with; -ESTALE if all members are stopping. */
int mdev_guest_find(struct mdev_guest *guest);
/* Tells who watches how much was found; @pass_ns: for how long a pass is under way. */
void mdev_guest_tell(struct mdev_guest *guest, u64 bytes, u64 pass_ns);
/* A slot for all members, who put it as those of memory. Return: as pcilend_slot_get(). */
int mdev_guest_slot_get(struct mdev_guest *guest, u64 size, u64 *iova);

/* local.c: BARs of this host's own functions in the guest */
/* What is there now is mapped for all members, as far as possible. Sleeps. */
void mdev_locals_find(struct mdev_guest *guest);
/* The last member is about to leave: nothing is mapped any more. Sleeps. */
void mdev_locals_drop(struct mdev_guest *guest);
void mdev_memory_unmap(struct vfio_device *vdev, u64 iova, u64 length);

#endif /* PCILEND_MDEV_H */
