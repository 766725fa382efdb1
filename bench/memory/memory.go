// Package memory measures what a running guest costs beside its own memory, and
// what Drydock and the embedded cluster take when nothing runs.
//
// All is proportional set size: a page that several processes share counts in
// parts, so that sums are true.
package memory

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/bench/report"
)

// Options are what can be chosen.
type Options struct {
	vmis int
}

// Flags adds the benchmark's flags.
func (o *Options) Flags(f *flag.FlagSet) {
	f.IntVar(&o.vmis, "memory-vmis", 4, "memory: guests that run at the same time")
}

// warmUp is how long a guest has run when it is measured: it has booted by then,
// and emulation has translated what an idle guest needs.
const warmUp = 15 * time.Second

const mib = 1024 // in KiB

var components = []string{"virt-api", "virt-controller", "virt-handler"}

// Run measures.
func (o *Options) Run(ctx context.Context, c *cluster.Cluster, r *report.Report) error {
	idle, err := measureIdle(ctx, c, r)
	if err != nil {
		return err
	}
	ns, remove, err := c.NewNamespace(ctx)
	if err != nil {
		return err
	}
	defer remove()
	if err := o.startGuests(ctx, c, ns); err != nil {
		return err
	}
	if err := measureGuests(ctx, c, r, ns); err != nil {
		return err
	}
	busy, err := componentsMemory(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range components {
		r.Add("memory.growth_per_vmi_"+strings.TrimPrefix(name, "virt-")+"_mib", "MiB", float64(busy[name]-idle[name])/mib/float64(o.vmis))
	}
	return nil
}

func (o *Options) startGuests(ctx context.Context, c *cluster.Cluster, ns string) error {
	for i := range o.vmis {
		if _, _, err := c.CreateAndAwait(ctx, cluster.VMI(ns, fmt.Sprintf("guest-%d", i)), &v1.VirtualMachineInstanceList{}, cluster.Running); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(warmUp):
		return nil
	}
}

// measureGuests looks into each guest's pod.
func measureGuests(ctx context.Context, c *cluster.Cluster, r *report.Report, ns string) error {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
		return fmt.Errorf("listing the launcher pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		u, err := usageOf(pod)
		if err != nil {
			return fmt.Errorf("measuring pod %s: %w", pod.Name, err)
		}
		requested := pod.Spec.Containers[0].Resources.Requests.Memory().Value() >> 10
		r.Add("memory.beside_qemu_mib", "MiB", float64(u.beside)/mib)
		r.Add("memory.launcher_rss_mib", "MiB", float64(u.launcherRSS)/mib)
		r.Add("memory.sandbox_mib", "MiB", float64(u.sandbox)/mib)
		r.Add("memory.guest_ram_touched_mib", "MiB", float64(u.guest)/mib)
		r.Add("memory.qemu_beside_guest_mib", "MiB", float64(u.qemu-u.guest)/mib)
		// The guest may touch all of its memory at any time, so that counts fully.
		most := u.qemu - u.guest + cluster.GuestMemoryMiB*mib + u.launcher
		r.Add("memory.requested_over_used", "ratio", float64(requested)/float64(most))
	}
	return nil
}

// usage is the memory of the processes that exist only for one guest, in KiB.
type usage struct {
	// qemu is all of QEMU and guest what it has of the guest's RAM.
	qemu, guest int
	// launcher is virt-launcher, sandbox the pod's pause and the runtime's shim,
	// which every pod has; beside is both.
	launcher, launcherRSS, sandbox, beside int
}

func usageOf(pod *corev1.Pod) (usage, error) {
	processes, err := proc.OfPod(string(pod.UID))
	if err != nil {
		return usage{}, err
	}
	shims, err := shimsOf(processes)
	if err != nil {
		return usage{}, err
	}
	var u usage
	for _, p := range append(processes, shims...) {
		m, err := proc.MemoryOf(p.PID)
		if err != nil {
			return u, err
		}
		switch {
		case strings.HasPrefix(p.Name(), "qemu-system-"):
			ram, err := proc.Mapping(p.PID, cluster.GuestMemoryMiB*mib)
			if err != nil {
				return u, err
			}
			u.qemu, u.guest = m.PSS, ram.PSS
		case p.Name() == "virt-launcher":
			u.launcher, u.launcherRSS = u.launcher+m.PSS, m.RSS
		default:
			u.sandbox += m.PSS
		}
	}
	if u.qemu == 0 || u.launcher == 0 {
		return u, fmt.Errorf("looking for QEMU and virt-launcher among %d processes: one of them is not there", len(processes))
	}
	u.beside = u.launcher + u.sandbox
	return u, nil
}

// shimsOf finds the runtime's shim, which is in no pod's cgroup: it is the parent
// of the pod's first processes.
func shimsOf(processes []proc.Process) ([]proc.Process, error) {
	shims, err := proc.ByArgs("containerd-shim")
	if err != nil {
		return nil, err
	}
	parents := map[int]bool{}
	for _, p := range processes {
		parent, err := proc.Parent(p.PID)
		if err != nil {
			return nil, err
		}
		parents[parent] = true
	}
	var out []proc.Process
	for _, s := range shims {
		if parents[s.PID] {
			out = append(out, s)
		}
	}
	return out, nil
}

// measureIdle measures what there is without any guest. It returns the
// components' memory.
func measureIdle(ctx context.Context, c *cluster.Cluster, r *report.Report) (map[string]int, error) {
	idle, err := componentsMemory(ctx, c)
	if err != nil {
		return nil, err
	}
	sum := 0
	for _, name := range components {
		r.Add("memory.idle_"+strings.TrimPrefix(name, "virt-")+"_mib", "MiB", float64(idle[name])/mib)
		sum += idle[name]
	}
	r.Add("memory.control_plane_idle_mib", "MiB", float64(sum)/mib)
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	kubernetes, err := kubernetesMemory(status)
	if err != nil {
		return nil, err
	}
	r.Add("memory.cluster_idle_mib", "MiB", float64(kubernetes+sum)/mib)
	return idle, nil
}

// componentsMemory is the memory of Drydock's components, all their pods summed.
func componentsMemory(ctx context.Context, c *cluster.Cluster) (map[string]int, error) {
	out := map[string]int{}
	for _, name := range components {
		pods, err := c.Components(ctx, name)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			processes, err := proc.OfPod(string(pods[i].UID))
			if err != nil {
				return nil, err
			}
			for _, p := range processes {
				m, err := proc.MemoryOf(p.PID)
				if err != nil {
					return nil, err
				}
				out[name] += m.PSS
			}
		}
	}
	return out, nil
}

// kubernetesMemory is what runs the cluster itself: the control plane, the nodes'
// programs and the supervisor.
func kubernetesMemory(s cluster.Status) (int, error) {
	pids := []int{s.Supervisor}
	for _, p := range s.ControlPlane {
		pids = append(pids, p.PID)
	}
	for _, n := range s.Nodes {
		pids = append(pids, n.Init)
		for _, p := range n.Components {
			pids = append(pids, p.PID)
		}
	}
	sum := 0
	for _, pid := range pids {
		m, err := proc.MemoryOf(pid)
		if err != nil {
			return 0, err
		}
		sum += m.PSS
	}
	return sum, nil
}
