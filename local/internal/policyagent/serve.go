package policyagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"drydock.dev/local/internal/podnetwork"
)

const (
	maxAnnouncement = 64 << 10
	patience        = 15 * time.Second
)

// Run enforces the policies until the context ends.
func Run(ctx context.Context, c Config, kubeconfig string) error {
	var a *agent
	w, err := newWatches(kubeconfig, func() { a.changed() })
	if err != nil {
		return err
	}
	if a, err = newAgent(c, w, loadRules); err != nil {
		return err
	}
	var ending sync.WaitGroup
	defer ending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan struct{})
	ending.Go(func() {
		w.run(ctx, func() { close(ready) })
	})
	select {
	case <-ctx.Done():
		return nil
	case <-ready:
	}
	ending.Go(func() { a.run(ctx) })
	path := podnetwork.AgentSocket(a.Folder)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the socket of an earlier agent: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listening for the network plugin: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var answering sync.WaitGroup
	defer answering.Wait()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listening for the network plugin: %w", err)
		}
		answering.Go(func() { a.answer(ctx, conn) })
	}
}

// One transaction: no packet passes without the table.
func loadRules(script string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out[:min(len(out), 1000)])
	}
	return nil
}

func (a *agent) answer(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return
	}
	var announced podnetwork.Sandbox
	var answer podnetwork.Answer
	err := json.NewDecoder(io.LimitReader(conn, maxAnnouncement)).Decode(&announced)
	if err == nil {
		err = a.admit(ctx, sandbox{Sandbox: announced})
	}
	if err != nil {
		log.Print(err)
		answer.Error = err.Error()
	}
	if err := json.NewEncoder(conn).Encode(answer); err != nil {
		log.Printf("answering the network plugin about pod %s/%s: %v", announced.Namespace, announced.Name, err)
	}
}
