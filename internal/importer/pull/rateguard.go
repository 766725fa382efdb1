package pull

import (
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

const (
	// minBytes is the minimum from a source in stallFactor times the stall time: 1 MiB in ten minutes. No honest link
	// is that slow, and a server that sends single bytes can't hold the worker.
	minBytes    = 1 << 20
	stallFactor = 10
)

// rateGuard measures the time of waiting for a source, not that of writing.
type rateGuard struct {
	got    int64
	waited time.Duration
	// cut means that the source is too slow; another connection would be too.
	cut bool
}

func (d *rateGuard) add(bytes int64, took time.Duration) {
	d.got += bytes
	d.waited += took
	if d.got >= minBytes {
		d.got, d.waited = 0, 0
	}
}

func (d *rateGuard) tooSlow(stall time.Duration) bool {
	d.cut = d.waited >= stallFactor*stall
	return d.cut
}

func (d *rateGuard) fault() error {
	return job.Faultf(transfer.ReasonCut, "the source is too slow: only %s came in %s", job.Bytes(d.got), d.waited.Round(time.Second))
}
