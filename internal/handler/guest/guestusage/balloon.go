package guestusage

import (
	"time"

	"drydock.dev/drydock/internal/handler/metrics"
)

// balloonReport is what the balloon driver in the guest has reported last. QEMU has the largest number for figures that
// it did not report.
type balloonReport struct {
	Stats struct {
		SwapIn      metrics.Figure `json:"stat-swap-in"`
		SwapOut     metrics.Figure `json:"stat-swap-out"`
		MajorFaults metrics.Figure `json:"stat-major-faults"`
		MinorFaults metrics.Figure `json:"stat-minor-faults"`
		Free        metrics.Figure `json:"stat-free-memory"`
		Total       metrics.Figure `json:"stat-total-memory"`
		Available   metrics.Figure `json:"stat-available-memory"`
		Caches      metrics.Figure `json:"stat-disk-caches"`
	} `json:"stats"`
	// Updated is in seconds since 1970, 0 before the first report.
	Updated metrics.Figure `json:"last-update"`
}

// reportAge is the greatest age of a report that counts. A guest that is paused or has no driver sends none.
const reportAge = 5 * time.Minute

func (a *answers) memory(u *metrics.Guest, now time.Time) {
	u[metrics.Balloon] = a.balloon.Actual
	updated, known := a.reported.Updated.Value()
	if age := float64(now.Unix()) - updated; !known || age > reportAge.Seconds() || age < -reportAge.Seconds() {
		return
	}
	s := &a.reported.Stats
	u[metrics.Available], u[metrics.Unused], u[metrics.Usable], u[metrics.CachedFiles] = s.Total, s.Free, s.Available, s.Caches
	u[metrics.SwapIn], u[metrics.SwapOut] = s.SwapIn, s.SwapOut
	u[metrics.MajorFaults], u[metrics.MinorFaults] = s.MajorFaults, s.MinorFaults
}
