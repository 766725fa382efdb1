package launcher

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
)

// writePatience bounds how long virt-handler may block the launcher.
const writePatience = 5 * time.Second

// maxRequest is in bytes. The longest request has a machine's arguments.
const maxRequest = 4 << 20

type peer struct {
	conn net.Conn
}

func (p *peer) send(m launch.Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if err := p.conn.SetWriteDeadline(time.Now().Add(writePatience)); err != nil {
		return fmt.Errorf("sending a message: %w", err)
	}
	if _, err := p.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("sending a message: %w", err)
	}
	return nil
}

func listen(path string) (net.Listener, error) {
	// A container that has ended left the socket.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the socket of an earlier launcher: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on the socket %s: %w", filepath.Base(path), err)
	}
	return listener, nil
}

func (l *launcher) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		p := &peer{conn: conn}
		l.post(func() {
			l.disconnectPeer()
			l.peer = p
			l.send(launch.Message{Hello: &launch.Hello{State: l.state}})
			l.spawn(func() { l.readRequests(p) })
		})
	}
}

func (l *launcher) disconnectPeer() {
	if l.peer != nil {
		_ = l.peer.conn.Close()
		l.peer = nil
	}
}

// Without a client nothing is lost: the next connection starts with the state.
func (l *launcher) send(m launch.Message) {
	if l.peer == nil {
		return
	}
	if err := l.peer.send(m); err != nil {
		l.logf("virt-handler is gone: %v", err)
		l.disconnectPeer()
	}
}

func (l *launcher) readRequests(p *peer) {
	scanner := bufio.NewScanner(p.conn)
	scanner.Buffer(nil, maxRequest)
	for scanner.Scan() {
		var request launch.Request
		if err := json.Unmarshal(scanner.Bytes(), &request); err != nil {
			l.post(func() { l.logf("reading a request: %v", err) })
			break
		}
		l.post(func() { l.handle(p, &request) })
	}
	l.post(func() {
		if l.peer == p {
			l.disconnectPeer()
		}
	})
}

// The answer goes to the same connection, if it is open.
func (l *launcher) handle(p *peer, request *launch.Request) {
	reply := func(r launch.Reply) {
		if l.peer == p {
			r.ID = request.ID
			l.send(launch.Message{Reply: &r})
		}
	}
	withState := func(err error) {
		if err != nil {
			reply(launch.Reply{Error: err.Error()})
			return
		}
		state := l.state
		reply(launch.Reply{State: &state})
	}
	switch {
	case request.Prepare != nil:
		l.spawn(func() {
			images, err := prepare(request.Prepare.Images)
			l.post(func() {
				if err != nil {
					reply(launch.Reply{Error: err.Error()})
					return
				}
				reply(launch.Reply{Images: images})
			})
		})
	case request.Start != nil:
		l.start(request.Start, withState)
	case request.Stop != nil:
		l.guest.recordFailure(request.Stop.Failure)
		l.stop(time.Duration(request.Stop.GracePeriodSeconds) * time.Second)
		withState(nil)
	case request.Quiesce != nil:
		l.quiesce(request.Quiesce, reply)
	case request.Held != nil:
		l.verify(request.Held, reply)
	case request.Release != nil:
		l.release(request.Release, reply)
	case request.Recover != nil:
		l.recoverIncoming(reply)
	default:
		withState(errors.New("the request asks for nothing that this launcher knows"))
	}
}

func writeTerminationLog(path string, exit launch.Exit) error {
	text, err := json.Marshal(exit)
	if err != nil {
		return fmt.Errorf("encoding the termination message: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|syscall.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		// Not in a pod.
		return nil
	}
	if err != nil {
		return fmt.Errorf("leaving the termination message: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("leaving the termination message: %w", err)
	}
	return nil
}
