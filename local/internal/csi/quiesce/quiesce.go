// Package quiesce is the protocol by which the controller freezes a volume on the node that has it mounted,
// during a copy. It must not freeze anything itself.
//
//	controller                     node
//	    | ---- volume's ID ------>  |  holds it
//	    | <--- "held" ------------  |
//	    |      (copies)             |
//	    | ---- "done" ----------->  |  releases it
//	    | <--- "held until now" --  |
//
// The connection is the lease: when it breaks or lasts too long, the node releases the volume. The controller
// then gets no last answer, and its copy is invalid.
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

// longest is the limit for a freeze. A guest's own disk timeouts begin at half a minute.
const longest = 25 * time.Second

const (
	held  = "held"
	done  = "done"
	until = "held until now"
)

// Serve serves until the context ends. hold freezes a volume and returns its release.
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

// Hold asks a node to freeze a volume. A node that refuses connections is off and writes nothing. release fails
// if the volume was not frozen throughout.
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
