package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

// virt-freezer is virt-launcher under another name (layout.FreezerBinary). Backup tools run it in the launcher pod, by
// the pod's annotations, before and after their snapshots. A user who may exec in the pod can thereby freeze that guest,
// and do no more.

// Limits of virt-freezer's request. There is one at a time.
const (
	freezerPatience = monitorPatience + freezePatience + 2*time.Second
	maxFreezer      = 4 << 10
)

type (
	freezerRequest struct {
		Freeze bool `json:"freeze"`
		// Milliseconds later the guest is thawed without a request.
		Milliseconds int64 `json:"milliseconds,omitempty"`
	}
	freezerAnswer struct {
		Error string `json:"error,omitempty"`
		// Alone means that no guest agent is connected: nothing can be frozen.
		Alone bool `json:"alone,omitempty"`
	}
)

func (l *launcher) serveFreezer(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l.answerFreezer(conn)
	}
}

func (l *launcher) answerFreezer(conn net.Conn) {
	defer conn.Close()
	// Without a deadline, one client could block all others.
	if err := conn.SetDeadline(time.Now().Add(freezerPatience)); err != nil {
		return
	}
	var request freezerRequest
	answer := freezerAnswer{Error: "the request cannot be read"}
	if json.NewDecoder(io.LimitReader(conn, maxFreezer)).Decode(&request) == nil {
		answer = l.freezeOrThaw(request)
	}
	if err := json.NewEncoder(conn).Encode(answer); err != nil {
		l.post(func() { l.logf("answering virt-freezer: %v", err) })
	}
}

func (l *launcher) freezeOrThaw(request freezerRequest) freezerAnswer {
	if !request.Freeze {
		l.await(func(reply func(launch.Reply)) { l.release(&launch.Release{Holder: launch.HolderUser}, reply) })
		return freezerAnswer{}
	}
	open, err := l.agentListens()
	switch {
	case err != nil:
		return freezerAnswer{Error: err.Error()}
	case !open:
		return freezerAnswer{Alone: true}
	}
	return freezerAnswer{Error: l.await(func(reply func(launch.Reply)) {
		l.quiesce(&launch.Quiesce{Holder: launch.HolderUser, Milliseconds: request.Milliseconds, Agent: true, AgentOnly: true}, reply)
	}).Error}
}

func (l *launcher) await(do func(reply func(launch.Reply))) launch.Reply {
	answers := make(chan launch.Reply, 1)
	l.post(func() { do(func(r launch.Reply) { answers <- r }) })
	select {
	case r := <-answers:
		return r
	case <-l.ended:
		return launch.Reply{Error: "virt-launcher is ending"}
	}
}

func (l *launcher) agentListens() (bool, error) {
	var process *process
	if r := l.await(func(reply func(launch.Reply)) {
		if l.guest.started && l.exit == nil {
			process = l.qemu
		}
		reply(launch.Reply{})
	}); r.Error != "" {
		return false, errors.New(r.Error)
	}
	if process == nil {
		return false, errors.New("the guest does not run here")
	}
	ctx, cancel := context.WithTimeout(context.Background(), monitorPatience)
	defer cancel()
	var list []struct {
		Label string `json:"label"`
		Open  bool   `json:"frontend-open"`
	}
	if err := process.client.Execute(ctx, "query-chardev", nil, &list); err != nil {
		return false, fmt.Errorf("asking QEMU for the guest agent's port: %w", err)
	}
	for _, c := range list {
		if c.Label == layout.AgentChardev {
			return c.Open, nil
		}
	}
	return false, nil
}

// A guest without an agent is no error: its backup is crash-consistent.
func freezerMain(args []string) (int, error) {
	var request freezerRequest
	dir, seconds, unfreeze := layout.PrivateDir, int64(300), false
	flags := flag.NewFlagSet(filepath.Base(layout.FreezerBinary), flag.ContinueOnError)
	flags.SetOutput(os.Stderr)
	flags.BoolVar(&request.Freeze, "freeze", false, "freeze the guest's file systems")
	flags.BoolVar(&unfreeze, "unfreeze", false, "thaw them")
	flags.Int64Var(&seconds, "unfreezeTimeoutSeconds", seconds, "after what time they are thawed if nobody asks for it")
	flags.StringVar(&dir, "dir", dir, "folder of the launcher's sockets")
	for _, known := range []string{"name", "namespace"} {
		flags.String(known, "", "accepted as KubeVirt's virt-freezer does; the guest is that of the pod")
	}
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	if request.Freeze == unfreeze || seconds <= 0 || seconds > int64(launch.MaxFrozen/time.Second) {
		return exitFailed, fmt.Errorf("say either --freeze or --unfreeze, and a timeout of 1 to %d seconds", int64(launch.MaxFrozen/time.Second))
	}
	request.Milliseconds = seconds * 1000
	answer, err := askFreezer(dir, request)
	switch {
	case err != nil:
		return exitFailed, err
	case answer.Error != "":
		return exitFailed, errors.New(answer.Error)
	case answer.Alone:
		fmt.Fprintln(os.Stderr, "virt-freezer: no guest agent is connected: nothing is frozen")
	}
	return exitOK, nil
}

func askFreezer(dir string, request freezerRequest) (answer freezerAnswer, err error) {
	conn, err := net.DialTimeout("unix", filepath.Join(dir, layout.FreezerSocket), freezerPatience)
	if err != nil {
		return answer, fmt.Errorf("connecting to virt-launcher: %w", err)
	}
	defer conn.Close()
	// Another request may come first.
	if err := conn.SetDeadline(time.Now().Add(2 * freezerPatience)); err != nil {
		return answer, fmt.Errorf("asking virt-launcher: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return answer, fmt.Errorf("asking virt-launcher: %w", err)
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return answer, fmt.Errorf("waiting for virt-launcher's answer: %w", err)
	}
	return answer, nil
}
