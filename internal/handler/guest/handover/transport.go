package handover

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

type capability struct {
	Name  string `json:"capability"`
	State bool   `json:"state"`
}

// The capabilities come last: queryTransport takes one of them as the sign that everything is set.
func setTransport(ctx context.Context, g *guest.Guest, t switchover.Transport, others ...capability) error {
	if t.Channels > 0 {
		if err := g.Execute(ctx, "migrate-set-parameters", map[string]any{"multifd-channels": t.Channels}); err != nil {
			return err
		}
	}
	// Each capability is listed, since QEMU keeps those of an earlier migration.
	list := append(others, capability{"multifd", t.Channels > 0}, capability{"postcopy-ram", t.PostCopy})
	return g.Execute(ctx, "migrate-set-capabilities", map[string]any{"capabilities": list})
}

// listens is part of QEMU's refusal of a second migrate-incoming.
const listens = "already been started"

// QEMU refuses post-copy without userfaultfd.
func (t Target) setTargetTransport(ctx context.Context, wanted switchover.Transport) (taken switchover.Transport, err error) {
	for _, taken = range wanted.Tries() {
		err = setTransport(ctx, t.guest, taken, capability{"events", true}, capability{"return-path", true}, capability{"late-block-activate", true})
		var no *qmp.Error
		if err == nil || !taken.PostCopy || !errors.As(err, &no) {
			break
		}
		t.guest.Log().Info("QEMU can't do with post-copy", "reason", no.Desc)
	}
	return taken, err
}

// Listen makes a target wait for its guest on a socket of QEMU's, and returns the transport, which is set only once.
// Until the guest comes, query-migrate does not show that QEMU waits, and QEMU refuses a second migrate-incoming.
func (t Target) Listen(ctx context.Context, socket string, wanted switchover.Transport) (switchover.Transport, error) {
	var taken switchover.Transport
	err := t.guest.WithCurrentState(ctx, func(ctx context.Context, o guest.Observation) error {
		has, set, err := t.queryTransport(ctx)
		if err != nil {
			return fmt.Errorf("asking QEMU how it waits for its guest: %w", err)
		}
		if taken = has; !set {
			taken, err = t.setTargetTransport(ctx, wanted)
		}
		if err == nil && (o.Migration.Status == "" || o.Migration.Status == migrationstatus.None) {
			err = t.guest.Execute(ctx, "migrate-incoming", map[string]any{"uri": "unix:" + socket})
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

// maxChannels bounds QEMU's answer: a guest may have taken QEMU over.
const maxChannels = 16

// Only setTargetTransport sets late-block-activate, together with the rest.
func (t Target) queryTransport(ctx context.Context) (has switchover.Transport, set bool, err error) {
	var list []capability
	var parameters struct {
		Channels int `json:"multifd-channels"`
	}
	err = t.guest.Monitor().ExecuteAll(ctx, qmp.Command{Name: "query-migrate-capabilities", Result: &list},
		qmp.Command{Name: "query-migrate-parameters", Result: &parameters})
	for _, c := range list {
		switch {
		case c.Name == "late-block-activate":
			set = c.State
		case c.Name == "multifd" && c.State:
			has.Channels = max(0, min(parameters.Channels, maxChannels))
		case c.Name == "postcopy-ram":
			has.PostCopy = c.State
		}
	}
	return has, set, err
}
