package launcher

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/qmp"
)

// notBroken is in QEMU's refusal of migrate-recover while the connection of its post-copy is not broken.
const notBroken = "only be run when postcopy is paused"

// recoverIncoming makes QEMU listen for the rest of an incoming post-copy. QEMU itself judges whether the connection is
// broken. The socket is always the same: virt-handler can't name another one.
func (l *launcher) recoverIncoming(reply func(launch.Reply)) {
	if !l.state.Recovers || l.exit != nil || !l.guest.incoming {
		reply(launch.Reply{Error: "QEMU does not run, or can't be told to take up the rest of its guest's memory"})
		return
	}
	client := l.qemu.client
	l.spawn(func() {
		ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
		defer cancel()
		uri := "unix:" + filepath.Join(l.config.Dir, layout.MigrationSocket)
		err := client.ExecuteOutOfBand(ctx, "migrate-recover", map[string]any{"uri": uri}, nil)
		l.post(func() {
			if err == nil {
				l.logf("QEMU waits for the rest of its guest's memory")
				reply(launch.Reply{})
				return
			}
			var refusal *qmp.Error
			reply(launch.Reply{Error: err.Error(), Refused: errors.As(err, &refusal) && strings.Contains(refusal.Desc, notBroken)})
		})
	})
}

func (l *launcher) sendArrival() {
	if arrival := l.guest.arrival(); arrival != l.state.Arrival {
		l.state.Arrival = arrival
		l.send(launch.Message{Event: &launch.Event{Arrival: &arrival}})
	}
}
