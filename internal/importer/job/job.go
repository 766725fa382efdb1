// Package job is the contract between the parts of the import worker: what is to
// be done and where (Job), where content comes from (Source), how far it is
// (Meter) and what went wrong (Fault).
//
// It must not read, write or fetch anything: sources (web, registry, upload) and
// the engine (fill) do, and know each other by this package only.
package job

import (
	"path/filepath"
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
)

// Job is one worker's task and its surroundings.
type Job struct {
	Task   transfer.Task
	Places Places
	Meter  *Meter
}

// Places are the folders and devices of a worker, which tests put elsewhere.
type Places struct {
	// Dir is the folder of a file system claim, Device a block claim.
	Dir, Device string
	// SourceDir and SourceDevice are the claim that a clone is sent from.
	SourceDir, SourceDevice string
	// Work survives the container, and is lost with the pod.
	Work                          string
	Credentials, Headers, CA, TLS string
}

// InPod are the places that package transfer names.
func InPod() Places {
	return Places{
		Dir: transfer.TargetDir, Device: transfer.TargetDevice,
		SourceDir: transfer.SourceDir, SourceDevice: transfer.SourceDevice,
		Work:        transfer.WorkDir,
		Credentials: transfer.CredentialsDir, Headers: transfer.HeadersDir, CA: transfer.CADir, TLS: transfer.TLSDir,
	}
}

// Under are the same places below another root.
func Under(root string) Places {
	p := InPod()
	for _, place := range []*string{&p.Dir, &p.Device, &p.SourceDir, &p.SourceDevice, &p.Work,
		&p.Credentials, &p.Headers, &p.CA, &p.TLS} {
		*place = filepath.Join(root, *place)
	}
	return p
}

// Stall is for how long a source may give no byte; 0 leaves it to the reader.
func (j *Job) Stall() time.Duration { return time.Duration(j.Task.StallSeconds) * time.Second }
