package migration

import (
	"slices"
	"sync"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// disks is safe for concurrent use.
type disks struct {
	mu   sync.Mutex
	told []migrationwire.Disk
}

func (d *disks) set(told []migrationwire.Disk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = told
}

func (d *disks) get() []migrationwire.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}
