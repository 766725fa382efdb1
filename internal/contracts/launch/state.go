package launch

// Report is the output of virt-launcher's verb layout.StateVerb, as JSON: the state of the pod's QEMU, for a diagnosis.
type Report struct {
	// QEMU is absent if QEMU does not answer, which is a state, too.
	QEMU    *QEMUState    `json:"qemu,omitempty"`
	Process ProcessReport `json:"process"`
	Cgroup  CgroupReport  `json:"cgroup"`
}

// QEMUState is QEMU's own word. Names are QEMU's.
type QEMUState struct {
	RunState string `json:"runState"`
	// Migration is the status of the last migration, "" without one.
	Migration string       `json:"migration,omitempty"`
	CPUs      int          `json:"cpus"`
	Drives    []DriveState `json:"drives,omitempty"`
	Jobs      []JobState   `json:"jobs,omitempty"`
}

// DriveState is the state of a disk's device.
type DriveState struct {
	Device   string `json:"device"`
	IOStatus string `json:"ioStatus,omitempty"`
	ReadOnly bool   `json:"readOnly"`
}

// JobState is the state of a job in QEMU.
type JobState struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`
}

// ProcessReport has figures of QEMU's process, nil if they can't be read.
type ProcessReport struct {
	ResidentKiB *uint64 `json:"residentKiB,omitempty"`
	SwappedKiB  *uint64 `json:"swappedKiB,omitempty"`
	Threads     *uint64 `json:"threads,omitempty"`
}

// CgroupReport has figures of the container, nil if they can't be read.
type CgroupReport struct {
	MemoryBytes           *uint64 `json:"memoryBytes,omitempty"`
	MemoryPeakBytes       *uint64 `json:"memoryPeakBytes,omitempty"`
	OOMKills              *uint64 `json:"oomKills,omitempty"`
	CPUMicroseconds       *uint64 `json:"cpuMicroseconds,omitempty"`
	ThrottledMicroseconds *uint64 `json:"throttledMicroseconds,omitempty"`
}
