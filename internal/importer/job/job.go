// Package job is the contract between the parts of the import worker: the task (Job), the content's origin (Source), the
// progress (Meter) and the errors (Fault).
//
// It must not read, write or fetch anything: the sources (web, registry, upload) and the engine (fill) do, and know each
// other only through it.
package job

import (
	"path/filepath"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// Job is a worker's task and its surroundings.
type Job struct {
	Task   transfer.Task
	Places Places
	Meter  *Meter
}

// Places are a worker's folders and devices; tests use others.
type Places struct {
	// Dir is the folder of a file system claim, Device a block claim.
	Dir, Device string
	// These are a clone's source claim.
	SourceDir, SourceDevice string
	// Work outlives the container, but not the pod.
	Work                          string
	Credentials, Headers, CA, TLS string
}

// InPod returns the paths in package transfer.
func InPod() Places {
	return Places{
		Dir: transfer.TargetDir, Device: transfer.TargetDevice,
		SourceDir: transfer.SourceDir, SourceDevice: transfer.SourceDevice,
		Work:        transfer.WorkDir,
		Credentials: transfer.CredentialsDir, Headers: transfer.HeadersDir, CA: transfer.CADir, TLS: transfer.TLSDir,
	}
}

// Under returns the same paths below another root.
func Under(root string) Places {
	p := InPod()
	for _, place := range []*string{&p.Dir, &p.Device, &p.SourceDir, &p.SourceDevice, &p.Work,
		&p.Credentials, &p.Headers, &p.CA, &p.TLS} {
		*place = filepath.Join(root, *place)
	}
	return p
}

// Stall returns how long a source may send no byte; 0 means the reader's default.
func (j *Job) Stall() time.Duration { return time.Duration(j.Task.StallSeconds) * time.Second }
