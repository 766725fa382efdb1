package guestusage

import (
	"time"

	"drydock.dev/drydock/internal/handler/metrics"
)

// balloonReport is the last report of the guest's balloon driver. QEMU gives the largest number for missing figures.
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
	Updated metrics.Figure `json:"last-update"` // seconds since 1970, 0 before the first report
}

// reportAge bounds a report's age. A paused guest, or one without the driver, sends none.
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
