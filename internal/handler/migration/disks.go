package migration

import (
	"slices"
	"sync"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// disks is safe for concurrent use.
type disks struct {
	mu   sync.Mutex
	list []migrationwire.Disk
}

func (d *disks) set(list []migrationwire.Disk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = list
}

func (d *disks) get() []migrationwire.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}
