package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"drydock.dev/local/internal/bootstrap"
	"drydock.dev/local/internal/image"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/network"
	"drydock.dev/local/internal/render"
)

// bringUp brings the cluster to the state in its record. ctx ends the wait, life ends the started
// components.
func (s *Supervisor) bringUp(ctx, life context.Context, say report) error {
	c, err := s.reload()
	if err != nil {
		return err
	}
	if err := s.prepare(c, say); err != nil {
		return err
	}
	say("certificates and network are there")
	if err := s.startControlPlane(life, c); err != nil {
		return err
	}
	for _, name := range c.Nodes {
		if err := s.ensureNode(life, c, name); err != nil {
			return err
		}
	}
	say("%d nodes are starting", len(c.Nodes))
	s.mu.Lock()
	control := s.control
	s.mu.Unlock()
	for _, task := range control {
		if task.Name == Storage {
			continue // it waits for an API that bringUp has yet to define
		}
		if err := task.Await(ctx); err != nil {
			return err
		}
		say("%s serves", task.Name)
	}
	boot, err := bootstrap.New(c)
	if err != nil {
		return err
	}
	if err := errors.Join(boot.ApplyPolicies(ctx), boot.ApplyDNS(ctx), boot.ApplyNetworks(ctx), boot.ApplyStorage(ctx, s.beside(layout.SnapshotDefinitions))); err != nil {
		return err
	}
	for _, name := range c.Nodes {
		if err := s.awaitNode(ctx, boot, name, say); err != nil {
			return err
		}
	}
	if err := boot.AwaitDNS(ctx); err != nil {
		return err
	}
	say("CoreDNS serves")
	if err := boot.AwaitStorage(ctx); err != nil {
		return err
	}
	say("storage is ready on every node")
	return boot.AwaitNetworks(ctx)
}

// The calling command may have added nodes.
func (s *Supervisor) reload() (layout.Cluster, error) {
	old := s.current()
	c, found, err := layout.Load(old.Name, old.Dir)
	if err == nil && !found {
		err = fmt.Errorf("reading the cluster's record: %s is gone", old.Record())
	}
	if err != nil {
		return c, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster = c
	return c, nil
}

func (s *Supervisor) prepare(c layout.Cluster, say report) error {
	if err := raiseWatchLimit(); err != nil {
		return err
	}
	if err := s.ensureCertificates(c, time.Now(), say); err != nil {
		return err
	}
	if err := layout.WriteFile(c.Config("audit-policy.yaml"), []byte(render.AuditPolicy()), 0o600); err != nil {
		return err
	}
	return network.EnsureHost(c, s.mtu)
}

func (s *Supervisor) beside(file string) string { return filepath.Join(filepath.Dir(s.self), file) }

// awaitNode waits until a node is ready or has died.
func (s *Supervisor) awaitNode(ctx context.Context, boot *bootstrap.Cluster, name string, say report) error {
	n := s.node(name)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-n.dead:
			cancel(fmt.Errorf("it has ended; %s says why", s.current().NodeLog(name, "init")))
		case <-ctx.Done():
		}
	}()
	if err := boot.AwaitNode(ctx, name, n.started); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("waiting for %s to be ready: %w", name, err)
	}
	say("%s is ready", name)
	return nil
}

func (s *Supervisor) startNode(ctx, life context.Context, name string, say report) error {
	c := s.current()
	if err := c.Find(name); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	if err := s.ensureNode(life, c, name); err != nil {
		return err
	}
	boot, err := bootstrap.New(c)
	if err != nil {
		return err
	}
	return s.awaitNode(ctx, boot, name, say)
}

func (s *Supervisor) syncImages(ctx context.Context, say report) error {
	c := s.current()
	store := image.NewStore(c.Images())
	errs := make([]error, len(c.Nodes))
	var loading sync.WaitGroup
	for i, name := range c.Nodes {
		n := s.node(name)
		if n == nil || !n.alive() {
			say("%s does not run; it gets its images when it starts", name)
			continue
		}
		loading.Go(func() {
			socket := fmt.Sprintf("/proc/%d/root%s", n.process.PID, render.ContainerdSocket)
			if errs[i] = store.Sync(ctx, socket); errs[i] != nil {
				errs[i] = fmt.Errorf("loading images into %s: %w", name, errs[i])
			}
		})
	}
	loading.Wait()
	return errors.Join(errs...)
}
