package pull

import (
	"time"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

const (
	// minBytes is what a source must give in stallFactor times the time that it may stall:
	// 1 MiB in ten minutes. At that pace a gigabyte takes a week, so no honest link
	// is that slow, and a server that sends a byte now and then is not waited for.
	minBytes    = 1 << 20
	stallFactor = 10
)

// rateGuard measures a source that gives little: only the time that is spent waiting
// for it counts, not that in which the disk is written.
type rateGuard struct {
	got    int64
	waited time.Duration
	// cut says that the source was found too slow; another connection would be.
	cut bool
}

func (d *rateGuard) add(bytes int64, took time.Duration) {
	d.got += bytes
	d.waited += took
	if d.got >= minBytes {
		d.got, d.waited = 0, 0
	}
}

// tooSlow reports whether the content would not come to an end in any useful time.
func (d *rateGuard) tooSlow(stall time.Duration) bool {
	d.cut = d.waited >= stallFactor*stall
	return d.cut
}

func (d *rateGuard) fault() error {
	return job.Faultf(transfer.ReasonCut, "the source is too slow: only %s came in %s", job.Bytes(d.got), d.waited.Round(time.Second))
}
