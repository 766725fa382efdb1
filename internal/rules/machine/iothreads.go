package machine

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"
)

// ioThreads gives virtio disks I/O threads: one for each disk with dedicatedIOThread, and for the others by
// spec.domain.ioThreadsPolicy: one thread (shared), twice the vCPUs (auto), or the requested number (supplementalPool).
func (b *builder) ioThreads() {
	b.threads = make(map[int]string)
	policy := v1.IOThreadsPolicy("")
	if b.spec.IOThreadsPolicy != nil {
		policy = *b.spec.IOThreadsPolicy
	}
	switch policy {
	case "", v1.IOThreadsPolicyShared, v1.IOThreadsPolicyAuto, v1.IOThreadsPolicySupplementalPool:
	default:
		b.refuse("ioThreadsPolicy", "%q is none of shared, auto, supplementalPool", policy)
		return
	}
	var pooled []int
	for i := range b.spec.Devices.Disks {
		d := &b.spec.Devices.Disks[i]
		switch {
		case b.hot[d.Name]:
		case !isVirtio(d):
			if isTrue(d.DedicatedIOThread) {
				b.refuse(fmt.Sprintf("devices.disks[%d].dedicatedIOThread", i), "only a disk on the bus virtio can have a thread of its own")
			}
		case isTrue(d.DedicatedIOThread):
			b.thread("io-"+d.Name, i)
		case policy != "":
			pooled = append(pooled, i)
		}
	}
	pool := 1
	switch t := b.spec.IOThreads; {
	case policy == v1.IOThreadsPolicyAuto:
		pool = 2 * VCPUs(b.topology)
	case policy == v1.IOThreadsPolicySupplementalPool && t != nil && t.SupplementalPoolThreadCount != nil:
		pool = int(max(*t.SupplementalPoolThreadCount, 1))
	}
	for n, i := range pooled {
		b.thread(fmt.Sprintf("iothread%d", n%pool+1), i)
	}
}

func (b *builder) thread(id string, index int) {
	for _, other := range b.threads {
		if other == id {
			b.threads[index] = id
			return
		}
	}
	b.threads[index] = id
	b.object(Properties{"qom-type": "iothread", "id": id})
}
