// Package quiesce lets the controller freeze a volume on the node where it is
// mounted, while it is copied. It carries the request and its end between the two
// processes; the node service decides how a volume is frozen.
//
//	controller                     node
//	    | ---- volume's ID ------>  |  holds it
//	    | <--- "held" ------------  |
//	    |      (copies)             |
//	    | ---- "done" ----------->  |  lets go
//	    | <--- "held until now" --  |
//
// The connection is the lease: when it ends, for whatever reason, or lasts too
// long, the node lets go. The controller then misses the last answer and knows
// that its copy is worth nothing.
package quiesce

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/csi"
)

// longest is how long writers are made to wait. A guest's own disk timeouts
// begin at half a minute.
const longest = 25 * time.Second

const (
	held  = "held"
	done  = "done"
	until = "held until now"
)

// Serve answers on a socket until the context ends. hold brings a volume to rest
// and returns what ends that.
func Serve(ctx context.Context, socket string, hold func(id string) (release func(), err error)) error {
	listener, err := csi.Listen(socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting on %s: %w", socket, err)
		}
		calls.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
			if err := serve(conn, hold); err != nil {
				fmt.Fprintf(os.Stderr, "holding a volume still: %v\n", err)
			}
		})
	}
}

func serve(conn net.Conn, hold func(string) (func(), error)) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(longest)); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	id, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	release, err := hold(strings.TrimSpace(id))
	if err != nil {
		_, writeErr := fmt.Fprintln(conn, strings.ReplaceAll(err.Error(), "\n", " "))
		return errors.Join(err, writeErr)
	}
	defer release()
	if _, err := fmt.Fprintln(conn, held); err != nil {
		return err
	}
	if _, err := in.ReadString('\n'); err != nil {
		return fmt.Errorf("it is released early: %w", err)
	}
	_, err = fmt.Fprintln(conn, until)
	return err
}

// Hold asks a node to hold a volume still. A node that does not answer at all is
// off, and writes nothing. release fails when the volume was not held all the time.
func Hold(ctx context.Context, socket, id string) (release func() error, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking the node to hold volume %s still: %w", id, err)
	}
	in := bufio.NewReader(conn)
	answer, err := ask(conn, in, id)
	if err == nil && answer != held {
		err = errors.New(answer)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("asking the node to hold volume %s still: %w", id, err), conn.Close())
	}
	return func() error {
		defer conn.Close()
		answer, err := ask(conn, in, done)
		if err == nil && answer != until {
			err = errors.New(answer)
		}
		if err != nil {
			return fmt.Errorf("copying volume %s took more than the %s that its pod can be made to wait, or the node died; stop the pod first, or put the data folder on a filesystem that shares blocks (XFS, Btrfs): %w", id, longest, err)
		}
		return nil
	}, nil
}

func ask(conn net.Conn, in *bufio.Reader, line string) (string, error) {
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer, err := in.ReadString('\n')
	return strings.TrimSpace(answer), err
}
