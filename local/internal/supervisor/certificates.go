package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/nodeinit"
	"drydock.dev/local/internal/pki"
	"drydock.dev/local/internal/proc"
)

// checkCertificates is the interval between checks of the certificates. They are renewed a month
// before they expire, early enough even for a machine that sleeps most of the day.
const checkCertificates = time.Hour

// ensureCertificates creates missing or unusable certificates. Before it replaces an authority, it
// ends all components that trust it, because they read authorities only at their start. An
// interrupted `up` thus leaves no component that trusts the old authority.
func (s *Supervisor) ensureCertificates(c layout.Cluster, now time.Time, say report) error {
	reasons, err := pki.Unusable(c, now)
	if err != nil {
		return err
	}
	if len(reasons) > 0 {
		say("%s; it is made anew, and kubeconfigs that were copied elsewhere are void", strings.Join(reasons, "; "))
		// First the control plane, then its clients on the nodes, which restart them when there is an API server. Pods
		// keep running.
		s.mu.Lock()
		control := s.control
		s.control = nil
		s.mu.Unlock()
		for _, task := range slices.Backward(control) {
			task.Stop()
		}
		if err := s.endStrays(c, nil); err != nil {
			return err
		}
		for _, node := range c.Nodes {
			pids, err := s.tree.Procs(c.NodeSystemCgroup(node))
			if err != nil {
				return err
			}
			if err := endPrograms(pids, apiClients); err != nil {
				return fmt.Errorf("ending what trusts the old authority on %s: %w", node, err)
			}
		}
	}
	return pki.Ensure(c, now)
}

// apiClients are the components of a node that use the API server.
var apiClients = []string{"kubelet", "kube-proxy", nodeinit.Policies}

func endPrograms(pids []int, programs []string) error {
	var errs []error
	for _, pid := range pids {
		if !slices.Contains(programs, proc.Program(proc.Argv(pid))) {
			continue
		}
		p, err := proc.Open(pid)
		if err != nil {
			continue // already gone
		}
		errs = append(errs, p.Stop(nodeGrace))
		p.Close()
	}
	return errors.Join(errs...)
}

// keepCertificates renews certificates of a running cluster at each of the given times until the
// context ends.
func (s *Supervisor) keepCertificates(ctx context.Context, times <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-times:
			if err := s.renewCertificates(ctx, now); err != nil {
				fmt.Fprintf(os.Stderr, "renewing certificates, to be tried again in %s: %v\n", checkCertificates, err)
			}
		}
	}
}

// renewCertificates renews certificates that expire soon. It does not replace an authority, which
// interrupts the control plane: that is left to `up`.
func (s *Supervisor) renewCertificates(ctx context.Context, now time.Time) error {
	s.up.Lock()
	defer s.up.Unlock()
	s.mu.Lock()
	c, runs := s.cluster, s.control != nil
	s.mu.Unlock()
	if !runs {
		return nil
	}
	reasons, err := pki.Unusable(c, now)
	if err != nil {
		return err
	}
	for _, reason := range reasons {
		fmt.Fprintf(os.Stderr, "warning: %s: run drydock up, which makes it anew\n", reason)
	}
	renewed, err := pki.Renew(c, now)
	if err != nil {
		return err
	}
	if len(renewed) > 0 {
		fmt.Fprintf(os.Stderr, "renewed the certificates %s\n", strings.Join(renewed, ", "))
	}
	for _, name := range restarts(renewed) {
		if err := s.restart(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// restarts returns the components to restart after a renewal, in order. All components reload their certificate
// files. But these three also have one in memory for connections to themselves, valid for three years from their
// start: they restart whenever the API server's is renewed.
func restarts(renewed []string) []string {
	if !slices.Contains(renewed, "apiserver") {
		return nil
	}
	return []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

func (s *Supervisor) restart(ctx context.Context, name string) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.control, func(t *proc.Task) bool { return t.Name == name })
	if i < 0 {
		s.mu.Unlock()
		return fmt.Errorf("starting %s again: it is not part of the cluster", name)
	}
	old := s.control[i]
	s.mu.Unlock()
	old.Stop()
	task := s.runner.Run(context.WithoutCancel(ctx), old.Component)
	s.mu.Lock()
	s.control[i] = task
	s.mu.Unlock()
	return task.Await(ctx)
}
