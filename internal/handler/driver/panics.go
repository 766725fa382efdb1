package driver

import (
	"encoding/json"

	"drydock.dev/drydock/internal/handler/metrics"
	"drydock.dev/drydock/internal/qemu/qmp"
)

const panicEvent = "GUEST_PANICKED"

// countPanic reports a panic for metrics. An unreadable part of the event stays zero.
func (d *Driver) countPanic(e qmp.Event) {
	if d.env.Panicked == nil {
		return
	}
	var event struct {
		Info struct {
			Type string `json:"type"`
			Code uint64 `json:"arg1"`
		} `json:"info"`
	}
	_ = json.Unmarshal(e.Data, &event)
	d.env.Panicked(metrics.Panic{Namespace: d.namespace, Name: d.name, Kind: event.Info.Type, Code: event.Info.Code})
}
