package supervisor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"drydock.dev/local/internal/environ"
	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/pki"
	"drydock.dev/local/internal/proc"
	"drydock.dev/local/internal/render"
)

// Storage is the storage controller's program.
const Storage = "drydock-storage"

// The order is that of the dependencies.
func (s *Supervisor) controlPlane(c layout.Cluster) []proc.Component {
	url := func(port uint16, path string) string {
		return "https://" + netip.AddrPortFrom(c.HostIP(), port).String() + path
	}
	env := environ.Of(c, os.Environ())
	asAdmin := func() (*tls.Config, error) { return pki.APIServerClient(c) }
	asAPIServer := func() (*tls.Config, error) { return pki.EtcdClient(c) }
	component := func(name string, args []string, ready func(context.Context) error) proc.Component {
		return proc.Component{
			Name:  name,
			Spec:  proc.Spec{Path: s.self, Argv: append([]string{"drydock", name}, args...), Env: env, Log: c.Log(name)},
			Ready: ready,
		}
	}
	storage := proc.Component{
		Name: Storage,
		Spec: proc.Spec{Path: s.beside(Storage), Argv: []string{Storage, c.Name, c.Dir}, Env: env, Log: c.Log(Storage)},
		// The socket exists before the controllers' caches are filled: new claims wait in the API.
		Ready: proc.SocketReady(c.StorageSocket()),
	}
	return []proc.Component{
		component("etcd", render.Etcd(c), proc.HTTPSReady(asAPIServer, url(layout.EtcdPort, "/health"))),
		component("kube-apiserver", render.APIServer(c), proc.HTTPSReady(asAdmin, c.APIServer()+"/readyz")),
		component("kube-controller-manager", render.ControllerManager(c), proc.HTTPSReady(asAdmin, url(layout.ControllerManagerPort, "/healthz"))),
		component("kube-scheduler", render.Scheduler(c), proc.HTTPSReady(asAdmin, url(layout.SchedulerPort, "/healthz"))),
		storage,
	}
}

// Processes of an earlier supervisor are adopted if they match a component, and ended otherwise.
func (s *Supervisor) startControlPlane(life context.Context, c layout.Cluster) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.control != nil {
		return nil
	}
	components := s.controlPlane(c)
	if err := s.endStrays(c, components); err != nil {
		return err
	}
	var api *proc.Task
	for _, component := range components {
		if api != nil {
			component.Needs = api.Await
		}
		task := s.runner.Run(context.WithoutCancel(life), component)
		if component.Name == "kube-apiserver" {
			api = task
		}
		s.control = append(s.control, task)
	}
	return nil
}

func (s *Supervisor) endStrays(c layout.Cluster, components []proc.Component) error {
	pids, err := s.tree.Procs(c.ControlCgroup())
	if err != nil {
		return err
	}
	for _, pid := range pids {
		runsIt := func(c proc.Component) bool {
			_, found := proc.Find([]int{pid}, c.Spec.Path, c.Spec.Argv)
			return found
		}
		if pid == os.Getpid() || slices.ContainsFunc(components, runsIt) {
			continue
		}
		p, err := proc.Open(pid)
		if err != nil {
			continue // already gone
		}
		fmt.Fprintf(os.Stderr, "ending process %d, which an earlier supervisor left: %q\n", pid, proc.Argv(pid))
		err = errors.Join(p.Signal(unix.SIGKILL), p.Wait(context.Background()))
		p.Close()
		if err != nil {
			return fmt.Errorf("ending what an earlier supervisor left: %w", err)
		}
	}
	return nil
}
