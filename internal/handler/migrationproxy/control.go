package migrationproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

// A peer sends Alive once a second and each fact once.
const (
	messagesPerSecond = 10
	messagesAtOnce    = 100
)

// controlConnection ends with its first error or with its context.
type controlConnection struct {
	conn      net.Conn
	limits    Limits
	migration string
	mine      *Facts
	other     migrationwire.Side // the peer's
	onFact    func(migrationwire.Kind)
	// onDisks and onTransport may be nil.
	onDisks     func([]migrationwire.Disk)
	onTransport func(migrationwire.Transport)
}

func (t *controlConnection) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = t.conn.Close() })
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() { cancel(t.writeMessages(ctx)) })
	parts.Go(func() { cancel(t.readMessages()) })
	parts.Wait()
	return context.Cause(ctx)
}

func (t *controlConnection) writeMessages(ctx context.Context) error {
	alive := time.NewTicker(migrationwire.AliveEvery)
	defer alive.Stop()
	for said := 0; ; {
		news, changed := t.mine.after(said)
		if said += len(news); len(news) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
				continue
			case <-alive.C:
				news = []migrationwire.Message{{Kind: migrationwire.Alive}}
			}
		}
		for _, m := range news {
			m.MigrationUID = t.migration
			_ = t.conn.SetWriteDeadline(time.Now().Add(t.limits.silence()))
			if err := migrationwire.Write(t.conn, m); err != nil {
				return err
			}
		}
	}
}

// readMessages ignores everything but the peer's facts.
func (t *controlConnection) readMessages() error {
	limiter := rate.NewLimiter(messagesPerSecond, messagesAtOnce)
	known := map[migrationwire.Kind]bool{}
	var told migrationwire.DisksTold
	for {
		_ = t.conn.SetReadDeadline(time.Now().Add(t.limits.silence()))
		var m migrationwire.Message
		if err := migrationwire.Read(t.conn, &m); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return fmt.Errorf("the other virt-handler has said nothing for %v", t.limits.silence())
			}
			return err
		}
		switch {
		case !limiter.Allow():
			return fmt.Errorf("the other virt-handler says more than %d messages a second", messagesPerSecond)
		case m.MigrationUID != t.migration:
			return fmt.Errorf("the other virt-handler speaks of migration %.100q on the connection of %s", m.MigrationUID, t.migration)
		case m.Kind.Speaker() != t.other:
		case m.Kind == migrationwire.Plugs:
			disks, err := told.Add(&m)
			if len(disks) > 0 && t.onDisks != nil {
				t.onDisks(disks)
			}
			if err != nil {
				return err
			}
		case known[m.Kind]:
		case m.Kind == migrationwire.Offer, m.Kind == migrationwire.Agreed:
			known[m.Kind] = true
			if err := t.handleTransport(m.Transport); err != nil {
				return err
			}
		default:
			known[m.Kind] = true
			t.onFact(m.Kind)
		}
	}
}

func (t *controlConnection) handleTransport(transport *migrationwire.Transport) error {
	if err := transport.Check(); err != nil {
		return err
	}
	if t.onTransport != nil {
		t.onTransport(*transport)
	}
	return nil
}
