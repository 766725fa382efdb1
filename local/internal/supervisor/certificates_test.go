package supervisor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/pki"
	"drydock.dev/local/internal/proc"
)

var made = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

// The control plane consists of real processes that sleep.
func running(t *testing.T) *Supervisor {
	t.Helper()
	c := layout.Cluster{Name: "renew", Dir: t.TempDir(), Net: 77, Nodes: []string{"node1"}}
	if err := pki.Ensure(c, made); err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	s := &Supervisor{cluster: c, runner: &proc.Runner{Log: os.Stderr}}
	for _, component := range s.controlPlane(c) {
		component.Spec.Path, component.Spec.Argv, component.Ready = sleep, []string{"sleep", "1000"}, nil
		task := s.runner.Run(context.WithoutCancel(t.Context()), component)
		if err := task.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.control = append(s.control, task)
	}
	t.Cleanup(func() {
		for _, task := range s.control {
			task.Stop()
		}
	})
	return s
}

func pids(s *Supervisor) map[string]int {
	all := map[string]int{}
	for _, task := range s.control {
		all[task.Name] = task.PID()
	}
	return all
}

func apiServerCert(t *testing.T, s *Supervisor) string {
	t.Helper()
	data, err := os.ReadFile(s.cluster.PKI("apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A year passes without a restart.
func TestCertificatesAreRenewedWhileComponentsRun(t *testing.T) {
	s := running(t)
	ctx, cancel := context.WithCancel(t.Context())
	times, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		s.keepCertificates(ctx, times)
	}()
	first, cert := pids(s), apiServerCert(t, s)
	// A time is received when the previous work is done.
	times <- made.Add(300 * 24 * time.Hour)
	times <- made.Add(301 * 24 * time.Hour)
	if apiServerCert(t, s) != cert {
		t.Error("two months before its end a certificate was renewed")
	}
	times <- made.Add(340 * 24 * time.Hour)
	times <- made.Add(340 * 24 * time.Hour)
	cancel()
	<-ended
	if apiServerCert(t, s) == cert {
		t.Error("a certificate that expires in 25 days was not renewed")
	}
	restarted := restarts([]string{"apiserver"})
	for name, pid := range pids(s) {
		if changed := pid != first[name]; changed != slices.Contains(restarted, name) || pid == 0 {
			t.Errorf("%s was process %d and is %d", name, first[name], pid)
		}
	}
}

func TestOnlyARenewedAPIServerStartsAgain(t *testing.T) {
	for name, test := range map[string]struct{ renewed, want []string }{
		"nothing was renewed":                  {nil, nil},
		"a node that was added later":          {[]string{"kubelet-node3", "user-kubelet-node3"}, nil},
		"the API server's among those renewed": {[]string{"apiserver", "etcd"}, []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}},
	} {
		if got := restarts(test.renewed); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q start again, want %q", name, got, test.want)
		}
	}
}

// TestAnAuthorityIsNotReplacedUnderRunningComponents: only `up` replaces it, after it has stopped them.
func TestAnAuthorityIsNotReplacedUnderRunningComponents(t *testing.T) {
	s := running(t)
	first := pids(s)
	ca, err := os.ReadFile(s.cluster.PKI("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.renewCertificates(t.Context(), made.Add(10*365*24*time.Hour-40*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(s.cluster.PKI("ca.crt"))
	if err != nil || string(again) != string(ca) {
		t.Errorf("the authority was replaced: %v", err)
	}
	if pids(s)["etcd"] != first["etcd"] {
		t.Error("etcd was started again")
	}
}

// A started process has its name a moment after its program has begun.
func awaitName(t *testing.T, pid int, name string) {
	t.Helper()
	for deadline, tick := time.Now().Add(4*time.Minute), time.Tick(time.Millisecond); proc.Program(proc.Argv(pid)) != name; <-tick {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not show that it is %s, but %q", pid, name, proc.Argv(pid))
		}
	}
}

// TestEndProgramsEndsThoseOnly has a node's processes under their real names.
func TestEndProgramsEndsThoseOnly(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	processes := map[string]*proc.Process{}
	for _, name := range []string{"kubelet", "kube-proxy", "drydock-policies", "containerd", "drydock-csi-node"} {
		link := filepath.Join(t.TempDir(), name)
		if err := os.Symlink(sleep, link); err != nil {
			t.Fatal(err)
		}
		p, err := proc.Start(proc.Spec{Path: link, Argv: []string{name, "1000"}, Log: link + ".log"})
		if err != nil {
			t.Fatal(err)
		}
		pids, processes[name] = append(pids, p.PID), p
		awaitName(t, p.PID, name)
	}
	if err := endPrograms(pids, apiClients); err != nil {
		t.Fatal(err)
	}
	for name, p := range processes {
		limit := 100 * time.Millisecond // for those that run on
		if slices.Contains(apiClients, name) {
			limit = 2 * time.Minute // for those that must end
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		alive := p.Wait(ctx) != nil
		cancel()
		if alive == slices.Contains(apiClients, name) {
			t.Errorf("%s is alive: %t", name, alive)
		}
		if err := p.Stop(time.Second); err != nil {
			t.Error(err)
		}
		p.Close()
	}
}
