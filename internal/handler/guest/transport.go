package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/switchover"
)

// capabilitiesOf are those that a transport needs of both sides. All are said, since QEMU keeps those of an
// earlier migration.
func capabilitiesOf(t switchover.Transport) []capability {
	return []capability{{"multifd", t.Channels > 0}, {"postcopy-ram", t.PostCopy}}
}

// setTransport has QEMU send or take its guest in a way, with other capabilities. The number of channels comes
// first: with the capabilities, all is set.
func (g *Guest) setTransport(ctx context.Context, t switchover.Transport, others ...capability) error {
	if t.Channels > 0 {
		if err := g.execute(ctx, "migrate-set-parameters", map[string]any{"multifd-channels": t.Channels}); err != nil {
			return err
		}
	}
	return g.setCapabilities(ctx, append(others, capabilitiesOf(t)...)...)
}

// maxChannels bounds what QEMU says of its channels: a guest that has taken it over may say anything.
const maxChannels = 16

// transport is what a target's QEMU was set to; false if it was not yet. late-block-activate tells: it
// is set at once with the rest, and nowhere else.
func (g *Guest) transport(ctx context.Context) (t switchover.Transport, set bool, err error) {
	var list []capability
	var parameters struct {
		Channels int `json:"multifd-channels"`
	}
	err = g.monitor.ExecuteAll(ctx, qmp.Command{Name: "query-migrate-capabilities", Result: &list},
		qmp.Command{Name: "query-migrate-parameters", Result: &parameters})
	for _, c := range list {
		switch {
		case c.Name == "late-block-activate":
			set = c.State
		case c.Name == "multifd" && c.State:
			t.Channels = max(0, min(parameters.Channels, maxChannels))
		case c.Name == "postcopy-ram":
			t.PostCopy = c.State
		}
	}
	return t, set, err
}

// listens is in QEMU's refusal of a second migrate-incoming.
const listens = "already been started"

// waitBy sets a target to a transport, or to what is left of it without post-copy: that QEMU refuses where it
// can't have userfaultfd, which it tries.
func (g *Guest) waitBy(ctx context.Context, wanted switchover.Transport) (taken switchover.Transport, err error) {
	for _, taken = range wanted.Tries() {
		err = g.setTransport(ctx, taken, capability{"events", true}, capability{"return-path", true}, capability{"late-block-activate", true})
		var no *qmp.Error
		if err == nil || !taken.PostCopy || !errors.As(err, &no) {
			break
		}
		g.env.Log.Info("QEMU can't do with post-copy", "reason", no.Desc)
	}
	return taken, err
}

// Listen has a target take its guest from a socket, as QEMU sees it, in a way, and returns the way in which it
// does: one that was told before is left as it is. Until its guest comes, query-migrate does not know that it
// was, and migrate-incoming is refused.
func (g *Guest) Listen(ctx context.Context, socket string, wanted switchover.Transport) (switchover.Transport, error) {
	var taken switchover.Transport
	err := g.exclusive(ctx, func(ctx context.Context, o observation) error {
		has, set, err := g.transport(ctx)
		if err != nil {
			return fmt.Errorf("asking QEMU how it waits for its guest: %w", err)
		}
		if taken = has; !set {
			taken, err = g.waitBy(ctx, wanted)
		}
		if err == nil && (o.migration.Status == "" || o.migration.Status == migrationstatus.None) {
			err = g.execute(ctx, "migrate-incoming", map[string]any{"uri": "unix:" + socket})
		}
		var no *qmp.Error
		if errors.As(err, &no) && strings.Contains(no.Desc, listens) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("having QEMU wait for its guest: %w", err)
		}
		return nil
	})
	return taken, err
}
